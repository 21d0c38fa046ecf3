//! The moments of one turn: when the app got the tick, and when its order was posted.

use std::cell::Cell;
use std::time::Instant as Clock;

use wirepath::mem::Mbuf;

use super::observed::Observer;

/// What a turn notes. Each reading of the clock takes some 25 ns, so that the whole is measured
/// without the part.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Notes {
    #[default]
    Nothing,
    Post,
    AppAndPost,
}

thread_local! {
    static NOTES: Cell<Notes> = const { Cell::new(Notes::Nothing) };
    static ENTERED: Cell<Option<Clock>> = const { Cell::new(None) };
    static POSTED: Cell<Option<Clock>> = const { Cell::new(None) };
}

/// Notes of the turn that follows.
pub(crate) fn begin(notes: Notes) {
    NOTES.set(notes);
    ENTERED.set(None);
    POSTED.set(None);
}

/// The app has the tick.
#[inline]
pub(crate) fn entered() {
    if NOTES.get() == Notes::AppAndPost {
        ENTERED.set(Some(Clock::now()));
    }
}

/// When the app had the tick, and when the order was posted.
pub(crate) fn end() -> [Option<Clock>; 2] {
    NOTES.set(Notes::Nothing);
    [ENTERED.get(), POSTED.get()]
}

/// Notes when an urgent frame was posted: an order.
pub(crate) struct PostStamp;

impl Observer for PostStamp {
    #[inline]
    fn posts(&mut self, _: &Mbuf) {}

    #[inline]
    fn has_posted_urgent(&mut self) {
        order_posted();
    }
}

/// Callgrind's counts end at the begin of this function.
#[inline(never)]
fn order_posted() {
    if NOTES.get() != Notes::Nothing {
        POSTED.set(Some(Clock::now()));
    }
}
