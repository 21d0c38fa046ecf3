//! A peer that sends what it likes, with the right ICRC, so that the checks behind it are reached.
//!
//! The bytes of an input are read as packets to four queue pairs, and as requests of ours that the
//! packets may answer. The device holds memory that the peer reaches, and memory that it does not.

use core::net::Ipv4Addr;

use zerocopy::IntoBytes;

use crate::provider::Provider;
use crate::roce::{
    Access, Addresses, Buffer, CqHandle, Data, Device, DeviceConfig, Link, Mr, Mtu, Path, PdHandle, QpAttributes,
    QpHandle, QpOptions, Region, Remote, RoceFrame, SendOperation, SendRequest, Sge, SrqHandle,
};
use crate::wire::ROCE_PORT;
use crate::wire::bth::{Bth, BthFields};
use crate::wire::extended::{AtomicEth, Deth, Reth};
use crate::wire::icrc::{Network, icrc};
use crate::wire::opcode::{Opcode, Operation, Transport};
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// What the closed memory is full of, and no packet of the peer has.
const SECRET: u8 = 0xc5;
/// Bytes of a packet's payload.
const MTU: Mtu = Mtu::B256;
const MEMORY_LEN: usize = 4096;
const QKEY: u32 = 0x1111_1111;
const FIRST_PSN: Psn = Psn::new(0xff_fffc);
/// Our device's number of the queue pairs of the peer.
const PEER: Qpn = Qpn::new(0x77);

/// Plays an input.
///
/// # Panics
/// If memory that the peer may not reach is written, or read.
pub fn run_hostile(bytes: &[u8]) {
    let (mut target, mut input) = (HostileTarget::new(), Input(bytes));
    while !input.0.is_empty() {
        match input.byte() {
            0..200 => target.receive(&mut input),
            200..225 => target.post(&mut input),
            225..240 => target.post_recv(&mut input),
            _ => target.wait(),
        }
        target.transmit();
    }
    target.wait();
    target.check();
}

/// Plays an input as frames of any bytes, as a port's node passes them on: a length, and bytes, of
/// which every second frame gets its ICRC.
///
/// # Panics
/// As of [`run_hostile`].
pub fn run_hostile_frames(bytes: &[u8]) {
    let (mut target, mut input) = (HostileTarget::new(), Input(bytes));
    while !input.0.is_empty() {
        let (len, is_sealed) = (usize::from(input.byte()), input.byte() % 2 == 0);
        let mut frame: Vec<u8> = (0..len).map(|_| input.byte()).collect();
        if is_sealed {
            seal(&mut frame);
        }
        if let Ok(frame) = RoceFrame::parse(&frame) {
            target.device.prefetch(frame.roce);
            target.device.receive(target.now, frame.network, frame.roce);
        }
        target.transmit();
    }
    target.wait();
    target.check();
}

/// Inputs of [`run_hostile_frames`] to begin with: a frame of each operation to each queue pair.
pub fn hostile_frame_seeds() -> Vec<Vec<u8>> {
    let mut target = HostileTarget::new();
    let mut input = |idx: u8, opcode: u8| {
        let frame = target.frame(&mut Input(&[opcode, idx, 0x40, 1]));
        Some([&[u8::try_from(frame.len()).ok()?, 0], &frame[..]].concat())
    };
    (0..4).map(|idx| (0..0x18).filter_map(|opcode| input(idx, opcode)).flatten().collect()).collect()
}

/// Gives a frame the ICRC that it has, if it is one of RoCE.
fn seal(frame: &mut [u8]) {
    let Ok(parsed) = RoceFrame::parse(frame) else { return };
    let Some(covered) = parsed.roce.len().checked_sub(4) else { return };
    let sum = icrc(parsed.network, &parsed.roce[..covered]).to_le_bytes();
    // Behind it may be padding of the link.
    let end = parsed.roce.as_ptr_range().end.addr() - frame.as_ptr().addr();
    frame[end - 4..end].copy_from_slice(&sum);
}

/// The rest of an input; behind its end are zeros.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl Input<'_> {
    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A small number, or one just below 2⁶⁴, or any.
    pub(super) fn long(&mut self) -> u64 {
        match self.byte() {
            0..100 => u64::from(self.word() as u16),
            100..150 => u64::from(self.byte()).wrapping_neg(),
            _ => u64::from(self.word()) << 32 | u64::from(self.word()),
        }
    }
}

pub(super) struct HostileTarget {
    device: Device,
    now: u64,
    cq: CqHandle,
    srq: SrqHandle,
    qps: Vec<QpHandle>,
    /// What each queue pair expects next, if all before was taken.
    psns: [Psn; 4],
    open: (Buffer, Mr),
    closed: (Buffer, Mr),
}

impl HostileTarget {
    pub(super) fn new() -> Self {
        let mut device = Device::new(&DeviceConfig { mtu: MTU, qps: 8, key_seed: 1, ..DeviceConfig::default() });
        let pd = device.create_pd().expect("room for a domain");
        let cq = device.create_cq(1 << 10).expect("room for a queue");
        let srq = device.create_srq(pd, 16).expect("room for a queue");
        let mut memory = |access, byte| {
            let buffer = Buffer::zeroed(MEMORY_LEN);
            buffer.write(0, &[byte; MEMORY_LEN]);
            let mr = device.register(pd, Region::from(&buffer), access).expect("room for a region");
            (buffer, mr)
        };
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let (open, closed) = (memory(all, 0), memory(Access::LOCAL_WRITE, SECRET));
        let qps = [(Transport::Rc, None), (Transport::Uc, None), (Transport::Ud, None), (Transport::Rc, Some(srq))];
        let qps = qps.map(|(transport, srq)| connected(&mut device, pd, cq, transport, srq)).to_vec();
        let mut target = Self { device, now: 0, cq, srq, qps, psns: [FIRST_PSN; 4], open, closed };
        (0..4).for_each(|idx| target.fill(idx, 300));
        target
    }

    /// Gives the device away; another with the same numbers of queue pairs is in its place.
    pub(super) fn take_device(&mut self) -> Device {
        core::mem::replace(self, Self { closed: self.closed.clone(), ..Self::new() }).device
    }

    /// A packet of the peer.
    fn receive(&mut self, input: &mut Input<'_>) {
        let packet = self.packet(input);
        let (ip, udp) = headers();
        // Of any length, by the last byte of its number.
        self.device.prefetch(&packet[..packet.len() - usize::from(packet[11]) % packet.len()]);
        self.device.receive(self.now, Network::Ipv4(&ip, &udp), &packet);
    }

    /// A frame with a packet of the peer.
    pub(super) fn frame(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let packet = self.packet(input);
        let (mut ip, mut udp) = headers();
        let udp_len = udp.len() + packet.len();
        let ip_len = (ip.len() + udp_len) as u16;
        ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
        udp[2..4].copy_from_slice(&ROCE_PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
        let mut frame = [&[0; 12][..], &[8, 0], &ip, &udp, &packet].concat();
        seal(&mut frame);
        frame
    }

    fn packet(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let (opcode, idx, odd) = (Opcode(input.byte()), usize::from(input.byte() % 4), input.byte());
        // Most packets are of the service, and the expected ones.
        let transport = [Transport::Rc, Transport::Uc, Transport::Ud, Transport::Rc][idx];
        let opcode = match Opcode(opcode.0 & 0x1f).operation() {
            Some((_, operation)) if odd & 3 != 3 => Opcode::new(transport, operation),
            _ => opcode,
        };
        let psn = match odd >> 2 & 7 {
            7 => FIRST_PSN.plus(u32::from(input.byte() % 64)),
            _ => self.psns[idx],
        };
        let len = [0, 8, 64, 256, 255, 257, 1, 128][usize::from(input.byte() % 8)];
        let fields = BthFields {
            opcode,
            solicited: odd & 0x20 != 0,
            pad: (len as u8).wrapping_neg() & 3,
            pkey: Bth::DEFAULT_PKEY,
            destination: self.device.qpn(self.qps[idx]).unwrap_or_default(),
            ack_request: odd & 0x40 != 0,
            psn,
        };
        let mut packet = Bth::new(&fields).as_bytes().to_vec();
        if let Some((transport, operation)) = opcode.operation() {
            self.push_headers(&mut packet, transport, operation, len, input);
            self.psns[idx] = psn.plus(u32::from(!operation.is_response()));
        }
        packet.resize(packet.len() + len.next_multiple_of(4), 0x11);
        let (ip, udp) = headers();
        let network = Network::Ipv4(&ip, &udp);
        packet.extend(icrc(network, &packet).to_le_bytes());
        packet
    }

    fn push_headers(
        &self,
        packet: &mut Vec<u8>,
        transport: Transport,
        operation: Operation,
        len: usize,
        input: &mut Input<'_>,
    ) {
        if transport == Transport::Ud {
            let qkey = if input.byte() == 0xff { input.word() } else { QKEY };
            packet.extend(Deth::new(qkey, PEER).as_bytes());
        }
        let (address, key) = self.place(input);
        if operation.has_reth() {
            let whole = [len, 0, 512, 700, 4096, input.word() as usize][usize::from(input.byte() % 6)];
            packet.extend(Reth::new(address, key, whole as u32).as_bytes());
        }
        if operation.has_atomic_eth() {
            packet.extend(AtomicEth::new(address, key, 1, 0).as_bytes());
        }
        if operation.has_aeth() {
            // A syndrome and the number of messages.
            packet.extend(input.word().to_be_bytes());
        }
        if operation == Operation::AtomicAcknowledge {
            packet.extend([0; 8]);
        }
        if operation.has_imm() || operation.has_ieth() {
            packet.extend(input.word().to_be_bytes());
        }
    }

    /// An address and a key: of one memory or the other, or mixed, or neither's.
    fn place(&self, input: &mut Input<'_>) -> (u64, u32) {
        let (open, closed) = (&self.open.1, &self.closed.1);
        let (address, key) = match input.byte() % 8 {
            0..4 => (open.address, open.key),
            4 => (closed.address, closed.key),
            5 => (closed.address, open.key),
            6 => (open.address, closed.key),
            _ => (open.address, input.word()),
        };
        (address + u64::from(input.byte() % 64) * 8, key)
    }

    /// A request of ours, which packets may answer.
    fn post(&mut self, input: &mut Input<'_>) {
        let remote = Remote { address: 64, rkey: 7 };
        let (operation, len) = match input.byte() % 4 {
            0 => (SendOperation::Send, 600),
            1 => (SendOperation::Write(remote), 300),
            2 => (SendOperation::Read(remote), 600),
            _ => (SendOperation::FetchAdd { remote, add: 1 }, 8),
        };
        let sges = [Sge { address: self.open.1.address, len, lkey: self.open.1.key }];
        let qp = self.qps[usize::from(input.byte() % 4)];
        // A queue that is full, or a service without the operation, says so.
        let _ = self.device.post_send(qp, &SendRequest::new(1, operation, Data::Sges(&sges)));
    }

    fn post_recv(&mut self, input: &mut Input<'_>) {
        let (idx, len) = (usize::from(input.byte() % 4), u32::from(input.byte()) * 4);
        self.fill(idx, len);
    }

    fn fill(&mut self, idx: usize, len: u32) {
        let sges = [Sge { address: self.open.1.address, len, lkey: self.open.1.key }];
        // As above.
        let _ = match idx {
            3 => self.device.post_srq_recv(self.srq, 2, &sges),
            _ => self.device.post_recv(self.qps[idx], 2, &sges),
        };
    }

    fn wait(&mut self) {
        self.now = self.now.max(self.device.next_timer().unwrap_or(0));
        self.device.on_timer(self.now);
        self.transmit();
    }

    /// Sends what is due; nothing of it is secret.
    fn transmit(&mut self) {
        let mut frame = vec![0; self.device.frame_len_max()];
        while let Some(len) = self.device.transmit(self.now, &mut frame) {
            RoceFrame::parse(&frame[..len]).expect("a frame of RoCE");
            assert!(!frame[..len].windows(8).any(|bytes| bytes == [SECRET; 8]), "closed memory was read");
        }
        while self.device.poll_cq(self.cq).is_some() {}
        while self.device.next_event().is_some() {}
    }

    pub(super) fn check(&self) {
        let mut bytes = [0; MEMORY_LEN];
        self.closed.0.read(0, &mut bytes);
        assert!(bytes == [SECRET; MEMORY_LEN], "closed memory was written");
    }
}

fn connected(
    device: &mut Device,
    pd: PdHandle,
    cq: CqHandle,
    transport: Transport,
    srq: Option<SrqHandle>,
) -> QpHandle {
    let (send_depth, recv_depth) = (8, 8);
    let options = QpOptions { transport, pd, send_cq: cq, recv_cq: cq, send_depth, recv_depth, srq, signals_all: true };
    let qp = device.create_qp(&options).expect("room for a queue pair");
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let link = Link { destination: [2; 6], source: [1; 6], vlan: None };
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let connection = QpAttributes {
        qkey: Some(QKEY),
        access: Some(access),
        mtu: Some(MTU),
        rq_psn: Some(FIRST_PSN),
        max_dest_rd_atomic: Some(2),
        min_rnr_timer: Some(1),
        sq_psn: Some(FIRST_PSN),
        max_rd_atomic: Some(2),
        retry_cnt: Some(3),
        rnr_retry: Some(3),
        timeout: Some(1),
        ..QpAttributes::connection(Path::new(link, Addresses::Ipv4 { source, destination }), PEER)
    };
    device.connect_qp(qp, transport, &connection).expect("the steps of the manual page");
    qp
}

/// From the peer, 10.0.0.2, to us; nothing else of them is looked at.
fn headers() -> ([u8; 20], [u8; 8]) {
    let mut ip = [0; 20];
    (ip[0], ip[9]) = (0x45, 17);
    ip[12..16].copy_from_slice(&[10, 0, 0, 2]);
    ip[16..20].copy_from_slice(&[10, 0, 0, 1]);
    (ip, [0; 8])
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn peer_reaches_no_memory_that_is_closed_to_it_whatever_it_sends(bytes in vec(any::<u8>(), 0..2000)) {
            run_hostile(&bytes);
        }

        #[test]
        fn frames_of_any_bytes_reach_no_closed_memory(bytes in vec(any::<u8>(), 0..2000)) {
            run_hostile_frames(&bytes);
        }
    }

    #[test]
    fn packets_of_a_hostile_peer_reach_the_checks_behind_the_icrc() {
        let mut target = HostileTarget::new();
        // WRITE Only of 64 bytes to the open memory of the first, expected and acknowledged.
        let write = [Operation::WriteOnly as u8, 0, 0x40, 2, 0, 0, 0];
        target.receive(&mut Input(&write));
        // The same to the closed memory.
        let closed = [Operation::WriteOnly as u8, 0, 0x40, 2, 4, 0, 0];
        target.receive(&mut Input(&closed));
        let counters = target.device.qp_counters(target.qps[0]).expect("it is there");
        assert_eq!((counters.packets_rx, counters.naks_tx, target.device.counters().icrc_errors), (2, [0, 0, 1, 0], 0));
        target.check();
        let mut written = [0; 64];
        target.open.0.read(0, &mut written);
        assert_eq!(written, [0x11; 64]);
    }
}
