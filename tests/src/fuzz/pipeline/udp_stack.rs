//! The whole pipeline: frames of any bytes through the device with faults to the app, while
//! consumers join and leave. However it goes: received = delivered + Σ named drops + still held,
//! and no buffer is lost.

use std::net::{Ipv4Addr, SocketAddrV4};

use wirepath::device::Queue;
use wirepath::device::fault::{FaultConfig, FaultDevice, Faults};
use wirepath::pipeline::Node;
use wirepath::proto::{FilterMode, Flow, Group, InterfaceId, Sharing};
use wirepath::time::Duration;

use crate::frames::mend;
use crate::fuzz::Input;
use crate::rig::{Listener, OURS, PEER, Rig, RigConfig, consumer};

/// The groups that consumers join, and that the seeds send to.
pub(in crate::fuzz) const GROUPS: [Ipv4Addr; 2] = [Ipv4Addr::new(239, 1, 2, 3), Ipv4Addr::new(233, 215, 21, 4)];
/// The ports.
pub(in crate::fuzz) const PORTS: [u16; 2] = [1_000, 1_001];

/// The kind of a step: its first byte, by the remainder.
pub(in crate::fuzz) mod step {
    pub(crate) const FRAME: u8 = 0;
    pub(crate) const MENDED_FRAME: u8 = 1;
    pub(crate) const POLL: u8 = 2;
    pub(crate) const JOIN: u8 = 3;
    pub(crate) const LEAVE: u8 = 4;
    pub(crate) const TAKE_SENT: u8 = 5;
    pub(crate) const COUNT: u8 = 6;
}

/// Bytes that configure the rig, before the first step.
pub(in crate::fuzz) const CONFIG_LEN: usize = 6;

/// Steps: a frame with its length in front, a poll, a join, a leave.
pub(in crate::fuzz) fn pipeline(data: &[u8]) {
    let mut input = Input::new(data);
    let config = RigConfig {
        buffers: input.pick(&[1, 2, 4, 16, 64]),
        held_max: input.below(4).into(),
        answers: input.u8() & 1 == 1,
        ..RigConfig::default()
    };
    let faults = faults(&mut input);
    let duplicates = faults.tx.duplication > 0.0;
    let mut rig = Rig::new(config, |wire| FaultDevice::new(wire, faults).expect("probabilities up to one"));
    rig.with_app(|_, cx| {
        cx.sockets.join(consumer(0), Group::new(GROUPS[0], PORTS[0])).expect("there is room");
        cx.sockets.bind(consumer(1), SocketAddrV4::new(OURS, PORTS[0]), Sharing::Shared).expect("there is room");
    });
    while !input.is_empty() {
        match input.below(step::COUNT) {
            step::FRAME => {
                rig.inject(input.block());
            }
            step::MENDED_FRAME => {
                let mut frame = input.block().to_vec();
                mend(&mut frame);
                rig.inject(&frame);
            }
            step::POLL => {
                let micros = input.u8();
                rig.poll(Duration::from_micros(micros.into()));
                // Reading all counters costs a hundred polls.
                if micros.is_multiple_of(8) {
                    rig.assert_conserved();
                }
            }
            step::JOIN => join(&mut input, &mut rig),
            step::LEAVE => leave(&mut input, &mut rig),
            _ => {
                rig.take_sent(|_| ());
            }
        }
    }
    rig.settle();
    // The sending half keeps spare buffers for duplicates, as many as it can get.
    let stock = rig.worker.pool().in_use();
    assert!(stock == 0 || duplicates && stock <= 16);
    rig.assert_settled(stock);
}

/// Faults by the bits of one byte; half of the inputs have none, so that the pipeline itself is
/// looked at.
fn faults(input: &mut Input<'_>) -> FaultConfig {
    let bits = input.u8();
    let has = |bit: u8, probability: f64| if bits & 0x80 != 0 && bits & 1 << bit != 0 { probability } else { 0.0 };
    let (seed, delay_max) = (input.u8().into(), Duration::from_micros(input.u8().into()));
    let faults = Faults {
        loss: has(0, 0.2),
        duplication: has(1, 0.3),
        corruption: has(2, 0.3),
        reordering: has(3, 0.3),
        delay: has(4, 0.3),
        ring_full: has(5, 0.05),
        delay_max,
        ..Faults::NONE
    };
    FaultConfig { seed, rx: faults, tx: faults }
}

pub(in crate::fuzz) fn join<Q: Queue, N: Node<Listener>>(input: &mut Input<'_>, rig: &mut Rig<Q, N>) {
    let (consumer, kind) = (consumer(input.below(4)), input.below(6));
    let (group, local) = places(input);
    rig.with_app(|_, cx| {
        // A refusal changes nothing; the targets of the tables check its reason.
        let _ = match kind {
            0 => cx.sockets.join(consumer, group),
            1 => cx.sockets.join_source(consumer, group, PEER),
            2 => cx.sockets.block(consumer, group, PEER),
            3 => cx.sockets.set_filter(consumer, group, FilterMode::Exclude, &[PEER, OURS]),
            4 => cx.sockets.bind(consumer, local, Sharing::Shared).map(drop),
            _ => cx.sockets.connect(consumer, Flow { local, remote: SocketAddrV4::new(PEER, 7_000) }).map(drop),
        };
    });
}

pub(in crate::fuzz) fn leave<Q: Queue, N: Node<Listener>>(input: &mut Input<'_>, rig: &mut Rig<Q, N>) {
    let (consumer, kind) = (consumer(input.below(4)), input.below(4));
    let (group, _) = places(input);
    rig.with_app(|_, cx| {
        let _ = match kind {
            0 => cx.sockets.leave(consumer, group),
            1 => cx.sockets.unblock(consumer, group, PEER),
            2 => cx.sockets.set_filter(consumer, group, FilterMode::Include, &[]),
            _ => {
                cx.sockets.close(consumer);
                Ok(())
            }
        };
    });
}

fn places(input: &mut Input<'_>) -> (Group, SocketAddrV4) {
    let interface = input.pick(&[InterfaceId::ANY, InterfaceId(0), InterfaceId(1)]);
    let (group, port) = (input.pick(&GROUPS), input.pick(&PORTS));
    let address = input.pick(&[OURS, Ipv4Addr::UNSPECIFIED]);
    (Group { group, port, interface }, SocketAddrV4::new(address, port))
}
