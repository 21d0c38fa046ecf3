//! Logons that the venue did not answer, because their numbers were used.
//!
//! A power cut may take the end of a journal, and with it numbers of ours that the venue has. FIX
//! prescribes that it says so ([`too_low`](super::too_low)); one that closes the connection with
//! other words or none has us climb, a number with each Logon, until one is its next. What was sent
//! in the numbers below is unknown here then.
//!
//! Logons that a broken line has cost look alike, but leave a trace: one that did not arrive is
//! asked for (ResendRequest), and one that was answered has used a number of the venue's, which is
//! missing here.

/// The Logons since the start to the first that was answered: from there on our numbers are the
/// venue's. What it has of those before is told until a session has settled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Climb {
    /// The id of the first.
    first: Option<u64>,
    /// The first id that the venue is not known to have: that of the last of them, or one that it
    /// has asked for.
    taken_below: u64,
    /// Messages of the venue that were missing when the last was answered.
    missing: u64,
    /// A Logout answered one.
    is_refused: bool,
    is_answered: bool,
    is_over: bool,
}

impl Climb {
    /// The venue has told what it has.
    pub(super) const OVER: Self =
        Self { first: None, taken_below: 0, missing: 0, is_refused: false, is_answered: true, is_over: true };

    /// A Logon is sent.
    pub(super) const fn logon(&mut self, id: u64) {
        if self.is_answered {
            return;
        }
        if self.first.is_none() {
            self.first = Some(id);
        }
        self.taken_below = id;
    }

    /// It was answered, by a message before which so many are missing.
    pub(super) const fn logged_on(&mut self, missing: u64) {
        if !self.is_answered {
            (self.missing, self.is_answered) = (missing, true);
        }
    }

    /// A Logout came in place of the answer.
    pub(super) const fn refused(&mut self) {
        self.is_refused |= !self.is_answered;
    }

    /// The venue asks for what was sent from this id on.
    pub(super) fn asked_for(&mut self, from: u64) {
        self.taken_below = self.taken_below.min(from);
    }

    /// Whether Logons were refused for numbers that the venue had used.
    pub(super) fn hides_numbers(self) -> bool {
        let Some(first) = self.first.filter(|_| !self.is_over) else { return false };
        let unanswered = self.taken_below.saturating_sub(first);
        unanswered > 0 && (self.is_refused || unanswered > self.missing)
    }
}
