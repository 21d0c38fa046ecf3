//! The fate of each frame and buffer of a live host.

use std::fmt::Write as _;

use wirepath::counters::{Sample, Snapshot};

/// The worker thread's report at its end.
#[derive(Default)]
pub(super) struct Account {
    /// Buffers out, and those that the fill ring has.
    pub(super) in_use: usize,
    pub(super) lent: usize,
    /// Frames that wait in the pipeline, and those that the kernel has not sent yet.
    pub(super) kept: usize,
    pub(super) in_flight: usize,
    pub(super) unnamed: u64,
    pub(super) deliveries: u64,
}

impl Account {
    /// received = delivered + named drops + kept, and no buffer is astray.
    pub(super) fn check(&self, snapshot: &Snapshot) {
        let named = |scope: &str| drops(snapshot, scope);
        let count = |name: &str| count(snapshot, name);
        let frames = count("ethernet/frames");
        assert_eq!(count("device/rx/frames"), frames, "a frame was lost before the pipeline\n{}", table(snapshot));
        let passed = count("ipv4/packets") + count("arp/packets");
        assert_eq!(frames, passed + named("ethernet"), "a frame ended without a name\n{}", table(snapshot));
        let ended = named("ipv4") + count("ipv4/fragments_merged") + count("ipv4/fragments_held");
        let udp = count("udp/datagrams") + named("udp");
        let igmp = snapshot.count("host/igmp/messages").unwrap_or(0) + named("igmp");
        let others = count("icmp/messages") + igmp + segments(snapshot);
        assert_eq!(count("ipv4/packets"), ended + udp + others, "a packet ended without a name\n{}", table(snapshot));
        assert_eq!(self.deliveries, count("udp/datagrams") + count("udp/copies"));
        assert_eq!(self.unnamed, 0, "an mbuf ended without a reason");
        let held = self.lent + self.kept + self.in_flight;
        assert_eq!(self.in_use, held, "buffers went astray\n{}", table(snapshot));
    }
}

/// Segments that the TCP node has looked at. The machine's drops are of segments that passed.
fn segments(snapshot: &Snapshot) -> u64 {
    let checked = ["too_short", "bad_header", "bad_checksum", "not_unicast"];
    match snapshot.count("host/tcp/segments_in") {
        Some(passed) => passed + checked.map(|name| count(snapshot, &format!("tcp/drop/{name}"))).iter().sum::<u64>(),
        None => drops(snapshot, "tcp"),
    }
}

/// The drops of a part of the host under all names.
pub(super) fn drops(snapshot: &Snapshot, scope: &str) -> u64 {
    let prefix = format!("host/{scope}/");
    let of_scope = |sample: &&Sample| sample.class.is_drop() && sample.name.starts_with(&prefix);
    snapshot.samples.iter().filter(of_scope).filter_map(|sample| snapshot.count(&sample.name)).sum()
}

/// A counter of the host, which has to be there.
pub(super) fn count(snapshot: &Snapshot, name: &str) -> u64 {
    let found = snapshot.count(&format!("host/{name}"));
    found.unwrap_or_else(|| panic!("no counter {name} among these:\n{}", table(snapshot)))
}

/// All counters that are not zero, for the message of a failed check.
pub fn table(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for sample in &snapshot.samples {
        if let Some(value) = snapshot.count(&sample.name).filter(|value| *value > 0) {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{value:>10} {}", sample.name);
        }
    }
    text
}
