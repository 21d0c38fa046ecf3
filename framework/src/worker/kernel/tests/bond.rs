//! Bonds in active-backup mode, from the kernel's bytes to the worker. No available kernel has
//! bonding, so these messages were not sent by one: they are built from linux/rtnetlink.h,
//! linux/if_link.h and linux/if_bonding.h, attribute by attribute as bond_fill_info
//! (drivers/net/bonding/bond_netlink.c) writes them.

use super::config;
use crate::counters::Block;
use crate::device::bond::{BondDevice, BondRx};
use crate::device::memory::{MemoryConfig, MemoryRx, MemoryTx, pair};
use crate::device::{Device, Offload, Queue, RxQueue, TxQueue};
use crate::mem::{Burst, Pool};
use crate::proto::{HashSeed, Host};
use crate::time::Instant;
use crate::worker::kernel::follower::{Follower, LinkState};
use crate::worker::kernel::host_sync::HostSync;
use crate::worker::kernel::socket::{NetlinkEvents, read};
use crate::worker::kernel::tables::Tables;
use crate::worker::kernel::view::View;
use crate::worker::spsc::lossless;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const ACTIVE_BACKUP: u8 = 1;
const BALANCE_RR: u8 = 0;
const BOND: u32 = 24;
const LEFT: u32 = 7;
const RIGHT: u32 = 8;

/// The worker that follows bond0.
struct Scene {
    tables: Tables,
    host_sync: HostSync,
    follower: Follower,
    host: Host,
}

impl Scene {
    /// bond0 with two legs, of which the left one is active.
    fn new() -> Self {
        let (producer, consumer) = lossless::ring(64).unwrap();
        let mut scene = Self {
            tables: Tables::default(),
            host_sync: HostSync::new(config(), producer).unwrap(),
            follower: Follower::new(consumer, lossless::ring(4).unwrap().0),
            host: Host::new(config(), HashSeed::new(1, 2)).unwrap(),
        };
        scene.receive(&[bond(ACTIVE_BACKUP, Some(LEFT), 0), leg(LEFT, BOND), leg(RIGHT, BOND), leg(9, 0)].concat());
        scene
    }

    /// The worker's link state after a datagram of the kernel.
    fn receive(&mut self, datagram: &[u8]) -> LinkState {
        self.tell(datagram);
        while self.follower.catch_up(&mut self.host) > 0 {}
        self.follower.link()
    }

    /// Passes a datagram of the kernel through the mirror.
    fn tell(&mut self, datagram: &[u8]) {
        let mut undecoded = 0;
        let NetlinkEvents::Changes(changes) = read(datagram, &mut undecoded) else { panic!("a gap") };
        assert_eq!(undecoded, 0);
        for change in changes {
            self.tables.apply(change);
        }
        let view = View::of(&self.tables, self.tables.link_named("bond0").map(|link| link.idx));
        self.host_sync.update(&view, |_| false).unwrap();
    }

    /// One turn of the worker; returns whether its host has a link.
    fn turn(&mut self) -> bool {
        self.follower.catch_up(&mut self.host);
        self.host.is_up()
    }
}

/// The legs of `link` that are standby.
fn standby(link: LinkState) -> Vec<u32> {
    [LEFT, RIGHT].into_iter().filter(|leg| link.is_standby(*leg)).collect()
}

#[test]
fn worker_on_a_leg_knows_whether_it_is_the_active_one() {
    let scene = Scene::new();
    let link = scene.follower.link();
    assert_eq!((link.active_leg, link.legs()), (Some(LEFT), [LEFT, RIGHT].as_slice()));
    assert_eq!(standby(link), [RIGHT]);
    assert!(!link.is_standby(BOND), "the bond itself delivers what its active leg received");
}

#[test]
fn failover_is_told_as_one_change() {
    let mut scene = Scene::new();
    let before = scene.follower.link_changes();
    assert_eq!(standby(scene.receive(&bond(ACTIVE_BACKUP, Some(RIGHT), 0))), [LEFT]);
    assert_eq!(scene.follower.link_changes(), before + 1);
    scene.receive(&bond(ACTIVE_BACKUP, Some(RIGHT), 0));
    assert_eq!(scene.follower.link_changes(), before + 1);
}

#[test]
fn failover_is_one_turn_without_a_link_so_that_nodes_tell_the_other_switch_port_of_us() {
    let mut scene = Scene::new();
    assert!(scene.turn());
    scene.tell(&bond(ACTIVE_BACKUP, Some(RIGHT), 0));
    assert_eq!([scene.turn(), scene.turn(), scene.turn()], [false, true, true]);
    scene.tell(&bond(ACTIVE_BACKUP, Some(RIGHT), 0));
    assert!(scene.turn(), "nothing has changed");
    // A failover and back before the worker has polled.
    scene.tell(&bond(ACTIVE_BACKUP, Some(LEFT), 0));
    scene.tell(&bond(ACTIVE_BACKUP, Some(RIGHT), 0));
    assert_eq!([scene.turn(), scene.turn()], [false, true]);
}

#[test]
fn bond_without_a_working_leg_takes_nothing() {
    let link = Scene::new().receive(&bond(ACTIVE_BACKUP, None, 0));
    assert_eq!((link.active_leg, standby(link)), (None, vec![LEFT, RIGHT]));
}

#[test]
fn other_modes_and_all_slaves_active_have_no_standby_leg() {
    let mut scene = Scene::new();
    assert_eq!(standby(scene.receive(&bond(ACTIVE_BACKUP, Some(LEFT), 1))), []);
    assert_eq!(standby(scene.receive(&bond(BALANCE_RR, None, 0))), []);
}

#[test]
fn leg_that_leaves_the_bond_is_none_of_its_legs() {
    let mut scene = Scene::new();
    assert_eq!(scene.receive(&leg(LEFT, 0)).legs(), [RIGHT]);
    assert_eq!(scene.receive(&message(RTM_DELLINK, &link_body(RIGHT, "right", &[]))).legs(), []);
}

#[test]
fn more_legs_than_are_named_are_known_to_be_standby() {
    let mut scene = Scene::new();
    let more: Vec<u8> = (30..36).flat_map(|idx| leg(idx, BOND)).collect();
    let link = scene.receive(&more);
    assert_eq!(link.legs(), [LEFT, RIGHT, 30, 31]);
    assert!((30..36).all(|leg| link.is_standby(leg)));
}

#[test]
fn bond_that_is_gone_has_no_legs() {
    let mut scene = Scene::new();
    let link = scene.receive(&message(RTM_DELLINK, &link_body(BOND, "bond0", &[])));
    assert_eq!(link, LinkState::default());
}

/// A bond of two legs over memory, and the switch that floods each frame to both.
struct Legs {
    block: Block,
    pool: Pool,
    rx: BondRx<MemoryRx>,
    switch: Vec<MemoryTx>,
    // The far ends keep the wires open.
    _ends: (Vec<MemoryRx>, crate::device::bond::BondTx<MemoryTx>),
}

impl Legs {
    /// The scene's follower sets its active leg.
    fn new(scene: &mut Scene) -> Self {
        let (pool, block) = (Pool::heap(64).unwrap(), Block::heap());
        let (near, far): (Vec<_>, Vec<_>) = [0; 2].map(|_| pair("leg", MemoryConfig::default())).into_iter().unzip();
        let mut device = BondDevice::new("bond0", near).unwrap();
        scene.follower.steer_bond(device.active_leg(), vec![LEFT, RIGHT]);
        let (rx, tx) = device.take_queue(0).unwrap().open(&pool, &block.scope("port")).unwrap();
        let open = |mut far: crate::device::memory::MemoryDevice| {
            far.take_queue(0).unwrap().open(&pool, &block.scope("switch")).unwrap()
        };
        let (rxs, switch) = far.into_iter().map(open).unzip();
        Self { block, pool, rx, switch, _ends: (rxs, tx) }
    }

    /// Floods a frame to both legs; returns the legs that received it, and how many frames the
    /// standby legs have dropped.
    fn flood(&mut self) -> (Vec<u32>, u64) {
        for (tx, leg) in self.switch.iter_mut().zip([LEFT, RIGHT]) {
            let frame = self.pool.alloc_copy(&[leg as u8; 60]).unwrap();
            tx.post(frame, Offload::NONE).map_err(drop).unwrap();
            tx.ring_doorbell(Instant::ZERO);
        }
        let mut burst = Burst::new();
        self.rx.receive(&mut burst, 32, &self.pool, Instant::ZERO);
        let legs = burst.drain(..).map(|mbuf| (u32::from(mbuf.bytes()[0]), mbuf.free()).0).collect();
        (legs, self.block.snapshot().count("port/bond/drop/standby_leg").unwrap())
    }
}

#[test]
fn frames_are_received_by_the_leg_that_the_kernel_reports() {
    let mut scene = Scene::new();
    let mut legs = Legs::new(&mut scene);
    assert_eq!(legs.flood(), (vec![LEFT], 1));
    scene.receive(&bond(ACTIVE_BACKUP, Some(RIGHT), 0));
    assert_eq!(legs.flood(), (vec![RIGHT], 2));
    scene.receive(&bond(ACTIVE_BACKUP, None, 0));
    assert_eq!(legs.flood(), (vec![], 4));
    scene.receive(&bond(ACTIVE_BACKUP, Some(9), 0));
    assert_eq!(legs.flood(), (vec![], 6), "a leg that is not ours");
    scene.receive(&bond(ACTIVE_BACKUP, Some(LEFT), 0));
    assert_eq!(legs.flood(), (vec![LEFT], 7));
    scene.receive(&message(RTM_DELLINK, &link_body(BOND, "bond0", &[])));
    assert_eq!(legs.flood(), (vec![], 9));
    assert_eq!(legs.pool.drops_without_reason(), 0);
}

fn bond(mode: u8, active: Option<u32>, all_slaves_active: u8) -> Vec<u8> {
    let active = active.map(|leg| attribute(2, &leg.to_le_bytes())).unwrap_or_default(); // IFLA_BOND_ACTIVE_SLAVE
    let mode = attribute(1, &[mode]); // IFLA_BOND_MODE
    let all = attribute(17, &[all_slaves_active]); // IFLA_BOND_ALL_SLAVES_ACTIVE
    let data = attribute(2, &[mode, active, all].concat()); // IFLA_INFO_DATA
    let kind = attribute(1, b"bond\0"); // IFLA_INFO_KIND
    message(RTM_NEWLINK, &link_body(BOND, "bond0", &attribute(18, &[kind, data].concat()))) // IFLA_LINKINFO
}

fn leg(idx: u32, controller: u32) -> Vec<u8> {
    let controller = if controller == 0 { Vec::new() } else { attribute(10, &controller.to_le_bytes()) }; // IFLA_MASTER
    message(RTM_NEWLINK, &link_body(idx, &format!("leg{idx}"), &controller))
}

/// ifinfomsg of an Ethernet interface that is up, with its name, MAC address and MTU, and `more`.
fn link_body(idx: u32, name: &str, more: &[u8]) -> Vec<u8> {
    let (up, lower_up) = (0x1_u32, 0x1_0000);
    let mut body = vec![0, 0, 1, 0];
    body.extend(idx.to_le_bytes());
    body.extend((up | lower_up).to_le_bytes());
    body.extend([0; 4]);
    body.extend(attribute(3, &[name.as_bytes(), &[0]].concat())); // IFLA_IFNAME
    body.extend(attribute(4, &1500_u32.to_le_bytes())); // IFLA_MTU
    body.extend(attribute(1, &[2, 0, 0, 0, 0, idx as u8])); // IFLA_ADDRESS
    body.extend(more);
    body
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = 4 + value.len();
    let mut bytes = [&(len as u16).to_le_bytes()[..], &kind.to_le_bytes(), value].concat();
    bytes.resize(len.next_multiple_of(4), 0);
    bytes
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let len = 16 + body.len() as u32;
    [&len.to_le_bytes()[..], &kind.to_le_bytes(), &[0; 10], body].concat()
}
