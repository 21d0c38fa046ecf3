//! Whether a book's updates all arrived, by the numbers that a venue gives the updates of each
//! instrument (CME's and B3's RptSeq).
//!
//! A hole in the channel's packets says that something was lost, but not of which instrument. So a
//! book is then unconfirmed: its next update has the next number, and nothing of it was lost, or a
//! later one, and it is stale. The others stay in use.

/// A book's number and that of a message about it are no farther apart, whatever was lost: CME's
/// busiest instruments have some ten million updates a day. A number beyond is damaged or forged.
const DISTANCE_MAX: u32 = 1 << 20;

/// How far a book can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trust {
    /// No update of it is missing.
    #[default]
    Sure,
    /// Packets of its channel are missing since its last update, which may have been about it. Or
    /// nobody has said how many levels the venue publishes of it, and its last ones may be gone.
    Unconfirmed,
    /// Updates of it are missing.
    Stale,
}

/// The numbers of one book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbering {
    last: u32,
    /// The number of losses of the channel that the last update has seen.
    losses: u32,
    /// The last number that was left out as old, or that the book had before its snapshot.
    old: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No update yet: whether the book is empty depends on the channel.
    New,
    Whole,
    Stale,
}

/// The channel's part of what its books can know.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChannelState {
    /// Losses since the last reset.
    pub(super) losses: u32,
    /// The channel was reset, and nothing was lost since: books without an update are empty.
    pub(super) is_anchored: bool,
}

/// An update's place among those of its book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is the next.
    Next,
    /// It was applied before, or is in a snapshot that was. A run of such ones is none: the book's
    /// own number is wrong.
    Old,
    /// So many before it are missing.
    Behind(u32),
}

impl Numbering {
    pub(super) const NEW: Self = Self { last: 0, losses: 0, old: 0, state: State::New };

    /// Takes an update's number.
    #[inline]
    pub(super) fn take(&mut self, number: u32, channel: ChannelState) -> Place {
        if number == self.last.wrapping_add(1) && self.state != State::New {
            (self.last, self.losses) = (number, channel.losses);
            return Place::Next;
        }
        self.take_other(number, channel)
    }

    /// The same, of a venue that has updates without a number too: that the next number is the
    /// expected one does not show that nothing was lost of them, and the book stays unconfirmed.
    #[inline]
    pub(super) fn take_one_of_some(&mut self, number: u32, channel: ChannelState) -> Place {
        self.take(number, ChannelState { losses: self.losses, ..channel })
    }

    /// The same, of a venue that numbers the messages of all instruments together: which of them
    /// are missing the channel knows, and a book with a loss stays unconfirmed.
    #[inline]
    pub(super) fn take_of_channel(&mut self, number: u32, channel: ChannelState) -> Place {
        match self.state {
            State::New if self.losses == channel.losses => self.state = State::Whole,
            State::New => {
                // What rested before was never told.
                (self.last, self.state) = (number, State::Stale);
                return Place::Behind(0);
            }
            _ if number <= self.last => return Place::Old,
            _ => {}
        }
        self.last = number;
        Place::Next
    }

    #[cold]
    fn take_other(&mut self, number: u32, channel: ChannelState) -> Place {
        let is_first = self.state == State::New;
        if !is_first && number <= self.last {
            let goes_on = number == self.old.wrapping_add(1) && number != self.last;
            if !goes_on && self.last - number <= DISTANCE_MAX {
                self.old = number;
                return Place::Old;
            }
            // Updates that go on below the book's number, or one that late: the venue is not as far
            // as the book, whose number is that of a damaged or forged message, and would leave out
            // all that come.
            (self.last, self.losses, self.state) = (number, channel.losses, State::Stale);
            return Place::Behind(0);
        }
        let missing = number.saturating_sub(self.last).saturating_sub(1);
        (self.last, self.losses) = (number, channel.losses);
        if is_first && (number <= 1 || channel.is_anchored) {
            self.state = State::Whole;
            return Place::Next;
        }
        self.state = State::Stale;
        Place::Behind(missing)
    }

    pub(super) fn trust(self, channel: ChannelState) -> Trust {
        match self.state {
            State::Stale => Trust::Stale,
            _ if self.losses != channel.losses => Trust::Unconfirmed,
            State::New | State::Whole => Trust::Sure,
        }
    }

    /// Its levels were all set anew, or disagreed with an update.
    pub(super) fn set_stale(&mut self, is_stale: bool) {
        self.state = if is_stale { State::Stale } else { State::Whole };
    }

    pub(super) const fn is_stale(self) -> bool {
        matches!(self.state, State::Stale)
    }

    /// No update of it came yet.
    pub(super) const fn is_new(self) -> bool {
        matches!(self.state, State::New)
    }

    /// The number of its last update.
    pub(super) const fn last(self) -> u32 {
        self.last
    }

    /// What the channel has lost so far was nothing of this book.
    pub(super) const fn confirm(&mut self, channel: ChannelState) {
        self.losses = channel.losses;
    }

    /// Whether a snapshot as of `number` can be one of this book. Before the first update any can.
    pub(super) fn is_plausible(self, number: u32) -> bool {
        self.state == State::New || number <= self.last.saturating_add(DISTANCE_MAX)
    }

    /// Whether a snapshot as of `number` says more than the book, and what it means for it. Of a
    /// book that is `in_doubt` for another reason than its numbers it does, unless it is older.
    pub(super) fn weigh(&mut self, number: u32, channel: ChannelState, in_doubt: bool) -> bool {
        match (self.state, self.trust(channel)) {
            (State::New, _) | (State::Stale, _) => true,
            (State::Whole, _) if in_doubt => number >= self.last,
            (State::Whole, Trust::Unconfirmed) if number == self.last => {
                self.losses = channel.losses;
                false
            }
            (State::Whole, Trust::Unconfirmed) => number > self.last,
            (State::Whole, _) => false,
        }
    }

    /// The book is what a snapshot as of `number` has.
    pub(super) fn adopt(&mut self, number: u32, channel: ChannelState) {
        let old = if self.state == State::New { 0 } else { self.last };
        *self = Self { last: number, losses: channel.losses, old, state: State::Whole };
    }
}
