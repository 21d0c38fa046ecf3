//! The completion queue: which entries the NIC owns, which software owns, and the consumer index
//! (mlx5.md 2.9).
//!
//! Software owns an entry if its opcode is not 15 and its owner bit is the parity of the consumer
//! index's lap around the ring. The driver writes to entries only after a compressed session, whose
//! slots hold arbitrary bytes at the owner bits.

use super::cqe::{AT_OP_OWN, CQE_LEN, Cqe, OP_OWN_INVALID, OP_OWN_RECEIVED, OP_OWN_SOLICITED, OP_OWN_TITLE};
use crate::device::mlx5::ring::{DescriptorRing, DoorbellRecord, Run, RunMut, consumed_barrier, from_device_barrier};
use crate::device::mlx5::setup::parts::CqParts;

/// The doorbell record holds 24 bits of the consumer index.
const CONSUMER_INDEX_MASK: u32 = 0x00ff_ffff;

/// The kind of the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The NIC owns it.
    Nothing,
    /// The title of a compressed session.
    Title,
    /// Anything else.
    Other,
}

/// Consecutive entries that a session skips between its arrays (mlx5.md 2.10).
const HOLE_MAX: u32 = 7;

/// Mini CQEs of eight bytes in an array, which occupies an entry.
pub(crate) const MINIS: usize = 8;

/// Log2 of the bytes of an entry of 64 bytes.
pub(crate) const USUAL_SHIFT: u32 = CQE_LEN.trailing_zeros();

/// A completion queue that one worker reads.
pub(crate) struct Cq {
    ring: DescriptorRing<CQE_LEN>,
    consumer_record: DoorbellRecord,
    /// Entries consumed so far; a free-running index.
    consumer_idx: u32,
    /// The consumer index last published to the NIC.
    published: u32,
}

impl Cq {
    /// Takes over the ring. Its entries are of 64 bytes, or of 128 with the CQE in the upper half.
    pub(crate) fn new(parts: CqParts) -> Self {
        assert!(matches!(parts.entry_len, 64 | 128), "a CQE of {} bytes", parts.entry_len);
        let upper_half = parts.entry_len as usize - CQE_LEN;
        Self {
            ring: DescriptorRing::behind(
                parts.ring,
                upper_half,
                parts.entry_count,
                parts.entry_len,
                parts.memory_owner.clone(),
            ),
            consumer_record: DoorbellRecord::new(parts.doorbell.cast(), parts.memory_owner),
            consumer_idx: 0,
            published: 0,
        }
    }

    /// Entries of the ring.
    pub(crate) fn count(&self) -> u32 {
        self.ring.count()
    }

    /// The bytes from one entry to the next, as log2.
    #[inline(always)]
    pub(crate) fn shift(&self) -> u32 {
        self.ring.shift()
    }

    /// The oldest entry, if the NIC has written it: safe to read from here on.
    #[inline]
    pub(crate) fn next(&self) -> Option<Cqe<'_>> {
        if self.look() == Next::Nothing { None } else { Some(self.oldest()) }
    }

    /// The owner bit of software's entries in this lap of the ring.
    #[inline(always)]
    pub(crate) fn owner(&self) -> u8 {
        u8::from(self.consumer_idx & self.ring.count() != 0)
    }

    /// The kind of the oldest entry, read from its last byte only.
    #[inline(always)]
    pub(crate) fn look(&self) -> Next {
        let op_own = Cqe(self.ring.entry(self.consumer_idx)).op_own();
        if op_own >= OP_OWN_INVALID || op_own & 1 != self.owner() {
            return Next::Nothing;
        }
        if op_own & !(OP_OWN_SOLICITED | 1) == OP_OWN_TITLE { Next::Title } else { Next::Other }
    }

    /// The oldest entry, known to be owned by software.
    #[inline(always)]
    pub(crate) fn oldest(&self) -> Cqe<'_> {
        from_device_barrier();
        Cqe(self.ring.entry(self.consumer_idx))
    }

    /// The oldest entries, at most `limit`, that the NIC has written and that report one frame
    /// each, for consecutive WQEs from `wqe_idx` on; `wqe_mask` masks their counters. All are safe
    /// to read from here on. The run ends at the end of the ring's memory, and at the first entry
    /// of another kind.
    #[inline(always)]
    pub(crate) fn frames<const SHIFT: u32>(&self, limit: u32, wqe_idx: u32, wqe_mask: u16) -> Run<'_, CQE_LEN> {
        let run = self.ring.run(self.consumer_idx, 0, limit.min(self.ring.until_end(self.consumer_idx)));
        // Counter, signature, opcode and owner are one word, so one comparison per frame is enough.
        let mask = u32::from(wqe_mask) << 16 | u32::from(!OP_OWN_SOLICITED);
        let expected = wqe_idx << 16 | u32::from(OP_OWN_RECEIVED | self.owner());
        let is_next = |count: usize| {
            let expected = expected.wrapping_add((count as u32) << 16);
            (Cqe(run.entry_of::<SHIFT>(count)).tail() ^ expected) & mask == 0
        };
        let mut count = 0;
        // The first entry alone, so that an idle queue reads one cache line. Then four at a time.
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

    /// Consumes the oldest entry.
    #[inline(always)]
    pub(crate) fn consume(&mut self) {
        self.consume_many(1);
    }

    /// Consumes the `count` oldest entries.
    #[inline(always)]
    pub(crate) fn consume_many(&mut self, count: u32) {
        self.consumer_idx = self.consumer_idx.wrapping_add(count);
    }

    /// Publishes the consumer index: the NIC may overwrite the entries before it.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.published != self.consumer_idx {
            self.publish_again();
        }
    }

    /// Publishes the consumer index even if it has not changed: libmlx5 may have overwritten the
    /// record when it reset a queue. The libmlx5 of rdma-core does not touch a CQ once it has
    /// exported its ring (`mlx5dv_init_obj`, `__mlx5_cq_clean` in cq.c). Older ones, of MLNX_OFED,
    /// do: they remove the queue's CQEs, counting from an index of their own, and write that index
    /// into the record.
    #[inline]
    pub(crate) fn publish_again(&mut self) {
        self.published = self.consumer_idx;
        consumed_barrier();
        self.consumer_record.write(self.consumer_idx & CONSUMER_INDEX_MASK);
    }

    /// The index of the oldest entry.
    pub(crate) fn idx(&self) -> u32 {
        self.consumer_idx
    }

    /// Records that the NIC's next position is unknown; its last known write was at `idx`. Consumes
    /// the entries written since, as far as they can be recognized, and invalidates all CQEs, so
    /// that the next CQE can be [found](Self::find). The NIC writes none during the call.
    #[cold]
    pub(crate) fn lose(&mut self, idx: u32) {
        let count = self.ring.count();
        // Never more than the NIC wrote: entries of the lap before have another owner bit, or are
        // invalid. Perhaps fewer, if a session ends in holes.
        self.consumer_idx = idx;
        let is_written = |ahead: &u32| {
            let idx = idx.wrapping_add(*ahead);
            let op_own = Cqe(self.ring.entry(idx)).op_own();
            op_own < OP_OWN_INVALID && op_own & 1 == u8::from(idx & count != 0)
        };
        let written = (0..count).rev().find(is_written).map_or(0, |last| last + 1);
        self.consume_many(written);
        for slot in 0..count {
            self.ring.entry_mut(slot).set_byte::<AT_OP_OWN>(OP_OWN_INVALID);
        }
        self.publish_again();
    }

    /// The index of the first entry that the NIC has written since the position was
    /// [lost](Self::lose): the slot is known, and the owner bit gives the lap. That is enough,
    /// because the NIC computes whether a CQ is full modulo twice its length (mlx5.md 2.9). `None`
    /// if the NIC has written no entry yet, or so many that the first cannot be identified, because
    /// a session has holes between its entries.
    #[cold]
    pub(crate) fn find(&self) -> Option<u32> {
        let count = self.ring.count();
        let op_own = |slot| Cqe(self.ring.entry(slot)).op_own();
        let hole_min = (HOLE_MAX + 1).min(count - 1);
        let mut hole = (0..count).rev().take_while(|&slot| op_own(slot) >= OP_OWN_INVALID).count() as u32;
        for slot in 0..count {
            let op_own = op_own(slot);
            if op_own >= OP_OWN_INVALID {
                hole += 1;
            } else if hole >= hole_min {
                let turn = if op_own & 1 != 0 { count } else { 0 };
                let ahead = (turn + slot).wrapping_sub(self.consumer_idx) & (2 * count - 1);
                return Some(self.consumer_idx.wrapping_add(ahead));
            } else {
                hole = 0;
            }
        }
        None
    }

    /// Continues at an index that was [found](Self::find).
    #[cold]
    pub(crate) fn go_to(&mut self, idx: u32) {
        self.consumer_idx = idx;
    }

    /// Copies out the mini CQEs of the session of `count` frames whose title is the oldest entry,
    /// and consumes the session's entries, which are invalid until the NIC writes them again.
    /// Panics if `minis` has no room for them.
    #[inline(always)]
    pub(crate) fn take_minis(&mut self, count: u32, minis: &mut [[u64; MINIS]]) {
        assert!(count as usize <= minis.len() * MINIS && count <= self.ring.count(), "more frames than entries");
        // The first array is in the entry behind the title, even if that is the session's last.
        let is_whole = self.ring.until_end(self.consumer_idx) > count;
        if is_whole && self.ring.shift() == USUAL_SHIFT {
            let session = self.ring.run_mut(self.consumer_idx, 0, count + 1);
            take_minis_of(count as usize, session, minis);
        } else {
            self.take_minis_one_by_one(count, minis);
        }
        self.consume_many(count);
    }

    /// Copies out the mini CQEs and invalidates the session's entries, one entry after the other:
    /// for a session that wraps around the end of the ring's memory, or with entries of 128 bytes.
    /// All other sessions go through [`take_minis_of`].
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

/// Eight entries at a time: reads the array among them, and invalidates all of them.
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
    use crate::device::mlx5::completion::cqe::Opcode;
    use crate::device::mlx5::testing::plain::PlainCq;

    /// Checks that software owns entries exactly when they are written, over several laps of the
    /// ring and for both lengths of an entry.
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
    fn place_that_was_lost_is_found_by_what_is_written_next() {
        for (count, entry_len) in [(2, 64), (4, 64), (16, 128), (64, 64)] {
            for written in 0..5 * count {
                let (parts, mut nic) = PlainCq::new(count, entry_len);
                let mut cq = Cq::new(parts);
                for _ in 0..written {
                    nic.complete(2, 0, |_| ());
                    cq.consume();
                    cq.publish();
                }
                // This entry is not read: while the position is known, it is the oldest.
                nic.complete(2, 0, |_| ());
                let idx = cq.idx();
                cq.lose(idx);
                assert_eq!((cq.find(), nic.consumer_index()), (None, written + 1));
                nic.complete(2, 0, |cqe| cqe[60] = 7);
                assert_eq!(cq.find(), Some(written + 1), "{count} entries");
                cq.go_to(written + 1);
                assert_eq!(cq.next().map(|cqe| cqe.wqe_counter()), Some(0x0700));
            }
        }
    }

    #[test]
    fn first_entry_of_a_session_is_found_and_not_what_follows_its_holes() {
        let (parts, mut nic) = PlainCq::new(64, 64);
        let mut cq = Cq::new(parts);
        for turn in 0..20 {
            let written = turn * 43;
            cq.go_to(written);
            // Sixteen entries in holes: the last recognizable one is the second array.
            nic.compress(&[[0; 8]; 16], |_| ());
            cq.lose(written);
            assert!(cq.idx().wrapping_sub(written) <= 16, "no more than was written");
            nic.compress(&[[0; 8]; 27], |_| ());
            assert_eq!(cq.find(), Some(written + 16));
            cq.go_to(written + 16);
            cq.take_minis(27, &mut [[0; MINIS]; 4]);
        }
    }

    #[test]
    fn slots_of_a_session_are_nobodys_on_the_next_turn() {
        let (parts, mut nic) = PlainCq::new(4, 64);
        let mut cq = Cq::new(parts);
        // Leftovers in a hole may look like an entry of the next lap.
        (0..4).for_each(|slot| nic.write(slot, |cqe| cqe[63] = 0x21));
        cq.take_minis(4, &mut [[0; MINIS]]);
        assert!(cq.next().is_none());
    }
}
