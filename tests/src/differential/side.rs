//! A stack, and the peer's records about it: its sequence numbers, its acknowledgments, and the
//! data received from it. Positions count from the first byte of a stream.

use std::collections::BTreeMap;
use std::fmt;

use super::MSS;

/// A stack with one connection, driven by hand. Segments are TCP's bytes, from its header on.
pub(super) trait Subject {
    /// A segment comes.
    fn receive(&mut self, segment: &PeerSegment<'_>, now: u64);
    /// The end of a burst: runs timers, and sends what waited for it. Returns the segments sent
    /// since the last call.
    fn turn(&mut self, now: u64) -> Vec<SentSegment>;
    /// The data that the app has not read yet.
    fn read(&mut self) -> Vec<u8>;
    /// The app sends, and has room for all of it.
    fn write(&mut self, bytes: &[u8], now: u64);
    /// The app closes its side.
    fn shut(&mut self, now: u64);
    /// The state, by its name in RFC 9293.
    fn state(&self) -> String;
    /// Bytes that it has room for.
    fn buffer(&self) -> u32;
}

/// A segment that the peer sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSegment<'a> {
    pub(super) seq: u32,
    pub(super) ack: Option<u32>,
    pub(super) wnd: u16,
    pub(super) control: Control,
    pub(super) mss: Option<u16>,
    pub(super) payload: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    None,
    Syn,
    Fin,
    Rst,
}

/// A segment that a stack sent.
#[derive(Clone, Debug)]
pub(super) struct SentSegment {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) wnd: u16,
    pub(super) is_syn: bool,
    pub(super) is_fin: bool,
    pub(super) is_reset: bool,
    pub(super) payload: Vec<u8>,
}

/// An unusual property of the peer's segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OddSegment {
    /// Its acknowledgment is this much ahead of the sent data.
    Ahead(u32),
    /// It is a SYN.
    Syn,
    /// It is a reset.
    Reset,
}

pub(super) struct Side {
    pub(super) subject: Box<dyn Subject>,
    irs: u32,
    iss: u32,
    wnd: u16,
    /// The number that it acknowledged last; its FIN counts.
    pub(super) acked: u32,
    edge: u32,
    /// The data that its app has read.
    pub(super) read: Vec<u8>,
    /// The data that the peer has received, in order, and beyond holes.
    received: Vec<u8>,
    beyond: BTreeMap<u32, Vec<u8>>,
    fin_at: Option<u32>,
    /// Something came since the peer acknowledged last.
    owes_ack: bool,
    /// The state in which it ended.
    ended: Option<String>,
    fault: Option<String>,
}

impl Side {
    pub(super) fn new(subject: Box<dyn Subject>, irs: u32, wnd: u16) -> Self {
        Self {
            subject,
            irs,
            iss: 0,
            wnd,
            acked: 0,
            edge: 0,
            read: Vec::new(),
            received: Vec::new(),
            beyond: BTreeMap::new(),
            fin_at: None,
            owes_ack: false,
            ended: None,
            fault: None,
        }
    }

    /// The peer's SYN, the answer, and the acknowledgment.
    pub(super) fn call(&mut self, now: u64) -> Result<(), String> {
        let syn = PeerSegment {
            seq: self.irs,
            ack: None,
            wnd: self.wnd,
            control: Control::Syn,
            mss: Some(MSS as u16),
            payload: &[],
        };
        self.subject.receive(&syn, now);
        let answer = self.subject.turn(now).into_iter().find(|segment| segment.is_syn).ok_or("no answer to a SYN")?;
        if answer.ack != self.irs.wrapping_add(1) {
            return Err(format!("the SYN is acknowledged by {}", answer.ack));
        }
        self.iss = answer.seq;
        self.edge = answer.wnd.into();
        self.send(0, &[], false, now);
        self.turn(now, true, true);
        Ok(())
    }

    /// Sends bytes of the peer's stream from `at` on, with an acknowledgment of all received data.
    pub(super) fn send(&mut self, at: u32, bytes: &[u8], has_fin: bool, now: u64) {
        let control = if has_fin { Control::Fin } else { Control::None };
        self.say(at, bytes, control, self.received_seq(), now);
    }

    pub(super) fn send_with(&mut self, at: u32, bytes: &[u8], what: OddSegment, now: u64) {
        let (control, ahead) = match what {
            OddSegment::Ahead(ahead) => (Control::None, ahead),
            OddSegment::Syn => (Control::Syn, 0),
            OddSegment::Reset => (Control::Rst, 0),
        };
        self.say(at, bytes, control, self.received_seq().wrapping_add(ahead), now);
    }

    /// An acknowledgment without data, if the peer has received anything to acknowledge.
    pub(super) fn acknowledge(&mut self, now: u64) {
        if self.owes_ack {
            self.send(self.acked, &[], false, now);
        }
    }

    fn say(&mut self, at: u32, payload: &[u8], control: Control, ack: u32, now: u64) {
        self.owes_ack = false;
        let seq = self.irs.wrapping_add(1).wrapping_add(at);
        self.subject.receive(&PeerSegment { seq, ack: Some(ack), wnd: self.wnd, control, mss: None, payload }, now);
    }

    /// The number after all data received in order.
    fn received_seq(&self) -> u32 {
        let fin = u32::from(self.fin_at == Some(self.received.len() as u32));
        self.iss.wrapping_add(1 + self.received.len() as u32 + fin)
    }

    /// The end of a burst. Where `reads`, the app reads and the peer receives the answers.
    pub(super) fn turn(&mut self, now: u64, reads: bool, receives: bool) {
        if reads {
            let bytes = self.subject.read();
            self.read.extend(bytes);
        }
        for segment in self.subject.turn(now) {
            self.note(&segment, receives);
        }
        let state = self.subject.state();
        if self.ended.is_none() && matches!(state.as_str(), "TIME-WAIT" | "CLOSED") {
            self.ended = Some(state);
        }
    }

    fn note(&mut self, segment: &SentSegment, receives: bool) {
        if segment.is_reset || segment.is_syn {
            return;
        }
        let acked = segment.ack.wrapping_sub(self.irs.wrapping_add(1));
        if acked < self.acked {
            self.fault = Some(format!("it acknowledges {acked} after {}", self.acked));
        }
        self.acked = acked;
        let edge = acked + u32::from(segment.wnd);
        self.edge = self.edge.max(edge);
        if !receives {
            return;
        }
        self.owes_ack |= segment.is_fin || !segment.payload.is_empty();
        let at = segment.seq.wrapping_sub(self.iss.wrapping_add(1));
        // A probe has the number before the received data.
        if at == u32::MAX {
            return;
        }
        if segment.is_fin {
            self.fin_at = Some(at + segment.payload.len() as u32);
        }
        if !segment.payload.is_empty() {
            self.beyond.insert(at, segment.payload.clone());
        }
        while let Some((&at, _)) = self.beyond.first_key_value().filter(|(at, _)| **at <= self.received.len() as u32) {
            let bytes = self.beyond.remove(&at).unwrap_or_default();
            let known = self.received.len() - at as usize;
            self.received.extend(bytes.get(known..).unwrap_or_default());
        }
    }

    /// The right edge of the window that it has shown.
    pub(super) fn edge(&self) -> u32 {
        self.edge
    }

    pub(super) fn buffer(&self) -> u32 {
        self.subject.buffer()
    }

    pub(super) fn has_read(&self, inward: &[u8]) -> bool {
        self.read.len() == inward.len()
    }

    /// The data that the peer has received.
    pub(super) fn outward(&self) -> &[u8] {
        &self.received
    }

    /// The state in which it ended: from TIME-WAIT it is forgotten later.
    pub(super) fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// All has come both ways, and both FINs are acknowledged.
    pub(super) fn is_done(&self, inward: &[u8], outward: &[u8]) -> bool {
        self.ended.is_some()
            && self.has_read(inward)
            && self.acked as usize > inward.len()
            && self.received.len() == outward.len()
    }

    /// The errors that this side shows without a comparison.
    pub(super) fn check(&self, inward: &[u8], outward: &[u8]) -> Result<(), String> {
        if let Some(fault) = &self.fault {
            return Err(format!("{fault}: {self}"));
        }
        if !inward.starts_with(&self.read) {
            return Err(format!("the app got other bytes: {self}"));
        }
        if !outward.starts_with(&self.received) {
            return Err(format!("the peer got other bytes: {self}"));
        }
        Ok(())
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.subject.state();
        let (read, received, fin) = (self.read.len(), self.received.len(), self.fin_at);
        write!(
            f,
            "{state}, {read} read, {} acknowledged, edge {}, {received} received, FIN {fin:?}",
            self.acked, self.edge
        )
    }
}
