//! [`Publisher`]: the ring's records as packets. No socket, no clock.

use core::hash::{BuildHasher, Hasher};
use std::hash::RandomState;
use std::sync::Arc;

use market::framing::PacketWriter;
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market_ring::{Read, RingReader};

use crate::message::{MESSAGE_LEN_MAX, Message};

/// Bytes of the longest packet: the UDP payload of an Ethernet frame without jumbo.
pub const PACKET_LEN_MAX: usize = 1_472;
/// A group that is silent for this long gets a heartbeat (MoldUDP64 1.00: "once a second").
pub(crate) const HEARTBEAT_NS: u64 = 1_000_000_000;
/// The end of the session is sent so often, a heartbeat's interval apart. Where the last messages
/// were lost, a listener believes the third, and then it requests them.
const ENDS_OF_SESSION: u32 = 6;
/// A ring in which nothing comes for so long is asked whether its writer lives, a system call.
const IDLE_NS: u64 = 100_000_000;

/// A packet that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// Messages: to be kept for re-requests too.
    Data(Arc<[u8]>),
    /// A heartbeat, or the end of the session.
    Header([u8; 20]),
}

impl Outgoing {
    /// The UDP payload.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Data(bytes) => bytes,
            Self::Header(bytes) => bytes,
        }
    }
}

/// How a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The ring's writer has closed it.
    Closed,
    /// The ring's writer was killed.
    WriterGone,
}

/// What a publisher has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublisherCounts {
    /// Records in packets.
    pub records: u64,
    /// Records that the ring had overwritten, or that this version does not know.
    pub missed: u64,
    /// Packets of messages.
    pub packets: u64,
    /// Heartbeats, and ends of the session.
    pub heartbeats: u64,
}

/// One session: the records of a ring, from those that it holds to its end. Messages are numbered
/// from 1 on, without a hole; the records that could not be read are a message.
pub struct Publisher {
    session: [u8; 10],
    next_seq: u64,
    /// Read, and not in a packet yet.
    waiting: Option<Message>,
    /// When something was read, or the writer was asked for.
    read_ns: u64,
    /// When the last packet was sent, if any was.
    sent_ns: Option<u64>,
    end: Option<End>,
    ends_left: u32,
    counts: PublisherCounts,
}

impl Publisher {
    /// A session that begins with a heartbeat, because listeners believe in it with its second
    /// packet.
    pub fn new(session: [u8; 10], now_ns: u64) -> Self {
        Self {
            session,
            next_seq: 1,
            waiting: None,
            read_ns: now_ns,
            sent_ns: None,
            end: None,
            ends_left: ENDS_OF_SESSION,
            counts: PublisherCounts::default(),
        }
    }

    /// The session's name.
    pub const fn session(&self) -> [u8; 10] {
        self.session
    }

    /// What it has done.
    pub const fn counts(&self) -> &PublisherCounts {
        &self.counts
    }

    /// How the ring has ended, once all has been sent.
    pub fn end(&self) -> Option<End> {
        self.end.filter(|_| self.ends_left == 0)
    }

    /// The next packet: what is in the ring, as much as fits; where it is empty, a heartbeat when
    /// it is time. No message waits for another.
    pub fn next_packet(&mut self, ring: &mut RingReader, now_ns: u64) -> Option<Outgoing> {
        if self.sent_ns.is_none() {
            return self.header(now_ns);
        }
        let mut out = [0; PACKET_LEN_MAX];
        let mut packet = PacketWriter::<MoldUdp64>::new(MoldHeader::new(self.session, self.next_seq), &mut out)?;
        while let Some(message) = self.waiting.take().or_else(|| self.read(ring, now_ns)) {
            if packet.push(message.emit(&mut [0; MESSAGE_LEN_MAX])).is_err() {
                self.waiting = Some(message);
                break;
            }
        }
        let count = packet.count();
        if count == 0 {
            return self.header(now_ns);
        }
        self.next_seq += u64::from(count);
        self.sent_ns = Some(now_ns);
        self.counts.packets += 1;
        Some(Outgoing::Data(packet.finish().into()))
    }

    /// The next message of the ring; `None` while it is empty, and once it has ended.
    fn read(&mut self, ring: &mut RingReader, now_ns: u64) -> Option<Message> {
        if self.end.is_some() {
            return None;
        }
        let message = match ring.read() {
            Read::Record { seq, record } => Message::Record { seq, record },
            Read::Joined { before } => Message::Missed { first: 0, last: before.saturating_sub(1) },
            Read::Overrun { first, last } => Message::Missed { first, last },
            Read::Unknown { seq } => Message::Missed { first: seq, last: seq },
            Read::Empty => return self.look_for_writer(ring, now_ns),
            Read::Closed => {
                self.end = Some(End::Closed);
                return None;
            }
        };
        match message {
            Message::Missed { first, last } => self.counts.missed += last - first + 1,
            _ => self.counts.records += 1,
        }
        self.read_ns = now_ns;
        Some(message)
    }

    /// A writer that was killed closes no ring. What it had written was read: the ring is empty.
    fn look_for_writer(&mut self, ring: &RingReader, now_ns: u64) -> Option<Message> {
        if now_ns.saturating_sub(self.read_ns) < IDLE_NS {
            return None;
        }
        self.read_ns = now_ns;
        // A ring that cannot be asked is read on.
        let is_gone = ring.is_writer_gone().unwrap_or(false) && ring.behind() == 0;
        is_gone.then(|| {
            self.end = Some(End::WriterGone);
            Message::WriterGone
        })
    }

    fn header(&mut self, now_ns: u64) -> Option<Outgoing> {
        let is_first_end = self.end.is_some() && self.ends_left == ENDS_OF_SESSION;
        let is_due = is_first_end || self.sent_ns.is_none_or(|sent_ns| now_ns.saturating_sub(sent_ns) >= HEARTBEAT_NS);
        if !is_due || self.end().is_some() {
            return None;
        }
        self.sent_ns = Some(now_ns);
        self.counts.heartbeats += 1;
        if self.end.is_some() {
            self.ends_left -= 1;
            return Some(Outgoing::Header(MoldHeader::emit_end_of_session(self.session, self.next_seq)));
        }
        let mut out = [0; 20];
        PacketWriter::<MoldUdp64>::new(MoldHeader::new(self.session, self.next_seq), &mut out)?.finish();
        Some(Outgoing::Header(out))
    }
}

/// A session's name: ten letters and digits, drawn. The publisher numbers anew whenever it starts,
/// on the same ring too, so the ring's own session would name two streams. Nobody who does not
/// receive the feed knows it, and packets that do not have it are not believed.
pub fn draw_session() -> [u8; 10] {
    let drawn = RandomState::new().build_hasher().finish();
    core::array::from_fn(|idx| b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[(drawn >> (5 * idx)) as usize % 32])
}

#[cfg(test)]
mod tests {
    use market::event::{Event, System};
    use market::framing::{Framing, PacketKind};
    use market_ring::{Record, RingConfig, RingWriter};
    use tempfile::TempDir;

    use super::*;

    const SESSION: [u8; 10] = *b"ABCDEFGHIJ";

    struct Play {
        writer: Option<RingWriter>,
        ring: RingReader,
        publisher: Publisher,
        _folder: TempDir,
    }

    impl Play {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("ring");
            let writer = RingWriter::create(&path, &RingConfig { records: 32, ..RingConfig::default() }).unwrap();
            let ring = RingReader::open(&path).unwrap();
            let mut play = Self { writer: Some(writer), ring, publisher: Publisher::new(SESSION, 0), _folder: folder };
            play.check(0, "heartbeat 1");
            play
        }

        fn write(&mut self, count: u64) -> &mut Self {
            let writer = self.writer.as_mut().unwrap();
            for _ in 0..count {
                writer.publish(&Record::new(0, Event::System(System { code: b'O', at_ns: 0 })));
            }
            self
        }

        /// The packets that are to be sent: the first number, and the messages.
        #[track_caller]
        fn check(&mut self, now_ns: u64, story: &str) -> &mut Self {
            let mut packets = Vec::new();
            while let Some(packet) = self.publisher.next_packet(&mut self.ring, now_ns) {
                let parsed = MoldUdp64::parse(packet.bytes()).unwrap();
                assert_eq!(parsed.raw.session, SESSION);
                let seq = parsed.header.seq;
                let messages = parsed.messages().map(|message| match Message::parse(message).unwrap() {
                    Message::Record { seq, .. } => format!("R{seq}"),
                    Message::Missed { first, last } => format!("M{first}-{last}"),
                    other => format!("{other:?}"),
                });
                packets.push(match parsed.header.kind {
                    PacketKind::Heartbeat => format!("heartbeat {seq}"),
                    PacketKind::EndOfSession => format!("end {seq}"),
                    _ => format!("{seq}: {}", messages.collect::<Vec<_>>().join(" ")),
                });
            }
            assert_eq!(packets.join(", "), story, "at {now_ns}");
            self
        }
    }

    #[test]
    fn packet_has_what_is_in_the_ring_and_a_silent_group_a_heartbeat() {
        let mut play = Play::new();
        play.write(2).check(1, "1: R0 R1").write(1).check(2, "3: R2").check(3, "");
        play.check(HEARTBEAT_NS + 1, "").check(HEARTBEAT_NS + 2, "heartbeat 4");
    }

    #[test]
    fn messages_that_do_not_fit_are_in_the_next_packet() {
        let mut play = Play::new();
        play.write(13).check(1, "1: R0 R1 R2 R3 R4 R5 R6 R7 R8 R9 R10, 12: R11 R12");
    }

    #[test]
    fn records_that_the_ring_has_overwritten_are_a_message_and_no_hole() {
        let mut play = Play::new();
        play.write(1).check(1, "1: R0").write(40);
        // Half a ring of 32 is left.
        play.check(2, "2: M1-24 R25 R26 R27 R28 R29 R30 R31 R32 R33 R34, 13: R35 R36 R37 R38 R39 R40");
        assert_eq!(play.publisher.counts().missed, 24);
    }

    #[test]
    fn session_ends_with_the_ring_and_is_told_again() {
        let mut play = Play::new();
        play.write(1).writer = None;
        play.check(1, "1: R0, end 2").check(2, "");
        assert_eq!(play.publisher.end(), None);
        for idx in 1..6 {
            play.check(1 + idx * HEARTBEAT_NS, "end 2");
        }
        assert_eq!(play.publisher.end(), Some(End::Closed));
        play.check(9 * HEARTBEAT_NS, "");
    }

    #[test]
    fn names_of_sessions_are_letters_and_digits_and_differ() {
        let names = [draw_session(), draw_session()];
        assert!(names[0] != names[1] && names.iter().flatten().all(u8::is_ascii_alphanumeric));
    }
}
