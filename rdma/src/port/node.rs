//! The app that carries a device.

use core::hash::{Hash, Hasher};
use core::net::Ipv4Addr;
use std::hash::DefaultHasher;

use wirepath::counters::Scope;
use wirepath::device::Offload;
use wirepath::mem::{Mbuf, Pool};
use wirepath::pipeline::{App, AppError, Cx, Datagram};
use wirepath::port::{Subscription, multicast, udp};
use wirepath::proto::{ConsumerId, Ipv4Prefix};
use wirepath::time::Instant;
use wirepath::wire::EtherType;

use super::counters::Rows;
use super::long_frames::LongFrames;
use super::path::{largest_mtu, link_between, resolve};
use super::prefetch::{Lookahead, QPS_MIN};
use crate::cm::{CmConfig, Manager};
use crate::roce::{Device, DeviceConfig, Mtu, RoceFrame};
use crate::wire::icrc::Network;
use crate::wire::{GRH_ETHERTYPE, ROCE_PORT};

/// Frames that leave in one turn: a queue pair with much to send must not keep the worker from
/// what arrives.
const FRAMES_PER_TURN: usize = 64;
/// Queue pairs and address handles of one turn that follow a change of the host.
const PLACES_PER_TURN: u32 = 16;

/// What a port is subscribed to for RoCEv2: datagrams to UDP port 4791 of any address of ours.
pub fn subscription() -> Subscription {
    udp(Ipv4Addr::UNSPECIFIED, ROCE_PORT)
}

/// What a port is subscribed to beside that, for the datagrams of a multicast group: the group is
/// joined, and each queue pair takes them that is attached to it ([`Device::attach_multicast`]).
///
/// ```
/// use rdma::port::{RoceNode, group_subscription, subscription};
/// use rdma::roce::DeviceConfig;
/// use wirepath::prelude::*;
///
/// let port = Port::open("memory:group")?.address([192, 0, 2, 1], 24).log(|_| ());
/// let port = port.subscribe(subscription()).subscribe(group_subscription([239, 1, 1, 1]));
/// let _port = port.embed(RoceNode::new(&DeviceConfig::default()))?;
/// # wirepath::Result::<()>::Ok(())
/// ```
pub fn group_subscription(group: impl Into<Ipv4Addr>) -> Subscription {
    multicast(group, ROCE_PORT)
}

/// RoCEv1: what [`Port::ethertype`](wirepath::port::Port::ethertype) is called with for a node
/// [`with_v1`](RoceNode::with_v1).
pub const V1_ETHERTYPE: EtherType = EtherType(GRH_ETHERTYPE);

/// A RoCE device on the port of a worker.
///
/// It takes the datagrams of its consumer, and sends what is due once a turn. Requests are posted,
/// and completions polled, by [`device_mut`](Self::device_mut): between two turns, or in the
/// methods of an app that has the node in it and passes its calls on. Over AF_XDP the frames come
/// here from the first turn on, so make one before a peer is told of a queue pair.
///
/// ```
/// use rdma::port::{RoceNode, subscription};
/// use rdma::roce::DeviceConfig;
/// use wirepath::prelude::*;
///
/// let port = Port::open("memory:roce")?.address([192, 0, 2, 1], 24).log(|_| ());
/// let port = port.subscribe(subscription());
/// let mut port = port.embed(RoceNode::new(&DeviceConfig::default()))?;
/// let pd = port.app_mut().device_mut().create_pd().expect("the first");
/// port.poll();
/// # let _ = pd;
/// # wirepath::Result::<()>::Ok(())
/// ```
pub struct RoceNode {
    device: Device,
    mtu: Mtu,
    consumer: ConsumerId,
    counters: NodeCounters,
    rows: Option<Rows>,
    manager: Option<Box<Manager>>,
    /// Where the device is large.
    ahead: Option<Box<Lookahead>>,
    /// Where the port's buffers are shorter than its frames.
    long_frames: Option<LongFrames>,
    /// Where RoCEv1 is taken: memory for a packet that came in several buffers.
    v1: Option<Box<[u8]>>,
    /// The host's changes that were seen, and whether it had a link then, and the sum of its
    /// addresses.
    host_changes: u64,
    has_link: bool,
    addresses: u64,
    /// The next place of the device that follows the last change.
    next_place: u32,
}

/// What the node counted beside its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Datagrams that were dropped because their IPv4 header has options, or did not come in one
    /// piece with the rest; and frames of RoCEv1 without a whole global route header.
    pub without_headers: u64,
    /// Turns in which frames waited because the ring was full, the pool empty, or a turn's 64
    /// frames had left.
    pub deferred: u64,
    /// Frames that the ring refused although it had said that it has room: lost, as on a wire.
    pub refused: u64,
}

impl RoceNode {
    /// A device with room for what the configuration says, whose datagrams are those of
    /// [`ConsumerId`] 0.
    ///
    /// # Panics
    /// As [`Device::new`].
    pub fn new(config: &DeviceConfig) -> Self {
        let device = Device::new(config);
        let (mtu, counters) = (config.mtu, NodeCounters::default());
        let ahead = (config.qps >= QPS_MIN).then(|| Box::new(Lookahead::NONE));
        Self {
            device,
            mtu,
            consumer: ConsumerId(0),
            counters,
            rows: None,
            manager: None,
            ahead,
            long_frames: None,
            v1: None,
            host_changes: 0,
            has_link: true,
            addresses: 0,
            next_place: u32::MAX,
        }
    }

    /// Takes the datagrams of another consumer.
    #[must_use]
    pub fn with_consumer(mut self, consumer: ConsumerId) -> Self {
        self.consumer = consumer;
        self
    }

    /// Has a connection manager too, which each turn moves ([`manager_mut`](Self::manager_mut)).
    ///
    /// # Panics
    /// As [`Manager::new`].
    #[must_use]
    pub fn with_manager(mut self, config: &CmConfig) -> Self {
        self.manager = Some(Box::new(Manager::new(config)));
        self
    }

    /// Takes RoCEv1 too, packets by Ethernet type, if the port has them
    /// ([`V1_ETHERTYPE`]). [`path_v1`](Self::path_v1) is the way to a peer that speaks it.
    ///
    /// ```
    /// use rdma::port::{RoceNode, V1_ETHERTYPE, subscription};
    /// use rdma::roce::DeviceConfig;
    /// use wirepath::prelude::*;
    ///
    /// let port = Port::open("memory:v1")?.address([192, 0, 2, 1], 24).log(|_| ());
    /// let port = port.subscribe(subscription()).ethertype(V1_ETHERTYPE);
    /// let _port = port.embed(RoceNode::new(&DeviceConfig::default()).with_v1())?;
    /// # wirepath::Result::<()>::Ok(())
    /// ```
    #[must_use]
    pub fn with_v1(mut self) -> Self {
        self.v1 = Some(vec![0; self.device.frame_len_max()].into_boxed_slice());
        self
    }

    /// The connection manager, if the node has one, and the device whose queue pairs it connects.
    pub fn manager_mut(&mut self) -> Option<(&mut Manager, &mut Device)> {
        Some((self.manager.as_deref_mut()?, &mut self.device))
    }

    /// Publishes the counters in this scope every 10 ms, for `wirepath stats`: those of the device,
    /// and a row for each of its first `qps` queue pairs. A row counts on where another queue pair
    /// takes the place of one that was destroyed. Packets with a wrong ICRC are the device's,
    /// because nothing in them is to be believed. This allocates, some 6 KiB a row.
    ///
    /// ```
    /// use rdma::port::{RoceNode, subscription};
    /// use rdma::roce::DeviceConfig;
    /// use wirepath::prelude::*;
    ///
    /// let port = Port::open("memory:rows")?.address([192, 0, 2, 1], 24).log(|_| ());
    /// let port = port.subscribe(subscription());
    /// let mut port = port.embed(RoceNode::new(&DeviceConfig::default()))?;
    /// let scope = port.scope("rdma");
    /// port.app_mut().count_in(&scope, 1);
    /// port.poll();
    /// assert_eq!(port.counters().count("rdma/qp0/packets_rx"), Some(0));
    /// # wirepath::Result::<()>::Ok(())
    /// ```
    pub fn count_in(&mut self, scope: &Scope, qps: u32) {
        self.rows = Some(Rows::new(scope, qps));
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The device, for requests and completions.
    #[inline]
    pub fn device_mut(&mut self) -> &mut Device {
        &mut self.device
    }

    /// What was counted.
    pub fn counters(&self) -> NodeCounters {
        self.counters
    }

    /// Follows the host: the state of its link and its addresses by events, and MAC addresses by
    /// the paths of queue pairs and address handles, some a turn.
    #[inline]
    fn follow(&mut self, cx: &Cx<'_>) {
        if cx.host.changes() != self.host_changes {
            self.note_changes(cx);
        }
        if self.next_place < self.device.link_places() {
            self.refresh_links(cx);
        }
    }

    #[cold]
    fn note_changes(&mut self, cx: &Cx<'_>) {
        (self.host_changes, self.next_place) = (cx.host.changes(), 0);
        if cx.host.is_up() != self.has_link {
            self.has_link = cx.host.is_up();
            self.device.note_link(self.has_link);
        }
        let addresses = sum_of(cx.host.addresses());
        if addresses != self.addresses {
            self.addresses = addresses;
            self.device.note_addresses();
        }
    }

    #[cold]
    fn refresh_links(&mut self, cx: &Cx<'_>) {
        let end = self.device.link_places().min(self.next_place + PLACES_PER_TURN);
        for place in self.next_place..end {
            self.device.refresh_link(place, |addresses| link_between(addresses, cx));
        }
        self.next_place = end;
    }

    /// Posts the frames that are due, as many as the ring has room for.
    #[inline]
    fn transmit(&mut self, cx: &mut Cx<'_>) {
        if !self.device.is_due() {
            return;
        }
        let (now, mut written) = (cx.now.as_nanos(), 0);
        let buffers = self.long_frames.as_ref().map_or(1, LongFrames::buffers);
        // A frame that the device has written is sent, so room and buffer come first.
        for _ in 0..(cx.tx.room() / buffers).min(FRAMES_PER_TURN) {
            let Some(mbuf) = self.next_frame(now, cx.pool) else { break };
            written += 1;
            if let Err(mbuf) = cx.tx.post(mbuf, Offload::NONE) {
                mbuf.free();
                self.counters.refused += 1;
                break;
            }
        }
        if self.device.is_due() {
            self.counters.deferred += 1;
            if written == 0 {
                self.device.on_blocked(now);
            }
        }
    }

    /// The next frame that is due; `None` where none is, or the pool is empty.
    #[inline]
    fn next_frame(&mut self, now: u64, pool: &Pool) -> Option<Mbuf> {
        if let Some(long_frames) = &mut self.long_frames {
            return long_frames.next(pool, |frame| self.device.transmit(now, frame));
        }
        let mut mbuf = pool.alloc()?;
        // `on_start` has found that the buffers are as long.
        let frame = mbuf.append(self.device.frame_len_max());
        match frame.and_then(|frame| self.device.transmit(now, frame)) {
            Some(len) => {
                mbuf.trim_to(len);
                Some(mbuf)
            }
            None => {
                mbuf.free();
                None
            }
        }
    }
}

/// The bytes of a frame in one piece: as many whole buffers as fit.
#[cold]
fn gather<'a>(frame: &Mbuf, scratch: &'a mut [u8]) -> &'a [u8] {
    let mut len = 0;
    for segment in frame.segments() {
        let Some(room) = scratch.get_mut(len..len + segment.len()) else { break };
        room.copy_from_slice(segment);
        len += segment.len();
    }
    &scratch[..len]
}

/// Tells lists of addresses apart.
fn sum_of(addresses: &[Ipv4Prefix]) -> u64 {
    let mut hasher = DefaultHasher::new();
    addresses.iter().for_each(|prefix| prefix.address().hash(&mut hasher));
    hasher.finish()
}

impl App for RoceNode {
    #[inline]
    fn prefetch(&mut self, frames: &[Mbuf]) {
        if let Some(ahead) = &mut self.ahead {
            ahead.begin(frames, &self.device);
        }
    }

    #[inline]
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        if datagram.consumer != self.consumer {
            return;
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.step(&self.device);
        }
        let headers = datagram.headers().and_then(|headers| headers.split_first_chunk::<20>());
        let network = headers.and_then(|(ip, udp)| Some(Network::Ipv4(ip, udp.try_into().ok()?)));
        match network {
            Some(network) => self.device.receive(cx.now.as_nanos(), network, datagram.payload),
            None => self.counters.without_headers += 1,
        }
    }

    fn on_frame(&mut self, ethertype: EtherType, frame: &Mbuf, cx: &mut Cx<'_>) -> bool {
        let Some(scratch) = self.v1.as_mut().filter(|_| ethertype == V1_ETHERTYPE) else { return false };
        let bytes = if frame.is_linear() { frame.bytes() } else { gather(frame, scratch) };
        match RoceFrame::parse_grh(bytes) {
            Ok(RoceFrame { network, roce }) => self.device.receive(cx.now.as_nanos(), network, roce),
            Err(_) => self.counters.without_headers += 1,
        }
        true
    }

    fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
        let link_mtu = cx.host.mtu();
        if largest_mtu(link_mtu).is_none_or(|largest| largest < self.mtu) {
            return Err(format!(
                "packets of {} bytes and their headers are longer than the interface's MTU of {link_mtu}: take a \
                 smaller MTU for the RoCE device, or a larger one for the interface",
                self.mtu
            )
            .into());
        }
        (self.host_changes, self.has_link) = (cx.host.changes(), cx.host.is_up());
        self.addresses = sum_of(cx.host.addresses());
        let mbuf = cx.pool.alloc().ok_or("the pool of the port has no buffer")?;
        let (room, frame_len_max) = (mbuf.tailroom(), self.device.frame_len_max());
        mbuf.free();
        self.long_frames = (frame_len_max > room).then(|| LongFrames::new(frame_len_max, room));
        Ok(())
    }

    #[inline]
    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.follow(cx);
        if self.device.next_timer().is_some_and(|at| at <= cx.now.as_nanos()) {
            self.device.on_timer(cx.now.as_nanos());
        }
        if let Some(manager) = &mut self.manager {
            manager.poll(cx.now.as_nanos(), &mut self.device, |addresses| resolve(addresses, cx));
        }
        self.transmit(cx);
        if let Some(rows) = &mut self.rows {
            rows.publish(cx.now, &self.device, &self.counters);
        }
    }

    fn on_stop(&mut self, _: &mut Cx<'_>) {
        if let Some(rows) = &mut self.rows {
            rows.publish_now(&self.device, &self.counters);
        }
    }

    fn next_deadline(&self, cx: &Cx<'_>) -> Instant {
        let is_behind = cx.host.changes() != self.host_changes || self.next_place < self.device.link_places();
        if self.device.is_due() || is_behind {
            return cx.now;
        }
        let timer = |at: Option<u64>| at.map_or(Instant::MAX, Instant::from_nanos);
        let manager = self.manager.as_ref().and_then(|manager| manager.next_timer());
        let timer = timer(self.device.next_timer()).min(timer(manager));
        self.rows.as_ref().map_or(timer, |rows| timer.min(rows.deadline(&self.device)))
    }
}
