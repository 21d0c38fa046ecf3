//! Wireshark's dissector reads the headers of each kind of packet as `rdma::wire` does, which
//! `wirepath capture` shows. FLUSH and ATOMIC WRITE are left out: Wireshark 4.0 does not know them.

use std::fs;
use std::process::Command;

use rdma::wire::aeth::{Aeth, Nak, Syndrome};
use rdma::wire::bth::{Bth, BthFields};
use rdma::wire::extended::{AtomicEth, Deth, Reth};
use rdma::wire::icrc::{Network, icrc};
use rdma::wire::opcode::{Opcode, Operation, Transport};
use rdma::wire::packet::{Body, Packet};
use rdma::wire::psn::Psn;
use rdma::wire::qpn::Qpn;
use wirepath_tests::live::has_program;
use zerocopy::IntoBytes;

/// What is asked of the dissector, and by which names.
const FIELDS: [&str; 20] = [
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.m",
    "infiniband.bth.padcnt",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomiceth.cmpdt",
    "infiniband.atomicacketh.origremdt",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.immdt",
    "infiniband.ieth",
];

/// A packet of this opcode with all headers that it has, in the order of the specification.
fn packet(opcode: Opcode, number: u32) -> Vec<u8> {
    let fields = BthFields {
        opcode,
        solicited: number.is_multiple_of(2),
        pad: 3,
        pkey: 0xffff,
        destination: Qpn::new(0x1234),
        ack_request: number.is_multiple_of(3),
        psn: Psn::new(0xff_ff00 + number),
    };
    let Some((transport, operation)) = opcode.operation() else {
        let bth = Bth::congestion_notification(0xffff, Qpn::new(0x1234));
        return [bth.as_bytes(), &[0; 16]].concat();
    };
    let mut bytes = Bth::new(&fields).as_bytes().to_vec();
    if transport == Transport::Ud {
        bytes.extend(Deth::new(0x1111_1111, Qpn::new(0x4321)).as_bytes());
    }
    if operation.has_reth() {
        bytes.extend(Reth::new(0x7f00_1234_5678, 0x0012_0001, 5).as_bytes());
    }
    if operation.has_atomic_eth() {
        bytes.extend(AtomicEth::new(0x7f00_1234_5678, 0x0012_0001, 1, 2).as_bytes());
    }
    if operation.has_aeth() {
        bytes.extend(Aeth::new(Syndrome::Nak(Nak::RemoteAccess), 0x123).as_bytes());
    }
    if operation == Operation::AtomicAcknowledge {
        bytes.extend([9; 8]);
    }
    if operation.has_imm() {
        bytes.extend([0, 0, 1, 2]);
    }
    if operation.has_ieth() {
        bytes.extend([0, 0, 0x12, 0]);
    }
    // Five bytes and their pad.
    bytes.extend([b'5', b'b', b'y', b't', b'e', 0, 0, 0]);
    bytes
}

/// A frame of RoCEv2 over IPv4.
fn frame(roce: &[u8]) -> Vec<u8> {
    let udp_len = (8 + roce.len() + 4) as u16;
    let ([a, b], [c, d]) = ((20 + udp_len).to_be_bytes(), udp_len.to_be_bytes());
    let ip = [0x45, 0, a, b, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let udp = [0xc0, 0, 0x12, 0xb7, c, d, 0, 0];
    let sum = icrc(Network::Ipv4(&ip, &udp), roce).to_le_bytes();
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &ip, &udp, roce, &sum].concat()
}

/// The frames as a capture file.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let word = |value: usize| (value as u32).to_le_bytes();
    // Magic, version 2.4, no zone, no accuracy, the longest frame, Ethernet.
    let mut file = [&0xa1b2_c3d4_u32.to_le_bytes()[..], &[2, 0, 4, 0], &[0; 8], &word(65_535), &word(1)].concat();
    for frame in frames {
        file.extend([[0; 4], [0; 4], word(frame.len()), word(frame.len())].concat());
        file.extend(frame);
    }
    file
}

/// What our parser finds, in the words of the dissector's fields.
fn ours(frame: &[u8]) -> Vec<String> {
    let roce = &frame[42..];
    let packet = Packet::parse(roce).expect("a packet");
    let bth = packet.bth;
    let flag = |is: bool| u8::from(is).to_string();
    let mut fields = vec![
        bth.opcode().0.to_string(),
        flag(bth.is_solicited()),
        flag(true),
        bth.pad().to_string(),
        bth.pkey().to_string(),
        format!("{:#08x}", bth.destination().get()),
        flag(bth.ack_request()),
        bth.psn().to_string(),
    ];
    let message = match packet.body {
        Body::Message(message) => Some(message),
        Body::CongestionNotification => None,
    };
    let or_none = |field: Option<String>| field.unwrap_or_default();
    let deth = message.and_then(|message| message.deth);
    let (reth, atomic) = (message.and_then(|message| message.reth), message.and_then(|message| message.atomic));
    let aeth = message.and_then(|message| message.aeth);
    // The dissector has one name for the address and the key of both.
    let place = reth.map(|reth| (reth.address(), reth.rkey()));
    let place = place.or_else(|| atomic.map(|atomic| (atomic.address(), atomic.rkey())));
    fields.push(or_none(deth.map(|deth| format!("{:#018x}", deth.qkey()))));
    fields.push(or_none(deth.map(|deth| format!("{:#010x}", deth.source().get()))));
    fields.push(or_none(place.map(|(address, _)| format!("{address:#018x}"))));
    fields.push(or_none(place.map(|(_, rkey)| format!("{rkey:#010x}"))));
    fields.push(or_none(reth.map(|reth| reth.len().to_string())));
    fields.push(or_none(atomic.map(|atomic| atomic.swap_or_add().to_string())));
    fields.push(or_none(atomic.map(|atomic| atomic.compare().to_string())));
    fields.push(or_none(message.and_then(|message| message.original).map(|value| value.to_string())));
    fields.push(or_none(aeth.map(|aeth| aeth.as_bytes()[0].to_string())));
    fields.push(or_none(aeth.map(|aeth| aeth.msn().to_string())));
    fields.push(or_none(message.and_then(|message| message.imm).map(|imm| format!("{:08x}", u32::from_be_bytes(imm)))));
    fields.push(or_none(message.and_then(|message| message.invalidated_rkey).map(|rkey| format!("{rkey:08x}"))));
    fields
}

/// Later versions of the dissector write a flag as a word.
fn number(value: &str) -> &str {
    match value {
        "True" => "1",
        "False" => "0",
        value => value,
    }
}

#[test]
fn dissector_agrees_on_each_kind_of_packet() {
    let test = "dissector_agrees_on_each_kind_of_packet";
    if !has_program(test, "tshark") {
        return;
    }
    let is_known = |opcode: &Opcode| {
        let operation = opcode.operation().map(|(_, operation)| operation);
        let unknown = [Operation::Flush, Operation::AtomicWrite];
        *opcode == Opcode::CNP || operation.is_some_and(|operation| !unknown.contains(&operation))
    };
    let opcodes: Vec<Opcode> = (0..=255).map(Opcode).filter(is_known).collect();
    let frames: Vec<Vec<u8>> = (0..).zip(&opcodes).map(|(number, opcode)| frame(&packet(*opcode, number))).collect();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("roce.pcap");
    fs::write(&path, capture(&frames)).expect("a capture");
    let fields = FIELDS.iter().flat_map(|field| ["-e", field]);
    let options = ["-n", "-T", "fields", "-E", "separator=|", "-E", "occurrence=f", "-r"];
    let output = Command::new("tshark").args(options).arg(&path).args(fields).output().expect("tshark runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let theirs: Vec<&str> = text.lines().collect();
    assert_eq!(theirs.len(), frames.len(), "{}", String::from_utf8_lossy(&output.stderr));
    for ((opcode, frame), theirs) in opcodes.iter().zip(&frames).zip(theirs) {
        let named: Vec<String> =
            FIELDS.iter().zip(ours(frame)).map(|(name, value)| format!("{name} {value}")).collect();
        let dissected: Vec<String> =
            FIELDS.iter().zip(theirs.split('|')).map(|(name, value)| format!("{name} {}", number(value))).collect();
        assert_eq!(dissected, named, "{opcode}");
    }
}
