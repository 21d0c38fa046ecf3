//! A cable of shared memory: a file that both ends map, with a ring for each direction.
//!
//! ```text
//!  0     magic
//!  64    lane 0: frames written    128  lane 0: frames read      by the listener, by the maker
//!  192   lane 1: frames written    256  lane 1: frames read      by the maker, by the listener
//!  4096  slots of lane 0, slots of lane 1; each: length (8 bytes), frame
//! ```
//!
//! One end listens at an abstract Unix address, which a [`Ticket`] names; the other connects, makes
//! the file and hands it over (SCM_RIGHTS). That takes no right on the other process, so the two
//! may have capabilities, and be in different PID namespaces. Either asks the kernel whether the
//! other is of its user. The connection stays open: where one end is gone, it says so to the other.
//!
//! What the other end writes is input: numbers and lengths are checked, and a frame is copied
//! before it is looked at. The file has no name (`memfd_create(2)`), so that nothing is left behind
//! however the ends end; its length is sealed, so that nobody ends the other by shortening it.

use core::mem::MaybeUninit;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};
use rustix::process::geteuid;

use super::{Cable, CableError, FRAME_LEN_MAX};
use crate::roce::{Buffer, random};

/// The first word, written last: "wprdma" and the version of the layout.
pub(super) const MAGIC: u64 = 0x7770_7264_6d61_0002;
/// Frames under way in one direction: twice the packets that a queue pair sends ahead.
const SLOTS: u64 = 256;
/// The length, and the longest frame, in whole cache lines.
const SLOT_LEN: usize = (8 + FRAME_LEN_MAX).next_multiple_of(64);
const SLOTS_AT: usize = 4096;
pub(super) const LANE_LEN: usize = SLOTS as usize * SLOT_LEN;
pub(super) const FILE_LEN: usize = SLOTS_AT + 2 * LANE_LEN;

/// Nobody makes the file shorter or longer, or takes these seals off.
pub(super) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Peers that have connected and not yet handed their file over, at most; more wait in the kernel.
pub(super) const HALF_OPEN_MAX: usize = 16;
/// Peers that one call looks at, at most: as many as the kernel lets wait (`net.core.somaxconn`).
const PEERS_PER_CALL: usize = 4096;

/// Looks in vain, for a frame or for room, between two questions to the kernel whether the other
/// end is there still: one system call in some ten microseconds of polling.
const LOOKS_PER_CALL: u32 = 4096;

/// One end of a cable of shared memory.
pub struct SharedMemory {
    memory: Buffer,
    outgoing: Lane,
    incoming: Lane,
    peer: UnixStream,
    looks: u32,
    is_peer_gone: bool,
}

/// An end that waits for the other.
pub struct SharedMemoryListener {
    pub(super) listener: UnixListener,
    /// Peers that have connected, in their order; their files are to come.
    half_open: Vec<UnixStream>,
    ticket: Ticket,
}

/// Where an end waits for the other: a random number, so that two of them do not meet. It is no
/// secret: `/proc/net/unix` shows it to all users, and the kernel is asked of which user an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

impl Ticket {
    /// Bytes of a ticket that is told.
    pub const LEN: usize = 8;

    /// The bytes to tell.
    pub fn encode(&self) -> [u8; Self::LEN] {
        self.0.to_be_bytes()
    }

    /// Reads what was told.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self(u64::from_be_bytes(*bytes))
    }

    /// The abstract Unix address.
    pub(super) fn name(self) -> String {
        format!("wirepath-rdma-{:016x}", self.0)
    }
}

/// One direction, as one end sees it.
pub(super) struct Lane {
    pub(super) written_at: usize,
    pub(super) read_at: usize,
    slots_at: usize,
    /// Frames that this end has written, or read.
    pub(super) count: u64,
    /// Those that the other end has read, or written, when we looked last.
    other: u64,
}

impl SharedMemoryListener {
    /// Waits for one other end, in this network namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new() -> io::Result<Self> {
        let ticket = Ticket(random());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(ticket.name())?)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, half_open: Vec::new(), ticket })
    }

    /// What the other end needs to come here.
    pub const fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Takes the other end, if it has come and handed its file over; one that has only come is kept
    /// until it does or closes. Those of other users, and such as hand over something else than a
    /// cable, are sent away.
    ///
    /// # Errors
    /// None is ready (`WouldBlock`), or the last one was sent away.
    pub fn accept(&mut self) -> io::Result<SharedMemory> {
        let mut error = io::Error::from(ErrorKind::WouldBlock);
        let mut place = 0;
        for _ in 0..PEERS_PER_CALL {
            if place == self.half_open.len() && !self.meet()? {
                break;
            }
            match take(&self.half_open[place]) {
                Ok(Some(memory)) => return Ok(SharedMemory::over(memory, self.half_open.remove(place), [0, 1])),
                Ok(None) => place += 1,
                Err(refused) => {
                    self.half_open.remove(place);
                    error = refused;
                }
            }
        }
        Err(error)
    }

    /// Lets one more peer in, if one waits and there is a place.
    fn meet(&mut self) -> io::Result<bool> {
        if self.half_open.len() == HALF_OPEN_MAX {
            return Ok(false);
        }
        let Some((peer, _)) = if_ready(self.listener.accept())? else { return Ok(false) };
        peer.set_nonblocking(true)?;
        self.half_open.push(peer);
        Ok(true)
    }
}

impl SharedMemory {
    /// Makes a cable to an end that listens. All of its memory, some 2 MiB, is taken now.
    ///
    /// # Errors
    /// Nobody listens in this network namespace, or another user does, or there is no memory.
    pub fn connect(ticket: &Ticket) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(ticket.name().as_bytes())?)?;
        let peer = UnixStream::from(socket);
        check_user(&peer)?;
        let file = File::from(memfd_create("wirepath-rdma", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        // Not only its length: a machine without memory says so now, and not by a signal later.
        fallocate(&file, FallocateFlags::empty(), 0, FILE_LEN as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        let memory = Buffer::map(&file, FILE_LEN)?;
        memory.store_u64(0, MAGIC);
        hand_over(&peer, &file)?;
        Ok(Self::over(memory, peer, [1, 0]))
    }

    pub(super) const fn over(memory: Buffer, peer: UnixStream, [outgoing, incoming]: [usize; 2]) -> Self {
        let (outgoing, incoming) = (Lane::new(outgoing), Lane::new(incoming));
        Self { memory, outgoing, incoming, peer, looks: 0, is_peer_gone: false }
    }

    /// True if the other end has closed its connection, which the kernel does for a process that
    /// ends. It is asked once in many calls.
    fn is_peer_gone(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_PER_CALL) {
            self.is_peer_gone |= match self.peer.read(&mut [0]) {
                Ok(len) => len == 0,
                Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            };
        }
        self.is_peer_gone
    }
}

/// Another user could read and write what our peer sends.
fn check_user(peer: &UnixStream) -> io::Result<()> {
    if socket_peercred(peer)?.uid == geteuid() {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::PermissionDenied, "the other end is of another user"))
}

pub(super) fn hand_over(peer: &UnixStream, file: &File) -> io::Result<()> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(peer, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes the file out of the connection.
pub(super) fn receive(peer: &UnixStream) -> io::Result<File> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(peer, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let handed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok(File::from(handed.ok_or_else(no_cable)?))
}

fn no_cable() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the other end hands over something else than a cable")
}

/// What was waited for; `None` where it has not come.
fn if_ready<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        answer => answer.map(Some),
    }
}

/// Maps the cable that an end of this user hands over, if it has done so.
fn take(peer: &UnixStream) -> io::Result<Option<Buffer>> {
    check_user(peer)?;
    let Some(file) = if_ready(receive(peer))? else { return Ok(None) };
    let metadata = file.metadata()?;
    let is_sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS));
    if !metadata.is_file() || metadata.len() != FILE_LEN as u64 || !is_sealed {
        return Err(no_cable());
    }
    let memory = Buffer::map(&file, FILE_LEN)?;
    if memory.load_u64(0) != MAGIC {
        return Err(io::Error::new(ErrorKind::InvalidData, "the other end is of another version"));
    }
    Ok(Some(memory))
}

impl Lane {
    pub(super) const fn new(number: usize) -> Self {
        let written_at = 64 + 128 * number;
        Self { written_at, read_at: written_at + 64, slots_at: SLOTS_AT + number * LANE_LEN, count: 0, other: 0 }
    }

    /// Where the next frame of this end is.
    pub(super) const fn slot(&self) -> usize {
        self.slots_at + (self.count % SLOTS) as usize * SLOT_LEN
    }
}

impl Cable for SharedMemory {
    fn has_room(&mut self) -> Result<bool, CableError> {
        let lane = &mut self.outgoing;
        if lane.count.wrapping_sub(lane.other) >= SLOTS {
            lane.other = self.memory.load_u64(lane.read_at);
        }
        match lane.count.wrapping_sub(lane.other) {
            0..SLOTS => Ok(true),
            SLOTS if self.is_peer_gone() => Err(CableError::Closed),
            SLOTS => Ok(false),
            _ => Err(CableError::Broken("the number of a frame that was never sent")),
        }
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), CableError> {
        let lane = &mut self.outgoing;
        let (slot, frame) = (lane.slot(), &frame[..frame.len().min(FRAME_LEN_MAX)]);
        self.memory.write(slot + 8, frame);
        self.memory.store_u64(slot, frame.len() as u64);
        lane.count = lane.count.wrapping_add(1);
        self.memory.store_u64(lane.written_at, lane.count);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CableError> {
        Ok(())
    }

    fn receive(&mut self, frame: &mut [u8]) -> Result<Option<usize>, CableError> {
        // Asked first, so that what was written before the end is read.
        let is_gone = self.incoming.other == self.incoming.count && self.is_peer_gone();
        let lane = &mut self.incoming;
        if lane.other == lane.count {
            lane.other = self.memory.load_u64(lane.written_at);
        }
        match lane.other.wrapping_sub(lane.count) {
            0 if is_gone => return Err(CableError::Closed),
            0 => return Ok(None),
            1..=SLOTS => (),
            _ => return Err(CableError::Broken("more frames than the ring has slots")),
        }
        let slot = lane.slot();
        let len = usize::try_from(self.memory.load_u64(slot)).ok().filter(|len| *len <= FRAME_LEN_MAX);
        let bytes = len.and_then(|len| frame.get_mut(..len)).ok_or(CableError::Broken("a frame that is too long"))?;
        self.memory.read(slot + 8, bytes);
        lane.count = lane.count.wrapping_add(1);
        self.memory.store_u64(lane.read_at, lane.count);
        Ok(len)
    }
}
