//! VLAN frames between a port of ours and a packet socket of the kernel: tagged, priority-tagged
//! and twice tagged, in the driver and behind it. The kernel of a test machine may have no VLAN
//! interfaces, so the peer makes its tags itself.
#![allow(clippy::unwrap_used)] // a panic here is the report

use wirepath::device::af_xdp::{AfXdpConfig, Mode};
use wirepath::device::steering::Rule;
use wirepath_tests::packet::{PacketSocket, Received, Tag};
use wirepath_tests::port::{EXPERIMENT, Port, TIMEOUT, config, frame, wire};

const VLAN: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;
/// Tags from the outside in, and the identifier by which rules know the frame.
const FRAMES: [(&[Tag], Option<u16>); 6] = [
    (&[], None),
    (&[(VLAN, 7)], Some(7)),
    // Priority 5, drop eligible.
    (&[(VLAN, 0xb007)], Some(7)),
    // Priority-tagged: a priority and no VLAN (IEEE 802.1Q 9.6).
    (&[(VLAN, 0xe000)], Some(0)),
    (&[(SERVICE, 100), (VLAN, 7)], Some(100)),
    (&[(VLAN, 7), (VLAN, 8)], Some(7)),
];

/// An experimental frame with `tags` that carries `number`.
fn tagged(tags: &[Tag], number: u64, len: usize) -> Vec<u8> {
    let plain = frame(number, len);
    let tags: Vec<u8> = tags.iter().flat_map(|(tpid, tci)| [tpid.to_be_bytes(), tci.to_be_bytes()].concat()).collect();
    [&plain[..12], &tags, &plain[12..]].concat()
}

#[test]
fn tags_of_a_kernel_sender_are_in_the_frame() {
    let Some(wire) = wire("tags_of_a_kernel_sender_are_in_the_frame") else { return };
    for mode in [Mode::Native, Mode::Generic] {
        wire.far.run(|| {
            let mut port = Port::open(&AfXdpConfig { mode, ..config("veth1") }, &[EXPERIMENT]);
            let peer = wire.near.run(|| PacketSocket::open("veth0").unwrap());
            for (number, (tags, _)) in FRAMES.into_iter().enumerate() {
                for len in [64, 1514] {
                    let sent = tagged(tags, number as u64, len);
                    if sent.len() > 1518 {
                        // Linux sends no more than one tag beyond the MTU (__dev_forward_skb).
                        continue;
                    }
                    peer.send(&sent).unwrap();
                    assert_eq!(port.receive_some(1), [sent], "{tags:x?} {mode:?}");
                }
            }
        });
    }
}

#[test]
fn rule_that_names_a_vlan_takes_its_frames_only() {
    let Some(wire) = wire("rule_that_names_a_vlan_takes_its_frames_only") else { return };
    for mode in [Mode::Native, Mode::Generic] {
        wire.far.run(|| {
            let kernel = PacketSocket::open("veth1").unwrap();
            let peer = wire.near.run(|| PacketSocket::open("veth0").unwrap());
            for vid in [0, 7, 100, 4095] {
                let rule = Rule { vlan: Some(vid), ..EXPERIMENT };
                let mut port = Port::open(&AfXdpConfig { mode, ..config("veth1") }, &[rule]);
                let (mut ours, mut theirs) = (Vec::new(), 0);
                for (number, (tags, outer)) in FRAMES.into_iter().enumerate() {
                    let sent = tagged(tags, number as u64, 64);
                    peer.send(&sent).unwrap();
                    if outer == Some(vid) { ours.push(sent) } else { theirs += 1 }
                }
                assert_eq!(port.receive_some(ours.len()), ours, "VLAN {vid}, {mode:?}");
                for _ in 0..theirs {
                    kernel.receive(TIMEOUT).unwrap();
                }
                assert!(port.receive().is_empty(), "VLAN {vid}, {mode:?}");
            }
        });
    }
}

#[test]
fn tagged_frames_of_ours_arrive_tagged_at_the_kernel() {
    let Some(wire) = wire("tagged_frames_of_ours_arrive_tagged_at_the_kernel") else { return };
    for mode in [Mode::Native, Mode::Generic] {
        wire.far.run(|| {
            let kernel = PacketSocket::open("veth1").unwrap();
            wire.near.run(|| {
                let mut port = Port::open(&AfXdpConfig { mode, ..config("veth0") }, &[]);
                for (number, (tags, _)) in FRAMES.into_iter().enumerate() {
                    for len in [64, 1510] {
                        assert!(port.send(&tagged(tags, number as u64, len)));
                        // The kernel reports the outer tag beside the frame, and leaves the inner
                        // one in it.
                        let inner = tags.get(1..).unwrap_or_default();
                        let expected =
                            Received { frame: tagged(inner, number as u64, len), tag: tags.first().copied() };
                        assert_eq!(kernel.receive(TIMEOUT).unwrap(), expected, "{tags:x?} {mode:?}");
                    }
                }
            });
        });
    }
}
