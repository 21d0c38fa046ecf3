//! [`Listener`]: packets and answers in, what a reader of the ring would read out. No socket, no
//! clock.

use market::framing::mold_udp64::{MoldUdp64, Request, session_name};
use market::{
    AbChannel, AbConfig, AbCounts, AnswerCounts, ChannelHandler, Gap, Line, Policy, RerequestCounts, RetryPolicy,
    SequenceCounts, StartSequence, Window,
};
use market_ring::Read;

use crate::message::{Message, MessageError};
use crate::publisher::PACKET_LEN_MAX;

/// How a listener works.
#[derive(Clone, Copy, Debug)]
pub struct ListenerConfig {
    /// Begin with the session's first message, as far as the server still has it, and not with the
    /// next that comes. By default `false`.
    pub from_start: bool,
    /// Packets that may wait behind a hole: their memory is taken at the start. By default 4,096: 6
    /// MB.
    pub window_packets: usize,
    /// When to ask the server for what was lost; by default as often as its own default allows,
    /// and for as many messages as one answer has. `None` where there is no server: what is lost is
    /// told without a wait for answers.
    pub retry: Option<RetryPolicy>,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        let retry = RetryPolicy {
            messages: 11,
            outstanding: 32,
            interval_ns: 200_000,
            burst: 64,
            attempts: 5,
            ..RetryPolicy::default()
        };
        Self { from_start: false, window_packets: 4_096, retry: Some(retry) }
    }
}

/// What a listener's user does with what comes.
pub trait ListenerHandler {
    /// The next record, or why there is none, in the words of a reader of the ring: books are kept
    /// in the same way ([`market_ring::WholeChannels`]).
    ///
    /// [`Read::Joined`] is the first where records came before, [`Read::Overrun`] stands for
    /// records that were lost on the network, or before it. It comes as soon as the loss is known,
    /// for as many records as messages were lost. Where the next record shows that more are
    /// missing, because a message told of records that the publisher had missed, another one
    /// follows. [`Read::Closed`] is the end of the session.
    fn on_read(&mut self, read: &Read);

    /// Another session: what was built so far is void.
    fn on_restart(&mut self) {}

    /// The ring's writer was killed: its books say nothing about the market any more.
    fn on_writer_gone(&mut self) {}
}

/// What a listener has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounts {
    /// Records passed on.
    pub records: u64,
    /// Records that are not to be had: lost, or overwritten in the ring.
    pub missed: u64,
    /// Messages that are none, or of a newer publisher.
    pub unknown: u64,
}

/// One group, and what its re-request server brings.
#[derive(Debug)]
pub struct Listener {
    channel: AbChannel<MoldUdp64>,
    unpacker: Unpacker,
}

impl Listener {
    /// A listener that has not heard anything. Allocates all its memory.
    pub fn new(config: &ListenerConfig) -> Self {
        let first = if config.from_start { StartSequence::FromOne } else { StartSequence::Anywhere };
        let policy = Policy { first, ..Policy::default() };
        let window = Window { packets: config.window_packets, ..Window::default() };
        let channel = AbConfig { lines: 1, policy, window, packet_len_max: PACKET_LEN_MAX, ..AbConfig::default() };
        let channel = match config.retry {
            Some(retry) => AbChannel::with_requests(channel, retry),
            None => AbChannel::new(channel),
        };
        Self { channel, unpacker: Unpacker::default() }
    }

    /// Takes a packet of the group.
    pub fn on_packet(&mut self, packet: &[u8], now_ns: u64, handler: &mut impl ListenerHandler) {
        self.channel.on_packet(Line::A, packet, now_ns, &mut Unpacking { unpacker: &mut self.unpacker, handler });
    }

    /// Takes a packet that the server's address has sent to the socket that asked it.
    pub fn on_answer(&mut self, packet: &[u8], now_ns: u64, handler: &mut impl ListenerHandler) {
        self.channel.on_answer(packet, now_ns, &mut Unpacking { unpacker: &mut self.unpacker, handler });
    }

    /// What is due: holes whose time is over are told, and what is to be asked for is passed to
    /// `request`. Call it in each turn.
    pub fn turn(&mut self, now_ns: u64, handler: &mut impl ListenerHandler, mut request: impl FnMut([u8; 20])) {
        let handler = &mut Unpacking { unpacker: &mut self.unpacker, handler };
        self.channel.tick(now_ns, handler);
        while let Some((session, range)) = self.channel.next_request(now_ns, handler) {
            request(Request { session: session_name(session), seq: range.seq, count: range.count }.emit());
        }
    }

    /// Records, and what was missed of them.
    pub fn counts(&self) -> &ListenerCounts {
        &self.unpacker.counts
    }

    /// Packets that were refused.
    pub fn refused(&self) -> &AbCounts {
        self.channel.counts()
    }

    /// Messages of the session: delivered, gaps, duplicates, doubts.
    pub fn sequence(&self) -> &SequenceCounts {
        self.channel.arbiter().counts()
    }

    /// Requests, and what their answers brought.
    pub fn requests(&self) -> (RerequestCounts, AnswerCounts) {
        (self.channel.requests().copied().unwrap_or_default(), self.channel.arbiter().answers())
    }
}

/// Messages to records, and the numbers of the ring that are missing between them.
#[derive(Debug, Default)]
struct Unpacker {
    /// The number in the ring that follows the last one told; `None` at the start of a session.
    next: Option<u64>,
    counts: ListenerCounts,
}

/// The unpacker at work for a handler.
struct Unpacking<'a, H> {
    unpacker: &'a mut Unpacker,
    handler: &'a mut H,
}

impl<H: ListenerHandler> Unpacking<'_, H> {
    /// Tells what is missing before a number of the ring.
    fn reach(&mut self, seq: u64) {
        let missing = match self.unpacker.next {
            None if seq > 0 => Read::Joined { before: seq },
            Some(next) if seq > next => {
                self.unpacker.counts.missed += seq - next;
                Read::Overrun { first: next, last: seq - 1 }
            }
            _ => return,
        };
        self.handler.on_read(&missing);
    }

    fn tell(&mut self, seq: u64, read: &Read) {
        self.reach(seq);
        self.unpacker.next = Some(seq.saturating_add(1));
        self.handler.on_read(read);
    }
}

impl<H: ListenerHandler> ChannelHandler for Unpacking<'_, H> {
    fn on_message(&mut self, _: u64, message: &[u8]) {
        match Message::parse(message) {
            Ok(Message::Record { seq, record }) => {
                self.unpacker.counts.records += 1;
                self.tell(seq, &Read::Record { seq, record });
            }
            Ok(Message::Missed { last, .. }) => {
                self.reach(last.saturating_add(1));
                self.unpacker.next = Some(last.saturating_add(1));
            }
            // The end of the session follows.
            Ok(Message::WriterGone) => self.handler.on_writer_gone(),
            Err(MessageError::Event(seq)) => {
                self.unpacker.counts.unknown += 1;
                self.tell(seq, &Read::Unknown { seq });
            }
            Err(MessageError::Kind | MessageError::Length) => self.unpacker.counts.unknown += 1,
        }
    }

    /// Told at once: a quiet channel's next record may be far away. Most messages are one record;
    /// the next one says by its number how many are missing.
    fn on_gap(&mut self, gap: Gap) {
        let Some(next) = self.unpacker.next else {
            // No number of the ring is known yet.
            return self.handler.on_read(&Read::Joined { before: gap.len() });
        };
        let until = next.saturating_add(gap.len());
        self.reach(until);
        self.unpacker.next = Some(until);
    }

    fn on_restart(&mut self) {
        self.unpacker.next = None;
        self.handler.on_restart();
    }

    fn on_end_of_session(&mut self) {
        self.handler.on_read(&Read::Closed);
    }
}

#[cfg(test)]
mod tests {
    use market::event::{Event, System};
    use market::framing::PacketWriter;
    use market::framing::mold_udp64::MoldHeader;
    use market_ring::Record;
    use proptest::prelude::*;

    use super::*;
    use crate::message::MESSAGE_LEN_MAX;

    #[derive(Default)]
    struct Story(Vec<String>);

    impl ListenerHandler for Story {
        fn on_read(&mut self, read: &Read) {
            self.0.push(match read {
                Read::Record { seq, .. } => format!("R{seq}"),
                Read::Joined { before } => format!("J{before}"),
                Read::Overrun { first, last } => format!("O{first}-{last}"),
                Read::Unknown { seq } => format!("U{seq}"),
                Read::Empty => "empty".to_owned(),
                Read::Closed => ".".to_owned(),
            });
        }

        fn on_restart(&mut self) {
            self.0.push("restart".to_owned());
        }

        fn on_writer_gone(&mut self) {
            self.0.push("gone".to_owned());
        }
    }

    fn record(seq: u64) -> Message {
        Message::Record { seq, record: Record::new(0, Event::System(System { code: b'O', at_ns: 0 })) }
    }

    fn packet(session: u8, seq: u64, messages: &[Message]) -> Vec<u8> {
        let mut out = [0; PACKET_LEN_MAX];
        let mut packet = PacketWriter::<MoldUdp64>::new(MoldHeader::new([session; 10], seq), &mut out).unwrap();
        messages.iter().for_each(|message| packet.push(message.emit(&mut [0; MESSAGE_LEN_MAX])).unwrap());
        packet.finish().to_vec()
    }

    struct Play {
        listener: Listener,
        story: Story,
    }

    impl Play {
        fn new(from_start: bool) -> Self {
            let config = ListenerConfig { from_start, window_packets: 8, ..ListenerConfig::default() };
            Self { listener: Listener::new(&config), story: Story::default() }
        }

        /// One that has heard of the session: its first packet is believed with the second.
        fn begun(seq: u64) -> Self {
            let mut play = Self::new(false);
            play.hear(&packet(1, seq, &[]));
            play
        }

        fn hear(&mut self, bytes: &[u8]) -> &mut Self {
            self.listener.on_packet(bytes, 0, &mut self.story);
            self
        }

        /// The numbers that are asked for.
        fn turn(&mut self, now_ns: u64) -> Vec<u64> {
            let mut asked = Vec::new();
            self.listener.turn(now_ns, &mut self.story, |bytes| asked.push(Request::parse(&bytes).unwrap().seq));
            asked
        }

        #[track_caller]
        fn check(&mut self, story: &str) -> &mut Self {
            assert_eq!(core::mem::take(&mut self.story.0).join(" "), story);
            self
        }
    }

    #[test]
    fn late_joiner_is_told_what_came_before() {
        Play::begun(70).hear(&packet(1, 70, &[record(90), record(91)])).check("J90 R90 R91");
        Play::begun(1).hear(&packet(1, 1, &[record(0)])).check("R0");
    }

    #[test]
    fn what_the_publisher_missed_is_told_as_overrun() {
        let missed = Message::Missed { first: 1, last: 4 };
        Play::begun(1).hear(&packet(1, 1, &[record(0), missed, record(5)])).check("R0 O1-4 R5");
    }

    #[test]
    fn loss_is_filled_by_the_server_and_told_where_it_does_not_answer() {
        let mut play = Play::begun(1);
        play.hear(&packet(1, 1, &[record(0)])).hear(&packet(1, 3, &[record(2)])).hear(&packet(1, 4, &[record(3)]));
        assert_eq!(play.check("R0").turn(1_000_000), [2]);
        play.listener.on_answer(&packet(1, 2, &[record(1)]), 2_000_000, &mut play.story);
        play.check("R1 R2 R3").hear(&packet(1, 6, &[record(5)])).hear(&packet(1, 7, &[record(6)])).check("");
        for attempt in 1..20 {
            play.turn(attempt * 60_000_000);
        }
        play.check("O4-4 R5 R6");
        assert_eq!(play.listener.counts().missed, 1);
    }

    #[test]
    fn loss_that_no_record_follows_is_told_at_once_and_voids_the_books() {
        let mut play = Play::begun(1);
        play.hear(&packet(1, 1, &[record(0)])).check("R0");
        // A heartbeat shows the loss; the third of the same is believed.
        (0..3).for_each(|_| _ = play.hear(&packet(1, 4, &[])));
        (1..20).for_each(|attempt| _ = play.turn(attempt * 60_000_000));
        play.check("O1-2").hear(&packet(1, 4, &[record(3)])).check("R3");
        // One of the lost messages told of more records.
        (0..3).for_each(|_| _ = play.hear(&packet(1, 6, &[])));
        (20..40).for_each(|attempt| _ = play.turn(attempt * 60_000_000));
        play.check("O4-4").hear(&packet(1, 6, &[record(9)])).check("O5-8 R9");
        assert_eq!(play.listener.counts().missed, 2 + 1 + 4);
    }

    #[test]
    fn loss_before_the_first_record_is_told_at_once() {
        let mut play = Play::new(true);
        (0..3).for_each(|_| _ = play.hear(&packet(1, 4, &[])));
        (1..20).for_each(|attempt| _ = play.turn(attempt * 60_000_000));
        play.check("J3").hear(&packet(1, 4, &[record(5)])).check("J5 R5");
    }

    #[test]
    fn listener_without_a_server_waits_for_no_answer() {
        let config = ListenerConfig { window_packets: 8, retry: None, ..ListenerConfig::default() };
        let mut play = Play { listener: Listener::new(&config), ..Play::begun(1) };
        play.hear(&packet(1, 1, &[])).hear(&packet(1, 1, &[record(0)]));
        play.hear(&packet(1, 3, &[record(2)])).hear(&packet(1, 4, &[record(3)])).check("R0");
        assert!(play.turn(1_000_001).is_empty());
        play.check("O1-1 R2 R3");
        assert_eq!(play.listener.requests().0, RerequestCounts::default());
    }

    #[test]
    fn loss_of_the_last_records_is_told_before_the_end() {
        let mut play = Play::begun(1);
        play.hear(&packet(1, 1, &[record(0)])).check("R0");
        // The third of the same is believed.
        for _ in 0..3 {
            play.hear(&MoldHeader::emit_end_of_session([1; 10], 4));
        }
        for attempt in 1..20 {
            play.turn(attempt * 60_000_000);
        }
        play.check("O1-2 .");
    }

    #[test]
    fn listener_from_the_start_asks_for_what_came_before() {
        let mut play = Play::new(true);
        play.hear(&packet(1, 3, &[record(2)])).hear(&packet(1, 4, &[record(3)])).check("");
        assert_eq!(play.turn(1_000_000), [1]);
        play.listener.on_answer(&packet(1, 1, &[record(0), record(1)]), 2_000_000, &mut play.story);
        play.check("R0 R1 R2 R3");
    }

    #[test]
    fn one_forged_packet_of_another_session_changes_nothing() {
        let mut play = Play::begun(1);
        play.hear(&packet(1, 1, &[record(0)])).hear(&packet(2, 1, &[record(7)])).hear(&packet(1, 2, &[record(1)]));
        play.check("R0 R1").hear(&packet(1, 3, &[record(2)])).check("R2");
        assert_eq!(play.listener.sequence().restarts, 0);
    }

    #[test]
    fn next_session_begins_anew() {
        let mut play = Play::begun(1);
        play.hear(&packet(1, 1, &[record(0)])).hear(&packet(1, 2, &[Message::WriterGone]));
        play.hear(&MoldHeader::emit_end_of_session([1; 10], 3)).check("R0 gone .");
        play.hear(&packet(2, 1, &[record(0)])).hear(&packet(2, 2, &[record(1)])).check("restart R0 R1");
    }

    proptest! {
        #[test]
        fn no_packet_and_no_answer_panics(
            packets in prop::collection::vec((any::<bool>(), 0..3_u8, 0..40_u64, bytes()), 0..60),
        ) {
            let mut play = Play::new(false);
            for (idx, (is_answer, session, seq, bytes)) in (0_u64..).zip(packets) {
                let mut out = [0; PACKET_LEN_MAX];
                let header = MoldHeader::new([session; 10], seq);
                let mut packet = PacketWriter::<MoldUdp64>::new(header, &mut out).unwrap();
                bytes.iter().for_each(|message| packet.push(message).unwrap());
                let packet = packet.finish();
                match is_answer {
                    true => play.listener.on_answer(packet, idx * 1_000_000, &mut play.story),
                    false => play.listener.on_packet(packet, idx * 1_000_000, &mut play.story),
                }
                play.turn(idx * 1_000_000);
            }
        }
    }

    fn bytes() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let sound = (0..50_u64).prop_map(|seq| record(seq).emit(&mut [0; MESSAGE_LEN_MAX]).to_vec());
        let any = prop::collection::vec(any::<u8>(), 0..130);
        prop::collection::vec(prop_oneof![4 => sound, 1 => any], 0..5)
    }
}
