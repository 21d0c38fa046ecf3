//! Packets with an implausible claim, which wait for a second packet with the same claim.
//!
//! A claim is accepted when another packet of the same session makes it too, and begins within the
//! first packet's numbers or right after them; where numbers were skipped, at most [`NEAR`] after
//! them. A network's copy of the packet itself confirms nothing, and a packet whose own line
//! continued without the claim needs a witness from another line.

use arrayvec::ArrayVec;

use crate::framing::Header;

/// The most claims that wait at the same time. A further packet displaces the one that its own line
/// contradicts most, otherwise the oldest; the displaced packet is counted as doubted. With too
/// few, damaged packets displace true ones; each may hold a buffer of the pool.
pub const DOUBTS_MAX: usize = 8;
/// How far behind the end of a packet its witness may begin, in messages: about a packet, so that a
/// line that loses every other packet still finds its witnesses. Two packets with random damage are
/// not so close to each other.
const NEAR: u64 = 64;
/// The number of copies of a heartbeat after which it is accepted: publishers repeat theirs every
/// second, networks do not.
const HEARTBEAT_COPIES: u8 = 2;
/// The number of packets of its own line that have to contradict a claim before it is dropped. One
/// of those packets may itself be damaged.
const CONTRADICTIONS_MAX: u8 = 3;

/// A packet's claim that no other packet has made yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The channel begins here; no packet came before.
    Begin,
    /// Everything up to here was sent, and did not arrive here.
    Jump,
    /// The sequence numbers restarted.
    Restart,
}

/// A packet that waits for a witness, with its owner's record of it.
#[derive(Clone, Debug)]
pub(crate) struct Doubt<T> {
    pub(crate) header: Header,
    pub(crate) claim: Claim,
    pub(crate) kept: T,
    line_idx: usize,
    now_ns: u64,
    copies: u8,
    contradictions: u8,
    /// The claim is rejected: its packet is to be discarded.
    is_dismissed: bool,
}

/// A packet without an implausible claim, for the doubts of its line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contradiction<'a> {
    pub(crate) header: &'a Header,
    pub(crate) line_idx: usize,
    /// This packet contradicts doubted packets from before this time.
    pub(crate) before_ns: u64,
    /// Packets from before this time may be dismissed.
    pub(crate) over_ns: u64,
}

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// A witness confirms it, or the numbers have reached it meanwhile.
    Believed,
    /// A later packet of its line contradicts it, or newer claims displaced it.
    Dismissed,
}

/// All packets of a channel that wait for a witness, the oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Doubts<T> {
    /// One entry more than may wait, for a displaced packet that is not taken yet.
    entries: ArrayVec<Doubt<T>, { DOUBTS_MAX + 1 }>,
    /// Something changed since [`Doubts::take`] found nothing.
    is_changed: bool,
    /// The least number of a jump; none is due before the numbers reach it.
    jump_seq: u64,
}

impl<T> Doubts<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: ArrayVec::new_const(), is_changed: false, jump_seq: u64::MAX }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether [`Doubts::take`] may find something.
    #[inline]
    pub(crate) fn is_due(&self, reach: u64) -> bool {
        self.is_changed || self.jump_seq <= reach
    }

    /// Whether the line brought this very packet before. The copy is counted.
    pub(crate) fn is_copy(&mut self, header: &Header, line_idx: usize) -> bool {
        let is_it = |doubt: &&mut Doubt<T>| doubt.line_idx == line_idx && doubt.header == *header;
        let Some(doubt) = self.entries.iter_mut().find(is_it) else { return false };
        doubt.copies = doubt.copies.saturating_add(1);
        self.is_changed = true;
        true
    }

    /// Adds a packet that is no copy. Where there are too many, one is displaced: take it before
    /// the next one is added.
    pub(crate) fn push(&mut self, claim: Claim, header: Header, line_idx: usize, now_ns: u64, kept: T) {
        if self.entries.len() == DOUBTS_MAX {
            let least_likely = self.least_likely();
            self.entries[least_likely].is_dismissed = true;
        }
        let (copies, contradictions, is_dismissed) = (0, 0, false);
        self.entries.push(Doubt { header, claim, kept, line_idx, now_ns, copies, contradictions, is_dismissed });
        self.is_changed = true;
    }

    /// Whether the next claim displaces one that nothing speaks against: as many wait as may, and
    /// no line has contradicted its own.
    #[cfg(test)]
    pub(crate) fn displaces_uncontradicted(&self) -> bool {
        self.entries.len() == DOUBTS_MAX && self.entries[self.least_likely()].contradictions == 0
    }

    /// The claim that its own line contradicts most, otherwise the oldest.
    fn least_likely(&self) -> usize {
        let rank = |&idx: &usize| (self.entries[idx].contradictions, DOUBTS_MAX - idx);
        (0..self.entries.len()).max_by_key(rank).unwrap_or(0)
    }

    /// The packet that was pushed last.
    pub(crate) fn last_mut(&mut self) -> Option<&mut Doubt<T>> {
        self.entries.last_mut()
    }

    /// A line continues without the claim. A claim that three such packets contradict, later than
    /// packets overtake each other, is dismissed.
    #[cold]
    pub(crate) fn contradict(&mut self, by: &Contradiction<'_>) {
        let Contradiction { header, line_idx, before_ns, over_ns } = *by;
        for doubt in self.entries.iter_mut().filter(|doubt| doubt.line_idx == line_idx && doubt.now_ns <= before_ns) {
            let is_older = header.sent_ns != 0 && header.sent_ns < doubt.header.sent_ns;
            let is_other = doubt.claim == Claim::Restart || header.end() <= doubt.header.seq;
            if is_older || !is_other {
                continue;
            }
            doubt.contradictions = doubt.contradictions.saturating_add(1);
            doubt.is_dismissed |= doubt.now_ns <= over_ns && doubt.contradictions >= CONTRADICTIONS_MAX;
            self.is_changed |= doubt.is_dismissed;
        }
    }

    /// Takes a packet with a decided claim, of the accepted ones that with the lowest number.
    /// `reach` is the highest number reached.
    #[cold]
    pub(crate) fn take(&mut self, reach: u64) -> Option<(Doubt<T>, Finding)> {
        if let Some(idx) = self.entries.iter().position(|doubt| doubt.is_dismissed) {
            return Some((self.remove(idx), Finding::Dismissed));
        }
        let is_believed = |doubt: &&Doubt<T>| {
            doubt.claim == Claim::Jump && doubt.header.seq <= reach
                || doubt.is_repeated_heartbeat()
                || self.entries.iter().any(|other| other.is_witness_of(doubt))
        };
        let least = self.entries.iter().filter(is_believed).map(|doubt| doubt.header.seq).min();
        let found = least
            .and_then(|least| self.entries.iter().position(|doubt| doubt.header.seq == least && is_believed(&doubt)));
        match found {
            Some(idx) => Some((self.remove(idx), Finding::Believed)),
            None => {
                self.rest();
                None
            }
        }
    }

    /// Takes the packet with the lowest number at the end of all packets. It is accepted where
    /// nothing contradicts it: it begins at `reach_max` or before, and its line did not contradict
    /// it.
    pub(crate) fn take_last(&mut self, reach_max: u64) -> Option<(Doubt<T>, Finding)> {
        let idx = (0..self.entries.len()).min_by_key(|&idx| self.entries[idx].header.seq)?;
        let doubt = self.remove(idx);
        let is_plausible = doubt.claim != Claim::Restart && doubt.header.seq <= reach_max;
        let is_believed = is_plausible && doubt.contradictions == 0 && !doubt.is_dismissed;
        Some((doubt, if is_believed { Finding::Believed } else { Finding::Dismissed }))
    }

    /// The numbers begin with `begun`: packets with the same claim wait until the numbers reach
    /// them, and the others are from before the restart.
    pub(crate) fn begin(&mut self, begun: &Header, claim: Claim) {
        for doubt in &mut self.entries {
            let is_same = doubt.claim == claim && doubt.header.session == begun.session;
            doubt.is_dismissed |= !is_same && claim == Claim::Restart;
            doubt.claim = if is_same { Claim::Jump } else { Claim::Restart };
        }
        self.rest();
        self.is_changed = true;
    }

    /// The line that first claimed numbers which have been reached now, if there is one.
    pub(crate) fn reached_by(&self, reach: u64) -> Option<usize> {
        let reached = |doubt: &&Doubt<T>| doubt.claim == Claim::Jump && doubt.header.seq <= reach;
        self.entries.iter().find(reached).map(|doubt| doubt.line_idx)
    }

    /// Whether a waiting packet makes the same claim as `header`, in either order of numbers.
    pub(crate) fn has_witness(&self, header: &Header, claim: Claim, line_idx: usize) -> bool {
        self.entries.iter().any(|other| {
            let (low, high) =
                if other.header.seq <= header.seq { (&other.header, header) } else { (header, &other.header) };
            let is_free = other.line_idx != line_idx || other.contradictions == 0;
            other.claim == claim && low.session == high.session && is_behind(low, high.seq, claim) && is_free
        })
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.rest();
    }

    /// Drops dismissed packets, for an owner that keeps no record.
    pub(crate) fn drop_dismissed(&mut self) {
        self.entries.retain(|doubt| !doubt.is_dismissed);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Doubt<T>> {
        self.entries.iter()
    }

    fn remove(&mut self, idx: usize) -> Doubt<T> {
        self.is_changed = true;
        self.entries.remove(idx)
    }

    fn rest(&mut self) {
        let jumps = self.entries.iter().filter(|doubt| doubt.claim == Claim::Jump);
        self.jump_seq = jumps.map(|doubt| doubt.header.seq).min().unwrap_or(u64::MAX);
        self.is_changed = false;
    }
}

impl<T> Doubt<T> {
    pub(crate) fn is_repeated_heartbeat(&self) -> bool {
        self.header.count == 0 && self.copies >= HEARTBEAT_COPIES
    }

    /// Whether this packet proves the claim of `other`: it is another packet and shows that at
    /// least as much was sent.
    fn is_witness_of(&self, other: &Self) -> bool {
        let is_free = self.line_idx != other.line_idx || (self.contradictions, other.contradictions) == (0, 0);
        let is_another = self.line_idx != other.line_idx || self.header != other.header;
        is_another
            && is_free
            && self.claim == other.claim
            && self.header.session == other.header.session
            && is_behind(&other.header, self.header.seq, self.claim)
    }
}

/// `seq` is within the packet's numbers or after them, as close as a witness of the claim has to
/// be. A channel begins with the first of two packets, so the second has to continue from it.
fn is_behind(packet: &Header, seq: u64, claim: Claim) -> bool {
    let near = if claim == Claim::Jump { NEAR } else { 0 };
    (packet.seq..=packet.end().saturating_add(near)).contains(&seq)
}
