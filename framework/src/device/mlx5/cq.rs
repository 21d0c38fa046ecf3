//! The completion queue: which entries are the NIC's, which are ours, and how far we tell it that we have read (mlx5.md 2.9).
//!
//! An entry is ours where its opcode is not 15 and its owner bit is the parity of the turn around the ring that the consumer
//! index is in. Nothing is written back but after a compressed session, whose slots hold garbage where owner bits are.

use super::cqe::{AT_OP_OWN, CQE_LEN, Cqe, OP_OWN_INVALID, OP_OWN_RECEIVED, OP_OWN_SOLICITED, OP_OWN_TITLE};
use super::parts::CqParts;
use super::ring::{DoorbellRecord, Ring, Run, RunMut, consumed_barrier, from_device_barrier};

/// The consumer index is a number of 24 bits in its doorbell record.
const CONSUMER_INDEX_MASK: u32 = 0x00ff_ffff;

/// What the next entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The NIC's.
    Nothing,
    /// The title of a compressed session.
    Title,
    /// Anything else.
    Other,
}

/// Mini entries of eight bytes in an array, which takes the place of an entry.
pub(super) const MINIS: usize = 8;

/// Log2 of the bytes of an entry, where it is no more than a CQE.
pub(super) const USUAL_SHIFT: u32 = CQE_LEN.trailing_zeros();

/// A completion queue that one worker reads.
pub(super) struct Cq {
    ring: Ring<CQE_LEN>,
    consumer_record: DoorbellRecord,
    /// Entries that were consumed so far; it runs freely.
    consumer_idx: u32,
    /// The same as the NIC was told.
    published: u32,
}

impl Cq {
    /// Takes the ring over. Its entries are of 64 bytes, or of 128 with the CQE in the upper half.
    pub(super) fn new(parts: CqParts) -> Self {
        assert!(matches!(parts.entry_len, 64 | 128), "a CQE of {} bytes", parts.entry_len);
        let upper_half = parts.entry_len as usize - CQE_LEN;
        Self {
            ring: Ring::behind(parts.ring, upper_half, parts.entry_count, parts.entry_len, parts.keeper.clone()),
            consumer_record: DoorbellRecord::new(parts.doorbell.cast(), parts.keeper),
            consumer_idx: 0,
            published: 0,
        }
    }

    /// Entries of the ring.
    pub(super) fn count(&self) -> u32 {
        self.ring.count()
    }

    /// The bytes from one entry to the next, as log2.
    #[inline(always)]
    pub(super) fn shift(&self) -> u32 {
        self.ring.shift()
    }

    /// The oldest entry that is not consumed, if the NIC has written it: safe to read from here on.
    #[inline]
    pub(super) fn next(&self) -> Option<Cqe<'_>> {
        if self.look() == Next::Nothing { None } else { Some(self.oldest()) }
    }

    /// The owner bit of entries that are ours, on this turn around the ring.
    #[inline(always)]
    pub(super) fn owner(&self) -> u8 {
        u8::from(self.consumer_idx & self.ring.count() != 0)
    }

    /// What the oldest entry is, without reading more than whose it is.
    #[inline(always)]
    pub(super) fn look(&self) -> Next {
        let op_own = Cqe(self.ring.entry(self.consumer_idx)).op_own();
        if op_own >= OP_OWN_INVALID || op_own & 1 != self.owner() {
            return Next::Nothing;
        }
        if op_own & !(OP_OWN_SOLICITED | 1) == OP_OWN_TITLE { Next::Title } else { Next::Other }
    }

    /// The oldest entry, of which was seen that it is ours.
    #[inline(always)]
    pub(super) fn oldest(&self) -> Cqe<'_> {
        from_device_barrier();
        Cqe(self.ring.entry(self.consumer_idx))
    }

    /// The oldest entries, `limit` at most, that the NIC has written and that each tell of one frame, for the WQEs from
    /// `wqe_idx` on, one after the other: of their counters the bits of `wqe_mask` count. All of them are safe to read from
    /// here on. It ends at the end of the ring's memory, and at the first entry that is anything else.
    #[inline(always)]
    pub(super) fn frames<const SHIFT: u32>(&self, limit: u32, wqe_idx: u32, wqe_mask: u16) -> Run<'_, CQE_LEN> {
        let run = self.ring.run(self.consumer_idx, 0, limit.min(self.ring.until_end(self.consumer_idx)));
        // Counter, signature, opcode and owner are one word, so one comparison is all that a frame needs.
        let mask = u32::from(wqe_mask) << 16 | u32::from(!OP_OWN_SOLICITED);
        let expected = wqe_idx << 16 | u32::from(OP_OWN_RECEIVED | self.owner());
        let is_next = |count: usize| {
            let expected = expected.wrapping_add((count as u32) << 16);
            (Cqe(run.entry_of::<SHIFT>(count)).tail() ^ expected) & mask == 0
        };
        let mut count = 0;
        // The first one alone: a queue that is idle looks at one cache line. Then four at a time.
        if run.count() == 0 || !is_next(0) {
            return run.first(0);
        }
        while count + 4 <= run.count() && is_next(count) & is_next(count + 1) & is_next(count + 2) & is_next(count + 3)
        {
            count += 4;
        }
        while count < run.count() && is_next(count) {
            count += 1;
        }
        from_device_barrier();
        run.first(count)
    }

    /// The oldest entry is done with.
    #[inline(always)]
    pub(super) fn consume(&mut self) {
        self.consume_many(1);
    }

    /// The `count` oldest entries are done with.
    #[inline(always)]
    pub(super) fn consume_many(&mut self, count: u32) {
        self.consumer_idx = self.consumer_idx.wrapping_add(count);
    }

    /// Tells the NIC how far we are: it may write the entries before again.
    #[inline]
    pub(super) fn publish(&mut self) {
        if self.published != self.consumer_idx {
            self.publish_again();
        }
    }

    /// The same whether or not it is news: after somebody else may have written the record. libmlx5 has the record when it resets a
    /// queue. That of rdma-core leaves a CQ alone of whose ring it told (`mlx5dv_init_obj`, `__mlx5_cq_clean` in cq.c); older ones,
    /// of MLNX_OFED, do not: they take the queue's CQEs out from an index of their own, and write that into the record.
    #[inline]
    pub(super) fn publish_again(&mut self) {
        self.published = self.consumer_idx;
        consumed_barrier();
        self.consumer_record.write(self.consumer_idx & CONSUMER_INDEX_MASK);
    }

    /// Copies the mini entries of the session of `count` frames out whose title is the oldest entry, and consumes its entries: they
    /// are nobody's until the NIC writes them anew. Panics where there is no room for so many.
    #[inline(always)]
    pub(super) fn take_minis(&mut self, count: u32, minis: &mut [[u64; MINIS]]) {
        assert!(count as usize <= minis.len() * MINIS && count <= self.ring.count(), "more frames than entries");
        // The first array is in the entry behind the title, also where that is the session's last.
        let is_whole = self.ring.until_end(self.consumer_idx) > count;
        if is_whole && self.ring.shift() == USUAL_SHIFT {
            let session = self.ring.run_mut(self.consumer_idx, 0, count + 1);
            take_minis_of(count as usize, session, minis);
        } else {
            self.take_minis_one_by_one(count, minis);
        }
        self.consume_many(count);
    }

    /// The same of a session that goes over the end of the ring's memory, or of entries of 128 bytes.
    #[cold]
    fn take_minis_one_by_one(&mut self, count: u32, minis: &mut [[u64; MINIS]]) {
        for (array, minis) in (0..count.div_ceil(MINIS as u32)).zip(minis) {
            let slot = if array == 0 { 1 } else { array * MINIS as u32 };
            *minis = self.ring.entry(self.consumer_idx.wrapping_add(slot)).words();
        }
        for slot in 0..count {
            self.ring.entry_mut(self.consumer_idx.wrapping_add(slot)).set_byte::<AT_OP_OWN>(OP_OWN_INVALID);
        }
    }
}

/// Eight entries at a time: the array among them is read, and all of them are made nobody's.
#[inline(always)]
fn take_minis_of(count: usize, mut session: RunMut<'_, CQE_LEN>, minis: &mut [[u64; MINIS]]) {
    assert!(count < session.count());
    minis[0] = session.entry_of::<USUAL_SHIFT>(1).as_entry().words();
    let mut slot = 0;
    while slot + MINIS <= count {
        if slot > 0 {
            minis[slot / MINIS] = session.entry_of::<USUAL_SHIFT>(slot).as_entry().words();
        }
        for idx in 0..MINIS {
            session.entry_of::<USUAL_SHIFT>(slot + idx).set_byte::<AT_OP_OWN>(OP_OWN_INVALID);
        }
        slot += MINIS;
    }
    if slot > 0 && slot < count {
        minis[slot / MINIS] = session.entry_of::<USUAL_SHIFT>(slot).as_entry().words();
    }
    for slot in slot..count {
        session.entry_of::<USUAL_SHIFT>(slot).set_byte::<AT_OP_OWN>(OP_OWN_INVALID);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::mlx5::cqe::Opcode;
    use crate::device::mlx5::plain::PlainCq;

    /// Entries are ours exactly when they are written, over several turns of the ring and for both lengths of an entry.
    fn check(count: u32, entry_len: u32) {
        let (parts, mut nic) = PlainCq::new(count, entry_len);
        let mut cq = Cq::new(parts);
        for counter in 0..5 * count {
            assert!(cq.next().is_none(), "entry {counter} of a ring of {count} is not written yet");
            nic.complete(2, 0, |cqe| cqe[60..62].copy_from_slice(&(counter as u16).to_be_bytes()));
            let cqe = cq.next().expect("it is written");
            assert_eq!((cqe.opcode(), cqe.wqe_counter()), (Opcode::Received, counter as u16));
            cq.consume();
        }
    }

    #[test]
    fn entry_is_ours_when_its_owner_bit_is_that_of_the_turn() {
        for count in [1, 2, 8, 64] {
            check(count, 64);
            check(count, 128);
        }
    }

    #[test]
    fn fresh_ring_has_no_entry_on_any_turn() {
        let (parts, _nic) = PlainCq::new(8, 64);
        let mut cq = Cq::new(parts);
        for _ in 0..32 {
            assert!(cq.next().is_none());
            cq.consume();
        }
    }

    #[test]
    fn invalid_opcode_is_no_entry_whatever_its_owner_bit() {
        let (parts, mut nic) = PlainCq::new(4, 64);
        let cq = Cq::new(parts);
        for op_own in 0xf0..=0xff {
            nic.write(0, |cqe| cqe[63] = op_own);
            assert!(cq.next().is_none(), "{op_own:#x}");
        }
    }

    #[test]
    fn whole_ring_may_be_read_before_the_index_is_published() {
        let (parts, mut nic) = PlainCq::new(8, 64);
        let mut cq = Cq::new(parts);
        for turn in 1..4 {
            (0..8).for_each(|_| nic.complete(2, 0, |_| ()));
            while cq.next().is_some() {
                cq.consume();
            }
            assert_eq!(nic.consumer_index(), 8 * (turn - 1), "nothing is told unasked");
            cq.publish();
            assert_eq!(nic.consumer_index(), 8 * turn);
        }
    }

    #[test]
    fn consumer_index_has_24_bits() {
        let (parts, nic) = PlainCq::new(8, 64);
        let mut cq = Cq::new(parts);
        cq.consume_many(0x0100_0005);
        cq.publish();
        assert_eq!(nic.consumer_index(), 5);
    }

    #[test]
    fn record_that_another_has_written_is_written_again_on_request() {
        let (parts, mut nic) = PlainCq::new(8, 64);
        let mut cq = Cq::new(parts);
        cq.consume_many(3);
        cq.publish();
        nic.set_consumer_index(0);
        cq.publish();
        assert_eq!(nic.consumer_index(), 0, "it is no news");
        cq.publish_again();
        assert_eq!(nic.consumer_index(), 3);
    }

    #[test]
    fn slots_of_a_session_are_nobodys_on_the_next_turn() {
        let (parts, mut nic) = PlainCq::new(4, 64);
        let mut cq = Cq::new(parts);
        // What is left in a hole may look like an entry of the next turn.
        (0..4).for_each(|slot| nic.write(slot, |cqe| cqe[63] = 0x21));
        cq.take_minis(4, &mut [[0; MINIS]]);
        assert!(cq.next().is_none());
    }
}
