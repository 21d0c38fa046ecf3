//! The port: an interface with our program on it, and the queues that workers take.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use super::super::program::kfuncs::{Absent, RxHint};
use super::super::rings::gate::Gate;
use super::super::rings::socket::{self, Copying, SEGMENTS_MAX, Wanted, has_multi_buffer, kernel_version};
use super::super::rings::umem::{chunks_for, is_umem_layout};
use super::super::rx::{AfXdpRx, RxParts};
use super::super::tx::AfXdpTx;
use super::error::SetupError;
use super::interface::{Interface, LinkWatch};
use super::port::{Awaited, Mode, Port};
use crate::counters::{Scope, Unit};
use crate::device::steering::{Fields, Rule, RuleId, SteerError};
use crate::device::{Capabilities, Device, DeviceError, Queue, RxOffloads, TxOffloads, rings};
use crate::mem::{Layout, Pool, Sizing};

/// Which interface, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// The interface's name, in the network namespace of the thread that opens it.
    pub interface: String,
    /// Where the program runs. By default the best there is.
    pub mode: Mode,
    /// Whether frames are copied. By default not, where the driver can.
    pub copying: Copying,
    /// Frames that may wait for the worker, and buffers that the kernel has for them: a power of
    /// two. Too few and a burst is dropped by the kernel (`rx_ring_full`, `kernel_dropped`); too
    /// many and the buffers fall out of the cache before they are used again. By default 2,048.
    pub rx_ring_len: u32,
    /// Buffers of frames that may be on their way out: a power of two. By default 1,024.
    pub tx_ring_len: u32,
    /// Rules at the same time; 100 bytes of kernel memory each. By default 4,096.
    pub rules_max: usize,
    /// Whether frames are to bring when they arrived, by the NIC's clock. Stamping is switched on
    /// for all frames of the interface and restored when the device is dropped. The clock is the
    /// PTP clock of the NIC as it is: in TAI where `ptp4l` sets it (37 s ahead of UTC since 2017),
    /// in UTC where `phc2sys` copies the system's, free running where nobody does. Where there are
    /// none the device works without and [`describe`](AfXdpDevice::describe) says why. Costs a call
    /// of the driver for each frame of ours. By default off.
    pub rx_timestamps: bool,
    /// Whether frames are to bring the hash that the NIC spreads them over its queues by, where the
    /// driver tells it. By default off.
    pub rx_hash: bool,
    /// Whether the VLAN tags that the NIC takes off are to come with their frames and count for
    /// rules, where the driver tells them. Without it, or where the driver does not, such frames
    /// look untagged. Where the NIC takes tags off a frame of ours costs up to 4 ns more than
    /// without: 26 and 30 ns, the least of 14 runs in turns over veth on a busy machine. By default
    /// on.
    pub rx_vlan: bool,
}

impl AfXdpConfig {
    /// The best that driver and kernel can do on `interface`: 2048 frames to receive, 1024 to send,
    /// 4096 rules, VLAN tags. At 10 Gbit/s 2048 of the shortest frames are 138 µs: longer than a
    /// worker is away.
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.into(),
            mode: Mode::default(),
            copying: Copying::default(),
            rx_ring_len: 2048,
            tx_ring_len: 1024,
            rules_max: 4096,
            rx_timestamps: false,
            rx_hash: false,
            rx_vlan: true,
        }
    }
}

/// Ethernet's header and one VLAN tag.
pub(in crate::device::af_xdp) const LINK_HEADER_LEN: usize = 14 + 4;

/// A live port. While it or one of its queues exists our program is on the interface; with the last
/// of them, or the process, it is gone.
pub struct AfXdpDevice {
    port: Arc<Port>,
    config: AfXdpConfig,
    taken: Vec<bool>,
}

/// A queue on its way to a worker.
pub struct AfXdpQueue {
    port: Arc<Port>,
    awaited: Awaited,
    config: AfXdpConfig,
    idx: u16,
    frame_len_max: usize,
    /// Opened by the main thread, so that they are of its network namespace.
    sockets: Vec<OwnedFd>,
    watch: LinkWatch,
}

impl AfXdpDevice {
    /// Puts a program without rules on the interface. The kernel goes on receiving every frame
    /// until a rule names some of them and the queue they come on has been polled, or was to send
    /// something.
    ///
    /// Nothing leaves a queue before all that were taken by then hear, as an answer may come on any
    /// of them: so take the queues before the first worker starts. Who sends before is told that
    /// there is no room (`tx/refused_before_ready`).
    ///
    /// # Errors
    /// One sentence with the next step in it: no such interface, no permission, a program of
    /// somebody else on the interface (and whose), a driver without XDP, a kernel that is too old.
    pub fn open(config: &AfXdpConfig) -> Result<Self, DeviceError> {
        for (name, len) in [("rx_ring_len", config.rx_ring_len), ("tx_ring_len", config.tx_ring_len)] {
            if !len.is_power_of_two() || !(64..=65_536).contains(&len) {
                return Err(SetupError::RingLen { name, len }.into());
            }
        }
        let interface = Interface::find(&config.interface)?;
        // A thread may have the capabilities for programs but not for sockets: say so before
        // anything is attached.
        socket::open()?;
        let taken = vec![false; interface.queues.into()];
        let port = Arc::new(Port::attach(interface, config)?);
        Ok(Self { port, config: config.clone(), taken })
    }

    /// Where the program runs; never [`Mode::Auto`].
    pub fn mode(&self) -> Mode {
        self.port.mode
    }

    /// Why no frame will come again though the interface is there: somebody has taken our program
    /// off it, and it cannot be put back. The queues then have
    /// [ended](crate::device::RxState::Ended).
    pub fn why_ended(&self) -> Option<String> {
        self.port.lost().map(|lost| lost.to_string())
    }

    /// Whether the interface is a link that the kernel makes up (veth, tun). Frames on it may come
    /// from a stack of this very machine, which leaves checksums to be finished by a NIC that is
    /// not there.
    pub fn is_virtual(&self) -> bool {
        self.port.interface.is_virtual
    }

    /// What was chosen and what the driver can do, in words, for the operator.
    pub fn describe(&self) -> String {
        let (interface, driver) = (&self.port.interface, &self.port.interface.driver);
        let mut words = format!("{}, mtu {}, queues {}: ", interface.name, interface.mtu, interface.queues);
        words.push_str(match self.port.mode {
            Mode::Generic => "generic XDP, behind the driver",
            Mode::Native | Mode::Auto => "native XDP, in the driver",
        });
        if let Some(reason) = &self.port.fallback {
            // Writing to a String does not fail.
            let _ = write!(words, " (which refused: {reason})");
        }
        words.push_str(match (self.port.mode, driver.known, driver.zero_copy) {
            (Mode::Generic, ..) => "; frames are copied",
            (_, true, true) => "; the driver can receive without a copy",
            (_, true, false) => "; frames are copied, the driver cannot do without",
            (_, false, _) => "; the kernel does not say whether the driver can receive without a copy",
        });
        words.push_str(&self.describe_told());
        words
    }

    /// What comes with a frame, and why the rest does not.
    fn describe_told(&self) -> String {
        let (port, interface) = (&self.port, &self.port.interface.name);
        let [timestamp, hash, vlan] = &port.found;
        let timestamp = match (timestamp, &port.unstamped) {
            (Ok(_), None) => "; arrival times by the NIC's clock".into(),
            (Ok(_), Some(error)) => {
                format!("; arrival times where the NIC takes them, which it was not told to: {error}")
            }
            (Err(Absent::NotWanted), _) => "; arrival times not asked for".into(),
            (Err(why), _) => format!("; no arrival times: {why}"),
        };
        let hash = match hash {
            Ok(_) => "; hashes".into(),
            Err(Absent::NotWanted) => String::new(),
            Err(why) => format!("; no hashes: {why}"),
        };
        let vlan = match vlan {
            _ if !port.interface.strips_vlan => String::new(),
            Ok(_) => "; VLAN tags that the NIC takes off come beside the frame".into(),
            Err(why) => format!(
                "; VLAN tags that the NIC takes off are lost ({why}): `ethtool -K {interface} rxvlan off` leaves them in the frames"
            ),
        };
        timestamp + &hash + &vlan
    }

    /// Whether the driver is asked for this.
    fn has_hint(&self, hint: RxHint) -> bool {
        self.port.found[hint as usize].is_ok()
    }

    fn frame_len_max(&self) -> usize {
        self.port.interface.mtu + LINK_HEADER_LEN
    }

    fn tx_segments_max(&self) -> usize {
        let driver = &self.port.interface.driver;
        let may_be_zero_copy = self.port.mode == Mode::Native
            && self.config.copying != Copying::Copy
            && (driver.zero_copy || !driver.known);
        match (has_multi_buffer(kernel_version()), may_be_zero_copy) {
            (false, _) => 1,
            (true, true) => (driver.zero_copy_segments_max.max(1) as usize).min(SEGMENTS_MAX),
            (true, false) => SEGMENTS_MAX,
        }
    }

    #[cfg(test)]
    pub(in crate::device::af_xdp) fn port(&self) -> &Port {
        &self.port
    }

    fn check_queue(&self, idx: u16) -> bool {
        usize::from(idx) < self.taken.len()
    }
}

impl Device for AfXdpDevice {
    type Queue = AfXdpQueue;

    fn name(&self) -> &str {
        &self.port.interface.name
    }

    /// As found at [`AfXdpDevice::open`]. Chains to send need Linux 6.6, and in zero-copy mode a
    /// driver that has them.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            queues: self.port.interface.queues,
            frame_len_max: self.frame_len_max(),
            tx_segments_max: self.tx_segments_max(),
            rx: RxOffloads {
                flow_tag: true,
                timestamp: self.has_hint(RxHint::Timestamp),
                hash: self.has_hint(RxHint::Hash),
                vlan: self.has_hint(RxHint::Vlan),
                ..RxOffloads::default()
            },
            tx: TxOffloads::default(),
            steering: Fields::ALL,
            rules_max: self.config.rules_max,
        }
    }

    fn take_queue(&mut self, idx: u16) -> Result<AfXdpQueue, DeviceError> {
        let device = || self.port.interface.name.clone();
        if !self.check_queue(idx) {
            return Err(DeviceError::NoQueue { device: device(), idx, queues: self.port.interface.queues });
        }
        if self.taken[usize::from(idx)] {
            return Err(DeviceError::QueueTaken { device: device(), idx });
        }
        let sockets = (0..socket::TRIES_MAX).map(|_| socket::open()).collect::<Result<_, _>>()?;
        let watch = LinkWatch::new(self.port.interface.index)
            .map_err(|error| SetupError::system("opening a netlink socket", error))?;
        self.taken[usize::from(idx)] = true;
        Ok(AfXdpQueue {
            port: Arc::clone(&self.port),
            awaited: Awaited::new(&self.port),
            config: self.config.clone(),
            idx,
            frame_len_max: self.frame_len_max(),
            sockets,
            watch,
        })
    }

    /// Frames that the rule names and that the NIC delivers to queue `idx` come to us. AF_XDP moves
    /// no frame between queues: where a NIC spreads frames over several, put the rule in place for
    /// each of them, or tell the NIC (`ethtool -N`).
    ///
    /// Where several rules name a frame, one with ports goes before one without, and one with more
    /// fields before one with fewer, to decide its flow tag. Of a frame whose headers are spread
    /// over several buffers only the first counts.
    ///
    /// Up to eight rules (one that is in place for all queues counts once) stand in the program,
    /// which saves each frame the lookup and makes each change a new program: 12 ms measured on a
    /// veth, nearly all of it the kernel's exchange. With more rules only one that names a new set
    /// of fields is so dear; others are an update of a map, some 20 µs. So steer from a thread that
    /// may wait; the queues run on meanwhile.
    ///
    /// Where the driver tells something about frames, the calling thread must be in the interface's
    /// network namespace.
    fn steer(&mut self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError> {
        rule.check()?;
        if !self.check_queue(idx) {
            return Err(SteerError::NoQueue { idx });
        }
        self.port.add(rule, idx)
    }

    fn unsteer(&mut self, id: RuleId) -> Result<(), SteerError> {
        self.port.remove(id)
    }
}

impl Queue for AfXdpQueue {
    type Rx = AfXdpRx;
    type Tx = AfXdpTx;

    /// Makes the pool's region the umem and binds the socket. The pool must be of
    /// [`Layout::umem`](crate::mem::Layout::umem). Frames come from the first
    /// [`receive`](crate::device::RxQueue::receive) on, or from the first
    /// [`post`](crate::device::TxQueue::post), before what is posted leaves; until then they go to
    /// the kernel.
    fn open(self, pool: &Pool, scope: &Scope) -> Result<(AfXdpRx, AfXdpTx), DeviceError> {
        if !is_umem_layout(pool.layout()) {
            return Err(SetupError::NotAUmem { stride: pool.layout().stride() }.into());
        }
        let rx_ring_len = self.config.rx_ring_len;
        if pool.capacity() <= rx_ring_len as usize {
            return Err(SetupError::PoolTooSmall { buffers: pool.capacity(), rx_ring_len }.into());
        }
        let wanted = Wanted {
            interface: &self.port.interface,
            queue: self.idx,
            mode: self.port.mode,
            copying: self.config.copying,
            rx_ring_len,
            tx_ring_len: self.config.tx_ring_len,
            frame_len_max: self.frame_len_max,
        };
        let bound = socket::bind(self.sockets, pool, &wanted)?;
        let bind_flags = BindFlags { zero_copy: bound.zero_copy, multi_buffer: bound.multi_buffer };
        scope.text("interface", &self.port.interface.name);
        // Stays when the interface is renamed: by it `wirepath stats` finds the NIC's own counters.
        scope.gauge("interface_index", Unit::Number).set(self.port.interface.index.into());
        scope.text("mode", bind_flags.describe(self.port.mode));
        let segments_max = match bind_flags {
            BindFlags { multi_buffer: false, .. } => 1,
            BindFlags { zero_copy: false, .. } => SEGMENTS_MAX,
            BindFlags { .. } => (self.port.interface.driver.zero_copy_segments_max as usize).clamp(1, SEGMENTS_MAX),
        };
        let umem = Rc::new(bound.umem);
        let rings = bound.rings;
        let gate = Rc::new(Gate::new(self.awaited, self.idx, Rc::clone(&umem), scope));
        let parts = RxParts {
            port: self.port,
            umem: Rc::clone(&umem),
            gate: Rc::clone(&gate),
            rx: rings.rx,
            fill: rings.fill,
            bind_flags,
            watch: self.watch,
        };
        let rx = AfXdpRx::new(parts, pool, scope);
        let tx = AfXdpTx::new((umem, gate), (rings.tx, rings.completion), self.frame_len_max, segments_max, scope);
        Ok((rx, tx))
    }

    fn layout(&self, frame_len_max: usize) -> Layout {
        chunks_for(frame_len_max)
    }

    fn buffers(&self) -> Sizing {
        rings(self.config.rx_ring_len, self.config.tx_ring_len)
    }
}

/// The ways in which a queue was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device::af_xdp) struct BindFlags {
    pub(in crate::device::af_xdp) zero_copy: bool,
    pub(in crate::device::af_xdp) multi_buffer: bool,
}

impl BindFlags {
    /// In words, for the operator.
    pub(in crate::device::af_xdp) fn describe(self, mode: Mode) -> &'static str {
        match (mode, self.zero_copy, self.multi_buffer) {
            (Mode::Generic, _, true) => "generic, copies, frames in several chunks",
            (Mode::Generic, _, false) => "generic, copies",
            (_, true, true) => "native, zero-copy, frames in several chunks",
            (_, true, false) => "native, zero-copy",
            (_, false, true) => "native, copies, frames in several chunks",
            (_, false, false) => "native, copies",
        }
    }
}
