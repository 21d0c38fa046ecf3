//! The last lines of a run: every packet that did not reach the app has a named reason. A run may
//! end before anyone starts `wirepath stats`, so the port prints them.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::counters::{Reading, Sample, Snapshot};

/// The most reasons that are named with their counts; the sum of the others is one number. Three
/// fit on a line, and a failed run usually has only one or two reasons that matter.
const REASONS_MAX: usize = 3;

/// Lines for dropped packets, and for packets accepted with a partial checksum. No line where there
/// are none.
pub(super) fn lines(counters: &Snapshot) -> Vec<String> {
    dropped(counters).into_iter().chain(partial(counters)).collect()
}

/// The most frequent reasons, each the sum over the workers.
fn dropped(counters: &Snapshot) -> Option<String> {
    let mut sums = BTreeMap::<&str, u64>::new();
    for (_, name, count) in counts(counters).filter(|(sample, ..)| sample.class.is_drop()) {
        *sums.entry(name).or_default() += count;
    }
    let mut reasons: Vec<_> = sums.into_iter().filter(|(_, count)| *count > 0).collect();
    reasons.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
    let named = reasons.iter().take(REASONS_MAX).map(|(name, count)| format!("{name} {count}"));
    let mut line = format!("dropped: {}", named.collect::<Vec<_>>().join(", "));
    match reasons.get(REASONS_MAX..) {
        _ if reasons.is_empty() => return None,
        None | Some([]) => (),
        Some(others) => {
            let count: u64 = others.iter().map(|(_, count)| count).sum();
            let _ = write!(line, ", others {count}");
        }
    }
    Some(line)
}

/// How many datagrams and segments came with checksums of the pseudo header only.
fn partial(counters: &Snapshot) -> Option<String> {
    let partial: u64 =
        counts(counters).filter(|(_, name, _)| name.ends_with("/partial_checksums")).map(|(.., count)| count).sum();
    (partial > 0).then(|| {
        format!(
            "accepted: {partial} packets whose checksums cover the pseudo header only, because the sender's NIC was to finish \
             them; Port::checksum(ChecksumPolicy::Verify) drops them"
        )
    })
}

/// The counters with their names without the worker's.
fn counts(counters: &Snapshot) -> impl Iterator<Item = (&Sample, &str, u64)> {
    counters.samples.iter().filter_map(|sample| match sample.reading {
        Reading::Counter(count) => Some((sample, sample.name.split_once('/')?.1, count)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Block, Unit};

    crate::drop_reasons! {
        /// Why the test drops.
        enum TestDrop {
            Short => "short",
            Long => "long",
            Late => "late",
            Lost => "lost",
        }
    }

    #[test]
    fn nothing_dropped_is_no_line() {
        let block = Block::heap();
        block.scope("worker0").scope("udp").drops::<TestDrop>();
        assert_eq!(lines(&block.snapshot()), [""; 0]);
    }

    #[test]
    fn most_frequent_reasons_are_named_first_and_workers_are_summed() {
        let block = Block::heap();
        for worker in ["worker0", "worker1"] {
            let mut drops = block.scope(worker).scope("udp").drops();
            drops.count_many(TestDrop::Short, 2);
            drops.count_many(TestDrop::Long, 30);
        }
        assert_eq!(lines(&block.snapshot()), ["dropped: udp/drop/long 60, udp/drop/short 4"]);
        let mut drops = block.scope("worker0").scope("ipv4").drops();
        drops.count_many(TestDrop::Late, 5);
        drops.count(TestDrop::Lost);
        block.scope("worker1").scope("udp").counter("partial_checksums", Unit::Datagrams).add(7);
        let lines = lines(&block.snapshot());
        assert_eq!(lines[0], "dropped: udp/drop/long 60, ipv4/drop/late 5, udp/drop/short 4, others 1");
        assert!(lines[1].starts_with("accepted: 7 packets"), "{lines:?}");
    }
}
