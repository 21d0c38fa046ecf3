//! Several pieces that leave as one segment, which the device cuts at their borders. Each piece is
//! queued and kept separately and has a segment's length. So one check of windows, header and
//! timers sends tens of kilobytes, and lost data is retransmitted piece by piece.

use super::data::Sending;
use crate::proto::slab::NIL;
use crate::proto::tcp::machine::Context;
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::output::run::Run;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::state::connection::{InputFlags, LossFlags, OutputFlags, Recovery};
use crate::proto::tcp::state::queue::{FIN, PUSH};
use crate::proto::tcp::state::stored::switch;
use crate::wire::tcp::TcpFlags;

/// Chunks that may leave together.
struct Gathered {
    first: u32,
    last: u32,
    count: u32,
    len: u32,
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Whether the device allows pieces to leave together.
    #[inline]
    pub(crate) fn gathers(&self) -> bool {
        self.output.pieces_max(self.slot) > 1
    }

    /// Sends the waiting pieces, at most `most`, as one segment; returns the outcome and their
    /// number. `None` where no two may leave together: then each is sent alone.
    pub(super) fn send_run(&mut self, most: u32) -> Option<(Sending, u32)> {
        let pieces_max = self.output.pieces_max(self.slot).min(most as usize) as u32;
        if pieces_max < 2 || !self.is_plain_bulk() {
            return None;
        }
        let gathered = self.find_run(pieces_max)?;
        Some((self.emit_run(&gathered), gathered.count))
    }

    /// Whether only the windows limit sending, and each segment has only the usual fields.
    fn is_plain_bulk(&self) -> bool {
        let connection = &*self.connection;
        connection.recovery == Recovery::Open
            && connection.sack.lost_len == 0
            && !connection
                .has(InputFlags::ECE_OWED | OutputFlags::CWR_OWED | OutputFlags::DELEGATED | LossFlags::PROBE_DUE)
            && !connection.is_on(switch::PACING)
            && !connection.owes_sacks()
    }

    /// The pieces from the first unsent one on: full ones as far as there is room, followed by a
    /// shorter one where Nagle's algorithm allows it.
    fn find_run(&mut self, pieces_max: u32) -> Option<Gathered> {
        let room = self.connection.usable_window().min(self.cwnd_room()).min(self.output.segmentation_len_max() as u32);
        let (mss, may_be_short) = (u32::from(self.connection.snd.mss), self.connection.is_on(switch::NODELAY));
        let first = self.connection.send.next_unsent;
        let mut gathered = Gathered { first, last: NIL, count: 0, len: 0 };
        let mut idx = first;
        while let Some(chunk) = self.shared.chunks.get(idx).filter(|_| gathered.count < pieces_max) {
            let is_full = chunk.len == mss;
            let fits = chunk.len <= mss && gathered.len + chunk.len <= room && !chunk.has(FIN);
            if !fits || !(is_full || may_be_short) {
                break;
            }
            gathered.last = idx;
            gathered.count += 1;
            gathered.len += chunk.len;
            if !is_full {
                break;
            }
            idx = chunk.next;
        }
        (gathered.count > 1).then_some(gathered)
    }

    fn emit_run(&mut self, gathered: &Gathered) -> Sending {
        let &Gathered { first, last, count, len } = gathered;
        let (seq, end) = (self.shared.chunks[first].seq, &self.shared.chunks[last]);
        let mut flags = TcpFlags::ACK;
        if end.has(PUSH) || end.next == NIL {
            flags = flags | TcpFlags::PSH;
        }
        let mut outgoing = self.header(seq, flags, 0);
        outgoing.ect = self.connection.has(InputFlags::ECN);
        outgoing.segment_len = self.connection.snd.mss;
        let mut run = Run { chunks: &mut self.shared.chunks, last, count, len };
        if let Err(unsent) = self.output.send_run(self.slot, &outgoing, &mut run) {
            return self.out_of_line().not_emitted(unsent);
        }
        self.note_header_sent(&outgoing);
        self.connection.tally.segments_out += u64::from(count - 1);
        self.shared.tally.segments_out += u64::from(count - 1);
        self.run_has_left(gathered);
        Sending::Sent
    }

    /// All pieces are on their way.
    fn run_has_left(&mut self, gathered: &Gathered) {
        let mut idx = gathered.first;
        for _ in 0..gathered.count {
            self.mark_sent(idx, false);
            idx = self.shared.chunks[idx].next;
        }
        self.connection.send.next_unsent = idx;
        let end = self.shared.chunks[gathered.last].end();
        self.pass(gathered.len, end);
        self.on_its_way(gathered.len, false);
    }
}
