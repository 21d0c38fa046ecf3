//! A device: its tables, and the packets in and out.

mod datagrams;
mod gsi;
mod links;
mod objects;
mod owned;
mod srq;

use zerocopy::FromBytes;

#[cfg(feature = "rdma-core")]
pub(crate) use datagrams::check_group;
pub use gsi::{GsiFull, MAD_LEN, ReceivedMad};
pub use objects::DeviceError;

use self::gsi::Gsi;
use self::owned::Ownership;

use super::builder::frame_len_max;
use super::config::{DeviceConfig, random};
use super::counters::DeviceCounters;
use super::due::DueQueue;
use super::events::Events;
use super::groups::Groups;
use super::handle::{QpHandle, Table, kind, next_device};
use super::keys::Regions;
use super::qp::congestion::link_kbps;
use super::qp::{Qp, QpState, lines};
use super::tables::Tables;
use super::timers::{NEVER, Timers};
use super::work::{PostError, SendRequest, Sge};
use crate::wire::bth::Bth;
use crate::wire::icrc::Network;
use crate::wire::opcode::Transport;
use crate::wire::packet::{Body, Packet};
use crate::wire::qpn::Qpn;

/// A RoCE device without I/O and clock.
///
/// Whoever carries it gives it the packets that arrive ([`Device::receive`]), sends the frames that
/// it writes ([`Device::transmit`]), and calls [`Device::on_timer`] when [`Device::next_timer`] is
/// reached. `now` is nanoseconds of a clock that never goes back, from any start.
pub struct Device {
    qps: Table<kind::Qp, Qp>,
    pds: Table<kind::Pd, ()>,
    tables: Tables,
    groups: Groups,
    gsi: Gsi,
    due: DueQueue,
    timers: Timers,
    config: DeviceConfig,
    qpn_bits: u32,
    /// Once a packet pool is registered.
    ownership: Option<Box<Ownership>>,
}

/// Timers that one call looks at.
const TIMERS_PER_CALL: usize = 64;
/// The numbers 0 and 1 of queue pairs belong to the port.
const FIRST_QPN: u32 = 2;

impl Device {
    /// A device with room for what the configuration says.
    ///
    /// # Panics
    /// If it has more than 2²² queue pairs: a queue pair's number has 24 bits. If it has more than
    /// 2²⁴ - 1 memory regions and windows: a key has 24 bits for their places.
    pub fn new(config: &DeviceConfig) -> Self {
        assert!(config.qps <= 1 << 22, "more queue pairs than numbers");
        let keys = u64::from(config.regions) + u64::from(config.windows);
        assert!(keys < 1 << 24, "more memory regions than keys, windows included");
        // One more than there are places, so that none is the number of all groups.
        let qpn_bits = (config.qps + FIRST_QPN + 1).next_power_of_two().trailing_zeros();
        let number = next_device();
        let key_seed = if config.key_seed == 0 { random() } else { config.key_seed };
        Self {
            qps: Table::of_device(number, config.qps),
            pds: Table::of_device(number, config.pds),
            tables: Tables {
                regions: Regions::new(number, config.regions, config.windows, key_seed),
                cqs: Table::of_device(number, config.cqs),
                srqs: Table::of_device(number, config.srqs),
                ahs: Table::of_device(number, config.ahs),
                events: Events::new(config.events, config.cqs),
                counters: DeviceCounters::default(),
                established: 0,
                unacknowledged_packets: config.unacknowledged_packets.clamp(1, 1 << 22),
                link_kbps: link_kbps(config.link_mbps),
                sent_when_blocked: None,
            },
            groups: Groups::new(config.attachments),
            gsi: Gsi::new(),
            // One more for queue pair 1.
            due: DueQueue::new(config.qps + 1),
            timers: Timers::new(config.qps),
            config: *config,
            qpn_bits,
            ownership: None,
        }
    }

    /// Takes a packet: the headers in front of it, and what is from the BTH to the ICRC
    /// ([`RoceFrame::parse`](crate::roce::RoceFrame::parse) finds them). Answers wait for
    /// [`Device::transmit`]. A packet that is dropped is counted.
    #[inline]
    pub fn receive(&mut self, now: u64, network: Network<'_>, roce: &[u8]) {
        self.tables.counters.packets_rx += 1;
        // By reference, so that it stays where it was parsed.
        match &Packet::parse(roce) {
            Ok(packet) => self.take(now, network, packet),
            Err(_) => self.tables.counters.malformed += 1,
        }
    }

    /// Asks the CPU for the queue pair of a packet that [`Device::receive`] takes soon: of a burst,
    /// the packet behind the next. Decides nothing; of bytes that are no packet it asks for
    /// nothing, or for what nobody needs.
    #[inline]
    pub fn prefetch(&self, roce: &[u8]) {
        if let Ok((bth, _)) = Bth::ref_from_prefix(roce) {
            let is_request = bth.opcode().operation().is_some_and(|(_, operation)| !operation.is_response());
            self.qps.prefetch(self.place(bth.destination()), if is_request { lines::ANSWER } else { lines::REQUEST });
        }
    }

    /// Asks the CPU for a queue pair that is posted to soon: of many posts to many queue pairs, the
    /// one behind the next.
    #[inline]
    pub fn prefetch_qp(&self, handle: QpHandle) {
        self.qps.prefetch(handle.idx(), lines::REQUEST);
    }

    #[inline]
    fn take(&mut self, now: u64, network: Network<'_>, packet: &Packet<'_>) {
        // Its lines come while the sum is made.
        let idx = self.place(packet.bth.destination());
        let is_request = matches!(&packet.body, Body::Message(message) if !message.operation.is_response());
        self.qps.prefetch(idx, if is_request { lines::ANSWER } else { lines::REQUEST });
        if !packet.has_valid_icrc(network) {
            self.tables.counters.icrc_errors += 1;
            return;
        }
        if packet.bth.destination() == Qpn::MULTICAST {
            self.receive_group(now, packet, network);
        } else if self.is_receiver(idx, packet, network) {
            self.give(now, idx, packet, network);
        }
    }

    /// Gives a packet to the queue pair that takes it.
    #[inline]
    fn give(&mut self, now: u64, idx: u32, packet: &Packet<'_>, network: Network<'_>) {
        let Some(qp) = self.qps.at_mut(idx) else { return };
        match &packet.body {
            Body::Message(message) => qp.receive(&mut self.tables, now, network, packet.bth, message),
            Body::CongestionNotification => {
                self.tables.counters.cnps_rx += 1;
                qp.take_cnp(&self.tables, now);
            }
        }
        settle(qp, &self.tables, &mut self.due, &mut self.timers);
    }

    /// The place of the queue pair with this number, if there is one.
    #[inline]
    const fn place(&self, qpn: Qpn) -> u32 {
        (qpn.get() & ((1 << self.qpn_bits) - 1)).wrapping_sub(FIRST_QPN)
    }

    /// True if the queue pair at this place takes the packet; one that none takes is counted, or is
    /// for queue pair 1.
    #[inline]
    fn is_receiver(&mut self, idx: u32, packet: &Packet<'_>, network: Network<'_>) -> bool {
        let counters = &mut self.tables.counters;
        let is_for_all = packet.bth.destination() == Qpn::MULTICAST;
        let is_it = |qp: &&Qp| [qp.qpn(), Qpn::MULTICAST].contains(&packet.bth.destination());
        let Some(qp) = self.qps.at(idx).filter(is_it) else {
            self.take_mad(packet, network);
            return false;
        };
        let drop = if !matches!(qp.state(), QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe) {
            &mut counters.qp_state
        } else if (packet.bth.pkey() ^ qp.pkey()) & 0x7fff != 0 {
            &mut counters.pkey_violations
        } else if matches!(&packet.body, Body::Message(message) if message.transport != qp.transport()) {
            &mut counters.wrong_transport
        } else if !qp.is_of_peer(network)
            || !is_for_all && qp.transport() == Transport::Ud && datagrams::is_for_many(network)
        {
            &mut counters.wrong_address
        } else {
            return true;
        };
        *drop += 1;
        false
    }

    /// Writes the next frame that is due, from its Ethernet header to its ICRC, and returns its
    /// length; `None` if nothing is due. Queue pairs take turns, and answers go before requests.
    ///
    /// # Panics
    /// If `frame` is shorter than [`Device::frame_len_max`].
    #[inline]
    pub fn transmit(&mut self, now: u64, frame: &mut [u8]) -> Option<usize> {
        assert!(frame.len() >= self.frame_len_max(), "a frame buffer shorter than Device::frame_len_max");
        while let Some(idx) = self.due.pop() {
            let Some(qp) = self.qps.at_mut(idx) else {
                let Some(len) = self.transmit_mad(idx, frame) else { continue };
                self.tables.counters.packets_tx += 1;
                return Some(len);
            };
            qp.is_queued = false;
            let len = qp.transmit(&mut self.tables, now, frame);
            settle(qp, &self.tables, &mut self.due, &mut self.timers);
            if len.is_some() {
                self.tables.counters.packets_tx += 1;
                return len;
            }
        }
        None
    }

    /// True if [`Device::transmit`] has something to send.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Says that a frame is due, and that there is no room for any: to be called once in each turn
    /// in which this is so. A queue pair for whose time to an acknowledgment no frame of the device
    /// has left uses up a retry, as for an acknowledgment that does not come: what never takes a
    /// frame again ends it. To wait for its turn behind others uses up none.
    ///
    /// A call looks at one queue pair, the next in turn.
    pub fn on_blocked(&mut self, now: u64) {
        let Some(idx) = self.due.pop() else { return };
        self.due.push(idx);
        self.tables.sent_when_blocked = Some(self.tables.counters.packets_tx);
        if let Some(qp) = self.qps.at_mut(idx) {
            qp.wait_for_room(&self.tables, now);
            settle(qp, &self.tables, &mut self.due, &mut self.timers);
        }
    }

    /// The longest frame that [`Device::transmit`] writes.
    #[inline]
    pub const fn frame_len_max(&self) -> usize {
        frame_len_max(self.config.mtu.bytes())
    }

    /// When [`Device::on_timer`] is to be called, if nothing comes before. There may be nothing to
    /// do then.
    #[inline]
    pub fn next_timer(&self) -> Option<u64> {
        self.timers.next()
    }

    /// Looks at the timers that are reached, at 64 in one call.
    #[inline]
    pub fn on_timer(&mut self, now: u64) {
        for _ in 0..TIMERS_PER_CALL {
            let Some(idx) = self.timers.pop(now) else { return };
            if let Some(qp) = self.qps.at_mut(idx) {
                qp.timer_at = NEVER;
                qp.on_timer(&mut self.tables, now);
                settle(qp, &self.tables, &mut self.due, &mut self.timers);
            }
        }
    }

    /// Puts a request into a send queue; [`Device::transmit`] sends it.
    ///
    /// # Errors
    /// [`PostError`]; nothing changed then.
    #[inline]
    pub fn post_send(&mut self, handle: QpHandle, request: &SendRequest<'_>) -> Result<(), PostError> {
        if self.ownership.is_some() {
            return self.post_send_beside_pools(handle, request);
        }
        self.put_send(handle, request)
    }

    #[inline]
    fn put_send(&mut self, handle: QpHandle, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.qps.prefetch(handle.idx(), lines::REQUEST);
        let qp = self.qps.get_mut(handle).ok_or(PostError::UnknownQp)?;
        qp.post_send(&mut self.tables, request)?;
        settle(qp, &self.tables, &mut self.due, &mut self.timers);
        Ok(())
    }

    /// Puts memory into a receive queue, for the next message.
    ///
    /// # Errors
    /// [`PostError`]; nothing changed then.
    #[inline]
    pub fn post_recv(&mut self, handle: QpHandle, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        if self.ownership.is_some() {
            return self.post_recv_beside_pools(handle, wr_id, sges);
        }
        self.put_recv(handle, wr_id, sges)
    }

    #[inline]
    fn put_recv(&mut self, handle: QpHandle, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        self.qps.get_mut(handle).ok_or(PostError::UnknownQp)?.post_recv(&mut self.tables, wr_id, sges)
    }
}

/// After anything happened to a queue pair: it is in the queue if it has a packet to send, and its
/// timer stands.
#[inline]
fn settle(qp: &mut Qp, tables: &Tables, due: &mut DueQueue, timers: &mut Timers) {
    if !qp.is_queued && qp.is_due(tables) {
        qp.is_queued = true;
        due.push(qp.idx());
    }
    let deadline = qp.deadline();
    if deadline < qp.timer_at {
        qp.timer_at = deadline;
        timers.arm(qp.idx(), deadline);
    }
}
