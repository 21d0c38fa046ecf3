//! A port shared with the kernel, through its life: rules that change under traffic, frames that
//! are not ours, processes that die, links that flap, interfaces that are renamed or go away.
//! Everything happens in namespaces of the test's own.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use wirepath::counters::Block;
use wirepath::device::af_xdp::{AfXdpConfig, AfXdpDevice, CopyMode, Mode};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, DeviceError, DeviceErrorKind, Offload, Queue, RxQueue, RxState, TxQueue};
use wirepath::mem::{Burst, Mbuf, Pool};
use wirepath::time::Instant;
use wirepath::wire::{MacAddr, Protocol};
use wirepath_tests::netns::{self, Namespace};
use wirepath_tests::port::{
    EXPERIMENT, Port, TIMEOUT, Wire, config, frame, has_program, number, open, pool, sentence, wait_until, wire,
};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

#[test]
fn rules_change_under_traffic_without_losing_a_frame() {
    let Some(wire) = wire("rules_change_under_traffic_without_losing_a_frame") else { return };
    change_rules_under_traffic(&wire, 40, 50_000, 500);
}

/// As above, but nearly every change needs a new program, because the rules are compiled into it;
/// now and then there is one rule too many for that. The kernel takes 12 ms to exchange a program,
/// so there are fewer changes.
#[test]
fn few_rules_change_under_traffic_without_losing_a_frame() {
    let Some(wire) = wire("few_rules_change_under_traffic_without_losing_a_frame") else { return };
    change_rules_under_traffic(&wire, 3, 5_000, 50);
    change_rules_under_traffic(&wire, 7, 5_000, 50);
}

/// While `frames` come, rules come too, and the ones before go once there are more than `rules_max`
/// beside the one of the frames.
fn change_rules_under_traffic(wire: &Wire, rules_max: usize, frames: u64, changes_min: u32) {
    let (received, ready, failed) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // The sender never has more on the way than the receiver's ring holds, so a frame that is
        // missing was lost by us.
        scope.spawn(|| {
            wire.near.run(|| {
                let mut port = Port::open(&config("veth0"), &[]);
                wait_until(|| ready.load(Ordering::Acquire));
                let mut sent = 0;
                while sent < frames && !failed.load(Ordering::Relaxed) {
                    if sent - received.load(Ordering::Relaxed) < 128 {
                        sent += u64::from(port.send(&frame(sent, 64)));
                    } else {
                        std::thread::yield_now();
                    }
                    port.tx.reap();
                }
            });
        });
        wire.far.run(|| {
            let mut port = Port::open(&config("veth1"), &[EXPERIMENT]);
            ready.store(true, Ordering::Release);
            let (mut expected, mut changes, mut ids) = (0, 0u32, Vec::new());
            let arrived = port.until(|port| {
                for frame in port.receive() {
                    assert_eq!(number(&frame), expected);
                    expected += 1;
                }
                received.store(expected, Ordering::Relaxed);
                // Rules of every shape come and go: updates of the map, new programs, tags on and
                // off.
                ids.push(port.device.steer(&odd_rule(changes), 0).unwrap());
                if ids.len() > rules_max {
                    port.device.unsteer(ids.remove((changes as usize * 7) % rules_max)).unwrap();
                }
                changes += 1;
                expected == frames
            });
            failed.store(!arrived, Ordering::Relaxed);
            assert!(arrived, "{expected} of {frames} frames; {:?}", port.block.snapshot());
            assert!(changes > changes_min, "only {changes} changes");
            println!("{changes} changes of up to {rules_max} rules during {frames} frames");
        });
    });
}

fn odd_rule(number: u32) -> Rule {
    let group = Ipv4Addr::from_bits(0xef00_0000 | number);
    match number % 6 {
        0 | 1 => Rule::udp(group, 9000),
        2 => Rule::udp(group, 9000).from(Ipv4Addr::LOCALHOST),
        3 => Rule { destination_mac: Some(MacAddr::multicast_ipv4(group)), ..Rule::ALL },
        4 => Rule::igmp().on_vlan((number % 4096) as u16),
        _ => Rule::tcp(group, 1).tagged(number % 1000),
    }
}

#[test]
fn nic_is_told_of_the_groups_that_rules_name_for_as_long_as_they_do() {
    let Some(wire) = wire("nic_is_told_of_the_groups_that_rules_name_for_as_long_as_they_do") else { return };
    wire.far.run(|| {
        let passes = |what: &str| wire.far.ip(&["maddr", "show", "dev", "veth1"]).unwrap().contains(what);
        let all = || wire.far.ip(&["-d", "link", "show", "dev", "veth1"]).unwrap().contains("allmulti 1");
        let group = "01:00:5e:01:02:03";
        let mut device = AfXdpDevice::open(&config("veth1")).unwrap();
        let first = device.steer(&Rule::udp(GROUP, 9000), 0).unwrap();
        let second = device.steer(&Rule::udp(GROUP, 9001), 0).unwrap();
        assert!(passes(group) && !all());
        device.unsteer(first).unwrap();
        assert!(passes(group), "another rule names it still");
        device.unsteer(second).unwrap();
        assert!(!passes(group));
        let any = device.steer(&Rule::ALL, 0).unwrap();
        assert!(all());
        device.unsteer(any).unwrap();
        assert!(!all());
        device.steer(&Rule::udp(GROUP, 9000), 0).unwrap();
        drop(device);
        assert!(!passes(group));
    });
}

#[test]
fn kernel_keeps_what_no_rule_names() {
    let Some(wire) = wire("kernel_keeps_what_no_rule_names") else { return };
    for mode in [Mode::Native, Mode::Generic] {
        wire.far.run(|| {
            let rule = Rule { destination: Some(Ipv4Addr::new(10, 9, 0, 2)), ..Rule::udp(GROUP, 9000) };
            let mut port = Port::open(&AfXdpConfig { mode, ..config("veth1") }, &[rule]);
            match wire.near.command("which", &["ping"]) {
                Ok(found) if found.status.success() => {
                    let ping = wire.near.command("ping", &["-c", "3", "-i", "0.2", "-W", "5", "10.9.0.2"]).unwrap();
                    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stdout));
                }
                _ => println!("SKIPPED kernel_keeps_what_no_rule_names: there is no ping here, TCP has to do"),
            }
            let listener = TcpListener::bind("10.9.0.2:7").unwrap();
            wire.near.run(|| TcpStream::connect_timeout(&"10.9.0.2:7".parse().unwrap(), TIMEOUT).unwrap());
            drop(listener);

            let kernel = UdpSocket::bind("10.9.0.2:9001").unwrap();
            kernel.set_read_timeout(Some(TIMEOUT)).unwrap();
            wire.near.run(|| {
                let sender = UdpSocket::bind("10.9.0.1:5000").unwrap();
                sender.send_to(b"ours", "10.9.0.2:9000").unwrap();
                sender.send_to(b"the kernel's", "10.9.0.2:9001").unwrap();
            });
            let mut bytes = [0; 100];
            let len = kernel.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..len], b"the kernel's");
            let frames = port.receive_some(1);
            assert_eq!((frames.len(), &frames[0][42..46]), (1, &b"ours"[..]), "{mode:?}");
        });
    }
}

#[test]
fn queue_takes_frames_from_its_first_poll_and_until_it_is_dropped() {
    let Some(wire) = wire("queue_takes_frames_from_its_first_poll_and_until_it_is_dropped") else { return };
    let rules = [Rule::udp(Ipv4Addr::new(10, 9, 0, 2), 9000)];
    let send = |text: &str| {
        wire.near.run(|| UdpSocket::bind("10.9.0.1:0").unwrap().send_to(text.as_bytes(), "10.9.0.2:9000").unwrap());
    };
    wire.far.run(|| {
        let kernel = UdpSocket::bind("10.9.0.2:9000").unwrap();
        kernel.set_read_timeout(Some(TIMEOUT)).unwrap();
        let next = || {
            let mut bytes = [0; 100];
            let len = kernel.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..len]).into_owned()
        };
        let mut device = open(&config("veth1"));
        device.steer(&rules[0], 0).unwrap();
        send("before the queue is open");
        assert_eq!(next(), "before the queue is open");
        drop(device);

        let port = Port::open(&config("veth1"), &rules);
        let Port { mut rx, tx, device, block, pool, .. } = port;
        send("ours");
        let mut burst = Burst::new();
        let start = std::time::Instant::now();
        while burst.is_empty() && start.elapsed() < TIMEOUT {
            rx.receive(&mut burst, 32, &pool, Instant::ZERO);
        }
        assert_eq!(burst.len(), 1);
        burst.drain(..).for_each(Mbuf::free);
        send("left in the ring");
        // Only the receiving half itself could see the frame arrive there.
        std::thread::sleep(Duration::from_millis(100));
        drop(rx);
        assert_eq!(block.snapshot().count("port/rx/drop/queue_closed"), Some(1));
        send("after the receiving half is dropped");
        assert_eq!(next(), "after the receiving half is dropped");
        drop((tx, device));
        assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0));
    });
}

#[test]
fn flow_tag_of_the_rule_comes_with_the_frame() {
    let Some(wire) = wire("flow_tag_of_the_rule_comes_with_the_frame") else { return };
    for mode in [Mode::Native, Mode::Generic] {
        let rules = [EXPERIMENT.tagged(0xabcdef), Rule { destination_mac: Some(MacAddr([2; 6])), ..Rule::ALL }];
        let tags = wire.far.run(|| {
            let mut port = Port::open(&AfXdpConfig { mode, ..config("veth1") }, &rules);
            wire.near.run(|| {
                let mut port = Port::open(&AfXdpConfig { mode, ..config("veth0") }, &[]);
                for round in 0..300 {
                    let mut frame = frame(round, 64);
                    if round % 2 == 1 {
                        frame[..14].copy_from_slice(&[2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb6]);
                    }
                    assert!(port.until(|port| port.tx.room() > 0) && port.send(&frame));
                }
            });
            let mut tags = Vec::new();
            port.until(|port| {
                tags.extend(port.burst().drain(..).map(|mbuf| (mbuf.flow_tag(), mbuf.len(), mbuf.free())));
                tags.len() >= 256
            });
            tags
        });
        // 256 are as many as the ring holds; buffers are used again, and no tag is inherited.
        let expected: Vec<_> = (0..256).map(|round| ((round % 2 == 0).then_some(0xabcdef), 64, ())).collect();
        assert_eq!(tags, expected, "{mode:?}");
    }
}

#[test]
fn jumbo_frame_is_a_chain_both_ways() {
    let Some(wire) = wire("jumbo_frame_is_a_chain_both_ways") else { return };
    wire.near.ip(&["link", "set", "veth0", "mtu", "9000"]).unwrap();
    wire.far.ip(&["link", "set", "veth1", "mtu", "9000"]).unwrap();
    for mode in [Mode::Native, Mode::Generic] {
        wire.far.run(|| {
            let mut port = Port::open(&AfXdpConfig { mode, ..config("veth1") }, &[EXPERIMENT]);
            assert!(port.device.capabilities().tx_segments_max >= 6, "{}", port.device.describe());
            let whole = frame(1, 9018);
            wire.near.run(|| {
                let mut port = Port::open(&AfXdpConfig { mode, ..config("veth0") }, &[]);
                for _ in 0..20 {
                    let mut chain: Option<Mbuf> = None;
                    for part in whole.chunks(1664).rev() {
                        let mut mbuf = port.pool.alloc_copy(part).unwrap();
                        if let Some(rest) = chain.take() {
                            mbuf.attach(rest);
                        }
                        chain = Some(mbuf);
                    }
                    port.tx.post(chain.unwrap(), Offload::NONE).unwrap();
                    port.tx.ring_doorbell(port.now);
                }
                assert!(port.until(|port| (port.tx.reap(), port.tx.in_flight()).1 == 0));
                assert_eq!(port.pool.in_use(), 256, "all but the fill ring is home");
            });
            let frames = port.receive_some(20);
            assert_eq!(frames.len(), 20, "{mode:?}");
            assert!(frames.iter().all(|frame| *frame == whole), "{mode:?}");
            assert_eq!((port.pool.in_use(), port.pool.drops_without_reason()), (256, 0));
        });
    }
}

#[test]
fn empty_pool_loses_nothing_unnamed() {
    let Some(wire) = wire("empty_pool_loses_nothing_unnamed") else { return };
    const FRAMES: u64 = 1_000;
    wire.far.run(|| {
        let mut port = Port::open(&config("veth1"), &[EXPERIMENT]);
        let hoard: Vec<Mbuf> = std::iter::from_fn(|| port.pool.alloc()).collect();
        wire.near.run(|| {
            let mut port = Port::open(&config("veth0"), &[]);
            for number in 0..FRAMES {
                assert!(port.until(|port| port.tx.room() > 0) && port.send(&frame(number, 64)));
            }
            assert!(port.until(|port| (port.tx.reap(), port.tx.in_flight()).1 == 0));
        });
        // Starved: the frames that the kernel has buffers for come, and are kept; then nothing
        // comes any more.
        let mut kept: Vec<Mbuf> = Vec::new();
        while kept.len() < 256 {
            kept.extend(port.burst());
        }
        assert!(port.burst().is_empty() && port.count("rx/nombuf") > 0);
        hoard.into_iter().chain(kept).for_each(Mbuf::free);
        assert!(port.until(|port| {
            port.receive();
            port.count("rx/frames") + port.count("rx/drop/kernel_dropped") + port.count("rx/drop/rx_ring_full")
                == FRAMES
        }));
        assert_eq!(port.pool.drops_without_reason(), 0);
        // And it goes on.
        wire.near.run(|| assert!(Port::open(&config("veth0"), &[]).send(&frame(7, 64))));
        assert_eq!(number(&port.receive_some(1)[0]), 7);
    });
}

#[test]
fn frames_that_come_one_at_a_time_find_room_for_ever() {
    let Some(wire) = wire("frames_that_come_one_at_a_time_find_room_for_ever") else { return };
    let sender = wire.near.run(|| UdpSocket::bind("10.9.0.1:5000").unwrap());
    for mode in [Mode::Native, Mode::Generic] {
        wire.far.run(|| {
            let mut port =
                Port::open(&AfXdpConfig { mode, ..config("veth1") }, &[Rule::udp(Ipv4Addr::new(10, 9, 0, 2), 9000)]);
            // More than twice around rings of 256.
            for number in 0..600_u32 {
                sender.send_to(&number.to_be_bytes(), "10.9.0.2:9000").unwrap();
                let frames = port.receive_some(1);
                assert_eq!((frames.len(), &frames[0][42..46]), (1, &number.to_be_bytes()[..]), "{mode:?}");
            }
            // Buffers of few frames are returned with the next turn, even if that receives no
            // frame.
            assert!(port.burst().is_empty());
            assert_eq!((port.pool.in_use(), port.pool.drops_without_reason()), (256, 0), "{mode:?}");
            let lost = ["rx/drop/kernel_dropped", "rx/drop/rx_ring_full", "rx/kernel_fill_empty"];
            assert_eq!(lost.map(|name| port.count(name)), [0; 3], "{mode:?}");
        });
    }
}

#[test]
fn link_that_flaps_goes_on() {
    let Some(wire) = wire("link_that_flaps_goes_on") else { return };
    wire.far.run(|| {
        let mut port = Port::open(&config("veth1"), &[EXPERIMENT]);
        assert_eq!(port.rx.state(), RxState::Open);
        wire.near.ip(&["link", "set", "veth0", "down"]).unwrap();
        assert!(port.until(|port| (port.receive(), port.rx.state()).1 == RxState::LinkDown));
        assert!(port.send(&frame(1, 64)), "a frame is taken while the link is down");
        wire.near.ip(&["link", "set", "veth0", "up"]).unwrap();
        assert!(port.until(|port| (port.receive(), port.rx.state()).1 == RxState::Open));
        wire.far.ip(&["link", "set", "veth1", "down"]).unwrap();
        assert!(port.until(|port| (port.receive(), port.rx.state()).1 == RxState::LinkDown));
        wire.far.ip(&["link", "set", "veth1", "up"]).unwrap();
        wire.near.run(|| assert!(Port::open(&config("veth0"), &[]).send(&frame(2, 64))));
        assert_eq!(number(&port.receive_some(1)[0]), 2);
        assert!(port.until(|port| (port.receive(), port.tx.in_flight()).1 == 0));
    });
}

#[test]
fn interface_may_be_renamed() {
    let Some(wire) = wire("interface_may_be_renamed") else { return };
    wire.far.run(|| {
        let mut port = Port::open(&config("veth1"), &[EXPERIMENT]);
        wire.far.ip(&["link", "set", "veth1", "name", "md0"]).unwrap();
        wire.near.run(|| assert!(Port::open(&config("veth0"), &[]).send(&frame(3, 64))));
        assert_eq!(number(&port.receive_some(1)[0]), 3);
        assert_eq!(port.rx.state(), RxState::Open);
        port.device.steer(&Rule::arp(), 0).unwrap();
    });
}

#[test]
fn namespace_that_is_deleted_ends_the_queue() {
    let Some(Wire { near, far }) = wire("namespace_that_is_deleted_ends_the_queue") else { return };
    let name = far.name().to_owned();
    std::thread::scope(|scope| {
        let (opened, wait) = std::sync::mpsc::channel();
        let ended = scope.spawn(move || {
            netns::enter(&name).unwrap();
            let mut port = Port::open(&config("veth1"), &[EXPERIMENT]);
            opened.send(()).unwrap();
            assert!(port.until(|port| (port.receive(), port.rx.state()).1 == RxState::Ended));
            // Sent frames are accepted and counted as lost; rules may still change.
            port.send(&frame(1, 64));
            assert!(port.until(|port| (port.tx.reap(), port.tx.in_flight()).1 == 0));
            port.device.steer(&Rule::arp(), 0).unwrap();
            let Port { rx, tx, device, pool, .. } = port;
            drop((rx, tx, device));
            (pool.in_use(), pool.drops_without_reason())
        });
        wait.recv().unwrap();
        // The thread keeps the namespace itself alive; the interface goes with its peer.
        near.ip(&["link", "del", "veth0"]).unwrap();
        far.remove();
        assert_eq!(ended.join().unwrap(), (0, 0));
    });
}

/// Not a test by itself: the second process, whose task is in the environment.
#[test]
fn in_a_process_of_its_own() {
    let Ok(namespace) = std::env::var("WIREPATH_TEST_NAMESPACE") else { return };
    netns::enter(&namespace).unwrap();
    let mut port = Port::open(&config("veth1"), &[EXPERIMENT]);
    eprintln!("attached");
    loop {
        port.receive();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Not a test by itself: prints the error that a process gets which lacks something.
#[test]
fn refused_in_a_process_of_its_own() {
    if std::env::var_os("WIREPATH_TEST_REFUSED").is_none() {
        return;
    }
    let tried = AfXdpDevice::open(&config("veth1")).and_then(|mut device| {
        device
            .steer(&Rule::udp(GROUP, 9000), 0)
            .map_err(|error| DeviceError::new(DeviceErrorKind::from(&error), error.to_string()))?;
        let pool = pool(1024, 2048);
        device.take_queue(0)?.open(&pool, &Block::heap().scope("port")).map(drop)
    });
    match tried {
        Ok(()) => eprintln!("said: nothing, it is open"),
        Err(_) => eprintln!("said: {}", sentence(tried)),
    }
}

/// The error that this test's program prints when `program` starts it in the far namespace.
fn told(far: &Namespace, program: &str, arguments: &[&str]) -> String {
    let own = std::env::current_exe().unwrap();
    // A user without rights may not read our directory.
    let copy = std::env::temp_dir().join(format!("{}.test", far.name()));
    std::fs::copy(own, &copy).unwrap();
    let test = [copy.to_str().unwrap(), "--exact", "refused_in_a_process_of_its_own", "--nocapture"];
    let environment = ["WIREPATH_TEST_REFUSED=1", program];
    let run = || {
        let output = far.command("env", &[&environment[..], arguments, &test].concat()).unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let mut said = run();
    // A process that another test is just starting still has the copy open to write.
    while said.contains("Text file busy") {
        std::thread::sleep(Duration::from_millis(20));
        said = run();
    }
    std::fs::remove_file(copy).unwrap();
    said
}

#[test]
fn lack_of_rights_is_told_with_what_grants_them() {
    let test = "lack_of_rights_is_told_with_what_grants_them";
    let Some(wire) = wire(test) else { return };
    if !wire.far.command("which", &["setpriv", "prlimit"]).is_ok_and(|output| output.status.success()) {
        return println!("SKIPPED {test}: there is no setpriv or prlimit (util-linux) here");
    }
    let check = |said: String, expected: &str| assert!(said.contains(expected), "{said}");
    check(told(&wire.far, "setpriv", &["--reuid", "65534", "--clear-groups"]), "cap_net_admin,cap_net_raw,cap_bpf");
    let without = |capability: &str| format!("--bounding-set=-{capability}");
    check(told(&wire.far, "setpriv", &[&without("net_raw")]), "no permission for opening an AF_XDP socket");
    check(told(&wire.far, "setpriv", &[&without("bpf,-sys_admin")]), "no permission for making a BPF map");
    check(told(&wire.far, "setpriv", &[&without("net_admin,-sys_admin")]), "no permission for making a BPF map");
    // A program without rules computes nothing, so the verifier refuses only the first rule.
    let without_perfmon = told(&wire.far, "setpriv", &[&without("perfmon,-sys_admin")]);
    check(without_perfmon.clone(), "no permission for this rule: run as root");
    check(without_perfmon, &format!("setcap {}+ep", AfXdpConfig::CAPABILITIES));
    check(told(&wire.far, "prlimit", &["--memlock=65536", "setpriv", &without("ipc_lock")]), "ulimit -l unlimited");
    assert!(!has_program(&wire.far));
}

#[test]
fn what_the_sentence_grants_is_enough() {
    let test = "what_the_sentence_grants_is_enough";
    let Some(wire) = wire(test) else { return };
    if !wire.far.command("which", &["setpriv"]).is_ok_and(|output| output.status.success()) {
        return println!("SKIPPED {test}: there is no setpriv (util-linux) here");
    }
    let granted = AfXdpConfig::CAPABILITIES.replace("cap_", "+");
    let (inherited, ambient) = (format!("--inh-caps=-all,{granted}"), format!("--ambient-caps=-all,{granted}"));
    let said = told(&wire.far, "setpriv", &["--reuid", "65534", "--clear-groups", &inherited, &ambient]);
    assert!(said.contains("it is open"), "{said}");
}

struct KilledAtEnd(Child);

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Another process that has the far end, as `ip` shows it.
fn other_process(far: &Namespace) -> KilledAtEnd {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "in_a_process_of_its_own", "--nocapture"])
        .env("WIREPATH_TEST_NAMESPACE", far.name())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let child = KilledAtEnd(child);
    wait_until(|| has_program(far));
    child
}

#[test]
fn second_process_learns_who_has_the_interface() {
    let Some(wire) = wire("second_process_learns_who_has_the_interface") else { return };
    let other = other_process(&wire.far);
    let said = wire.far.run(|| sentence(AfXdpDevice::open(&config("veth1"))));
    assert!(said.contains(&format!("veth1 already has an XDP program, kept by process {}", other.0.id())), "{said}");
    let said = wire.far.run(|| {
        let _first = AfXdpDevice::open(&config("lo"));
        let _first = _first.unwrap();
        sentence(AfXdpDevice::open(&config("lo")))
    });
    assert!(said.contains("kept by this process"), "{said}");
}

#[test]
fn killed_process_leaves_nothing_behind() {
    let Some(wire) = wire("killed_process_leaves_nothing_behind") else { return };
    for _ in 0..3 {
        drop(other_process(&wire.far));
        wait_until(|| !has_program(&wire.far));
        wire.far.run(|| {
            let mut port = Port::open(&config("veth1"), &[EXPERIMENT]);
            wire.near.run(|| assert!(Port::open(&config("veth0"), &[]).send(&frame(4, 64))));
            assert_eq!(port.receive_some(1).len(), 1);
        });
        // A port that is dropped takes its program along.
        wait_until(|| !has_program(&wire.far));
    }
}

/// Receives from a queue until `done`, and counts in `ready` how often it has polled before the
/// first frame, and in `came` the frames. Returns their numbers.
fn numbers_received(queue: impl Queue, ready: &AtomicU64, came: &AtomicU64, done: &AtomicBool) -> Vec<u64> {
    let (pool, block) = (pool(1024, 2048), Block::heap());
    let (mut rx, _tx) = queue.open(&pool, &block.scope("q")).unwrap();
    let (mut burst, mut numbers) = (Burst::new(), Vec::new());
    let mut last = false;
    while !last {
        last = done.load(Ordering::Acquire);
        rx.receive(&mut burst, 32, &pool, Instant::from_nanos(1));
        let before = numbers.len();
        numbers.extend(burst.drain(..).map(|mbuf| (number(mbuf.bytes()), mbuf.free()).0));
        came.fetch_add((numbers.len() - before) as u64, Ordering::Release);
        if numbers.is_empty() {
            ready.fetch_add(1, Ordering::Release);
        }
        std::thread::yield_now();
    }
    numbers
}

#[test]
fn several_queues_have_a_worker_each() {
    let test = "several_queues_have_a_worker_each";
    let Ok(namespace) = Namespace::new() else { return println!("SKIPPED {test}: no namespace; run as root") };
    let far = Namespace::new().unwrap();
    let queues = |name: &str| {
        format!(
            "link add {name} numtxqueues 2 numrxqueues 2 type veth peer name veth1 netns {} numtxqueues 2 numrxqueues 2",
            far.name()
        )
    };
    namespace.ip(&queues("veth0").split(' ').collect::<Vec<_>>()).unwrap();
    namespace.ip(&["link", "set", "veth0", "up"]).unwrap();
    far.ip(&["link", "set", "veth1", "up"]).unwrap();
    far.run(|| {
        let mut device = AfXdpDevice::open(&config("veth1")).unwrap();
        assert_eq!(device.capabilities().queues, 2, "{}", device.describe());
        assert!(matches!(device.take_queue(2), Err(DeviceError::NoQueue { queues: 2, .. })));
        let queues = [device.take_queue(0).unwrap(), device.take_queue(1).unwrap()];
        assert!(matches!(device.take_queue(1), Err(DeviceError::QueueTaken { .. })));
        (0..2).for_each(|idx| _ = device.steer(&EXPERIMENT, idx).unwrap());
        let (ready, came, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let received: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let workers = queues.map(|queue| {
                let (ready, came, done) = (&ready, &came, &done);
                scope.spawn(move || numbers_received(queue, ready, came, done))
            });
            wait_until(|| ready.load(Ordering::Acquire) > 50);
            namespace.run(|| {
                // A queue of the sender ends in the same queue of its veth peer.
                let mut device = AfXdpDevice::open(&config("veth0")).unwrap();
                for idx in 0..2u16 {
                    let (pool, block) = (pool(1024, 2048), Block::heap());
                    let (_rx, mut tx) = device.take_queue(idx).unwrap().open(&pool, &block.scope("q")).unwrap();
                    for number in 0..100 {
                        let mbuf = pool.alloc_copy(&frame(u64::from(idx) * 1000 + number, 64)).unwrap();
                        tx.post(mbuf, Offload::NONE).unwrap();
                        tx.ring_doorbell(Instant::ZERO);
                    }
                    wait_until(|| came.load(Ordering::Acquire) >= 100 * u64::from(idx + 1));
                }
            });
            done.store(true, Ordering::Release);
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        let expected: Vec<Vec<u64>> = vec![(0..100).collect(), (1000..1100).collect()];
        assert_eq!(received, expected);
    });
}

#[test]
fn set_up_that_cannot_work_says_what_to_do() {
    let Some(wire) = wire("set_up_that_cannot_work_says_what_to_do") else { return };
    let check = |said: String, expected: &str| assert!(said.contains(expected), "{said}\nlacks: {expected}");
    wire.far.run(|| {
        check(sentence(AfXdpDevice::open(&config("eth99"))), "there is no interface eth99");
        check(sentence(AfXdpDevice::open(&config(""))), "there is no interface");
        check(sentence(AfXdpDevice::open(&AfXdpConfig { rx_ring_len: 100, ..config("veth1") })), "power of two");
        check(sentence(AfXdpDevice::open(&AfXdpConfig { mode: Mode::Native, ..config("lo") })), "Mode::Generic");
        let refused = |config: &AfXdpConfig, pool: &Pool| {
            let mut device = open(config);
            sentence(device.take_queue(0).unwrap().open(pool, &Block::heap().scope("port")))
        };
        check(refused(&config("veth1"), &Pool::heap(1024).unwrap()), "Layout::umem(2048)");
        check(refused(&config("veth1"), &pool(256, 2048)), "AfXdpConfig::rx_ring_len smaller");
        let zero_copy = AfXdpConfig { copying: CopyMode::ZeroCopy, ..config("veth1") };
        check(refused(&zero_copy, &pool(1024, 2048)), "CopyMode::Auto");
        let mut device = AfXdpDevice::open(&config("lo")).unwrap();
        assert!(device.describe().contains("generic XDP"), "{}", device.describe());
        let protocol = Rule { protocol: Some(Protocol::UDP), ..Rule::ALL };
        check(device.steer(&protocol, 0).unwrap_err().to_string(), "add the EtherType");
        let mut small = open(&AfXdpConfig { rules_max: 1, ..config("veth1") });
        small.steer(&Rule::arp(), 0).unwrap();
        check(small.steer(&Rule::igmp(), 0).unwrap_err().to_string(), "holds 1 rules");
    });
}
