//! The books of a sending ring: what each WQE carries, which ones complete with a CQE, and how far
//! the NIC is. What completions say is checked here against what is in flight: a WQE that the NIC
//! was told of, that has not completed, and that begins where it says.
//!
//! Positions count blocks and run freely over 32 bits; a CQE has the lower 16 of one. Books are
//! kept at the first block of each WQE, so that a completion is one look into them.

/// What a WQE carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::device::mlx5) struct Load {
    /// Frames that leave with it, a payload to be cut counting as one.
    pub(in crate::device::mlx5) frames: u8,
    /// Mbufs that come home with it: none for frames that are wholly inline.
    pub(in crate::device::mlx5) mbufs: u8,
}

/// What the NIC's word about a WQE means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device::mlx5) enum Completed {
    /// It and all before it are done; the time belongs to this frame, if one wants it.
    Done(Option<u64>),
    /// As that, but older completions never came.
    DoneLate {
        /// The frame that wants the time.
        stamp: Option<u64>,
        /// How many never came.
        missed: u32,
        /// Frames that will never have their times.
        stamps_lost: u32,
    },
    /// No WQE that is in flight and asked for it.
    Unknown,
}

/// What was taken out of flight without a completion of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::device::mlx5) struct Flushed {
    /// Frames.
    pub(in crate::device::mlx5) frames: u64,
    /// Those among them that wanted to know when they left.
    pub(in crate::device::mlx5) stamps_lost: u32,
}

/// A WQE that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device::mlx5) struct Failed {
    /// What lay before it, and had not been reported as done.
    pub(in crate::device::mlx5) before: Flushed,
    /// What it carried itself.
    pub(in crate::device::mlx5) itself: Flushed,
}

/// The books of a ring.
pub(super) struct Ledger {
    notes: Box<[Note]>,
    requests: Box<[Request]>,
    /// The first block that is not done.
    done: u32,
    /// Mbufs that came with what is done.
    home: u32,
    /// Completions that were asked for, and those that came or never will; they run freely.
    asked: u32,
    answered: u32,
}

/// What stands in the ring from the block on to which the note belongs: blocks, frames and mbufs, a
/// byte each, in one word that is written at once.
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

/// A completion that was asked for. It is about the WQE that begins at `first`, and where another
/// stands in its place it is an old one, about nothing.
#[derive(Clone, Copy)]
struct Request {
    first: u32,
    end: u32,
    /// Mbufs that had been posted with it and before.
    mbufs: u32,
    /// How many had been asked for before.
    number: u32,
    /// The number of the frame whose departure is to be reported.
    stamp: Option<u64>,
}

impl Ledger {
    /// Of a ring of so many blocks, a power of two of at least two.
    pub(super) fn new(blocks: u32) -> Self {
        assert!(blocks.is_power_of_two() && blocks > 1, "a ring of {blocks} blocks");
        Self {
            notes: vec![Note::default(); blocks as usize].into(),
            requests: (0..blocks).map(Request::of_nothing_at).collect(),
            done: 0,
            home: 0,
            asked: 0,
            answered: 0,
        }
    }

    /// Position of the first block that is not done.
    #[inline(always)]
    pub(super) fn done(&self) -> u32 {
        self.done
    }

    /// Mbufs that may go home, of all that were ever posted.
    #[inline(always)]
    pub(super) fn home(&self) -> u32 {
        self.home
    }

    /// Notes a WQE of `blocks` blocks from `first` on.
    #[inline(always)]
    pub(super) fn note(&mut self, first: u32, blocks: u32, load: Load) {
        let slot = self.slot(first);
        self.notes[slot] = Note::new(blocks, load);
    }

    /// Notes `count` WQEs of a block, a frame and an mbuf each, which do not go over the end of the
    /// ring.
    #[inline(always)]
    pub(super) fn note_plain(&mut self, first: u32, count: usize) {
        let slot = self.slot(first);
        self.notes[slot..slot + count].fill(Note::new(1, Load { frames: 1, mbufs: 1 }));
    }

    /// The WQE in the blocks from `first` to `end` was asked to complete with a CQE. `mbufs` had
    /// been posted by then.
    #[inline(always)]
    pub(super) fn ask(&mut self, first: u32, end: u32, mbufs: u32, stamp: Option<u64>) {
        let slot = self.slot(first);
        self.requests[slot] = Request { first, end, mbufs, number: self.asked, stamp };
        self.asked = self.asked.wrapping_add(1);
    }

    /// Completions that were asked for so far.
    pub(super) fn asked(&self) -> u32 {
        self.asked
    }

    /// Nothing was asked for what stands from `first` to `end`, nor was it posted; `asked` is what
    /// had been before.
    pub(super) fn unask(&mut self, first: u32, end: u32, asked: u32) {
        for idx in 0..end.wrapping_sub(first) {
            let position = first.wrapping_add(idx);
            let slot = self.slot(position);
            self.requests[slot] = Request::of_nothing_at(position);
        }
        self.asked = asked;
    }

    /// The NIC says that the WQE whose index is `counter`, and all before it, are done. It has been
    /// told of the blocks before `rung`.
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
        (self.done, self.home) = (request.end, request.mbufs);
        self.answered = request.number.wrapping_add(1);
    }

    /// The NIC says that the WQE whose index is `counter` failed. All before it are out of flight,
    /// and so is it. `None`, and nothing changes, where no WQE in flight begins there.
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

    /// The NIC has let go of the ring, in which WQEs had been posted up to `posted`: nothing is in
    /// flight, and positions begin at 0 again.
    #[cold]
    pub(super) fn reset(&mut self, posted: u32) -> Flushed {
        let passed = self.walk(posted).unwrap_or_default();
        self.pass(0, &passed);
        self.answered = self.asked;
        for (request, position) in self.requests.iter_mut().zip(0..) {
            *request = Request::of_nothing_at(position);
        }
        passed.flushed
    }

    /// Everything before `position` is out of flight.
    fn pass(&mut self, position: u32, passed: &Passed) {
        self.done = position;
        self.home = self.home.wrapping_add(passed.mbufs);
        self.answered = self.answered.wrapping_add(passed.requests);
    }

    /// What the WQEs from `done` to `position` carry; `None` where none begins there. As many steps
    /// as WQEs are in flight.
    fn walk(&self, position: u32) -> Option<Passed> {
        let (mut at, mut passed) = (self.done, Passed::default());
        while at != position {
            let note = self.notes[self.slot(at)];
            let (blocks, load) = (note.blocks(), note.load());
            // Our own notes, from one WQE to the next, each of a block at least; but it may be no
            // WQE that begins there.
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

    /// The position whose index the NIC says, if it is one that it has been told of and that is not
    /// done.
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

/// What was walked over.
#[derive(Clone, Copy, Default)]
struct Passed {
    flushed: Flushed,
    mbufs: u32,
    requests: u32,
}

impl Request {
    /// The next block never stands in the place of this one.
    fn of_nothing_at(position: u32) -> Self {
        Self { first: position.wrapping_add(1), end: 0, mbufs: 0, number: 0, stamp: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of 16 blocks. Each WQE is (blocks, frames, mbufs, asks, stamp); all are rung.
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
        assert_eq!((books.ledger.done(), books.ledger.home()), (6, 10));
    }

    #[test]
    fn only_a_wqe_that_asked_can_complete_and_only_once() {
        let mut books = Books::new(0);
        let silent = books.post(1, 1, 1, false, None);
        let asked = books.post(4, 1, 1, true, None);
        for counter in [silent, asked + 1, asked + 3, asked + 4, asked + 16, asked.wrapping_sub(16), 40_000] {
            assert_eq!(books.complete(counter), Completed::Unknown, "{counter}");
        }
        assert_eq!(books.complete(asked), Completed::Done(None));
        assert_eq!(books.complete(asked), Completed::Unknown);
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
        // The block was asked for on an earlier turn of the ring, and not on this one.
        for start in [0, u32::MAX - 20, 0xfff8] {
            let mut books = Books::new(start);
            for turn in 0..40 {
                let asked = books.post(4, 1, 1, turn % 2 == 0, None);
                let last = books.post(12, 1, 1, true, None);
                if turn % 2 == 1 {
                    assert_eq!(books.complete(asked), Completed::Unknown, "{start} {turn}");
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
        assert_eq!(books.ledger.home(), 5);
    }

    #[test]
    fn wqe_that_failed_is_told_from_those_before_it() {
        let mut books = Books::new(3);
        books.post(1, 1, 1, true, Some(0));
        books.post(2, 5, 5, false, None);
        let failed = books.post(4, 20, 20, true, None);
        let behind = books.post(1, 1, 1, true, Some(1));
        assert_eq!(books.ledger.fail(failed + 1, books.posted), None, "nothing begins there");
        let told = books.ledger.fail(failed, books.posted).unwrap();
        assert_eq!((told.before, told.itself), (flushed(6, 1), flushed(20, 0)));
        assert_eq!((books.ledger.done(), books.ledger.home()), (10, 26));
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
        assert_eq!((books.ledger.done(), books.ledger.home()), (0, 4));
        books.posted = 0;
        let silent = books.post(1, 1, 1, false, None);
        assert_eq!(books.complete(silent), Completed::Unknown);
        let asked = books.post(1, 1, 1, true, None);
        assert_eq!(books.complete(asked), Completed::Done(None));
    }

    #[test]
    fn what_was_unasked_cannot_complete() {
        let mut books = Books::new(0);
        let first = books.post(1, 1, 1, true, None);
        let (mark, asked) = (books.posted, books.ledger.asked());
        let rehearsed = books.post(2, 1, 1, true, None);
        books.ledger.unask(mark, books.posted, asked);
        (books.posted, books.mbufs) = (mark, 1);
        let again = books.post(2, 1, 1, false, None);
        assert_eq!(rehearsed, again);
        assert_eq!(books.complete(again), Completed::Unknown);
        assert_eq!(books.complete(first), Completed::Done(None));
        let last = books.post(1, 1, 1, true, None);
        assert_eq!(books.complete(last), Completed::Done(None));
    }
}
