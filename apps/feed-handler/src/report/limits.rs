//! A sentence for each limit of the handler that packets have met, with what to do about it: what is beyond one is counted
//! by a name that says little alone.

use super::Summary;
use super::text::grouped;
use crate::feed::{CHANNELS_MAX, GROUPS_MAX, LINES_MAX};

/// What a count of dropped datagrams means, by the reason that counts it.
pub(super) fn meanings() -> [(&'static str, String); 5] {
    [
        (
            "feed.channels_full",
            format!(
                "are of channels beyond the {CHANNELS_MAX} that a worker opens beside the configured ones: name the groups that are \
                 wanted ([[channels]] or --group), or give some to another process"
            ),
        ),
        (
            "feed.no_memory",
            "are of channels for whose books the machine has no memory: lower [books], or name fewer channels"
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
        ("feed.other_vlan", "came in another VLAN than their line names: compare `vlan` of the lines".to_owned()),
    ]
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
