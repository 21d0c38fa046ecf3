//! What a worker and its recovery thread pass to each other: two rings, neither of which makes the
//! worker wait, allocate or free memory.

use arrayvec::ArrayVec;
use market::RerequestRange;
use market::framing::Session;
use wirepath::worker::spsc::lossless::{Consumer, Producer, ring};

/// The longest packet that is passed on: a UDP payload of an Ethernet frame without jumbo. Servers
/// answer by packets of the feed, which are no longer.
pub(crate) const PACKET_LEN_MAX: usize = 1_472;
/// Answers that wait for the worker. Where the ring is full, further ones wait in the socket, and
/// when that is full the kernel drops them: they are requested again.
const ANSWERS_MAX: usize = 256;
/// Commands that wait for the thread. Where the ring is full, requests are dropped, counted, and
/// made again after their timeout.
const COMMANDS_MAX: usize = 1_024;

/// From the worker.
pub(crate) enum Command<B> {
    /// Messages of a channel are missing.
    Request {
        set: u16,
        /// The channel's index in the feed.
        channel: u32,
        /// The channel's number in the packets.
        number: u32,
        session: Session,
        range: RerequestRange,
    },
    /// A channel needs an image.
    Image { set: u16, channel: u32, session: Session, id: u64, covers_from: u64 },
    /// Whether a set's loop of snapshots is of use.
    Snapshots { set: u16, are_wanted: bool },
    /// A set's loop of definitions is wanted, until each instrument was defined.
    Definitions { set: u16 },
    /// The books that an image replaced: the memory for the next one.
    Spare(Box<B>),
}

/// To the worker. Packets are most of the answers, and a box would be freed by the worker.
pub(crate) enum Answer<B> {
    /// A packet with messages that were requested.
    Packet { set: u16, bytes: ArrayVec<u8, PACKET_LEN_MAX> },
    /// A packet of a set's loops, which no other line had brought.
    LoopPacket { set: u16, bytes: ArrayVec<u8, PACKET_LEN_MAX> },
    /// The server refuses the request that began at `seq`.
    Refused { channel: u32, seq: u64 },
    /// An image, behind which the live feed continues with `first_live`.
    Image { channel: u32, id: u64, first_live: u64, books: Box<B> },
    /// No image came of a request.
    NoImage { channel: u32, id: u64 },
}

/// The worker's ends of both rings.
pub(crate) struct WorkerEnd<B: Send> {
    pub(crate) commands: Producer<Command<B>>,
    pub(crate) answers: Consumer<Answer<B>>,
}

/// The thread's ends.
pub(crate) struct ThreadEnd<B: Send> {
    pub(crate) commands: Consumer<Command<B>>,
    pub(crate) answers: Producer<Answer<B>>,
}

/// Both ends. Allocates some half a megabyte.
pub(crate) fn link<B: Send>() -> (WorkerEnd<B>, ThreadEnd<B>) {
    const POWER: &str = "both capacities are powers of two";
    let (to_thread, commands) = ring(COMMANDS_MAX).expect(POWER);
    let (answers, to_worker) = ring(ANSWERS_MAX).expect(POWER);
    (WorkerEnd { commands: to_thread, answers: to_worker }, ThreadEnd { commands, answers })
}
