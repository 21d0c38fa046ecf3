//! A small venue for formats that exchange-sim does not publish: numbered messages on two lines of
//! which both lose the same packets, and the servers that have all of them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use market::framing::cboe_unit::{CboeUnit, UnitHeader};
use market::framing::iex_tp::{GapRequest, IexHeader, IexTp};
use market::framing::memx_udp::{MemxHeader, MemxUdp};
use market::framing::{Framing, PacketWriter};
use market::memx::replay::{self, REPLAY};
use market::pitch::servers::{ClientMessage, ServerMessage};

/// Both lines, where the handler polls.
pub(crate) const LINES: [SocketAddrV4; 2] =
    [SocketAddrV4::new(Ipv4Addr::new(233, 252, 0, 1), 7), SocketAddrV4::new(Ipv4Addr::new(233, 252, 0, 2), 7)];
/// The gap responses, on the loopback interface.
pub(crate) const GAP_GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 1), 8);
const PER_PACKET: usize = 4;

/// The messages of a day; the first has number 1.
pub(crate) struct Venue {
    pub(crate) messages: Vec<Vec<u8>>,
    /// Messages that were sent, or lost.
    pub(crate) sent: AtomicU64,
    pub(crate) is_over: AtomicBool,
}

/// Which packets both lines lose, by their position: some 14 %, but never the first.
fn is_lost(idx: usize) -> bool {
    idx % 7 == 3
}

pub(crate) fn unit_packet(seq: u64, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut room = [0; 1_472];
    let header = UnitHeader { unit: 1, count: 0, seq: seq as u32 };
    let mut writer = PacketWriter::<CboeUnit>::new(header, &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    writer.finish().to_vec()
}

pub(crate) fn iex_packet(seq: u64, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut room = [0; 1_472];
    let (protocol, channel, session) = (IexHeader::DEEP_1_0, 1, 77);
    let header = IexHeader { protocol, channel, session, count: 0, offset: 0, seq, sent_ns: seq };
    let mut writer = PacketWriter::<IexTp>::new(header, &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    writer.finish().to_vec()
}

/// The session of MEMX's day.
pub(crate) const MEMX_SESSION: u64 = 20_261_128;

pub(crate) fn memx_packet(seq: u64, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut room = [0; 1_472];
    let header = MemxHeader { kind: MemxHeader::SEQUENCED, session: MEMX_SESSION, seq, count: 0 };
    let mut writer = PacketWriter::<MemxUdp>::new(header, &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    writer.finish().to_vec()
}

impl Venue {
    pub(crate) fn new(messages: Vec<Vec<u8>>) -> Self {
        Self { messages, sent: AtomicU64::new(0), is_over: AtomicBool::new(false) }
    }

    /// Sends the day on both lines, a packet a millisecond, then heartbeats for `last`.
    pub(crate) fn publish(&self, packet: fn(u64, &[Vec<u8>]) -> Vec<u8>, last: Duration) {
        let sockets = LINES.map(|line| {
            let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
            socket.connect(line).unwrap();
            socket
        });
        let send = |bytes: &[u8]| sockets.iter().for_each(|socket| assert!(socket.send(bytes).is_ok()));
        let mut seq = 1;
        for (idx, messages) in self.messages.chunks(PER_PACKET).enumerate() {
            if !is_lost(idx) {
                send(&packet(seq, messages));
            }
            seq += messages.len() as u64;
            self.sent.store(seq - 1, Ordering::Release);
            thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..last.as_millis() / 50 {
            send(&packet(seq, &[]));
            thread::sleep(Duration::from_millis(50));
        }
        self.is_over.store(true, Ordering::Release);
    }

    /// Messages that both lines lost.
    pub(crate) fn lost(&self) -> u64 {
        let lost = self.messages.chunks(PER_PACKET).enumerate().filter(|&(idx, _)| is_lost(idx));
        lost.map(|(_, messages)| messages.len() as u64).sum()
    }

    fn wanted(&self, first: u64, count: u64) -> &[Vec<u8>] {
        let from = first.saturating_sub(1) as usize;
        let to = (from + count.min(40) as usize).min(self.messages.len());
        self.messages.get(from..to).unwrap_or_default()
    }

    /// IEX's gap-fill server over UDP.
    pub(crate) fn serve_iex(&self, socket: &UdpSocket) {
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut bytes = [0; 64];
        while !self.is_over.load(Ordering::Acquire) {
            let Ok((len, asker)) = socket.recv_from(&mut bytes) else { continue };
            let Ok(GapRequest { protocol, channel, session, first, last }) = GapRequest::parse(&bytes[..len]) else {
                continue;
            };
            assert_eq!((protocol, channel, session), (IexHeader::DEEP_1_0, 1, 77));
            socket.send_to(&iex_packet(first, self.wanted(first, last - first + 1)), asker).unwrap();
        }
    }

    /// Cboe's gap request proxy: refuses the first request for want of quota, and sends the others'
    /// messages to the gap group. Before each answer somebody else sends one with other messages
    /// there, where he has any.
    pub(crate) fn serve_gaps(&self, listener: &TcpListener, forged: &[Vec<u8>]) {
        let group = UdpSocket::bind("127.0.0.1:0").unwrap();
        let forger = UdpSocket::bind("127.0.0.9:0").unwrap();
        let mut is_first = true;
        self.serve(listener, |message, client| match message {
            ClientMessage::Login(_) => answer(client, &[ServerMessage::LoginReply { status: b'A' }.emit().to_vec()]),
            ClientMessage::GapRequest { unit, first, count } => {
                let status = if std::mem::take(&mut is_first) { b'S' } else { b'A' };
                answer(client, &[ServerMessage::GapResponse { unit, first, count, status }.emit().to_vec()]);
                if status == b'A' && !forged.is_empty() {
                    let count = usize::from(count).min(forged.len());
                    forger.send_to(&unit_packet(first.into(), &forged[..count]), GAP_GROUP).unwrap();
                }
                if status == b'A' {
                    let packet = unit_packet(first.into(), self.wanted(first.into(), count.into()));
                    group.send_to(&packet, GAP_GROUP).unwrap();
                }
            }
            ClientMessage::SpinRequest { .. } => panic!("the proxy has no images"),
        });
    }

    /// Cboe's spin server: `image` makes the adds of an image of the first so many messages.
    pub(crate) fn serve_spins(&self, listener: &TcpListener, image: impl Fn(usize) -> Vec<Vec<u8>>) {
        self.serve(listener, |message, client| match message {
            ClientMessage::Login(_) => {
                let seq = self.sent.load(Ordering::Acquire) as u32;
                let reply = ServerMessage::LoginReply { status: b'A' }.emit().to_vec();
                answer(client, &[reply, ServerMessage::ImageAvailable { seq }.emit().to_vec()]);
            }
            ClientMessage::SpinRequest { seq } => {
                let orders = image(seq as usize);
                let response = ServerMessage::SpinResponse { seq, orders: orders.len() as u32, status: b'A' };
                answer(client, &[response.emit().to_vec()]);
                orders.chunks(30).for_each(|orders| answer(client, orders));
                answer(client, &[ServerMessage::SpinFinished { seq }.emit().to_vec()]);
            }
            ClientMessage::GapRequest { .. } => panic!("the spin server has no gaps"),
        });
    }

    /// MEMX's server of replays: refuses the first request, and closes the line in the middle of
    /// the second's messages.
    pub(crate) fn serve_replays(&self, listener: &TcpListener) {
        use replay::{ClientMessage, ServerMessage};
        let mut requests = 0;
        self.serve_bytes(listener, |bytes, client| {
            let mut front = &bytes[..];
            let (mut out, mut is_cut) = (Vec::new(), false);
            while let Some((message, rest)) = ClientMessage::split(front) {
                front = rest;
                match message.unwrap() {
                    ClientMessage::Login(token) => {
                        assert_eq!(Some(token), replay::LoginToken::new(b'P', "USER:SECRET"));
                        ServerMessage::LoginAccepted { mode: REPLAY }.emit(&mut out);
                        ServerMessage::StartOfSession { session: MEMX_SESSION }.emit(&mut out);
                    }
                    ClientMessage::ReplayRequest { session, seq, count } => {
                        assert_eq!(session, MEMX_SESSION);
                        requests += 1;
                        if requests == 1 {
                            ServerMessage::ReplayRejected { reason: b'S' }.emit(&mut out);
                            continue;
                        }
                        let wanted = self.wanted(seq, count.into());
                        ServerMessage::ReplayBegin { seq, count: wanted.len() as u32 }.emit(&mut out);
                        ServerMessage::Heartbeat.emit(&mut out);
                        wanted.iter().for_each(|message| ServerMessage::Sequenced(message).emit(&mut out));
                        ServerMessage::ReplayComplete.emit(&mut out);
                        is_cut = requests == 2;
                    }
                    ClientMessage::Heartbeat => {}
                }
            }
            let taken = bytes.len() - front.len();
            bytes.drain(..taken);
            let len = if is_cut { out.len() / 2 } else { out.len() };
            client.write_all(&out[..len]).is_ok() && !is_cut
        });
    }

    /// One client after the other; units are in one piece each, because a client sends few.
    fn serve(&self, listener: &TcpListener, mut take: impl FnMut(ClientMessage, &mut TcpStream)) {
        self.serve_bytes(listener, |bytes, client| {
            while let Some(len) = bytes.first_chunk().map(|len| usize::from(u16::from_le_bytes(*len)))
                && bytes.len() >= len
            {
                let unit: Vec<u8> = bytes.drain(..len).collect();
                for message in CboeUnit::parse(&unit).unwrap().messages() {
                    take(ClientMessage::parse(message).unwrap(), client);
                }
            }
            true
        });
    }

    /// One client after the other: `take` removes what it has understood, and says whether the line
    /// goes on.
    fn serve_bytes(&self, listener: &TcpListener, mut take: impl FnMut(&mut Vec<u8>, &mut TcpStream) -> bool) {
        listener.set_nonblocking(true).unwrap();
        while !self.is_over.load(Ordering::Acquire) {
            let Ok((mut client, _)) = listener.accept() else {
                thread::sleep(Duration::from_millis(2));
                continue;
            };
            client.set_nonblocking(false).unwrap();
            client.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let (mut bytes, mut room) = (Vec::new(), [0; 2_048]);
            while !self.is_over.load(Ordering::Acquire) {
                match client.read(&mut room) {
                    Ok(0) => break,
                    Ok(len) => bytes.extend_from_slice(&room[..len]),
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                    Err(_) => continue,
                }
                if !take(&mut bytes, &mut client) {
                    break;
                }
            }
        }
    }
}

/// One unit with these messages. A client that has gone is the next read's matter.
fn answer(client: &mut TcpStream, messages: &[Vec<u8>]) {
    let mut room = [0; 2_048];
    let mut writer = PacketWriter::<CboeUnit>::new(UnitHeader { unit: 0, count: 0, seq: 0 }, &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    let _ = client.write_all(writer.finish());
}
