//! Completion queues.

use super::work::WorkCompletion;
use crate::wire::qpn::Qpn;

/// A ring of completions.
pub(super) struct Cq {
    ring: Box<[Option<WorkCompletion>]>,
    head: usize,
    len: usize,
    armed: Armed,
    /// Queue pairs that complete here.
    pub(super) users: u32,
    is_overrun: bool,
}

/// What a completion queue notifies of, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next completion.
    Any,
    /// The next that is solicited by its sender, or has failed.
    Solicited,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    For(Notify),
}

/// What follows from a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    Quietly,
    /// Somebody waits for it.
    Notify,
    /// There was no room, for the first time.
    Overrun,
    /// There was none before.
    Lost,
}

impl Cq {
    pub(super) fn new(depth: u32) -> Self {
        let ring = vec![None; depth.max(1) as usize].into();
        Self { ring, head: 0, len: 0, armed: Armed::No, users: 0, is_overrun: false }
    }

    /// Puts in a completion. What finds no room is lost, and so are all after it: the queue has
    /// failed.
    #[inline]
    pub(super) fn push(&mut self, completion: WorkCompletion, is_solicited: bool) -> Pushed {
        if self.len == self.ring.len() || self.is_overrun {
            let was_overrun = core::mem::replace(&mut self.is_overrun, true);
            return if was_overrun { Pushed::Lost } else { Pushed::Overrun };
        }
        let mut at = self.head + self.len;
        if at >= self.ring.len() {
            at -= self.ring.len();
        }
        self.ring[at] = Some(completion);
        self.len += 1;
        match self.armed {
            Armed::No => return Pushed::Quietly,
            Armed::For(Notify::Any) => {}
            Armed::For(Notify::Solicited) if is_solicited => {}
            Armed::For(Notify::Solicited) => return Pushed::Quietly,
        }
        self.armed = Armed::No;
        Pushed::Notify
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<WorkCompletion> {
        self.len = self.len.checked_sub(1)?;
        let completion = self.ring[self.head].take();
        self.head += 1;
        if self.head == self.ring.len() {
            self.head = 0;
        }
        completion
    }

    /// True if a completion of this queue pair is in it.
    pub(super) fn has_of(&self, qpn: Qpn) -> bool {
        self.ring.iter().flatten().any(|completion| completion.qpn == qpn)
    }

    /// Asks for one notification; one for any completion stays so.
    pub(super) fn arm(&mut self, notify: Notify) {
        if self.armed != Armed::For(Notify::Any) {
            self.armed = Armed::For(notify);
        }
    }
}
