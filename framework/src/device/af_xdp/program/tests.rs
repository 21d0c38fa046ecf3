//! The drivers' RX metadata, from the program to the mbuf. With made-up driver results the kernel
//! test-runs the program; the real driver of veth provides hashes and the tags that the sending
//! kernel kept beside its packets, and no timestamps.

use core::net::Ipv4Addr;
use std::io;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;

use zerocopy::IntoBytes;

use super::assembler::{Alu, Assembler, Helper, Reg};
use super::bpf::{LoadOptions, Map, MapKind, Program};
use super::generate::{Rules, Source, XdpAction, generate};
use super::kfuncs::{HintSource, Kfuncs};
use super::metadata::{self, RX_HINTS_LEN, TAG_LEN};
use super::steering::{Key, constants, shapes, tag_word};
use crate::counters::Block;
use crate::device::af_xdp::AfXdpConfig;
use crate::device::af_xdp::AfXdpDevice;
use crate::device::af_xdp::AfXdpRx;
use crate::device::af_xdp::AfXdpTx;
use crate::device::af_xdp::Mode;
use crate::device::af_xdp::interface::Interface;
use crate::device::af_xdp::rings::sys;
use crate::device::steering::Rule;
use crate::device::{Device, Queue, RxQueue};
use crate::mem::{Burst, Layout, Mbuf, Pool, Region, RxInfo};
use crate::time::{Instant, UnixTime};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

fn as_if(result: i32, values: [i32; 2]) -> Option<HintSource> {
    Some(HintSource::AsIf { result, values })
}

/// The kernel's result for a frame without the value.
const NONE: Option<HintSource> = Some(HintSource::AsIf { result: -libc::ENODATA, values: [0; 2] });

/// The metadata in the mbuf of `frame` after a program with this rule and these driver results, and
/// the number of bytes that the program wrote: `None` if the rule does not match. The result must
/// not depend on the position of the rule.
fn reported(rule: &Rule, frame: &[u8], kfuncs: Kfuncs) -> io::Result<Option<(RxInfo, usize)>> {
    let table = Map::create(MapKind::Hash, size_of::<Key>(), 4, 1)?;
    let sockets = Map::create(MapKind::Sockets, 4, 4, 1)?;
    table.update(Key::new(rule, 0).as_bytes(), tag_word(rule).as_bytes())?;
    let source = Source {
        shapes: &shapes([rule].into_iter()),
        rules: Rules::Table(table.raw_fd()),
        sockets_fd: sockets.raw_fd(),
        tags: rule.flow_tag.is_some(),
        kfuncs,
        frags: false,
        unclaimed: XdpAction::Drop,
    };
    let constants = constants([(rule, 0)].into_iter(), 1);
    let looked_up = told_by(&source, frame)?;
    let compared = told_by(&Source { rules: Rules::Constants(&constants), ..source }, frame)?;
    assert_eq!(looked_up, compared, "{rule} {frame:02x?}");
    Ok(looked_up)
}

fn told_by(source: &Source<'_>, frame: &[u8]) -> io::Result<Option<(RxInfo, usize)>> {
    let ran = match Program::load(&generate(source), LoadOptions::default()) {
        Ok(program) => program.test_run(frame, 1)?,
        Err(refused) => return Err(io::Error::other(format!("{}: {}", refused.error, refused.log))),
    };
    if ran.verdict != XdpAction::Drop as u32 {
        return Ok(None);
    }
    let pool = Pool::heap(1).unwrap();
    let written = ran.bytes.len() - frame.len();
    let mut mbuf = pool.alloc_copy(&ran.bytes).unwrap();
    mbuf.advance(written);
    let mbuf = metadata::read(mbuf);
    let info = mbuf.rx_info();
    mbuf.free();
    Ok(Some((info, written)))
}

fn skipped(test: &str) -> bool {
    match reported(&Rule::ALL, &[0; 60], [None; 3]) {
        Ok(_) => false,
        Err(error) => {
            println!("SKIPPED {test}: bpf(2) says {error}; run as root");
            true
        }
    }
}

#[test]
fn answers_of_the_driver_come_with_the_frame() {
    if skipped("answers_of_the_driver_come_with_the_frame") {
        return;
    }
    let check = |rule: &Rule, kfuncs, expected| {
        assert_eq!(reported(rule, &[0; 60], kfuncs).unwrap(), Some(expected), "{kfuncs:?}");
    };
    let nothing = RxInfo::default();
    let (at, hash, vlan) = (as_if(0, [0x7123_4567, 0]), as_if(0, [0x0abc_def0, 4]), as_if(0, [0x0081, 0x6007]));
    let timestamp = Some(UnixTime::from_nanos(0x7123_4567));
    let all = RxInfo { timestamp, hash: Some(0x0abc_def0), vlan: Some(0x6007), ..nothing };
    check(&Rule::ALL, [None; 3], (nothing, 0));
    check(&Rule::ALL.tagged(9), [None; 3], (RxInfo { flow_tag: Some(9), ..nothing }, TAG_LEN));
    check(&Rule::ALL, [at, hash, vlan], (all, RX_HINTS_LEN));
    check(&Rule::ALL.tagged(0), [at, hash, vlan], (RxInfo { flow_tag: Some(0), ..all }, RX_HINTS_LEN));
    check(&Rule::ALL, [at, None, None], (RxInfo { timestamp, ..nothing }, RX_HINTS_LEN));
    check(&Rule::ALL, [NONE, NONE, vlan], (RxInfo { vlan: Some(0x6007), ..nothing }, RX_HINTS_LEN));
}

#[test]
fn driver_without_an_answer_leaves_the_frame_as_it_is() {
    if skipped("driver_without_an_answer_leaves_the_frame_as_it_is") {
        return;
    }
    let check = |kfuncs| {
        let expected = RxInfo { flow_tag: Some(7), ..RxInfo::default() };
        assert_eq!(
            reported(&Rule::ALL.tagged(7), &[0; 60], kfuncs).unwrap(),
            Some((expected, RX_HINTS_LEN)),
            "{kfuncs:?}"
        );
    };
    check([NONE; 3]);
    // A frame without a timestamp, and a hash of type 0.
    check([as_if(0, [0, 0]), as_if(0, [5, 0]), NONE]);
    // A value with an error code is ignored.
    check([as_if(-libc::EOPNOTSUPP, [5, 5]); 3]);
}

#[test]
fn tag_that_the_nic_took_off_is_the_outermost() {
    if skipped("tag_that_the_nic_took_off_is_the_outermost") {
        return;
    }
    let frame = |tags: &[[u8; 4]]| [&[0; 12][..], &tags.concat(), &[0x88, 0xb5], &[0; 46]].concat();
    let (untagged, on_vlan_9) = (frame(&[]), frame(&[[0x81, 0, 0x20, 9]]));
    let check = |rule: Rule, frame: &[u8], vlan, expected: bool| {
        let info = reported(&rule, frame, [None, None, vlan]).unwrap();
        assert_eq!(info.is_some(), expected, "{rule} {frame:02x?} {vlan:?}");
    };
    let taken_off = as_if(0, [0x0081, 0x6007]);
    check(Rule::ALL.on_vlan(7), &untagged, taken_off, true);
    check(Rule::ALL.on_vlan(7), &on_vlan_9, taken_off, true);
    check(Rule::ALL.on_vlan(9), &on_vlan_9, taken_off, false);
    check(Rule::ALL.on_vlan(9), &on_vlan_9, NONE, true);
    check(Rule::ALL.on_vlan(9), &on_vlan_9, None, true);
    check(Rule::ALL.on_vlan(0), &untagged, NONE, false);
    check(Rule::ALL.on_vlan(0), &untagged, as_if(0, [0x0081, 0x6000]), true);
    check(Rule::arp().on_vlan(7), &untagged, taken_off, false);
}

/// A port on `veth1`, open and polled; the UDP packets of this thread's namespace reach it through
/// `veth0`.
struct Rig {
    rx: AfXdpRx,
    _tx: AfXdpTx,
    device: AfXdpDevice,
    pool: Pool,
    _block: Block,
}

impl Rig {
    fn open(config: &AfXdpConfig, rule: Rule) -> Self {
        let config = AfXdpConfig { rx_ring_len: 256, tx_ring_len: 64, ..config.clone() };
        let mut device = AfXdpDevice::open(&config).unwrap();
        device.steer(&rule, 0).unwrap();
        let layout = Layout::umem(2048);
        let pool = Pool::new(Arc::new(Region::heap(layout.region_len(512)).unwrap()), layout).unwrap();
        let block = Block::heap();
        let (mut rx, tx) = device.take_queue(0).unwrap().open(&pool, &block.scope("port")).unwrap();
        rx.receive(&mut Burst::new(), 1, &pool, Instant::from_nanos(1));
        Self { rx, _tx: tx, device, pool, _block: block }
    }

    /// The metadata and bytes of the next frame, if one arrives soon.
    fn receive(&mut self) -> Option<(RxInfo, Vec<u8>)> {
        let start = std::time::Instant::now();
        let mut burst = Burst::new();
        while burst.is_empty() && start.elapsed().as_secs() < 40 {
            self.rx.receive(&mut burst, 1, &self.pool, Instant::from_nanos(1));
            std::thread::yield_now();
        }
        burst.drain(..).map(|mbuf| ((mbuf.rx_info(), mbuf.bytes().to_vec()), Mbuf::free(mbuf)).0).next()
    }
}

/// Runs `act` in a namespace with `veth0` and `veth1`, where packets to the group leave by `veth0`.
fn on_veth(test: &str, act: impl FnOnce() + Send + 'static) {
    let ran = std::thread::spawn(move || {
        sys::leave_namespace().map_err(|error| format!("{error}; run as root"))?;
        for command in [
            "link add veth0 type veth peer name veth1",
            "link set veth0 up",
            "link set veth1 up",
            "addr add 10.9.0.1/24 dev veth0",
            "route add 239.0.0.0/8 dev veth0",
        ] {
            let output = Command::new("ip").args(command.split(' ')).output().map_err(|error| error.to_string())?;
            assert!(output.status.success(), "ip {command}: {}", String::from_utf8_lossy(&output.stderr));
        }
        act();
        Ok::<(), String>(())
    });
    match ran.join() {
        Ok(Ok(())) => {}
        Ok(Err(why)) => println!("SKIPPED {test}: {why}"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn send() {
    UdpSocket::bind("10.9.0.1:5000").unwrap().send_to(b"told", (GROUP, 9000)).unwrap();
}

#[test]
fn veth_is_asked_and_tells_the_hash_but_no_arrival_time() {
    on_veth("veth_is_asked_and_tells_the_hash_but_no_arrival_time", || {
        let config = AfXdpConfig { rx_timestamps: true, rx_hash: true, ..AfXdpConfig::new("veth1") };
        let mut rig = Rig::open(&config, Rule::udp(GROUP, 9000).tagged(3));
        let words = rig.device.describe();
        if Interface::find("veth1").unwrap().driver.rx_hints != [true; 3] || words.contains("CONFIG_DEBUG_INFO_BTF") {
            return println!("SKIPPED veth_is_asked_and_tells_the_hash_but_no_arrival_time: {words}");
        }
        let rx = rig.device.capabilities().rx;
        assert!(rx.timestamp && rx.hash && rx.vlan, "{words}");
        assert!(words.contains("which could not be enabled: Operation not supported"), "{words}");
        let mut hashes = Vec::new();
        for _ in 0..2 {
            send();
            let (info, frame) = rig.receive().unwrap();
            assert_eq!((info.timestamp, info.vlan, info.flow_tag), (None, None, Some(3)));
            assert_eq!(&frame[42..46], b"told");
            hashes.push(info.hash.unwrap());
        }
        assert_eq!(hashes[0], hashes[1], "one flow has one hash");
        // Rules of other shapes use other programs, which request the metadata too.
        rig.device.steer(&Rule::igmp().on_vlan(7), 0).unwrap();
        send();
        assert_eq!(rig.receive().unwrap().0.hash, Some(hashes[0]));
    });
}

#[test]
fn nothing_is_asked_behind_the_driver() {
    on_veth("nothing_is_asked_behind_the_driver", || {
        let config = AfXdpConfig { rx_timestamps: true, mode: Mode::Generic, ..AfXdpConfig::new("veth1") };
        let mut rig = Rig::open(&config, Rule::udp(GROUP, 9000));
        let words = rig.device.describe();
        assert!(words.contains("no arrival times: a program behind the driver cannot ask it"), "{words}");
        assert!(words.contains("`ethtool -K veth1 rxvlan off`"), "{words}");
        assert!(!rig.device.capabilities().rx.timestamp);
        send();
        assert_eq!(rig.receive().unwrap().0, RxInfo::default());
    });
}

/// Attaches a program to `veth0` that gives every packet a VLAN tag outside its bytes, as the
/// kernel's VLAN interfaces do. veth delivers it in the same form, like a NIC that strips tags.
///
/// A test detaches the link before it attaches another program: dropping the link is not enough,
/// because a child that another thread is just starting has the descriptor until its `exec`.
fn tag_beside_the_frame(tci: i32) -> (Program, super::bpf::BpfLink) {
    let mut asm = Assembler::default();
    asm.mov(Reg::R2, i32::from(0x8100u16.to_be()));
    asm.mov(Reg::R3, tci);
    asm.call(Helper::VlanPush);
    // TCX_PASS
    asm.mov(Reg::R0, 0);
    asm.alu(Alu::And, Reg::R0, 0);
    asm.exit();
    Program::on_the_way_out(&asm.finish(), Interface::find("veth0").unwrap().index).unwrap()
}

#[test]
fn tag_beside_the_frame_is_matched_and_reaches_us() {
    let test = "tag_beside_the_frame_is_matched_and_reaches_us";
    on_veth(test, move || {
        let mut rig = Rig::open(&AfXdpConfig::new("veth1"), Rule::udp(GROUP, 9000).on_vlan(7));
        if !rig.device.capabilities().rx.vlan {
            return println!("SKIPPED {test}: {}", rig.device.describe());
        }
        let (_program, link) = tag_beside_the_frame(0x2008);
        send();
        link.detach().unwrap();
        let (_program, link) = tag_beside_the_frame(0x6007);
        send();
        let (info, frame) = rig.receive().unwrap();
        assert_eq!((info.vlan, &frame[12..14]), (Some(0x6007), &[0x08, 0x00][..]));
        // A rule without a VLAN matches them all, with their tags.
        rig.device.steer(&Rule::udp(GROUP, 9000).from(Ipv4Addr::new(10, 9, 0, 1)), 0).unwrap();
        link.detach().unwrap();
        let _other = tag_beside_the_frame(0x2008);
        send();
        assert_eq!(rig.receive().unwrap().0.vlan, Some(0x2008));
    });
}

#[test]
fn rules_from_another_namespace_are_refused_where_the_driver_is_asked() {
    let test = "rules_from_another_namespace_are_refused_where_the_driver_is_asked";
    on_veth(test, move || {
        let mut rig = Rig::open(&AfXdpConfig::new("veth1"), Rule::udp(GROUP, 9000));
        if !rig.device.capabilities().rx.vlan {
            return println!("SKIPPED {test}: {}", rig.device.describe());
        }
        let sender = UdpSocket::bind("10.9.0.1:5000").unwrap();
        sys::leave_namespace().unwrap();
        assert!(rig.device.steer(&Rule::arp(), 0).is_err());
        // A change of the map alone has no effect on it.
        let second = rig.device.steer(&Rule::udp(GROUP, 9001), 0).unwrap();
        sender.send_to(b"told", (GROUP, 9000)).unwrap();
        assert!(rig.receive().is_some(), "the program that looks rules up has taken over");
        sender.send_to(b"told", (GROUP, 9001)).unwrap();
        assert!(rig.receive().is_some(), "and knows the rule that came from there");
        rig.device.unsteer(second).unwrap();
    });
}
