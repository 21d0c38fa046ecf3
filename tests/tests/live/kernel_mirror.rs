//! The mirror against the real kernel: each scene runs in a new network namespace, and makes its
//! changes with `ip` as an operator does. Needs root and iproute2.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant as Moment};

use wirepath::counters::Block;
use wirepath::proto::{HashSeed, Host, HostConfig, InterfaceId, Resolution};
use wirepath::time::Instant;
use wirepath::wire::VlanTags;
use wirepath::worker::StopFlag;
use wirepath::worker::kernel::{Follower, Mirror, MirrorError, MirrorThread};
use wirepath_tests::mutate::Random;
use wirepath_tests::netns::Namespace;

/// Set for the process that a test starts without CAP_NET_ADMIN.
const UNPRIVILEGED: &str = "WIREPATH_MIRROR_UNPRIVILEGED";
/// Longer than any scene needs on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(40);

#[test]
fn interface_arrives_with_addresses_routes_and_neighbors() {
    in_a_namespace("interface_arrives_with_addresses_routes_and_neighbors", || {
        ip("neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev eth1 nud permanent");
        ip("route add default via 10.0.0.9");
        let mut scene = Scene::new();
        scene.until("8.8.8.8", "02:00:00:00:00:09 from 10.0.0.1");
        assert_eq!(scene.host.mac().to_string(), "02:00:00:00:00:01");
        assert!(scene.follower.link().up);
    });
}

#[test]
fn changes_reach_the_host() {
    in_a_namespace("changes_reach_the_host", || {
        let mut scene = Scene::new();
        scene.until("10.1.0.1", "no route");
        ip("route add 10.1.0.0/16 via 10.0.0.3 metric 20");
        scene.until("10.1.0.1", "ask 10.0.0.3");
        ip("route add 10.1.0.0/16 via 10.0.0.4 metric 10");
        scene.until("10.1.0.1", "ask 10.0.0.4");
        ip("route replace 10.1.0.0/16 via 10.0.0.5 metric 10");
        scene.until("10.1.0.1", "ask 10.0.0.5");
        ip("neigh add 10.0.0.5 lladdr 02:00:00:00:00:05 dev eth1 nud reachable");
        scene.until("10.1.0.1", "02:00:00:00:00:05 from 10.0.0.1");
        ip("neigh change 10.0.0.5 lladdr 02:00:00:00:00:55 dev eth1 nud stale");
        scene.until("10.1.0.1", "02:00:00:00:00:55 from 10.0.0.1");
        ip("neigh del 10.0.0.5 dev eth1");
        scene.until("10.1.0.1", "ask 10.0.0.5");
        ip("route del 10.1.0.0/16 metric 10");
        scene.until("10.1.0.1", "ask 10.0.0.3");
        ip("route add blackhole 10.1.7.0/24");
        scene.until("10.1.7.1", "no route");
        scene.until("10.1.8.1", "ask 10.0.0.3");
        ip("address add 10.8.0.1/16 dev eth1");
        scene.until("10.8.0.7", "ask 10.8.0.7");
        // The kernel sends no new request for the router: it requests it now from the other
        // address.
        ip("address del 10.0.0.1/24 dev eth1");
        scene.until("10.0.0.7", "no route");
        scene.until("10.1.0.1", "ask 10.0.0.3");
        scene.until("10.8.0.7", "ask 10.8.0.7");
        ip("link set eth1 mtu 1400");
        scene.until_host("the MTU", |host| host.mtu() == 1400);
        ip("link set eth1 address 02:00:00:00:00:77");
        scene.until_host("the MAC address", |host| host.mac().to_string() == "02:00:00:00:00:77");
    });
}

#[test]
fn policy_rules_are_followed() {
    in_a_namespace("policy_rules_are_followed", || {
        let mut scene = Scene::new();
        ip("route add default via 10.0.0.3");
        ip("route add default via 10.0.0.4 table 100");
        scene.until("8.8.8.8", "ask 10.0.0.3");
        if !ip_may_fail("rule add to 8.0.0.0/8 lookup 100 priority 100") {
            return println!("SKIPPED the rules: this kernel has no policy routing");
        }
        scene.until("8.8.8.8", "ask 10.0.0.4");
        scene.until("9.9.9.9", "ask 10.0.0.3");
        ip("rule del priority 100");
        scene.until("8.8.8.8", "ask 10.0.0.3");
        ip("rule add from 10.0.0.1 lookup 100 priority 100");
        scene.until("9.9.9.9", "ask 10.0.0.4");
    });
}

#[test]
fn kernel_gives_the_same_answers() {
    in_a_namespace("kernel_gives_the_same_answers", || {
        let seed = std::env::var("WIREPATH_SEED").map_or(1, |seed| seed.parse().unwrap());
        println!("WIREPATH_SEED={seed}");
        let mut random = Changes(Random::new(seed));
        let mut scene = Scene::new();
        for _ in 0..40 {
            for _ in 0..4 {
                // The kernel refuses some of these: adding a route that exists, removing one that
                // does not.
                ip_quietly(&random.change());
            }
            for _ in 0..20 {
                let destination = format!("10.{}.{}.9", random.below(4) + 1, random.below(4));
                let expected = answer_of_the_kernel(&destination);
                scene.until(&destination, &expected);
            }
        }
        scene.until_as_in_a_dump();
        assert_eq!((scene.counter("undecoded"), scene.counter("refused")), (0, 0));
    });
}

#[test]
fn link_that_goes_down_and_up_is_followed() {
    in_a_namespace("link_that_goes_down_and_up_is_followed", || {
        let mut scene = Scene::new();
        ip("route add default via 10.0.0.3");
        scene.until("8.8.8.8", "ask 10.0.0.3");
        ip("link set eth1 down");
        scene.until("8.8.8.8", "no route");
        scene.until_link("down", |follower| !follower.link().up);
        ip("link set eth1 up");
        ip("route add default via 10.0.0.4");
        scene.until("8.8.8.8", "ask 10.0.0.4");
        ip("link set peer down");
        scene.until_link("without a carrier", |follower| !follower.link().up);
        ip("link set peer up");
        scene.until_link("up", |follower| follower.link().up);
        scene.until("8.8.8.8", "ask 10.0.0.4");
    });
}

#[test]
fn interface_is_followed_through_a_new_name_and_a_new_life() {
    in_a_namespace("interface_is_followed_through_a_new_name_and_a_new_life", || {
        let mut scene = Scene::new();
        scene.until("10.0.0.7", "ask 10.0.0.7");
        let first = scene.follower.link().idx;
        ip("link set eth1 down");
        ip("link set eth1 name wan0");
        ip("link set wan0 up");
        ip("route add 10.1.0.0/16 via 10.0.0.3");
        scene.until("10.1.0.1", "ask 10.0.0.3");
        assert_eq!(scene.follower.link().idx, first);
        ip("link del wan0");
        scene.until_link("gone", |follower| follower.link().idx.is_none());
        scene.until_host("no addresses", |host| host.addresses().is_empty() && host.routes().is_empty());
        interface();
        scene.until("10.0.0.7", "ask 10.0.0.7");
        assert!(scene.follower.link().idx.is_some_and(|idx| Some(idx) != first));
    });
}

#[test]
fn overrun_socket_is_caught_up_with_a_dump() {
    in_a_namespace("overrun_socket_is_caught_up_with_a_dump", || {
        let block = Block::heap();
        let mut mirror = Mirror::open(&block.scope("test")).unwrap();
        let (follower, host) = follow(&mut mirror, 8);
        // No one reads events meanwhile: there are more than the socket has room for, far more than
        // the ring has.
        let flood: String =
            (0..40_000).map(|n| format!("route replace 10.2.0.0/16 via 10.0.0.{}\n", n % 200 + 2)).collect();
        batch(&flood);
        ip("route replace 10.2.0.0/16 via 10.0.0.250");
        ip("route add 10.3.0.0/16 via 10.0.0.251");
        ip("neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev eth1 nud permanent");
        ip("address add 10.4.0.1/16 dev eth1");
        ip("link set eth1 mtu 1400");
        let thread = mirror.start(&StopFlag::new()).unwrap();
        let mut scene = Scene { host, follower, block, thread };
        scene.until("10.2.0.1", "ask 10.0.0.250");
        scene.until("10.3.0.1", "ask 10.0.0.251");
        assert!(scene.counter("gaps") > 0, "the flood of events was too small for this socket");
        scene.until_as_in_a_dump();
        ip("route del 10.3.0.0/16");
        scene.until("10.3.0.1", "no route");
    });
}

#[test]
fn storm_of_changes_ends_in_the_kernels_state() {
    in_a_namespace("storm_of_changes_ends_in_the_kernels_state", || {
        let mut scene = Scene::new();
        for round in 0..20 {
            let storm: String = (2..200)
                .map(|n| format!("route replace 10.2.0.0/16 via 10.0.0.{n}\nneigh replace 10.0.0.{n} lladdr 02:00:00:00:{round:02}:{n:02x} dev eth1\n"))
                .collect();
            batch(&storm);
            scene.until("10.2.0.1", &format!("02:00:00:00:{round:02}:c7 from 10.0.0.1"));
            ip("neigh flush dev eth1 nud permanent");
        }
        scene.until("10.2.0.1", "ask 10.0.0.199");
        scene.until_as_in_a_dump();
        assert_eq!((scene.counter("undecoded"), scene.counter("dumps_failed")), (0, 0));
    });
}

#[test]
fn neighbor_is_resolved_by_the_kernel_on_demand() {
    with_a_neighbor("neighbor_is_resolved_by_the_kernel_on_demand", |_there| {
        let mut scene = Scene::new();
        scene.until("10.0.0.2", "ask 10.0.0.2");
        scene.want("10.0.0.2");
        scene.until("10.0.0.2", "02:00:00:00:00:02 from 10.0.0.1");
        assert_eq!((scene.counter("resolves"), scene.counter("unanswered")), (1, 0));
        ip("neigh flush dev eth1");
        scene.until("10.0.0.2", "ask 10.0.0.2");
        scene.want("10.0.0.2");
        scene.until("10.0.0.2", "02:00:00:00:00:02 from 10.0.0.1");
    });
}

#[test]
fn neighbor_that_does_not_answer_is_counted_and_may_be_found_later() {
    with_a_neighbor("neighbor_that_does_not_answer_is_counted_and_may_be_found_later", |there| {
        tune("retrans_time_ms", 50);
        let mut scene = Scene::new();
        scene.want("10.0.0.77");
        scene.until_counted("unanswered", 1);
        scene.until("10.0.0.77", "ask 10.0.0.77");
        there.ip(&["address", "add", "10.0.0.77/24", "dev", "peer"]).unwrap();
        scene.want("10.0.0.77");
        scene.until("10.0.0.77", "02:00:00:00:00:02 from 10.0.0.1");
        assert_eq!(scene.counter("unanswered"), 1);
    });
}

#[test]
fn stale_neighbor_that_moved_is_found_because_it_is_used() {
    with_a_neighbor("stale_neighbor_that_moved_is_found_because_it_is_used", |_there| {
        tune("retrans_time_ms", 50);
        tune("delay_first_probe_time", 1);
        ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:ee dev eth1 nud stale");
        let mut scene = Scene::new();
        scene.until("10.0.0.2", "02:00:00:00:00:ee from 10.0.0.1");
        scene.want("10.0.0.2");
        scene.until("10.0.0.2", "ask 10.0.0.2");
        scene.want("10.0.0.2");
        scene.until("10.0.0.2", "02:00:00:00:00:02 from 10.0.0.1");
    });
}

#[test]
fn permanent_neighbor_stays_permanent_though_it_is_wanted() {
    with_a_neighbor("permanent_neighbor_stays_permanent_though_it_is_wanted", |_there| {
        ip("neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev eth1 nud permanent");
        let mut scene = Scene::new();
        scene.want("10.0.0.9");
        scene.want("10.0.0.2");
        scene.until("10.0.0.2", "02:00:00:00:00:02 from 10.0.0.1");
        assert_eq!(scene.counter("resolves"), 1);
        assert!(shown("neigh show 10.0.0.9 dev eth1").contains("PERMANENT"));
    });
}

#[test]
fn wish_made_while_the_interface_is_gone_is_granted_in_its_next_life() {
    with_a_neighbor("wish_made_while_the_interface_is_gone_is_granted_in_its_next_life", |there| {
        let mut scene = Scene::new();
        scene.want("10.0.0.2");
        scene.until("10.0.0.2", "02:00:00:00:00:02 from 10.0.0.1");
        ip("link del eth1");
        scene.until_link("gone", |follower| follower.link().idx.is_none());
        scene.want("10.0.0.2");
        interface();
        neighbor_in(&there);
        scene.until("10.0.0.2", "02:00:00:00:00:02 from 10.0.0.1");
    });
}

#[test]
fn kernel_that_does_not_ask_for_us_names_the_capability() {
    let name = "kernel_that_does_not_ask_for_us_names_the_capability";
    // This test runs itself again without the capability, under this name.
    if std::env::var_os(UNPRIVILEGED).is_some() {
        let block = Block::heap();
        let mut mirror = Mirror::open(&block.scope("test")).unwrap();
        let refused = mirror.may_resolve().unwrap_err().to_string();
        assert!(refused.contains("CAP_NET_ADMIN"), "{refused}");
        let (follower, host) = follow(&mut mirror, 64);
        let mut scene = Scene { host, follower, block, thread: mirror.start(&StopFlag::new()).unwrap() };
        scene.want("10.0.0.2");
        return scene.until_counted("resolves_refused", 1);
    }
    in_a_namespace(name, || {
        let block = Block::heap();
        assert!(Mirror::open(&block.scope("test")).unwrap().may_resolve().is_ok());
        let mut again = Command::new("setpriv");
        again.arg("--bounding-set=-net_admin").arg(std::env::current_exe().unwrap());
        match again.args(["--exact", name, "--nocapture"]).env(UNPRIVILEGED, "1").output() {
            Ok(output) => softhca::testing::show(name, &output),
            Err(why) => println!("SKIPPED {name}: setpriv (util-linux): {why}"),
        }
    });
}

#[test]
fn flap_that_is_over_before_anybody_looks_is_a_change() {
    in_a_namespace("flap_that_is_over_before_anybody_looks_is_a_change", || {
        let block = Block::heap();
        let mut mirror = Mirror::open(&block.scope("test")).unwrap();
        let (mut follower, mut host) = follow(&mut mirror, 64);
        follower.catch_up(&mut host);
        let (before, changes) = (follower.link(), follower.link_changes());
        batch("link set peer down\nlink set peer up\n");
        let mut scene = Scene { host, follower, block, thread: mirror.start(&StopFlag::new()).unwrap() };
        scene.until_link("up again", |follower| {
            follower.link().up && follower.link().carrier_ups > before.carrier_ups && follower.link_changes() > changes
        });
    });
}

#[test]
fn deleted_namespace_of_the_peer_takes_the_interface_along() {
    with_a_neighbor("deleted_namespace_of_the_peer_takes_the_interface_along", |there| {
        let mut scene = Scene::new();
        scene.want("10.0.0.2");
        scene.until("10.0.0.2", "02:00:00:00:00:02 from 10.0.0.1");
        there.remove();
        scene.until_link("gone", |follower| follower.link().idx.is_none());
        scene.until_host("no addresses", |host| host.addresses().is_empty() && host.routes().is_empty());
        assert!(!scene.follower.is_orphaned());
    });
}

#[test]
fn interface_that_moves_to_another_namespace_is_gone_until_it_comes_back() {
    with_a_neighbor("interface_that_moves_to_another_namespace_is_gone_until_it_comes_back", |there| {
        let mut scene = Scene::new();
        scene.until("10.0.0.7", "ask 10.0.0.7");
        let elsewhere = Namespace::new().unwrap();
        ip(&format!("link set eth1 netns {}", elsewhere.name()));
        scene.until_link("gone", |follower| follower.link().idx.is_none());
        elsewhere.ip(&["link", "set", "eth1", "netns", &own_namespace()]).unwrap();
        ip("address add 10.0.0.1/24 dev eth1");
        ip("link set eth1 up");
        scene.want("10.0.0.2");
        scene.until("10.0.0.2", "02:00:00:00:00:02 from 10.0.0.1");
        drop(there);
    });
}

#[test]
fn mirror_in_a_deleted_namespace_goes_on_and_ends_when_told() {
    let name = "mirror_in_a_deleted_namespace_goes_on_and_ends_when_told";
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return println!("SKIPPED {name}: {why}"),
    };
    let deleted = namespace.name().to_owned();
    namespace.run(|| {
        interface();
        let mut scene = Scene::new();
        scene.until("10.0.0.7", "ask 10.0.0.7");
        // Its sockets and this thread keep the namespace; only the name is gone.
        ip(&format!("netns del {deleted}"));
        ip("route add 10.1.0.0/16 via 10.0.0.3");
        scene.until("10.1.0.1", "ask 10.0.0.3");
        let Scene { follower, thread, .. } = scene;
        let start = Moment::now();
        drop(thread);
        assert!(start.elapsed() < TIMEOUT / 2, "{:?}", start.elapsed());
        assert!(follower.is_orphaned());
    });
}

#[test]
fn interface_that_does_not_exist_is_refused_by_name() {
    let block = Block::heap();
    let mut mirror = Mirror::open(&block.scope("test")).unwrap();
    let link = mirror.link("lo").cloned();
    let config = config(link.map_or(65_536, |link| link.mtu), "02:00:00:00:00:01");
    let refused = mirror.follow("nonesuch7", config, 64).err().unwrap();
    assert!(matches!(refused, MirrorError::NoSuchInterface(_)));
    assert!(refused.to_string().contains("nonesuch7"), "{refused}");
}

/// A worker that has only a host and a follower.
struct Scene {
    host: Host,
    follower: Follower,
    block: Block,
    thread: MirrorThread,
}

impl Scene {
    fn new() -> Self {
        let block = Block::heap();
        let mut mirror = Mirror::open(&block.scope("test")).unwrap();
        let (follower, host) = follow(&mut mirror, 64);
        let thread = mirror.start(&StopFlag::new()).unwrap();
        Self { host, follower, block, thread }
    }

    fn want(&mut self, address: &str) {
        assert!(self.follower.want(address.parse().unwrap()), "the ring of wishes is full");
    }

    /// Waits until packets to `destination` go where they should.
    fn until(&mut self, destination: &str, expected: &str) {
        let destination: Ipv4Addr = destination.parse().unwrap();
        let way = |host: &Host| match host.resolve(destination, Instant::ZERO) {
            Resolution::Station { mac, source } => format!("{mac} from {source}"),
            Resolution::NeighborMissing { next_hop, .. } => format!("ask {next_hop}"),
            Resolution::NoRoute => "no route".into(),
            other => format!("{other:?}"),
        };
        self.wait(
            |scene| way(&scene.host) == expected,
            |scene| {
                let routes =
                    scene.host.routes().iter().map(|route| format!("{} via {:?}", route.network, route.gateway));
                let (is, routes) = (way(&scene.host), routes.collect::<Vec<_>>().join("\n"));
                format!(
                    "{destination} goes to `{is}`, not to `{expected}`\n{routes}\nin the kernel:\n{}",
                    tables_of_the_kernel()
                )
            },
        );
    }

    fn until_host(&mut self, what: &str, reached: impl Fn(&Host) -> bool) {
        self.wait(|scene| reached(&scene.host), |scene| format!("{what} did not come: {:?}", scene.host));
    }

    fn until_link(&mut self, what: &str, reached: impl Fn(&Follower) -> bool) {
        self.wait(|scene| reached(&scene.follower), |scene| format!("not {what}: {:?}", scene.follower.link()));
    }

    fn wait(&mut self, reached: impl Fn(&Self) -> bool, report: impl Fn(&Self) -> String) {
        let start = Moment::now();
        loop {
            self.follower.catch_up(&mut self.host);
            if reached(self) {
                return;
            }
            assert!(start.elapsed() < TIMEOUT, "{}", report(self));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn until_counted(&mut self, name: &str, count: u64) {
        self.wait(|scene| scene.counter(name) == count, |scene| format!("{name} is {}", scene.counter(name)));
    }

    /// Waits until the worker has the same state as a worker with a mirror that begins now.
    fn until_as_in_a_dump(&mut self) {
        let is = |scene: &Self| knowledge(&scene.host, &scene.follower);
        self.wait(|scene| is(scene) == in_a_dump(), |scene| format!("{}\nin a dump:\n{}", is(scene), in_a_dump()));
    }

    fn counter(&self, name: &str) -> u64 {
        self.block.snapshot().count(&format!("test/kernel/{name}")).unwrap()
    }
}

/// All that a worker knows.
fn knowledge(host: &Host, follower: &Follower) -> String {
    let mut routes: Vec<_> = host.routes().iter().map(|route| format!("{route:?}")).collect();
    routes.sort();
    let resolved = |n| host.resolve(Ipv4Addr::new(10, 0, 0, n), Instant::ZERO);
    let stations: Vec<_> = (2..255).map(resolved).filter(|way| matches!(way, Resolution::Station { .. })).collect();
    let (link, mac, mtu, addresses) = (follower.link(), host.mac(), host.mtu(), host.addresses());
    format!("{link:?}\n{mac} {mtu}\n{addresses:?}\n{}\n{stations:?}", routes.join("\n"))
}

fn in_a_dump() -> String {
    let mut mirror = Mirror::open(&Block::heap().scope("test")).unwrap();
    let (mut follower, mut host) = follow(&mut mirror, 4096);
    while follower.catch_up(&mut host) > 0 {}
    knowledge(&host, &follower)
}

fn follow(mirror: &mut Mirror, capacity: usize) -> (Follower, Host) {
    let link = mirror.link("eth1").unwrap().clone();
    let config = config(link.mtu, &link.mac.to_string());
    (mirror.follow("eth1", config, capacity).unwrap(), Host::new(config, HashSeed::new(1, 2)).unwrap())
}

fn config(mtu: usize, mac: &str) -> HostConfig {
    HostConfig {
        interface: InterfaceId(0),
        mac: mac.parse().unwrap(),
        vlan: VlanTags::NONE,
        mtu,
        addresses_max: 8,
        routes_max: 1024,
        neighbors_max: 512,
    }
}

/// eth1 with 10.0.0.1/24, and the other end of its cable.
fn interface() {
    ip("link add eth1 address 02:00:00:00:00:01 type veth peer name peer");
    ip("link set eth1 up");
    ip("link set peer up");
    ip("address add 10.0.0.1/24 dev eth1");
}

/// Runs `scene` in a new namespace, on a thread inside it.
fn in_a_namespace(name: &str, scene: impl FnOnce() + Send) {
    match Namespace::new() {
        Ok(namespace) => namespace.run(|| {
            interface();
            scene();
        }),
        Err(why) => println!("SKIPPED {name}: {why}"),
    }
}

/// The same with eth1's cable leading to another namespace, where 10.0.0.2 answers.
fn with_a_neighbor(name: &str, scene: impl FnOnce(Namespace) + Send) {
    in_a_namespace(name, || {
        let there = Namespace::new().unwrap();
        neighbor_in(&there);
        scene(there);
    });
}

fn neighbor_in(there: &Namespace) {
    ip(&format!("link set peer netns {}", there.name()));
    there.run(|| {
        ip("link set peer address 02:00:00:00:00:02");
        ip("link set peer up");
        ip("address add 10.0.0.2/24 dev peer");
    });
}

/// Sets how eth1's neighbors are asked.
fn tune(parameter: &str, value: u32) {
    std::fs::write(format!("/proc/sys/net/ipv4/neigh/eth1/{parameter}"), value.to_string()).unwrap();
}

fn ip(arguments: &str) {
    assert!(ip_may_fail(arguments), "ip {arguments}");
}

fn ip_may_fail(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).status().unwrap().success()
}

/// A change that the kernel may refuse.
fn ip_quietly(arguments: &str) {
    Command::new("ip").args(arguments.split(' ')).output().unwrap();
}

/// The next hop to which the kernel sends packets from eth1's address. Not that of a socket bound
/// to eth1, because for such a socket the kernel takes a destination without a route to be on the
/// link (ip_route_output_key_hash_rcu), which is not useful on a wire.
fn answer_of_the_kernel(destination: &str) -> String {
    let ask = ["route", "get", destination, "from", "10.0.0.1"];
    let output = Command::new("ip").args(ask).output().unwrap();
    if !output.status.success() {
        return "no route".into();
    }
    let said = String::from_utf8(output.stdout).unwrap();
    let mut words = said.split_whitespace().skip_while(|word| *word != "via");
    format!("ask {}", words.nth(1).unwrap_or(destination))
}

fn tables_of_the_kernel() -> String {
    shown("-4 -N rule show") + &shown("route show table all")
}

fn shown(arguments: &str) -> String {
    String::from_utf8(Command::new("ip").args(arguments.split(' ')).output().unwrap().stdout).unwrap()
}

/// The name of the namespace that this thread lives in.
fn own_namespace() -> String {
    shown("netns identify").trim().to_owned()
}

/// Changes that can be repeated.
struct Changes(Random);

impl Changes {
    fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    /// A change of a route or of a rule, among few networks, so that they meet.
    fn change(&mut self) -> String {
        let (second, third) = (self.below(4) + 1, self.below(4));
        let network = match self.below(4) {
            0 => "default".to_owned(),
            1 => "10.0.0.0/8".to_owned(),
            2 => format!("10.{second}.0.0/16"),
            _ => format!("10.{second}.{third}.0/24"),
        };
        let table = [254, 100, 101][self.below(3)];
        let metric = self.below(3);
        let router = self.below(3) + 3;
        let way = format!("{network} via 10.0.0.{router} dev eth1 table {table} metric {metric}");
        match self.below(16) {
            0..6 => format!("route add {way}"),
            6 => format!("route replace {way}"),
            7 => format!("route append {way}"),
            8 => format!("route prepend {way}"),
            9..11 => format!("route del {network} table {table}"),
            11 => format!("route add blackhole {network} table {table} metric {metric}"),
            12 => format!("route add throw {network} table {table} metric {metric}"),
            13 => format!("rule add to 10.{second}.0.0/16 lookup {table} priority {}", 100 + metric),
            14 => format!("rule add from 10.0.0.{} lookup {table} priority {}", self.below(2) + 1, 200 + metric),
            _ => format!("rule del priority {}", [100, 200][self.below(2)] + metric),
        }
    }
}

/// Many changes by one process.
fn batch(lines: &str) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, lines.as_bytes()).unwrap();
    assert!(Command::new("ip").arg("-batch").arg(file.path()).status().unwrap().success());
}
