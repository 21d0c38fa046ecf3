//! Puts messages into packets, of MoldUDP64 or of MDP 3.0: within the MTU, sent when full or old
//! enough, with heartbeats on a silent line.
//!
//! Both lines carry the same packets, so this happens once. The time is that of the messages. A
//! packet leaves when it is full or when its first message has waited for
//! [`Settings::pack_wait_us`], and packets leave in the order of their numbers.

use market::framing::mdp3::{Mdp3Header, Mdp3Packet};
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::framing::{Framing, PacketKind};

use crate::capture::MIDNIGHT_NS;
use crate::session::TimedMessage;
use crate::settings::Settings;

/// A line that is silent for this long sends a heartbeat (MoldUDP64 1.00: "once a second").
const HEARTBEAT_NS: u64 = 1_000_000_000;
/// The end of the session is sent this often, a heartbeat's interval apart, since any of them may
/// be lost.
const ENDS_OF_SESSION: u32 = 3;
/// The interval between them where a caller waits for the day to end: enough for re-requests.
const HURRIED_END_NS: u64 = 500_000_000;

/// One packet as the exchange sends it to both lines.
#[derive(Debug)]
pub struct Packet {
    /// When it leaves, in nanoseconds since midnight New York.
    pub time_ns: u64,
    /// Position among all packets of the day, from 0.
    pub idx: u64,
    /// Its kind.
    pub kind: PacketKind,
    /// Number of its first message, or the next number where it has none; its own number in MDP
    /// 3.0.
    pub sequence: u64,
    /// Messages in it.
    pub count: u16,
    /// The UDP payload.
    pub payload: Box<[u8]>,
}

impl AsRef<[u8]> for Packet {
    fn as_ref(&self) -> &[u8] {
        &self.payload
    }
}

/// How packets of a format are numbered, and how one without messages looks.
pub(crate) trait PacketFormat {
    /// The framing of the packets.
    type Framing: Framing;

    /// The header of the packet with number `sequence`.
    fn raw(&self, sequence: u64, time_ns: u64) -> <Self::Framing as Framing>::Raw;

    /// The message of a heartbeat, which has a number then.
    fn heartbeat(&self) -> Option<Vec<u8>>;
}

/// MoldUDP64 of one session.
#[derive(Debug)]
pub(crate) struct MoldSession([u8; 10]);

impl PacketFormat for MoldSession {
    type Framing = MoldUdp64;

    fn raw(&self, sequence: u64, _: u64) -> MoldHeader {
        MoldHeader::new(self.0, sequence)
    }

    fn heartbeat(&self) -> Option<Vec<u8>> {
        None
    }
}

/// MDP 3.0, whose numbers are those of packets.
#[derive(Debug)]
pub(crate) struct Mdp3Feed;

impl PacketFormat for Mdp3Feed {
    type Framing = Mdp3Packet;

    fn raw(&self, sequence: u64, time_ns: u64) -> Mdp3Header {
        Mdp3Header { seq: sequence as u32, sent_ns: MIDNIGHT_NS + time_ns }
    }

    fn heartbeat(&self) -> Option<Vec<u8>> {
        let mut message = Vec::new();
        market::mdp3::emit::heartbeat(&mut message);
        Some(message)
    }
}

/// Messages in, packets out.
#[derive(Debug)]
pub(crate) struct Packetizer<T = MoldSession> {
    format: T,
    payload_max: usize,
    wait_ns: u64,
    /// Header and blocks of the packet that is being filled.
    open: Vec<u8>,
    count: u16,
    /// When the first message of the open packet came.
    opened_ns: u64,
    next_sequence: u64,
    last_packet_ns: u64,
    /// Interval between two ends of the session.
    end_gap_ns: u64,
    packets: u64,
}

impl Packetizer {
    /// A line that begins at `start_ns` with a heartbeat, so that receivers know the first number.
    pub(crate) fn new(settings: &Settings, start_ns: u64) -> Self {
        Self::of(MoldSession(settings.session.bytes()), settings, start_ns)
    }

    /// Sends the open packet, and the end of the session.
    pub(crate) fn finish(&mut self, out: &mut Vec<Packet>) {
        self.flush(self.opened_ns + self.wait_ns, out);
        for _ in 0..ENDS_OF_SESSION {
            let payload = MoldHeader::emit_end_of_session(self.format.0, self.next_sequence);
            self.send(self.last_packet_ns + self.end_gap_ns, PacketKind::EndOfSession, &payload, out);
        }
    }
}

impl<T: PacketFormat> Packetizer<T> {
    /// Packets of a format, with a heartbeat at `start_ns`.
    pub(crate) fn of(format: T, settings: &Settings, start_ns: u64) -> Self {
        Self {
            format,
            payload_max: settings.payload_max(),
            wait_ns: u64::from(settings.pack_wait_us) * 1000,
            open: vec![0; T::Framing::HEADER_LEN],
            count: 0,
            opened_ns: 0,
            next_sequence: 1,
            last_packet_ns: start_ns - HEARTBEAT_NS,
            end_gap_ns: HEARTBEAT_NS,
            packets: 0,
        }
    }

    /// The number of the packet, or of the message, that comes next.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// The next packet has number 1, as each loop begins with.
    pub(crate) fn restart_numbers(&mut self) {
        self.next_sequence = 1;
    }

    /// Takes the next message, after the packets that leave before it.
    pub(crate) fn push(&mut self, message: &TimedMessage, out: &mut Vec<Packet>) {
        self.push_bytes(message.time_ns, message.bytes(), out);
    }

    /// As [`Packetizer::push`], of a message in bytes.
    pub(crate) fn push_bytes(&mut self, time_ns: u64, bytes: &[u8], out: &mut Vec<Packet>) {
        self.pass_time(time_ns, out);
        if self.open.len() + T::Framing::PREFIX_LEN + bytes.len() > self.payload_max {
            self.flush(time_ns, out);
        }
        self.push_block(time_ns, bytes);
    }

    fn push_block(&mut self, time_ns: u64, bytes: &[u8]) {
        let block_len = T::Framing::PREFIX_LEN + bytes.len();
        if self.count == 0 {
            self.opened_ns = time_ns;
        }
        let start = self.open.len();
        self.open.resize(start + block_len, 0);
        let (prefix, block) = self.open[start..].split_at_mut(T::Framing::PREFIX_LEN);
        T::Framing::emit_prefix(bytes.len(), prefix);
        block.copy_from_slice(bytes);
        self.count += 1;
    }

    /// Sends the open packet, if there is one, at `time_ns`.
    pub(crate) fn flush(&mut self, time_ns: u64, out: &mut Vec<Packet>) {
        if self.count > 0 {
            self.close(time_ns, out);
        }
    }

    /// Shortens the interval between the ends of the session.
    pub(crate) fn shorten_end_interval(&mut self) {
        self.end_gap_ns = HURRIED_END_NS;
    }

    /// Sends the open packet if it has waited long enough by `now_ns`, and the heartbeats that were
    /// due until then.
    pub(crate) fn pass_time(&mut self, now_ns: u64, out: &mut Vec<Packet>) {
        if self.count > 0 {
            if now_ns <= self.opened_ns + self.wait_ns {
                return;
            }
            self.close(self.opened_ns + self.wait_ns, out);
        }
        while self.last_packet_ns + HEARTBEAT_NS <= now_ns {
            self.beat(self.last_packet_ns + HEARTBEAT_NS, out);
        }
    }

    fn beat(&mut self, time_ns: u64, out: &mut Vec<Packet>) {
        if let Some(message) = self.format.heartbeat() {
            self.push_block(time_ns, &message);
            return self.close(time_ns, out);
        }
        let mut payload = vec![0; T::Framing::HEADER_LEN];
        T::Framing::emit_raw(&self.format.raw(self.next_sequence, time_ns), 0, 0, &mut payload);
        self.send(time_ns, PacketKind::Heartbeat, &payload, out);
    }

    fn close(&mut self, time_ns: u64, out: &mut Vec<Packet>) {
        let mut payload = std::mem::take(&mut self.open);
        let body_len = payload.len() - T::Framing::HEADER_LEN;
        let header = self.format.raw(self.next_sequence, time_ns);
        T::Framing::emit_raw(&header, self.count.into(), body_len, &mut payload);
        self.send(time_ns, PacketKind::Data, &payload, out);
        self.next_sequence += if T::Framing::NUMBERS_PACKETS { 1 } else { u64::from(self.count) };
        self.count = 0;
        payload.truncate(T::Framing::HEADER_LEN);
        self.open = payload;
    }

    fn send(&mut self, time_ns: u64, kind: PacketKind, payload: &[u8], out: &mut Vec<Packet>) {
        let count = if kind == PacketKind::Data { self.count } else { 0 };
        let (idx, sequence) = (self.packets, self.next_sequence);
        out.push(Packet { time_ns, idx, kind, sequence, count, payload: payload.into() });
        self.packets += 1;
        self.last_packet_ns = time_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Session;
    use market::framing::PacketKind;

    const MESSAGES: u64 = 20_000;

    fn settings(mtu: u16) -> Settings {
        Settings { symbols: 20, messages: MESSAGES, mtu, ..Settings::default() }
    }

    fn packets(settings: &Settings) -> Vec<Packet> {
        let mut packetizer = Packetizer::new(settings, crate::session::START_NS);
        let mut out = Vec::new();
        for message in Session::new(settings) {
            packetizer.push(&message, &mut out);
        }
        packetizer.finish(&mut out);
        out
    }

    #[test]
    fn packets_never_pass_the_mtu_and_bursts_fill_them() {
        for mtu in [94, 576, 1500, 9000] {
            let settings = settings(mtu);
            let packets = packets(&settings);
            let largest = packets.iter().map(|packet| packet.payload.len()).max().unwrap();
            assert!(largest <= settings.payload_max(), "mtu {mtu}: {largest}");
            assert!(mtu > 1500 || largest + 46 > settings.payload_max(), "mtu {mtu}: {largest}");
        }
    }

    #[test]
    fn longer_wait_makes_fewer_packets() {
        let count = |pack_wait_us| packets(&Settings { pack_wait_us, ..settings(1500) }).len();
        assert!(count(0) > count(5) && count(5) > 2 * count(500));
    }

    #[test]
    fn numbers_and_times_follow_each_other() {
        let packets = packets(&settings(1500));
        let mut next = 1;
        for packet in &packets {
            assert_eq!(packet.sequence, next);
            next += u64::from(packet.count);
        }
        assert_eq!(next, MESSAGES + 1);
        assert!(packets.is_sorted_by(|a, b| a.time_ns <= b.time_ns && a.idx + 1 == b.idx));
    }

    #[test]
    fn payloads_parse_to_what_the_packet_says() {
        for packet in packets(&settings(1500)) {
            let parsed = MoldUdp64::parse(&packet.payload).unwrap();
            assert_eq!((parsed.header.seq, parsed.header.count), (packet.sequence, packet.count.into()));
            assert_eq!(parsed.header.kind, packet.kind);
            assert_eq!(&parsed.raw.session, b"SIM0000001");
        }
    }

    #[test]
    fn line_is_never_silent_for_more_than_a_second() {
        let packets = packets(&settings(1500));
        assert!(packets.windows(2).all(|pair| pair[1].time_ns - pair[0].time_ns <= HEARTBEAT_NS));
        assert_eq!(packets[0].kind, PacketKind::Heartbeat);
        assert!(packets.iter().filter(|packet| packet.kind == PacketKind::Heartbeat).count() > 3);
    }

    #[test]
    fn session_ends_three_times_and_nothing_follows() {
        let packets = packets(&settings(1500));
        let ends = packets.iter().position(|packet| packet.kind == PacketKind::EndOfSession).unwrap();
        assert_eq!(packets.len() - ends, 3);
        assert!(packets[ends..].iter().all(|packet| packet.kind == PacketKind::EndOfSession));
    }
}
