//! What a worker and its recovery thread pass to each other: two rings, neither of which makes the
//! worker wait, allocate or free memory.

use arrayvec::ArrayVec;
use market::RerequestRange;
use market::event::Status;
use market::framing::Session;
use wirepath::worker::spsc::lossless::{Consumer, Producer, ring};

/// The longest packet that is passed on: a UDP payload of an Ethernet frame without jumbo. Servers
/// answer by packets of the feed, which are no longer.
pub const PACKET_LEN_MAX: usize = 1_472;
/// Answers that wait for the worker. Where the ring is full, further ones wait in the socket, and
/// when that is full the kernel drops them: they are requested again.
const ANSWERS_MAX: usize = 256;
/// Commands that wait for the thread. Where the ring is full, requests are dropped, counted, and
/// made again after their timeout.
const COMMANDS_MAX: usize = 1_024;

/// From the worker.
pub enum Command<B> {
    /// Messages of a channel are missing.
    Request {
        /// The channel's set.
        set: u16,
        /// The channel's index in the feed.
        channel: u32,
        /// The channel's number in the packets.
        number: u32,
        /// That of the live feed.
        session: Session,
        /// The missing messages.
        range: RerequestRange,
    },
    /// A channel needs an image.
    Image {
        /// The channel's set.
        set: u16,
        /// Its index in the feed.
        channel: u32,
        /// That of the live feed.
        session: Session,
        /// Of the request.
        id: u64,
        /// The image must continue with this number, or a later one.
        covers_from: u64,
    },
    /// Whether a set's loop of snapshots is of use.
    Snapshots {
        /// The set.
        set: u16,
        /// Whether they are.
        are_wanted: bool,
    },
    /// A set's loop of definitions is wanted, until each instrument was defined.
    Definitions {
        /// The set.
        set: u16,
    },
    /// The books that an image replaced, and its states: the memory for the next one.
    Spare(Box<B>, Vec<Status>),
}

/// To the worker. Packets are most of the answers, and a box would be freed by the worker.
pub enum Answer<B> {
    /// A packet with messages that were requested.
    Packet {
        /// Its set.
        set: u16,
        /// The packet.
        bytes: ArrayVec<u8, PACKET_LEN_MAX>,
    },
    /// A packet of a set's loops, which no other line had brought.
    LoopPacket {
        /// Its set.
        set: u16,
        /// The packet.
        bytes: ArrayVec<u8, PACKET_LEN_MAX>,
    },
    /// The server refuses the request that began at `seq`.
    Refused {
        /// The channel's index in the feed.
        channel: u32,
        /// The request's first number.
        seq: u64,
    },
    /// An image, behind which the live feed continues with `first_live`.
    Image {
        /// The channel's index in the feed.
        channel: u32,
        /// That of the request.
        id: u64,
        /// The number with which the live feed continues.
        first_live: u64,
        /// Its books.
        books: Box<B>,
        /// The states of instruments that it has, in its order. They go back with the books that
        /// it replaces, because the worker frees nothing.
        statuses: Vec<Status>,
    },
    /// No image came of a request.
    NoImage {
        /// The channel's index in the feed.
        channel: u32,
        /// That of the request.
        id: u64,
    },
}

/// The worker's ends of both rings.
pub struct WorkerEnd<B: Send> {
    /// To the thread.
    pub commands: Producer<Command<B>>,
    /// From the thread.
    pub answers: Consumer<Answer<B>>,
}

/// The thread's ends.
pub struct ThreadEnd<B: Send> {
    /// From the worker.
    pub commands: Consumer<Command<B>>,
    /// To the worker.
    pub answers: Producer<Answer<B>>,
}

/// Both ends. Allocates some half a megabyte.
pub fn link<B: Send>() -> (WorkerEnd<B>, ThreadEnd<B>) {
    const POWER: &str = "both capacities are powers of two";
    let (to_thread, commands) = ring(COMMANDS_MAX).expect(POWER);
    let (answers, to_worker) = ring(ANSWERS_MAX).expect(POWER);
    (WorkerEnd { commands: to_thread, answers: to_worker }, ThreadEnd { commands, answers })
}
