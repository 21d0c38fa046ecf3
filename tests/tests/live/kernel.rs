//! A port that the kernel has too: its addresses, routes, neighbors and link change while flows
//! run, and the flows follow without a restart. Frames that no rule of ours matches go to the
//! kernel.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::{Ipv4Addr, UdpSocket};

use wirepath::device::steering::Rule;
use wirepath::pipeline::{UdpFlow, UdpOptions, UdpSendError, UdpSent};
use wirepath::proto::Resolution;
use wirepath_tests::live::{FAR, Live, LiveConfig, NEAR, OURS, THEIRS, TIMEOUT, Wire, has_program};

const PORT: u16 = 7_000;
/// Behind the far kernel, which has it on its loopback interface.
const BEHIND: Ipv4Addr = Ipv4Addr::new(10, 5, 0, 1);

/// Both kernels have addresses; our datagrams are those to a single port.
struct Shared {
    wire: Wire,
    live: Live,
    socket: UdpSocket,
}

fn shared(test: &str) -> Option<Shared> {
    let wire = Wire::new(test)?;
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    wire.far.ip(&["addr", "add", "10.5.0.1/32", "dev", "lo"]).unwrap();
    let live = Live::start(&wire.near, &LiveConfig::shared(NEAR, &[Rule::udp(OURS, PORT)])).unwrap();
    live.bind(PORT);
    live.until("the mirror tells our address", |live| live.with(|_, cx| cx.host.is_own(OURS)));
    let socket = wire.socket((Ipv4Addr::UNSPECIFIED, 7_001));
    Some(Shared { wire, live, socket })
}

impl Shared {
    fn flow(&self, to: Ipv4Addr) -> UdpFlow {
        self.live.connect(7_002, (to, 7_001), UdpOptions::default())
    }

    /// Sends until one is posted and arrives; from where.
    fn arrives_from(&self, flow: &mut UdpFlow, text: &str) -> Ipv4Addr {
        self.live.until(text, |live| live.send(flow, text.as_bytes()) == Ok(UdpSent::Posted));
        self.hear(text)
    }

    /// Datagrams sent earlier may arrive first.
    fn hear(&self, text: &str) -> Ipv4Addr {
        let mut bytes = [0; 2_000];
        loop {
            let (len, from) = self.socket.recv_from(&mut bytes).unwrap();
            if &bytes[..len] == text.as_bytes() {
                return match from.ip() {
                    std::net::IpAddr::V4(from) => from,
                    std::net::IpAddr::V6(from) => panic!("{from}"),
                };
            }
        }
    }

    fn until_sends(&self, flow: &mut UdpFlow, expected: Result<UdpSent, UdpSendError>) {
        self.live.until(&format!("{expected:?}"), |live| live.send(flow, b"?") == expected);
    }
}

#[test]
fn kernel_goes_on_beside_us() {
    let test = "kernel_goes_on_beside_us";
    let Some(shared) = shared(test) else { return };
    shared.socket.send_to(b"ours", (OURS, PORT)).unwrap();
    assert_eq!(shared.live.receive(1)[0].payload, b"ours");
    let kernels = shared.wire.near.run(|| UdpSocket::bind((OURS, PORT + 1))).unwrap();
    kernels.set_read_timeout(Some(TIMEOUT)).unwrap();
    shared.socket.send_to(b"the kernel's", (OURS, PORT + 1)).unwrap();
    assert_eq!(kernels.recv(&mut [0; 100]).unwrap(), 12);
    if has_program(test, "ping") {
        let ping = shared.wire.far.command("ping", &["-c", "3", "-i", "0.05", "-w", "20", "10.9.0.1"]).unwrap();
        assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stdout));
    }
    assert_eq!(shared.live.stop().count("host/ethernet/frames"), Some(1));
}

#[test]
fn kernel_asks_for_the_neighbors_that_we_want() {
    let Some(shared) = shared("kernel_asks_for_the_neighbors_that_we_want") else { return };
    let mut flow = shared.flow(THEIRS);
    let sent = shared.live.send(&mut flow, b"first");
    assert!(sent.is_ok(), "{sent:?}");
    assert_eq!(shared.hear("first"), OURS);
    assert_eq!(shared.live.stop().count("host/arp/packets"), Some(0), "ARP is the kernel's");
}

#[test]
fn flow_survives_a_link_that_goes_down_and_up() {
    let Some(shared) = shared("flow_survives_a_link_that_goes_down_and_up") else { return };
    let mut flow = shared.flow(THEIRS);
    assert_eq!(shared.arrives_from(&mut flow, "before"), OURS);
    for (namespace, interface) in [(&shared.wire.far, FAR), (&shared.wire.near, NEAR)] {
        namespace.ip(&["link", "set", interface, "down"]).unwrap();
        shared.until_sends(&mut flow, Err(UdpSendError::LinkDown));
        namespace.ip(&["link", "set", interface, "up"]).unwrap();
        assert_eq!(shared.arrives_from(&mut flow, &format!("{interface} is back")), OURS);
        shared.socket.send_to(b"to us", (OURS, PORT)).unwrap();
        assert_eq!(shared.live.receive(1)[0].payload, b"to us");
    }
    shared.live.stop();
}

#[test]
fn flow_follows_a_new_address() {
    let Some(shared) = shared("flow_follows_a_new_address") else { return };
    let mut flow = shared.flow(THEIRS);
    assert_eq!(shared.arrives_from(&mut flow, "before"), OURS);
    let ip = |arguments: &[&str]| shared.wire.near.ip(arguments).unwrap();
    ip(&["addr", "del", "10.9.0.1/24", "dev", NEAR]);
    shared.until_sends(&mut flow, Err(UdpSendError::NoRoute(THEIRS)));
    ip(&["addr", "add", "10.9.0.7/24", "dev", NEAR]);
    assert_eq!(shared.arrives_from(&mut flow, "after"), Ipv4Addr::new(10, 9, 0, 7));
    // Datagrams to it come to us as soon as a rule matches them.
    shared.live.steer(&Rule::udp(Ipv4Addr::new(10, 9, 0, 7), PORT));
    shared.socket.send_to(b"to the new one", (Ipv4Addr::new(10, 9, 0, 7), PORT)).unwrap();
    assert_eq!(shared.live.receive(1)[0].payload, b"to the new one");
    shared.live.stop();
}

#[test]
fn flow_follows_a_route_that_changes_goes_and_comes_back() {
    let Some(shared) = shared("flow_follows_a_route_that_changes_goes_and_comes_back") else { return };
    let ip = |arguments: &[&str]| shared.wire.near.ip(arguments).unwrap();
    ip(&["addr", "add", "10.9.0.7/24", "dev", NEAR]);
    ip(&["route", "add", "10.5.0.0/24", "via", "10.9.0.2", "src", "10.9.0.1"]);
    shared.live.until("the route is known", |live| live.with(|_, cx| cx.host.route(BEHIND).is_some()));
    let mut flow = shared.flow(BEHIND);
    assert_eq!(shared.arrives_from(&mut flow, "one"), OURS);
    ip(&["route", "change", "10.5.0.0/24", "via", "10.9.0.2", "src", "10.9.0.7"]);
    shared.live.until("the flow sends from the new address", |live| {
        live.send(&mut flow, b"two").is_ok() && *flow.local().ip() == Ipv4Addr::new(10, 9, 0, 7)
    });
    assert_eq!(shared.arrives_from(&mut flow, "three"), Ipv4Addr::new(10, 9, 0, 7));
    ip(&["route", "del", "10.5.0.0/24"]);
    shared.until_sends(&mut flow, Err(UdpSendError::NoRoute(BEHIND)));
    ip(&["route", "add", "10.5.0.0/24", "via", "10.9.0.2"]);
    assert_eq!(shared.arrives_from(&mut flow, "four"), OURS);
    shared.live.stop();
}

#[test]
fn flow_follows_a_neighbor_that_moves() {
    let Some(shared) = shared("flow_follows_a_neighbor_that_moves") else { return };
    let mut flow = shared.flow(THEIRS);
    assert_eq!(shared.arrives_from(&mut flow, "before"), OURS);
    shared.wire.far.ip(&["link", "set", FAR, "address", "02:00:00:00:00:77"]).unwrap();
    // It sends an ARP request to our kernel, which then has the new MAC address and reports it.
    shared.socket.send_to(b"I have moved", (OURS, PORT)).unwrap();
    shared.live.receive(1);
    shared.live.until("what is sent arrives again", |live| {
        live.with(|_, cx| {
            let moved = "02:00:00:00:00:77".parse().unwrap();
            matches!(cx.host.resolve(THEIRS, cx.now), Resolution::Station { mac, .. } if mac == moved)
        })
    });
    assert_eq!(shared.arrives_from(&mut flow, "after"), OURS);
    shared.live.stop();
}

#[test]
fn flow_follows_a_new_mtu() {
    let Some(shared) = shared("flow_follows_a_new_mtu") else { return };
    let mut flow = shared.flow(THEIRS);
    assert_eq!((shared.arrives_from(&mut flow, "before"), flow.payload_len_max()), (OURS, 1_472));
    for mtu in [1_000, 1_400] {
        shared.wire.near.ip(&["link", "set", NEAR, "mtu", &mtu.to_string()]).unwrap();
        shared
            .live
            .until("the flow knows", |live| live.send(&mut flow, b"?").is_ok() && flow.payload_len_max() == mtu - 28);
        let before = shared.live.count("egress/fragments");
        assert_eq!(shared.arrives_from(&mut flow, &"x".repeat(1_372)), OURS);
        assert_eq!(shared.live.count("egress/fragments") - before, if mtu == 1_000 { 2 } else { 0 });
    }
    shared.live.stop();
}
