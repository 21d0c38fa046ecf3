//! Devices move frames between a NIC (or a file, or plain memory) and mbufs. This module is the
//! contract that all devices share.
//!
//! A [`Device`] is a port. It is opened by the main thread, takes [steering rules](steering), and
//! hands out [`Queue`]s, one to each worker. On its own thread, with its own pool, the worker opens
//! the queue and gets its two halves: an [`RxQueue`] that fills bursts and a [`TxQueue`] that takes
//! frames.
//!
//! ```text
//!  main thread                    worker thread
//!  Device ──take_queue──▶ Queue ──open(pool, scope)──▶ RxQueue ──receive──▶ burst of mbufs
//!     └─ steer, unsteer                              └▶ TxQueue ◀──post, ring_doorbell, reap
//! ```
//!
//! Beside the contract: the devices ([`memory`], `pcap`, `af_xdp`, `mlx5`) and devices around
//! another one ([`tap`], `capture`, `fault`, [`bond`], [`either`]). A port belongs to the main
//! thread, a queue to the worker that opened it. This floor imports `mem`, `time` and `counters`,
//! and `wire` for steering rules, captures and faults; never `proto` or `pipeline`.
//!
//! A device must never lose a frame without a counter of its own name, panic on input from the NIC,
//! the kernel or a file, or keep an mbuf that [`TxQueue::reap`] could have freed. The suite
//! `conformance` of the feature `testing` checks it.

// Modules of devices are compiled by feature; `absent` stands in for those that were not built.
#[cfg(not(all(feature = "af-xdp", feature = "mlx5", feature = "pcap")))]
mod absent;
#[cfg(feature = "af-xdp")]
pub mod af_xdp;
pub mod bond;
#[cfg(feature = "af-xdp")]
pub(crate) mod broker;
#[cfg(feature = "pcap")]
pub mod capture;
pub mod either;
mod error;
#[cfg(any(test, feature = "fault"))]
pub mod fault;
pub(crate) mod forward;
pub mod memory;
#[cfg(feature = "mlx5")]
pub mod mlx5;
#[cfg(any(feature = "af-xdp", feature = "mlx5"))]
mod nic_filter;
mod offload;
#[cfg(feature = "pcap")]
pub mod pcap;
pub mod steering;
pub mod tap;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod testing;
mod tx_timestamps;

use core::num::NonZeroU64;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::counters::Scope;
use crate::mem::{Burst, Layout, Mbuf, Pool, Region, Sizing};
use crate::time::{Instant, UnixTime};
#[cfg(not(all(feature = "af-xdp", feature = "mlx5", feature = "pcap")))]
pub(crate) use absent::Absent;
pub use error::{DeviceError, DeviceErrorKind};
pub use offload::Offload;
use steering::{Fields, Rule, RuleId, SteerError};

/// A port: hands out queues and steers frames to them. Set-up only, never on the data path.
pub trait Device {
    /// The queue that a worker moves to its thread.
    type Queue: Queue;

    /// The name that the operator knows: `eth1`, `mlx5_0`, `day.pcap`.
    fn name(&self) -> &str;

    /// The device's capabilities. A request beyond them is refused or counted, never half done.
    fn capabilities(&self) -> Capabilities;

    /// Takes queue `idx`. Each queue is taken once; some devices allow it again after both halves
    /// of the queue were dropped.
    fn take_queue(&mut self, idx: u16) -> Result<Self::Queue, DeviceError>;

    /// Steers the frames that match `rule` to queue `idx`. May be called while the queues run;
    /// frames of other rules are not lost. By default refuses each rule. A wrapper forwards it.
    fn steer(&mut self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError> {
        let _ = idx;
        rule.check()?;
        Err(SteerError::Unsupported { fields: rule.fields() })
    }

    /// Removes a rule. By default there is none. A wrapper forwards it.
    fn unsteer(&mut self, id: RuleId) -> Result<(), SteerError> {
        Err(SteerError::NoRule { id })
    }
}

/// [`Device::take_queue`] of a device with one queue, which is `None` once it is taken.
pub fn take_only_queue<Q>(queue: &mut Option<Q>, device: &str, idx: u16) -> Result<Q, DeviceError> {
    if idx != 0 {
        return Err(DeviceError::NoQueue { device: device.into(), idx, queues: 1 });
    }
    queue.take().ok_or_else(|| DeviceError::QueueTaken { device: device.into(), idx })
}

/// The receive half of a device's queues.
pub type RxOf<D> = <<D as Device>::Queue as Queue>::Rx;
/// The transmit half of a device's queues.
pub type TxOf<D> = <<D as Device>::Queue as Queue>::Tx;

/// One queue of a device, before a worker opens it.
pub trait Queue: Send {
    /// The receive half.
    type Rx: RxQueue;
    /// The transmit half.
    type Tx: TxQueue;

    /// Opens the queue on the calling thread, which becomes its owner. Received frames go into
    /// `pool`, whose region is registered with the device; counters are registered in `scope`.
    fn open(self, pool: &Pool, scope: &Scope) -> Result<(Self::Rx, Self::Tx), DeviceError>;

    /// The layout of a pool whose buffers hold a frame of `frame_len_max` bytes, if the device has
    /// one. By default buffers of that size.
    fn layout(&self, frame_len_max: usize) -> Layout {
        Layout::for_frames(frame_len_max)
    }

    /// How many buffers the open queue holds at most, to size the pool. By default as many as two
    /// rings of 1,024 frames take.
    fn buffers(&self) -> Sizing {
        rings(1_024, 1_024)
    }

    /// Memory that the device lends for a pool of `buffers` buffers of `layout`: the pool that the
    /// queue is opened with is cut from it. `None`, the default, for a device that takes any
    /// memory. A wrapper forwards it.
    ///
    /// # Errors
    /// The device lends memory, and has none now.
    fn region(&mut self, layout: Layout, buffers: usize) -> Result<Option<Region>, DeviceError> {
        let _ = (layout, buffers);
        Ok(None)
    }
}

/// The buffers of a queue with rings of these lengths.
pub(crate) fn rings(rx_ring_len: u32, tx_ring_len: u32) -> Sizing {
    Sizing::new().part("receiving", rx_ring_len as usize, "lent to the device, for frames to come").part(
        "sending",
        tx_ring_len as usize,
        "posted, and not on the wire yet",
    )
}

/// The receive half of a queue.
pub trait RxQueue {
    /// Appends up to `limit` received frames to `burst` (never more than it has room for), oldest
    /// first, and refills the ring from `pool`, which must be the pool that the queue was opened
    /// with: a device that registered its region panics on another. Returns the number of frames.
    /// Makes no system call or allocation and takes no lock unless the device documents it. A frame
    /// that cannot be delivered is counted by name. While the pool is empty, frames stay in the
    /// ring as long as the device can hold them.
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize;

    /// Whether more frames may arrive.
    fn state(&self) -> RxState;

    /// A descriptor that `poll(2)` reports as readable while frames wait in the ring, so that a
    /// loop can sleep after a turn without frames, until
    /// [`Worker::next_deadline`](crate::worker::Worker::next_deadline). The queue owns the
    /// descriptor, and it does not change. `None`, the default, for a device that can only be
    /// polled.
    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    /// Asks the device that the next frame makes [`wait_fd`](Self::wait_fd) readable, where it does
    /// so only on request: ConnectX signals one completion for each request (mlx5.md 2.9).
    /// [`Worker::next_deadline`](crate::worker::Worker::next_deadline) calls it, before a loop
    /// sleeps and after a turn without frames, so a loop that only polls pays nothing. May make a
    /// system call. The default is for devices that always signal, or never do. A wrapper forwards
    /// it with `wait_fd`.
    fn arm(&mut self) {}

    /// Updates counters that the kernel or the NIC keeps, such as drops before our ring. May make a
    /// system call; the loop calls it at intervals, never per burst. The trait has no default for
    /// it, because a wrapper that forgot to forward it would hide those drops.
    fn refresh_counters(&mut self);
}

/// The state of a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RxState {
    /// Frames may arrive at any time.
    Open,
    /// The link is down; it may return.
    LinkDown,
    /// No frame will ever arrive again: the capture has ended, the peer is gone, the device was
    /// removed.
    Ended,
}

/// The transmit half of a queue. Post and doorbell are separate so that a burst costs one doorbell.
///
/// A frame that cannot wait for the doorbell is posted [urgent](Offload::URGENT): its device rings
/// before the post returns. The cost beyond a post, once per urgent frame:
///
/// | device | ringing |
/// |---|---|
/// | `memory` | a store |
/// | `mlx5` | two writes: one to memory, one to the NIC's register, which BlueFlame makes the frame itself |
/// | `af_xdp` with copies | a sendto(2), within which the kernel sends all that the ring holds |
/// | `af_xdp` without copies | the same call if the driver sleeps and needs a wakeup, else a store |
/// | `pcap` | the frames are written as with a doorbell |
pub trait TxQueue {
    /// Posts a frame, linear or a chain of segments, with its offloads. A full ring returns the
    /// mbuf untouched. A frame that this device can never send (too long, too many segments, an
    /// unsupported offload) is accepted and counted as a drop by name. The frame may leave at once
    /// or with the next doorbell; an urgent one leaves at once, after all that were posted before
    /// it.
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf>;

    /// Posts a complete frame, and rings: [`post`](Self::post) with [`URGENT`](Offload::URGENT)
    /// only, for which a device may have a shorter path.
    fn post_urgent(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        self.post(mbuf, Offload::URGENT)
    }

    /// Posts a frame that the app did not request, such as an ARP request or a bare acknowledgment.
    /// Like [`post`](Self::post), except that a wrapper that marks the caller's frames for
    /// timestamps leaves this frame unmarked.
    fn post_unmarked(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        self.post(mbuf, offload)
    }

    /// Posts the frames of `burst` in order, all with the same offloads, as [`post`](Self::post)
    /// does one; returns how many were accepted. Frames beyond the room in the ring remain in
    /// `burst`. A device may handle many frames at once more cheaply than one by one.
    fn post_burst(&mut self, burst: &mut Burst, offload: Offload) -> usize {
        post_one_by_one(self, burst, offload)
    }

    /// Builds a frame as [`post`](Self::post) does, with the same instructions and memory, but does
    /// not send it, so that the next post runs warm. It may ring the doorbell for frames posted
    /// earlier. The mbuf is freed, and nothing counts as sent. By default the frame is only freed.
    fn dry_run(&mut self, mbuf: Mbuf, offload: Offload) {
        let _ = offload;
        mbuf.free();
    }

    /// Places a complete frame where the next one goes, so that sending it takes only writing some
    /// of its bytes and ringing ([`preposted`](Self::preposted),
    /// [`fire_preposted`](Self::fire_preposted)). The frame does not leave before that. There is
    /// one such place: the next post overwrites it, and then the preposted frame is void. `None` if
    /// the device does not support this (the default), or cannot do it now or for a frame of this
    /// length: then send the frame by [`post_urgent`](Self::post_urgent).
    fn prepost(&mut self, frame: &[u8]) -> Option<Preposted> {
        let _ = frame;
        None
    }

    /// The bytes of a preposted frame, which the caller may overwrite. `None` if the frame is void.
    /// One check, no system call and no search.
    fn preposted(&mut self, which: Preposted) -> Option<&mut [u8]> {
        let _ = which;
        None
    }

    /// Sends the preposted frame, after all that were posted, and rings, as
    /// [`post_urgent`](Self::post_urgent) does. Returns false and changes nothing if the frame is
    /// void.
    fn fire_preposted(&mut self, which: Preposted) -> bool {
        let _ = which;
        false
    }

    /// Notifies the NIC of all posted frames. The loop calls it at the end of every turn, posted or
    /// not, so a device may also do work here that is due by time.
    fn ring_doorbell(&mut self, now: Instant);

    /// Does all of [`ring_doorbell`](Self::ring_doorbell) but the system call that a device may
    /// need for it, which the caller makes by what is returned, when it has let the queue go to
    /// another thread. `None`: there is nothing left to do, as by default, where the doorbell rings
    /// here. A reference is counted; nothing is allocated.
    fn defer_doorbell(&mut self, now: Instant) -> Option<Arc<dyn Doorbell>> {
        self.ring_doorbell(now);
        None
    }

    /// Frees the mbufs that the NIC has finished with; returns the number of frames. An mbuf that
    /// is also [held](crate::mem::Held) remains with its holder. The loop calls it at the start of
    /// every turn.
    fn reap(&mut self) -> usize;

    /// Frames that [`TxQueue::post`] would accept now. Reads the ring's state anew, so that a
    /// caller waiting for room sees it.
    fn room(&mut self) -> usize;

    /// Frames posted and not yet reaped.
    fn in_flight(&self) -> usize;

    /// Whether frames can be timestamped on request, so that
    /// [`take_timestamp`](Self::take_timestamp) returns their times.
    fn has_timestamps(&self) -> bool {
        false
    }

    /// The next timestamp of a sent frame that asked for one: the oldest first, each once. Devices
    /// without transmit timestamps never return one.
    fn take_timestamp(&mut self) -> Option<TxTimestamp> {
        None
    }

    /// As [`RxQueue::refresh_counters`].
    fn refresh_counters(&mut self);
}

/// A queue's doorbell without the queue, which another thread may have
/// ([`TxQueue::defer_doorbell`]).
pub trait Doorbell: Send + Sync {
    /// Makes the system call, unless another thread is about it: then that one makes it again. Does
    /// nothing for a queue that is closed.
    fn ring(&self);
}

/// A preposted frame, valid until another frame is posted. The meaning of the number is private to
/// the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preposted(NonZeroU64);

impl Preposted {
    /// The handle for a device's number, which is never 0.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// Posts frames from the front of `burst` until one is refused, which remains there with those
/// after it. Returns the number of accepted frames.
#[inline(never)]
pub(crate) fn post_one_by_one<T: TxQueue + ?Sized>(tx: &mut T, burst: &mut Burst, offload: Offload) -> usize {
    let before = burst.len();
    let mut left = Burst::new();
    let mut frames = burst.drain(..);
    for mbuf in frames.by_ref() {
        if let Err(mbuf) = tx.post(mbuf, offload) {
            left.push(mbuf);
            break;
        }
    }
    left.extend(frames);
    burst.extend(left);
    before - burst.len()
}

/// The time at which a frame left the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxTimestamp {
    /// Identifies the frame: the number of frames with [`Offload::TIMESTAMP`] that this queue
    /// accepted before it, including those that it dropped.
    pub sequence: u64,
    /// The time, by the device's clock.
    pub at: UnixTime,
}

/// The capabilities of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Queues that can be taken.
    pub queues: u16,
    /// Bytes of the longest frame, Ethernet header to last payload byte.
    pub frame_len_max: usize,
    /// Segments of a frame to send; 1 means linear frames only.
    pub tx_segments_max: usize,
    /// Receive offloads.
    pub rx: RxOffloads,
    /// Transmit offloads.
    pub tx: TxOffloads,
    /// Fields that a steering rule may match; [`Fields::NONE`] if the device cannot steer and
    /// delivers everything.
    pub steering: Fields,
    /// Maximum number of rules.
    pub rules_max: usize,
}

/// Receive offloads: the metadata that the device provides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxOffloads {
    /// IPv4 header checksum status.
    pub ip_checksum: bool,
    /// UDP and TCP checksum status.
    pub l4_checksum: bool,
    /// Arrival times.
    pub timestamp: bool,
    /// RSS hashes.
    pub hash: bool,
    /// Strips 802.1Q tags into the mbuf's metadata.
    pub vlan: bool,
    /// Tags frames by the rule that matched.
    pub flow_tag: bool,
}

/// Transmit offloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxOffloads {
    /// Fills in IPv4 header checksums.
    pub ip_checksum: bool,
    /// Fills in UDP and TCP checksums.
    pub l4_checksum: bool,
    /// Bytes of the longest TCP payload that it segments; 0 without segmentation.
    pub segmentation_len_max: usize,
    /// Inserts 802.1Q tags.
    pub vlan: bool,
    /// Reports transmit timestamps.
    pub timestamp: bool,
}
