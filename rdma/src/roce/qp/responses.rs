//! The answers of a responder, in the order of its requests: data for READs, results of atomic
//! operations, and behind them one acknowledgment for all (InfiniBand 9.7.5).
//!
//! A request that is answered by data stays until as many others have come as the peer may have
//! under way, so that the answer can be given again: a READ's from memory, an atomic operation's
//! from here.

use zerocopy::big_endian::U64;

use super::Qp;
use super::attributes::QpState;
use super::send_queue::packet_count;
use crate::roce::builder::Builder;
use crate::roce::keys::{Access, Range};
use crate::roce::tables::Tables;
use crate::wire::aeth::{Aeth, NO_CREDITS, Nak, Syndrome, credit_code};
use crate::wire::bth::Bth;
use crate::wire::extended::Reth;
use crate::wire::opcode::Operation;
use crate::wire::psn::Psn;

#[derive(Default)]
#[repr(C)]
pub(crate) struct Answers {
    /// Goes out behind them. With a PSN sequence NAK the number is that of the packet that was
    /// dropped, because it came before a missing one; the NAK names the one that is missing then.
    acknowledgment: Option<(Psn, Acknowledgment)>,
    /// The place of the oldest, where the next is put.
    oldest: u8,
    /// Resources with something to send.
    pending: u8,
    /// A ring in the order of the requests.
    resources: Box<[Resource]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Acknowledgment {
    Ack,
    Rnr,
    Nak(Nak),
}

/// A request that is answered by data.
#[derive(Clone, Default)]
pub(super) struct Resource {
    pub(super) data: ResourceData,
    /// The number of the first answer.
    pub(super) psn: Psn,
    /// The number of messages that were done with it.
    pub(super) msn: u32,
    /// The answer that the peer asked for first, the next that is sent, and the end: packets.
    first: u32,
    next: u32,
    end: u32,
    /// Bytes of a READ before the end of what the peer asked for last.
    until: u32,
    /// The peer asked again.
    is_replay: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ResourceData {
    #[default]
    Empty,
    Read {
        address: u64,
        rkey: u32,
        len: u32,
    },
    Atomic {
        original: u64,
    },
}

impl Answers {
    /// Where its ring is.
    pub(super) const RESOURCES_AT: usize = core::mem::offset_of!(Self, resources);

    /// True if one more request that is answered by data can be taken. The peer sends it when it
    /// has the oldest answer, so that one need not be given again.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let oldest = self.resources.get(usize::from(self.oldest));
        oldest.is_some_and(|resource| !resource.is_pending() || resource.is_replay)
    }

    /// Takes a request that is answered by `count` packets. They acknowledge all before it.
    pub(super) fn push(&mut self, data: ResourceData, psn: Psn, msn: u32, count: u32) {
        if !self.names_a_missing_packet() {
            self.acknowledgment = None;
        }
        let Some(place) = self.resources.get_mut(usize::from(self.oldest)) else { return };
        self.pending += u8::from(!place.is_pending());
        let until = if let ResourceData::Read { len, .. } = data { len } else { 0 };
        *place = Resource { data, psn, msn, first: 0, next: 0, end: count, until, is_replay: false };
        self.oldest = if usize::from(self.oldest) + 1 == self.resources.len() { 0 } else { self.oldest + 1 };
    }

    /// Acknowledges all up to `psn`, behind the data, unless a NAK that waits does.
    #[inline]
    pub(super) fn acknowledge_done(&mut self, psn: Psn) {
        if !self.names_a_missing_packet() {
            self.acknowledgment = Some((psn, Acknowledgment::Ack));
        }
    }

    /// Says of `psn` what is to be said of it, behind the data.
    #[inline]
    pub(super) fn acknowledge(&mut self, psn: Psn, acknowledgment: Acknowledgment) {
        self.acknowledgment = Some((psn, acknowledgment));
    }

    /// Acknowledges all up to `psn`, unless a NAK that waits does.
    #[inline]
    pub(super) fn acknowledge_again(&mut self, psn: Psn) {
        self.acknowledgment.get_or_insert((psn, Acknowledgment::Ack));
    }

    /// A NAK waits that has the peer send again from the packet that is expected.
    #[inline]
    fn names_a_missing_packet(&self) -> bool {
        self.acknowledgment.is_some_and(|(_, waits)| waits == Acknowledgment::Nak(Nak::PsnSequence))
    }

    /// The expected packet has come. What a NAK that waits has acknowledged stays so, up to
    /// `acknowledged`; it goes itself only if no packet is missing that was dropped.
    #[inline]
    pub(super) fn withdraw_nak(&mut self, psn: Psn, acknowledged: Option<Psn>) {
        let Some((at, waits)) = self.acknowledgment else { return };
        let is_withdrawn = match waits {
            Acknowledgment::Ack => false,
            Acknowledgment::Nak(Nak::PsnSequence) => psn.since(at) >= 0,
            Acknowledgment::Rnr | Acknowledgment::Nak(_) => true,
        };
        if is_withdrawn {
            self.acknowledgment = acknowledged.map(|done| (done, Acknowledgment::Ack));
        }
    }

    /// Answers a READ again, or a part of it, if it is a part of one that is kept; false if not.
    pub(super) fn replay_read(&mut self, psn: Psn, reth: &Reth, mtu_shift: u32) -> bool {
        let is_part = |resource: &Resource| {
            let ResourceData::Read { address, rkey, len } = resource.data else { return None };
            let packets = u32::try_from(psn.since(resource.psn)).ok()?;
            let offset = u64::from(packets) << mtu_shift;
            let end = offset + u64::from(reth.len());
            let is_same = rkey == reth.rkey() && address.wrapping_add(offset) == reth.address();
            (is_same && end <= u64::from(len)).then_some((packets, end as u32))
        };
        self.replay(is_part, packet_count(reth.len(), mtu_shift))
    }

    /// Answers an atomic operation again, if it is kept; false if not.
    pub(super) fn replay_atomic(&mut self, psn: Psn) -> bool {
        let is_it = |resource: &Resource| {
            let is_it = matches!(resource.data, ResourceData::Atomic { .. }) && resource.psn == psn;
            is_it.then_some((0, 0))
        };
        self.replay(is_it, 1)
    }

    /// The newest first: when all numbers were used, an old one may have the number of another.
    fn replay(&mut self, part: impl Fn(&Resource) -> Option<(u32, u32)>, count: u32) -> bool {
        let (newer, older) = self.resources.split_at_mut(self.oldest.into());
        let mut newest_first = newer.iter_mut().rev().chain(older.iter_mut().rev());
        let found = newest_first.find_map(|resource| Some((part(resource)?, resource)));
        let Some(((first, until), resource)) = found else { return false };
        self.pending += u8::from(!resource.is_pending());
        (resource.first, resource.next, resource.end) = (first, first, first + count);
        resource.until = until;
        resource.is_replay = true;
        true
    }

    /// The place of the oldest resource with something to send.
    fn first_pending(&self) -> Option<usize> {
        let oldest = usize::from(self.oldest);
        let mut places = (oldest..self.resources.len()).chain(0..oldest);
        places.find(|place| self.resources[*place].is_pending())
    }

    /// The next answer waits for no pace: that of an atomic operation, or the first packet of a
    /// READ's that the peer has asked for again.
    #[cold]
    fn begins_at_once(&self) -> bool {
        let next = self.first_pending().map(|place| &self.resources[place]);
        next.is_some_and(|resource| match resource.data {
            ResourceData::Atomic { .. } => true,
            _ => resource.is_replay && resource.next == resource.first,
        })
    }

    /// Goes on behind a packet of a resource.
    fn advance(&mut self, place: usize) {
        let resource = &mut self.resources[place];
        resource.next += 1;
        self.pending -= u8::from(!resource.is_pending());
    }

    /// Sends nothing more of a resource.
    fn abandon(&mut self, place: usize) {
        let resource = &mut self.resources[place];
        resource.next = resource.end;
        self.pending -= 1;
    }

    /// Makes room for `count` requests in all. Those that were answered stay, because the peer may
    /// ask for their answers again; so fewer than before change nothing.
    pub(super) fn grow(&mut self, count: u8) {
        let more = usize::from(count).saturating_sub(self.resources.len());
        let mut resources = vec![Resource::default(); more];
        let (newer, older) = self.resources.split_at(self.oldest.into());
        resources.extend_from_slice(older);
        resources.extend_from_slice(newer);
        (self.resources, self.oldest) = (resources.into(), 0);
    }

    /// Nothing is sent any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Resource {
    #[inline]
    const fn is_pending(&self) -> bool {
        self.next != self.end
    }
}

impl Qp {
    /// True if an answer can be sent now: a READ's data goes at the pace of the queue pair, and
    /// acknowledgments behind it. The answer of an atomic operation is an acknowledgment with eight
    /// bytes more, and does not wait where it is the next: at the least rate it would come behind
    /// the peer's last try. Behind a READ's data it waits for that, because answers go in order.
    /// For the same reason a READ that comes again has one packet at once: with it all tries of the
    /// peer begin anew.
    #[inline]
    pub(super) fn has_answer(&self) -> bool {
        match self.answers.pending {
            0 => self.answers.acknowledgment.is_some(),
            _ => !self.waits_for_pace() || self.answers.begins_at_once(),
        }
    }

    /// Writes the next answer.
    pub(super) fn send_answer(&mut self, tables: &mut Tables, now: u64, frame: &mut [u8]) -> Option<usize> {
        if !self.has_answer() {
            return None;
        }
        if self.answers.pending == 0 {
            let (psn, acknowledgment) = self.answers.acknowledgment.take()?;
            return self.build_acknowledgment(psn, acknowledgment, frame);
        }
        let place = self.answers.first_pending()?;
        let resource = &self.answers.resources[place];
        if let ResourceData::Atomic { original } = resource.data {
            let len = self.build_atomic_acknowledgment(resource, original, frame)?;
            self.answers.advance(place);
            return Some(len);
        }
        match self.build_read_response(tables, resource, frame) {
            Some(len) => {
                self.answers.advance(place);
                self.has_answered = true;
                self.pace(tables, now, len);
                Some(len)
            }
            // The peer may have had the whole answer long since, and have said so by a message
            // behind which this memory went away. One that has not asks until its retries end.
            None if resource.is_replay => {
                self.answers.abandon(place);
                self.send_answer(tables, now, frame)
            }
            None => {
                // The memory or the right to read went away meanwhile: this packet is refused, and
                // all after it.
                let psn = resource.psn.plus(resource.next);
                self.answers.clear();
                self.refuse(tables, psn, Nak::RemoteAccess);
                let (psn, acknowledgment) = self.answers.acknowledgment.take()?;
                self.build_acknowledgment(psn, acknowledgment, frame)
            }
        }
    }

    #[inline]
    fn build_acknowledgment(&self, psn: Psn, acknowledgment: Acknowledgment, frame: &mut [u8]) -> Option<usize> {
        let syndrome = match acknowledgment {
            Acknowledgment::Ack => self.ack(),
            Acknowledgment::Rnr => Syndrome::RnrNak(self.settings.min_rnr_timer),
            Acknowledgment::Nak(nak) => Syndrome::Nak(nak),
        };
        let is_missing = acknowledgment == Acknowledgment::Nak(Nak::PsnSequence);
        let psn = if is_missing { self.responder.expected } else { psn };
        let template = self.template.as_ref()?;
        let mut builder = Builder::new(frame, template, &Bth::new(&self.bth(Operation::Acknowledge, psn, 0)));
        builder.push(&Aeth::new(syndrome, self.responder.messages()));
        Some(builder.finish(template))
    }

    fn build_atomic_acknowledgment(&self, resource: &Resource, original: u64, frame: &mut [u8]) -> Option<usize> {
        let template = self.template.as_ref()?;
        let bth = self.bth(Operation::AtomicAcknowledge, resource.psn, 0);
        let mut builder = Builder::new(frame, template, &Bth::new(&bth));
        builder.push(&Aeth::new(self.ack(), resource.msn));
        builder.push(&U64::new(original));
        Some(builder.finish(template))
    }

    /// The next part of a READ; `None` if its memory, or any, can no longer be read.
    fn build_read_response(&self, tables: &Tables, resource: &Resource, frame: &mut [u8]) -> Option<usize> {
        let ResourceData::Read { address, rkey, .. } = resource.data else { return None };
        if !self.settings.access.has(Access::REMOTE_READ) {
            return None;
        }
        let shift = u32::from(self.settings.mtu_shift);
        let offset = resource.next << shift;
        let part = (resource.until - offset).min(1 << shift);
        let operation = match (resource.next == resource.first, resource.next + 1 == resource.end) {
            (true, true) => Operation::ReadResponseOnly,
            (true, false) => Operation::ReadResponseFirst,
            (false, true) => Operation::ReadResponseLast,
            (false, false) => Operation::ReadResponseMiddle,
        };
        let template = self.template.as_ref()?;
        let bth = self.bth(operation, resource.psn.plus(resource.next), part);
        let mut builder = Builder::new(frame, template, &Bth::new(&bth));
        if operation.has_aeth() {
            builder.push(&Aeth::new(self.ack(), resource.msn));
        }
        let payload = builder.payload(part as usize);
        if part > 0 {
            let range = Range { address: address.wrapping_add(offset.into()), len: part };
            tables.regions.resolve_remote(rkey, self.reach(), range, Access::REMOTE_READ)?.read(payload);
        }
        Some(builder.finish(template))
    }

    /// All is well, and so many receives are left.
    #[inline]
    fn ack(&self) -> Syndrome {
        // Those of a shared queue are promised to nobody.
        Syndrome::Ack(if self.has_srq { NO_CREDITS } else { credit_code(self.rq.len()) })
    }

    /// Refuses the packet `psn` for good: behind the answers that are still to be sent, the NAK is
    /// the last word, and the queue pair fails. No others come: it takes no packet any more.
    pub(super) fn refuse(&mut self, tables: &mut Tables, psn: Psn, nak: Nak) {
        self.counters.naks_tx[nak as usize] += 1;
        self.counters.access_violations += u64::from(nak == Nak::RemoteAccess);
        let mut answers = core::mem::take(&mut self.answers);
        answers.acknowledge(psn, Acknowledgment::Nak(nak));
        if self.state != QpState::Err {
            self.fail_by_peer(tables, nak);
        }
        self.answers = answers;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_of_two_with_one_number_is_answered_again() {
        let psn = Psn::new(5);
        for before in 0..4 {
            let mut answers = Answers::default();
            answers.grow(4);
            for original in 0..before {
                answers.push(ResourceData::Atomic { original }, Psn::new(100), 0, 1);
            }
            for original in [10, 11] {
                // The number comes again when all numbers were used.
                answers.push(ResourceData::Atomic { original }, psn, 0, 1);
            }
            while let Some(place) = answers.first_pending() {
                answers.advance(place);
            }
            assert!(answers.replay_atomic(psn));
            let place = answers.first_pending().unwrap();
            assert!(answers.resources[place].data == ResourceData::Atomic { original: 11 }, "{before} before");
        }
    }
}
