//! Our machine, with an app that follows the script.

use std::net::SocketAddrV4;

use wirepath::pipeline::tcp::{
    AcceptDecision, ConnectionId, ConnectionOptions, ListenOptions, State, TcpConfig, TcpEvent,
};
use wirepath::proto::{Flow, HashSeed};
use wirepath::testing::tcp::{Arrival, Segment, SynOptions, Tcp};
use wirepath::time::Instant;
use wirepath::wire::tcp::TcpFlags;

use super::side::{Control, PeerSegment, SentSegment, Subject};
use super::smoltcp::{LOCAL, REMOTE, TIME_WAIT};
use crate::script::{Bytes, Wire};

pub(super) struct Ours {
    tcp: Tcp<Bytes>,
    wire: Wire,
    buffer: u32,
    id: Option<ConnectionId>,
    /// Data that came while the app did not read.
    arrived: Vec<u8>,
}

impl Ours {
    pub(super) fn new(seed: u64, buffer: u32) -> Self {
        let config = TcpConfig { time_wait: TIME_WAIT, ..TcpConfig::default() };
        let mut tcp = Tcp::new(config, HashSeed::new(seed, 5)).expect("the configuration is a good one");
        let connection = ConnectionOptions {
            receive_buffer: buffer,
            quickack: true,
            timestamps: false,
            sack: false,
            ..ConnectionOptions::default()
        };
        let options = ListenOptions { connection, ..ListenOptions::default() };
        tcp.listen(local(), &options).expect("nobody listens there");
        Self { tcp, wire: Wire::new(Instant::ZERO), buffer, id: None, arrived: Vec::new() }
    }

    fn listen_to_events(&mut self) {
        while let Some((id, _, event)) = self.tcp.next_event() {
            match event {
                TcpEvent::Connected { .. } => {
                    self.id = Some(id);
                    // The app reads when the script says so.
                    self.tcp.pause(id).expect("it has just connected");
                }
                TcpEvent::Closed(_) => (),
                _ => (),
            }
        }
    }
}

fn local() -> SocketAddrV4 {
    SocketAddrV4::new(LOCAL.0, LOCAL.1)
}

impl Subject for Ours {
    fn receive(&mut self, words: &PeerSegment<'_>, now: u64) {
        let flags = match words.control {
            Control::None => TcpFlags::NONE,
            Control::Syn => TcpFlags::SYN,
            Control::Fin => TcpFlags::FIN,
            Control::Rst => TcpFlags::RST,
        };
        let segment = Segment {
            seq: wirepath::pipeline::tcp::Seq(words.seq),
            ack: wirepath::pipeline::tcp::Seq(words.ack.unwrap_or(0)),
            wnd: words.wnd,
            flags: if words.ack.is_some() { flags | TcpFlags::ACK } else { flags },
            len: words.payload.len() as u32,
            timestamps: None,
            sack_count: 0,
            sacks: Default::default(),
            syn: SynOptions { mss: words.mss, ..SynOptions::default() },
            ce: false,
        };
        let flow = Flow { local: local(), remote: SocketAddrV4::new(REMOTE.0, REMOTE.1) };
        let payload = (!words.payload.is_empty()).then(|| Bytes(words.payload.to_vec()));
        let now = Instant::from_nanos(now);
        let received =
            self.tcp.receive(&Arrival { flow, segment }, payload, |_, _| AcceptDecision::Yes, now, &mut self.wire);
        if let Ok(Some((_, bytes))) = received {
            self.arrived.extend(bytes.0);
        }
        self.listen_to_events();
    }

    fn turn(&mut self, now: u64) -> Vec<SentSegment> {
        self.tcp.tick(Instant::from_nanos(now), &mut self.wire);
        self.listen_to_events();
        let segment = |sent: crate::script::SentSegment| SentSegment {
            seq: sent.segment.seq.0,
            ack: sent.segment.ack.0,
            wnd: sent.segment.wnd,
            is_syn: sent.segment.flags.contains(TcpFlags::SYN),
            is_fin: sent.segment.flags.contains(TcpFlags::FIN),
            is_reset: sent.segment.flags.contains(TcpFlags::RST),
            payload: sent.payload,
        };
        self.wire.sent.drain(..).map(segment).collect()
    }

    fn read(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.arrived);
        let Some(id) = self.id else { return bytes };
        if self.tcp.resume(id).is_ok() {
            while let Some(next) = self.tcp.next_data(id) {
                bytes.extend(next.0);
            }
            self.listen_to_events();
            _ = self.tcp.pause(id);
        }
        bytes
    }

    fn write(&mut self, bytes: &[u8], now: u64) {
        let Some(id) = self.id.filter(|_| !bytes.is_empty()) else { return };
        let make = |bytes: &[u8]| Some(Bytes(bytes.to_vec()));
        let taken = self.tcp.send_copy(id, bytes, make, Instant::from_nanos(now), &mut self.wire);
        assert_eq!(taken, Ok(bytes.len()), "the buffer has room for all that the script writes");
    }

    fn shut(&mut self, now: u64) {
        if let Some(id) = self.id {
            _ = self.tcp.shutdown(id, Instant::from_nanos(now), &mut self.wire);
        }
    }

    fn state(&self) -> String {
        let state = self.id.and_then(|id| self.tcp.info(id, Instant::ZERO)).map_or(State::Closed, |info| info.state);
        match state {
            State::SynSent => "SYN-SENT",
            State::SynReceived => "SYN-RECEIVED",
            State::Established => "ESTABLISHED",
            State::FinWait1 => "FIN-WAIT-1",
            State::FinWait2 => "FIN-WAIT-2",
            State::CloseWait => "CLOSE-WAIT",
            State::Closing => "CLOSING",
            State::LastAck => "LAST-ACK",
            State::TimeWait => "TIME-WAIT",
            State::Closed => "CLOSED",
        }
        .to_owned()
    }

    fn buffer(&self) -> u32 {
        self.buffer
    }
}
