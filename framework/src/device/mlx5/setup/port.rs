//! The state that the queues of a device share: the open port, its enabled features, its rules, and
//! its registered memory.

use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use arrayvec::ArrayVec;
use rdma_core_sys::verbs::{
    Access, Context, EthernetMatch, Flow as StandingFlow, FlowRule, IndirectionTable, Ipv4Match, MemoryRegion,
    PortsMatch, ProtectionDomain, QpOptions, QueuePair, RssRequest, VerbsError, WorkQueue,
};

use super::capabilities::{
    DeviceCapabilities, EnabledFeatures, HASH_ADDRESSES, HASH_TCP_PORTS, HASH_UDP_PORTS, TimestampFormat,
};
use super::filter::Filter;
use super::steering::{Flow, Spec, Spreader, spread};
use super::table::{Table, Target};
use crate::device::mlx5::completion::clock::{ClockInfo, TickConversion};
use crate::device::mlx5::config::{Mlx5Config, RssConfig, RssFields};
use crate::device::mlx5::error::Mlx5SetupError;
use crate::device::mlx5::health::port_counter::PortCounter;
use crate::device::mlx5::health::port_monitor::PortMonitor;
use crate::device::mlx5::health::watch::{Kernel, Watch};
use crate::device::mlx5::send::tx::has_room_for_segmentation;
use crate::device::mlx5::send::wqe::BLOCK_UNITS;
use crate::device::nic_filter::NicFilter;
use crate::device::steering::{Rule, RuleId, SteerError};
use crate::mem::Region;
use crate::time::UnixTime;
use crate::wire::MacAddr;

/// An open port.
pub(crate) struct Port {
    // Dropped first: it uses the device.
    _port_monitor: PortMonitor,
    // Rules before their targets, and everything before the device.
    table: Mutex<Table<SteeringTarget>>,
    // Locked before the table if both are needed.
    group: Mutex<Group<WorkQueue>>,
    regions: Mutex<Vec<Weak<Registered>>>,
    pub(in crate::device::mlx5) watch: Arc<Watch>,
    /// Why the buffer of a striding ring is not in the intended pages.
    pub(in crate::device::mlx5) strides: OnceLock<String>,
    /// Present if the port has an interface.
    pub(in crate::device::mlx5) filter: Option<Filter>,
    /// Units of the longest WQE that the device accepts.
    pub(in crate::device::mlx5) wqe_units_max: u32,
    info: PortInfo,
    pd: ProtectionDomain,
}

/// The facts about a port, read at open.
pub(crate) struct PortInfo {
    /// The verbs name.
    pub(crate) name: String,
    /// The network interface of the same port, if there is one.
    pub(crate) interface: Option<Interface>,
    pub(crate) config: Mlx5Config,
    pub(crate) capabilities: DeviceCapabilities,
    pub(crate) enabled: EnabledFeatures,
    /// Bytes of the longest frame, one VLAN tag included.
    pub(crate) frame_len_max: usize,
}

/// A network interface.
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) mac: MacAddr,
}

/// A region registered with the device.
pub(crate) struct Registered {
    region: MemoryRegion,
    start: usize,
}

impl Registered {
    /// Its memory key.
    pub(crate) fn lkey(&self) -> u32 {
        self.region.lkey()
    }
}

impl Port {
    /// For an open device. `sysfs` is the root of its counters.
    pub(in crate::device::mlx5) fn new(
        context: &Context,
        info: PortInfo,
        sysfs: &Path,
    ) -> Result<Self, Mlx5SetupError> {
        let pd = ProtectionDomain::allocate(context)
            .map_err(|error| Mlx5SetupError::verbs(&info.name, "making a protection domain", 0, system(error)))?;
        let (config, targets) =
            (&info.config, if info.config.hash().is_some() { 1 } else { info.config.queues.into() });
        let out_of_buffer = PortCounter::open(sysfs, &info.name, config.port, "out_of_buffer");
        let kernel = Kernel::new(context.clone(), sysfs.join("class/infiniband").join(&info.name));
        let watch = Arc::new(Watch::new(kernel, config.port, out_of_buffer));
        let port_monitor = PortMonitor::start(&info.name, Arc::clone(&watch))
            .map_err(|error| Mlx5SetupError::Thread { device: info.name.clone(), error })?;
        Ok(Self {
            table: Mutex::new(Table::new(targets, config.rules_max)),
            group: Mutex::new(Group::new(config.queues)),
            regions: Mutex::default(),
            _port_monitor: port_monitor,
            watch,
            strides: OnceLock::new(),
            filter: info
                .interface
                .as_ref()
                .map(|interface| Filter::new(NicFilter::open(interface.index), interface.mac)),
            // Until it is determined: a block.
            wqe_units_max: BLOCK_UNITS,
            info,
            pd,
        })
    }

    pub(in crate::device::mlx5) fn name(&self) -> &str {
        &self.info.name
    }

    /// From 1.
    pub(in crate::device::mlx5) fn number(&self) -> u8 {
        self.info.config.port
    }

    pub(in crate::device::mlx5) fn info(&self) -> &PortInfo {
        &self.info
    }

    pub(in crate::device::mlx5) fn config(&self) -> &Mlx5Config {
        &self.info.config
    }

    pub(in crate::device::mlx5) fn enabled(&self) -> &EnabledFeatures {
        &self.info.enabled
    }

    /// Bytes of a TCP payload that TSO segments; 0 without TSO, or if a WQE is too short for the
    /// header.
    pub(in crate::device::mlx5) fn tso_len_max(&self) -> usize {
        if has_room_for_segmentation(self.wqe_units_max) { self.enabled().tso_len_max } else { 0 }
    }

    pub(in crate::device::mlx5) fn context(&self) -> &Context {
        self.pd.context()
    }

    pub(in crate::device::mlx5) fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// The error of a call that was `doing` an operation that pins `len` bytes.
    pub(in crate::device::mlx5) fn error(&self, doing: &'static str, len: usize, error: VerbsError) -> Mlx5SetupError {
        Mlx5SetupError::verbs(self.name(), doing, len, system(error))
    }

    /// libmlx5 returned an impossible object.
    pub(in crate::device::mlx5) fn invalid_object(&self, doing: &'static str) -> Mlx5SetupError {
        let error = io::Error::new(io::ErrorKind::InvalidData, "libmlx5 reports an impossible ring");
        Mlx5SetupError::System { device: self.name().into(), doing, error }
    }

    /// Registers a pool's region with the device. Both halves of a queue, and all queues with the
    /// same region, share one registration.
    pub(in crate::device::mlx5) fn register(&self, region: &Arc<Region>) -> Result<Arc<Registered>, Mlx5SetupError> {
        self.register_as(region, region.base().addr().get() as u64)
    }

    /// The same, for WQEs of a process that has the region at `address`.
    pub(in crate::device::mlx5) fn register_as(
        &self,
        region: &Arc<Region>,
        address: u64,
    ) -> Result<Arc<Registered>, Mlx5SetupError> {
        let mut regions = lock(&self.regions);
        regions.retain(|known| known.strong_count() > 0);
        let start = region.base().addr().get();
        // A registration keeps its region, so another region cannot have the same address.
        if let Some(known) = regions.iter().filter_map(Weak::upgrade).find(|known| known.start == start) {
            return Ok(known);
        }
        let memory_owner = Arc::clone(region);
        // The worker reads no byte of a frame before its CQE, and a CQE is written with strict
        // ordering: it passes no earlier write, however relaxed that was (PCI Express Base
        // Specification, 2.4.1).
        let access = Access { relaxed_ordering: self.enabled().relaxed_ordering, ..Access::default() };
        let made = self
            .register_memory(region, address, access, memory_owner)
            .map_err(|error| self.error("registering the pool", region.len(), error))?;
        let registered = Arc::new(Registered { region: made, start });
        regions.push(Arc::downgrade(&registered));
        Ok(registered)
    }

    fn register_memory(
        &self,
        region: &Region,
        address: u64,
        access: Access,
        memory_owner: Arc<Region>,
    ) -> Result<MemoryRegion, VerbsError> {
        let (start, len) = (region.base(), region.len());
        if address == start.addr().get() as u64 {
            return MemoryRegion::register(&self.pd, start, len, access, memory_owner);
        }
        MemoryRegion::register_as(&self.pd, start, len, address, access, memory_owner)
    }

    /// Adds a rule for queue `idx`.
    pub(in crate::device::mlx5) fn steer(&self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError> {
        let id = lock(&self.table).add(rule, self.target(idx))?;
        if let Some(filter) = &self.filter {
            filter.add(rule);
        }
        Ok(id)
    }

    /// Removes a rule.
    pub(in crate::device::mlx5) fn unsteer(&self, id: RuleId) -> Result<(), SteerError> {
        let rule = lock(&self.table).remove(id)?;
        if let Some(filter) = &self.filter {
            filter.remove(&rule);
        }
        Ok(())
    }

    /// Steers the rules of queue `idx` to `qp` from now on.
    pub(in crate::device::mlx5) fn steer_queue(&self, idx: u16, qp: QueuePair) -> Result<(), Mlx5SetupError> {
        self.open_target(idx, SteeringTarget { port: self.number(), pairs: TargetQps::One(qp) })
    }

    /// Whether answers would reach queue `idx`, which shares rules with others and is being opened:
    /// not before the rules are installed.
    pub(in crate::device::mlx5) fn begin_open(&self, idx: u16) -> Arc<AtomicBool> {
        lock(&self.group).begin_open(idx)
    }

    /// Adds the work queue of queue `idx` to the group. With the last of them the rules are
    /// installed.
    pub(in crate::device::mlx5) fn join(
        &self,
        idx: u16,
        wq: WorkQueue,
        hash: &RssConfig,
    ) -> Result<(), Mlx5SetupError> {
        let mut group = lock(&self.group);
        let Some(members) = group.join(idx, wq) else { return Ok(()) };
        let table = self.table_over(&members)?;
        let spread_by = |fields| self.rss_queue_pair(&table, &hash.key, fields);
        let addresses = spread_by(HASH_ADDRESSES)?;
        let (tcp, udp) = match hash.by {
            RssFields::Addresses => (addresses.clone(), addresses.clone()),
            RssFields::Ports => {
                (spread_by(HASH_ADDRESSES | HASH_TCP_PORTS)?, spread_by(HASH_ADDRESSES | HASH_UDP_PORTS)?)
            }
        };
        let first = self.pair_for(&members[0])?;
        let pairs = TargetQps::Shared { by: hash.by, first, addresses, tcp, udp };
        self.open_target(idx, SteeringTarget { port: self.number(), pairs })?;
        group.rules_installed();
        Ok(())
    }

    /// Removes the rules of queue `idx` from the device: their frames go to the kernel. If queues
    /// share, this applies to all of them.
    pub(in crate::device::mlx5) fn release(&self, idx: u16) {
        lock(&self.group).leave(idx, || lock(&self.table).close(self.target(idx)));
    }

    /// The current relation of the device's clock to the wall clock; read from a page that the
    /// kernel updates.
    pub(in crate::device::mlx5) fn relation(&self) -> Option<ClockInfo> {
        let clock = self.context().clock_info().ok()?;
        let raw = clock.raw();
        Some(ClockInfo {
            ns: raw.nsec,
            ticks: raw.last_cycles,
            fraction: raw.frac,
            mult: raw.mult,
            shift: raw.shift,
            mask: raw.mask,
        })
    }

    /// The device's clock now, in the format of the stamps that it puts on frames.
    pub(in crate::device::mlx5) fn nic_time(&self) -> Option<UnixTime> {
        if self.enabled().stamps == Some(TimestampFormat::RealTime) {
            return None;
        }
        let line = TickConversion::through(&self.relation()?);
        let ticks = self.context().device_clock().ok()?;
        Some(UnixTime::from_nanos(line.at(ticks)))
    }

    /// A queue pair for one work queue.
    pub(in crate::device::mlx5) fn pair_for(&self, wq: &WorkQueue) -> Result<QueuePair, Mlx5SetupError> {
        let key = self.config().hash().unwrap_or_default().key;
        self.rss_queue_pair(&self.table_over(core::slice::from_ref(wq))?, &key, 0)
    }

    /// A queue pair that distributes the frames of rules over the queues of `table` by a hash of
    /// `fields`. Features such as VLAN stripping are set on its work queues: kernels before 5.8
    /// return EINVAL for a flag here (`create_rss_raw_qp_tir` of drivers/infiniband/hw/mlx5/qp.c).
    fn rss_queue_pair(
        &self,
        table: &IndirectionTable,
        key: &[u8; RssConfig::KEY_LEN],
        fields: u64,
    ) -> Result<QueuePair, Mlx5SetupError> {
        let request = RssRequest { pd: &self.pd, table, key, fields, options: QpOptions::default() };
        QueuePair::create_rss(&request).map_err(|error| self.error("making a queue pair that spreads", 0, error))
    }

    /// A table over `queues`, each with nearly the same share.
    fn table_over(&self, queues: &[WorkQueue]) -> Result<IndirectionTable, Mlx5SetupError> {
        let len = self.info.capabilities.table_len(queues.len() as u16);
        let entries: Vec<_> = queues.iter().cycle().take(len).cloned().collect();
        IndirectionTable::create(&entries).map_err(|error| self.error("making an indirection table", 0, error))
    }

    fn open_target(&self, idx: u16, aim: SteeringTarget) -> Result<(), Mlx5SetupError> {
        lock(&self.table).open(self.target(idx), aim).map_err(|(rule, error)| {
            let device = self.name().into();
            Mlx5SetupError::Steering { device, queue: idx, rule, error }
        })
    }

    /// The target of a queue's rules: if queues share, there is one.
    fn target(&self, idx: u16) -> usize {
        if self.config().hash().is_some() { 0 } else { idx.into() }
    }
}

/// A panic of another holder leaves the content whole: rules and queues agree after every statement
/// that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn system(error: VerbsError) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

/// Queues that share rules. A queue that joins or leaves holds the lock until the rules have
/// followed: otherwise the last one to join could steer them to a queue that is about to end, and
/// its frames would be lost.
struct Group<M> {
    members: Vec<Option<M>>,
    /// Whether each may send: not while the kernel would receive the answer.
    may_send: Vec<Arc<AtomicBool>>,
}

impl<M: Clone> Group<M> {
    fn new(queues: u16) -> Self {
        Self { members: (0..queues).map(|_| None).collect(), may_send: (0..queues).map(|_| Arc::default()).collect() }
    }

    /// Queue `idx` is opened, maybe again.
    fn begin_open(&mut self, idx: u16) -> Arc<AtomicBool> {
        let may_send = &mut self.may_send[usize::from(idx)];
        *may_send = Arc::default();
        Arc::clone(may_send)
    }

    /// The rules are installed.
    fn rules_installed(&self) {
        self.may_send.iter().for_each(|may_send| may_send.store(true, Ordering::Release));
    }

    /// Queue `idx` is ready: returns all members once none is missing.
    fn join(&mut self, idx: u16, member: M) -> Option<Vec<M>> {
        self.members[usize::from(idx)] = Some(member);
        self.members.iter().cloned().collect()
    }

    /// Queue `idx` ends: it is removed here first, then `close` removes the rules, and then it may
    /// be destroyed. If its send half remains, it may go on sending: it expects no answers.
    fn leave(&mut self, idx: u16, close: impl FnOnce()) {
        self.may_send[usize::from(idx)].store(true, Ordering::Release);
        let member = self.members[usize::from(idx)].take();
        close();
        drop(member);
    }
}

/// The target of rules.
struct SteeringTarget {
    port: u8,
    pairs: TargetQps,
}

enum TargetQps {
    One(QueuePair),
    Shared { by: RssFields, first: QueuePair, addresses: QueuePair, tcp: QueuePair, udp: QueuePair },
}

impl Target for SteeringTarget {
    type InstalledRule = ArrayVec<StandingFlow, 4>;

    fn install(&self, rule: &Rule) -> Result<Self::InstalledRule, i32> {
        let create = |qp: &QueuePair, rule: &Rule| {
            StandingFlow::create(qp, &flow_rule(&Flow::of(rule), self.port)).map_err(|error| error.errno())
        };
        match &self.pairs {
            TargetQps::One(qp) => Ok([create(qp, rule)?].into_iter().collect()),
            TargetQps::Shared { by, first, addresses, tcp, udp } => {
                let qp_of = |spreader| match spreader {
                    Spreader::None => first,
                    Spreader::Addresses => addresses,
                    Spreader::Tcp => tcp,
                    Spreader::Udp => udp,
                };
                spread(rule, *by).iter().map(|(rule, spreader)| create(qp_of(*spreader), rule)).collect()
            }
        }
    }
}

/// Converts a flow to its verbs form.
fn flow_rule(flow: &Flow, port: u8) -> FlowRule {
    let ports = |source, destination| PortsMatch { source, destination };
    flow.specs.iter().fold(FlowRule::new(port).priority(flow.priority), |rule, spec| match *spec {
        Spec::Ethernet { destination, ethertype, vlan } => rule.ethernet(EthernetMatch {
            destination: destination.map(|mac| mac.0),
            source: None,
            ethertype: ethertype.map(|ethertype| ethertype.0),
            vlan,
        }),
        Spec::Ipv4 { source, destination, protocol } => rule.ipv4(Ipv4Match {
            source: source.map(|address| address.octets()),
            destination: destination.map(|address| address.octets()),
            protocol: protocol.map(|protocol| protocol.0),
        }),
        Spec::Tcp { source, destination } => rule.tcp(ports(source, destination)),
        Spec::Udp { source, destination } => rule.udp(ports(source, destination)),
        Spec::Tag(tag) => rule.tag(tag),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::*;

    #[test]
    fn queue_that_ends_is_in_no_group_once_its_rules_are_out() {
        let mut group = Group::new(2);
        assert_eq!(group.join(0, "first"), None);
        assert_eq!(group.join(1, "second"), Some(vec!["first", "second"]));
        let closed = core::cell::Cell::new(0);
        group.leave(0, || closed.set(closed.get() + 1));
        assert_eq!(closed.get(), 1);
        assert_eq!(group.join(1, "again"), None, "one is missing");
        group.leave(0, || closed.set(closed.get() + 1));
        assert_eq!(group.join(0, "third"), Some(vec!["third", "again"]));
    }

    #[test]
    fn queues_that_share_are_heard_with_the_last_of_them() {
        let mut group = Group::new(2);
        let may_send = |may_send: &Arc<AtomicBool>| may_send.load(Ordering::Acquire);
        let first = group.begin_open(0);
        assert_eq!(group.join(0, ()), None);
        assert!(!may_send(&first), "the kernel gets its answers");
        let second = group.begin_open(1);
        assert!(group.join(1, ()).is_some());
        group.rules_installed();
        assert!(may_send(&first) && may_send(&second));
        group.leave(1, || ());
        let again = group.begin_open(1);
        assert!(!may_send(&again), "it is opened anew, and the rules are out");
        group.leave(1, || ());
        assert!(may_send(&again), "who does not receive waits for no answer");
    }

    #[test]
    fn who_joins_waits_for_the_one_who_leaves() {
        let group = Mutex::new(Group::new(1));
        lock(&group).join(0, ());
        lock(&group).leave(0, || assert!(group.try_lock().is_err(), "somebody could join before the rules are out"));
    }
}
