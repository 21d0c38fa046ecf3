//! The whole exchange: the packets of both lines, in the order in which a receiver of both sees
//! them.
//!
//! ```text
//!   Session ─ messages ─> Packetizer ─ packets ─┬─> Line A ─┐
//!                    └─────> Mdp3Lines ─────────┴─> Line B ─┴─ deliveries by time ─> a capture, or sockets
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use market::framing::PacketKind;
use market::truth::{LostOnBoth, Packets};

use crate::line::{Delivery, Line};
use crate::mdp3::{Mdp3Counts, Mdp3Lines};
use crate::packetizer::{Packet, Packetizer};
use crate::session::{START_NS, Session};
use crate::settings::{Settings, SettingsError};
use crate::truth::Truth;

/// An iterator over all departures of the day; [`Feed::finish`] gives the truth about them.
#[derive(Debug)]
pub struct Feed {
    settings: Settings,
    session: Session,
    packetizer: Packetizer,
    lines: [Line; 2],
    mdp3: Option<Mdp3Lines>,
    made: Vec<Packet>,
    /// Departures that others may still overtake. Bounded: no packet is held back for more than a
    /// fraction of a millisecond.
    departing: BinaryHeap<Reverse<Delivery>>,
    /// No later departure is before this time.
    settled_ns: u64,
    by_type: [u64; 256],
    packets: Packets,
    lost_on_both: LostOnBoth,
    /// Packets that the exchange made and no caller has taken yet, where an archive is kept.
    archived: Option<VecDeque<Arc<Packet>>>,
    stopped: bool,
}

impl Feed {
    /// Begins the day.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self {
            session: Session::new(settings),
            packetizer: Packetizer::new(settings, START_NS),
            lines: [Line::new(settings, 0), Line::new(settings, 1)],
            mdp3: Mdp3Lines::new(settings, START_NS),
            settings: settings.clone(),
            made: Vec::new(),
            departing: BinaryHeap::new(),
            settled_ns: 0,
            by_type: [0; 256],
            packets: Packets::default(),
            lost_on_both: LostOnBoth::default(),
            archived: None,
            stopped: false,
        })
    }

    /// Begins the day. Also keeps the packets that the lines lose, for [`Feed::take_made`]. If the
    /// caller does not take them, all packets of the day accumulate.
    pub fn with_archive(settings: &Settings) -> Result<Self, SettingsError> {
        Ok(Self { archived: Some(VecDeque::new()), ..Self::new(settings)? })
    }

    /// The next data packet as the exchange made it, before any loss on a line, if it was made by
    /// `until_ns`.
    pub fn take_made(&mut self, until_ns: u64) -> Option<Arc<Packet>> {
        self.archived.as_mut()?.pop_front_if(|packet| packet.time_ns <= until_ns)
    }

    /// Ends the day here: messages that were made are still sent, then the end of the session
    /// follows.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.session.stop();
        self.packetizer.shorten_end_interval();
    }

    /// Whether the market is open at a time that has been reached.
    pub fn is_open(&self, time_ns: u64) -> bool {
        self.session.is_open(time_ns)
    }

    /// What was published of MDP 3.0 so far, where it is.
    pub fn mdp3_counts(&self) -> Option<Mdp3Counts> {
        self.mdp3.as_ref().map(Mdp3Lines::counts)
    }

    /// The account of the day. Packets that have not departed yet depart now.
    pub fn finish(mut self) -> Truth {
        while self.next().is_some() {}
        let types = (0..=u8::MAX).zip(self.by_type).filter(|&(_, count)| count > 0);
        let messages = self.by_type.iter().sum();
        let truth = Truth {
            messages,
            by_type: types.map(|(kind, count)| (char::from(kind), count)).collect::<BTreeMap<_, _>>(),
            first_sequence: 1,
            last_sequence: messages,
            packets: self.packets,
            lines: self.lines.map(Line::into_truth),
            receivable: messages - self.lost_on_both.messages,
            lost_on_both: self.lost_on_both,
            orders_resting: self.session.orders_resting(),
            book_tops: self.session.book_tops(),
            stopped: self.stopped,
            heartbeats_before: 0,
            settings: self.settings,
        };
        debug_assert_eq!(truth.check(), Ok(()));
        truth
    }

    /// Moves the exchange on by one message. False after the last one.
    fn advance(&mut self) -> bool {
        let message = self.session.next();
        match &message {
            Some(message) => {
                self.by_type[usize::from(message.bytes()[0])] += 1;
                self.packetizer.push(message, &mut self.made);
            }
            None => self.packetizer.finish(&mut self.made),
        }
        if let Some(mdp3) = &mut self.mdp3 {
            let departing = &mut self.departing;
            let depart = |delivery| departing.push(Reverse(delivery));
            match (&message, self.made.last()) {
                (Some(message), _) => mdp3.push(message.time_ns, message.bytes(), depart),
                // The loops go on until the session has ended.
                (None, Some(last)) => mdp3.pass_time(last.time_ns, depart),
                (None, None) => {}
            }
        }
        for packet in std::mem::take(&mut self.made) {
            self.transmit(packet);
        }
        message.is_some()
    }

    fn transmit(&mut self, packet: Packet) {
        self.packets.count(packet.kind, packet.count);
        self.settled_ns = packet.time_ns;
        let packet = Arc::new(packet);
        if let (Some(archived), PacketKind::Data) = (&mut self.archived, packet.kind) {
            archived.push_back(Arc::clone(&packet));
        }
        let departing = &mut self.departing;
        let lost = self.lines.each_mut().map(|line| line.send(&packet, |delivery| departing.push(Reverse(delivery))));
        if lost == [true, true] && packet.kind == PacketKind::Data {
            self.lost_on_both.count(packet.sequence, packet.count);
        }
    }
}

impl Iterator for Feed {
    type Item = Delivery;

    fn next(&mut self) -> Option<Delivery> {
        loop {
            let settled_ns = self.mdp3.as_ref().map_or(u64::MAX, Mdp3Lines::settled_ns).min(self.settled_ns);
            let is_over = self.settled_ns == u64::MAX;
            if self.departing.peek().is_some_and(|Reverse(first)| is_over || first.time_ns <= settled_ns) {
                let Reverse(delivery) = self.departing.pop()?;
                match (self.lines.get_mut(delivery.line_idx), &mut self.mdp3) {
                    (Some(line), _) => line.arrive(&delivery),
                    (None, mdp3) => mdp3.iter_mut().for_each(|mdp3| mdp3.arrive(&delivery)),
                }
                return Some(delivery);
            }
            if is_over {
                return None;
            }
            if !self.advance() {
                self.settled_ns = u64::MAX;
            }
        }
    }
}
