//! A queue of a port of our own before it is opened, on the worker's thread, with the worker's
//! pool.
//!
//! The order prevents loss of frames: memory is registered, rings are made and filled, and only
//! then are rules installed. Until then the kernel receives their frames.
//!
//! A half is created first ([`OwnQueue::create_tx`], [`OwnQueue::create_rx`]) and then polled: here
//! by `Mlx5Tx` and `Mlx5Rx`, or by another process to which a broker lends it (`lend`).

use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use hugepages::{MapRequest, Mapping};
use rdma_core_sys::verbs::{CompletionChannel, CompletionQueue, Compression, CqOptions, Element};

use super::capabilities::TimestampFormat;
use super::objects::{self, Receiver, Sender};
use super::parts::{CqParts, RqParts, SqParts, TxFeatures};
use super::port::{Port, Registered};
use super::rq_shape::RqShape;
use crate::counters::{Scope, Unit};
use crate::device::mlx5::completion::arm::CompletionEvents;
use crate::device::mlx5::completion::clock::{ClockInfo, TimestampSource};
use crate::device::mlx5::completion::compressed::Mini;
use crate::device::mlx5::error::Mlx5SetupError;
use crate::device::mlx5::health::recover::{Objects, Recovery};
use crate::device::mlx5::health::watch::RingError;
use crate::device::mlx5::receive::mprq_buffer::MprqBuffer;
use crate::device::mlx5::receive::packet_types::RxFeatures;
use crate::device::mlx5::receive::rx::{Mlx5Rx, QueueStatus, Refreshed, RxParts};
use crate::device::mlx5::send::tx::{Mlx5Tx, TxParts};
use crate::device::{DeviceError, RxState, rings};
use crate::mem::{Pool, Region, Sizing};

/// A queue before it is opened.
pub(crate) struct OwnQueue {
    pub(crate) port: Arc<Port>,
    pub(crate) idx: u16,
    /// The token that marks the queue as taken: it lives with this value, then with the halves.
    pub(crate) place: Arc<()>,
}

/// A send half that nobody polls yet.
pub(crate) struct CreatedTx {
    pub(crate) sq: SqParts,
    pub(crate) cq: CqParts,
    pub(crate) objects: Half<Sender>,
    /// Where the page of its register is in the file of the device.
    pub(crate) uar_offset: Option<i64>,
}

/// A receive half that nobody polls yet, and to which no frames are steered.
pub(crate) struct CreatedRx {
    pub(crate) cq: CqParts,
    pub(crate) rq: RqParts,
    mprq_buffer: Option<MprqBuffer>,
    pub(crate) objects: Half<Receiver>,
    pub(crate) events: ChannelEvents,
}

/// Reads of the kernel's clock page before giving up; libmlx5 makes ten within each.
const CLOCK_LOOKS: usize = 100;
/// Maximum number of buffers of a frame: a WQE of 512 bytes could name more than any frame needs.
const SEGMENTS_MAX: u32 = 8;

impl OwnQueue {
    /// Registers the pool's region, makes the rings and steers the rules to them. Takes some
    /// milliseconds, because the kernel pins the pool.
    pub(crate) fn open(self, pool: &Pool, scope: &Scope) -> Result<(Mlx5Rx, Mlx5Tx), DeviceError> {
        let port = &self.port;
        let shape = self.shape(pool.layout().data_room(), pool.capacity())?;
        let region = port.register(pool.region())?;
        self.publish_texts(scope);
        let has_ended = Arc::default();
        let tx = self.create_tx(&region, &has_ended)?;
        let tx = self.open_tx(tx, &region, pool, scope)?;
        let rx = self.create_rx(shape, &region, pool.region().mapping().and_then(Mapping::node), &has_ended)?;
        let rx = self.open_rx(rx, pool, scope)?;
        Ok((rx, tx))
    }

    pub(crate) fn buffers(&self) -> Sizing {
        let config = &self.port.info().config;
        rings(config.rx_ring_len, config.tx_ring_len)
    }

    /// The shape of the receive ring for `capacity` buffers that hold `data_room` bytes each.
    pub(crate) fn shape(&self, data_room: usize, capacity: usize) -> Result<RqShape, Mlx5SetupError> {
        let info = self.port.info();
        let ring_len = info.config.rx_ring_len;
        let segments = info.frame_len_max.div_ceil(data_room).max(1) as u32;
        let segments_max = match info.enabled.striding {
            None => SEGMENTS_MAX.min(info.capabilities.device.sge_max),
            // Frames are copied into the pool's buffers: the ring holds none of them.
            Some(_) => SEGMENTS_MAX.min(capacity.try_into().unwrap_or(u32::MAX)),
        };
        if segments > segments_max {
            return Err(Mlx5SetupError::FrameTooLong {
                device: info.name.clone(),
                frame_len_max: info.frame_len_max,
                data_room,
                segments_max: segments_max as usize,
            });
        }
        if let Some(striding) = info.enabled.striding {
            let shape = RqShape::for_frames(ring_len, info.frame_len_max, striding);
            return shape.ok_or_else(|| self.port.invalid_object("making a striding queue"));
        }
        if capacity <= (ring_len * segments) as usize {
            return Err(Mlx5SetupError::PoolTooSmall { buffers: capacity, ring_len: ring_len * segments });
        }
        Ok(RqShape { wqe_count: ring_len, segments, striding: None })
    }

    /// Publishes the fields that `wirepath stats` shows of the queue, and by which it finds the
    /// NIC's own counters.
    fn publish_texts(&self, scope: &Scope) {
        let info = self.port.info();
        scope.text("device", &info.name);
        scope.text("mode", if info.config.hash().is_some() { "mlx5, spread by a hash" } else { "mlx5" });
        if let Some(interface) = &info.interface {
            scope.text("interface", &interface.name);
            scope.gauge("interface_index", Unit::Number).set(interface.index.into());
        }
    }

    /// Makes the rings of the send half, for frames in `region`.
    pub(crate) fn create_tx(
        &self,
        region: &Arc<Registered>,
        has_ended: &Arc<AtomicBool>,
    ) -> Result<CreatedTx, DeviceError> {
        let (port, info) = (&*self.port, self.port.info());
        let blocks = info.config.tx_ring_len;
        // When a ring fails, each block may be flushed with a separate CQE.
        let options =
            CqOptions { wallclock: info.enabled.stamps == Some(TimestampFormat::RealTime), ..CqOptions::default() };
        let (cq, cq_parts) = objects::completion_queue(port, blocks, options, None)?;
        let (sender, sq, uar_offset) = objects::sender(port, self.idx, &cq, blocks)?;
        let monitor = ObjectMonitor::new(&self.port, sender.element(), &cq, has_ended);
        let objects = self.half(sender, None, monitor, [Some(Arc::clone(region)), None]);
        Ok(CreatedTx { sq, cq: cq_parts, objects, uar_offset })
    }

    fn open_tx(
        &self,
        created: CreatedTx,
        region: &Registered,
        pool: &Pool,
        scope: &Scope,
    ) -> Result<Mlx5Tx, DeviceError> {
        let (port, info) = (&*self.port, self.port.info());
        scope.scope("tx").text("doorbell", if created.sq.blueflame_len > 0 { "BlueFlame" } else { "plain" });
        let (clock, monitor) = (Arc::clone(&self.port), created.objects.monitor.clone());
        let parts = TxParts {
            sq: created.sq,
            cq: created.cq,
            capabilities: capabilities(port),
            lkey: region.lkey(),
            stamps: self.stamps()?,
            relation: Box::new(move || clock.relation()),
            fault: Box::new(move || monitor.take_fault()),
            recovery: Recovery::new(Box::new(created.objects), &scope.scope("tx")),
            may_send: info.config.hash().is_some().then(|| port.begin_open(self.idx)),
        };
        Mlx5Tx::new(parts, pool, scope)
    }

    /// Makes the rings of the receive half. The buffer of a striding ring is on the NUMA node
    /// `node`.
    pub(crate) fn create_rx(
        &self,
        shape: RqShape,
        region: &Arc<Registered>,
        node: Option<u32>,
        has_ended: &Arc<AtomicBool>,
    ) -> Result<CreatedRx, DeviceError> {
        let (port, info) = (&*self.port, self.port.info());
        let enabled = &info.enabled;
        let options = CqOptions {
            compression: enabled.compression,
            wallclock: enabled.stamps == Some(TimestampFormat::RealTime),
            ..CqOptions::default()
        };
        let channel = CompletionChannel::create(port.context())
            .map_err(|error| port.error("making a completion channel", 0, error))?;
        // Each queue's events on another CPU, as far as the device has vectors.
        let vector = u32::from(self.idx) % port.context().vector_count().max(1);
        let (cq, cq_parts) = objects::completion_queue(port, shape.cqe_count(), options, Some((&channel, vector)))?;
        let mprq_buffer = shape.striding.map(|_| self.mprq_buffer(shape, node)).transpose()?;
        let lkey = mprq_buffer.as_ref().map_or(region.lkey(), |(_, registered)| registered.lkey());
        let (receiver, rq) = if info.config.hash().is_some() || shape.striding.is_some() {
            objects::work_queue(port, &cq, shape, lkey)?
        } else {
            objects::receiver(port, self.idx, &cq, shape, lkey)?
        };
        let from = Some((Arc::clone(&self.port), self.idx));
        let (mprq_buffer, mprq_region) = mprq_buffer.unzip();
        let monitor = ObjectMonitor::new(&self.port, receiver.element(), &cq, has_ended);
        let objects = self.half(receiver, from, monitor, [Some(Arc::clone(region)), mprq_region]);
        Ok(CreatedRx { cq: cq_parts, rq, mprq_buffer, objects, events: ChannelEvents(channel) })
    }

    fn open_rx(&self, created: CreatedRx, pool: &Pool, scope: &Scope) -> Result<Mlx5Rx, DeviceError> {
        let info = self.port.info();
        let enabled = &info.enabled;
        let (receiver, monitor) = (created.objects.objects.clone(), created.objects.monitor.clone());
        let parts = RxParts {
            cq: created.cq,
            rq: created.rq,
            mprq_buffer: created.mprq_buffer,
            recovery: Recovery::new(Box::new(created.objects), &scope.scope("rx")),
            status: Box::new(VerbsQueueStatus { monitor }),
            frame_len_max: info.frame_len_max,
            features: RxFeatures {
                stamps: self.stamps()?,
                has_hashes: info.config.hash().is_some(),
                has_checksums: enabled.checksum,
            },
            events: Some(Box::new(created.events)),
            mini: enabled.compression.map(mini),
        };
        // When this returns its ring has all buffers that the pool could give, and if a later step
        // fails it frees them.
        let rx = Mlx5Rx::new(parts, pool, scope);
        self.steer_to(receiver)?;
        Ok(rx)
    }

    fn half<T>(
        &self,
        objects: T,
        from: Option<(Arc<Port>, u16)>,
        monitor: ObjectMonitor,
        regions: [Option<Arc<Registered>>; 2],
    ) -> Half<T> {
        Half { objects, from, monitor, _place: Arc::clone(&self.place), _regions: regions }
    }

    /// Steers this queue's frames to its receiver.
    pub(crate) fn steer_to(&self, receiver: Receiver) -> Result<(), DeviceError> {
        let port = &*self.port;
        match (receiver, port.info().config.hash()) {
            (Receiver::Pair { qp, .. }, _) => port.steer_queue(self.idx, qp)?,
            (Receiver::Work(wq), Some(hash)) => port.join(self.idx, wq, &hash)?,
            (Receiver::Work(wq), None) => port.steer_queue(self.idx, port.pair_for(&wq)?)?,
        }
        Ok(())
    }

    /// The buffer of a striding ring, registered with the device; frames are copied out of it.
    /// On the NUMA node of the pool into which they are copied.
    fn mprq_buffer(&self, shape: RqShape, node: Option<u32>) -> Result<(MprqBuffer, Arc<Registered>), Mlx5SetupError> {
        let len = shape.mprq_buffer_len();
        let region = Region::map(&MapRequest { node, ..MapRequest::new(len) }).or_else(|_| Region::heap(len));
        let region =
            Arc::new(region.map_err(|_| Mlx5SetupError::NoMemory { doing: "the strides of a receive queue" })?);
        if let Some(why) = short_of_hugepages(&region) {
            // Of several queues only the first reports it.
            let _ = self.port.strides.set(why);
        }
        let registered = self.port.register(&region)?;
        let mprq_buffer = MprqBuffer::new(region, registered.lkey())
            .ok_or_else(|| self.port.invalid_object("making a striding queue"))?;
        Ok((mprq_buffer, registered))
    }

    /// The handling of timestamps. The device was opened with them, so if the clock is lost now,
    /// the queue is refused rather than opened without them.
    fn stamps(&self) -> Result<TimestampSource, Mlx5SetupError> {
        let stamps = stamps(self.port.enabled().stamps, || self.port.relation());
        stamps.ok_or_else(|| Mlx5SetupError::NoClock { device: self.port.name().into() })
    }
}

/// The notice for the operator about memory that is not in hugepages.
fn short_of_hugepages(region: &Region) -> Option<String> {
    match region.mapping() {
        Some(mapping) => mapping.fallback().map(|fallback| format!("on small pages: {fallback}")),
        None => Some("on the heap, on any NUMA node".into()),
    }
}

/// `None` if the clock is needed and its relation cannot be read. Reads a few times, because the
/// kernel may just be writing to its page.
fn stamps(enabled: Option<TimestampFormat>, ask: impl FnMut() -> Option<ClockInfo>) -> Option<TimestampSource> {
    match enabled {
        None => Some(TimestampSource::Off),
        Some(TimestampFormat::Ticks) => Some(TimestampSource::Ticks),
        Some(TimestampFormat::RealTime) => Some(TimestampSource::RealTime),
        Some(TimestampFormat::Wall) => {
            core::iter::repeat_with(ask).take(CLOCK_LOOKS).flatten().next().map(TimestampSource::Wall)
        }
    }
}

/// The features of a send queue.
pub(crate) fn capabilities(port: &Port) -> TxFeatures {
    let (info, enabled) = (port.info(), port.enabled());
    TxFeatures {
        frame_len_max: info.frame_len_max as u32,
        multi_packet: enabled.multi_packet,
        checksums: enabled.checksum,
        // A WQE has either the tag or inline header bytes (mlx5.md 2.3).
        vlan_insert: enabled.inline_len_min == 0,
        segmentation_len_max: port.tso_len_max() as u32,
    }
}

fn mini(compression: Compression) -> Mini {
    match compression {
        Compression::Hash => Mini::Hash,
        Compression::Checksum => Mini::Checksum,
        Compression::ChecksumStride => Mini::ChecksumStride,
    }
}

/// The objects of one half, with everything that must live as long as they do.
pub(crate) struct Half<T> {
    pub(crate) objects: T,
    /// The port and queue whose rules steer here; steering ends before the objects are destroyed.
    from: Option<(Arc<Port>, u16)>,
    pub(crate) monitor: ObjectMonitor,
    // After the objects, which are dropped first.
    _place: Arc<()>,
    _regions: [Option<Arc<Registered>>; 2],
}

impl<T: Objects> Objects for Half<T> {
    fn reset(&mut self) -> io::Result<()> {
        self.objects.reset()?;
        self.monitor.forget_ring();
        Ok(())
    }

    fn ready(&mut self) -> io::Result<()> {
        self.objects.ready()
    }

    fn close(&mut self) -> io::Result<()> {
        if let Some((port, idx)) = self.from.take() {
            port.release(idx);
        }
        self.objects.close()?;
        self.monitor.forget_ring();
        Ok(())
    }

    fn are_gone(&mut self) -> bool {
        self.monitor.port.watch.ask();
        self.monitor.port.watch.state() == RxState::Ended
    }
}

/// Receives the kernel's asynchronous events about the objects of one half.
#[derive(Clone)]
pub(crate) struct ObjectMonitor {
    port: Arc<Port>,
    ring: Element,
    cq: Element,
    /// Set for the queue once one of its halves has lost its completions.
    has_ended: Arc<AtomicBool>,
}

impl ObjectMonitor {
    /// For new objects: discards events about former ones with the same numbers.
    fn new(port: &Arc<Port>, ring: Element, cq: &CompletionQueue, has_ended: &Arc<AtomicBool>) -> Self {
        let cq = Element::CompletionQueue(cq.handle());
        port.watch.forget(ring);
        port.watch.forget(cq);
        Self { port: Arc::clone(port), ring, cq, has_ended: Arc::clone(has_ended) }
    }

    /// The error of the objects since the last call, as far as events have been read.
    pub(crate) fn take_fault(&self) -> Option<RingError> {
        let fault = self.port.watch.take_fault(self.ring, self.cq);
        if fault == Some(RingError::Completions) {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        fault
    }

    /// The ring was reset: events about its former state, read or pending, are discarded.
    fn forget_ring(&self) {
        self.port.watch.forget(self.ring);
    }
}

/// The channel of one completion queue.
pub(crate) struct ChannelEvents(CompletionChannel);

impl CompletionEvents for ChannelEvents {
    fn fd(&self) -> RawFd {
        self.0.fd().as_raw_fd()
    }

    fn take(&mut self) -> bool {
        matches!(self.0.next_event(), Ok(Some(_)))
    }
}

/// The status of port and objects for the receive half.
struct VerbsQueueStatus {
    monitor: ObjectMonitor,
}

impl QueueStatus for VerbsQueueStatus {
    fn state(&self) -> RxState {
        if self.monitor.has_ended.load(Ordering::Relaxed) { RxState::Ended } else { self.monitor.port.watch.state() }
    }

    fn relation(&mut self) -> Option<ClockInfo> {
        self.monitor.port.relation()
    }

    fn refresh(&mut self) -> Refreshed {
        Refreshed { out_of_buffer: self.monitor.port.watch.take_out_of_buffer(), fault: self.monitor.take_fault() }
    }

    fn refresh_last(&mut self) -> Refreshed {
        self.monitor.port.watch.look_last();
        self.refresh()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_that_are_not_in_hugepages_say_so() {
        let heap = Region::heap(4096).map(|region| short_of_hugepages(&region));
        assert_eq!(heap.ok().flatten().as_deref(), Some("on the heap, on any NUMA node"));
        // More than any machine reserves.
        if let Ok(region) = Region::map(&MapRequest { populate: false, ..MapRequest::new(1 << 40) }) {
            assert!(short_of_hugepages(&region).is_some_and(|why| why.starts_with("on small pages: ")));
        }
    }

    const RELATION: ClockInfo = ClockInfo { ns: 5, ticks: 6, fraction: 0, mult: 1, shift: 0, mask: u64::MAX };

    #[test]
    fn clock_that_is_written_to_is_asked_again() {
        let mut asked = 0;
        let found = stamps(Some(TimestampFormat::Wall), || {
            asked += 1;
            (asked == 3).then_some(RELATION)
        });
        assert_eq!((found, asked), (Some(TimestampSource::Wall(RELATION)), 3));
    }

    #[test]
    fn clock_that_nobody_relates_is_no_queue_without_times() {
        assert_eq!(stamps(Some(TimestampFormat::Wall), || None), None);
        let raw = || -> Option<ClockInfo> { panic!("nobody asked for the wall") };
        assert_eq!(stamps(Some(TimestampFormat::Ticks), raw), Some(TimestampSource::Ticks));
        assert_eq!(stamps(None, raw), Some(TimestampSource::Off));
    }
}
