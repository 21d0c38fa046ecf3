//! A sentence for each limit of the handler that packets have met, with its remedy: the counter's
//! name alone explains little.

use wirepath::counters::Snapshot;

use super::Summary;
use super::account::count;
use super::text::grouped;
use crate::feed::{CHANNELS_MAX, GROUPS_MAX, LINES_MAX};

/// The meaning of a count of dropped datagrams, by its drop reason.
pub(super) fn meanings() -> [(&'static str, String); 7] {
    [
        (
            "feed.unknown_channel",
            "have a channel number that their line does not: name the numbers that are wanted with `numbers` in [[channels]] \
             (without it a line has the first number that comes), the others are damaged or forged"
                .to_owned(),
        ),
        (
            "feed.channels_full",
            format!(
                "are of channels beyond the {CHANNELS_MAX} that a replay learns: name the groups that are wanted ([[channels]] or \
                 --group), and replay the file again for the rest"
            ),
        ),
        (
            "feed.no_memory",
            "are of channels for whose books the machine had no memory at the start: lower [books], or name fewer channels"
                .to_owned(),
        ),
        (
            "feed.lines_full",
            format!(
                "are of groups beyond the {LINES_MAX} lines that a channel may have: name its lines in [[channels]]"
            ),
        ),
        (
            "feed.doubtful",
            "name a channel or a session that no second packet names: they are damaged or forged".to_owned(),
        ),
        (
            "feed.unsequenced",
            "have messages outside of their channel's numbers (Cboe's number 0, refreshes and answers of NYSE), which no book takes: \
             take the groups of refreshes and answers out of [[channels]]; on a group of numbered messages they are forged"
                .to_owned(),
        ),
        ("feed.other_vlan", "came in another VLAN than their line names: compare `vlan` of the lines".to_owned()),
    ]
}

/// Counters of what the books lack although no message is missing, and what to do. The summary has
/// both among the books and the messages.
const LACKS: [(&str, &str); 2] = [
    (
        "feed/without_place",
        "orders, prices or instruments found no place, and the books that lack them are stale: raise `orders`, `levels` or \
         `books` in [books]",
    ),
    (
        "feed/lost_to_books",
        "messages of the books could not be decoded (of another length, or about instruments without a definition): all \
         books of their channel are stale until an image or a restart",
    ),
];

/// The limits that were first met between two snapshots, for operators that do not wait for the
/// summary.
pub(crate) fn newly_met(before: &Snapshot, now: &Snapshot) -> Vec<String> {
    let is_new = |name: &str| count(before, name) == 0 && count(now, name) > 0;
    let met = meanings().into_iter().filter_map(|(reason, meaning)| {
        is_new(&reason.replace('.', "/drop/")).then(|| format!("datagrams (dropped: {reason}) {meaning}"))
    });
    let lacks = LACKS.into_iter().filter(|(name, _)| is_new(name)).map(|(_, meaning)| meaning.to_owned());
    met.chain(lacks).collect()
}

/// The limits that were met.
pub(super) fn limits(summary: &Summary) -> Vec<String> {
    let met = meanings().into_iter().filter_map(|(reason, meaning)| {
        let count = summary.drops.get(reason)?;
        Some(format!("{} datagrams (dropped: {reason}) {meaning}", grouped(*count)))
    });
    let groups = (summary.groups_refused > 0).then(|| {
        format!(
            "{} datagrams (dropped: udp.no_consumer) went to groups beyond the {GROUPS_MAX} that are learned: name those that are \
             wanted with --group",
            grouped(summary.groups_refused)
        )
    });
    met.chain(groups).collect()
}

#[cfg(test)]
mod tests {
    use wirepath::counters::Block;

    use super::*;
    use crate::feed::FeedDrop;

    #[test]
    fn limit_is_told_once_while_it_runs_when_it_is_first_met() {
        let block = Block::heap();
        let mut drops = block.scope("worker1").scope("feed").drops();
        let at_start = block.snapshot();
        drops.count(FeedDrop::UnknownChannel);
        let met = block.snapshot();
        let reported = newly_met(&at_start, &met);
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(
            reported[0].starts_with("datagrams (dropped: feed.unknown_channel) have a channel number"),
            "{reported:?}"
        );
        drops.count(FeedDrop::UnknownChannel);
        assert_eq!(newly_met(&met, &block.snapshot()), [""; 0]);
    }
}
