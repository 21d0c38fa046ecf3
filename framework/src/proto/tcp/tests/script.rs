//! One machine, and a scripted peer: it sends the segments that a test asks for, and records the
//! answers.

use super::*;
use crate::wire::tcp::{TcpFlags, Timestamps};

pub(super) const SYN: TcpFlags = TcpFlags::SYN;
pub(super) const ACK: TcpFlags = TcpFlags::ACK;
pub(super) const RST: TcpFlags = TcpFlags::RST;
pub(super) const FIN: TcpFlags = TcpFlags::FIN;
pub(super) const ISN: u32 = 1000;

/// A machine, and the state of its hand-written peer.
pub(super) struct Script {
    pub(super) end: End,
    /// The peer's next number, and the machine's next as the peer knows it.
    pub(super) seq: Seq,
    pub(super) ack: Seq,
    pub(super) timestamps: Option<Timestamps>,
    pub(super) to: Flow,
}

impl Script {
    pub(super) fn new(end: End) -> Self {
        let to = Flow { local: CLIENT, remote: SERVER };
        Self { end, seq: Seq(ISN), ack: Seq(0), timestamps: None, to }
    }

    /// The peer sends; returns the machine's answer.
    pub(super) fn send(
        &mut self,
        flags: TcpFlags,
        seq: Seq,
        ack: Seq,
        bytes: &[u8],
    ) -> (Option<TcpDrop>, Vec<Outgoing>) {
        let mut segment = Outgoing::bare(self.to, seq, ack, flags);
        segment.wnd = 10_000;
        segment.timestamps = self.timestamps;
        if flags.contains(SYN) {
            segment.syn = Some(SynOptions { mss: Some(1460), window_scale: None, sack_permitted: true });
        }
        let dropped = self.end.note_received((segment, bytes.to_vec()));
        (dropped, self.answers())
    }

    /// As `send`, with the numbers that are next.
    pub(super) fn next(&mut self, flags: TcpFlags, bytes: &[u8]) -> (Option<TcpDrop>, Vec<Outgoing>) {
        let (seq, ack) = (self.seq, self.ack);
        self.seq += bytes.len() as u32 + u32::from(flags.contains(SYN)) + u32::from(flags.contains(FIN));
        self.send(flags, seq, ack, bytes)
    }

    pub(super) fn answers(&mut self) -> Vec<Outgoing> {
        self.end.tick();
        let sent: Vec<_> = core::mem::take(&mut self.end.sent.0);
        for (segment, bytes) in sent.iter().filter(|(segment, _)| !segment.flags.contains(RST)) {
            let len = bytes.len() as u32 + u32::from(segment.flags.intersects(SYN | FIN));
            let is_first = segment.flags.contains(SYN);
            self.ack = if is_first { segment.seq + 1 } else { self.ack.max(segment.seq + len) };
        }
        sent.into_iter().map(|(segment, _)| segment).collect()
    }

    pub(super) fn pass(&mut self, span: Duration) -> Vec<Outgoing> {
        self.end.now += span;
        self.answers()
    }

    pub(super) fn id(&self) -> ConnectionId {
        self.end.id.unwrap()
    }

    pub(super) fn state(&self) -> Option<State> {
        self.end.tcp.info(self.id(), self.end.now).map(|info| info.state)
    }

    pub(super) fn shutdown(&mut self) -> Vec<Outgoing> {
        let (id, now) = (self.id(), self.end.now);
        self.end.tcp.shutdown(id, now, &mut self.end.sent).unwrap();
        self.answers()
    }
}

/// A machine that listens.
pub(super) fn listening(options: &ListenOptions) -> Script {
    let mut end = End::new(2);
    end.tcp.listen(SERVER, options).unwrap();
    Script::new(end)
}

/// A machine with a connection that a peer opened.
pub(super) fn accepted_with(timestamps: Option<Timestamps>) -> Script {
    let mut script = listening(&ListenOptions::default());
    script.timestamps = timestamps;
    let (_, answers) = script.next(SYN, b"");
    assert_eq!(answers[0].flags, SYN | ACK);
    script.ack = answers[0].seq + 1;
    script.next(ACK, b"");
    assert_eq!(script.state(), Some(State::Established));
    script
}

pub(super) fn accepted() -> Script {
    accepted_with(None)
}

/// A machine that connects.
pub(super) fn calling() -> Script {
    let mut end = End::new(2);
    let flow = Flow { local: SERVER, remote: CLIENT };
    let now = end.now;
    end.id = Some(end.tcp.connect(flow, &ConnectionOptions::default(), ConsumerId(1), now, &mut end.sent).unwrap());
    let mut script = Script::new(end);
    let syn = script.answers();
    assert_eq!(syn[0].flags, SYN);
    script.ack = syn[0].seq + 1;
    script
}

pub(super) fn closed(script: &Script) -> Option<CloseReason> {
    script.end.events.iter().find_map(|event| match event {
        TcpEvent::Closed(reason) => Some(*reason),
        _ => None,
    })
}
