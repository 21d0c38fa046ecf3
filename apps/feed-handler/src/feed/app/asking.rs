//! What is missing is asked of the thread that speaks with servers, and its answers are put in
//! their place.

use market::framing::{Framing, Packet};
use market::image::ImageRequest;
use market::{Books, EventSink};

use super::Feed;
use crate::feed::counters::FeedCounters;
use crate::feed::index::Key;
use crate::feed::loops::Loops;
use crate::feed::recovery::{ANSWERS_PER_TURN, ChannelLoops, INTERVAL_NS};
use crate::format::Protocol;
use crate::recovery::{Answer, Command, WorkerEnd};

impl<P: Protocol, S: EventSink + Clone> Feed<P, S> {
    /// Takes the answers that have come, and asks for what is missing: bounded work, every
    /// [`INTERVAL_NS`].
    #[cold]
    pub(in crate::feed) fn recover(&mut self, now_ns: u64) {
        let Some(mut link) = self.link.take() else { return };
        self.recovery_due_ns = now_ns.saturating_add(INTERVAL_NS);
        for _ in 0..ANSWERS_PER_TURN {
            // A second image waits until the books of the first are back with the thread.
            if self.replaced.is_some() {
                break;
            }
            let Some(answer) = link.answers.pop() else { break };
            // Each snapshot of it may have live messages behind it.
            let is_last = matches!(answer, Answer::LoopPacket { .. });
            self.take_answer(answer, now_ns);
            if is_last {
                break;
            }
        }
        if let Some((books, statuses)) = self.replaced.take()
            && let Err(Command::Spare(books, statuses)) = link.commands.push(Command::Spare(books, statuses))
        {
            self.replaced = Some((books, statuses));
        }
        self.note_wanting();
        for idx in 0..self.channels.len() {
            self.ask(idx, now_ns, &mut link);
        }
        self.link = Some(link);
    }

    /// The channels of a set share its loops.
    fn note_wanting(&mut self) {
        self.wanting.fill(false);
        for channel in &self.channels {
            let loops = channel.recovery.as_ref().and_then(|recovery| recovery.loops.as_ref());
            if let (Some(loops), Some(wanting)) = (loops, self.wanting.get_mut(usize::from(channel.key.set))) {
                *wanting |= loops.machine.wants_snapshots();
            }
        }
    }

    fn take_answer(&mut self, answer: Answer<P::Books>, now_ns: u64) {
        match answer {
            Answer::Packet { set, bytes } => self.take_packet_again(set, &bytes, now_ns),
            Answer::LoopPacket { set, bytes } => match self.parse_answer(set, &bytes) {
                Some((packet, idx)) => self.channels[idx].take_loop_packet(&packet, now_ns, &mut self.counters),
                None => self.counters.answers_refused.inc(),
            },
            Answer::Refused { channel, seq } => {
                let channel = self.channels.get_mut(channel as usize);
                let recovery = channel.and_then(|channel| channel.recovery.as_mut());
                if let Some(requests) = recovery.and_then(|recovery| recovery.requests.as_mut()) {
                    requests.machine.refused(seq);
                }
            }
            Answer::Image { channel, id, first_live, mut books, statuses } => {
                if let Some(channel) = self.channels.get_mut(channel as usize) {
                    channel.take_image((id, first_live), &mut books, &statuses, now_ns);
                }
                self.replaced = Some((books, statuses));
            }
            Answer::NoImage { channel, id } => {
                let channel = self.channels.get_mut(channel as usize);
                let recovery = channel.and_then(|channel| channel.recovery.as_mut());
                if let Some(image) = recovery.and_then(|recovery| recovery.image.as_mut()) {
                    image.failed(id, now_ns);
                }
            }
        }
    }

    /// A packet that the thread received, and the index of its channel.
    fn parse_answer<'a>(&self, set: u16, bytes: &'a [u8]) -> Option<(Packet<'a, P::Framing>, usize)> {
        let packet = P::Framing::parse(bytes).ok().filter(|packet| P::carries(&packet.raw))?;
        let idx = self.index.find(Key { set, channel: packet.header.channel })?;
        Some((packet, idx))
    }

    /// A packet of a server: it counts for messages that are known to be missing, and for nothing
    /// else.
    fn take_packet_again(&mut self, set: u16, bytes: &[u8], now_ns: u64) {
        let Some((packet, idx)) = self.parse_answer(set, bytes) else { return self.counters.answers_refused.inc() };
        self.counters.answers.inc();
        let channel = &mut self.channels[idx];
        channel.process_answer(bytes, &packet, now_ns, &mut self.counters);
        if let Some(deadline_ns) = channel.arbiter.deadline_ns() {
            self.deadlines.note(idx, deadline_ns);
        }
    }

    /// What a channel asks for now.
    fn ask(&mut self, idx: usize, now_ns: u64, link: &mut WorkerEnd<P::Books>) {
        let channel = &mut self.channels[idx];
        if channel.recovery.is_none() {
            return;
        }
        channel.catch_up();
        let Key { set, channel: number } = channel.key;
        while let Some(range) = channel.next_request(now_ns, &mut self.counters) {
            let Some(session) = channel.arbiter.session() else { continue };
            let request = Command::Request { set, channel: idx as u32, number, session, range };
            let is_sent = link.commands.push(request).is_ok();
            self.counters.requests.add(u64::from(is_sent));
            self.counters.commands_dropped.add(u64::from(!is_sent));
        }
        let Some(recovery) = &mut channel.recovery else { return };
        if let Some(loops) = &mut recovery.loops {
            let are_wanted = self.wanting.get(usize::from(set)).is_some_and(|&is_wanting| is_wanting);
            ask_for_loops((set, are_wanted), loops, link, &self.counters);
        }
        let Some(image) = &mut recovery.image else { return };
        if let Some(request) = image.poll(now_ns) {
            let ImageRequest { id, covers_from } = request;
            let session = channel.arbiter.session().unwrap_or_default();
            if link.commands.push(Command::Image { set, channel: idx as u32, session, id, covers_from }).is_err() {
                self.counters.commands_dropped.inc();
                image.failed(id, now_ns);
            }
        }
        if let Some(deadline_ns) = channel.arbiter.deadline_ns() {
            self.deadlines.note(idx, deadline_ns);
        }
    }
}

/// Tells the thread which loops are of use, where that has changed. What the ring has no room for
/// is told in a later turn.
fn ask_for_loops<B: Books + Send, L>(
    (set, are_wanted): (u16, bool),
    loops: &mut ChannelLoops<L>,
    link: &mut WorkerEnd<B>,
    counters: &FeedCounters,
) {
    if are_wanted != loops.are_snapshots_asked_for {
        let is_told = link.commands.push(Command::Snapshots { set, are_wanted }).is_ok();
        loops.are_snapshots_asked_for ^= is_told;
        counters.commands_dropped.add(u64::from(!is_told));
    }
    if loops.are_definitions_due {
        let is_told = link.commands.push(Command::Definitions { set }).is_ok();
        loops.are_definitions_due = !is_told;
        counters.commands_dropped.add(u64::from(!is_told));
    }
}
