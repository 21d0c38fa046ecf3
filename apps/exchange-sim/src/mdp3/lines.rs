//! The three feeds of MDP 3.0, each on its two lines: messages of ITCH in, departures out.

use std::sync::Arc;

use market::framing::PacketKind;

use super::loops::{Loop, LoopKind};
use super::translator::Translator;
use crate::line::{Delivery, Line};
use crate::packetizer::{Mdp3Feed, Packet, Packetizer};
use crate::session::listing;
use crate::settings::Settings;

/// Lines of ITCH, before those of MDP 3.0.
pub(crate) const LINES_OF_ITCH: usize = 2;
/// The interval between two packets of a loop: with 300 instruments a loop of snapshots takes 150
/// ms.
const LOOP_INTERVAL_NS: u64 = 1_000_000;

/// What was published of MDP 3.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mdp3Counts {
    /// Packets of the incremental feed.
    pub packets: u64,
    /// Of these, lost on both lines.
    pub lost_on_both: u64,
    /// Rounds of the loop of definitions.
    pub definition_loops: u64,
    /// Rounds of the loop of snapshots.
    pub snapshot_loops: u64,
    /// Orders and prices that found no place, so that what was published lacks them.
    pub without_place: u64,
}

/// The feeds with their lines.
#[derive(Debug)]
pub(crate) struct Mdp3Lines {
    books: Translator,
    incremental: Packetizer<Mdp3Feed>,
    definitions: Loop,
    snapshots: Loop,
    /// Line A and line B of the incremental feed, the definitions, the snapshots.
    lines: [Line; 6],
    made: Vec<Packet>,
    loop_due_ns: u64,
    settled_ns: u64,
    counts: Mdp3Counts,
}

impl Mdp3Lines {
    /// `None` where the settings have no groups for it.
    pub(crate) fn new(settings: &Settings, start_ns: u64) -> Option<Self> {
        settings.mdp3.as_ref()?;
        let symbols: Vec<_> = listing(settings).into_iter().map(|(symbol, _)| symbol).collect();
        Some(Self {
            books: Translator::new(&symbols),
            incremental: Packetizer::of(Mdp3Feed, settings, start_ns),
            definitions: Loop::new(LoopKind::Definitions, settings, start_ns),
            snapshots: Loop::new(LoopKind::Snapshots, settings, start_ns),
            lines: std::array::from_fn(|idx| Line::new(settings, LINES_OF_ITCH + idx)),
            made: Vec::new(),
            loop_due_ns: start_ns,
            settled_ns: 0,
            counts: Mdp3Counts::default(),
        })
    }

    /// Takes a message of ITCH, whose time does not fall.
    pub(crate) fn push(&mut self, time_ns: u64, message: &[u8], mut depart: impl FnMut(Delivery)) {
        self.pass_time(time_ns, &mut depart);
        let Self { books, incremental, made, .. } = self;
        books.take(time_ns, message, |message| incremental.push_bytes(time_ns, message, made));
        self.transmit(0, &mut depart);
    }

    /// Makes what is due until `now_ns`: packets that have waited, heartbeats, and the loops.
    pub(crate) fn pass_time(&mut self, now_ns: u64, mut depart: impl FnMut(Delivery)) {
        while self.loop_due_ns <= now_ns {
            let time_ns = self.loop_due_ns;
            self.loop_due_ns += LOOP_INTERVAL_NS;
            // A snapshot has all that was sent, and nothing else.
            self.incremental.pass_time(time_ns, &mut self.made);
            self.incremental.flush(time_ns, &mut self.made);
            self.transmit(0, &mut depart);
            let last_seq = (self.incremental.next_sequence() - 1) as u32;
            self.definitions.turn(&self.books, last_seq, time_ns, &mut self.made);
            self.transmit(1, &mut depart);
            self.snapshots.turn(&self.books, last_seq, time_ns, &mut self.made);
            self.transmit(2, &mut depart);
        }
        self.incremental.pass_time(now_ns, &mut self.made);
        self.transmit(0, &mut depart);
    }

    /// No later departure is before this time.
    pub(crate) fn settled_ns(&self) -> u64 {
        self.settled_ns
    }

    /// Counts a departure as the receiver sees it.
    pub(crate) fn arrive(&mut self, delivery: &Delivery) {
        self.lines[delivery.line_idx - LINES_OF_ITCH].arrive(delivery);
    }

    /// What was published so far.
    pub(crate) fn counts(&self) -> Mdp3Counts {
        Mdp3Counts {
            definition_loops: self.definitions.begun,
            snapshot_loops: self.snapshots.begun,
            without_place: self.books.without_place(),
            ..self.counts
        }
    }

    /// Sends what was made of a feed on both of its lines.
    fn transmit(&mut self, feed: usize, mut depart: impl FnMut(Delivery)) {
        for packet in std::mem::take(&mut self.made) {
            self.settled_ns = packet.time_ns;
            debug_assert_eq!(packet.kind, PacketKind::Data, "heartbeats have messages");
            let packet = Arc::new(packet);
            let [a, b] = [0, 1].map(|line| self.lines[2 * feed + line].send(&packet, &mut depart));
            if feed == 0 {
                self.counts.packets += 1;
                self.counts.lost_on_both += u64::from(a && b);
            }
        }
    }
}
