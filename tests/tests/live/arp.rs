//! ARP against the Linux kernel: each side finds the other, even when one of them changes its MAC
//! address, does not reply, or takes the other's address.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use wirepath::pipeline::{EgressConfig, UdpFlow, UdpOptions, UdpSent};
use wirepath::proto::{HostEvent, NeighborConfig, Resolution};
use wirepath::wire::MacAddr;
use wirepath_tests::live::{FAR, Live, LiveConfig, NEAR, OURS, THEIRS, Wire, set, wait_until};

const MOVED: MacAddr = MacAddr([2, 0, 0, 0, 0, 77]);
/// Short enough to watch neighbors get old.
const QUICK: wirepath::time::Duration = wirepath::time::Duration::from_millis(50);

/// A wire with us on it, a socket of the kernel, and our flow to it.
struct Talk {
    wire: Wire,
    live: Live,
    socket: UdpSocket,
}

fn talk(test: &str) -> Option<Talk> {
    talk_with(test, LiveConfig::own(NEAR))
}

fn talk_with(test: &str, config: LiveConfig) -> Option<Talk> {
    let wire = Wire::new(test)?;
    let live = Live::start(&wire.near, &config).unwrap();
    live.bind(7_000);
    let socket = wire.socket((THEIRS, 7_001));
    Some(Talk { wire, live, socket })
}

fn quick() -> LiveConfig {
    let own = LiveConfig::own(NEAR);
    let neighbors = NeighborConfig { retry: QUICK, reachable: QUICK, ..NeighborConfig::default() };
    LiveConfig { egress: EgressConfig { neighbors: Some(neighbors), ..own.egress }, ..own }
}

impl Talk {
    fn flow(&self) -> UdpFlow {
        self.live.connect(7_002, (THEIRS, 7_001), UdpOptions::default())
    }

    fn we_send(&self, flow: &mut UdpFlow, text: &str) -> UdpSent {
        self.live.send(flow, text.as_bytes()).unwrap()
    }

    fn they_hear(&self) -> String {
        let mut bytes = [0; 100];
        let len = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    fn they_send(&self, text: &str) {
        self.socket.send_to(text.as_bytes(), (OURS, 7_000)).unwrap();
        assert_eq!(self.live.receive(1)[0].payload, text.as_bytes());
    }

    /// The kernel's neighbor entry for us.
    fn entry(&self) -> String {
        self.wire.far.ip(&["neigh", "show", "10.9.0.1"]).unwrap()
    }

    fn our_mac(&self) -> String {
        self.live.with(|_, cx| cx.host.mac().to_string())
    }

    /// Gives the kernel's end another MAC address.
    fn they_move(&self) {
        self.wire.far.ip(&["link", "set", FAR, "address", &MOVED.to_string()]).unwrap();
    }
}

#[test]
fn kernel_finds_us() {
    let Some(talk) = talk("kernel_finds_us") else { return };
    talk.they_send("where are you?");
    assert!(talk.entry().contains(&talk.our_mac()), "{}", talk.entry());
    assert!(talk.live.stop().count("host/arp/answered") >= Some(1));
}

#[test]
fn kernel_asks_again_whether_we_are_there_and_is_told() {
    let Some(talk) = talk("kernel_asks_again_whether_we_are_there_and_is_told") else { return };
    for (name, value) in [("base_reachable_time_ms", "50"), ("delay_first_probe_time", "0")] {
        set(&talk.wire.far, &format!("neigh/veth1/{name}"), value);
    }
    talk.live.until("the kernel has asked five times", |live| {
        talk.socket.send_to(b"?", (OURS, 7_000)).unwrap();
        live.count("arp/answered") >= 5
    });
    assert!(!talk.entry().contains("FAILED"), "{}", talk.entry());
    talk.live.stop();
}

#[test]
fn we_find_the_kernel_and_lose_nothing_meanwhile() {
    let Some(talk) = talk("we_find_the_kernel_and_lose_nothing_meanwhile") else { return };
    let mut flow = talk.flow();
    for number in 0..5 {
        talk.we_send(&mut flow, &number.to_string());
    }
    for number in 0..5 {
        assert_eq!(talk.they_hear(), number.to_string());
    }
    let counters = talk.live.stop();
    assert_eq!(counters.count("host/egress/neighbors/requests"), Some(1));
    assert_eq!(counters.count("host/arp/learned"), Some(1));
}

#[test]
fn configured_neighbors_need_no_question() {
    let Some(talk) = talk("configured_neighbors_need_no_question") else { return };
    let shown = talk.wire.far.ip(&["-br", "link", "show", FAR]).unwrap();
    let mac = shown.split_whitespace().find(|word| word.matches(':').count() == 5).unwrap().parse().unwrap();
    talk.live.apply(HostEvent::NeighborSet { address: THEIRS, mac });
    let ours = talk.our_mac();
    talk.wire.far.ip(&["neigh", "replace", "10.9.0.1", "lladdr", &ours, "nud", "permanent", "dev", FAR]).unwrap();
    let mut flow = talk.flow();
    assert_eq!(talk.we_send(&mut flow, "at once"), UdpSent::Posted);
    assert_eq!(talk.they_hear(), "at once");
    talk.they_send("at once");
    let counters = talk.live.stop();
    assert_eq!(counters.count("host/egress/neighbors/requests"), Some(0));
    assert_eq!(counters.count("host/arp/packets"), Some(0));
}

#[test]
fn configured_neighbor_is_not_moved_by_what_is_heard() {
    let Some(talk) = talk("configured_neighbor_is_not_moved_by_what_is_heard") else { return };
    talk.live.apply(HostEvent::NeighborSet { address: THEIRS, mac: MOVED });
    // Sends an ARP request for us, which shows its true MAC address.
    talk.they_send("here I am");
    let mut flow = talk.flow();
    talk.we_send(&mut flow, "not for you");
    talk.they_move();
    talk.we_send(&mut flow, "for you");
    assert_eq!(talk.they_hear(), "for you");
    talk.live.stop();
}

#[test]
fn neighbor_that_moved_is_followed_when_it_asks_for_us() {
    let Some(talk) = talk("neighbor_that_moved_is_followed_when_it_asks_for_us") else { return };
    let mut flow = talk.flow();
    talk.we_send(&mut flow, "before");
    assert_eq!(talk.they_hear(), "before");
    // The first answer stands for a second (`LOCK_TIME`).
    std::thread::sleep(Duration::from_millis(1_100));
    talk.they_move();
    // The kernel has dropped our entry with its old address, and sends a request.
    talk.they_send("I have moved");
    assert_eq!(talk.we_send(&mut flow, "after"), UdpSent::Posted);
    assert_eq!(talk.they_hear(), "after");
    talk.live.stop();
}

#[test]
fn neighbor_that_moved_is_followed_by_its_announcement() {
    let Some(talk) = talk("neighbor_that_moved_is_followed_by_its_announcement") else { return };
    set(&talk.wire.far, "conf/veth1/arp_notify", "1");
    let mut flow = talk.flow();
    talk.we_send(&mut flow, "before");
    assert_eq!(talk.they_hear(), "before");
    std::thread::sleep(Duration::from_millis(1_100));
    talk.they_move();
    talk.live.until("the neighbor is known by its new address", |live| {
        live.with(|_, cx| matches!(cx.host.resolve(THEIRS, cx.now), Resolution::Station { mac: MOVED, .. }))
    });
    talk.we_send(&mut flow, "after");
    assert_eq!(talk.they_hear(), "after");
    talk.live.stop();
}

#[test]
fn we_announce_ourselves_when_we_come_and_when_we_move() {
    let Some(talk) = talk("we_announce_ourselves_when_we_come_and_when_we_move") else { return };
    // The kernel's entry before we came.
    talk.wire
        .far
        .ip(&["neigh", "replace", "10.9.0.1", "lladdr", "02:00:00:00:00:01", "nud", "stale", "dev", FAR])
        .unwrap();
    wait_until("the kernel hears the second announcement", || talk.entry().contains(&talk.our_mac()));
    talk.live.apply(HostEvent::Mac(MOVED));
    wait_until("the kernel follows our new address", || talk.entry().contains(&MOVED.to_string()));
    talk.they_send("to the new address");
    let counters = talk.live.stop();
    assert!(counters.count("host/arp/announcements_sent") >= Some(3));
    assert_eq!(counters.count("host/arp/answered"), Some(0), "the kernel had no need to ask");
}

#[test]
fn somebody_with_our_address_is_noticed_and_told() {
    let Some(talk) = talk("somebody_with_our_address_is_noticed_and_told") else { return };
    talk.live.until_count("arp/announcements_sent", 2);
    let before = talk.live.count("arp/announcements_sent");
    talk.wire.far.ip(&["addr", "add", "10.9.0.1/24", "dev", FAR]).unwrap();
    // The kernel sends an ARP request, from this address.
    let thief = talk.wire.far.run(|| UdpSocket::bind((OURS, 0))).unwrap();
    thief.send_to(b"?", (Ipv4Addr::new(10, 9, 0, 99), 9)).unwrap();
    talk.live.until_count("arp/conflicts", 1);
    talk.live.until_count("arp/announcements_sent", before + 1);
    assert!(talk.live.stop().count("host/arp/drop/address_conflict") >= Some(1));
}

#[test]
fn datagrams_to_a_silent_neighbor_are_named_drops() {
    let Some(talk) = talk_with("datagrams_to_a_silent_neighbor_are_named_drops", quick()) else { return };
    let mut flow = talk.live.connect(7_002, (Ipv4Addr::new(10, 9, 0, 77), 7_001), UdpOptions::default());
    // Eight may wait for one neighbor, the newest ones. All are sent at one time: it is asked for
    // three times only.
    let sent = talk.live.with(move |_, cx| [(); 10].map(|()| flow.send(b"anybody?", cx)));
    assert_eq!(sent, [Ok(UdpSent::Waiting); 10]);
    talk.live.until_count("egress/neighbors/drop/unreachable", 8);
    let counters = talk.live.stop();
    assert_eq!(counters.count("host/egress/neighbors/drop/superseded"), Some(2));
    assert_eq!(counters.count("host/egress/neighbors/requests"), Some(3));
}

#[test]
fn neighbor_is_checked_as_it_gets_old_and_asked_for_anew_when_it_fell_silent() {
    let test = "neighbor_is_checked_as_it_gets_old_and_asked_for_anew_when_it_fell_silent";
    let Some(talk) = talk_with(test, quick()) else { return };
    let mut flow = talk.flow();
    talk.we_send(&mut flow, "first");
    assert_eq!(talk.they_hear(), "first");
    // Checked again and again, and believed meanwhile.
    talk.live.until_count("egress/neighbors/requests", 10);
    talk.live.until("it is sent at once", |live| live.send(&mut flow, b"second") == Ok(UdpSent::Posted));
    assert_eq!(talk.they_hear(), "second");
    // 8: reply to no request.
    set(&talk.wire.far, "conf/all/arp_ignore", "8");
    talk.live.until("the neighbor is not believed any more", |live| {
        live.send(&mut flow, b"into the void") == Ok(UdpSent::Waiting)
    });
    talk.live.until_count("egress/neighbors/drop/unreachable", 1);
    set(&talk.wire.far, "conf/all/arp_ignore", "0");
    talk.we_send(&mut flow, "it is back");
    // It did not reply to requests, but received the frames that were sent while we still had its
    // entry.
    while talk.they_hear() != "it is back" {}
    talk.live.stop();
}
