//! [`WholeChannels`]: of which channels a reader's own books are whole.
//!
//! A reader that has not had each record since the ring's first lacks orders, and no record says
//! so, because the feed's own books are whole. It is void until a channel's next `Clear`: behind
//! that follows what rests, or the books are empty, as at the start of a session.

use market::event::Event;

use crate::reader::Read;
use crate::record::Flags;

/// Which channels' books can be whole, for a reader that builds them from the records. It knows of
/// records that the reader has not had; what the feed itself lacks is told by [`Flags::STALE`] of
/// each record. Books by position ([`market::DepthBooks`]) judge each instrument by its own numbers
/// instead.
///
/// Show it all that is read. A record costs a search among the channels, which are few.
#[derive(Clone, Debug, Default)]
pub struct WholeChannels {
    channels: Vec<(u16, State)>,
    /// Of channels without a record so far.
    others: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Whole,
    Void,
    /// A `Clear` has come, and what rests is on its way.
    Cleared,
}

impl WholeChannels {
    /// Takes what a reader was told.
    pub fn take(&mut self, read: &Read) {
        match read {
            Read::Record { record, .. } => {
                let state = self.state(record.channel);
                let is_stale = record.flags.contains(Flags::STALE);
                let is_clear = matches!(record.event, Event::Clear(_));
                *state = match *state {
                    State::Void | State::Whole if is_clear && is_stale => State::Cleared,
                    State::Void if !is_clear => State::Void,
                    State::Cleared if is_stale => State::Cleared,
                    _ => State::Whole,
                };
            }
            Read::Joined { .. } | Read::Overrun { .. } | Read::Unknown { .. } => {
                self.others = State::Void;
                self.channels.iter_mut().for_each(|(_, state)| *state = State::Void);
            }
            Read::Empty | Read::Closed => {}
        }
    }

    /// Whether nothing is missing of a channel since the ring's first record or the last `Clear`.
    pub fn is_whole(&self, channel: u16) -> bool {
        let found = self.channels.iter().find(|&&(number, _)| number == channel);
        found.map_or(self.others, |&(_, state)| state) == State::Whole
    }

    fn state(&mut self, channel: u16) -> &mut State {
        let at = self.channels.iter().position(|&(number, _)| number == channel).unwrap_or_else(|| {
            self.channels.push((channel, self.others));
            self.channels.len() - 1
        });
        &mut self.channels[at].1
    }
}

#[cfg(test)]
mod tests {
    use market::event::{Clear, System};

    use super::*;
    use crate::record::Record;

    fn record(channel: u16, event: Event, flags: Flags) -> Read {
        Read::Record { seq: 0, record: Record { channel, flags, ..Record::new(0, event) } }
    }

    fn clear(channel: u16, flags: Flags) -> Read {
        record(channel, Event::Clear(Clear { at_ns: 0 }), flags)
    }

    fn other(channel: u16, flags: Flags) -> Read {
        record(channel, Event::System(System { code: b'O', at_ns: 0 }), flags)
    }

    #[test]
    fn reader_that_missed_records_is_whole_again_behind_the_channels_own_image() {
        let fresh = Flags::END_OF_EVENT;
        for missing in [Read::Joined { before: 7 }, Read::Overrun { first: 1, last: 2 }, Read::Unknown { seq: 3 }] {
            let mut channels = WholeChannels::default();
            let mut told = Vec::new();
            for read in [
                other(0, fresh),
                missing,
                other(0, fresh),
                clear(0, Flags::SNAPSHOT.and(Flags::STALE)),
                other(0, Flags::SNAPSHOT.and(Flags::STALE)),
                other(0, fresh),
                clear(1, fresh),
            ] {
                channels.take(&read);
                told.push([0, 1].map(|channel| channels.is_whole(channel)));
            }
            let (whole, void) = ([true, true], [false, false]);
            assert_eq!(told, [whole, void, void, void, void, [true, false], whole], "{missing:?}");
        }
    }
}
