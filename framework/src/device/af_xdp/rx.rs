//! The receive half: descriptors of the rx ring become mbufs, and the fill ring is refilled from
//! the pool.

use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use arrayvec::ArrayVec;

use super::gate::Gate;
use super::interface::{LinkState, LinkWatch};
use super::program::metadata;
use super::rings::alarm::Alarm;
use super::rings::ring::{ConsumerRing, Desc, MORE, OF_BROKER, ProducerRing};
use super::rings::socket::Statistics;
use super::rings::sys;
use super::rings::umem::{DescriptorError, FillChunks, Umem};
use super::setup::device::BindFlags;
use super::setup::handle::PortHandle;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::{RxQueue, RxState};
use crate::mem::{Burst, Mbuf, Pool, RxInfo};
use crate::time::{Duration, Instant};
use crate::wire::handover;

crate::drop_reasons! {
    /// Why a frame that matches a rule does not reach the pipeline.
    pub(crate) enum AfXdpRxDrop {
        /// The kernel found no buffer in the fill ring (the pool was empty), or the frame fits no
        /// chunk.
        KernelDropped => "kernel_dropped",
        /// The rx ring was full: the worker did not poll for longer than `rx_ring_len` frames take.
        RingFull => "rx_ring_full",
        /// The kernel returned an address that it does not own.
        AddressInvalid => "address_invalid",
        /// The kernel returned bytes that are not inside their chunk.
        LengthInvalid => "length_invalid",
        /// The frame spans more buffers than a chain may have.
        TooManySegments => "too_many_segments",
        /// The frame was in the rx ring when the receive half was dropped.
        QueueClosed => "queue_closed",
    }
}

/// Buffers of one frame: 9,018 bytes in chunks of 2048 are six. In generic mode a frame that a
/// kernel sends in one piece (TSO) has 64 KiB, which are 37 chunks behind their headroom.
const SEGMENTS_MAX: usize = 40;

/// Buffers per refill: more than a burst of frames takes, even if each is a chain of four.
const REFILL_MAX: usize = 256;

/// The most frames of a burst that the app sees before their slots and buffers are returned to the
/// kernel. For a longer burst they are returned first, because the kernel may run short, and all
/// frames share the delay.
const FEW: usize = 4;

/// Interval between two checks of the link and the program, three system calls each: short enough
/// for a loop that has to end, and 30 calls per second.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The receive half of a queue. System calls are made by the first `receive` (which starts to
/// receive, unless the first send has done so), then every 100 ms of its clock, and in zero-copy
/// mode when the driver needs a wakeup.
pub struct AfXdpRx {
    port: PortHandle,
    umem: Rc<Umem>,
    gate: Rc<Gate>,
    rx: ConsumerRing<Desc>,
    fill: ProducerRing<u64>,
    lent: FillChunks,
    /// The first buffers of a frame whose last buffer has not arrived yet.
    parts: ArrayVec<Mbuf, SEGMENTS_MAX>,
    /// The rest of the current frame is dropped, because its first part was.
    skipping: bool,
    /// Taken slots of the rx ring have not been returned to the kernel yet.
    owing: bool,
    zero_copy: bool,
    next_housekeeping: Instant,
    link: LinkState,
    watch: LinkWatch,
    /// Where a broker passes frames on.
    alarm: Option<Alarm>,
    kernel: Statistics,
    counters: RxCounters,
    drops: Drops<AfXdpRxDrop>,
}

struct RxCounters {
    frames: Counter,
    bytes: Counter,
    /// System calls that woke the driver.
    wakeups: Counter,
    /// Times that someone detached the program from the interface, and it was attached again.
    /// Counted per port: each of its queues reports them.
    program_put_back: Counter,
    rules_unsteered: Counter,
    rules_elsewhere: Counter,
    /// Refills that found the pool empty while the fill ring had room.
    nombuf: Counter,
    /// Times that the kernel found the fill ring empty.
    kernel_fill_empty: Counter,
    /// Addresses in the fill ring that the kernel refused.
    kernel_invalid_descs: Counter,
    /// Times that a ring index of the kernel was off its ring.
    ring_faults: Counter,
}

/// The parts of a receive half.
pub(super) struct RxParts {
    pub(super) port: PortHandle,
    pub(super) umem: Rc<Umem>,
    pub(super) gate: Rc<Gate>,
    pub(super) rx: ConsumerRing<Desc>,
    pub(super) fill: ProducerRing<u64>,
    pub(super) bind_flags: BindFlags,
    pub(super) watch: LinkWatch,
}

impl AfXdpRx {
    /// Takes over the rings, and fills the fill ring.
    pub(super) fn new(parts: RxParts, pool: &Pool, scope: &Scope) -> Self {
        let RxParts { port, umem, gate, rx, fill, bind_flags, watch } = parts;
        let scope = scope.scope("rx");
        let counters = RxCounters {
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            wakeups: scope.counter("wakeups", Unit::Events),
            program_put_back: scope.counter("program_put_back", Unit::Events),
            rules_unsteered: scope.counter("rules_unsteered", Unit::Events),
            rules_elsewhere: scope.counter("rules_elsewhere", Unit::Events),
            nombuf: scope.counter("nombuf", Unit::Events),
            kernel_fill_empty: scope.counter("kernel_fill_empty", Unit::Events),
            kernel_invalid_descs: scope.counter("kernel_invalid_descs", Unit::Events),
            ring_faults: scope.counter("ring_faults", Unit::Events),
        };
        let mut this = Self {
            rx,
            fill,
            lent: FillChunks::new(umem.geometry()),
            parts: ArrayVec::new(),
            skipping: false,
            owing: false,
            zero_copy: bind_flags.zero_copy,
            next_housekeeping: Instant::ZERO,
            link: port.interface().link,
            watch,
            alarm: umem.is_forwarded().then(Alarm::default),
            kernel: Statistics::default(),
            counters,
            drops: scope.drops(),
            port,
            umem,
            gate,
        };
        this.fill_up(pool);
        this
    }

    /// The work that is not done per burst.
    #[cold]
    fn housekeep(&mut self, now: Instant) {
        self.next_housekeeping = now + LOOK_EVERY;
        self.link = self.watch.look().unwrap_or(self.link);
        if self.link == LinkState::Gone {
            self.umem.set_gone();
        }
        self.port.reattach_if_lost();
        self.counters.program_put_back.add(self.port.reattached_count() - self.counters.program_put_back.get());
        self.counters.rules_unsteered.add(self.port.unsteered_rules() - self.counters.rules_unsteered.get());
        self.counters.rules_elsewhere.add(self.port.rules_elsewhere() - self.counters.rules_elsewhere.get());
        self.gate.open();
    }

    /// Fills the fill ring.
    fn fill_up(&mut self, pool: &Pool) {
        while self.lent.count() < self.fill.len() && self.refill(pool) > 0 {}
    }

    /// Posts buffers to the fill ring; returns how many.
    #[inline]
    fn refill(&mut self, pool: &Pool) -> usize {
        let wanted = ((self.fill.len() - self.lent.count()) as usize).min(REFILL_MAX);
        if wanted == 0 {
            return 0;
        }
        assert!(self.umem.is_of(pool), "a queue receives into the pool that it was opened with");
        let count = wanted.min(pool.available());
        if count == 0 {
            self.counters.nombuf.inc();
            return 0;
        }
        if !self.fill.has_room(count as u32) {
            return 0;
        }
        for mbuf in (0..count).map_while(|_| pool.alloc()) {
            let addr = self.lent.give_to_kernel(mbuf);
            self.fill.post(addr);
        }
        self.fill.publish();
        count
    }

    /// Returns the slots of the last burst to the kernel, and refills its buffers.
    ///
    /// All of it writes to cache lines that the kernel's core owns, on a veth the sender's core,
    /// and a core stores in order: its later stores wait until it has got them, some hundred
    /// nanoseconds from a distant core. So a few frames are answered first.
    #[inline]
    fn settle(&mut self, pool: &Pool) {
        if self.owing {
            self.owing = false;
            self.rx.give_back();
        }
        self.refill(pool);
        self.wake_driver();
    }

    /// A driver in zero-copy mode that ran out of buffers needs a system call.
    #[inline]
    fn wake_driver(&mut self) {
        if self.zero_copy && self.fill.needs_wakeup() {
            self.counters.wakeups.inc();
            // A failure here has no remedy; the link's state shows it.
            let _ = sys::kick_rx(self.umem.socket());
        }
    }

    /// Processes one descriptor: a frame, or part of one. Returns the frame once it is complete.
    #[inline]
    fn take(&mut self, desc: &Desc, has_hints: bool) -> Option<Mbuf> {
        let taken = self.lent.take_back(desc);
        if desc.options & (MORE | OF_BROKER) != 0 || !self.parts.is_empty() || self.skipping {
            let frame = self.take_part(taken, desc.options & MORE != 0, has_hints);
            return if desc.options & OF_BROKER != 0 { frame.map(marked) } else { frame };
        }
        match taken {
            Ok(mbuf) => Some(if has_hints { metadata::read(mbuf) } else { mbuf }),
            Err(fault) => {
                self.drops.count(reason(fault));
                None
            }
        }
    }

    /// A frame of several buffers: they are kept until the last one arrives, then chained from the
    /// back.
    #[cold]
    fn take_part(&mut self, taken: Result<Mbuf, DescriptorError>, more: bool, has_hints: bool) -> Option<Mbuf> {
        match taken {
            Ok(mbuf) if self.skipping => mbuf.free(),
            Ok(mbuf) => {
                let mbuf = if has_hints && self.parts.is_empty() { metadata::read(mbuf) } else { mbuf };
                if let Err(full) = self.parts.try_push(mbuf) {
                    full.element().free();
                    self.drop_parts(AfXdpRxDrop::TooManySegments);
                }
            }
            Err(_) if self.skipping => {}
            Err(fault) => self.drop_parts(reason(fault)),
        }
        if more {
            return None;
        }
        self.skipping = false;
        let mut chain = self.parts.pop()?;
        while let Some(mut mbuf) = self.parts.pop() {
            mbuf.attach(chain);
            chain = mbuf;
        }
        Some(chain)
    }

    /// Drops the incomplete frame; its remaining parts are skipped.
    fn drop_parts(&mut self, reason: AfXdpRxDrop) {
        self.parts.drain(..).for_each(Mbuf::free);
        self.skipping = true;
        self.drops.count(reason);
    }
}

/// A frame of the broker's own.
#[cold]
fn marked(mut frame: Mbuf) -> Mbuf {
    frame.set_rx_info(&RxInfo { flow_tag: Some(handover::MARK), ..RxInfo::default() });
    frame
}

fn reason(fault: DescriptorError) -> AfXdpRxDrop {
    match fault {
        DescriptorError::Address => AfXdpRxDrop::AddressInvalid,
        DescriptorError::Length => AfXdpRxDrop::LengthInvalid,
    }
}

impl RxQueue for AfXdpRx {
    #[inline]
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        if now >= self.next_housekeeping {
            self.housekeep(now);
        }
        let received = self.take_burst(burst, limit, pool);
        if received == 0
            && let Some(alarm) = &mut self.alarm
            && alarm.set(&mut self.rx, self.umem.socket())
        {
            return self.take_burst(burst, limit, pool);
        }
        received
    }

    /// `Ended` if the interface is gone, or if the program was detached for good
    /// ([`why_ended`](super::AfXdpDevice::why_ended)).
    fn state(&self) -> RxState {
        match self.link {
            _ if self.port.is_lost() => RxState::Ended,
            LinkState::Up => RxState::Open,
            LinkState::Down => RxState::LinkDown,
            LinkState::Gone => RxState::Ended,
        }
    }

    /// The AF_XDP socket. A turn without frames has returned all slots, so the socket becomes
    /// readable again only with the next frame.
    fn wait_fd(&self) -> Option<RawFd> {
        if let Some(alarm) = &self.alarm {
            alarm.is_wanted.set(true);
        }
        Some(self.umem.socket().as_raw_fd())
    }

    /// One system call.
    fn refresh_counters(&mut self) {
        let Some(now) = Statistics::read(&self.umem) else { return };
        let new = now.since(&core::mem::replace(&mut self.kernel, now));
        self.drops.count_many(AfXdpRxDrop::KernelDropped, new.rx_dropped);
        self.drops.count_many(AfXdpRxDrop::RingFull, new.rx_ring_full);
        self.counters.kernel_fill_empty.add(new.fill_ring_empty);
        self.counters.kernel_invalid_descs.add(new.rx_invalid_descs);
        self.counters.ring_faults.add(self.rx.faults() + self.fill.faults() - self.counters.ring_faults.get());
    }
}

impl AfXdpRx {
    #[inline]
    fn take_burst(&mut self, burst: &mut Burst, limit: usize, pool: &Pool) -> usize {
        self.settle(pool);
        let (limit, has_hints) = (limit.min(burst.remaining_capacity()), self.port.has_rx_hints());
        let (mut received, mut bytes, mut descs) = (0, 0, 0);
        while received < limit {
            let Some(desc) = self.rx.take() else { break };
            descs += 1;
            self.umem.geometry().prefetch(&desc);
            if let Some(mbuf) = self.take(&desc, has_hints) {
                bytes += mbuf.len() as u64;
                received += 1;
                burst.push(mbuf);
            }
        }
        if descs > 0 {
            self.owing = true;
            self.counters.frames.add(received as u64);
            self.counters.bytes.add(bytes);
        }
        if descs > FEW {
            self.settle(pool);
        }
        received
    }
}

impl Drop for AfXdpRx {
    fn drop(&mut self) {
        self.gate.close();
        while let Some(desc) = self.rx.take() {
            if desc.options & MORE == 0 {
                self.drops.count(AfXdpRxDrop::QueueClosed);
            }
        }
        self.refresh_counters();
        self.umem.keep(self.parts.drain(..));
        self.umem.keep(self.lent.take_all());
    }
}
