//! `feed-handler run` against the Linux kernel's own sockets, compared message by message: like
//! `make run`, but shorter; and its errors for an interface that it cannot use.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use exchange_sim::{Feed, Settings, Truth, write_truth};
use feed_handler::args::{Cli, Command};
use feed_handler::report::Summary;
use feed_handler::{Event, RunPlan};
use market::truth::Probability;
use tempfile::TempDir;
use wirepath::worker::StopFlag;
use wirepath_tests::frames::general_query_v1;
use wirepath_tests::netns::Namespace;
use wirepath_tests::nic;
use wirepath_tests::packet::PacketSocket;

const EXCHANGE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const OWN: &str = "owner = \"dedicated\"\n[host]\naddresses = [\"10.77.0.2/24\"]\n";
const SHARED: &str = "igmp = \"kernel\"\n";
/// Frames of a ring that holds the whole day, so that a receiver that gets no processor time on a
/// busy machine loses none.
const RX_RING: usize = 8192;

/// An exchange in `far`, and `near` with `veth0`, where the feed handler runs. Says why where there
/// is no such thing.
struct Wire {
    near: Namespace,
    far: Namespace,
    directory: TempDir,
}

fn wire(test: &str) -> Option<Wire> {
    match Namespace::new() {
        Ok(near) => {
            let far = Namespace::new().unwrap();
            near.veth("veth0", &far, "veth1").unwrap();
            far.ip(&["address", "add", "10.77.0.1/24", "dev", "veth1"]).unwrap();
            Some(Wire { near, far, directory: TempDir::new().unwrap() })
        }
        Err(why) => {
            println!("SKIPPED {test}: {why}; run as root");
            None
        }
    }
}

fn settings() -> Settings {
    let mut settings = Settings { messages: 6_000, symbols: 20, ..Settings::default() };
    for line in &mut settings.lines {
        line.loss = Probability::try_from(0.01).unwrap();
        line.reorder = Probability::try_from(0.01).unwrap();
        line.duplicate = Probability::try_from(0.01).unwrap();
    }
    settings
}

/// The plan of a configuration, as the command line makes it.
fn planned(config: &Path, flags: &[&str]) -> RunPlan {
    let arguments = ["feed-handler", "run", config.to_str().unwrap(), "--cpu", "any"];
    match Cli::parse_from(arguments.iter().chain(flags)).command {
        Command::Run(args) => args.plan().unwrap(),
        Command::Replay(_) => panic!("a live run was asked for"),
    }
}

impl Wire {
    /// The plan of `feed-handler run`, as the command line makes it.
    fn plan(&self, port: &str, flags: &[&str]) -> RunPlan {
        let config = self.directory.path().join("feed.toml");
        let lines =
            settings().lines.map(|line| format!("{{ group = \"{}\", port = {} }}", line.group, settings().port));
        let channel = format!("[[channels]]\nname = \"c\"\nformat = \"mold-itch50\"\nlines = [{}]\n", lines.join(", "));
        // A sender on a busy machine may be away between A and B for longer than lines of one site
        // ever differ.
        let books = "[arbitration]\nwindow_us = 2000000\n[books]\norders = 65536\nlevels = 65536\ninstruments = 64\n";
        std::fs::write(&config, format!("{books}[port]\ninterface = \"veth0\"\nrx_ring = {RX_RING}\n{port}{channel}"))
            .unwrap();
        planned(&config, flags)
    }

    /// Runs `plan` until `meanwhile` is over, which gets the number of frames received up to the
    /// last second.
    fn run(&self, plan: &RunPlan, meanwhile: impl FnOnce(&AtomicU64) + Send) -> Result<Summary, String> {
        self.listen(plan, meanwhile).map(|(summary, _)| summary)
    }

    /// Runs `plan`, and removes its interface once it receives: the run ends by itself.
    fn lose(&self, plan: &RunPlan) -> Summary {
        let (stop, mut looks) = (StopFlag::new(), 0);
        let summary = self.near.run(|| {
            feed_handler::run(plan, &stop, |event| match event {
                Event::Ready(_) => _ = self.near.ip(&["link", "delete", "veth0"]).unwrap(),
                // The limit is for a loss that is never noticed.
                Event::Progress(_) if looks == 60 => stop.stop(),
                Event::Progress(_) => looks += 1,
                _ => {}
            })
        });
        summary.unwrap()
    }

    /// The same, with the printed notices.
    fn listen(
        &self,
        plan: &RunPlan,
        meanwhile: impl FnOnce(&AtomicU64) + Send,
    ) -> Result<(Summary, Vec<String>), String> {
        let (stop, received) = (StopFlag::new(), AtomicU64::new(0));
        let (ready, is_ready) = mpsc::channel();
        thread::scope(|scope| {
            let (stop, received) = (&stop, &received);
            scope.spawn(move || {
                if is_ready.recv().is_ok() {
                    meanwhile(received);
                    // Frames that are still in a ring are polled within this time.
                    thread::sleep(Duration::from_millis(200));
                }
                stop.stop();
            });
            // Runs the sender too, so that no one waits for it if the receiver does not get ready.
            self.near.run(move || {
                let mut notices = Vec::new();
                let summary = feed_handler::run(plan, stop, |event| match event {
                    Event::Ready(_) => ready.send(()).unwrap(),
                    Event::Notice(sentence) => notices.push(sentence),
                    Event::Progress(progress) => received.store(progress.packets, Ordering::Relaxed),
                    _ => {}
                })?;
                Ok::<_, feed_handler::Error>((summary, notices))
            })
        })
        .map_err(|error| error.to_string())
    }

    /// Sends a day through ordinary sockets, faster than it would happen; the truth about it, and
    /// the frames that it took.
    fn publish(&self) -> (Truth, u64) {
        self.far.run(|| {
            let settings = settings();
            let sockets = settings.lines.each_ref().map(|line| {
                let socket = UdpSocket::bind((EXCHANGE, 0)).unwrap();
                socket.connect((line.group.address(), settings.port)).unwrap();
                socket
            });
            let (mut feed, mut sent) = (Feed::new(&settings).unwrap(), 0);
            for departure in &mut feed {
                sockets[departure.line_idx].send(&departure.packet.payload).unwrap();
                sent += 1;
                // Pauses now and then, so that the veth delivers the frames that it queues.
                if sent % 64 == 0 {
                    thread::sleep(Duration::from_millis(2));
                }
            }
            (feed.finish(), sent)
        })
    }

    /// Runs against a published day, and compares.
    fn compare(&self, port: &str) -> Summary {
        let truth_file = self.directory.path().join("truth.json");
        let plan = self.plan(port, &["--truth", truth_file.to_str().unwrap()]);
        let day = |received: &AtomicU64| {
            let (truth, sent) = self.publish();
            write_truth(&truth, &truth_file).unwrap();
            wait_for(sent, received);
        };
        self.listen(&plan, day).unwrap().0
    }
}

/// Waits until `sent` frames were received, or until it is clear that they never will be; then the
/// comparison shows the missing ones.
fn wait_for(sent: u64, received: &AtomicU64) {
    for _ in 0..600 {
        if received.load(Ordering::Relaxed) >= sent {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn day_on_kernel_sockets_is_received_to_the_message() {
    let Some(wire) = wire("day_on_kernel_sockets_is_received_to_the_message") else { return };
    let summary = wire.compare(OWN);
    assert_eq!(summary.failures, Vec::<String>::new());
    assert!(summary.accounted && summary.truth.unwrap().agrees);
    assert!(summary.duplicates > 4_500, "both lines came: {}", summary.duplicates);
    assert!(
        !wire.near.ip(&["link", "show", "dev", "veth0"]).unwrap().contains("xdp"),
        "nothing is left on the interface"
    );
}

#[test]
fn day_is_received_on_a_port_that_is_shared() {
    let Some(wire) = wire("day_is_received_on_a_port_that_is_shared") else { return };
    wire.near.ip(&["address", "add", "10.77.0.2/24", "dev", "veth0"]).unwrap();
    let summary = wire.compare(SHARED);
    assert_eq!(summary.failures, Vec::<String>::new());
    assert!(summary.accounted && summary.truth.unwrap().agrees);
}

/// Where the process that publishes and the one that receives on a software ConnectX meet.
const MEETING: &str = "WIREPATH_TEST_MEETING";

#[test]
fn day_is_received_on_the_queues_of_a_connectx() {
    let test = "day_is_received_on_the_queues_of_a_connectx";
    if let Some(directory) = std::env::var_os(MEETING) {
        return receive_until_told(Path::new(&directory));
    }
    let Some(wire) = wire(test) else { return };
    let mut receiver = match softhca::testing::command(&["--lossy", "--wire", "veth0"]) {
        Ok(command) => command,
        Err(why) => return println!("SKIPPED {test}: {why}"),
    };
    let meeting = wire.directory.path();
    wire.plan(&format!("device = \"mlx5\"\n{OWN}"), &[]);
    receiver.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]).env(MEETING, meeting);
    let mut receiver = wire.near.run(|| receiver.spawn()).unwrap();
    while !meeting.join("ready").exists() {
        assert_eq!(receiver.try_wait().unwrap(), None, "it ended before it received");
        thread::sleep(Duration::from_millis(10));
    }
    let (truth, sent) = wire.publish();
    write_truth(&truth, &meeting.join("truth.json")).unwrap();
    std::fs::write(meeting.join("sending"), sent.to_string()).unwrap();
    std::fs::rename(meeting.join("sending"), meeting.join("sent")).unwrap();
    assert!(receiver.wait().unwrap().success(), "see above");
}

/// The receiving process: reports `ready`, and compares its messages with the truth once it has as
/// many as the other process has `sent`.
fn receive_until_told(meeting: &Path) {
    let plan = planned(&meeting.join("feed.toml"), &["--truth", meeting.join("truth.json").to_str().unwrap()]);
    let (stop, mut looks) = (StopFlag::new(), 0);
    let summary = feed_handler::run(&plan, &stop, |event| match event {
        Event::Ready(_) => std::fs::write(meeting.join("ready"), "").unwrap(),
        Event::Progress(progress) => {
            let sent = std::fs::read_to_string(meeting.join("sent")).ok().and_then(|sent| sent.parse().ok());
            looks += 1;
            // The limit is for a day that never arrives in full; then the comparison shows the
            // missing messages.
            if sent.is_some_and(|sent: u64| progress.packets >= sent) || looks == 120 {
                stop.stop();
            }
        }
        _ => {}
    });
    let summary = summary.unwrap();
    assert_eq!(summary.failures, Vec::<String>::new());
    assert!(summary.accounted && summary.truth.unwrap().agrees);
}

#[test]
fn hugepages_that_are_not_there_are_told_and_the_connectx_is_given_back() {
    let test = "hugepages_that_are_not_there_are_told_and_the_connectx_is_given_back";
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let reserved = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Total:")?.trim().parse().ok());
    let reserved: usize = reserved.unwrap_or(0);
    if reserved > 256 {
        return println!("SKIPPED {test}: {reserved} are there, and a pool beyond them takes too much memory");
    }
    if !softhca::testing::is_inside(test, &["--strict", "--netns"]) {
        return;
    }
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("feed.toml");
    let line = format!("{{ group = \"{}\", port = 9000 }}", settings().lines[0].group);
    let channel = format!("[[channels]]\nname = \"c\"\nformat = \"mold-itch50\"\nlines = [{line}]\n");
    // 2048 buffers of 1.5 KiB and more take more than a page of 2 MiB: more pages than there are.
    let buffers = (reserved + 1) * 2048;
    let worker = format!("[worker]\nbuffers = {buffers}\nhugepages = \"require\"\n");
    let port = format!("[port]\ninterface = \"soft0\"\ndevice = \"mlx5\"\nrx_ring = 64\n{OWN}");
    std::fs::write(&config, format!("{port}{worker}{channel}")).unwrap();
    let refused = feed_handler::run(&planned(&config, &[]), &StopFlag::new(), |_| {});
    let said = refused.err().unwrap().to_string();
    let parts = ["hugepages are required and not there", "hugepage-setup apply"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    assert_eq!(nic::objects(), 0, "left behind after: {said}");
}

#[test]
fn feature_that_the_file_demands_and_the_firmware_lacks_is_told_and_nothing_starts() {
    let test = "feature_that_the_file_demands_and_the_firmware_lacks_is_told_and_nothing_starts";
    let options = ["--strict", "--netns", "--without", "cqe-compression", "--without", "striding-rq"];
    if !softhca::testing::is_inside(test, &options) {
        return;
    }
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("feed.toml");
    let line = format!("{{ group = \"{}\", port = 9000 }}", settings().lines[0].group);
    let channel = format!("[[channels]]\nname = \"c\"\nformat = \"mold-itch50\"\nlines = [{line}]\n");
    for (demand, feature) in [
        ("compression = \"required\"", "compressed completions"),
        ("striding = \"required\"", "striding receive queues"),
    ] {
        let port = format!("[port]\ninterface = \"soft0\"\ndevice = \"mlx5\"\nrx_ring = 64\n{demand}\n{OWN}");
        std::fs::write(&config, format!("{port}{channel}")).unwrap();
        let refused = feed_handler::run(&planned(&config, &[]), &StopFlag::new(), |_| {});
        let said = refused.err().unwrap().to_string();
        assert!(said.contains(feature) && said.contains("mlx5_0") && !said.contains('\n'), "{said}");
        assert_eq!(nic::objects(), 0, "left behind after: {said}");
    }
}

#[test]
fn what_comes_to_our_host_beside_the_feed_is_accounted_for() {
    let Some(wire) = wire("what_comes_to_our_host_beside_the_feed_is_accounted_for") else { return };
    let beside = |received: &AtomicU64| {
        // The kernel requests us by ARP, then sends to a port of ours, and to a port of a group
        // that no consumer joined.
        let group = settings().lines[0].group.address();
        let socket = wire.far.run(|| UdpSocket::bind((EXCHANGE, 0))).unwrap();
        socket.send_to(b"to us", (Ipv4Addr::new(10, 77, 0, 2), 9)).unwrap();
        socket.send_to(b"to many", (group, 9)).unwrap();
        wait_for(3, received);
    };
    let summary = wire.run(&wire.plan(OWN, &[]), beside).unwrap();
    let account = summary.packet_account;
    assert!(account.holds(), "{account:?} {:?} {:?}", summary.drops, summary.not_sent);
    assert_eq!((summary.drops["udp.no_consumer"], summary.not_sent["egress.icmp_errors.not_unicast"]), (2, 1));
    assert!(account.answered >= 1, "the question by ARP");
}

#[test]
fn pings_and_a_query_that_we_answer_are_accounted_for() {
    let Some(wire) = wire("pings_and_a_query_that_we_answer_are_accounted_for") else { return };
    if !wire.far.command("ping", &["-V"]).is_ok_and(|version| version.status.success()) {
        println!("SKIPPED pings_and_a_query_that_we_answer_are_accounted_for: no ping (apt-get install iputils-ping)");
        return;
    }
    let beside = |received: &AtomicU64| {
        let ping = wire.far.command("ping", &["-c", "3", "-i", "0.05", "-W", "2", "10.77.0.2"]).unwrap();
        assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stdout));
        let link = wire.far.run(|| PacketSocket::open("veth1")).unwrap();
        link.send(&general_query_v1(EXCHANGE)).unwrap();
        // A damaged one has a name.
        let mut damaged = general_query_v1(EXCHANGE);
        *damaged.last_mut().unwrap() ^= 1;
        link.send(&damaged).unwrap();
        // A question by ARP, three pings, two queries.
        wait_for(6, received);
    };
    let summary = wire.run(&wire.plan(OWN, &[]), beside).unwrap();
    let account = summary.packet_account;
    assert_eq!(summary.failures, Vec::<String>::new(), "{:?} {:?}", summary.drops, summary.not_sent);
    assert_eq!(summary.drops["igmp.bad_checksum"], 1);
    assert!(account.holds() && account.answered >= 5, "ARP, three pings, a query: {account:?}");
}

#[test]
fn interface_that_goes_is_a_failure_with_a_summary() {
    let Some(wire) = wire("interface_that_goes_is_a_failure_with_a_summary") else { return };
    for port in [OWN, SHARED] {
        let summary = wire.lose(&wire.plan(port, &[]));
        assert!(summary.accounted, "{:?}", summary.packet_account);
        assert_eq!(summary.failures.len(), 1, "{:?}", summary.failures);
        assert!(summary.failures[0].starts_with("veth0 is gone: "), "{:?}", summary.failures);
        wire.near.veth("veth0", &wire.far, "veth1").unwrap();
        wire.near.ip(&["address", "add", "10.77.0.2/24", "dev", "veth0"]).unwrap();
    }
}

#[test]
fn switch_is_told_at_the_end_that_groups_are_left() {
    let Some(wire) = wire("switch_is_told_at_the_end_that_groups_are_left") else { return };
    let link = wire.far.run(|| PacketSocket::open("veth1")).unwrap();
    let summary = wire.run(&wire.plan(OWN, &[]), |_| ()).unwrap();
    assert_eq!(summary.failures, Vec::<String>::new());
    let mut left = Vec::new();
    while let Ok(received) = link.receive(Duration::from_millis(100)) {
        // Behind Ethernet and an IPv4 header with router alert: a report of version 3 whose records
        // all change to an empty include list (RFC 3376 4.2.12), 8 bytes each.
        let Some(report) = received.frame.get(38..).filter(|message| message[0] == 0x22) else { continue };
        let leaves = report[8..].chunks_exact(8).filter(|record| record[..4] == [3, 0, 0, 0]);
        left.extend(leaves.map(|record| Ipv4Addr::new(record[4], record[5], record[6], record[7])));
    }
    for line in settings().lines {
        assert!(left.contains(&line.group.address()), "{} is not in {left:?}", line.group);
    }
}

#[test]
fn silence_has_a_likely_cause() {
    let Some(wire) = wire("silence_has_a_likely_cause") else { return };
    let says = |notices: &[String], what: &str| {
        assert!(notices.iter().any(|notice| notice.contains(what)), "{what:?} is not in {notices:?}");
    };
    let send = |port, received: &AtomicU64| {
        let group = settings().lines[0].group.address();
        wire.far.run(|| UdpSocket::bind((EXCHANGE, 0))).unwrap().send_to(b"to many", (group, port)).unwrap();
        wait_for(1, received);
    };
    wire.near.ip(&["link", "set", "veth0", "down"]).unwrap();
    let (summary, notices) = wire.listen(&wire.plan("igmp = \"off\"\ntimestamps = true\n", &[]), |_| ()).unwrap();
    assert_eq!(summary.failures, Vec::<String>::new());
    says(&notices, "veth0 is down or has no carrier");
    says(&notices, "veth0 has no IPv4 address");
    says(&notices, "nothing came for channel c: the senders are silent");
    assert!(
        !notices.iter().any(|notice| notice.contains("not asked for")),
        "arrival times were asked for: {notices:?}"
    );

    wire.near.ip(&["link", "set", "veth0", "up"]).unwrap();
    let (_, notices) = wire.listen(&wire.plan(OWN, &[]), |received| send(9, received)).unwrap();
    says(&notices, "nothing came for channel c: 1 datagrams went to ports");
    let (_, notices) = wire.listen(&wire.plan(OWN, &[]), |received| send(settings().port, received)).unwrap();
    says(&notices, "nothing came for channel c: 1 datagrams to our groups are not whole packets");
}

#[test]
fn channels_of_two_formats_are_received_by_one_worker() {
    let Some(wire) = wire("channels_of_two_formats_are_received_by_one_worker") else { return };
    let port = settings().port;
    let config = wire.directory.path().join("mixed.toml");
    let channel = |name, format, group| {
        let lines = format!("[{{ group = \"{group}\", port = {port} }}]");
        format!("[[channels]]\nname = \"{name}\"\nformat = \"{format}\"\nlines = {lines}\n")
    };
    let channels = channel("itch", "mold-itch50", "239.9.9.1") + &channel("top", "iex-tops", "239.9.9.2");
    std::fs::write(&config, format!("[port]\ninterface = \"veth0\"\n{OWN}{channels}")).unwrap();
    let mold = |seq: u8| {
        [&b"day1      "[..], &[0, 0, 0, 0, 0, 0, 0, seq], &[0, 1, 0, 12], b"S\0\0\0\0\0\0\0\0\0\x01O"].concat()
    };
    // IEX-TP: TOPS 1.6, channel 1, a system event of 10 bytes.
    let tops = |seq: u8| {
        let header = [&[1, 0, 3, 128, 1, 0, 0, 0, 7, 0, 0, 0, 12, 0, 1, 0][..], &[0; 8], &[seq], &[0; 15]].concat();
        [&header[..], &[10, 0], b"SO", &[1; 8]].concat()
    };
    let send = |received: &AtomicU64| {
        let socket = wire.far.run(|| UdpSocket::bind((EXCHANGE, 0))).unwrap();
        for seq in 1..=20 {
            socket.send_to(&mold(seq), ("239.9.9.1", port)).unwrap();
            socket.send_to(&tops(seq), ("239.9.9.2", port)).unwrap();
        }
        wait_for(40, received);
    };
    let (summary, _) = wire.listen(&planned(&config, &[]), send).unwrap();
    assert!(summary.accounted && summary.failures.is_empty(), "{:?}", summary.failures);
    let counts = summary.channels.iter().map(|channel| (channel.format, channel.messages, channel.gaps));
    assert_eq!(counts.collect::<Vec<_>>(), [("mold-itch50", 20, 0), ("iex-tops", 20, 0)]);
}

#[test]
fn run_ends_by_itself_after_its_seconds() {
    let Some(wire) = wire("run_ends_by_itself_after_its_seconds") else { return };
    let plan = wire.plan(OWN, &["--seconds", "0.3"]);
    let summary = wire.near.run(|| feed_handler::run(&plan, &StopFlag::new(), |_| ()));
    let summary = summary.unwrap();
    assert!(summary.seconds > 0.2 && summary.seconds < 5.0, "{} s", summary.seconds);
    assert!(!summary.received_anything() && summary.accounted);
}

#[test]
fn interface_that_cannot_be_had_is_one_sentence() {
    let Some(wire) = wire("interface_that_cannot_be_had_is_one_sentence") else { return };
    let refused = |port: &str, says: &str| {
        let sentence = wire.run(&wire.plan(port, &[]), |_| ()).err().unwrap();
        assert!(sentence.contains(says) && !sentence.contains('\n'), "{says:?} is not in {sentence:?}");
    };
    refused(&format!("copying = \"zero-copy\"\n{OWN}"), "cannot receive without a copy");
    refused("igmp = \"off\"\nqueues = [5]\n", "no queue 5");
    wire.near.ip(&["address", "add", "10.77.0.2/24", "dev", "veth0"]).unwrap();
    refused(OWN, "owner = shared");
    assert!(
        !wire.near.ip(&["link", "show", "dev", "veth0"]).unwrap().contains("xdp"),
        "nothing is left on the interface"
    );
}
