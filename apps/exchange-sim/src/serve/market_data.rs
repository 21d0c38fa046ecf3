//! The book of a live exchange onto the lines of ITCH, and of MDP 3.0 where it is wanted, with the
//! faults of a generated day.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use market::framing::PacketKind;
use order_entry::soupbin::SessionId;

use crate::error::Error;
use crate::glimpse::{GlimpseCounts, GlimpseServer, GlimpseSettings};
use crate::line::{Delivery, Line};
use crate::mdp3::Mdp3Lines;
use crate::packetizer::{Packet, Packetizer};
use crate::rerequest::{RerequestCounts, RerequestSettings, Server};
use crate::send_sockets::{SendSockets, Sockets};
use crate::session::START_NS;
use crate::settings::Settings;

/// Messages in, packets onto the sockets of both lines.
pub(super) struct MarketData {
    packetizer: Packetizer,
    lines: [Line; 2],
    mdp3: Option<Mdp3Lines>,
    made: Vec<Packet>,
    departing: BinaryHeap<Reverse<Delivery>>,
    sockets: Sockets,
    server: Option<Server>,
    glimpse: Option<GlimpseServer>,
    messages: u64,
    is_finished: bool,
}

impl MarketData {
    pub(super) fn open(
        settings: &Settings,
        send_sockets: &SendSockets,
        rerequest: Option<&RerequestSettings>,
    ) -> Result<Self, Error> {
        Ok(Self {
            packetizer: Packetizer::new(settings, START_NS),
            lines: [Line::new(settings, 0), Line::new(settings, 1)],
            mdp3: Mdp3Lines::new(settings, START_NS),
            made: Vec::new(),
            departing: BinaryHeap::new(),
            sockets: Sockets::open(settings, send_sockets)?,
            server: rerequest.map(|own| Server::start(settings, own)).transpose()?,
            glimpse: None,
            messages: 0,
            is_finished: false,
        })
    }

    /// Sends images of all orders too. Before the first message.
    pub(super) fn open_glimpse(&mut self, session: SessionId, own: &GlimpseSettings) -> Result<(), Error> {
        self.glimpse = Some(GlimpseServer::start(session, own)?);
        Ok(())
    }

    /// Packs messages, whose times do not fall.
    pub(super) fn publish(&mut self, messages: &[(u64, Vec<u8>)]) {
        self.messages += messages.len() as u64;
        for (time_ns, message) in messages {
            self.packetizer.push_bytes(*time_ns, message, &mut self.made);
            let departing = &mut self.departing;
            if let Some(mdp3) = &mut self.mdp3 {
                mdp3.push(*time_ns, message, |delivery| departing.push(Reverse(delivery)));
            }
        }
    }

    /// Sends what is due: packets that have waited long enough, heartbeats, copies, packets that
    /// were held back. True where something was.
    pub(super) fn advance(&mut self, now_ns: u64) -> Result<bool, Error> {
        self.packetizer.pass_time(now_ns, &mut self.made);
        let departing = &mut self.departing;
        // The loops end with the session.
        if let Some(mdp3) = self.mdp3.as_mut().filter(|_| !self.is_finished) {
            mdp3.pass_time(now_ns, |delivery| departing.push(Reverse(delivery)));
        }
        self.transmit();
        let mut is_busy = false;
        while let Some(Reverse(delivery)) = self.departing.peek()
            && delivery.time_ns <= now_ns
        {
            let Some(Reverse(delivery)) = self.departing.pop() else { break };
            match (self.lines.get_mut(delivery.line_idx), &mut self.mdp3) {
                (Some(line), _) => line.arrive(&delivery),
                (None, mdp3) => mdp3.iter_mut().for_each(|mdp3| mdp3.arrive(&delivery)),
            }
            self.sockets.send(delivery.line_idx, &delivery.packet.payload)?;
            is_busy = true;
        }
        Ok(is_busy)
    }

    /// Ends the session; [`MarketData::advance`] sends it until [`MarketData::is_done`].
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
        self.packetizer.shorten_end_interval();
        self.packetizer.finish(&mut self.made);
        self.transmit();
    }

    pub(super) fn is_done(&self) -> bool {
        self.departing.is_empty()
    }

    /// Messages published, and the counts of re-requests and of snapshots.
    pub(super) fn stop(self) -> (u64, Option<RerequestCounts>, Option<GlimpseCounts>) {
        (self.messages, self.server.map(Server::stop), self.glimpse.map(GlimpseServer::stop))
    }

    fn transmit(&mut self) {
        for packet in std::mem::take(&mut self.made) {
            let packet = Arc::new(packet);
            if let (Some(server), PacketKind::Data) = (&mut self.server, packet.kind) {
                server.keep(Arc::clone(&packet));
            }
            if let (Some(glimpse), PacketKind::Data) = (&mut self.glimpse, packet.kind) {
                glimpse.keep(Arc::clone(&packet));
            }
            let departing = &mut self.departing;
            for line in &mut self.lines {
                line.send(&packet, |delivery| departing.push(Reverse(delivery)));
            }
        }
    }
}
