//! The report as tables for people, one for each process.
//!
//! ```text
//! redis-server  pid 4711  on eth1  up 2m 03s
//! FD  PROTO  STATE        LOCAL           PEER             WHOSE     WHY           RECV-Q    SEND-Q  RX PACKETS ...
//!  6  tcp    listen       0.0.0.0:6379    -                both      no rule fits  0/511     0       0
//!  8  tcp    established  192.0.2.1:6379  192.0.2.2:40112  wirepath  no rule fits  0/262144  0       12,345
//! turns 1,234,567 (12,345 with packets, 89 by the library's thread)  lock contended 0  sleeps 12
//! wake-ups 0  system calls: device 12,345  sleep 12
//! ```

use std::time::{Duration, SystemTime};

use sockets::Kind;
use sockets::listing::{Entry, Group, LentQueue, Process};
use wirepath::counters::printable;
use wirepath::proto::FilterMode;

use crate::stats::{grouped, uptime};

/// The heading of each column, and whether its values are numbers, which are aligned to the right.
const COLUMNS: [(&str, bool); 18] = [
    ("FD", true),
    ("PROTO", false),
    ("STATE", false),
    ("LOCAL", false),
    ("PEER", false),
    ("WHOSE", false),
    ("WHY", false),
    ("RECV-Q", true),
    ("SEND-Q", true),
    ("RX PACKETS", true),
    ("RX BYTES", true),
    ("TX PACKETS", true),
    ("TX BYTES", true),
    ("DROPS", true),
    ("RETRANS", true),
    ("EPOLL", true),
    ("ENGINE", true),
    ("IDLE", true),
];

/// All tables.
pub(super) fn render(processes: &[Process]) -> String {
    let now = SystemTime::now();
    let tables: Vec<String> = processes.iter().map(|process| table(process, now)).collect();
    tables.join("\n")
}

fn table(process: &Process, now: SystemTime) -> String {
    let header = &process.header;
    let interface = if header.interface.is_empty() { "none open" } else { &header.interface };
    let up = uptime(now.duration_since(process.started).unwrap_or_default());
    let mut text = format!("{}  pid {}  on {interface}  up {up}", header.program, process.pid);
    if let Some(user) = process.user {
        let claim = if process.is_credible { "" } else { ", by its own claim" };
        text.push_str(&format!("  of user {user}{claim}"));
    }
    // The content of another user's file is shown but never trusted.
    let mut text = printable(text).to_string() + "\n";
    let rows: Vec<[String; COLUMNS.len()]> = process.sockets.iter().map(|entry| row(entry, now)).collect();
    if rows.is_empty() {
        text.push_str("no sockets\n");
    } else {
        let widths: [usize; COLUMNS.len()] = core::array::from_fn(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([COLUMNS[column].0.len()]).max().unwrap_or(0)
        });
        text.push_str(&line(&COLUMNS.map(|(heading, _)| heading.to_owned()), &widths));
        for (row, entry) in rows.iter().zip(&process.sockets) {
            text.push_str(&line(row, &widths));
            text.push_str(&groups(entry));
        }
    }
    text.push_str(&engine(process));
    text
}

/// The engine's work; this line is missing where the engine never ran.
fn engine(process: &Process) -> String {
    let header = &process.header;
    let mut text = String::new();
    if header.turns > 0 {
        let counts = [header.turns, header.turns_with_packets, header.keeper_turns, header.contended];
        let [turns, found, keeper, contended] = counts.map(grouped);
        let [sleeps, wakeups] = [header.sleeps, header.wakeups].map(grouped);
        text = format!("turns {turns} ({found} with packets, {keeper} by the library's thread)  ");
        text.push_str(&format!("lock contended {contended}  sleeps {sleeps}  wake-ups {wakeups}"));
        let calls = header.system_calls.by_cause();
        let made: Vec<String> = calls
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(cause, count)| format!("{cause} {}", grouped(*count)))
            .collect();
        text.push_str(&if made.is_empty() { String::new() } else { format!("  system calls: {}", made.join("  ")) });
        text.push('\n');
    }
    if !header.lent.is_empty() {
        let named = |queue: &LentQueue| format!("send {:#x} receive {:#x}", queue.send, queue.receive);
        let queues: Vec<String> = header.lent.iter().map(named).collect();
        text.push_str(&format!("queues that a broker lends: {}\n", queues.join(", ")));
    }
    if header.dropped > 0 {
        text.push_str(&format!("frames that its queues have dropped: {}\n", grouped(header.dropped)));
    }
    if header.unlisted > 0 {
        text.push_str(&format!("{} sockets more, for which the list has no room\n", grouped(header.unlisted)));
    }
    text
}

fn line(cells: &[String; COLUMNS.len()], widths: &[usize; COLUMNS.len()]) -> String {
    let mut text = String::new();
    for ((cell, width), (_, is_number)) in cells.iter().zip(widths).zip(COLUMNS) {
        text.push_str(&if is_number { format!("{cell:>width$}  ") } else { format!("{cell:width$}  ") });
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn row(entry: &Entry<'_>, now: SystemTime) -> [String; COLUMNS.len()] {
    let is_known = |time: SystemTime| time != SystemTime::UNIX_EPOCH;
    let since = [entry.active, entry.opened].into_iter().find(|time| is_known(*time));
    let idle = since.map_or("-".to_owned(), |since| uptime(elapsed(since, now)));
    let limit = if entry.receive_limit == 0 { String::new() } else { format!("/{}", entry.receive_limit) };
    [
        entry.fd.to_string(),
        protocol(entry.kind).to_owned(),
        entry.state.as_str().to_owned(),
        entry.local.to_string(),
        entry.remote.map_or("-".to_owned(), |remote| remote.to_string()),
        entry.place.as_str().to_owned(),
        printable(&entry.why).to_string(),
        format!("{}{limit}", entry.receive_queue),
        entry.send_queue.to_string(),
        grouped(entry.rx_packets),
        grouped(entry.rx_bytes),
        grouped(entry.tx_packets),
        grouped(entry.tx_bytes),
        grouped(entry.drops),
        grouped(entry.retransmits),
        entry.epoll_sets.to_string(),
        entry.engine.map_or("-".to_owned(), |engine| engine.to_string()),
        idle,
    ]
}

/// The groups of a socket, below it.
fn groups(entry: &Entry<'_>) -> String {
    let sources = |group: &Group| match (group.mode, group.sources) {
        (FilterMode::Include, 1) => " of 1 source".to_owned(),
        (FilterMode::Include, count) => format!(" of {count} sources"),
        (FilterMode::Exclude, 0) => String::new(),
        (FilterMode::Exclude, 1) => " but for 1 source".to_owned(),
        (FilterMode::Exclude, count) => format!(" but for {count} sources"),
    };
    let named = entry.groups.iter().map(|group| format!("{}{}", group.address, sources(group)));
    let unnamed = (entry.groups_count as usize).saturating_sub(entry.groups.len());
    let unnamed = (unnamed > 0).then(|| format!("{unnamed} more"));
    let all: Vec<String> = named.chain(unnamed).collect();
    if all.is_empty() { String::new() } else { format!("    groups: {}\n", all.join(", ")) }
}

fn elapsed(since: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(since).unwrap_or_default()
}

/// The name of the protocol, as in /proc/net.
pub(super) fn protocol(kind: Kind) -> &'static str {
    match kind {
        Kind::Stream => "tcp",
        Kind::Datagram => "udp",
    }
}

#[cfg(test)]
mod tests {
    use sockets::listing::{Header, Place, State, SystemCalls};

    use super::*;

    fn process(sockets: Vec<Entry<'static>>) -> Process {
        let header = Header { program: "redis-server".into(), interface: "eth1".into(), ..Header::default() };
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        Process { pid: 4711, user: None, is_credible: true, started, header, sockets }
    }

    fn check(process: &Process, expected: &[&str]) {
        let text = table(process, SystemTime::UNIX_EPOCH + Duration::from_secs(1_123));
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn sockets_are_lines_below_their_program() {
        let listener = Entry {
            fd: 6,
            state: State::Listen,
            place: Place::Both,
            why: "no rule fits".into(),
            local: "0.0.0.0:6379".parse().unwrap(),
            receive_limit: 511,
            ..Entry::default()
        };
        let connection = Entry {
            fd: 12,
            state: State::Established,
            place: Place::Ours,
            local: "192.0.2.1:6379".parse().unwrap(),
            remote: Some("192.0.2.2:40112".parse().unwrap()),
            rx_packets: 12_345,
            rx_bytes: 1_234_567,
            retransmits: 2,
            epoll_sets: 1,
            engine: Some(3),
            active: SystemTime::UNIX_EPOCH + Duration::from_secs(1_120),
            ..listener.clone()
        };
        let mut process = process(vec![listener, connection]);
        process.header.turns = 1_234_567;
        (process.header.turns_with_packets, process.header.keeper_turns, process.header.contended) = (12_345, 89, 6);
        process.header.system_calls = SystemCalls { device: 12_345, ..SystemCalls::default() };
        check(
            &process,
            &[
                "redis-server  pid 4711  on eth1  up 2m 03s",
                "FD  PROTO  STATE        LOCAL           PEER             WHOSE     WHY           RECV-Q  SEND-Q  RX PACKETS   RX BYTES  TX PACKETS  TX BYTES  DROPS  RETRANS  EPOLL  ENGINE  IDLE",
                " 6  tcp    listen       0.0.0.0:6379    -                both      no rule fits   0/511       0           0          0           0         0      0        0      0       -     -",
                "12  tcp    established  192.0.2.1:6379  192.0.2.2:40112  wirepath  no rule fits   0/511       0      12,345  1,234,567           0         0      0        2      1       3    3s",
                "turns 1,234,567 (12,345 with packets, 89 by the library's thread)  lock contended 6  sleeps 0  wake-ups 0  system calls: device 12,345",
            ],
        );
    }

    #[test]
    fn queues_that_are_lent_and_frames_that_they_dropped_are_lines() {
        let mut process = process(vec![]);
        process.header.lent = vec![LentQueue { send: 0x2a, receive: 0x2b }, LentQueue { send: 0x2c, receive: 0x2d }];
        process.header.dropped = 1_234;
        check(
            &process,
            &[
                "redis-server  pid 4711  on eth1  up 2m 03s",
                "no sockets",
                "queues that a broker lends: send 0x2a receive 0x2b, send 0x2c receive 0x2d",
                "frames that its queues have dropped: 1,234",
            ],
        );
    }

    #[test]
    fn groups_are_a_line_below_their_socket() {
        let group = |last, mode, sources| Group { address: [239, 1, 1, last].into(), mode, sources };
        let listed =
            [group(1, FilterMode::Exclude, 0), group(2, FilterMode::Include, 1), group(3, FilterMode::Exclude, 2)];
        let entry = Entry { groups: listed.to_vec().into(), groups_count: 5, ..Entry::default() };
        let expected = "    groups: 239.1.1.1, 239.1.1.2 of 1 source, 239.1.1.3 but for 2 sources, 2 more\n";
        assert_eq!((groups(&entry).as_str(), groups(&Entry::default()).as_str()), (expected, ""));
        let process = process(vec![entry]);
        assert_eq!(table(&process, SystemTime::UNIX_EPOCH).lines().nth(3), expected.lines().next());
    }

    #[test]
    fn program_without_sockets_says_so() {
        check(&process(vec![]), &["redis-server  pid 4711  on eth1  up 2m 03s", "no sockets"]);
    }

    #[test]
    fn what_another_user_wrote_cannot_reach_the_terminal() {
        let mut process = process(vec![]);
        process.header = Header { program: "\u{202e}evil".into(), unlisted: 7, ..Header::default() };
        (process.user, process.is_credible) = (Some(1_000), false);
        check(
            &process,
            &[
                r"\u{202e}evil  pid 4711  on none open  up 2m 03s  of user 1000, by its own claim",
                "no sockets",
                "7 sockets more, for which the list has no room",
            ],
        );
    }
}
