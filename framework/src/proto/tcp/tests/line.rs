//! One machine with an established connection, and a peer that sends exactly what a test makes it
//! send. Numbers are counted from the first byte of each side; the actual sequence numbers wrap
//! around within the first kilobyte.

use core::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::proto::tcp::machine::Context;
use crate::proto::tcp::state::connection::{AppFlags, Connection, InputFlags, State};
use crate::wire::tcp::TcpFlags;

/// Payload of a full segment.
pub(crate) const MSS: u32 = 1000;
/// The numbers of the first bytes.
const OURS: Seq = Seq(u32::MAX - 500);
const THEIRS: Seq = Seq(u32::MAX - 700);

/// The output of a test.
pub(crate) struct Wire {
    pub(crate) sent: Vec<(Outgoing, Vec<u8>)>,
    /// The remaining room for segments.
    pub(crate) room: usize,
    /// All segments are lost.
    pub(crate) is_cut: bool,
    pub(crate) segmentation_len_max: usize,
    /// The most payloads of one segment.
    pub(crate) pieces_max: usize,
}

impl Output<Vec<u8>> for Wire {
    fn send(&mut self, _: Option<u32>, segment: &Outgoing, payload: Option<&mut Vec<u8>>) -> Result<(), Unsent> {
        if self.is_cut {
            return Err(Unsent::NoRoute);
        }
        self.room = self.room.checked_sub(1).ok_or(Unsent::Busy)?;
        self.sent.push((*segment, payload.map_or(Vec::new(), |payload| payload.clone())));
        Ok(())
    }

    fn mtu(&self, _: Ipv4Addr) -> usize {
        1500
    }

    fn segmentation_len_max(&self) -> usize {
        self.segmentation_len_max
    }

    fn pieces_max(&self, _: u32) -> usize {
        self.pieces_max
    }

    fn send_run(&mut self, slot: u32, segment: &Outgoing, run: &mut Run<'_, Vec<u8>>) -> Result<(), Unsent> {
        let (mut bytes, mut lens) = (Vec::new(), Vec::new());
        let is_whole = run.all_from_the_last(|payload| {
            bytes.splice(..0, payload.iter().copied());
            lens.push(payload.len());
            true
        });
        assert!(is_whole && bytes.len() == run.len() && (2..=self.pieces_max).contains(&lens.len()));
        assert!(lens[1..].iter().all(|&len| len == usize::from(segment.segment_len)), "cut where they meet: {lens:?}");
        self.send(Some(slot), segment, Some(&mut bytes))
    }
}

pub(crate) struct Line {
    pub(crate) tcp: Tcp<Vec<u8>>,
    pub(crate) wire: Wire,
    pub(crate) slot: u32,
    pub(crate) now: Instant,
    /// The data delivered to the app.
    pub(crate) bytes: Vec<u8>,
    pub(crate) events: Vec<TcpEvent>,
    /// The acknowledgment and window of the peer's segments.
    pub(crate) ack: u32,
    pub(crate) wnd: u16,
    /// Bytes that our app has sent.
    pub(crate) written: u32,
}

/// The byte at a position of either stream.
fn byte(at: u32) -> u8 {
    (at % 251) as u8
}

pub(crate) fn stream(at: u32, len: u32) -> Vec<u8> {
    (at..at + len).map(byte).collect()
}

/// Options without a congestion window, so that the tested limit is the only one.
pub(crate) fn options() -> ConnectionOptions {
    ConnectionOptions { congestion: Congestion::None, ..ConnectionOptions::default() }
}

impl Line {
    pub(crate) fn new() -> Self {
        Self::with(&options())
    }

    pub(crate) fn with(options: &ConnectionOptions) -> Self {
        Self::of(TcpConfig { connections_max: 4, chunks_max: 1024, ..TcpConfig::default() }, options)
    }

    pub(crate) fn of(config: TcpConfig, options: &ConnectionOptions) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut tcp = Tcp::new(config, HashSeed::new(1, 2)).unwrap();
        let flow = Flow { local: CLIENT, remote: SERVER };
        let mut connection = Connection::new(flow, State::SynSent, options, ConsumerId(1), now);
        (connection.rare_snd.iss, connection.rare_rcv.irs) = (OURS - 1, THEIRS - 1);
        (connection.snd.una, connection.snd.nxt, connection.rcv.nxt) = (OURS, OURS, THEIRS);
        (connection.advertised.last_ack_sent, connection.snd.small) = (THEIRS, OURS);
        connection.advertised.adv = THEIRS + options.receive_buffer.min(65_535);
        (connection.snd.wnd, connection.rare_snd.wnd_max) = (60_000, 60_000);
        (connection.snd.wl1, connection.snd.wl2) = (THEIRS - 1, OURS);
        (connection.snd.mss, connection.rcv.mss) = (MSS as u16, MSS as u16);
        connection.set(InputFlags::SACK);
        let slot = tcp.insert(connection).unwrap();
        let wire = Wire { sent: Vec::new(), room: usize::MAX, is_cut: false, segmentation_len_max: 0, pieces_max: 1 };
        let (bytes, events) = (Vec::new(), Vec::new());
        let mut line = Self { tcp, wire, slot, now, bytes, events, ack: 0, wnd: 60_000, written: 0 };
        line.context().establish();
        line.listen();
        line.events.clear();
        line
    }

    pub(crate) fn context(&mut self) -> Context<'_, Vec<u8>, Wire> {
        self.tcp.context(self.slot, &mut self.wire, self.now)
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.tcp.connections[self.slot]
    }

    /// Whether the slot is free again.
    pub(crate) fn is_gone(&self) -> bool {
        self.tcp.is_empty()
    }

    pub(crate) fn id(&self) -> ConnectionId {
        ConnectionId { slot: self.slot, generation: self.tcp.connections[self.slot].generation }
    }

    /// The peer sends bytes.
    pub(crate) fn data(&mut self, at: u32, len: u32) -> Option<TcpDrop> {
        self.note_received(at, stream(at, len), TcpFlags::ACK, |_| ())
    }

    /// The peer acknowledges all before `upto`.
    pub(crate) fn ack(&mut self, upto: u32) -> Option<TcpDrop> {
        self.ack = upto;
        let at = self.tcp.connections[self.slot].rcv.nxt - THEIRS;
        self.note_received(at, Vec::new(), TcpFlags::ACK, |_| ())
    }

    /// The peer reports bytes from `left` to `right`, with its last acknowledgment number.
    pub(crate) fn sack(&mut self, left: u32, right: u32) {
        let at = self.tcp.connections[self.slot].rcv.nxt - THEIRS;
        self.note_received(at, Vec::new(), TcpFlags::ACK, |segment| {
            segment.sack_count = 1;
            segment.sacks[0] = Range { left: OURS + left, right: OURS + right };
        });
    }

    pub(crate) fn note_received(
        &mut self,
        at: u32,
        payload: Vec<u8>,
        flags: TcpFlags,
        change: impl FnOnce(&mut Segment),
    ) -> Option<TcpDrop> {
        let mut segment = Segment {
            seq: THEIRS + at,
            ack: OURS + self.ack,
            wnd: self.wnd,
            flags,
            len: payload.len() as u32,
            timestamps: None,
            sack_count: 0,
            sacks: [Range::default(); SACK_BLOCKS_MAX],
            syn: SynOptions::default(),
            ce: false,
        };
        change(&mut segment);
        let arrival = Arrival { flow: Flow { local: CLIENT, remote: SERVER }, segment };
        let payload = (!payload.is_empty()).then_some(payload);
        let received = self.tcp.receive(&arrival, payload, |_, _| AcceptDecision::Yes, self.now, &mut self.wire);
        let dropped = received.as_ref().err().copied();
        if let Ok(Some((_, data))) = received {
            self.bytes.extend(data);
        }
        self.listen();
        dropped
    }

    /// Our app sends so many bytes more.
    pub(crate) fn send(&mut self, len: u32) {
        self.try_send(len).unwrap();
    }

    /// The same where it may be refused.
    pub(crate) fn try_send(&mut self, len: u32) -> Result<(), SendError> {
        let (id, payload) = (self.id(), stream(self.written, len));
        self.tcp.send(id, payload, self.now, &mut self.wire).map_err(|(why, _)| why)?;
        self.written += len;
        Ok(())
    }

    /// The same by copying into buffers as long as a segment; returns the accepted bytes.
    pub(crate) fn send_copy(&mut self, len: u32) -> Result<usize, SendError> {
        let (id, bytes) = (self.id(), stream(self.written, len));
        let taken = self.tcp.send_copy(id, &bytes, |bytes| Some(bytes.to_vec()), self.now, &mut self.wire);
        self.written += *taken.as_ref().unwrap_or(&0) as u32;
        taken
    }

    /// Our app closes its side.
    pub(crate) fn finish(&mut self) {
        let id = self.id();
        self.tcp.shutdown(id, self.now, &mut self.wire).unwrap();
    }

    pub(crate) fn tick(&mut self) {
        self.tcp.tick(self.now, &mut self.wire);
        self.listen();
    }

    /// Time passes, a tick each millisecond.
    pub(crate) fn after_ms(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += Duration::from_millis(1);
            self.tick();
        }
    }

    /// Time passes, a tick each hundredth of a second.
    pub(crate) fn after_s(&mut self, s: u64) {
        for _ in 0..s * 100 {
            self.now += Duration::from_millis(10);
            self.tick();
        }
    }

    /// The app resumes, and reads the waiting data.
    pub(crate) fn resume(&mut self) {
        self.connection().clear(AppFlags::PAUSED);
        let id = self.id();
        while let Some(data) = self.tcp.next_data(id) {
            self.bytes.extend(data);
        }
        self.listen();
    }

    /// Data kept out of order is sorted, without overlap, and was received. SACK reports no more of
    /// it than there is.
    pub(crate) fn check_out_of_order(&self, came: &[bool]) {
        let (connection, chunks) = (&self.tcp.connections[self.slot], &self.tcp.shared.chunks);
        let (mut idx, mut right, mut count) = (connection.out_of_order.queue.head, connection.rcv.nxt, 0);
        let mut waits = vec![false; came.len()];
        while let Some(chunk) = chunks.get(idx) {
            assert!(chunk.seq.is_at_least(right) && chunk.seq != connection.rcv.nxt && chunk.len > 0);
            let at = chunk.seq - THEIRS;
            assert!(chunk.payload.as_deref() == Some(&stream(at, chunk.len)[..]));
            waits[at as usize..][..chunk.len as usize].fill(true);
            (right, idx, count) = (chunk.end(), chunk.next, count + 1);
        }
        assert_eq!(count, connection.out_of_order.queue.count);
        let whole = (connection.rcv.nxt - THEIRS) as usize;
        assert!(came[whole..] == waits[whole..], "what came is kept");
        for range in connection.rare_rcv.sacks.iter().filter(|range| !range.is_empty()) {
            let (left, right) = ((range.left - THEIRS) as usize, (range.right - THEIRS) as usize);
            assert!(waits[left..right].iter().all(|&waits| waits), "what is told is there");
        }
    }

    fn listen(&mut self) {
        while let Some((id, _, event)) = self.tcp.next_event() {
            self.events.push(event);
            while let Some(data) = self.tcp.next_data(id) {
                self.bytes.extend(data);
            }
        }
    }

    /// The segments sent since the last call, one line each: numbers, acknowledgment, flags, SACK
    /// blocks.
    pub(crate) fn sent(&mut self) -> Vec<String> {
        let sent = core::mem::take(&mut self.wire.sent);
        sent.iter().map(|(outgoing, payload)| describe(outgoing, payload)).collect()
    }

    /// Windows of the segments sent since the last call.
    pub(crate) fn windows(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.wire.sent).iter().map(|(outgoing, _)| outgoing.wnd.into()).collect()
    }

    /// The segments sent since the last call are new data after `reached` without a gap, or old
    /// data again, and end at `edge` or before. Returns the new end.
    pub(crate) fn check_sent(&mut self, mut reached: u32, edge: u32) -> Result<u32, TestCaseError> {
        for (outgoing, payload) in core::mem::take(&mut self.wire.sent) {
            let (at, len) = (outgoing.seq.0.wrapping_sub(OURS.0) as i32, payload.len() as u32);
            if len == 0 {
                prop_assert!(at <= edge as i32);
                continue;
            }
            let at = at as u32;
            prop_assert!(at <= reached, "no gap");
            prop_assert!(at + len <= edge, "{}+{} leaves the window, which ends at {}", at, len, edge);
            prop_assert!(payload == stream(at, len), "bytes leave under their own numbers");
            reached = reached.max(at + len);
        }
        Ok(reached)
    }

    /// The delivered data is the beginning of the peer's stream.
    pub(crate) fn assert_delivered(&self, len: u32) {
        assert_eq!(self.bytes.len(), len as usize, "bytes delivered");
        assert!(self.bytes == stream(0, len), "bytes are those that were sent");
    }
}

fn describe(outgoing: &Outgoing, payload: &[u8]) -> String {
    let at = outgoing.seq.0.wrapping_sub(OURS.0) as i32;
    let mut line = format!("{at}");
    if !payload.is_empty() {
        assert!(payload == stream(at as u32, payload.len() as u32), "bytes leave under their own numbers");
        line += &format!("+{}", payload.len());
    }
    line += &format!(" ack {}", outgoing.ack.0.wrapping_sub(THEIRS.0) as i32);
    for (bit, name) in [
        (TcpFlags::SYN, " SYN"),
        (TcpFlags::RST, " RST"),
        (TcpFlags::PSH, " PSH"),
        (TcpFlags::FIN, " FIN"),
        (TcpFlags::ECE, " ECE"),
        (TcpFlags::CWR, " CWR"),
    ] {
        if outgoing.flags.contains(bit) {
            line += name;
        }
    }
    if outgoing.ect {
        line += " ect";
    }
    if outgoing.segment_len != 0 {
        line += &format!(" by {}", outgoing.segment_len);
    }
    for block in outgoing.sacks() {
        let number = |seq: Seq| seq.0.wrapping_sub(THEIRS.0) as i32;
        line += &format!(" sack {}..{}", number(block.left), number(block.right));
    }
    line
}
