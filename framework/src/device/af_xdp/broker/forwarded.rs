//! A queue whose frames a broker passes on: the broker stands in for the kernel. The client has a
//! umem and the four rings of AF_XDP, all in shared memory, and in place of the AF_XDP socket one
//! end of a pair of sockets. So the client's halves of a queue are those of any other.
//!
//! ```text
//!  client: AfXdpRx, AfXdpTx                            broker: ForwardedQueue
//!   fill        addresses of free chunks ────────────▶  takes one for a frame, copies the frame
//!   rx          descriptors ◀─────────────────────────  posts it
//!   tx          descriptors ─────────────────────────▶  copies the frame, posts it to the NIC
//!   completion  addresses ◀───────────────────────────  gives the chunk back at once
//!   socket      a datagram in either direction wakes who sleeps
//! ```
//!
//! Who sleeps says so in the flags of the ring that it waits for (`XDP_RING_NEED_WAKEUP`): the
//! broker in those of the tx ring, as the kernel does; the client in those of the rx ring. Each
//! sets its flag, and then looks once more; the other publishes, and then reads the flag. Between
//! the two steps of either side is a full fence, so one of them sees what the other did.
//!
//! The client is hostile: indices are checked by the rings, addresses and lengths by the umem, and
//! a chain of descriptors is bounded. A client that breaks the rules loses frames of its own, whole
//! ones: no part of a chain that is no frame goes out. It cannot keep the broker awake either:
//! words that wake it are taken up to a limit, and frames whose chunks cannot be given back wait.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;

use arrayvec::ArrayVec;

use super::foreign::ForeignUmem;
use super::lend::RING_LEN_MIN;
use crate::device::af_xdp::rings::ring::{ConsumerRing, Desc, MORE, OF_BROKER, Offsets, ProducerRing};
use crate::device::af_xdp::rings::socket::{Rings, SEGMENTS_MAX};
use crate::device::broker::request::QueueRequest;
use crate::device::broker::sys;
use crate::mem::Region;

/// The parts of each ring: its words on cache lines of their own.
const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, flags: 128, slots: 192 };
/// Rings begin on pages.
const PAGE: usize = 4_096;
/// Words that woke the broker, taken at once: more than a client of ours sends between two sleeps,
/// and than the socket holds (`net.unix.max_dgram_qlen`).
const WAKES_MAX: usize = 64;

/// The broker's end.
pub(crate) struct ForwardedQueue {
    umem: ForeignUmem,
    fill: ConsumerRing<u64>,
    completion: ProducerRing<u64>,
    rx: ProducerRing<Desc>,
    tx: ConsumerRing<Desc>,
    /// `None` once the client has sent files in it: it wakes nobody any more.
    socket: Option<OwnedFd>,
    /// Frames in the rx ring that were not published yet.
    has_posted: bool,
    /// Frames taken from the tx ring that were not given back yet.
    has_taken: bool,
    /// The next descriptors of the tx ring are of a chain that is no frame.
    is_within_invalid: bool,
}

/// The client's part of the queue.
pub(crate) struct ForwardedEnd {
    /// The broker's end of the socket, once more: its last close may take as long as a hostile
    /// client likes.
    kept: Option<OwnedFd>,
    socket: OwnedFd,
    memory: File,
    rings: File,
}

/// Why a frame did not get to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undelivered {
    /// Its rings are full, or have no free chunk: it does not run.
    Full,
    /// The fill ring has an address that is none.
    Address,
}

/// A frame that the client sends: its parts, all within the umem.
pub(crate) struct SentFrame {
    parts: ArrayVec<(u64, usize), SEGMENTS_MAX>,
    pub(crate) len: usize,
}

/// The next item of the tx ring.
#[expect(clippy::large_enum_variant, reason = "it stays on the stack: no frame allocates")]
pub(crate) enum Taken {
    Nothing,
    Frame(SentFrame),
    /// Descriptors that are no frame; their chunks are given back, also those of the rest of their
    /// chain.
    Invalid,
    /// More descriptors of such a chain.
    RestOfInvalid,
}

/// Where each ring is, and how long the file is.
struct Places {
    fill: usize,
    completion: usize,
    rx: usize,
    tx: usize,
    len: usize,
}

impl Places {
    fn of(rx_len: u32, tx_len: u32) -> Self {
        let ring = |slots: u32, slot: usize| (OFFSETS.slots as usize + slots as usize * slot).next_multiple_of(PAGE);
        let completion = ring(rx_len, size_of::<u64>());
        let rx = completion + ring(tx_len, size_of::<u64>());
        let tx = rx + ring(rx_len, size_of::<Desc>());
        Self { fill: 0, completion, rx, tx, len: tx + ring(tx_len, size_of::<Desc>()) }
    }
}

/// The client's side of the rings.
pub(crate) fn map_rings(file: &File, rx_len: u32, tx_len: u32) -> io::Result<Rings> {
    let at = Places::of(rx_len, tx_len);
    if file.metadata()?.len() < at.len as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Rings {
        fill: ProducerRing::map(file, at.fill as u64, &OFFSETS, rx_len)?,
        completion: ConsumerRing::map(file, at.completion as u64, &OFFSETS, tx_len)?,
        rx: ConsumerRing::map(file, at.rx as u64, &OFFSETS, rx_len)?,
        tx: ProducerRing::map(file, at.tx as u64, &OFFSETS, tx_len)?,
    })
}

impl ForwardedQueue {
    /// Makes the memory, the rings and the sockets of a queue as the client has requested it.
    pub(crate) fn make(request: &QueueRequest) -> io::Result<(Self, ForwardedEnd)> {
        let (rx_len, tx_len) = (request.rx_ring_len, request.tx_ring_len);
        let (at, memory) = (Places::of(rx_len, tx_len), sys::memory(request.umem_len as usize)?);
        let region = Region::shared(&memory, request.umem_len as usize)
            .map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error.to_string()))?;
        let rings = sys::memory(at.len)?;
        let (socket, theirs) = UnixDatagram::pair()?;
        socket.set_nonblocking(true)?;
        let socket = OwnedFd::from(socket);
        // The client may send files in it, whose last close is not to be here.
        let kept = socket.try_clone()?;
        let this = Self {
            umem: ForeignUmem::new(region, request.chunk_len as usize),
            fill: ConsumerRing::map(&rings, at.fill as u64, &OFFSETS, rx_len)?,
            completion: ProducerRing::map(&rings, at.completion as u64, &OFFSETS, tx_len)?,
            rx: ProducerRing::map(&rings, at.rx as u64, &OFFSETS, rx_len)?,
            tx: ConsumerRing::map(&rings, at.tx as u64, &OFFSETS, tx_len)?,
            socket: Some(socket),
            has_posted: false,
            has_taken: false,
            is_within_invalid: false,
        };
        // The client's first sleep needs no other preparation.
        this.rx.set_needs_wakeup(true);
        Ok((this, ForwardedEnd { kept: Some(kept), socket: theirs.into(), memory, rings }))
    }

    /// Copies a frame to the client. [`publish`](Self::publish) shows it.
    #[inline]
    pub(crate) fn deliver(&mut self, frame: &[u8]) -> Result<(), Undelivered> {
        self.deliver_marked(frame, 0)
    }

    /// The same with a frame of the broker's own, which the client trusts.
    pub(crate) fn deliver_own(&mut self, frame: &[u8]) -> Result<(), Undelivered> {
        self.deliver_marked(frame, OF_BROKER)
    }

    /// Whether all of these frames can be delivered now. More of them than the shortest ring holds
    /// wait only until such a ring would be empty: they could wait for ever else.
    pub(crate) fn has_room_for(&mut self, frames: &[Vec<u8>]) -> bool {
        let room = self.umem.room();
        let chunks: usize = frames.iter().map(|frame| frame.len().div_ceil(room).max(1)).sum();
        let chunks = chunks.min(RING_LEN_MIN as usize) as u32;
        self.rx.has_room(chunks) && self.fill.has(chunks)
    }

    #[inline]
    fn deliver_marked(&mut self, frame: &[u8], mark: u32) -> Result<(), Undelivered> {
        let (room, mut rest) = (self.umem.room(), frame);
        let chunks = frame.len().div_ceil(room).max(1) as u32;
        if !self.rx.has_room(chunks) || !self.fill.has(chunks) {
            return Err(Undelivered::Full);
        }
        loop {
            let (part, behind) = rest.split_at(rest.len().min(room));
            rest = behind;
            let Some(addr) = self.fill.take().and_then(|chunk| self.umem.place_of(chunk)) else {
                self.has_posted = true;
                return Err(Undelivered::Address);
            };
            self.umem.write(addr, part);
            let options = mark | if rest.is_empty() { 0 } else { MORE };
            self.rx.post(Desc { addr, len: part.len() as u32, options });
            self.has_posted = true;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// The next frame that the client sends, of `len_max` bytes at most. Its chunks are the
    /// client's again with the next [`publish`](Self::publish): copy it before. Takes up to one
    /// descriptor more than a frame may have.
    #[inline]
    pub(crate) fn take(&mut self, len_max: usize) -> Taken {
        let mut frame = SentFrame { parts: ArrayVec::new(), len: 0 };
        for count in 0..=SEGMENTS_MAX {
            let Some(desc) = self.take_desc() else {
                if count == 0 {
                    return Taken::Nothing;
                }
                // A client of ours shows whole chains.
                return self.invalid(true);
            };
            let (len, goes_on) = (desc.len as usize, desc.options & MORE != 0);
            if self.is_within_invalid {
                self.is_within_invalid = goes_on;
                if goes_on && count < SEGMENTS_MAX {
                    continue;
                }
                return Taken::RestOfInvalid;
            }
            let is_sound = len <= len_max && self.umem.has(desc.addr, len) && frame.len + len <= len_max;
            if !is_sound || frame.parts.try_push((desc.addr, len)).is_err() {
                return self.invalid(goes_on);
            }
            frame.len += len;
            if !goes_on {
                return Taken::Frame(frame);
            }
        }
        self.invalid(true)
    }

    /// A descriptor of the tx ring, whose chunk is given back by the completion ring; `None` also
    /// where that is full, because the client takes nothing back.
    #[inline]
    fn take_desc(&mut self) -> Option<Desc> {
        let desc = if self.completion.has_room(1) { self.tx.take() } else { None }?;
        self.has_taken = true;
        self.completion.post(desc.addr);
        Some(desc)
    }

    #[cold]
    fn invalid(&mut self, goes_on: bool) -> Taken {
        self.is_within_invalid = goes_on;
        Taken::Invalid
    }

    /// Copies a frame that was [taken](Self::take).
    #[inline]
    pub(crate) fn copy(&self, frame: &SentFrame, into: &mut [u8]) {
        let mut at = 0;
        for &(addr, len) in &frame.parts {
            self.umem.read(addr, &mut into[at..at + len]);
            at += len;
        }
    }

    /// Shows the client all that was delivered and taken, and wakes it where it sleeps and has
    /// frames.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if core::mem::take(&mut self.has_taken) {
            self.completion.publish();
            self.tx.give_back();
        }
        if core::mem::take(&mut self.has_posted) {
            self.fill.give_back();
            self.rx.publish();
            if self.rx.take_needs_wakeup() {
                // A full buffer means that it is being woken already.
                let _ = self.socket.as_ref().map(|socket| sys::send_now(socket, &[0]));
            }
        }
    }

    /// Says that the broker sleeps: who sends next wakes it. Returns whether a frame is there
    /// already.
    pub(crate) fn arm_wakeup(&mut self) -> bool {
        self.tx.set_needs_wakeup(true);
        self.tx.has(1) && self.completion.has_room(1)
    }

    /// The broker is awake; takes the words that woke it where there are any.
    pub(crate) fn disarm_wakeup(&mut self, was_woken: bool) {
        self.tx.set_needs_wakeup(false);
        let Some(socket) = self.socket.as_ref().filter(|_| was_woken) else { return };
        let word = || sys::receive_from_hostile(socket, &mut [0; 1], None);
        let last = (0..WAKES_MAX).find_map(|_| word().err());
        if last.is_some_and(|error| sys::has_unwanted_files(&error)) {
            self.socket = None;
        }
    }

    /// Readable when the client wakes the broker.
    pub(crate) fn fd(&self) -> RawFd {
        // poll(2) skips a negative number.
        self.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl ForwardedEnd {
    /// What is to be closed where nobody waits for it.
    pub(crate) fn take_kept(&mut self) -> Option<OwnedFd> {
        self.kept.take()
    }

    pub(crate) fn memory(&self) -> &File {
        &self.memory
    }

    /// The descriptors for the client: the socket, the memory and the rings.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.socket.as_fd(), self.memory.as_fd(), self.rings.as_fd()]
    }
}

/// A client that keeps to nothing, for tests: it writes into its rings as bytes of a file.
#[cfg(test)]
pub(crate) struct HostileClient {
    rings: File,
    at: Places,
    slots: u64,
    random: u64,
}

#[cfg(test)]
impl HostileClient {
    pub(crate) fn new(end: &ForwardedEnd, request: &QueueRequest, seed: u64) -> Self {
        assert!(request.rx_ring_len == request.tx_ring_len, "one length is simpler");
        let (rings, slots) = (end.rings.try_clone().unwrap(), request.tx_ring_len.into());
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { rings, at: Places::of(request.rx_ring_len, request.tx_ring_len), slots, random }
    }

    /// Xorshift.
    pub(crate) fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn write(&self, bytes: &[u8], place: u64) {
        std::os::unix::fs::FileExt::write_all_at(&self.rings, bytes, place).unwrap();
    }

    /// Writes one value, which may be right, somewhere into a ring.
    pub(crate) fn corrupt(&mut self) {
        let starts = [self.at.fill, self.at.completion, self.at.rx, self.at.tx];
        let (value, start) = (self.next(), starts[self.next() as usize % 4] as u64);
        // Small numbers are indices and addresses that may be right.
        let value = if value & 1 == 0 { value >> 8 } else { value >> 8 & 0x3ffff };
        let word = start + [OFFSETS.producer, OFFSETS.consumer, OFFSETS.flags][self.next() as usize % 3];
        match self.next() % 5 {
            0 | 1 => self.write(&((value % 80) as u32).to_ne_bytes(), word),
            2 => self.write(&(value as u32).to_ne_bytes(), word),
            _ => {
                let place = start + OFFSETS.slots + self.next() % (self.slots * 16 - 8);
                self.write(&value.to_ne_bytes(), place);
            }
        }
    }

    /// Takes the first `taken` frames that came, and has room for as many more as the ring has.
    pub(crate) fn receive(&self, taken: u32) {
        let filled = taken.wrapping_add(self.slots as u32);
        for idx in taken..filled {
            let slot = u64::from(idx) % self.slots;
            self.write(&(slot * 2048).to_ne_bytes(), self.at.fill as u64 + OFFSETS.slots + slot * 8);
        }
        self.write(&taken.to_ne_bytes(), self.at.rx as u64 + OFFSETS.consumer);
        self.write(&filled.to_ne_bytes(), self.at.fill as u64 + OFFSETS.producer);
    }

    /// Sends some chains, most of which are sound.
    pub(crate) fn send_chains(&mut self) {
        let mut word = [0; 4];
        let place = self.at.tx as u64 + OFFSETS.consumer;
        std::os::unix::fs::FileExt::read_exact_at(&self.rings, &mut word, place).unwrap();
        let descs: Vec<_> = (0..1 + self.next() % 40)
            .map(|_| {
                let addr = if self.next().is_multiple_of(16) { self.next() } else { self.next() % 120 * 2048 };
                let len = if self.next().is_multiple_of(16) { self.next() as u32 } else { (self.next() % 300) as u32 };
                (addr, len, u32::from(self.next().is_multiple_of(3)) * MORE)
            })
            .collect();
        self.send(u32::from_ne_bytes(word), &descs);
    }

    /// Shows descriptors (address, length, options) as the whole tx ring, from the index `from` on.
    pub(crate) fn send(&mut self, from: u32, descs: &[(u64, u32, u32)]) {
        for (idx, (addr, len, options)) in (from..).zip(descs) {
            let place = self.at.tx as u64 + OFFSETS.slots + u64::from(idx) % self.slots * 16;
            self.write(&addr.to_ne_bytes(), place);
            self.write(&len.to_ne_bytes(), place + 8);
            self.write(&options.to_ne_bytes(), place + 12);
        }
        let producer = from.wrapping_add(descs.len() as u32);
        self.write(&producer.to_ne_bytes(), self.at.tx as u64 + OFFSETS.producer);
        // It takes all chunks back.
        self.write(&producer.to_ne_bytes(), self.at.completion as u64 + OFFSETS.consumer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: QueueRequest =
        QueueRequest { umem_len: 128 * 2048, chunk_len: 2048, rx_ring_len: 64, tx_ring_len: 64, address: 0 };

    /// A queue, and the rings as a client that keeps to nothing has them.
    fn queue() -> (ForwardedQueue, Rings, Region) {
        let (queue, end) = ForwardedQueue::make(&ORDER).unwrap();
        let rings = map_rings(&end.rings, 64, 64).unwrap();
        (queue, rings, Region::shared(&end.memory, 128 * 2048).unwrap())
    }

    fn send(rings: &mut Rings, descs: &[Desc]) {
        descs.iter().for_each(|desc| rings.tx.post(*desc));
        rings.tx.publish();
    }

    fn desc(addr: u64, len: u32, options: u32) -> Desc {
        Desc { addr, len, options }
    }

    #[test]
    fn frame_goes_to_a_chunk_of_the_fill_ring_and_is_found_by_its_descriptor() {
        let (mut queue, mut rings, _memory) = queue();
        assert_eq!(queue.deliver(b"early"), Err(Undelivered::Full), "no chunk yet");
        rings.fill.post(3 * 2048);
        rings.fill.publish();
        queue.deliver(b"frame").unwrap();
        assert_eq!(rings.rx.take(), None, "not published");
        queue.publish();
        assert_eq!(rings.rx.take(), Some(desc(3 * 2048 + 384, 5, 0)));
    }

    #[test]
    fn long_frame_takes_several_chunks_or_none() {
        let (mut queue, mut rings, _memory) = queue();
        rings.fill.post(0);
        rings.fill.publish();
        assert_eq!(queue.deliver(&[7; 3_000]), Err(Undelivered::Full));
        rings.fill.post(2048);
        rings.fill.publish();
        queue.deliver(&[7; 3_000]).unwrap();
        queue.publish();
        assert_eq!(rings.rx.take(), Some(desc(384, 1_664, MORE)));
        assert_eq!(rings.rx.take(), Some(desc(2048 + 384, 3_000 - 1_664, 0)));
    }

    #[test]
    fn address_outside_the_umem_costs_the_client_its_frame() {
        let (mut queue, mut rings, _memory) = queue();
        for addr in [128 * 2048, u64::MAX, 1 << 50] {
            rings.fill.post(addr);
            rings.fill.publish();
            assert_eq!(queue.deliver(b"frame"), Err(Undelivered::Address));
        }
        queue.publish();
        assert_eq!(rings.rx.take(), None);
    }

    #[test]
    fn chain_is_one_frame_and_its_chunks_come_back() {
        let (mut queue, mut rings, memory) = queue();
        ForeignUmem::new(memory, 2048).write(100, b"headerspayload");
        send(&mut rings, &[desc(100, 7, MORE), desc(107, 7, 0)]);
        let Taken::Frame(frame) = queue.take(1_518) else { panic!("no frame") };
        let mut bytes = vec![0; frame.len];
        queue.copy(&frame, &mut bytes);
        assert_eq!(bytes, b"headerspayload");
        queue.publish();
        assert_eq!([(); 3].map(|()| rings.completion.take()), [Some(100), Some(107), None]);
        assert!(matches!(queue.take(1_518), Taken::Nothing));
    }

    #[test]
    fn descriptors_that_are_no_frame_are_none_and_what_follows_is() {
        let (mut queue, mut rings, _memory) = queue();
        let wrong = [
            vec![desc(128 * 2048, 60, 0)],
            vec![desc(u64::MAX, 60, 0)],
            vec![desc(2000, 60, 0)],
            vec![desc(0, u32::MAX, 0)],
            vec![desc(0, 1_000, MORE), desc(2048, 1_000, 0)],
            vec![desc(0, 60, MORE)],
            vec![desc(0, 1, MORE); SEGMENTS_MAX + 1],
        ];
        for descs in wrong {
            send(&mut rings, &descs);
            assert!(matches!(queue.take(1_518), Taken::Invalid), "{descs:?}");
            // Some end with a descriptor that goes on: what follows is theirs, and no frame.
            if descs.last().is_some_and(|last| last.options == MORE) {
                send(&mut rings, &[desc(0, 60, 0)]);
            }
            loop {
                match queue.take(1_518) {
                    Taken::RestOfInvalid => (),
                    Taken::Nothing => break,
                    Taken::Frame(frame) => panic!("{} bytes of {descs:?} are a frame", frame.len),
                    Taken::Invalid => panic!("{descs:?} are counted twice"),
                }
            }
            queue.publish();
            while rings.completion.take().is_some() {}
            rings.completion.give_back();
        }
        send(&mut rings, &[desc(0, 60, 0)]);
        assert!(matches!(queue.take(1_518), Taken::Frame(_)));
    }

    #[test]
    fn client_that_takes_nothing_back_sends_no_more_than_its_ring_holds() {
        let (mut queue, mut rings, _memory) = queue();
        let mut taken = 0;
        for _ in 0..200 {
            if rings.tx.has_room(1) {
                send(&mut rings, &[desc(0, 60, 0)]);
            }
            taken += usize::from(matches!(queue.take(1_518), Taken::Frame(_)));
            queue.publish();
        }
        assert_eq!(taken, 64);
    }

    #[test]
    fn tail_of_an_invalid_chain_is_no_frame() {
        let (mut queue, mut rings, memory) = queue();
        ForeignUmem::new(memory, 2048).write(100, b"tail");
        send(&mut rings, &[desc(u64::MAX, 60, MORE), desc(100, 4, MORE), desc(100, 4, 0), desc(0, 60, 0)]);
        assert!(matches!(queue.take(1_518), Taken::Invalid));
        assert!(matches!(queue.take(1_518), Taken::RestOfInvalid));
        assert!(matches!(queue.take(1_518), Taken::Frame(SentFrame { len: 60, .. })));
        // The tail of an invalid chain may be posted later.
        send(&mut rings, &[desc(0, 60, MORE)]);
        assert!(matches!(queue.take(1_518), Taken::Invalid));
        send(&mut rings, &[desc(100, 4, 0)]);
        assert!(matches!(queue.take(1_518), Taken::RestOfInvalid));
        assert!(matches!(queue.take(1_518), Taken::Nothing));
    }

    #[test]
    fn client_that_takes_nothing_back_does_not_keep_the_broker_awake() {
        let (mut queue, mut rings, _memory) = queue();
        send(&mut rings, &[desc(0, 60, 0); 64]);
        (0..64).for_each(|_| assert!(matches!(queue.take(1_518), Taken::Frame(_))));
        queue.publish();
        assert!(rings.tx.has_room(1));
        send(&mut rings, &[desc(0, 60, 0)]);
        assert!(!queue.arm_wakeup(), "its chunk could not be given back");
        rings.completion.take().unwrap();
        rings.completion.give_back();
        assert!(queue.arm_wakeup());
    }

    /// Any content of the rings, changed at any time: no panic, no byte outside the umem (asserted
    /// at each copy), and bounded work.
    #[test]
    fn random_rings_cost_their_client_alone() {
        let began = std::time::Instant::now();
        let (mut frames, mut delivered, mut cases) = (0, 0, 0);
        let mut bytes = vec![0; 1_518];
        while cases < 200 && began.elapsed() < std::time::Duration::from_secs(20) {
            cases += 1;
            let (mut queue, end) = ForwardedQueue::make(&ORDER).unwrap();
            let mut client = HostileClient::new(&end, &ORDER, cases);
            for _ in 0..2_000 {
                match client.next() % 8 {
                    0..5 => client.corrupt(),
                    5 => {
                        let frame = &[7; 4_000][..client.next() as usize % 4_000];
                        delivered += usize::from(queue.deliver(frame).is_ok());
                    }
                    6 => {
                        if let Taken::Frame(frame) = queue.take(1_518) {
                            assert!(frame.len <= 1_518);
                            queue.copy(&frame, &mut bytes[..frame.len]);
                            frames += 1;
                        }
                    }
                    _ => {
                        queue.publish();
                        queue.arm_wakeup();
                        queue.disarm_wakeup(client.next() & 1 == 0);
                    }
                }
            }
        }
        println!("{cases} cases: {frames} frames were taken, {delivered} delivered");
        assert!(frames > 0 && delivered > 0, "{frames} {delivered}");
    }

    #[test]
    fn who_sleeps_is_woken_once_and_who_is_awake_is_not() {
        let (mut queue, mut rings, _memory) = queue();
        (0..4).for_each(|chunk| rings.fill.post(chunk * 2048));
        rings.fill.publish();
        assert!(rings.rx.needs_wakeup(), "from the start");
        for _ in 0..2 {
            queue.deliver(b"frame").unwrap();
            queue.publish();
            assert!(!rings.rx.needs_wakeup());
        }
        assert!(!rings.tx.needs_wakeup() && !queue.arm_wakeup() && rings.tx.needs_wakeup());
        send(&mut rings, &[desc(0, 60, 0)]);
        assert!(queue.arm_wakeup(), "a frame is there");
        queue.disarm_wakeup(true);
        assert!(!rings.tx.needs_wakeup());
    }
}
