//! What a consumer has had of each channel, and what it has missed.

use std::collections::BTreeMap;

use market_ring::Record;

use crate::batch::{COVERS, END, SESSION, entries, parse_pair};

/// Sessions that a channel has left and that are remembered: each is a start of its gateway.
const LEFT_MAX: usize = 1_024;

/// What a consumer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerEvent {
    /// A record, and its number in the publisher's ring.
    Record(u64, Record),
    /// The channel's records with these numbers, if there were any, are not to be had: the ring had
    /// overwritten them, the publisher was not there, or the broker has lost them or dropped them
    /// as the oldest. Books built from events are void until the channel's next `Clear`.
    Missed {
        /// The channel.
        channel: u16,
        /// The first number.
        first: u64,
        /// The last; `u64::MAX` where a session has ended and nobody has said with which number.
        last: u64,
    },
    /// The publisher's ring of a channel is another one: numbers begin anew, and the channel's
    /// books are void.
    Restart {
        /// The channel.
        channel: u16,
    },
    /// A message that is no batch, or an entry that is no record.
    Malformed,
}

/// Finds what batches lack, and leaves out what has come before. Each channel is apart, because
/// each worker of a gateway has a ring.
#[derive(Default)]
pub struct GapDetector {
    channels: BTreeMap<u16, Followed>,
}

impl GapDetector {
    /// Takes a batch, by its headers and its body, and shows what is new of it. It may have come
    /// before, and a session that the channel has left does not begin again: messages are read once
    /// more after an outage, and a broker may store late what was sent before one.
    pub fn take<'a>(
        &mut self,
        channel: u16,
        header: impl Fn(&str) -> Option<&'a str>,
        payload: &[u8],
        each: &mut impl FnMut(ConsumerEvent),
    ) {
        let session = header(SESSION).and_then(|text| u64::from_str_radix(text, 16).ok());
        let (Some(session), Some((from, last))) = (session, header(COVERS).and_then(parse_pair)) else {
            return each(ConsumerEvent::Malformed);
        };
        let followed = self.channels.entry(channel).or_insert(Followed::new(session));
        if followed.session != session {
            if followed.left.contains(&session) {
                return;
            }
            let before = followed.restart(session);
            if !before.has_ended {
                each(ConsumerEvent::Missed { channel, first: before.next, last: u64::MAX });
            }
            each(ConsumerEvent::Restart { channel });
        }
        let next = &mut followed.next;
        if from > *next {
            each(ConsumerEvent::Missed { channel, first: *next, last: from - 1 });
            *next = from;
        }
        for entry in entries(payload) {
            let Some((seq, record)) = entry.filter(|(seq, record)| record.channel == channel && *seq < u64::MAX) else {
                return each(ConsumerEvent::Malformed);
            };
            if seq >= *next {
                *next = seq + 1;
                each(ConsumerEvent::Record(seq, record));
            }
        }
        *next = (*next).max(last.saturating_add(1));
        followed.has_ended |= header(END).is_some();
    }
}

/// What was read last of a channel.
struct Followed {
    /// The ring's.
    session: u64,
    /// The number from which on nothing has come.
    next: u64,
    /// Nothing follows in this session.
    has_ended: bool,
    /// Those before it, the latest last.
    left: Vec<u64>,
}

impl Followed {
    const fn new(session: u64) -> Self {
        Self { session, next: 0, has_ended: false, left: Vec::new() }
    }

    /// Goes on with another session, and returns what was known of the one before.
    fn restart(&mut self, session: u64) -> Self {
        let mut left = core::mem::take(&mut self.left);
        if left.len() == LEFT_MAX {
            left.remove(0);
        }
        left.push(self.session);
        core::mem::replace(self, Self { left, ..Self::new(session) })
    }
}

#[cfg(test)]
mod tests {
    use market::event::{Clear, Event};

    use super::*;

    /// What a consumer is told of a batch.
    fn take(detector: &mut GapDetector, channel: u16, session: &str, covers: &str, seqs: &[u64]) -> Vec<ConsumerEvent> {
        take_with(detector, channel, &[(SESSION, session), (COVERS, covers)], seqs)
    }

    fn take_with(
        detector: &mut GapDetector,
        channel: u16,
        headers: &[(&str, &str)],
        seqs: &[u64],
    ) -> Vec<ConsumerEvent> {
        let record = Record { channel, ..Record::new(0, Event::Clear(Clear { at_ns: 0 })) };
        let entry = |seq: &u64| [&seq.to_le_bytes()[..], &record.to_bytes()].concat();
        let payload: Vec<u8> = seqs.iter().flat_map(entry).collect();
        let header = |name: &str| headers.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
        let mut told = Vec::new();
        detector.take(channel, header, &payload, &mut |event| told.push(event));
        told
    }

    #[test]
    fn records_that_no_batch_of_the_channel_has_are_told_and_repetitions_are_not() {
        let mut detector = GapDetector::default();
        let mut take = |channel: u16, covers: &str, seqs: &[u64]| {
            let short = |event| match event {
                ConsumerEvent::Record(seq, record) => (record.channel, seq, seq),
                ConsumerEvent::Missed { channel, first, last } => (100 + channel, first, last),
                other => panic!("{other:?}"),
            };
            take(&mut detector, channel, "1", covers, seqs).into_iter().map(short).collect::<Vec<_>>()
        };
        // All is there, a quiet channel begins late, and the same comes again after an outage.
        assert_eq!(take(0, "0-5", &[0, 3]), [(0, 0, 0), (0, 3, 3)]);
        assert_eq!(take(1, "0-7", &[7]), [(1, 7, 7)]);
        assert_eq!(take(0, "0-5", &[0, 3]), []);
        assert_eq!(take(0, "6-9", &[9]), [(0, 9, 9)]);
        // A publisher that was away begins further on, in batches of other records.
        assert_eq!(take(0, "20-22", &[21]), [(100, 10, 19), (0, 21, 21)]);
        assert_eq!(take(1, "5-8", &[7, 8]), [(1, 8, 8)]);
        // A batch without records says what was missed.
        assert_eq!(take(1, "30-29", &[]), [(101, 9, 29)]);
        assert_eq!(take(1, "30-30", &[30]), [(1, 30, 30)]);
    }

    #[test]
    fn rings_of_two_workers_do_not_end_each_other() {
        let mut detector = GapDetector::default();
        let batches = [(0, "1", "0-4"), (1, "2", "0-9"), (0, "1", "5-6"), (0, "3", "0-1"), (1, "2", "10-10")];
        let told = batches.map(|(channel, session, covers)| take(&mut detector, channel, session, covers, &[]));
        let missed = ConsumerEvent::Missed { channel: 0, first: 7, last: u64::MAX };
        assert_eq!(told.concat(), [missed, ConsumerEvent::Restart { channel: 0 }]);
    }

    #[test]
    fn end_of_a_session_that_no_batch_has_is_told_as_missed() {
        for (end, missed) in [(vec![], vec![(5, u64::MAX)]), (vec![(END, "1")], vec![])] {
            let mut detector = GapDetector::default();
            let first = [&[(SESSION, "1"), (COVERS, "0-4")][..], &end].concat();
            let mut told = take_with(&mut detector, 0, &first, &[]);
            told.extend(take(&mut detector, 0, "2", "0-1", &[]));
            let missed = missed.into_iter().map(|(first, last)| ConsumerEvent::Missed { channel: 0, first, last });
            let expected: Vec<_> = missed.chain([ConsumerEvent::Restart { channel: 0 }]).collect();
            assert_eq!(told, expected, "{end:?}");
        }
    }

    /// A broker stores late what a connection sent that was given up.
    #[test]
    fn session_that_was_left_does_not_begin_again() {
        let mut detector = GapDetector::default();
        assert_eq!(take(&mut detector, 0, "1", "0-4", &[]), []);
        assert_eq!(take(&mut detector, 0, "2", "0-0", &[0]).len(), 3, "a hole, a restart and a record");
        assert_eq!(take(&mut detector, 0, "1", "3-4", &[4]), []);
        assert_eq!(take(&mut detector, 0, "2", "1-1", &[1]).len(), 1);
    }

    #[test]
    fn batch_without_its_numbers_is_malformed() {
        for headers in [&[(SESSION, "1")][..], &[(COVERS, "0-1")], &[(SESSION, "x"), (COVERS, "0-1")]] {
            assert_eq!(take_with(&mut GapDetector::default(), 0, headers, &[]), [ConsumerEvent::Malformed]);
        }
    }
}
