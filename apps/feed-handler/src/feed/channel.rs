//! One channel: a sequence of messages with its arbiter, decoder and books.

use market::event::Status;
use market::framing::{Framing, Header, Packet, Session};
use market::image::{ImageVerdict, LiveMessage};
use market::{
    Arbiter, BookBuilder, Books, Capacity, ChannelHandler, Decoder, EventSink, Gap, Line, MessageCounts, Output,
    Policy, RerequestRange, RerequestStep, Slot, Verdict, Window,
};
use wirepath::mem::Held;

use super::app::LINES_MAX;
use super::counters::FeedCounters;
use super::index::Key;
use super::loops::Loops;
use super::recovery::{ChannelLoops, ChannelRecovery, MESSAGES_PER_TURN, window_of};
use crate::format::{AllocatedBooks, Protocol};
use crate::recovery::RecoveryPlan;

pub(super) struct Channel<P: Protocol, S> {
    pub(super) key: Key,
    /// Session of the packet that opened it, until the arbiter has one.
    session: Session,
    pub(super) arbiter: Arbiter<Kept>,
    pub(super) builder: BookBuilder<P::Codec, P::Books, S>,
    pub(super) gaps: GapLog,
    /// Its first number, where it was joined late on purpose and has not restarted since.
    pub(super) joined_at: Option<u64>,
    /// Messages in packets that should have waited, but no buffer was free for them.
    pub(super) not_kept: u64,
    /// Messages that the decoder was given. More than were delivered where the sequence numbers
    /// packets, or headers are messages.
    built: u64,
    /// Where servers are configured for it.
    pub(super) recovery: Option<ChannelRecovery<P::Loops>>,
    /// What was counted of it: events without a place in the books, messages lost to them.
    counted: (u64, u64),
    /// For messages that were counted when they arrived.
    uncounted: MessageCounts,
}

/// A packet that waits.
#[derive(Debug)]
pub(super) enum Kept {
    /// Of a line, in its own buffers.
    Held(Held),
    /// An answer, copied.
    Slot(Slot),
}

/// The first gaps of a channel. Later ones are in the counters only.
pub(super) struct GapLog {
    pub(super) gaps: Vec<Gap>,
}

impl GapLog {
    /// More than a day on a good network has; 16 KiB a channel.
    pub(super) const GAPS_MAX: usize = 1024;

    fn push(&mut self, gap: Gap) {
        if self.gaps.len() < Self::GAPS_MAX {
            self.gaps.push(gap);
        }
    }
}

impl<P: Protocol, S: EventSink> Channel<P, S> {
    /// Memory for a channel that is not open yet.
    pub(super) fn new(policy: Policy, window: Window, capacity: Capacity, sink: S, recovery: &RecoveryPlan) -> Self {
        let window = window_of(recovery, window);
        Self {
            key: Key { set: 0, channel: 0 },
            session: Session::default(),
            arbiter: Arbiter::new(LINES_MAX, policy, window),
            builder: BookBuilder::with_sink(P::Codec::default(), P::Books::allocate(capacity), sink),
            gaps: GapLog { gaps: Vec::with_capacity(GapLog::GAPS_MAX) },
            joined_at: None,
            not_kept: 0,
            built: 0,
            recovery: ChannelRecovery::new::<P::Books>(recovery, window, capacity.books),
            counted: (0, 0),
            uncounted: MessageCounts::new(),
        }
    }

    /// Opens the channel `key` with its first packet; its set has this place among the worker's.
    pub(super) fn open(mut self, key: Key, place: u16, session: Session) -> Self {
        self.key = key;
        self.session = session;
        self.builder.sink.opened(place, key.channel);
        self
    }

    /// Whether `header` belongs to the session that this channel carries.
    pub(super) fn carries_session_of(&self, header: &Header) -> bool {
        self.key.channel == header.channel && self.arbiter.session().unwrap_or(self.session) == header.session
    }

    /// Gives up every open hole: no packet will fill it.
    pub(super) fn finish(&mut self, counters: &mut FeedCounters) {
        self.arbiter.close();
        self.drain(u64::MAX, counters);
    }

    /// Handles a packet from `line`. `hold` keeps its bytes where it has to wait.
    #[inline]
    pub(super) fn process(
        &mut self,
        line: Line,
        packet: &Packet<'_, P::Framing>,
        now_ns: u64,
        hold: impl FnOnce() -> Option<Held>,
        counters: &mut FeedCounters,
    ) {
        self.expire(now_ns, counters);
        self.builder.sink.packet(now_ns);
        match self.arbiter.offer(line, &packet.header, now_ns) {
            Verdict::Deliver { skip } => self.build(packet, skip, counters),
            Verdict::Keep => self.keep(packet, hold()),
            Verdict::Discard => {}
        }
        if self.arbiter.session() == Some(packet.header.session) {
            self.builder.sink.alive();
        }
        self.drain(now_ns, counters);
    }

    /// The books lack something although no number is missing. An image has a message that could
    /// not be decoded, but no place where there was none.
    #[cold]
    fn count_lost(&mut self, now: (u64, u64), counters: &FeedCounters) {
        let before = core::mem::replace(&mut self.counted, now);
        // An image's books begin to count anew.
        counters.without_place.add(now.0.saturating_sub(before.0));
        counters.lost_to_books.add(now.1 - before.1);
        if now.1 > before.1 {
            let last = self.arbiter.next_seq().saturating_sub(1);
            self.want_recovery(Gap { from: last, to: last });
        }
    }

    /// Messages by the numbers of the decoder: those that it was given of what was delivered.
    pub(super) fn delivered(&self) -> u64 {
        let counts_others = P::Framing::NUMBERS_PACKETS || P::Framing::HEADER_IS_MESSAGE;
        if counts_others { self.built } else { self.arbiter.counts().delivered }
    }

    #[inline]
    fn build(&mut self, packet: &Packet<'_, P::Framing>, skip: u32, counters: &FeedCounters) {
        counters.messages.add(self.build_uncounted(packet, skip));
    }

    /// The same, and returns how many messages there were.
    #[inline]
    fn build_uncounted(&mut self, packet: &Packet<'_, P::Framing>, skip: u32) -> u64 {
        let built = if self.is_behind_an_image() {
            self.build_behind_image(packet, skip)
        } else {
            self.builder.on_messages(packet.numbered(skip))
        };
        self.follow(packet, skip);
        self.built += built;
        built
    }

    /// Queues what the books have just got, while one of them waits for its snapshot. Costs a few
    /// compares a packet otherwise.
    #[inline]
    fn follow(&mut self, packet: &Packet<'_, P::Framing>, skip: u32) {
        if let Some(ChannelLoops { machine, .. }) = self.recovery.as_mut().and_then(|recovery| recovery.loops.as_mut())
            && !machine.is_idle(&self.builder.books)
        {
            machine.session(packet.header.session);
            packet.numbered(skip).for_each(|(seq, message)| machine.live(seq, message, &self.builder.books));
        }
    }

    /// Whether messages are queued for an image.
    #[inline]
    fn is_behind_an_image(&self) -> bool {
        self.recovery.as_ref().and_then(|recovery| recovery.image.as_ref()).is_some_and(|image| image.is_active())
    }

    /// As [`Channel::build`], while an image is wanted or was just put in place.
    #[cold]
    fn build_behind_image(&mut self, packet: &Packet<'_, P::Framing>, skip: u32) -> u64 {
        let Some(image) = self.recovery.as_mut().and_then(|recovery| recovery.image.as_mut()) else { return 0 };
        let header = &packet.header;
        let mut built = 0;
        for (idx, message) in (0_u64..).zip(packet.messages()).skip(skip as usize) {
            let seq = if header.seq > 0 { header.seq + idx } else { 0 };
            built += 1;
            match image.live(seq, message) {
                LiveMessage::Apply => self.builder.on_message(seq, message),
                LiveMessage::Queued => self.builder.pass_on(seq, message),
            }
        }
        built
    }

    /// Gives up a hole whose deadline has passed.
    #[inline]
    pub(super) fn expire(&mut self, now_ns: u64, counters: &mut FeedCounters) {
        if self.arbiter.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns) {
            self.builder.sink.packet(now_ns);
            self.drain(now_ns, counters);
        }
    }

    /// Executes the arbiter's outputs until there are none. All that delivers messages ends with
    /// it, so that no image is called whole behind a message that the books lack.
    #[inline]
    pub(super) fn drain(&mut self, now_ns: u64, counters: &mut FeedCounters) {
        while let Some(output) = self.arbiter.poll(now_ns) {
            self.act(output, counters);
        }
        let now = (self.builder.books.counts().without_place(), self.builder.counts.lost_to_books);
        if now != self.counted {
            self.count_lost(now, counters);
        }
    }

    #[cold]
    fn act(&mut self, output: Output<Kept>, counters: &mut FeedCounters) {
        match output {
            Output::Deliver { handle: Kept::Held(held), skip } => {
                // The packet was checked when it was kept, and held bytes do not change.
                let built = match P::Framing::parse(counters.bytes(&held)) {
                    Ok(packet) => self.build_uncounted(&packet, skip),
                    Err(_) => 0,
                };
                counters.messages.add(built);
            }
            Output::Deliver { handle: Kept::Slot(slot), skip } => self.deliver_answer(slot, skip, counters),
            Output::Discard { handle: Kept::Held(held) } => drop(held),
            Output::Discard { handle: Kept::Slot(slot) } => self.free(slot),
            Output::Gap(gap) => {
                counters.gaps.inc();
                counters.missing.add(gap.len());
                self.gaps.push(gap);
                self.builder.on_gap(gap);
                self.want_recovery(gap);
            }
            Output::LateJoin(gap) => {
                self.joined_at = Some(gap.to + 1);
                self.builder.on_late_join(gap);
                self.want_recovery(gap);
            }
            Output::Restart => {
                self.joined_at = None;
                self.builder.on_restart();
                if let Some(recovery) = &mut self.recovery {
                    recovery.restart::<P::Books>();
                }
            }
            Output::EndOfSession => self.builder.on_end_of_session(),
        }
    }

    /// The books lack these messages: an image would have them, or snapshots, where there are any.
    fn want_recovery(&mut self, gap: Gap) {
        if let Some(recovery) = &mut self.recovery {
            recovery.gap::<P::Books>(gap);
        }
    }

    /// Applies a packet of a loop.
    pub(super) fn take_loop_packet(
        &mut self,
        packet: &Packet<'_, P::Framing>,
        now_ns: u64,
        counters: &mut FeedCounters,
    ) {
        let Some(loops) = self.recovery.as_mut().and_then(|recovery| recovery.loops.as_mut()) else { return };
        let BookBuilder { books, sink, .. } = &mut self.builder;
        sink.packet(now_ns);
        let number = P::Framing::loop_header(&packet.raw).seq;
        for message in packet.messages() {
            loops.machine.take(number, message, books, sink);
        }
        let tally = loops.machine.tally();
        counters.count_loops(&core::mem::replace(&mut loops.counted, tally), &tally);
    }

    fn free(&mut self, slot: Slot) {
        if let Some(recovery) = &mut self.recovery {
            recovery.slots.free(slot);
        }
    }

    /// Delivers an answer that waited for its turn.
    fn deliver_answer(&mut self, slot: Slot, skip: u32, counters: &FeedCounters) {
        // The slots are taken out for a moment, because building needs the rest of the channel.
        let Some(recovery) = self.recovery.as_mut() else { return };
        let slots = core::mem::take(&mut recovery.slots);
        if let Ok(packet) = P::Framing::parse(slots.get(&slot)) {
            self.build(&packet, skip, counters);
        }
        if let Some(recovery) = self.recovery.as_mut() {
            recovery.slots = slots;
        }
        self.free(slot);
    }

    /// Puts an answer to a request in its place.
    pub(super) fn process_answer(
        &mut self,
        bytes: &[u8],
        packet: &Packet<'_, P::Framing>,
        now_ns: u64,
        counters: &mut FeedCounters,
    ) {
        self.expire(now_ns, counters);
        let requests = self.recovery.as_ref().and_then(|recovery| recovery.requests.as_ref());
        if !requests.is_some_and(|requests| requests.is_asked(&packet.header)) {
            _ = self.arbiter.refuse_answer(&packet.header);
            return counters.answers_refused.inc();
        }
        self.builder.sink.packet(now_ns);
        match self.arbiter.offer_answer(&packet.header) {
            Verdict::Deliver { skip } => self.build(packet, skip, counters),
            Verdict::Keep => {
                // A packet for which no slot is free is requested again.
                let slot = self.recovery.as_mut().and_then(|recovery| recovery.slots.copy_in(bytes));
                match slot.map(|slot| self.arbiter.keep(Kept::Slot(slot))) {
                    Some(Err(Kept::Slot(slot))) => self.free(slot),
                    Some(_) => {}
                    None => self.not_kept += u64::from(packet.header.count),
                }
            }
            Verdict::Discard => {}
        }
        if let Some(requests) = self.recovery.as_mut().and_then(|recovery| recovery.requests.as_mut()) {
            requests.machine.answer_received();
        }
        self.drain(now_ns, counters);
    }

    /// The next request that is due. Holes for which none is left become gaps.
    pub(super) fn next_request(&mut self, now_ns: u64, counters: &mut FeedCounters) -> Option<RerequestRange> {
        loop {
            let recovery = self.recovery.as_mut()?;
            let has_image = recovery.image.is_some();
            let requests = recovery.requests.as_mut()?;
            let oldest = self.arbiter.missing().next();
            if has_image && oldest.is_some_and(|oldest| oldest.gap.len() > requests.hole_max) {
                requests.too_wide += 1;
                requests.machine.forget();
                self.arbiter.give_up();
                self.drain(now_ns, counters);
                continue;
            }
            match requests.machine.poll(self.arbiter.missing(), now_ns)? {
                RerequestStep::Request(range) => return Some(range),
                RerequestStep::GiveUp(_) => {
                    self.arbiter.give_up();
                    self.drain(now_ns, counters);
                }
            }
        }
    }

    /// Puts an image's books in the place of ours, which are in `books` then, if the image is of
    /// use, and tells of the states of instruments that it has.
    pub(super) fn take_image(
        &mut self,
        (id, first_live): (u64, u64),
        books: &mut P::Books,
        statuses: &[Status],
        now_ns: u64,
    ) {
        let Some(image) = self.recovery.as_mut().and_then(|recovery| recovery.image.as_mut()) else { return };
        if image.offer(id, first_live, now_ns) == ImageVerdict::Take {
            core::mem::swap(&mut self.builder.books, books);
            self.builder.books.mark_stale();
            self.builder.sink.image_statuses(statuses, P::Codec::IS_UNTOLD_HALTED);
        }
    }

    /// Applies a bounded number of the messages that are queued behind an image.
    pub(super) fn catch_up(&mut self) {
        let Some(image) = self.recovery.as_mut().and_then(|recovery| recovery.image.as_mut()) else { return };
        let (builder, uncounted) = (&mut self.builder, &mut self.uncounted);
        if image.catch_up(MESSAGES_PER_TURN, |_, message| builder.apply_queued(message, uncounted)) {
            self.builder.on_rebuilt();
        }
    }

    #[cold]
    fn keep(&mut self, packet: &Packet<'_, P::Framing>, held: Option<Held>) {
        let kept = held.is_some_and(|held| self.arbiter.keep(Kept::Held(held)).is_ok());
        if !kept {
            self.not_kept += u64::from(packet.header.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, SocketAddrV4};

    use market::framing::PacketWriter;
    use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
    use market::image::{ImagePolicy, ImageRequest};
    use market::{RetryPolicy, StartSequence};
    use order_entry::soupbin::Credentials;
    use wirepath::counters::Block;

    use super::*;
    use crate::format::MoldItch50;
    use crate::recovery::{ImagePlan, ImageSource, RequestPlan};

    const SYSTEM: &[u8] = b"S\0\0\0\0\0\0\0\0\0\x01O";
    /// An order without its fields.
    const BROKEN: &[u8] = b"A";

    fn packet(seq: u64, messages: &[&[u8]]) -> Vec<u8> {
        let mut room = [0; 256];
        let mut writer = PacketWriter::<MoldUdp64>::new(MoldHeader::new([b'0'; 10], seq), &mut room).unwrap();
        messages.iter().for_each(|message| writer.push(message).unwrap());
        writer.finish().to_vec()
    }

    /// A channel with both servers, and its counters.
    struct Play {
        channel: Channel<MoldItch50, ()>,
        counters: FeedCounters,
    }

    impl Play {
        fn new() -> Self {
            let server = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7);
            let retry = RetryPolicy { delay_ns: 0, ..RetryPolicy::default() };
            let requests = RequestPlan { server, bind: server, retry, hole_max: 100, proxy: None, replays: None };
            let credentials = Credentials::new("user", "password").unwrap();
            let source = ImageSource::Glimpse { credentials, any_session: false };
            let policy = ImagePolicy { queue_len_max: 4_096, messages_max: 64, ..ImagePolicy::default() };
            let image = ImagePlan { server, source, policy };
            let plan = RecoveryPlan { requests: Some(requests), image: Some(image), loops: None };
            let first = Policy { first: StartSequence::FromOne, ..Policy::default() };
            let window = Window { packets: 8, wait_ns: 0 };
            let capacity = Capacity { books: 1, orders: 1, levels: 1 };
            let channel = Channel::new(first, window, capacity, (), &plan);
            Self { channel, counters: FeedCounters::new(&Block::heap().scope("feed")) }
        }

        fn hear(&mut self, seq: u64, messages: &[&[u8]]) {
            let bytes = packet(seq, messages);
            self.channel.process(Line::A, &MoldUdp64::parse(&bytes).unwrap(), 0, || None, &mut self.counters);
        }

        fn answer(&mut self, seq: u64, messages: &[&[u8]]) {
            while self.channel.next_request(0, &mut self.counters).is_some() {}
            let bytes = packet(seq, messages);
            self.channel.process_answer(&bytes, &MoldUdp64::parse(&bytes).unwrap(), 0, &mut self.counters);
        }

        /// From where on an image is wanted.
        fn wanted(&mut self) -> Option<u64> {
            let image = self.channel.recovery.as_mut().and_then(|recovery| recovery.image.as_mut());
            image.and_then(|image| image.poll(0)).map(|ImageRequest { covers_from, .. }| covers_from)
        }

        /// Message 1 has come, and 2 to 4 are known to be missing.
        fn behind_a_hole() -> Self {
            let mut play = Self::new();
            [1, 4, 5].into_iter().for_each(|seq| play.hear(seq, &[SYSTEM]));
            play
        }
    }

    #[test]
    fn image_is_wanted_behind_a_broken_message_that_a_line_brings() {
        let mut play = Play::new();
        play.hear(1, &[SYSTEM, BROKEN]);
        assert_eq!(play.wanted(), Some(3));
    }

    #[test]
    fn image_is_wanted_behind_a_broken_message_that_an_answer_brings() {
        let mut play = Play::behind_a_hole();
        play.answer(2, &[BROKEN]);
        assert_eq!(play.wanted(), Some(3));
    }

    #[test]
    fn image_is_wanted_behind_a_broken_message_that_waited_until_its_hole_was_given_up() {
        let mut play = Play::behind_a_hole();
        play.answer(3, &[SYSTEM, SYSTEM, BROKEN]);
        assert_eq!(play.wanted(), None);
        play.channel.expire(u64::MAX, &mut play.counters);
        assert_eq!(play.wanted(), Some(6));
    }
}
