//! Devices move: frames between a NIC (or a file, or plain memory) and mbufs. This is the contract
//! that all share.
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
//! another one ([`tap`], `capture`, [`bond`], [`either`]). A port belongs to the main thread, a
//! queue to the worker that opened it. This floor imports `mem`, `time` and `counters`, and `wire`
//! for steering rules, captures and faults; never `proto` or `pipeline`.
//!
//! What a device may never do: lose a frame without a counter of its own name, panic on what the
//! NIC, the kernel or a file hands it, or keep an mbuf that [`TxQueue::reap`] could have sent home.
//! The suite `conformance` of the feature `testing` checks it.

// Modules of devices are there by feature; what stands in for those that were not built is
// `absent`.
#[cfg(not(all(feature = "af-xdp", feature = "mlx5", feature = "pcap")))]
mod absent;
#[cfg(feature = "af-xdp")]
pub mod af_xdp;
pub mod bond;
#[cfg(feature = "pcap")]
pub mod capture;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod conformance;
pub mod either;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod fault;
pub mod memory;
#[cfg(feature = "mlx5")]
pub mod mlx5;
#[cfg(any(feature = "af-xdp", feature = "mlx5"))]
mod nic_filter;
mod offload;
#[cfg(feature = "pcap")]
pub mod pcap;
pub mod steering;
#[cfg(any(feature = "af-xdp", feature = "mlx5"))]
#[allow(unsafe_code)]
mod sys;
pub mod tap;
mod tx_timestamps;

use core::fmt;
use core::num::NonZeroU64;

use crate::counters::Scope;
use crate::mem::{Burst, Mbuf, Pool};
use crate::time::{Instant, UnixTime};
#[cfg(not(all(feature = "af-xdp", feature = "mlx5", feature = "pcap")))]
pub(crate) use absent::Absent;
pub use offload::Offload;
use steering::{Fields, Rule, RuleId, SteerError};

/// A port: where queues come from and what decides which frames reach them. Set-up only, never on
/// the data path.
pub trait Device {
    /// What a worker takes to its thread.
    type Queue: Queue;

    /// The name that the user knows it by: `eth1`, `mlx5_0`, `day.pcap`.
    fn name(&self) -> &str;

    /// What the device can do. Read it and ask for no more: a request beyond it is refused or
    /// counted, never half done.
    fn capabilities(&self) -> Capabilities;

    /// Takes queue `idx` out of the device. Each queue is taken once; of some devices again, when
    /// both halves of it are gone.
    fn take_queue(&mut self, idx: u16) -> Result<Self::Queue, DeviceError>;

    /// Sends the frames that `rule` names to queue `idx`. May be called while the queues run; no
    /// frame of another rule is lost by it.
    fn steer(&mut self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError>;

    /// Takes a rule back.
    fn unsteer(&mut self, id: RuleId) -> Result<(), SteerError>;
}

/// One queue of a device on its way to a worker.
pub trait Queue: Send {
    /// The receiving half.
    type Rx: RxQueue;
    /// The sending half.
    type Tx: TxQueue;

    /// Opens the queue on the calling thread, which becomes its owner. `pool` is where received
    /// frames go, and its region is registered with the device; counters are registered in `scope`.
    fn open(self, pool: &Pool, scope: &Scope) -> Result<(Self::Rx, Self::Tx), DeviceError>;
}

/// The receiving half of a queue.
pub trait RxQueue {
    /// Appends up to `limit` received frames to `burst` (and never more than it has room for),
    /// oldest first, and refills the ring from `pool`, the one that the queue was opened with: a
    /// device that registered its region panics at another. Returns how many. No system call,
    /// allocation or lock unless the device says so in its own documentation. A frame that cannot
    /// be delivered is counted by name; while the pool is empty frames stay where they are as long
    /// as the device can hold them.
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize;

    /// Whether more frames may come.
    fn state(&self) -> RxState;

    /// Brings counters up to date that the kernel or the NIC keeps: drops in a ring that is not
    /// ours to see. May make a system call; the loop calls it now and then, never per burst. It has
    /// no default, because a wrapper that forgets what it wraps would hide those drops.
    fn refresh_counters(&mut self);
}

/// Whether a receiving queue is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxState {
    /// Frames may come at any time.
    Open,
    /// The link is down; it may come back.
    LinkDown,
    /// No frame will ever come again: the end of a capture, the peer is gone, the device was
    /// removed.
    Ended,
}

/// The sending half of a queue. Post and doorbell are apart so that a burst costs one doorbell.
///
/// A frame that cannot wait for it is posted [urgent](Offload::URGENT): its device rings before the
/// post returns. What that costs beyond a post, once for each such frame:
///
/// | device | ringing |
/// |---|---|
/// | `memory` | a store |
/// | `mlx5` | two writes: one to memory, one to the NIC's register, which BlueFlame makes the frame itself |
/// | `af_xdp` with copies | a sendto(2), within which the kernel sends all that the ring holds |
/// | `af_xdp` without copies | the same call where the driver sleeps and asks for it, else a store |
/// | `pcap` | the frames are written as with a doorbell |
pub trait TxQueue {
    /// Takes a frame, linear or a chain of segments, with what it wants of the NIC beside it. A
    /// full ring gives the mbuf back untouched. A frame that this device can never send (too long,
    /// too many segments, an offload it has not) is taken and counted by name. The frame may leave
    /// at once or with the next doorbell; an urgent one leaves at once, behind all that was posted
    /// before it.
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf>;

    /// Posts a frame that is complete as it stands, and rings: [`post`](Self::post) with that one
    /// wish, for which a device may have a shorter way.
    fn post_urgent(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        self.post(mbuf, Offload::URGENT)
    }

    /// Posts a frame that whoever sends has not asked for: an ARP question, a bare acknowledgment.
    /// The same as [`post`](Self::post) but for a queue that marks what a caller posts, so that it
    /// is stamped: that leaves the frame unmarked.
    fn post_unmarked(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        self.post(mbuf, offload)
    }

    /// Posts the frames of `burst` in order, all with the same wishes, as [`post`](Self::post) does
    /// one; returns how many were taken. What the ring has no room for stays in `burst`. A device
    /// may do better with many frames at once than one by one.
    fn post_burst(&mut self, burst: &mut Burst, offload: Offload) -> usize {
        post_one_by_one(self, burst, offload)
    }

    /// Carries a frame as far as it goes without leaving, by the instructions and through the
    /// places of [`post`](Self::post), so that the next one that is posted finds them warm. What
    /// was posted before may be rung for. The mbuf goes home, and nothing counts as sent. By
    /// default the frame goes nowhere.
    fn dry_run(&mut self, mbuf: Mbuf, offload: Offload) {
        let _ = offload;
        mbuf.free();
    }

    /// Makes a complete frame stand where the next one goes, so that no more is to be done than to
    /// write some of its bytes and to ring ([`preposted`](Self::preposted),
    /// [`fire_preposted`](Self::fire_preposted)). Nothing of it leaves before. There is one such
    /// place: whatever is posted next takes it, and the frame stands no more. `None` where the
    /// device cannot, as by default, or not now, or not a frame of this length: then the frame goes
    /// by [`post_urgent`](Self::post_urgent).
    fn prepost(&mut self, frame: &[u8]) -> Option<Preposted> {
        let _ = frame;
        None
    }

    /// The bytes of a frame that still stands, to be overwritten as one likes. `None` where it
    /// stands no more. No system call, no search: a look.
    fn preposted(&mut self, which: Preposted) -> Option<&mut [u8]> {
        let _ = which;
        None
    }

    /// Sends the frame that stands, behind all that was posted, and rings, as
    /// [`post_urgent`](Self::post_urgent) does. False, and nothing has happened, where it stands no
    /// more.
    fn fire_preposted(&mut self, which: Preposted) -> bool {
        let _ = which;
        false
    }

    /// Tells the NIC about all that was posted. The loop calls it at the end of every turn, posted
    /// or not, so a device may also do here what time alone makes due.
    fn ring_doorbell(&mut self, now: Instant);

    /// Sends home the mbufs that the NIC is done with; returns how many frames that were. An mbuf
    /// that is also [held](crate::mem::Held) stays with its holder. The loop calls it at the start
    /// of every turn.
    fn reap(&mut self) -> usize;

    /// Frames that [`TxQueue::post`] would take now. Looks at the ring anew, so that who waits for
    /// room sees it come.
    fn room(&mut self) -> usize;

    /// Frames posted and not yet reaped.
    fn in_flight(&self) -> usize;

    /// Whether frames that ask for it are stamped, so that [`take_timestamp`](Self::take_timestamp)
    /// says when they left.
    fn has_timestamps(&self) -> bool {
        false
    }

    /// When a frame that asked for it left the port: oldest first, each once. Devices without
    /// transmit timestamps never have one.
    fn take_timestamp(&mut self) -> Option<TxTimestamp> {
        None
    }

    /// As [`RxQueue::refresh_counters`].
    fn refresh_counters(&mut self);
}

/// A frame that was made to stand in a queue, until another took its place. What the number means
/// is the device's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preposted(NonZeroU64);

impl Preposted {
    /// One that a device knows by this number; none is 0.
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

/// Posts frames from the front of `burst` until one comes back, which stays there with those behind
/// it. Returns how many were taken.
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

/// When a frame left the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxTimestamp {
    /// Which frame: the count of frames with [`Offload::TIMESTAMP`] that this queue took before it,
    /// those that it dropped included.
    pub sequence: u64,
    /// When, by the device's clock.
    pub at: UnixTime,
}

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Queues that can be taken.
    pub queues: u16,
    /// Bytes of the longest frame, Ethernet header to last payload byte.
    pub frame_len_max: usize,
    /// Segments of a frame to send; 1 means linear frames only.
    pub tx_segments_max: usize,
    /// What is known about a received frame.
    pub rx: RxOffloads,
    /// What can be asked for a frame to send.
    pub tx: TxOffloads,
    /// Fields that a steering rule may match; [`Fields::NONE`] where the device cannot steer and
    /// delivers everything.
    pub steering: Fields,
    /// Rules at the same time.
    pub rules_max: usize,
}

/// What the device finds out about received frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxOffloads {
    /// Verdicts on IPv4 header checksums.
    pub ip_checksum: bool,
    /// Verdicts on UDP and TCP checksums.
    pub l4_checksum: bool,
    /// Arrival times.
    pub timestamp: bool,
    /// Receive-side-scaling hashes.
    pub hash: bool,
    /// Strips 802.1Q tags into the mbuf's metadata.
    pub vlan: bool,
    /// Tags frames by the rule that matched.
    pub flow_tag: bool,
}

/// What the device does for frames to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxOffloads {
    /// Fills in IPv4 header checksums.
    pub ip_checksum: bool,
    /// Fills in UDP and TCP checksums.
    pub l4_checksum: bool,
    /// Bytes of the longest TCP payload that it cuts into segments; 0 where it does not.
    pub segmentation_len_max: usize,
    /// Inserts 802.1Q tags.
    pub vlan: bool,
    /// Reports departure times.
    pub timestamp: bool,
}

/// Why a device or queue cannot be had. Says what, where, and what to do next.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no such queue.
    NoQueue {
        /// The device.
        device: String,
        /// The queue asked for.
        idx: u16,
        /// How many there are.
        queues: u16,
    },
    /// Another worker has the queue.
    QueueTaken {
        /// The device.
        device: String,
        /// The queue asked for.
        idx: u16,
    },
    /// The pool's buffers are too small for the device's frames.
    BuffersTooSmall {
        /// The device.
        device: String,
        /// Bytes that a frame may have.
        frame_len_max: usize,
        /// Bytes that a buffer has.
        data_room: usize,
    },
    /// What the device itself says, as one sentence with the next step in it.
    Other(String),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoQueue { device, idx, queues } => {
                write!(f, "{device} has no queue {idx}: it has {queues}, numbered from 0")
            }
            Self::QueueTaken { device, idx } => {
                write!(f, "queue {idx} of {device} is taken: give each worker a queue of its own")
            }
            Self::BuffersTooSmall { device, frame_len_max, data_room } => write!(
                f,
                "frames of {device} have up to {frame_len_max} bytes, but the pool's buffers hold {data_room}: \
                 make the pool with Layout::for_frames({frame_len_max})"
            ),
            Self::Other(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for DeviceError {}
