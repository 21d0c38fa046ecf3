//! Our IGMP against the Linux bridge: a switch with snooping and a querier, whose membership table
//! is read back. A port keeps getting a group only while a host behind it answers the queries. So
//! if frames arrive for longer than the membership interval, our host does.
//!
//! ```text
//!                ┌──────── bridge `br0`, snooping ────────┐
//!   near: us ════╡ p0        p1                 p2        ╞════ bystander
//!                └──────────╥──────────────────╥──────────┘ p3
//!                sender: kernel, 10.9.0.2    router
//! ```
//! The bridge itself sends queries of version 2 or 3. It cannot send version 1, so a second host of
//! ours, the router, sends those.
#![allow(clippy::unwrap_used)] // a panic here is a failed test

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use wirepath::device::Offload;
use wirepath::mem::Mbuf;
use wirepath::pipeline::HostStackConfig;
use wirepath::proto::{ConsumerId, Group};
use wirepath_tests::frames::general_query_v1;
use wirepath_tests::live::{FAR, Live, LiveConfig, NEAR, OURS, THEIRS, network, wait_until};
use wirepath_tests::netns::Namespace;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 9, 1, 1);
const PORT: u16 = 9_000;
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 9);
/// The bridge forgets a port that has not reported for so long: two and a half query intervals; by
/// version 1 a little more than the 10 s that an answer may take (RFC 2236 4).
const MEMBERSHIP_INTERVAL: Duration = Duration::from_millis(2_500);
const MEMBERSHIP_INTERVAL_V1: Duration = Duration::from_millis(10_500);

/// A switch with four ports.
struct Switch {
    bridge: Namespace,
    near: Namespace,
    sender: Namespace,
    bystander: Namespace,
    router: Namespace,
}

impl Switch {
    /// A switch that sends queries of `version` once a second, or leaves them to another querier.
    fn new(test: &str, version: Option<u8>) -> Option<Self> {
        let namespaces: Result<Vec<_>, _> = (0..5).map(|_| Namespace::new()).collect();
        let mut namespaces = match namespaces {
            Ok(namespaces) => namespaces.into_iter(),
            Err(why) => {
                println!("SKIPPED {test}: {why}; run as root");
                return None;
            }
        };
        let mut next = || namespaces.next().unwrap();
        let switch = Self { bridge: next(), near: next(), sender: next(), bystander: next(), router: next() };
        if let Err(why) = switch.build(version) {
            println!("SKIPPED {test}: no bridge with snooping here: {why}");
            return None;
        }
        Some(switch)
    }

    fn build(&self, version: Option<u8>) -> Result<(), String> {
        let querier = if version.is_some() { "1" } else { "0" };
        let membership = version.map_or(MEMBERSHIP_INTERVAL_V1, |_| MEMBERSHIP_INTERVAL);
        let membership = (membership.as_millis() / 10).to_string();
        let version = version.unwrap_or(2).to_string();
        // Hundredths of seconds.
        let snooping = [
            ["mcast_snooping", "1"],
            ["mcast_igmp_version", &version],
            ["mcast_query_interval", "100"],
            ["mcast_query_response_interval", "50"],
            ["mcast_membership_interval", &membership],
            ["mcast_last_member_interval", "25"],
            ["mcast_startup_query_interval", "100"],
        ];
        let arguments: Vec<_> = ["link", "add", "br0", "type", "bridge"].into_iter().chain(snooping.concat()).collect();
        self.bridge.ip(&arguments)?;
        for (idx, (namespace, name)) in
            [(&self.near, NEAR), (&self.sender, FAR), (&self.bystander, NEAR), (&self.router, NEAR)]
                .into_iter()
                .enumerate()
        {
            let port = format!("p{idx}");
            namespace.veth(name, &self.bridge, &port)?;
            self.bridge.ip(&["link", "set", &port, "master", "br0"])?;
        }
        self.bridge.ip(&["link", "set", "br0", "up"])?;
        // Apart, because it floods for one response interval from then on, and at first that would
        // be the default of 10 s.
        self.bridge.ip(&["link", "set", "br0", "type", "bridge", "mcast_querier", querier])?;
        self.sender.ip(&["addr", "add", &format!("{THEIRS}/24"), "dev", FAR])?;
        self.sender.ip(&["addr", "add", "10.9.0.3/24", "dev", FAR])?;
        self.sender.ip(&["route", "add", "default", "dev", FAR])?;
        Ok(())
    }

    /// A socket of the sender's kernel.
    fn socket(&self, address: Ipv4Addr) -> UdpSocket {
        self.sender.run(|| UdpSocket::bind((address, 0))).unwrap()
    }

    /// The switch's membership table.
    fn table(&self) -> String {
        let shown = self.bridge.command("bridge", &["-d", "mdb", "show"]).unwrap();
        String::from_utf8_lossy(&shown.stdout).into_owned()
    }

    /// Our port's line on the group.
    fn entry(&self) -> Option<String> {
        let group = format!("grp {GROUP} ");
        self.table().lines().find(|line| line.contains("port p0 ") && line.contains(&group)).map(str::to_owned)
    }

    /// Frames that the switch has sent to the bystander.
    fn bystander_frames(&self) -> u64 {
        let path = "/sys/class/net/p2/statistics/tx_packets";
        let shown = self.bridge.command("cat", &[path]).unwrap();
        String::from_utf8_lossy(&shown.stdout).trim().parse().unwrap()
    }

    /// Waits until the switch no longer floods groups without members. After the first query it
    /// floods for as long as members may take to answer.
    fn wait_for_snooping(&self) {
        let socket = self.socket(THEIRS);
        let unwanted: Ipv4Addr = [239, 9, 9, 9].into();
        wait_until("the switch keeps unwanted groups to itself", || {
            let before = self.bystander_frames();
            (0..20).for_each(|_| assert!(socket.send_to(b"unwanted", (unwanted, PORT)).is_ok()));
            self.bystander_frames() < before + 10
        });
    }

    /// A host that speaks IGMP, on the first port.
    fn host(&self) -> Live {
        Live::start(&self.near, &LiveConfig::own(NEAR)).unwrap()
    }

    /// Joins, and waits until the switch has received the report.
    fn join(&self, live: &Live) {
        live.join(GROUP, PORT);
        wait_until("the switch knows our membership", || self.entry().is_some());
    }
}

/// Sends numbered datagrams for `time`, one each 10 ms, and says how many.
fn send_for(time: Duration, socket: &UdpSocket) -> u64 {
    let start = Instant::now();
    let mut count = 0u64;
    while start.elapsed() < time {
        socket.send_to(&count.to_be_bytes(), (GROUP, PORT)).unwrap();
        count += 1;
        sleep(Duration::from_millis(10));
    }
    count
}

/// Checks that all frames sent within `time` arrive, in order, and at no other port.
fn assert_membership_lasts(switch: &Switch, live: &Live, time: Duration) {
    switch.wait_for_snooping();
    let before = switch.bystander_frames();
    let sent = send_for(time, &switch.socket(THEIRS));
    let received = live.receive(sent as usize);
    let numbers: Vec<_> = received.iter().map(|datagram| datagram.payload.clone()).collect();
    let expected: Vec<_> = (0..sent).map(|number| number.to_be_bytes().to_vec()).collect();
    assert_eq!(numbers, expected);
    // Queries and reports pass there, and no data.
    let bothered = switch.bystander_frames() - before;
    assert!(bothered < sent / 4, "the switch floods: {bothered} of {sent} frames went to a port without members");
}

/// Leaves, and waits until the switch has forgotten us.
fn assert_leave_is_heard(switch: &Switch, live: Live) {
    live.with(|_, cx| cx.sockets.close(ConsumerId(0)));
    wait_until("the switch has forgotten us", || switch.entry().is_none());
    live.stop();
}

#[test]
fn version_3_membership_survives_a_snooping_switch_for_longer_than_its_interval() {
    let test = "version_3_membership_survives_a_snooping_switch_for_longer_than_its_interval";
    let Some(switch) = Switch::new(test, Some(3)) else { return };
    let live = switch.host();
    switch.join(&live);
    let entry = switch.entry().unwrap();
    assert!(entry.contains("filter_mode exclude"), "{entry}");
    assert_membership_lasts(&switch, &live, 3 * MEMBERSHIP_INTERVAL);
    assert_eq!(live.count("igmp/version"), 3);
    assert_leave_is_heard(&switch, live);
}

#[test]
fn version_2_membership_survives_a_snooping_switch_for_longer_than_its_interval() {
    let test = "version_2_membership_survives_a_snooping_switch_for_longer_than_its_interval";
    let Some(switch) = Switch::new(test, Some(2)) else { return };
    let live = switch.host();
    live.until("a query of version 2 was heard", |live| live.count("igmp/version") == 2);
    switch.join(&live);
    assert_membership_lasts(&switch, &live, 3 * MEMBERSHIP_INTERVAL);
    assert_eq!(live.count("igmp/version"), 2);
    assert_leave_is_heard(&switch, live);
}

#[test]
fn version_1_membership_survives_a_snooping_switch_for_longer_than_its_interval() {
    let test = "version_1_membership_survives_a_snooping_switch_for_longer_than_its_interval";
    let Some(switch) = Switch::new(test, None) else { return };
    let router = LiveConfig { addresses: vec![network(ROUTER)], ..LiveConfig::own(NEAR) };
    let router = Live::start(&switch.router, &router).unwrap();
    let _asking = Asking::start(router);
    let live = switch.host();
    live.until("a query of version 1 was heard", |live| live.count("igmp/version") == 1);
    switch.join(&live);
    assert_membership_lasts(&switch, &live, MEMBERSHIP_INTERVAL_V1 + MEMBERSHIP_INTERVAL);
    assert_eq!(live.count("igmp/version"), 1);
    // Version 1 has no leave: the switch forgets us when the interval is over.
    assert_leave_is_heard(&switch, live);
}

/// Asks by version 1 twice a second, until it is dropped.
struct Asking {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Asking {
    fn start(router: Live) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopping.load(Ordering::Relaxed) {
                router.with(|_, cx| {
                    let query = cx.pool.alloc_copy(&general_query_v1(ROUTER)).unwrap();
                    cx.tx.post(query, Offload::NONE).map_err(Mbuf::free).unwrap();
                });
                sleep(Duration::from_millis(500));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of it was printed when it happened.
            let _ = thread.join();
        }
    }
}

#[test]
fn switch_delivers_only_the_sources_that_were_asked_for() {
    let test = "switch_delivers_only_the_sources_that_were_asked_for";
    let Some(switch) = Switch::new(test, Some(3)) else { return };
    let live = switch.host();
    live.with(|_, cx| cx.sockets.join_source(ConsumerId(0), Group::new(GROUP, PORT), THEIRS)).unwrap();
    wait_until("the switch knows our source", || {
        switch.entry().is_some_and(|entry| entry.contains("filter_mode include") && entry.contains(&THEIRS.to_string()))
    });
    switch.wait_for_snooping();
    let (wanted, other) = (switch.socket(THEIRS), switch.socket([10, 9, 0, 3].into()));
    let before = live.count("udp/datagrams");
    for _ in 0..50 {
        wanted.send_to(b"wanted", (GROUP, PORT)).unwrap();
        other.send_to(b"other", (GROUP, PORT)).unwrap();
    }
    let received = live.receive(50);
    assert!(received.iter().all(|datagram| *datagram.source.ip() == THEIRS));
    assert_eq!(live.count("udp/datagrams") - before, 50);
    // The switch keeps the other source away; ours would have refused it too.
    assert_eq!(live.count("udp/drop/source_filtered"), 0);
    live.stop();
}

#[test]
fn switch_cuts_off_a_host_that_never_answers_its_queries() {
    let test = "switch_cuts_off_a_host_that_never_answers_its_queries";
    let Some(switch) = Switch::new(test, Some(3)) else { return };
    let own = LiveConfig::own(NEAR);
    let mute = LiveConfig { stack: HostStackConfig { igmp: None, ..own.stack }, ..own };
    let live = Live::start(&switch.near, &mute).unwrap();
    live.join(GROUP, PORT);
    // The first queries have been sent, and no host has answered them.
    live.until_count("igmp/drop/not_handled", 2);
    switch.wait_for_snooping();
    let socket = switch.socket(THEIRS);
    let before = live.count("udp/datagrams");
    for _ in 0..20 {
        socket.send_to(b"tick", (GROUP, PORT)).unwrap();
    }
    // Frames sent after it on the same wire have arrived, so it would have arrived too.
    live.bind(PORT + 1);
    socket.send_to(b"mark", (OURS, PORT + 1)).unwrap();
    let received = live.receive(1);
    assert_eq!((received[0].payload.as_slice(), live.count("udp/datagrams") - before), (&b"mark"[..], 1));
    live.stop();
}

#[test]
fn membership_is_told_again_when_the_link_comes_back() {
    let test = "membership_is_told_again_when_the_link_comes_back";
    let Some(switch) = Switch::new(test, Some(3)) else { return };
    let config = LiveConfig { is_the_kernels: true, ..LiveConfig::own(NEAR) };
    let live = Live::start(&switch.near, &config).unwrap();
    switch.join(&live);
    switch.bridge.ip(&["link", "set", "p0", "down"]).unwrap();
    wait_until("the switch has forgotten us", || switch.entry().is_none());
    switch.bridge.ip(&["link", "set", "p0", "up"]).unwrap();
    wait_until("the switch knows us again", || switch.entry().is_some());
    live.stop();
}
