//! The port: an interface with our program attached, and the queues that workers take.

use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::handle::{PendingQueue, PortHandle};
use super::port::Port;
use crate::counters::{Scope, Unit};
use crate::device::af_xdp::broker::forwarded;
use crate::device::af_xdp::broker::lend::LentQueue;
use crate::device::af_xdp::config::{AfXdpConfig, CopyMode, LINK_HEADER_LEN, Mode};
use crate::device::af_xdp::error::AfXdpSetupError;
use crate::device::af_xdp::gate::Gate;
use crate::device::af_xdp::interface::{Interface, LinkWatch};
use crate::device::af_xdp::program::kfuncs::{Absent, RxHint};
use crate::device::af_xdp::rings::socket::{
    self, Bound, RELEASE_MAX, SEGMENTS_MAX, Wanted, has_multi_buffer, kernel_version, map_rings,
};
use crate::device::af_xdp::rings::umem::{Umem, chunks_for, is_umem_layout};
use crate::device::af_xdp::rx::{AfXdpRx, RxParts};
use crate::device::af_xdp::tx::AfXdpTx;
use crate::device::broker::client::{Lent, LentPort};
use crate::device::broker::request::QueueRequest;
use crate::device::steering::{Fields, Rule, RuleId, SteerError};
use crate::device::{Capabilities, Device, DeviceError, Queue, RxOffloads, TxOffloads, rings};
use crate::mem::{Layout, Pool, Region, Sizing};
use crate::wire::Protocol;

/// A live port. Our program is attached as long as this value or one of its queues exists; it is
/// detached when the last of them is dropped, or the process ends.
pub struct AfXdpDevice {
    port: PortHandle,
    config: AfXdpConfig,
    taken: Vec<bool>,
}

/// A queue before a worker opens it.
pub struct AfXdpQueue {
    port: PortHandle,
    awaited: PendingQueue,
    config: AfXdpConfig,
    idx: u16,
    frame_len_max: usize,
    source: QueueSource,
    watch: LinkWatch,
}

/// Where the socket of a queue is from.
enum QueueSource {
    /// Opened by the main thread, so that they belong to its network namespace: the first that the
    /// kernel binds.
    Own(Vec<OwnedFd>),
    /// A broker's, bound already, once its memory was asked for.
    Lent(Option<Lent>),
}

impl AfXdpDevice {
    /// Attaches a program without rules to the interface. The kernel goes on receiving every frame
    /// until a rule matches some of them and the queue they arrive on has been polled, or has tried
    /// to send.
    ///
    /// No queue sends before all queues taken so far receive, because an answer may arrive on any
    /// of them. So take the queues before the first worker starts. An earlier send finds no room
    /// (`tx/refused_before_ready`).
    ///
    /// # Errors
    /// One sentence with the next step: no such interface, no permission, another program on the
    /// interface (and its owner), a driver without XDP, a kernel that is too old.
    pub fn open(config: &AfXdpConfig) -> Result<Self, DeviceError> {
        for (name, len) in [("rx_ring_len", config.rx_ring_len), ("tx_ring_len", config.tx_ring_len)] {
            if !len.is_power_of_two() || !(64..=65_536).contains(&len) {
                return Err(AfXdpSetupError::RingLen { name, len }.into());
            }
        }
        if let Some(path) = &config.broker {
            let port = LentPort::open(path, &config.interface)?;
            if port.nic().is_some() {
                return Err(AfXdpSetupError::broker(libc::EINVAL, nic_of(path, &config.interface)).into());
            }
            return Ok(Self { port: PortHandle::Lent(Arc::new(port)), config: config.clone(), taken: vec![false] });
        }
        let interface = Interface::find(&config.interface)?;
        // A thread may have the capabilities for programs but not for sockets: report that before
        // anything is attached.
        socket::open()?;
        let taken = vec![false; interface.queues.into()];
        let port = PortHandle::Own(Arc::new(Port::attach(interface, config)?));
        Ok(Self { port, config: config.clone(), taken })
    }

    /// Where the program runs; never [`Mode::Auto`].
    pub fn mode(&self) -> Mode {
        self.port.mode()
    }

    /// Why no frame will arrive again although the interface exists: someone has detached our
    /// program, and it cannot be attached again. The queues then have
    /// [ended](crate::device::RxState::Ended).
    pub fn why_ended(&self) -> Option<String> {
        self.port.lost()
    }

    /// Whether the interface is a virtual link (veth, tun). Its frames may come from a stack of
    /// this machine that leaves checksums to a NIC (`CHECKSUM_PARTIAL`), and no NIC ever fills them
    /// in.
    pub fn is_virtual(&self) -> bool {
        self.port.interface().is_virtual
    }

    /// The chosen modes and the driver's capabilities, in words for the operator.
    pub fn describe(&self) -> String {
        let (interface, driver) = (self.port.interface(), &self.port.interface().driver);
        let mut words = format!("{}, mtu {}, queues {}: ", interface.name, interface.mtu, interface.queues);
        words.push_str(match self.port.mode() {
            Mode::Generic => "generic XDP, behind the driver",
            Mode::Native | Mode::Auto => "native XDP, in the driver",
        });
        if let Some(reason) = self.port.own().and_then(|port| port.fallback.as_ref()) {
            // Writing to a String does not fail.
            let _ = write!(words, " (which refused: {reason})");
        }
        words.push_str(match (self.port.mode(), driver.known, driver.zero_copy) {
            (Mode::Generic, ..) => "; frames are copied",
            (_, true, true) => "; the driver can receive without a copy",
            (_, true, false) => "; frames are copied, the driver cannot do without",
            (_, false, _) => "; the kernel does not say whether the driver can receive without a copy",
        });
        words.push_str(&self.describe_hints());
        match self.why_unsteered() {
            _ if self.port.interface().queues == 1 || self.port.own().is_none() => (),
            None => words.push_str("; the NIC brings a rule's frames to its queue"),
            Some(why) => _ = write!(words, "; the NIC brings no rule's frames to its queue: {why}"),
        }
        words
    }

    /// Why the NIC brings no rule's frames to the queue that has it, although it spreads frames
    /// over several; `None` where it does, has one queue, or belongs to a broker that passes frames
    /// on.
    pub fn why_unsteered(&self) -> Option<String> {
        if let Some(port) = self.port.lent() {
            let why = "the broker that lends its queues has no such rules there, as its log says";
            return port.is_unsteered().then(|| why.into());
        }
        let port = self.port.own()?;
        if port.interface.queues > 1 && !self.config.ntuple {
            return Some("not asked for (ntuple)".into());
        }
        Some(match port.why_unsteered()? {
            error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                format!(
                    "its driver has no such rules, or they are off (`ethtool -K {} ntuple on`)",
                    port.interface.name
                )
            }
            error => error.to_string(),
        })
    }

    /// The metadata of a frame, and why other metadata is unavailable.
    fn describe_hints(&self) -> String {
        let Some(port) = self.port.own() else { return "; a queue of a broker's".into() };
        let interface = &port.interface.name;
        let [timestamp, hash, vlan] = &port.found;
        let timestamp = match (timestamp, &port.unstamped) {
            (Ok(_), None) => "; arrival times by the NIC's clock".into(),
            (Ok(_), Some(error)) => {
                format!("; arrival times if the NIC takes them, which could not be enabled: {error}")
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

    /// Whether the driver provides this.
    fn has_hint(&self, hint: RxHint) -> bool {
        self.port.own().is_some_and(|port| port.found[hint as usize].is_ok())
    }

    fn frame_len_max(&self) -> usize {
        self.port.interface().mtu + LINK_HEADER_LEN
    }

    fn tx_segments_max(&self) -> usize {
        let driver = &self.port.interface().driver;
        let may_be_zero_copy = self.port.mode() == Mode::Native
            && self.config.copying != CopyMode::Copy
            && (driver.zero_copy || !driver.known);
        match (has_multi_buffer(kernel_version()), may_be_zero_copy) {
            (false, _) => 1,
            (true, true) => (driver.zero_copy_segments_max.max(1) as usize).min(SEGMENTS_MAX),
            (true, false) => SEGMENTS_MAX,
        }
    }

    #[cfg(test)]
    pub(in crate::device::af_xdp) fn port(&self) -> &Port {
        self.port.own().expect("tests open ports of their own")
    }

    /// Lends queue `idx` to another process: makes its memory and its socket. `None` if another
    /// socket has the queue still; does not wait for it.
    pub(crate) fn lend(&self, idx: u16, order: &QueueRequest) -> Result<Option<LentQueue>, DeviceError> {
        match LentQueue::make(order, &self.wanted_for(idx, order)) {
            Err(AfXdpSetupError::QueueBusy { .. }) => Ok(None),
            made => Ok(Some(made?)),
        }
    }

    /// Whether the kernel would give queue `idx`: asks without the memory that a client orders.
    pub(crate) fn is_free(&self, idx: u16, order: &QueueRequest) -> Result<bool, DeviceError> {
        Ok(LentQueue::is_free(&self.wanted_for(idx, order))?)
    }

    fn wanted_for(&self, idx: u16, order: &QueueRequest) -> Wanted<'_> {
        Wanted {
            interface: self.port.interface(),
            queue: idx,
            mode: self.port.mode(),
            copying: self.config.copying,
            rx_ring_len: order.rx_ring_len,
            tx_ring_len: order.tx_ring_len,
            frame_len_max: self.frame_len_max(),
            patience: Duration::ZERO,
        }
    }

    /// Sends the frames of queue `idx` to the client that borrowed it.
    pub(crate) fn connect(&self, idx: u16, queue: &LentQueue) -> io::Result<()> {
        self.port.connect(idx, &queue.socket)
    }

    /// The kernel receives the frames of queue `idx`.
    pub(crate) fn disconnect(&self, idx: u16) {
        self.port.disconnect(idx);
    }

    /// Puts the program back if someone has detached it: a broker calls this at intervals.
    pub(crate) fn look_after(&self) {
        self.port.reattach_if_lost();
    }

    /// The index of the interface.
    pub(crate) fn interface_idx(&self) -> u32 {
        self.port.interface().index
    }

    /// Whether frames may carry metadata.
    pub(crate) fn has_rx_hints(&self) -> bool {
        self.port.has_rx_hints()
    }

    /// The socket that brings the ICMP errors about our flows, where the queue is a broker's;
    /// `None` from the second time on.
    pub(crate) fn take_icmp_errors(&self) -> Option<OwnedFd> {
        self.port.lent().and_then(|port| port.take_icmp_errors())
    }

    /// Whether connections that begin may come to us by the rule with this number, where the queue
    /// is a broker's that passes frames on; otherwise without effect.
    pub(crate) fn set_listening(&self, id: RuleId, listening: bool) {
        if let Some(port) = self.port.lent() {
            port.set_listening(id, listening);
        }
    }

    /// Shows a broker whose queue this is a kernel socket that we have at this port.
    pub(crate) fn claim(&self, socket: BorrowedFd<'_>, protocol: Protocol, port: u16) -> io::Result<()> {
        self.port.lent().map_or(Ok(()), |lent| lent.claim(socket, protocol, port))
    }

    /// Whether a connection can go to another process that listens at its port: where the queue is
    /// a broker's that passes frames on.
    pub(crate) fn hands_over(&self) -> bool {
        self.port.lent().is_some_and(|port| port.is_forwarded())
    }

    /// Queues of the interface, of which a broker lends one.
    pub(crate) fn interface_queues(&self) -> u16 {
        self.port.interface().queues
    }

    /// Has the kernel resolve neighbors, where the queue is a broker's.
    pub(crate) fn resolver(&self) -> Option<impl Fn(Ipv4Addr) -> io::Result<()> + Send + 'static> {
        let port = Arc::clone(self.port.lent()?);
        Some(move |address| port.resolve(address))
    }

    fn check_queue(&self, idx: u16) -> bool {
        usize::from(idx) < self.taken.len()
    }
}

impl Device for AfXdpDevice {
    type Queue = AfXdpQueue;

    fn name(&self) -> &str {
        &self.port.interface().name
    }

    /// As found at [`AfXdpDevice::open`]. Sending chains needs Linux 6.6, and in zero-copy mode a
    /// driver with multi-buffer support.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            queues: self.taken.len() as u16,
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
        let device = || self.port.interface().name.clone();
        if !self.check_queue(idx) {
            return Err(DeviceError::NoQueue { device: device(), idx, queues: self.taken.len() as u16 });
        }
        if self.taken[usize::from(idx)] {
            return Err(DeviceError::QueueTaken { device: device(), idx });
        }
        let source = match self.port {
            PortHandle::Own(_) => {
                QueueSource::Own((0..socket::TRIES_MAX).map(|_| socket::open()).collect::<Result<_, _>>()?)
            }
            PortHandle::Lent(_) => QueueSource::Lent(None),
        };
        let watch = LinkWatch::new(self.port.interface().index)
            .map_err(|error| AfXdpSetupError::system("opening a netlink socket", error))?;
        self.taken[usize::from(idx)] = true;
        Ok(AfXdpQueue {
            port: self.port.clone(),
            awaited: PendingQueue::new(&self.port),
            config: self.config.clone(),
            idx,
            frame_len_max: self.frame_len_max(),
            source,
            watch,
        })
    }

    /// Steers frames that match the rule and that the NIC delivers to queue `idx` to us. AF_XDP
    /// moves no frame between queues: if a NIC distributes frames over several, install the rule
    /// for each of them, or configure the NIC (`ethtool -N`).
    ///
    /// If several rules match a frame, one of them decides the flow tag: a rule with ports precedes
    /// a rule without, and a rule with more fields precedes one with fewer. If a frame's headers
    /// span several buffers, rules are compared with the first buffer only.
    ///
    /// Up to eight rules (one that is installed for all queues counts once) are compiled into the
    /// program. That saves each frame the lookup but needs a new program for each change: 12 ms
    /// measured on a veth, nearly all of it for the kernel to exchange the program. With more
    /// rules, only a rule with a new set of fields needs a new program; any other change is an
    /// update of a map, some 20 µs. So call this on a thread that may wait; the queues run
    /// meanwhile.
    ///
    /// If the driver provides RX metadata, the calling thread must be in the interface's network
    /// namespace.
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

    /// Registers the pool's region as the umem and binds the socket. The pool must have the layout
    /// [`Layout::umem`](crate::mem::Layout::umem). The queue starts to receive at the first
    /// [`receive`](crate::device::RxQueue::receive), or at the first
    /// [`post`](crate::device::TxQueue::post), before the frame leaves; until then the kernel
    /// receives the frames.
    fn open(self, pool: &Pool, scope: &Scope) -> Result<(AfXdpRx, AfXdpTx), DeviceError> {
        if !is_umem_layout(pool.layout()) {
            return Err(AfXdpSetupError::NotAUmem { stride: pool.layout().stride() }.into());
        }
        let rx_ring_len = self.config.rx_ring_len;
        if pool.capacity() <= rx_ring_len as usize {
            return Err(AfXdpSetupError::PoolTooSmall { buffers: pool.capacity(), rx_ring_len }.into());
        }
        let wanted = Wanted {
            interface: self.port.interface(),
            queue: self.idx,
            mode: self.port.mode(),
            copying: self.config.copying,
            rx_ring_len,
            tx_ring_len: self.config.tx_ring_len,
            frame_len_max: self.frame_len_max,
            patience: RELEASE_MAX,
        };
        let bound = match self.source {
            QueueSource::Own(sockets) => socket::bind(sockets, pool, &wanted)?,
            QueueSource::Lent(Some(lent)) if pool.region().is_shared() => map_lent(lent, pool, &wanted)?,
            QueueSource::Lent(_) => {
                let what = "the queue is a broker's, and so is its memory: leave the pool to the worker's builder";
                return Err(AfXdpSetupError::broker(libc::EINVAL, what).into());
            }
        };
        let bind_flags = BindFlags { zero_copy: bound.zero_copy, multi_buffer: bound.multi_buffer };
        scope.text("interface", &self.port.interface().name);
        // Constant across a rename of the interface: `wirepath stats` finds the NIC's own counters
        // by it.
        scope.gauge("interface_index", Unit::Number).set(self.port.interface().index.into());
        let mode = bind_flags.describe(self.port.mode());
        scope.text("mode", if bound.umem.is_forwarded() { "passed on by a broker, copies" } else { mode });
        let segments_max = match bind_flags {
            BindFlags { multi_buffer: false, .. } => 1,
            BindFlags { zero_copy: false, .. } => SEGMENTS_MAX,
            BindFlags { .. } => (self.port.interface().driver.zero_copy_segments_max as usize).clamp(1, SEGMENTS_MAX),
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

    fn region(&mut self, layout: Layout, buffers: usize) -> Result<Option<Region>, DeviceError> {
        let PortHandle::Lent(port) = &self.port else { return Ok(None) };
        if !is_umem_layout(layout) {
            return Err(AfXdpSetupError::NotAUmem { stride: layout.stride() }.into());
        }
        let order = QueueRequest {
            umem_len: layout.region_len(buffers).next_multiple_of(layout.stride()) as u64,
            chunk_len: layout.stride() as u32,
            rx_ring_len: self.config.rx_ring_len,
            tx_ring_len: self.config.tx_ring_len,
            address: 0,
        };
        let (lent, region) = port.borrow(&order)?;
        self.source = QueueSource::Lent(Some(lent));
        Ok(Some(region))
    }
}

/// The sentence about a broker that lends queues of another kind.
fn nic_of(path: &Path, interface: &str) -> String {
    let path = path.display();
    format!("the broker at {path} lends queues of a ConnectX: name the interface mlx5:{interface}")
}

/// Takes over a queue that a broker has bound, with the pool that is cut from its memory.
fn map_lent(lent: Lent, pool: &Pool, wanted: &Wanted<'_>) -> Result<Bound, AfXdpSetupError> {
    let umem = Umem::registered(lent.socket, pool);
    umem.set_zero_copy(lent.zero_copy);
    let rings = match &lent.rings {
        None => map_rings(umem.socket(), wanted.rx_ring_len, wanted.tx_ring_len)?,
        Some(rings) => forwarded::map_rings(rings, wanted.rx_ring_len, wanted.tx_ring_len)
            .map_err(|error| AfXdpSetupError::system("mapping the rings of a broker's queue", error))?,
    };
    umem.set_forwarded(lent.rings.is_some());
    Ok(Bound { umem, rings, zero_copy: lent.zero_copy, multi_buffer: lent.multi_buffer })
}

/// The modes in which a queue was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BindFlags {
    pub(crate) zero_copy: bool,
    pub(crate) multi_buffer: bool,
}

impl BindFlags {
    /// In words, for the operator.
    pub(crate) fn describe(self, mode: Mode) -> &'static str {
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
