//! One channel on two lines or more, ready for use behind sockets: packets in as they arrive,
//! messages out once and in order.
//!
//! ```text
//!   line A ─ on_packet ─┐   framing ─ Arbiter ─┬─ in order ──────────▶ on_message
//!   line B ─ on_packet ─┤             │        ├─ what nobody brought ▶ on_gap
//!   time ─── tick ──────┘           Slots      └─ begun anew, over ▶ on_restart, on_end_of_session
//!                       (copies of packets that wait)
//! ```
//!
//! It combines [`Arbiter`], [`Slots`] and [`Framing`] as most applications need them, and a
//! [`Rerequester`] where the publisher has a server for what no line brings. An application that
//! leaves waiting packets in their own buffers combines them itself, with this file as the model.

use core::marker::PhantomData;

use arrayvec::ArrayVec;

use crate::arbitration::{Arbiter, Line, Output, Slot, Slots, Verdict, Window};
use crate::book::Books;
use crate::codec::{Decoder, MessageCounts, MessageError};
use crate::event::Event;
use crate::framing::{Framing, FramingError, PacketKind, Session};
use crate::rerequest::{RerequestCounts, RerequestRange, RerequestStep, Rerequester, RetryPolicy};
use crate::sequence::{DOUBTS_MAX, Gap, Policy};
use crate::sink::EventSink;

/// The configuration of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbConfig {
    /// Lines that carry it. By default 2.
    pub lines: usize,
    /// Its number in the packets (an IEX channel, a Cboe unit): packets of other channels on the
    /// same group are refused. By default `None`: the group carries this channel only.
    pub number: Option<u32>,
    /// The first sequence number, and the rule for a restart. By default 1, see [`Policy`].
    pub policy: Policy,
    /// How long a hole may stay open. By default 64 packets and one millisecond.
    pub window: Window,
    /// The longest packet that can wait, in bytes: its memory is allocated at the start for each
    /// packet of the window. A longer packet that arrives in order is accepted too; behind a hole
    /// it is lost unless it comes again. By default 1,472, the UDP payload of an Ethernet frame
    /// without jumbo.
    pub packet_len_max: usize,
}

impl Default for AbConfig {
    fn default() -> Self {
        let (policy, window) = (Policy::default(), Window::default());
        Self { lines: 2, number: None, policy, window, packet_len_max: 1_472 }
    }
}

/// The receiver of a channel's messages and events. Only messages must be handled.
pub trait ChannelHandler {
    /// The next message, with its number; 0 where it has no number. Each message is delivered once,
    /// in order. Where the framing numbers packets, all messages of a packet have its number.
    fn on_message(&mut self, seq: u64, message: &[u8]);

    /// The next messages of one packet, with their numbers: by default each goes to
    /// [`on_message`](Self::on_message). Returns how many there were.
    #[inline]
    fn on_messages<'a>(&mut self, messages: impl Iterator<Item = (u64, &'a [u8])>) -> u64 {
        let mut count = 0;
        for (seq, message) in messages {
            self.on_message(seq, message);
            count += 1;
        }
        count
    }

    /// No line brought these numbers in time: state built from the messages may be wrong from here
    /// on.
    fn on_gap(&mut self, gap: Gap) {
        let _ = gap;
    }

    /// The channel begins behind these numbers on purpose
    /// ([`StartSequence::Anywhere`](crate::StartSequence::Anywhere)): state built from the messages
    /// has nothing of them.
    fn on_late_join(&mut self, gap: Gap) {
        let _ = gap;
    }

    /// The feed restarts: state built so far is void.
    fn on_restart(&mut self) {}

    /// No more messages in this session.
    fn on_end_of_session(&mut self) {}
}

/// Packets that a channel refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AbCounts {
    /// Malformed, by [`FramingError::idx`].
    pub malformed: [u64; FramingError::NAMES.len()],
    /// Packets of another channel than [`AbConfig::number`].
    pub other_channel: u64,
    /// Longer than [`AbConfig::packet_len_max`], where they should have waited.
    pub not_kept: u64,
}

/// The lines of one channel. [`new`](Self::new) allocates all memory.
///
/// ```
/// use market::framing::mold_udp64::MoldUdp64;
/// use market::framing::mold_udp64::MoldHeader;
/// use market::{AbChannel, AbConfig, ChannelHandler, Line};
/// use market::framing::PacketWriter;
/// use market::Gap;
///
/// #[derive(Default)]
/// struct Log(Vec<String>);
///
/// impl ChannelHandler for Log {
///     fn on_message(&mut self, seq: u64, message: &[u8]) {
///         self.0.push(format!("{seq} {}", message.escape_ascii()));
///     }
///     fn on_gap(&mut self, gap: Gap) {
///         self.0.push(format!("{} to {} are missing", gap.from, gap.to));
///     }
/// }
///
/// let (mut channel, mut log) = (AbChannel::<MoldUdp64>::new(AbConfig::default()), Log::default());
/// let mut bring = |line, seq, message: &[u8]| {
///     let mut bytes = [0; 64];
///     let header = MoldHeader::new(*b"TODAY     ", seq);
///     let mut packet = PacketWriter::<MoldUdp64>::new(header, &mut bytes).unwrap();
///     packet.push(message).unwrap();
///     channel.on_packet(line, packet.finish(), 0, &mut log);
/// };
/// bring(Line::A, 1, b"open");
/// bring(Line::A, 3, b"trade"); // 2 is lost on line A, and on its way on line B
/// bring(Line::B, 1, b"open");
/// bring(Line::B, 2, b"quote");
/// bring(Line::B, 3, b"trade");
/// assert_eq!(log.0, ["1 open", "2 quote", "3 trade"]);
/// ```
#[derive(Debug)]
pub struct AbChannel<F> {
    arbiter: Arbiter<Slot>,
    slots: Slots,
    requests: Option<Rerequester>,
    number: Option<u32>,
    counts: AbCounts,
    framing: PhantomData<F>,
}

impl<F: Framing> AbChannel<F> {
    /// A channel without a packet yet.
    pub fn new(config: AbConfig) -> Self {
        let AbConfig { lines, number, policy, window, packet_len_max } = config;
        // Behind a hole: the packets of the window, the one that makes it overflow, and those that
        // wait for a witness, with the one that they displace.
        let waiting = window.packets + 1 + DOUBTS_MAX + 1;
        Self {
            arbiter: Arbiter::new(lines, policy, window),
            slots: Slots::new(waiting as u32, packet_len_max),
            requests: None,
            number,
            counts: AbCounts::default(),
            framing: PhantomData,
        }
    }

    /// A channel that requests from a server what no line brings: send what
    /// [`next_request`](Self::next_request) returns, and bring answers to
    /// [`on_answer`](Self::on_answer). A hole stays open for its requests, whatever the window
    /// says. Panics as [`Rerequester::new`].
    pub fn with_requests(config: AbConfig, retry: RetryPolicy) -> Self {
        let wait_ns = config.window.wait_ns.max(retry.wait_ns());
        let window = Window { wait_ns, ..config.window };
        Self { requests: Some(Rerequester::new(retry)), ..Self::new(AbConfig { window, ..config }) }
    }

    /// Takes the packet that `line` brought at `now_ns`, and passes the next messages to `handler`.
    /// Returns whether it shows that the channel lives: a packet of its present session does,
    /// whether it brings something new or not. A malformed packet, or one of another channel, is
    /// counted and changes nothing. A packet in
    /// order costs its check, some compares and its messages; the slower line's copy costs only the
    /// check and a compare; a packet that must wait also costs a copy.
    ///
    /// Panics where the channel has no such line.
    #[inline]
    pub fn on_packet(&mut self, line: Line, packet: &[u8], now_ns: u64, handler: &mut impl ChannelHandler) -> bool {
        let parsed = match F::parse(packet) {
            Ok(parsed) => parsed,
            Err(error) => {
                self.counts.malformed[error.idx()] += 1;
                return false;
            }
        };
        if self.number.is_some_and(|number| number != parsed.header.channel) {
            self.counts.other_channel += 1;
            return false;
        }
        if self.arbiter.take_next(line, &parsed.header, now_ns) {
            handler.on_messages(parsed.numbered(0));
            return true;
        }
        // A hole that has timed out becomes a gap before this packet.
        self.tick(now_ns, handler);
        match self.arbiter.offer(line, &parsed.header, now_ns) {
            Verdict::Deliver { skip } => _ = handler.on_messages(parsed.numbered(skip)),
            Verdict::Keep => self.keep(packet),
            Verdict::Discard => (),
        }
        self.drain(now_ns, handler);
        self.arbiter.session() == Some(parsed.header.session)
    }

    /// Gives up a hole that has timed out: call it once per turn, even when no packet arrives.
    /// Costs one compare where there is no hole.
    #[inline]
    pub fn tick(&mut self, now_ns: u64, handler: &mut impl ChannelHandler) {
        if self.arbiter.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns) {
            self.drain(now_ns, handler);
        }
    }

    /// The next request that is due, and its session. Call it in each turn until it returns `None`,
    /// as [`tick`](Self::tick). A hole for which no request is left becomes a gap.
    pub fn next_request(
        &mut self,
        now_ns: u64,
        handler: &mut impl ChannelHandler,
    ) -> Option<(Session, RerequestRange)> {
        loop {
            let session = self.arbiter.session()?;
            match self.requests.as_mut()?.poll(self.arbiter.missing(), now_ns)? {
                RerequestStep::Request(range) => return Some((session, range)),
                RerequestStep::GiveUp(_) => {
                    self.arbiter.give_up();
                    self.drain(now_ns, handler);
                }
            }
        }
    }

    /// Gives up the oldest hole where it is wider than `len_max` messages, and says whether it did:
    /// an image of the books comes sooner than so many answers.
    pub fn give_up_wider(&mut self, len_max: u64, now_ns: u64, handler: &mut impl ChannelHandler) -> bool {
        let is_wide = self.arbiter.missing().next().is_some_and(|oldest| oldest.gap.len() > len_max);
        if is_wide {
            self.requests.iter_mut().for_each(Rerequester::forget);
            self.arbiter.give_up();
            self.drain(now_ns, handler);
        }
        is_wide
    }

    /// Takes a packet that came from the server's address. It counts where it has messages that
    /// were requested, and are missing still; a heartbeat behind the number that was requested says
    /// that the server has the message no more. Anything else is counted and changes nothing.
    pub fn on_answer(&mut self, packet: &[u8], now_ns: u64, handler: &mut impl ChannelHandler) {
        self.tick(now_ns, handler);
        let parsed = match F::parse(packet) {
            Ok(parsed) => parsed,
            Err(error) => return self.counts.malformed[error.idx()] += 1,
        };
        let header = &parsed.header;
        let is_ours =
            self.arbiter.session() == Some(header.session) && self.number.is_none_or(|number| number == header.channel);
        let requests = self.requests.as_mut().filter(|_| is_ours);
        let is_asked = requests.is_some_and(|requests| match header.kind {
            PacketKind::Heartbeat => requests.refused_below(header.seq),
            _ => requests.is_asked(header),
        });
        if !is_asked {
            _ = self.arbiter.refuse_answer(header);
            return;
        }
        if header.count == 0 {
            return;
        }
        match self.arbiter.offer_answer(header) {
            Verdict::Deliver { skip } => _ = handler.on_messages(parsed.numbered(skip)),
            Verdict::Keep => self.keep(packet),
            Verdict::Discard => (),
        }
        if let Some(requests) = &mut self.requests {
            requests.answer_received();
        }
        self.drain(now_ns, handler);
    }

    /// Requests so far, where there is a server.
    pub fn requests(&self) -> Option<&RerequestCounts> {
        self.requests.as_ref().map(Rerequester::counts)
    }

    /// At the end, when no packet will come: missing messages become a gap, and packets that waited
    /// are delivered.
    pub fn finish(&mut self, handler: &mut impl ChannelHandler) {
        self.arbiter.close();
        self.drain(u64::MAX, handler);
    }

    /// Packets that were refused.
    pub fn counts(&self) -> &AbCounts {
        &self.counts
    }

    /// The arbiter: it counts messages, holes, and the results of each line.
    pub fn arbiter(&self) -> &Arbiter<Slot> {
        &self.arbiter
    }

    #[inline]
    fn drain(&mut self, now_ns: u64, handler: &mut impl ChannelHandler) {
        while let Some(output) = self.arbiter.poll(now_ns) {
            self.act(output, handler);
        }
    }

    #[cold]
    fn act(&mut self, output: Output<Slot>, handler: &mut impl ChannelHandler) {
        match output {
            Output::Deliver { handle, skip } => {
                // The packet was checked when it was kept.
                if let Ok(packet) = F::parse(self.slots.get(&handle)) {
                    handler.on_messages(packet.numbered(skip));
                }
                self.slots.free(handle);
            }
            Output::Discard { handle } => self.slots.free(handle),
            Output::Gap(gap) => handler.on_gap(gap),
            Output::LateJoin(gap) => handler.on_late_join(gap),
            Output::Restart => {
                if let Some(requests) = &mut self.requests {
                    requests.forget();
                }
                handler.on_restart();
            }
            Output::EndOfSession => handler.on_end_of_session(),
        }
    }

    #[cold]
    fn keep(&mut self, packet: &[u8]) {
        let Some(slot) = self.slots.copy_in(packet) else { return self.counts.not_kept += 1 };
        if let Err(slot) = self.arbiter.keep(slot) {
            self.slots.free(slot);
        }
    }
}

/// Events that are decoded before the first of them is applied: mostly those of one packet.
const TOGETHER: usize = 32;

/// Applies events that were decoded one after the other. What they need of large books is fetched
/// into the cache first, so that the waits for memory overlap.
#[inline]
fn apply_together(events: &[(u64, Event)], books: &mut impl Books, sink: &mut impl EventSink) {
    for (_, event) in events {
        books.prefetch_level(event);
    }
    for &(seq, ref event) in events {
        let change = books.apply(event);
        sink.event(seq, event, change, books);
    }
}

/// Builds the books of a channel: the handler where the books are wanted, and with an [`EventSink`]
/// where others want the events too.
///
/// ```
/// use market::Capacity;
/// use market::{BookBuilder, Books, ChannelHandler, OrderBooks};
/// use market::itch50::Itch50;
///
/// let capacity = Capacity { books: 16, orders: 1_024, levels: 256 };
/// let mut builder = BookBuilder::new(Itch50::default(), OrderBooks::new(capacity));
/// builder.on_message(1, b"?");
/// assert_eq!((builder.counts.unknown, builder.books.len()), (1, 0));
/// ```
#[derive(Clone, Debug)]
pub struct BookBuilder<C, B, S = ()> {
    codec: C,
    /// Messages by type, and those that gave no event.
    pub counts: MessageCounts,
    /// The books. A gap, a late join and a message of theirs that cannot be decoded make them
    /// stale, a restart empties them.
    pub books: B,
    /// Receives each event after the books.
    pub sink: S,
}

impl<C: Decoder + Default, B: Books> BookBuilder<C, B> {
    /// Builds `books` from the messages of a codec.
    pub fn new(codec: C, books: B) -> Self {
        Self::with_sink(codec, books, ())
    }
}

impl<C: Decoder + Default, B: Books, S: EventSink> BookBuilder<C, B, S> {
    /// The same, and passes each event to `sink`.
    pub fn with_sink(codec: C, books: B, sink: S) -> Self {
        Self { codec, counts: MessageCounts::new(), books, sink }
    }

    /// Counts a message, and passes its events to the sink, but leaves the books alone: an image
    /// has it, or it is applied later by [`BookBuilder::apply_queued`].
    pub fn pass_on(&mut self, seq: u64, message: &[u8]) {
        let decoded = self.codec.decode_each(message, &mut self.counts, &mut |event| {
            self.sink.event(seq, event, None, &self.books);
        });
        if let Err(error) = decoded {
            self.refuse(error);
        }
    }

    /// Applies a message that was passed on when it arrived; `counts` is for whatever it is decoded
    /// to now. Events that only follow from earlier messages, such as a time of PITCH, have not
    /// their values, which no book needs. The sink is told of states of instruments again.
    pub fn apply_queued(&mut self, message: &[u8], counts: &mut MessageCounts) {
        let (books, sink) = (&mut self.books, &mut self.sink);
        C::default().decode_all(message, counts, &mut |event| {
            books.apply(event);
            if let Event::Status(status) = event {
                sink.status_again(status, books);
            }
            if matches!(event, Event::Clear(_) | Event::BookReset(_)) {
                // Empty books are right only when the messages behind are applied too.
                books.mark_stale();
            }
        });
    }

    /// A message gave no event. Where books are built from its type they lack it, and it may have
    /// been about any of them.
    #[cold]
    fn refuse(&mut self, error: MessageError) {
        self.counts.count_error(error);
        if error.kind().is_some_and(|kind| C::BOOK_KINDS.contains(&kind)) {
            self.counts.lost_to_books += 1;
            self.books.mark_stale();
            self.sink.doubted(&self.books);
        }
    }

    /// All messages behind an image are applied: the books are whole.
    pub fn on_rebuilt(&mut self) {
        self.books.mark_whole();
        self.sink.rebuilt(&self.books);
    }
}

impl<C: Decoder + Default, B: Books, S: EventSink> ChannelHandler for BookBuilder<C, B, S> {
    #[inline]
    fn on_message(&mut self, seq: u64, message: &[u8]) {
        let decoded = self.codec.decode_each(message, &mut self.counts, &mut |event| {
            let change = self.books.apply(event);
            self.sink.event(seq, event, change, &self.books);
        });
        if let Err(error) = decoded {
            self.refuse(error);
        }
    }

    #[inline]
    fn on_messages<'a>(&mut self, messages: impl Iterator<Item = (u64, &'a [u8])>) -> u64 {
        let mut count = 0;
        if !self.books.prefetches() {
            for (seq, message) in messages {
                self.on_message(seq, message);
                count += 1;
            }
            return count;
        }
        let mut events = ArrayVec::<(u64, Event), TOGETHER>::new();
        for (seq, message) in messages {
            count += 1;
            let Self { codec, counts, books, sink } = &mut *self;
            let decoded = codec.decode_each(message, counts, &mut |event| {
                if events.is_full() {
                    apply_together(&events, books, sink);
                    events.clear();
                }
                books.prefetch_order(event);
                events.push((seq, *event));
            });
            if let Err(error) = decoded {
                // The books are in doubt from here on, and not before.
                apply_together(&events, &mut self.books, &mut self.sink);
                events.clear();
                self.refuse(error);
            }
        }
        apply_together(&events, &mut self.books, &mut self.sink);
        count
    }

    fn on_gap(&mut self, gap: Gap) {
        self.books.mark_stale();
        self.sink.gap(gap, &self.books);
    }

    fn on_late_join(&mut self, gap: Gap) {
        self.on_gap(gap);
    }

    fn on_restart(&mut self) {
        self.codec = C::default();
        self.books.clear();
        self.sink.restart();
    }

    fn on_end_of_session(&mut self) {
        self.sink.end_of_session();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::event::Numbered;
    use crate::framing::PacketWriter;
    use crate::framing::cboe_unit::{CboeUnit, UnitHeader};
    use crate::framing::mold_udp64::{MoldHeader, MoldUdp64};
    use crate::itch50::Itch50;
    use crate::mdp3::Mdp3;
    use crate::mdp3::layout::emit_head;
    use crate::pitch::{Head, Pitch, UnitClear};
    use crate::sequence::StartSequence;
    use crate::{BookIdx, Capacity, DepthBooks, OrderBooks, Symbol, Trust};

    /// The calls of a handler as text: numbers, `G1-2` gap, `J1-2` late join, `R` restart, `.` end.
    #[derive(Default)]
    struct Story(Vec<String>);

    impl ChannelHandler for Story {
        fn on_message(&mut self, seq: u64, message: &[u8]) {
            assert_eq!(message, seq.to_be_bytes());
            self.0.push(seq.to_string());
        }

        fn on_gap(&mut self, gap: Gap) {
            self.0.push(format!("G{}-{}", gap.from, gap.to));
        }

        fn on_late_join(&mut self, gap: Gap) {
            self.0.push(format!("J{}-{}", gap.from, gap.to));
        }

        fn on_restart(&mut self) {
            self.0.push("R".into());
        }

        fn on_end_of_session(&mut self) {
            self.0.push(".".into());
        }
    }

    fn packet(session: u8, seq: u64, count: u64) -> Vec<u8> {
        let mut bytes = [0; 2_048];
        let mut packet = PacketWriter::<MoldUdp64>::new(MoldHeader::new([session; 10], seq), &mut bytes).unwrap();
        (seq..seq + count).for_each(|seq| packet.push(&seq.to_be_bytes()).unwrap());
        packet.finish().to_vec()
    }

    struct Play {
        channel: AbChannel<MoldUdp64>,
        story: Story,
    }

    impl Play {
        fn new(config: AbConfig) -> Self {
            Self { channel: AbChannel::new(config), story: Story::default() }
        }

        fn bring(&mut self, line: Line, bytes: &[u8], now_ns: u64) -> &mut Self {
            self.channel.on_packet(line, bytes, now_ns, &mut self.story);
            self
        }

        #[track_caller]
        fn check(&self, story: &str) {
            assert_eq!(self.story.0.join(" "), story);
        }
    }

    #[test]
    fn late_join_is_told_before_its_first_message_and_a_restart_behind_it_begins_at_one() {
        let policy = Policy { first: StartSequence::Anywhere, ..Policy::default() };
        let mut play = Play::new(AbConfig { policy, ..AbConfig::default() });
        play.bring(Line::A, &packet(1, 500, 2), 0).bring(Line::B, &packet(1, 500, 2), 0).check("J1-499 500 501");
        play.bring(Line::A, &packet(2, 3, 1), 1).bring(Line::B, &packet(2, 3, 1), 1);
        play.channel.tick(2_000_000, &mut play.story);
        play.check("J1-499 500 501 R G1-2 3");
    }

    fn builder<C: Decoder + Default>() -> BookBuilder<C, OrderBooks> {
        BookBuilder::new(C::default(), OrderBooks::new(Capacity { books: 1, orders: 2, levels: 2 }))
    }

    #[test]
    fn late_join_leaves_the_books_stale() {
        let mut builder = builder::<Itch50>();
        builder.on_late_join(Gap { from: 1, to: 499 });
        assert!(builder.books.is_stale(BookIdx(0)));
    }

    #[test]
    fn message_of_the_books_that_cannot_be_decoded_makes_them_stale_and_no_other_does() {
        let mut builder = builder::<Itch50>();
        // A new type, an empty message, and a trade and an order that are too short.
        for (message, is_stale) in [(&b"z..."[..], false), (b"", false), (b"P", false), (b"A", true)] {
            builder.on_message(1, message);
            assert_eq!(builder.books.is_stale(BookIdx(0)), is_stale, "{}", message.escape_ascii());
        }
        assert_eq!((builder.counts.total(), builder.counts.lost_to_books), (4, 1));
    }

    #[test]
    fn message_of_the_books_of_a_template_that_is_not_decoded_leaves_no_book_sure() {
        let numbered = Numbered { kind: 49, rpt_seq: 1, at_ns: 0, symbol: Symbol::from_number(7) };
        // Of a book with long quantities, and a definition of a bond.
        for (template, trust) in [(64, Trust::Unconfirmed), (57, Trust::Sure)] {
            let mut builder = BookBuilder::new(Mdp3, DepthBooks::new(1));
            builder.books.apply(&Event::Numbered(numbered));
            builder.on_message(1, &emit_head(template, 11));
            assert_eq!(builder.books.trust(BookIdx(0)), trust, "template {template}");
        }
    }

    #[test]
    fn clear_among_queued_messages_leaves_the_books_stale() {
        let mut builder = builder::<Pitch>();
        builder.books.mark_stale();
        let clear = UnitClear { head: Head::new(UnitClear::LEN, UnitClear::KIND, 0) };
        builder.apply_queued(clear.as_bytes(), &mut MessageCounts::new());
        assert!(builder.books.is_stale(BookIdx(0)));
        builder.on_rebuilt();
        assert!(!builder.books.is_stale(BookIdx(0)));
    }

    const RETRY: RetryPolicy = RetryPolicy {
        delay_ns: 10,
        timeout_ns: 100,
        attempts: 1,
        outstanding: 2,
        messages: 4,
        interval_ns: 0,
        burst: 1,
    };

    /// A channel of one line that lacks 3 to 8, and has requested them.
    fn asking() -> Play {
        let config = AbConfig { lines: 1, ..AbConfig::default() };
        let mut play = Play { channel: AbChannel::with_requests(config, RETRY), story: Story::default() };
        play.bring(Line::A, &packet(1, 1, 2), 0).bring(Line::A, &packet(1, 9, 1), 0);
        play.bring(Line::A, &packet(1, 10, 1), 0);
        assert_eq!(play.requests(20), [(3, 4), (7, 2)]);
        play
    }

    impl Play {
        fn requests(&mut self, now_ns: u64) -> Vec<(u64, u16)> {
            let mut requests = Vec::new();
            while let Some((_, range)) = self.channel.next_request(now_ns, &mut self.story) {
                requests.push((range.seq, range.count));
            }
            requests
        }

        fn answer(&mut self, bytes: &[u8]) -> &mut Self {
            self.channel.on_answer(bytes, 30, &mut self.story);
            self
        }
    }

    #[test]
    fn answers_fill_a_hole_and_what_they_leave_is_requested_again() {
        let mut play = asking();
        play.answer(&packet(1, 7, 2)).answer(&packet(1, 3, 3)).check("1 2 3 4 5");
        assert_eq!(play.requests(30), [(6, 1)]);
        play.answer(&packet(1, 6, 1)).check("1 2 3 4 5 6 7 8 9 10");
        assert_eq!(play.channel.arbiter().answers().unasked, 0);
    }

    #[test]
    fn hole_before_a_silence_is_requested_when_heartbeats_have_shown_it() {
        let config = AbConfig { lines: 1, ..AbConfig::default() };
        let mut play = Play { channel: AbChannel::with_requests(config, RETRY), story: Story::default() };
        play.bring(Line::A, &packet(1, 1, 1), 0).bring(Line::A, &packet(1, 2, 1), 0).check("1 2");
        for second in 1..=3 {
            play.bring(Line::A, &packet(1, 5, 0), second * 1_000_000_000);
        }
        play.check("1 2");
        assert_eq!(play.requests(3_000_000_010), [(3, 2)]);
    }

    #[test]
    fn answer_that_was_not_requested_changes_nothing_and_is_counted() {
        let mut play = asking();
        // Of another session, before, behind and around what was requested, an end of the session.
        for (idx, forged) in [
            packet(2, 3, 4),
            packet(1, 2, 2),
            packet(1, 8, 2),
            packet(1, 4, 5),
            packet(1, 11, 1),
            packet(1, u64::MAX - 2, 2),
            packet(1, 3, 0),
            MoldHeader::emit_end_of_session([1; 10], 11).to_vec(),
        ]
        .iter()
        .enumerate()
        {
            play.answer(forged).check("1 2");
            assert_eq!(play.channel.arbiter().answers().unasked, idx as u64 + 1);
        }
        assert_eq!(play.requests(30), []);
    }

    #[test]
    fn hole_that_the_server_has_no_more_is_a_gap_without_a_timeout() {
        let mut play = asking();
        play.answer(&packet(1, 5, 0)).check("1 2");
        assert_eq!(play.requests(30), []);
        play.check("1 2 G3-8 9 10");
    }

    #[test]
    fn hole_of_one_line_is_filled_by_the_other() {
        let mut play = Play::new(AbConfig::default());
        play.bring(Line::A, &packet(1, 1, 2), 0).bring(Line::B, &packet(1, 1, 2), 0);
        play.bring(Line::A, &packet(1, 5, 2), 10).bring(Line::A, &packet(1, 7, 1), 10).check("1 2");
        play.bring(Line::B, &packet(1, 3, 2), 20).bring(Line::B, &packet(1, 5, 3), 30).check("1 2 3 4 5 6 7");
    }

    #[test]
    fn hole_that_nobody_fills_is_a_gap_when_its_time_is_over() {
        let mut play = Play::new(AbConfig::default());
        play.bring(Line::A, &packet(1, 1, 1), 0);
        play.bring(Line::A, &packet(1, 3, 1), 10).bring(Line::B, &packet(1, 3, 1), 10);
        play.channel.tick(1_000_009, &mut play.story);
        play.check("1");
        play.channel.tick(1_000_010, &mut play.story);
        play.check("1 G2-2 3");
    }

    #[test]
    fn restart_and_end_of_the_session_are_told_once() {
        let mut play = Play::new(AbConfig::default());
        play.bring(Line::A, &packet(1, 1, 2), 0).bring(Line::A, &packet(2, 1, 1), 1).check("1 2");
        play.bring(Line::B, &packet(2, 1, 1), 2);
        let end = MoldHeader::emit_end_of_session([2; 10], 2);
        play.bring(Line::A, &end, 3).bring(Line::B, &end, 3).check("1 2 R 1 .");
    }

    #[test]
    fn what_waits_at_the_end_is_delivered_behind_its_gap() {
        let mut play = Play::new(AbConfig::default());
        play.bring(Line::A, &packet(1, 1, 1), 0).bring(Line::A, &packet(1, 4, 1), 0);
        play.channel.finish(&mut play.story);
        play.check("1 G2-3 4");
    }

    #[test]
    fn malformed_packet_is_counted_by_its_error_and_changes_nothing() {
        let mut play = Play::new(AbConfig::default());
        let mut longer = packet(1, 1, 1);
        longer.push(0);
        play.bring(Line::A, b"", 0).bring(Line::A, &longer, 0).check("");
        let malformed = FramingError::NAMES.into_iter().zip(play.channel.counts().malformed);
        assert_eq!(
            malformed.filter(|(_, count)| *count > 0).collect::<Vec<_>>(),
            [("header_short", 1), ("trailing_bytes", 1)]
        );
    }

    #[test]
    fn packet_that_is_too_long_to_wait_is_counted_and_the_other_line_may_bring_it() {
        let mut play = Play::new(AbConfig { packet_len_max: 60, ..AbConfig::default() });
        play.bring(Line::A, &packet(1, 1, 1), 0).bring(Line::A, &packet(1, 3, 9), 0).bring(
            Line::B,
            &packet(1, 3, 9),
            0,
        );
        assert!(play.channel.counts().not_kept > 0);
        play.bring(Line::B, &packet(1, 2, 1), 0).bring(Line::B, &packet(1, 3, 9), 0);
        play.check("1 2 3 4 5 6 7 8 9 10 11");
    }

    #[test]
    fn packet_of_another_unit_of_the_group_is_refused() {
        let mut channel = AbChannel::<CboeUnit>::new(AbConfig { number: Some(2), ..AbConfig::default() });
        for unit in [1, 2] {
            let mut bytes = [0; 64];
            let raw = UnitHeader { unit, count: 0, seq: 1 };
            let mut writer = PacketWriter::<CboeUnit>::new(raw, &mut bytes).unwrap();
            writer.push(b"\x02\x01").unwrap();
            channel.on_packet(Line::A, writer.finish(), 0, &mut Count(0));
        }
        assert_eq!((channel.counts().other_channel, channel.arbiter().counts().packets), (1, 1));
    }

    struct Count(u64);

    impl ChannelHandler for Count {
        fn on_message(&mut self, _: u64, _: &[u8]) {
            self.0 += 1;
        }
    }

    proptest! {
        /// For any losses of each line, each number is delivered once and in order, or is in a gap.
        #[test]
        fn each_number_comes_once_and_in_order_or_is_in_a_gap(
            lost in prop::collection::vec(any::<(bool, bool)>(), 1..200),
            len in 1_u64..5,
            wait in 1_u64..50,
        ) {
            let window = Window { packets: 4, wait_ns: wait };
            let mut play = Play::new(AbConfig { window, ..AbConfig::default() });
            for (idx, (lost_a, lost_b)) in (0_u64..).zip(lost) {
                let bytes = packet(1, 1 + idx * len, len);
                for (line, is_lost) in [(Line::A, lost_a), (Line::B, lost_b)] {
                    if !is_lost {
                        play.bring(line, &bytes, idx * 10);
                    }
                }
            }
            play.channel.finish(&mut play.story);
            let mut next = 1;
            for line in &play.story.0 {
                match line.strip_prefix('G').and_then(|gap| gap.split_once('-')) {
                    Some((from, to)) => {
                        prop_assert_eq!(from.parse::<u64>().unwrap(), next);
                        next = to.parse::<u64>().unwrap() + 1;
                    }
                    None => {
                        prop_assert_eq!(line.parse::<u64>().unwrap(), next);
                        next += 1;
                    }
                }
            }
            let all = Play::new(AbConfig { window, ..AbConfig::default() }).channel.slots.free_count();
            prop_assert_eq!(play.channel.slots.free_count(), all);
        }
    }
}
