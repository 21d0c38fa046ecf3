use core::net::Ipv4Addr;

use super::{Publisher, SlotError, parse, slot_len};
use crate::provider::Provider;
use crate::roce::{
    Access, Addresses, Buffer, CqHandle, Data, Device, DeviceConfig, Link, Mr, Mtu, Path, QpAttributes, QpHandle,
    QpOptions, Region, Remote, RoceFrame, SendOperation, SendRequest, Sge, Status,
};
use crate::wire::opcode::Transport;

/// Four packets of an MTU of 256 bytes.
const VALUE_LEN: usize = 1000;

/// A publisher's device and that of a peer which READs.
struct Pair {
    devices: [Device; 2],
    qps: [QpHandle; 2],
    cq: CqHandle,
    remote: Mr,
    local: Buffer,
    lkey: u32,
}

impl Pair {
    fn new(publisher: &Publisher) -> Self {
        let config = DeviceConfig { mtu: Mtu::B256, ..DeviceConfig::default() };
        let mut devices = [Device::new(&config), Device::new(&config)];
        let pds = devices.each_mut().map(|device| device.create_pd().unwrap());
        let remote = devices[0].register(pds[0], publisher.region(), Access::REMOTE_READ).unwrap();
        let local = Buffer::zeroed(slot_len(VALUE_LEN));
        let lkey = devices[1].register(pds[1], Region::from(&local), Access::LOCAL_WRITE).unwrap().key;
        let cqs = devices.each_mut().map(|device| device.create_cq(16).unwrap());
        let qps = [0, 1].map(|end: usize| {
            let (pd, cq) = (pds[end], cqs[end]);
            let options = QpOptions {
                transport: Transport::Rc,
                pd,
                send_cq: cq,
                recv_cq: cq,
                send_depth: 4,
                recv_depth: 1,
                srq: None,
                signals_all: true,
            };
            devices[end].create_qp(&options).unwrap()
        });
        for own in 0..2 {
            let address = |end: usize| Ipv4Addr::new(10, 0, 0, end as u8 + 1);
            let link = Link { destination: [2 - own as u8; 6], source: [own as u8 + 1; 6], vlan: None };
            let addresses = Addresses::Ipv4 { source: address(own), destination: address(1 - own) };
            let (qpn, path) = (devices[1 - own].qpn(qps[1 - own]).unwrap(), Path::new(link, addresses));
            let connection = QpAttributes {
                mtu: Some(Mtu::B256),
                access: Some(Access::REMOTE_READ),
                ..QpAttributes::connection(path, qpn)
            };
            devices[own].connect_qp(qps[own], Transport::Rc, &connection).unwrap();
        }
        Self { devices, qps, cq: cqs[1], remote, local, lkey }
    }

    /// READs a slot; `between` is called with the number of each packet of the answer before it is
    /// made.
    fn read(&mut self, mut between: impl FnMut(usize)) -> Vec<u8> {
        let len = slot_len(VALUE_LEN);
        let sge = [Sge { address: self.local.address(), len: len as u32, lkey: self.lkey }];
        let remote = Remote { address: self.remote.address, rkey: self.remote.key };
        let request = SendRequest::new(0, SendOperation::Read(remote), Data::Sges(&sge));
        self.devices[1].post_send(self.qps[1], &request).unwrap();
        self.carry(1);
        let mut packets = 0;
        while self.devices[0].is_due() {
            between(packets);
            packets += 1;
            self.carry(0);
        }
        assert_eq!(packets, 4);
        assert_eq!(self.devices[1].poll_cq(self.cq).map(|done| done.status), Some(Status::Success));
        let mut bytes = vec![0; len];
        self.local.read(0, &mut bytes);
        bytes
    }

    fn carry(&mut self, from: usize) {
        let mut bytes = vec![0; self.devices[0].frame_len_max()];
        let len = self.devices[from].transmit(1_000, &mut bytes).unwrap();
        let frame = RoceFrame::parse(&bytes[..len]).unwrap();
        self.devices[1 - from].receive(1_000, frame.network, frame.roce);
    }
}

fn value(byte: u8) -> Vec<u8> {
    vec![byte; VALUE_LEN]
}

#[test]
fn value_is_that_which_was_published_last() {
    let mut publisher = Publisher::new(2, VALUE_LEN);
    let mut pair = Pair::new(&publisher);
    assert_eq!(parse(&pair.read(|_| ()), VALUE_LEN), Err(SlotError::Empty));
    for (byte, version) in [(7, 2), (8, 4)] {
        publisher.publish(0, &value(byte));
        publisher.publish(1, &value(99));
        assert_eq!(parse(&pair.read(|_| ()), VALUE_LEN), Ok((version, &value(byte)[..])));
    }
}

#[test]
fn value_that_is_published_between_two_packets_of_a_read_is_torn() {
    for at in 0..4 {
        let mut publisher = Publisher::new(1, VALUE_LEN);
        let mut pair = Pair::new(&publisher);
        publisher.publish(0, &value(1));
        let slot = pair.read(|packet| {
            if packet == at {
                publisher.publish(0, &value(2));
            }
        });
        // Before the first packet it is the new value as a whole.
        let expected = if at == 0 { Ok((4, &value(2)[..])) } else { Err(SlotError::Torn) };
        assert_eq!(parse(&slot, VALUE_LEN), expected, "before packet {at}");
    }
}

/// Each write of the publisher's may be the last that a READ sees, whatever mix of words it finds.
#[test]
fn mix_of_the_words_of_two_values_is_torn() {
    let slots: Vec<Vec<u8>> = (1..=2)
        .map(|count| {
            let mut publisher = Publisher::new(1, VALUE_LEN);
            let mut pair = Pair::new(&publisher);
            (0..count).for_each(|byte| publisher.publish(0, &value(byte + 1)));
            pair.read(|_| ())
        })
        .collect();
    let words = slots[0].len() / 8;
    for cut in 1..words {
        for [begin, end] in [[0, 1], [1, 0]] {
            let mixed = [&slots[begin][..8 * cut], &slots[end][8 * cut..]].concat();
            assert_eq!(parse(&mixed, VALUE_LEN), Err(SlotError::Torn), "{cut} words of {begin}");
        }
    }
    let mut odd = slots[0].clone();
    odd[0] |= 1;
    assert_eq!(parse(&odd, VALUE_LEN), Err(SlotError::Torn));
    assert_eq!(parse(&odd[8..], VALUE_LEN), Err(SlotError::Length));
}
