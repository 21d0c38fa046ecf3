//! The ledger of a send ring: the frames and mbufs of each WQE, which WQEs are signaled, and the
//! NIC's progress. Each completion is checked here: it must be for a WQE for which the doorbell was
//! rung, that has not completed, and that begins at the reported index.
//!
//! Positions count blocks and wrap at 32 bits; a CQE has the lower 16 bits of a position. The notes
//! of a WQE are at its first block, so that a completion is one lookup.

/// The content of a WQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Frames that leave with it; a payload to be segmented counts as one.
    pub(crate) frames: u8,
    /// Mbufs that are freed with it: none for frames that are wholly inline.
    pub(crate) mbufs: u8,
}

/// The meaning of a CQE for a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completed {
    /// This WQE and all before it are done; the timestamp belongs to this WQE's frame, if the frame
    /// asked for one.
    Done(Option<u64>),
    /// As `Done`, but older completions are missing.
    DoneLate {
        /// The frame that asked for a timestamp.
        stamp: Option<u64>,
        /// Number of missing completions.
        missed: u32,
        /// Frames that will never get their timestamps.
        stamps_lost: u32,
    },
    /// No signaled WQE in flight has this index.
    Unknown,
}

/// Frames removed from flight without a completion of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flushed {
    /// Frames.
    pub(crate) frames: u64,
    /// Frames among them that had requested a timestamp.
    pub(crate) stamps_lost: u32,
}

/// A WQE that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Frames before it that had not been reported as done.
    pub(crate) before: Flushed,
    /// Its own frames.
    pub(crate) itself: Flushed,
}

/// The ledger of a ring.
pub(super) struct Ledger {
    notes: Box<[Note]>,
    requests: Box<[Request]>,
    /// The first block that is not done.
    done: u32,
    /// Mbufs of all WQEs that are done.
    reapable: u32,
    /// Completions requested, and completions received or given up; free-running counts.
    requested: u32,
    answered: u32,
}

/// The content of the ring from this note's block on: blocks, frames and mbufs, a byte each, in one
/// word written by one store.
#[derive(Clone, Copy, Default)]
struct Note(u32);

impl Note {
    #[inline(always)]
    fn new(blocks: u32, load: Load) -> Self {
        Self(blocks | u32::from(load.frames) << 8 | u32::from(load.mbufs) << 16)
    }

    fn blocks(self) -> u32 {
        self.0 & 0xff
    }

    fn load(self) -> Load {
        Load { frames: (self.0 >> 8) as u8, mbufs: (self.0 >> 16) as u8 }
    }
}

/// A requested completion for the WQE that begins at `first`. If another WQE is at that position,
/// the request is stale.
#[derive(Clone, Copy)]
struct Request {
    first: u32,
    end: u32,
    /// Mbufs posted up to and including it.
    mbufs: u32,
    /// Number of requests before it.
    number: u32,
    /// The sequence number of the frame whose timestamp is to be reported.
    stamp: Option<u64>,
}

impl Ledger {
    /// For a ring of `blocks` basic blocks, a power of two of at least two.
    pub(super) fn new(blocks: u32) -> Self {
        assert!(blocks.is_power_of_two() && blocks > 1, "a ring of {blocks} blocks");
        Self {
            notes: vec![Note::default(); blocks as usize].into(),
            requests: (0..blocks).map(Request::of_nothing_at).collect(),
            done: 0,
            reapable: 0,
            requested: 0,
            answered: 0,
        }
    }

    /// Position of the first block that is not done.
    #[inline(always)]
    pub(super) fn done(&self) -> u32 {
        self.done
    }

    /// Mbufs that may be freed, counted over all ever posted.
    #[inline(always)]
    pub(super) fn reapable(&self) -> u32 {
        self.reapable
    }

    /// Records a WQE of `blocks` blocks from `first` on.
    #[inline(always)]
    pub(super) fn note(&mut self, first: u32, blocks: u32, load: Load) {
        let slot = self.slot(first);
        self.notes[slot] = Note::new(blocks, load);
    }

    /// Records `count` WQEs of one block, one frame and one mbuf each, which do not wrap around the
    /// end of the ring.
    #[inline(always)]
    pub(super) fn note_plain(&mut self, first: u32, count: usize) {
        let slot = self.slot(first);
        self.notes[slot..slot + count].fill(Note::new(1, Load { frames: 1, mbufs: 1 }));
    }

    /// Records that the WQE in the blocks from `first` to `end` is signaled. `mbufs` were posted up
    /// to it.
    #[inline(always)]
    pub(super) fn ask(&mut self, first: u32, end: u32, mbufs: u32, stamp: Option<u64>) {
        let slot = self.slot(first);
        self.requests[slot] = Request { first, end, mbufs, number: self.requested, stamp };
        self.requested = self.requested.wrapping_add(1);
    }

    /// Completions requested so far.
    pub(super) fn requested(&self) -> u32 {
        self.requested
    }

    /// Withdraws the requests and posts from `first` to `end`; `requested` is the count of requests
    /// before.
    pub(super) fn cancel_requests(&mut self, first: u32, end: u32, requested: u32) {
        for idx in 0..end.wrapping_sub(first) {
            let position = first.wrapping_add(idx);
            let slot = self.slot(position);
            self.requests[slot] = Request::of_nothing_at(position);
        }
        self.requested = requested;
    }

    /// A CQE reports that the WQE with index `counter`, and all before it, are done. The NIC was
    /// notified of the blocks before `rung`.
    #[inline]
    pub(super) fn complete(&mut self, counter: u16, rung: u32) -> Completed {
        let Some(position) = self.in_flight(counter, rung) else { return Completed::Unknown };
        let request = self.requests[self.slot(position)];
        if request.first != position {
            return Completed::Unknown;
        }
        let missed = request.number.wrapping_sub(self.answered);
        if missed != 0 {
            return self.complete_late(&request, missed);
        }
        self.answer(&request);
        Completed::Done(request.stamp)
    }

    #[cold]
    #[inline(never)]
    fn complete_late(&mut self, request: &Request, missed: u32) -> Completed {
        let stamps_lost = self.walk(request.first).map_or(0, |passed| passed.flushed.stamps_lost);
        self.answer(request);
        Completed::DoneLate { stamp: request.stamp, missed, stamps_lost }
    }

    #[inline(always)]
    fn answer(&mut self, request: &Request) {
        (self.done, self.reapable) = (request.end, request.mbufs);
        self.answered = request.number.wrapping_add(1);
    }

    /// A CQE reports that the WQE with index `counter` failed. It and all WQEs before it are no
    /// longer in flight. Returns `None` and changes nothing if no WQE in flight begins there.
    #[cold]
    #[inline(never)]
    pub(super) fn fail(&mut self, counter: u16, rung: u32) -> Option<Failed> {
        let position = self.in_flight(counter, rung)?;
        let before = self.walk(position)?;
        self.pass(position, &before);
        let end = position.wrapping_add(self.notes[self.slot(position)].blocks());
        let itself = self.walk(end)?;
        self.pass(end, &itself);
        Some(Failed { before: before.flushed, itself: itself.flushed })
    }

    /// The NIC has released the ring, in which WQEs had been posted up to `posted`: nothing is in
    /// flight, and positions restart at 0.
    #[cold]
    pub(super) fn reset(&mut self, posted: u32) -> Flushed {
        let passed = self.walk(posted).unwrap_or_default();
        self.pass(0, &passed);
        self.answered = self.requested;
        for (request, position) in self.requests.iter_mut().zip(0..) {
            *request = Request::of_nothing_at(position);
        }
        passed.flushed
    }

    /// Removes everything before `position` from flight.
    fn pass(&mut self, position: u32, passed: &Passed) {
        self.done = position;
        self.reapable = self.reapable.wrapping_add(passed.mbufs);
        self.answered = self.answered.wrapping_add(passed.requests);
    }

    /// Sums the content of the WQEs from `done` to `position`; `None` if none begins there. One
    /// step per WQE in flight.
    fn walk(&self, position: u32) -> Option<Passed> {
        let (mut at, mut passed) = (self.done, Passed::default());
        while at != position {
            let note = self.notes[self.slot(at)];
            let (blocks, load) = (note.blocks(), note.load());
            // Our own notes, from one WQE to the next, each of a block at least; but perhaps no WQE
            // begins there.
            if blocks == 0 || blocks > position.wrapping_sub(at) {
                return None;
            }
            let request = &self.requests[self.slot(at)];
            passed.flushed.frames += u64::from(load.frames);
            passed.mbufs += u32::from(load.mbufs);
            if request.first == at {
                passed.requests += 1;
                passed.flushed.stamps_lost += u32::from(request.stamp.is_some());
            }
            at = at.wrapping_add(blocks);
        }
        Some(passed)
    }

    /// The position for the index in a CQE, if it was rung for and is not done.
    #[inline(always)]
    fn in_flight(&self, counter: u16, rung: u32) -> Option<u32> {
        let ahead = u32::from(counter.wrapping_sub(self.done as u16));
        (ahead < rung.wrapping_sub(self.done)).then(|| self.done.wrapping_add(ahead))
    }

    #[inline(always)]
    fn slot(&self, position: u32) -> usize {
        position as usize & (self.notes.len() - 1)
    }
}

/// The sums of a walk.
#[derive(Clone, Copy, Default)]
struct Passed {
    flushed: Flushed,
    mbufs: u32,
    requests: u32,
}

impl Request {
    /// A note that matches no request, because it names the next block, which is never recorded at
    /// this position.
    fn of_nothing_at(position: u32) -> Self {
        Self { first: position.wrapping_add(1), end: 0, mbufs: 0, number: 0, stamp: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of 16 blocks. Each WQE is (blocks, frames, mbufs, signaled, stamp); all are rung.
    struct Books {
        ledger: Ledger,
        posted: u32,
        mbufs: u32,
    }

    impl Books {
        fn new(start: u32) -> Self {
            let mut ledger = Ledger::new(16);
            ledger.done = start;
            Self { ledger, posted: start, mbufs: 0 }
        }

        fn post(&mut self, blocks: u32, frames: u8, mbufs: u8, asks: bool, stamp: Option<u64>) -> u16 {
            let (first, end) = (self.posted, self.posted.wrapping_add(blocks));
            self.ledger.note(first, blocks, Load { frames, mbufs });
            self.mbufs += u32::from(mbufs);
            if asks {
                self.ledger.ask(first, end, self.mbufs, stamp);
            }
            self.posted = end;
            first as u16
        }

        fn complete(&mut self, counter: u16) -> Completed {
            self.ledger.complete(counter, self.posted)
        }
    }

    fn flushed(frames: u64, stamps_lost: u32) -> Flushed {
        Flushed { frames, stamps_lost }
    }

    #[test]
    fn completion_is_for_all_that_came_before() {
        let mut books = Books::new(0);
        books.post(1, 1, 1, false, None);
        books.post(3, 9, 9, false, None);
        let last = books.post(2, 1, 0, true, Some(7));
        assert_eq!(books.complete(last), Completed::Done(Some(7)));
        assert_eq!((books.ledger.done(), books.ledger.reapable()), (6, 10));
    }

    #[test]
    fn only_a_signaled_wqe_can_complete_and_only_once() {
        let mut books = Books::new(0);
        let silent = books.post(1, 1, 1, false, None);
        let signaled = books.post(4, 1, 1, true, None);
        for counter in
            [silent, signaled + 1, signaled + 3, signaled + 4, signaled + 16, signaled.wrapping_sub(16), 40_000]
        {
            assert_eq!(books.complete(counter), Completed::Unknown, "{counter}");
        }
        assert_eq!(books.complete(signaled), Completed::Done(None));
        assert_eq!(books.complete(signaled), Completed::Unknown);
    }

    #[test]
    fn what_was_not_rung_cannot_complete() {
        let mut books = Books::new(0);
        let counter = books.post(1, 1, 1, true, None);
        assert_eq!(books.ledger.complete(counter, 0), Completed::Unknown);
        assert_eq!(books.ledger.fail(counter, 0), None);
        assert_eq!(books.complete(counter), Completed::Done(None));
    }

    #[test]
    fn old_request_is_about_nothing() {
        // The block was signaled in an earlier lap of the ring, and not in this one.
        for start in [0, u32::MAX - 20, 0xfff8] {
            let mut books = Books::new(start);
            for turn in 0..40 {
                let signaled = books.post(4, 1, 1, turn % 2 == 0, None);
                let last = books.post(12, 1, 1, true, None);
                if turn % 2 == 1 {
                    assert_eq!(books.complete(signaled), Completed::Unknown, "{start} {turn}");
                    assert_eq!(books.complete(last), Completed::Done(None));
                } else {
                    assert!(matches!(books.complete(last), Completed::DoneLate { missed: 1, .. }));
                }
            }
        }
    }

    #[test]
    fn completions_that_never_came_are_counted_with_their_stamps() {
        let mut books = Books::new(u32::MAX - 2);
        books.post(1, 1, 1, true, Some(0));
        books.post(1, 1, 1, true, None);
        books.post(1, 1, 1, true, Some(1));
        let last = books.post(1, 1, 1, true, Some(2));
        assert_eq!(books.complete(last), Completed::DoneLate { stamp: Some(2), missed: 3, stamps_lost: 2 });
        let next = books.post(1, 1, 1, true, None);
        assert_eq!(books.complete(next), Completed::Done(None));
        assert_eq!(books.ledger.reapable(), 5);
    }

    #[test]
    fn wqe_that_failed_is_told_from_those_before_it() {
        let mut books = Books::new(3);
        books.post(1, 1, 1, true, Some(0));
        books.post(2, 5, 5, false, None);
        let failed = books.post(4, 20, 20, true, None);
        let behind = books.post(1, 1, 1, true, Some(1));
        assert_eq!(books.ledger.fail(failed + 1, books.posted), None, "nothing begins there");
        let flushed_by = books.ledger.fail(failed, books.posted).unwrap();
        assert_eq!((flushed_by.before, flushed_by.itself), (flushed(6, 1), flushed(20, 0)));
        assert_eq!((books.ledger.done(), books.ledger.reapable()), (10, 26));
        assert_eq!(books.complete(failed), Completed::Unknown);
        assert_eq!(books.complete(behind), Completed::Done(Some(1)), "no completion is missing");
    }

    #[test]
    fn reset_tells_what_was_in_flight_and_begins_at_zero() {
        let mut books = Books::new(100);
        let done = books.post(1, 1, 1, true, None);
        books.complete(done);
        books.post(2, 3, 2, true, Some(4));
        books.post(1, 1, 1, false, None);
        assert_eq!(books.ledger.reset(books.posted), flushed(4, 1));
        assert_eq!((books.ledger.done(), books.ledger.reapable()), (0, 4));
        books.posted = 0;
        let silent = books.post(1, 1, 1, false, None);
        assert_eq!(books.complete(silent), Completed::Unknown);
        let signaled = books.post(1, 1, 1, true, None);
        assert_eq!(books.complete(signaled), Completed::Done(None));
    }

    #[test]
    fn canceled_request_cannot_complete() {
        let mut books = Books::new(0);
        let first = books.post(1, 1, 1, true, None);
        let (mark, signaled) = (books.posted, books.ledger.requested());
        let rehearsed = books.post(2, 1, 1, true, None);
        books.ledger.cancel_requests(mark, books.posted, signaled);
        (books.posted, books.mbufs) = (mark, 1);
        let again = books.post(2, 1, 1, false, None);
        assert_eq!(rehearsed, again);
        assert_eq!(books.complete(again), Completed::Unknown);
        assert_eq!(books.complete(first), Completed::Done(None));
        let last = books.post(1, 1, 1, true, None);
        assert_eq!(books.complete(last), Completed::Done(None));
    }
}
