//! Several VLANs on one queue: frames with all combinations of tags, whole and truncated, to a
//! trunk of three hosts. Each packet ends for a named reason in the leg of its tags and in no
//! other; answers of a leg carry its tags.

use std::net::{Ipv4Addr, SocketAddrV4};

use wirepath::device::Device;
use wirepath::device::memory::MemoryDevice;
use wirepath::pipeline::{
    Egress, EgressConfig, HostStack, HostStackConfig, VlanInterface, VlanTrunk, Vlans, host_stack,
};
use wirepath::proto::{Group, InterfaceId, Sharing};
use wirepath::time::Duration;
use wirepath::wire::ethernet::EthernetFrame;
use wirepath::wire::{EtherType, VlanTag, VlanTags};

use super::host;
use super::udp_stack::{GROUPS, PORTS, join, leave};
use crate::frames::mend;
use crate::fuzz::Input;
use crate::rig::{self, Rig, RigConfig, SEED, consumer, sum, table};

/// The VLANs of the legs. The worker's own host is none of them.
const LEGS: [&[u16]; 3] = [&[], &[20], &[100, 5]];
/// Identifiers in the tags of frames: those of the legs, priority only, and others.
const VIDS: [u16; 8] = [0, 20, 100, 5, 21, 4_095, 20, 100];
const TAG_KINDS: [EtherType; 4] = [EtherType::VLAN, EtherType::QINQ, EtherType::IPV4, EtherType(0x9100)];
/// Bytes before the tags: two addresses.
const ADDRESSES_LEN: usize = 12;

/// The kind of a step: its first byte, by the remainder.
pub(in crate::fuzz) mod step {
    pub(crate) const FRAME: u8 = 0;
    pub(crate) const POLL: u8 = 1;
    pub(crate) const JOIN: u8 = 2;
    pub(crate) const COUNT: u8 = 4;
}

/// Bytes that configure the rig, before the first step.
pub(in crate::fuzz) const CONFIG_LEN: usize = 1;

/// Steps: a frame with tags put in, time, a join, a leave.
pub(in crate::fuzz) fn trunk(data: &[u8]) {
    let mut input = Input::new(data);
    let config = RigConfig { buffers: input.pick(&[256, 16, 2]), answers: true, ..RigConfig::default() };
    let egress = EgressConfig::quiet(SEED);
    let mut rig: Rig<<MemoryDevice as Device>::Queue, VlanTrunk<HostStack>> = Rig::with_nodes(
        config,
        |wire| wire,
        egress,
        |_, scope| {
            let legs = LEGS.iter().zip(1..).map(|(vids, interface)| {
                let scope = scope.scope(&format!("vlan{interface}"));
                let host = rig::host(InterfaceId(interface), tags(vids));
                let nodes = HostStackConfig { vlans: Vlans::Any, ..host::config(config) };
                VlanInterface {
                    nodes: host_stack(nodes, &host, &scope),
                    egress: Egress::new(EgressConfig::host(SEED), &scope),
                    host,
                }
            });
            VlanTrunk::new(legs.collect(), scope)
        },
    );
    rig.with_app(|_, cx| {
        cx.sockets.join(consumer(0), Group::new(GROUPS[0], PORTS[0])).expect("there is room");
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORTS[0]);
        cx.sockets.bind(consumer(1), any, Sharing::Shared).expect("there is room");
    });
    while !input.is_empty() {
        match input.below(step::COUNT) {
            step::FRAME => drop(rig.inject(&tagged(&mut input))),
            step::POLL => {
                let kind = input.u8();
                rig.poll(Duration::from_millis(host::SPANS_MS[usize::from(kind) % host::SPANS_MS.len()]));
                assert_eq!(rig.worker.pool().in_use(), rig.worker.kept());
                // Reading all counters costs hundreds of polls.
                if kind.is_multiple_of(3) {
                    rig.assert_conserved();
                }
                assert_tags_of_legs(&mut rig);
            }
            step::JOIN => join(&mut input, &mut rig),
            _ => leave(&mut input, &mut rig),
        }
    }
    for _ in 0..30 {
        rig.poll(Duration::from_secs(1));
        assert_tags_of_legs(&mut rig);
    }
    rig.settle();
    rig.assert_rx_settled(0);
    let snapshot = rig.snapshot();
    assert!(sum(&snapshot, "/icmp_errors/sent") <= sum(&snapshot, "/ethernet/frames"), "{}", table(&snapshot));
}

/// Sent frames are untagged or have the tags of a leg; a priority tag may come first, as in the
/// request.
fn assert_tags_of_legs(rig: &mut Rig<<MemoryDevice as Device>::Queue, VlanTrunk<HostStack>>) {
    rig.take_sent(|frame| {
        let parsed = EthernetFrame::parse(frame).expect("what we send is a frame");
        let vids: Vec<_> = parsed.tags.as_slice().iter().map(|tag| tag.vid()).filter(|vid| *vid != 0).collect();
        assert!(LEGS.contains(&vids.as_slice()), "{vids:?} are the VLANs of nobody");
    });
}

fn tags(vids: &[u16]) -> VlanTags {
    match *vids {
        [vid] => VlanTags::single(VlanTag::new(vid)),
        [outer, inner] => VlanTags::double([VlanTag::from_tci(EtherType::QINQ, outer), VlanTag::new(inner)]),
        _ => VlanTags::NONE,
    }
}

/// A frame with up to three tags after its addresses, with or without correct checksums, whole or
/// cut anywhere.
fn tagged(input: &mut Input<'_>) -> Vec<u8> {
    let (count, is_mended, cut) = (input.below(4), input.u8() & 1 == 1, usize::from(input.u8()));
    let mut tags = Vec::new();
    for _ in 0..count {
        let (kind, pcp, vid) = (input.pick(&TAG_KINDS), u16::from(input.below(16)), input.pick(&VIDS));
        tags.extend(kind.0.to_be_bytes());
        tags.extend((pcp << 12 | vid).to_be_bytes());
    }
    let mut frame = input.block().to_vec();
    let at = frame.len().min(ADDRESSES_LEN);
    frame.splice(at..at, tags);
    if is_mended {
        mend(&mut frame);
    }
    if cut < 128 {
        frame.truncate(cut);
    }
    frame
}
