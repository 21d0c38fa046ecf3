//! IPv4 reassembly: fragments go in, whole datagrams come out (RFC 791 3.2, RFC 815).
//!
//! ```text
//!   table  (source, destination, protocol, identification, scope) ─► datagram ─► piece ─► piece ─► …   by offset
//!   age    oldest ─► … ─► newest          the order of timeouts, and of eviction when there is no room
//! ```
//! A fragment's payload is an opaque handle `H`. The machine holds the handle until it returns it:
//! in order, when the datagram is complete, or with the reason why it was dropped. It never reads a
//! byte of a payload, so it cannot merge overlaps. It need not, because a datagram with an overlap
//! is dropped whole (RFC 5722 4 requires it for IPv6; RFC 1858 and the teardrop attack are the
//! reason for IPv4). A duplicate fragment is harmless and happens on networks with two paths; only
//! the second copy is dropped.
//!
//! Memory and time are bounded against a flooder: the table's hash is keyed, the numbers of
//! datagrams, of pieces and of pieces per datagram are limited, and the newest datagram displaces
//! the oldest.

use core::fmt;
use core::net::Ipv4Addr;

use super::hash::HashSeed;
use super::slab::{NIL, Slab};
use super::table::{Key, Table};
use crate::time::{Duration, Instant};

/// How long the first fragment waits for the last. RFC 1122 3.3.2 recommends 60 to 120 s, for the
/// paths of 1989; Linux waits 30 s. A longer time lets a flooder hold more and lets 16-bit
/// identifications wrap (RFC 4963: 65,536 datagrams pass in a second at 1 Gbit/s); a shorter one
/// loses datagrams behind a queue that is seconds long.
pub const REASSEMBLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes after the IP header that a datagram can have: its total length is a 16-bit number that
/// counts a header of at least 20 bytes (RFC 791 3.1). A fragment that reaches further is a ping of
/// death.
pub const DATAGRAM_PAYLOAD_MAX: usize = 65_535 - 20;

/// Datagrams that one [`Reassembly::tick`] drops at most: 16 a poll empty any table quickly, and a
/// poll never pays for a whole table.
pub const EXPIRED_PER_TICK_MAX: usize = 16;

/// Fragments that one datagram may have by default: 65,515 bytes in packets of 1500 make 45, and
/// tunnels that reduce the MTU somewhat still stay below. A sender of tiny fragments reaches it
/// long before it fills the memory.
pub const PIECES_PER_DATAGRAM_MAX: usize = 64;

/// Capacities. All of it is allocated at construction; the buffers behind the handles are not
/// counted here, so the pool needs [`pieces`](Self::pieces) buffers for reassembly.
#[derive(Clone, Copy, Debug)]
pub struct ReassemblyCapacity {
    /// Incomplete datagrams, about 64 bytes each and 128 to 256 of table; one at least. Fragments
    /// of further ones are dropped until one is complete or times out.
    pub datagrams: usize,
    /// Pieces of all of them together, 16 bytes and a handle each, and as many buffers of the pool.
    /// At least `pieces_per_datagram`.
    pub pieces: usize,
    /// Pieces of one datagram, at most 64. With fewer, long datagrams over a
    /// small MTU are dropped; with more, one sender of tiny fragments holds more.
    pub pieces_per_datagram: usize,
}

impl ReassemblyCapacity {
    /// The bytes that `Reassembly::new` allocates for handles of type `H`: the sum of its three
    /// parts.
    pub fn bytes<H>(self) -> usize {
        Table::<PackedKey, u32>::bytes(self.datagrams)
            + Slab::<Datagram>::bytes(self.datagrams)
            + Slab::<Piece<H>>::bytes(self.pieces)
    }
}

/// The common fields of a datagram's fragments (RFC 791 3.2), and their network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Protocol number.
    pub protocol: u8,
    /// Identification.
    pub identification: u16,
    /// Interface or VLAN: fragments of two networks are never mixed, even if their addresses are
    /// the same.
    pub scope: u32,
}

/// One fragment as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<H> {
    /// The datagram that it belongs to.
    pub key: FragmentKey,
    /// Its offset in the datagram's payload, in bytes.
    pub offset: u16,
    /// Bytes of payload it carries.
    pub len: u16,
    /// The "more fragments" flag.
    pub more: bool,
    /// The payload.
    pub handle: H,
}

/// The outcome of a fragment.
#[derive(Debug)]
#[must_use]
pub enum Outcome<'a, H> {
    /// It is held; others are missing.
    Kept,
    /// It was the last one missing: here are all of them.
    Complete(Complete<'a, H>),
    /// It was dropped, alone or with its whole datagram; the handles went to `release`.
    Dropped(ReassemblyDrop),
}

/// Why a payload is returned undelivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReassemblyDrop {
    /// It overlaps another fragment of the datagram, which is dropped whole: teardrop.
    Overlap,
    /// Two fragments disagree on where the datagram ends; it is dropped whole.
    LengthConflict,
    /// The datagram has more pieces than one may have; it is dropped whole.
    TooManyFragments,
    /// The datagram was the oldest when memory was needed for a newer one.
    Evicted,
    /// The datagram was not complete in time.
    Timeout,
    /// The fragment ends beyond the longest possible datagram: ping of death.
    Oversize,
    /// The fragment is empty.
    ZeroLength,
    /// The fragment is not the last, and its length or its offset is not a multiple of 8 bytes
    /// (RFC 791 3.2).
    NotMultipleOf8,
    /// The same fragment is held already.
    Duplicate,
}

impl ReassemblyDrop {
    /// Every reason in the order of declaration, which is the order of `self as usize`.
    pub const ALL: &[Self] = &[
        Self::Overlap,
        Self::LengthConflict,
        Self::TooManyFragments,
        Self::Evicted,
        Self::Timeout,
        Self::Oversize,
        Self::ZeroLength,
        Self::NotMultipleOf8,
        Self::Duplicate,
    ];

    /// The reason in fixed words, for counters and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Overlap => "overlap",
            Self::LengthConflict => "length_conflict",
            Self::TooManyFragments => "too_many_fragments",
            Self::Evicted => "evicted",
            Self::Timeout => "timeout",
            Self::Oversize => "oversize",
            Self::ZeroLength => "zero_length",
            Self::NotMultipleOf8 => "not_multiple_of_8",
            Self::Duplicate => "duplicate",
        }
    }
}

impl fmt::Display for ReassemblyDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A payload that is returned undelivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released<H> {
    /// The payload.
    pub handle: H,
    /// The reason.
    pub reason: ReassemblyDrop,
    /// Its offset in its datagram: RFC 792 allows a "time exceeded" only about fragment 0.
    pub offset: u16,
}

/// Incomplete datagrams of one worker.
#[derive(Debug)]
pub struct Reassembly<H> {
    table: Table<PackedKey, u32>,
    datagrams: Slab<Datagram>,
    pieces: Slab<Piece<H>>,
    pieces_per_datagram: usize,
    timeout: Duration,
    oldest: u32,
    newest: u32,
}

#[derive(Debug)]
struct Datagram {
    key: PackedKey,
    deadline: Instant,
    /// Pieces by offset, without overlap.
    first: u32,
    last: u32,
    count: u32,
    /// Bytes held; equal to `end` when nothing is missing.
    held: u32,
    /// Length of the whole datagram, once a fragment without "more" has arrived; zero before.
    end: u32,
    older: u32,
    newer: u32,
}

#[derive(Debug)]
struct Piece<H> {
    offset: u16,
    len: u16,
    next: u32,
    handle: H,
}

impl<H> Piece<H> {
    fn end(&self) -> u32 {
        u32::from(self.offset) + u32::from(self.len)
    }
}

impl<H> Reassembly<H> {
    /// Allocates all its memory here (see [`ReassemblyCapacity::bytes`]). `seed` is secret: an
    /// attacker that knows it can make lookups slow.
    pub fn new(capacity: ReassemblyCapacity, timeout: Duration, seed: HashSeed) -> Self {
        let ReassemblyCapacity { datagrams, pieces, pieces_per_datagram } = capacity;
        assert!(datagrams > 0 && pieces_per_datagram > 0, "reassembly without room for a datagram");
        assert!(pieces >= pieces_per_datagram, "reassembly needs room for the pieces of at least one datagram");
        Self {
            table: Table::new(datagrams, seed),
            datagrams: Slab::new(datagrams),
            pieces: Slab::new(pieces),
            pieces_per_datagram,
            timeout,
            oldest: NIL,
            newest: NIL,
        }
    }

    /// Takes one fragment. Payloads that are not kept go to `release` first, with the reason: those
    /// of this fragment, of its datagram, or of older datagrams that were displaced. Costs about
    /// 50 ns, and a scan of the datagram's fragments where one arrives out of order.
    pub fn push(
        &mut self,
        fragment: Fragment<H>,
        now: Instant,
        release: &mut impl FnMut(Released<H>),
    ) -> Outcome<'_, H> {
        if let Err(reason) = check(&fragment) {
            release(Released { handle: fragment.handle, reason, offset: fragment.offset });
            return Outcome::Dropped(reason);
        }
        let datagram = self.open(PackedKey::new(fragment.key), now, release);
        let after = match self.place(datagram, &fragment) {
            Ok(after) => after,
            Err(reason) => {
                release(Released { handle: fragment.handle, reason, offset: fragment.offset });
                if reason != ReassemblyDrop::Duplicate {
                    self.abandon(datagram, reason, release);
                }
                return Outcome::Dropped(reason);
            }
        };
        self.keep(datagram, after, fragment, release);
        let Datagram { held, end, .. } = self.datagrams[datagram];
        if held != end {
            return Outcome::Kept;
        }
        let Datagram { first, end, count, .. } = self.close(datagram);
        Outcome::Complete(Complete { pieces: &mut self.pieces, next: first, count, len: end as usize })
    }

    /// Drops expired datagrams, at most [`EXPIRED_PER_TICK_MAX`] a call, and returns their number.
    /// Costs one compare where there is nothing to do.
    pub fn tick(&mut self, now: Instant, release: &mut impl FnMut(Released<H>)) -> usize {
        let mut expired = 0;
        while expired < EXPIRED_PER_TICK_MAX {
            match self.datagrams.get(self.oldest) {
                Some(oldest) if oldest.deadline <= now => {}
                _ => break,
            }
            self.abandon(self.oldest, ReassemblyDrop::Timeout, release);
            expired += 1;
        }
        expired
    }

    /// The next time at which [`tick`](Self::tick) has work, as far as is known now.
    pub fn deadline(&self) -> Option<Instant> {
        self.datagrams.get(self.oldest).map(|oldest| oldest.deadline)
    }

    /// Incomplete datagrams.
    pub fn datagrams(&self) -> usize {
        self.datagrams.len()
    }

    /// Payloads held.
    pub fn held(&self) -> usize {
        self.pieces.len()
    }

    /// The datagram of `key`; a new one where there is none, or only an expired one.
    fn open(&mut self, key: PackedKey, now: Instant, release: &mut impl FnMut(Released<H>)) -> u32 {
        if let Some(datagram) = self.table.get(key).copied() {
            if now < self.datagrams[datagram].deadline {
                return datagram;
            }
            self.abandon(datagram, ReassemblyDrop::Timeout, release);
        }
        if self.table.is_full() {
            self.abandon(self.oldest, ReassemblyDrop::Evicted, release);
        }
        let datagram = Datagram {
            key,
            deadline: now + self.timeout,
            first: NIL,
            last: NIL,
            count: 0,
            held: 0,
            end: 0,
            older: self.newest,
            newer: NIL,
        };
        let Ok(idx) = self.datagrams.insert(datagram) else { panic!("the table had room, the slab has as much") };
        assert!(self.table.insert(key, idx), "the table has room and does not know the key");
        match self.datagrams.get_mut(self.newest) {
            Some(newest) => newest.newer = idx,
            None => self.oldest = idx,
        }
        self.newest = idx;
        idx
    }

    /// The fragment after which this one belongs, if it agrees with all that are held.
    fn place(&self, datagram: u32, fragment: &Fragment<H>) -> Result<u32, ReassemblyDrop> {
        let state = &self.datagrams[datagram];
        let (offset, end) = (u32::from(fragment.offset), u32::from(fragment.offset) + u32::from(fragment.len));
        let last_end = self.pieces.get(state.last).map_or(0, Piece::end);
        // In order, the usual case, no search is needed.
        let before = if last_end <= offset { state.last } else { self.before(state, offset) };
        let next = match self.pieces.get(before) {
            Some(piece) => piece.next,
            None => state.first,
        };
        let next = self.pieces.get(next);
        let known_end = (state.end != 0).then_some(state.end);
        if let Some(piece) = next
            && (piece.offset, piece.len) == (fragment.offset, fragment.len)
            && fragment.more == (known_end != Some(end))
        {
            return Err(ReassemblyDrop::Duplicate);
        }
        let disagrees = match (fragment.more, known_end) {
            (true, Some(known)) => end >= known,
            (true, None) => false,
            (false, Some(known)) => end != known,
            (false, None) => end < last_end,
        };
        if disagrees {
            return Err(ReassemblyDrop::LengthConflict);
        }
        let overlaps_before = self.pieces.get(before).is_some_and(|piece| piece.end() > offset);
        let overlaps_next = next.is_some_and(|piece| u32::from(piece.offset) < end);
        if overlaps_before || overlaps_next {
            return Err(ReassemblyDrop::Overlap);
        }
        if state.count as usize == self.pieces_per_datagram {
            return Err(ReassemblyDrop::TooManyFragments);
        }
        Ok(before)
    }

    /// The last piece that begins before `offset`: a search of at most `pieces_per_datagram` steps.
    fn before(&self, datagram: &Datagram, offset: u32) -> u32 {
        let mut before = NIL;
        let mut idx = datagram.first;
        while let Some(piece) = self.pieces.get(idx)
            && u32::from(piece.offset) < offset
        {
            (before, idx) = (idx, piece.next);
        }
        before
    }

    fn keep(&mut self, datagram: u32, after: u32, fragment: Fragment<H>, release: &mut impl FnMut(Released<H>)) {
        if self.pieces.free_count() == 0 {
            self.make_room(datagram, release);
        }
        let next = match self.pieces.get(after) {
            Some(piece) => piece.next,
            None => self.datagrams[datagram].first,
        };
        let Fragment { offset, len, more, handle, .. } = fragment;
        let Ok(piece) = self.pieces.insert(Piece { offset, len, next, handle }) else { panic!("room was made") };
        match self.pieces.get_mut(after) {
            Some(before) => before.next = piece,
            None => self.datagrams[datagram].first = piece,
        }
        let state = &mut self.datagrams[datagram];
        if next == NIL {
            state.last = piece;
        }
        state.count += 1;
        state.held += u32::from(len);
        if !more {
            state.end = u32::from(offset) + u32::from(len);
        }
    }

    /// Frees the fragments of the oldest datagram except `spared`. There always is one, because
    /// `spared` alone may not fill the slab.
    fn make_room(&mut self, spared: u32, release: &mut impl FnMut(Released<H>)) {
        let victim = if self.oldest == spared { self.datagrams[spared].newer } else { self.oldest };
        self.abandon(victim, ReassemblyDrop::Evicted, release);
    }

    /// Drops a datagram and returns its payloads.
    fn abandon(&mut self, datagram: u32, reason: ReassemblyDrop, release: &mut impl FnMut(Released<H>)) {
        let mut next = self.close(datagram).first;
        while let Some(piece) = self.pieces.remove(next) {
            next = piece.next;
            release(Released { handle: piece.handle, reason, offset: piece.offset });
        }
    }

    /// Removes a datagram; the caller takes its fragments.
    fn close(&mut self, datagram: u32) -> Datagram {
        let Some(state) = self.datagrams.remove(datagram) else { panic!("a datagram is closed once") };
        self.table.remove(state.key);
        match self.datagrams.get_mut(state.older) {
            Some(older) => older.newer = state.newer,
            None => self.oldest = state.newer,
        }
        match self.datagrams.get_mut(state.newer) {
            Some(newer) => newer.older = state.older,
            None => self.newest = state.older,
        }
        state
    }
}

/// A key in 120 bits, and one bit above that is always set: so no packet's key equals a free
/// slot's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PackedKey([u64; 2]);

impl PackedKey {
    fn new(key: FragmentKey) -> Self {
        let addresses = u64::from(key.source.to_bits()) << 32 | u64::from(key.destination.to_bits());
        let rest = u64::from(key.scope) << 24 | u64::from(key.protocol) << 16 | u64::from(key.identification);
        Self([addresses, 1 << 56 | rest])
    }
}

impl Key for PackedKey {
    const EMPTY: Self = Self([0; 2]);

    /// Senders choose these keys and must not be able to choose those that collide.
    fn hash(self, seed: &HashSeed) -> u64 {
        seed.sip(&self.0)
    }
}

/// Checks a fragment by itself. A failure here does not touch the datagram that it claims to belong
/// to.
fn check<H>(fragment: &Fragment<H>) -> Result<(), ReassemblyDrop> {
    if fragment.len == 0 {
        return Err(ReassemblyDrop::ZeroLength);
    }
    if !fragment.offset.is_multiple_of(8) || (fragment.more && !fragment.len.is_multiple_of(8)) {
        return Err(ReassemblyDrop::NotMultipleOf8);
    }
    if usize::from(fragment.offset) + usize::from(fragment.len) > DATAGRAM_PAYLOAD_MAX {
        return Err(ReassemblyDrop::Oversize);
    }
    Ok(())
}

/// The payloads of a whole datagram, in order and without a gap. Dropping it drops the payloads
/// that were not taken.
#[derive(Debug)]
pub struct Complete<'a, H> {
    pieces: &'a mut Slab<Piece<H>>,
    next: u32,
    count: u32,
    len: usize,
}

impl<H> Complete<'_, H> {
    /// Bytes of the whole datagram after its IP header.
    pub fn datagram_len(&self) -> usize {
        self.len
    }
}

impl<H> Iterator for Complete<'_, H> {
    type Item = H;

    fn next(&mut self) -> Option<H> {
        let piece = self.pieces.remove(self.next)?;
        self.next = piece.next;
        self.count -= 1;
        Some(piece.handle)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count as usize, Some(self.count as usize))
    }
}

impl<H> ExactSizeIterator for Complete<'_, H> {}

impl<H> Drop for Complete<'_, H> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

#[cfg(test)]
mod tests;
