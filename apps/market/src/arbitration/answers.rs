//! Missing messages, and the answers that bring them: ordinary packets from a re-request server.
//!
//! An answer is accepted only for messages that are known to be missing. No header makes it restart
//! the feed, reveals a hole or overflows the window, because it may be late, duplicated or forged.

use super::{Arbiter, Arrival, Line, Offered, Verdict};
use crate::framing::{Header, PacketKind, Session};
use crate::sequence::Gap;

/// Numbers that were skipped and may still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The numbers.
    pub gap: Gap,
    /// When a packet behind them arrived.
    pub since_ns: u64,
}

/// Counts of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerCounts {
    /// Packets.
    pub packets: u64,
    /// Messages in them.
    pub messages: u64,
    /// Messages that filled a hole.
    pub delivered: u64,
    /// Packets that nobody has asked for: of another session, without messages, beyond all known
    /// numbers, outside of the requests under way.
    pub unasked: u64,
    /// Packets that found the window full, and have to be requested again.
    pub full: u64,
    /// Messages in the packets of both kinds.
    pub dropped: u64,
}

impl<H> Arbiter<H> {
    /// The session for a request; `None` before the first packet.
    pub const fn session(&self) -> Option<Session> {
        self.track.session()
    }

    /// The numbers that are missing now, in rising order; empty where none is missing. Reads all
    /// kept packets.
    pub fn missing(&self) -> impl Iterator<Item = Missing> + Clone + '_ {
        let kept = self.kept.iter().map(|(kept, _)| (kept.header.seq, kept.header.end(), kept.now_ns));
        let horizon = self.horizon.map(|horizon| (horizon.header.end(), horizon.header.end(), horizon.now_ns));
        let mut next = self.track.next();
        kept.chain(horizon).filter_map(move |(seq, end, since_ns)| {
            let from = next;
            next = next.max(end);
            (from < seq).then(|| Missing { gap: Gap { from, to: seq - 1 }, since_ns })
        })
    }

    /// Judges an answer to a re-request. As with [`Arbiter::offer`], call [`Arbiter::poll`]
    /// afterwards, and have it drained before. Costs two searches among the kept packets.
    ///
    /// Panics where the caller has not drained [`Arbiter::poll`].
    pub fn offer_answer(&mut self, header: &Header) -> Verdict {
        assert!(self.restarting.is_none(), "poll until it gives None before an answer is offered");
        self.offered = None;
        if header.kind != PacketKind::Data || self.session() != Some(header.session) {
            return self.refuse_answer(header);
        }
        let place = self.place_answer(header);
        if header.end() > self.next_seq() && place.is_none() {
            return self.refuse_answer(header);
        }
        self.answers.packets += 1;
        self.answers.messages += u64::from(header.count);
        let Some(arrival) = place.filter(|_| header.end() > self.next_seq()) else { return self.refuse(header) };
        if header.seq <= self.next_seq() {
            return self.take(arrival);
        }
        if self.is_kept(header) {
            return self.refuse(header);
        }
        if self.kept.len() >= self.window.packets {
            self.answers.full += 1;
            self.answers.dropped += u64::from(header.count);
            return Verdict::Discard;
        }
        self.offered = Some(Offered::BehindHole(arrival));
        Verdict::Keep
    }

    /// Counts a packet that answers no request, and is [not](crate::Rerequester::is_asked) to be
    /// offered.
    pub fn refuse_answer(&mut self, header: &Header) -> Verdict {
        self.answers.packets += 1;
        self.answers.messages += u64::from(header.count);
        self.answers.unasked += 1;
        self.answers.dropped += u64::from(header.count);
        Verdict::Discard
    }

    /// Makes the oldest hole a gap at once: no answer will fill it. [`Arbiter::poll`] reports it.
    pub fn give_up(&mut self) {
        self.update_hole();
        if let Some(hole) = &mut self.hole {
            hole.is_given_up = true;
        }
    }

    /// Counts of answers.
    pub fn answers(&self) -> AnswerCounts {
        AnswerCounts { delivered: self.lines[self.answers_line().0].first, ..self.answers }
    }

    /// The line that answers are counted under.
    pub(super) fn answers_line(&self) -> Line {
        Line(self.lines.len() - 1)
    }

    /// The answer as an arrival, with the time of the packet that revealed the hole, so that the
    /// rest of the hole does not become younger. `None` where the answer reaches beyond all known
    /// numbers.
    fn place_answer(&self, header: &Header) -> Option<Arrival> {
        let horizon = self.horizon.filter(|horizon| header.end() <= horizon.header.end())?;
        let idx = self.kept.partition_point(|(kept, _)| kept.header.seq <= header.seq);
        let now_ns = self.kept.get(idx).map_or(horizon.now_ns, |(kept, _)| kept.now_ns);
        Some(Arrival { line: self.answers_line(), header: *header, now_ns })
    }
}
