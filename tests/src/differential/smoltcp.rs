//! smoltcp with one socket, and a device that keeps frames in lists.

use std::net::Ipv4Addr;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, HardwareAddress,
    IpAddress, IpCidr, IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};
use wirepath::time::Duration;

use super::side::{Control, PeerSegment, SentSegment, Subject};
use crate::lists::Lists;

/// The address at which both stacks listen, and the peer's.
pub(super) const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 1), 80);
pub(super) const REMOTE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 2), 2_000);
/// smoltcp's, which is fixed.
pub(super) const TIME_WAIT: Duration = Duration::from_secs(10);

const OWN_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
const PEER_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 2]);
/// Bytes of the buffer that the app writes into: all that a script sends.
const SEND_BUFFER: usize = 64 << 10;

pub(super) struct Theirs {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    device: Lists,
    buffer: u32,
}

impl Theirs {
    pub(super) fn new(seed: u64, buffer: u32) -> Self {
        let mut device = Lists::new(1500);
        let mut config = Config::new(HardwareAddress::Ethernet(OWN_MAC));
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::Ipv4(LOCAL.0), 24)).expect("there is room for one address");
        });
        let buffers = |len: usize| SocketBuffer::new(vec![0; len]);
        let mut socket = Socket::new(buffers(buffer as usize), buffers(SEND_BUFFER));
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        socket.listen(LOCAL.1).expect("the port is not zero");
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self { interface, sockets, handle, device, buffer }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    fn poll(&mut self, now: u64) {
        let now = Instant::from_micros((now / 1_000) as i64);
        self.interface.poll(now, &mut self.device, &mut self.sockets);
        while self.device.tx.front().is_some_and(|frame| is_arp(frame)) {
            self.device.tx.pop_front();
        }
    }

    /// The peer asks for its address, by which it learns the peer's.
    fn introduce(&mut self, now: u64) {
        let arp = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: PEER_MAC,
            source_protocol_addr: REMOTE.0,
            target_hardware_addr: EthernetAddress::BROADCAST,
            target_protocol_addr: LOCAL.0,
        };
        let mut frame = vec![0; 14 + arp.buffer_len()];
        let ethernet =
            EthernetRepr { src_addr: PEER_MAC, dst_addr: EthernetAddress::BROADCAST, ethertype: EthernetProtocol::Arp };
        let mut buffer = EthernetFrame::new_unchecked(&mut frame);
        ethernet.emit(&mut buffer);
        arp.emit(&mut ArpPacket::new_unchecked(buffer.payload_mut()));
        self.device.rx.push_back(frame);
        self.poll(now);
    }
}

impl Subject for Theirs {
    fn receive(&mut self, words: &PeerSegment<'_>, now: u64) {
        if words.control == Control::Syn && words.ack.is_none() {
            self.introduce(now);
        }
        self.device.rx.push_back(frame(words));
        self.poll(now);
    }

    fn turn(&mut self, now: u64) -> Vec<SentSegment> {
        self.poll(now);
        self.device.tx.drain(..).filter(|frame| !is_arp(frame)).map(|frame| parse_segment(&frame)).collect()
    }

    fn read(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.socket().recv_queue()];
        let count = self.socket().recv_slice(&mut bytes).unwrap_or(0);
        bytes.truncate(count);
        bytes
    }

    fn write(&mut self, bytes: &[u8], now: u64) {
        if !bytes.is_empty() {
            let taken = self.socket().send_slice(bytes);
            assert_eq!(taken, Ok(bytes.len()), "the buffer has room for all that the script writes");
            self.poll(now);
        }
    }

    fn shut(&mut self, now: u64) {
        self.socket().close();
        self.poll(now);
    }

    fn state(&self) -> String {
        self.sockets.get::<Socket<'_>>(self.handle).state().to_string()
    }

    fn buffer(&self) -> u32 {
        self.buffer
    }
}

fn frame(words: &PeerSegment<'_>) -> Vec<u8> {
    let tcp = TcpRepr {
        src_port: REMOTE.1,
        dst_port: LOCAL.1,
        control: match words.control {
            Control::None => TcpControl::None,
            Control::Syn => TcpControl::Syn,
            Control::Fin => TcpControl::Fin,
            Control::Rst => TcpControl::Rst,
        },
        seq_number: TcpSeqNumber(words.seq as i32),
        ack_number: words.ack.map(|ack| TcpSeqNumber(ack as i32)),
        window_len: words.wnd,
        window_scale: None,
        max_seg_size: words.mss,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: words.payload,
    };
    let ip = Ipv4Repr {
        src_addr: REMOTE.0,
        dst_addr: LOCAL.0,
        next_header: IpProtocol::Tcp,
        payload_len: tcp.buffer_len(),
        hop_limit: 64,
    };
    let ethernet = EthernetRepr { src_addr: PEER_MAC, dst_addr: OWN_MAC, ethertype: EthernetProtocol::Ipv4 };
    let mut frame = vec![0; 14 + ip.buffer_len() + tcp.buffer_len()];
    let mut buffer = EthernetFrame::new_unchecked(&mut frame);
    ethernet.emit(&mut buffer);
    let mut packet = Ipv4Packet::new_unchecked(buffer.payload_mut());
    ip.emit(&mut packet, &ChecksumCapabilities::default());
    let mut segment = TcpPacket::new_unchecked(packet.payload_mut());
    let (source, destination) = (IpAddress::Ipv4(REMOTE.0), IpAddress::Ipv4(LOCAL.0));
    tcp.emit(&mut segment, &source, &destination, &ChecksumCapabilities::default());
    frame
}

fn parse_segment(frame: &[u8]) -> SentSegment {
    let packet = Ipv4Packet::new_unchecked(&frame[14..]);
    let segment = TcpPacket::new_unchecked(packet.payload());
    SentSegment {
        seq: segment.seq_number().0 as u32,
        ack: segment.ack_number().0 as u32,
        wnd: segment.window_len(),
        is_syn: segment.syn(),
        is_fin: segment.fin(),
        is_reset: segment.rst(),
        payload: segment.payload().to_vec(),
    }
}

fn is_arp(frame: &[u8]) -> bool {
    EthernetFrame::new_unchecked(frame).ethertype() == EthernetProtocol::Arp
}

/// Whether smoltcp still has the bug because of which the simulator gives it no full rings. Three
/// duplicates request a fast retransmission while its device takes no frames. When the device takes
/// frames again, the segment leaves neither as a fast retransmission nor by the timer, which was
/// stopped for it.
pub fn forgets_a_fast_retransmission_that_finds_no_room() -> bool {
    let mut theirs = Theirs::new(1, 4_096);
    let words = |seq: u32, ack: Option<u32>, control: Control| PeerSegment {
        seq,
        ack,
        wnd: 10_000,
        control,
        mss: Some(1_000).filter(|_| ack.is_none()),
        payload: &[],
    };
    theirs.receive(&words(0, None, Control::Syn), 0);
    let first = theirs.turn(0)[0].seq.wrapping_add(1);
    let ack = words(1, Some(first), Control::None);
    theirs.receive(&ack, 0);
    theirs.write(&[7; 5_000], 0);
    assert_eq!(theirs.turn(0).iter().map(|segment| segment.payload.len()).sum::<usize>(), 5_000);
    theirs.device.tx_max = 0;
    (0..3).for_each(|_| theirs.receive(&ack, 1_000_000));
    theirs.turn(1_000_000);
    theirs.device.tx_max = usize::MAX;
    let minute = 60_000_000_000_u64;
    (1..=10_u64).all(|minutes| theirs.turn(minutes * minute).iter().all(|segment| segment.payload.is_empty()))
        && theirs.sockets.get::<Socket<'_>>(theirs.handle).state() == State::Established
}
