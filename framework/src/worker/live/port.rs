//! A live port: an interface with our rules on it, on the main thread. Workers take its queues.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{io, mem, slice};

use super::config::{CaptureMode, FlowSpec, IgmpMode, LiveConfig, Owner};
use super::config_problem::LiveConfigProblem;
use super::device::{LiveDevice, LostRuleReader, driver};
use super::error::LiveError;
use super::host::LiveHost;
use super::kernel_socket;
use super::lost::LostRules;
use super::membership::Memberships;
use super::queue::LiveQueue;
use super::rules::rules;
use crate::counters::Scope;
use crate::device::Device;
use crate::device::steering::{Rule, RuleId};
use crate::device::tap::{TapConfig, TapDevice};
use crate::proto::Ipv4Prefix;
use crate::wire::Protocol;
use crate::worker::StopFlag;
use crate::worker::kernel::{IcmpErrorListener, KernelLink, Mirror, MirrorThread};
use crate::worker::timeline::{NicClock, Phc};
use crate::worker::topology::Machine;

/// An interface that is live as long as this value or one of its queues exists. Keep it on the main
/// thread.
pub struct LivePort {
    device: TapDevice<LiveDevice>,
    config: LiveConfig,
    /// Hosts of the queues that are not taken yet, in the order of the configuration.
    hosts: Vec<(u16, LiveHost)>,
    /// The rules in place, but for those of single connections.
    steered: Vec<Steered>,
    /// The flows of single connections, apart from the others: a program has thousands, each with
    /// rules that no other flow shares.
    connections: HashMap<FlowSpec, Connection>,
    /// The interface's addresses at start: those of a flow that names none.
    addresses: Vec<Ipv4Prefix>,
    /// Number of queues of the interface.
    queues: u16,
    /// The rules that a broker has taken back.
    lost: Arc<LostRules>,
    // Dropped last: until then workers follow the kernel, and the network sends us the groups.
    _mirror: MirrorThread,
    _icmp_errors: Option<IcmpErrorListener>,
    memberships: Memberships,
    /// The interface index.
    idx: u32,
}

/// A rule in place.
struct Steered {
    rule: Rule,
    queue: u16,
    id: RuleId,
}

/// The flow of a connection.
struct Connection {
    /// How often it was added.
    users: usize,
    steered: Vec<Steered>,
}

impl LivePort {
    /// Sets up everything that does not need the worker's own thread: the hosts, the kernel's
    /// memberships, the program on the interface with its rules, and the thread that follows the
    /// kernel until `stop`. Registers their counters in `scope`.
    ///
    /// The kernel goes on receiving every frame until a worker has polled its queue for the first
    /// time, or has sent on it.
    ///
    /// # Errors
    /// One sentence with the next step; every step is undone.
    pub fn open(config: &LiveConfig, scope: &Scope, stop: &StopFlag) -> Result<Self, LiveError> {
        config.check()?;
        config.check_memory(&Machine::here())?;
        let interface = config.port.interface();
        let mut mirror = Mirror::open(scope)?;
        let Some(link) = mirror.link(interface).cloned() else {
            return Err(crate::worker::kernel::MirrorError::NoSuchInterface(interface.into()).into());
        };
        if link.one_leg && !config.port.is_behind_the_driver() {
            return Err(bond(&link, &mirror));
        }
        if !link.mac.is_unicast() {
            return Err(LiveConfigProblem::NoMacAddress { interface: interface.into() }.into());
        }
        let mut memberships = Memberships::default();
        if config.igmp == IgmpMode::Kernel {
            memberships.join(&config.flows, interface, link.idx)?;
        }
        let mut device = TapDevice::new(config.port.open()?, TapConfig::new(&*config.app));
        let mut hosts = Vec::new();
        for &idx in &config.queues {
            hosts.push((idx, LiveHost::new(config, &link, driver(device.inner()).is_virtual(), &mut mirror)?));
        }
        let addresses = hosts.first().map_or(Vec::new(), |(_, live)| live.host.addresses().to_vec());
        let mut steered = Vec::new();
        steer_missing(&mut device, config, &targets(config, &addresses), &mut steered)?;
        let lost = Arc::<LostRules>::default();
        let icmp_errors = match config.owner {
            Owner::Shared => {
                let driver = driver(device.inner());
                let lent = driver.take_icmp_errors().map(UdpSocket::from);
                let losses = (driver.lost_rule_reader(), Arc::clone(&lost));
                Some(listen(interface, lent, losses, &mut hosts)?)
            }
            Owner::Dedicated(_) => None,
        };
        let queues = device.capabilities().queues;
        if let Some(resolver) = driver(device.inner()).resolver() {
            mirror.resolve_by(resolver);
        }
        let mirror = mirror.start(stop)?;
        Ok(Self {
            device,
            config: config.clone(),
            hosts,
            steered,
            connections: HashMap::new(),
            addresses,
            queues,
            lost,
            _mirror: mirror,
            _icmp_errors: icmp_errors,
            memberships,
            idx: link.idx,
        })
    }

    /// The next queue of the configuration, for a worker's thread; `None` when all are taken.
    pub fn take_queue(&mut self) -> Result<Option<LiveQueue>, LiveError> {
        if self.hosts.is_empty() {
            return Ok(None);
        }
        let (idx, live) = self.hosts.remove(0);
        let queue = self.device.take_queue(idx)?;
        Ok(Some(LiveQueue { idx, queue, capabilities: self.device.capabilities(), live }))
    }

    /// Adds a flow while the port runs: steers it to its queues and, if the kernel keeps the
    /// memberships, joins its group. A flow without an address is to those that the interface had
    /// at start. The application joins or binds the same address at its sockets. Call it in the
    /// network namespace of [`open`](Self::open). On an error nothing has changed.
    pub fn add_flow(&mut self, flow: FlowSpec) -> Result<(), LiveError> {
        if flow.is_connection() {
            return self.add_connection(flow);
        }
        self.config.flows.push(flow.clone());
        self.steer_flow(&flow).inspect_err(|_| {
            self.config.flows.pop();
            if flow.is_group() {
                self.memberships.leave_all_but(&self.config.flows);
            }
        })
    }

    /// Its cost does not grow with the number of connections.
    fn add_connection(&mut self, flow: FlowSpec) -> Result<(), LiveError> {
        if let Some(connection) = self.connections.get_mut(&flow) {
            connection.users += 1;
            return Ok(());
        }
        self.with_flows(vec![flow.clone()], |config, _| config.check())?;
        let (targets, mut steered) = (self.targets_of(vec![flow.clone()]), Vec::new());
        steer_missing(&mut self.device, &self.config, &targets, &mut steered)?;
        self.connections.insert(flow, Connection { users: 1, steered });
        Ok(())
    }

    fn remove_connection(&mut self, flow: &FlowSpec) -> Result<(), LiveError> {
        let Some(connection) = self.connections.get_mut(flow) else { return Err(not_wanted(flow)) };
        connection.users -= 1;
        if connection.users == 0
            && let Some(gone) = self.connections.remove(flow)
        {
            // Each rule is in place, or the device is gone and its rules with it.
            gone.steered.iter().for_each(|steered| _ = self.device.unsteer(steered.id));
        }
        Ok(())
    }

    /// Set while there are flows for [`take_lost_flows`](Self::take_lost_flows).
    pub fn lost_flag(&self) -> Arc<AtomicBool> {
        self.lost.flag()
    }

    /// The flows that the port had and that the broker of its queue has taken back since the last
    /// call, each with the error number for which the broker would refuse it now: `EACCES` where
    /// new rules do not give it, `EADDRINUSE` where another user has bound its port. The kernel
    /// gets their frames, and the port has them no longer. A queue that is not lent loses none.
    pub fn take_lost_flows(&mut self) -> Vec<(FlowSpec, i32)> {
        let lost: HashMap<RuleId, i32> = self.lost.take().into_iter().collect();
        if lost.is_empty() {
            return Vec::new();
        }
        let reason = |steered: &Steered| lost.get(&steered.id).copied();
        let is_lost =
            |_: &FlowSpec, connection: &mut Connection| connection.steered.iter().any(|it| reason(it).is_some());
        let of_connections = self.connections.extract_if(is_lost);
        let mut flows: Vec<(FlowSpec, i32)> = of_connections
            .filter_map(|(flow, connection)| Some((flow, connection.steered.iter().find_map(&reason)?)))
            .collect();
        let rules: Vec<(Rule, i32)> = self
            .steered
            .extract_if(.., |steered| reason(steered).is_some())
            .filter_map(|steered| Some((steered.rule, reason(&steered)?)))
            .collect();
        if rules.is_empty() {
            return flows;
        }
        for flow in mem::take(&mut self.config.flows) {
            let targets = self.targets_of(vec![flow.clone()]);
            match rules.iter().find(|(rule, _)| targets.iter().any(|target| target.rule == *rule)) {
                Some((_, errno)) => flows.push((flow, *errno)),
                None => self.config.flows.push(flow),
            }
        }
        self.memberships.leave_all_but(&self.config.flows);
        flows
    }

    /// Joins the group of a flow of the configuration, and steers its rules.
    fn steer_flow(&mut self, flow: &FlowSpec) -> Result<(), LiveError> {
        self.config.check()?;
        if self.config.igmp == IgmpMode::Kernel {
            self.memberships.join(slice::from_ref(flow), self.config.port.interface(), self.idx)?;
        }
        let targets = self.targets_of(vec![flow.clone()]);
        steer_missing(&mut self.device, &self.config, &targets, &mut self.steered)
    }

    /// While the port runs, removes a flow of the configuration or of [`add_flow`](Self::add_flow):
    /// removes its rules from the program or the NIC, leaves its group if the kernel keeps the
    /// membership, and the kernel receives the frames again from the next one on. Rules and
    /// memberships that another flow needs remain, and a flow that was added twice must be removed
    /// twice. Frames already in the ring are still delivered; the application leaves or closes the
    /// same address at its sockets. Call it in the network namespace of [`open`](Self::open).
    ///
    /// # Errors
    /// There is no such flow: nothing has changed. On a ConnectX, where a rule belongs to one
    /// queue, the NIC may refuse to move it to another queue with the same flow: the kernel then
    /// receives those frames.
    pub fn remove_flow(&mut self, flow: &FlowSpec) -> Result<(), LiveError> {
        if flow.is_connection() && !self.config.flows.contains(flow) {
            return self.remove_connection(flow);
        }
        let place = self.config.flows.iter().position(|wanted| wanted == flow).ok_or_else(|| not_wanted(flow))?;
        self.config.flows.remove(place);
        let going = self.targets_of(vec![flow.clone()]);
        let related = self.config.flows.iter().filter(|other| may_share_a_rule(flow, other)).cloned().collect();
        let staying = self.targets_of(related);
        let has = |targets: &[Target], steered: &Steered| {
            targets.iter().any(|target| target.rule == steered.rule && target.queues.contains(&steered.queue))
        };
        self.steered.retain(|steered| {
            let stays = !has(&going, steered) || has(&staying, steered);
            if !stays {
                // The rule is in place, or the device is gone and its rules with it.
                let _ = self.device.unsteer(steered.id);
            }
            stays
        });
        if flow.is_group() {
            self.memberships.leave_all_but(&self.config.flows);
        }
        steer_missing(&mut self.device, &self.config, &staying, &mut self.steered)
    }

    /// Shows a kernel socket that this process has at `port`, before a flow there is added: where
    /// the queue is a broker's and another user has made the socket, as root has for a server that
    /// then becomes another user's, the broker takes it for one of this process's user from now on.
    /// Without effect elsewhere.
    ///
    /// # Errors
    /// The broker has no room for it, or is gone.
    pub fn claim(&self, socket: BorrowedFd<'_>, protocol: Protocol, port: u16) -> io::Result<()> {
        driver(self.device.inner()).claim(socket, protocol, port)
    }

    /// Says whether connections that begin may come to us by a flow of the port, where a broker
    /// passes its frames on and other programs listen there as well. Connections that we have keep
    /// the flow. By default they may. Without effect elsewhere.
    pub fn set_listening(&mut self, flow: &FlowSpec, listening: bool) {
        let targets = self.targets_of(vec![flow.clone()]);
        for Steered { rule, id, .. } in &self.steered {
            if targets.iter().any(|target| target.rule == *rule) {
                driver(self.device.inner()).set_listening(*id, listening);
            }
        }
    }

    /// Whether a connection can go to another process that listens at its port
    /// ([`TcpCalls::hand_over`](crate::pipeline::tcp::TcpCalls::hand_over)): where a broker passes
    /// frames on.
    pub fn hands_over(&self) -> bool {
        driver(self.device.inner()).hands_over()
    }

    /// Whether the ports of several queues may listen at one TCP port, each for the connections
    /// whose frames come to its queue. Not where the NIC has rules: the port's brings all of them
    /// to one queue, and would have to leave when a second one listens, under live connections.
    pub fn shares_listeners(&self) -> bool {
        let driver = driver(self.device.inner());
        self.hands_over() || (driver.spreads_by_connection() && driver.why_unsteered().is_some())
    }

    /// The rules of some flows of the port, and those that it has without any.
    fn targets_of(&mut self, flows: Vec<FlowSpec>) -> Vec<Target> {
        self.with_flows(flows, targets)
    }

    /// Calls `act` with a configuration that has these flows alone, and the interface's addresses.
    fn with_flows<T>(&mut self, flows: Vec<FlowSpec>, act: impl FnOnce(&LiveConfig, &[Ipv4Prefix]) -> T) -> T {
        let all = mem::replace(&mut self.config.flows, flows);
        let result = act(&self.config, &self.addresses);
        self.config.flows = all;
        result
    }

    /// Steers any other frames while the port runs: to all opened queues of the interface, on a
    /// ConnectX to the first. On an error nothing has changed.
    pub fn steer(&mut self, rule: Rule) -> Result<Vec<RuleId>, LiveError> {
        let mut ids = Vec::new();
        for &idx in self.config.queues.iter().take(self.config.port.queues_a_rule()) {
            match self.device.steer(&rule, idx) {
                Ok(id) => ids.push(id),
                Err(error) => {
                    self.unsteer(&ids);
                    return Err(LiveError::Steering { rule, error });
                }
            }
        }
        Ok(ids)
    }

    /// Removes rules of [`steer`](Self::steer). A rule that is already gone is ignored.
    pub fn unsteer(&mut self, ids: &[RuleId]) {
        for &id in ids {
            let _ = self.device.unsteer(id);
        }
    }

    /// A reader of the clock that stamps frames, for
    /// [`TimelineConfig::nic`](crate::worker::timeline::TimelineConfig::nic): the clock of a
    /// ConnectX itself, otherwise the interface's PTP hardware clock.
    ///
    /// # Errors
    /// The interface has no such clock, or we may not read it: one sentence.
    pub fn nic_clock(&self) -> io::Result<NicClock> {
        if let Some(clock) = driver(self.device.inner()).nic_clock() {
            return Ok(clock);
        }
        let phc = Phc::of_interface(self.config.port.interface())?;
        Ok(Box::new(move || phc.now()))
    }

    /// The device, to query its capabilities.
    pub fn device(&mut self) -> &mut LiveDevice {
        self.device.inner_mut()
    }

    /// The choices made, in words for the operator: the device, the owner of the interface, the
    /// host that answers IGMP queries.
    pub fn describe(&self) -> String {
        let owner = match &self.config.owner {
            Owner::Shared => "shared with the kernel".to_owned(),
            Owner::Dedicated(own) => {
                let addresses: Vec<_> = own.addresses.iter().map(ToString::to_string).collect();
                format!("ours, as {}", addresses.join(" and "))
            }
        };
        let igmp = match self.config.igmp {
            IgmpMode::Worker => "IGMP of our own",
            IgmpMode::Kernel => "memberships kept by the kernel",
            IgmpMode::Off => "no IGMP",
        };
        format!("{}; {owner}, {igmp}", driver(self.device.inner()).describe())
    }

    /// Why no frame will arrive again although the interface exists, if that is so: someone has
    /// detached our program.
    pub fn why_ended(&self) -> Option<String> {
        driver(self.device.inner()).why_ended()
    }

    /// The rules in place, each in words for the operator.
    pub fn rules(&self) -> impl Iterator<Item = String> + '_ {
        let first_of_its_kind =
            |(idx, steered): &(usize, &Steered)| self.steered[..*idx].iter().all(|other| other.rule != steered.rule);
        let of_flows = self.steered.iter().enumerate().filter(first_of_its_kind).map(|(_, steered)| steered);
        let of_connections = self.connections.values().flat_map(|connection| &connection.steered);
        of_flows.chain(of_connections).map(|steered| steered.rule.to_string())
    }

    /// Facts that are no errors but may surprise: sentences for the operator, once the queues are
    /// taken.
    pub fn notices(&self) -> Vec<String> {
        let interface = self.device.name();
        let mut notices: Vec<_> = self.device.problems().map(ToString::to_string).collect();
        let taken = self.config.queues.len();
        notices.extend(self.unsteered());
        let is_shared = matches!(self.config.owner, Owner::Shared);
        if is_shared && self.config.igmp == IgmpMode::Worker {
            notices.push(format!(
                "IGMP on {interface} is ours now: the kernel hears no queries there, and memberships of other programs' sockets \
                 run out after some minutes. igmp = kernel lets both have theirs"
            ));
        }
        if matches!(self.config.owner, Owner::Dedicated(_)) && taken > 1 {
            notices.push(format!(
                "ARP's answers come on one queue of {interface} and only that worker hears them: give the others their neighbors in \
                 the configuration, or use one queue"
            ));
        }
        if matches!(&self.config.owner, Owner::Dedicated(own) if own.takes == CaptureMode::Everything) {
            notices.push(format!("{interface} is all ours: the kernel gets nothing from it until this ends"));
        }
        notices
    }
}

impl LivePort {
    /// The sentence for an interface that spreads the frames of our flows over queues that are not
    /// ours, if it does.
    pub fn unsteered(&self) -> Option<String> {
        let (interface, taken) = (self.device.name(), self.config.queues.len());
        let driver = driver(self.device.inner());
        let queues = driver.interface_queues().unwrap_or(self.queues);
        if !self.config.port.steers_each_queue() || taken >= usize::from(queues) {
            return None;
        }
        let why = driver.why_unsteered()?;
        Some(format!(
            "{interface} spreads frames over {queues} queues, of which {taken} is ours, and the NIC steers none there: {why}. \
             The kernel gets what comes on the others: `ethtool -L {interface} combined {taken}`, or steer the flows with \
             `ethtool -N`"
        ))
    }
}

fn not_wanted(flow: &FlowSpec) -> LiveError {
    LiveConfigProblem::NotSubscribed(flow.clone()).into()
}

/// Whether two flows may need the same rule: of the same group, or with the same port.
fn may_share_a_rule(flow: &FlowSpec, other: &FlowSpec) -> bool {
    let (one, other) = ((flow.protocol, flow.destination), (other.protocol, other.destination));
    flow.is_group() && one.1.ip() == other.1.ip() || (one.0, one.1.port()) == (other.0, other.1.port())
}

/// A rule, and the queues that need it.
struct Target {
    rule: Rule,
    queues: Vec<u16>,
}

/// The rules of a configuration, each once.
fn targets(config: &LiveConfig, addresses: &[Ipv4Prefix]) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for &idx in &config.queues {
        for rule in rules(config, addresses, idx) {
            match targets.iter_mut().find(|target| target.rule == rule) {
                Some(target) => target.queues.push(idx),
                None => targets.push(Target { rule, queues: vec![idx] }),
            }
        }
    }
    targets
}

/// Installs the rules of `targets` that are missing: on each queue that needs one, or on a single
/// queue if the device steers a rule only once. On an error it removes the rules that it had
/// installed.
fn steer_missing(
    device: &mut TapDevice<LiveDevice>,
    config: &LiveConfig,
    targets: &[Target],
    steered: &mut Vec<Steered>,
) -> Result<(), LiveError> {
    let before = steered.len();
    for Target { rule, queues } in targets {
        let stands = |steered: &[Steered], queue| steered.iter().any(|one| one.rule == *rule && one.queue == queue);
        if !config.port.steers_each_queue() && queues.iter().any(|queue| stands(steered, *queue)) {
            continue;
        }
        for &queue in queues.iter().take(config.port.queues_a_rule()) {
            if stands(steered, queue) {
                continue;
            }
            match device.steer(rule, queue) {
                Ok(id) => steered.push(Steered { rule: *rule, queue, id }),
                Err(error) => {
                    for undone in steered.drain(before..) {
                        // The rule was installed a moment ago.
                        let _ = device.unsteer(undone.id);
                    }
                    return Err(LiveError::Steering { rule: *rule, error });
                }
            }
        }
    }
    Ok(())
}

/// Listens for ICMP errors about the hosts' flows that the kernel receives: at the socket that the
/// device lends, or at one of our own.
fn listen(
    interface: &str,
    lent: Option<UdpSocket>,
    (lost_rule, lost): (LostRuleReader, Arc<LostRules>),
    hosts: &mut [(u16, LiveHost)],
) -> Result<IcmpErrorListener, LiveError> {
    let socket = lent.map_or_else(|| kernel_socket::icmp_errors(interface), Ok);
    let followers = hosts.iter_mut().map(|(_, host)| &mut host.follower);
    let note = move |message: &[u8]| match lost_rule(message) {
        Some(rule) => {
            lost.push(rule);
            true
        }
        None => false,
    };
    let listening = socket.and_then(|socket| IcmpErrorListener::start(socket, followers, note));
    listening.map_err(|error| LiveError::IcmpErrors { interface: interface.into(), error })
}

/// The advice for a bond in active-backup. In driver mode a frame arrives on a leg, and the kernel
/// gives it to no socket of the bond (`xsk_rcv_check` in net/xdp/xsk.c compares the interfaces).
fn bond(link: &KernelLink, mirror: &Mirror) -> LiveError {
    let legs = mirror.legs(link).into_iter().map(|leg| leg.name.clone()).collect();
    LiveConfigProblem::ActiveBackupBond { bond: link.name.clone(), legs }.into()
}
