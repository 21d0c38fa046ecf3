//! A live port: an interface with our rules on it, on the main thread. Workers get its queues.

use std::io;

use super::config::{CaptureMode, FlowSpec, IgmpMode, LiveConfig, Owner};
use super::device::{LiveDevice, driver};
use super::error::LiveError;
use super::host::LiveHost;
use super::membership::Memberships;
use super::queue::LiveQueue;
use super::rules::rules;
use super::sys;
use crate::counters::Scope;
use crate::device::Device;
use crate::device::steering::{Rule, RuleId};
use crate::device::tap::{TapConfig, TapDevice};
use crate::proto::Ipv4Prefix;
use crate::worker::StopFlag;
use crate::worker::kernel::{IcmpErrorListener, Link, Mirror, MirrorThread};
use crate::worker::timeline::{NicClock, Phc};
use crate::worker::topology::Machine;

/// An interface that is live for as long as this or one of its queues exists. Keep it on the main
/// thread.
pub struct LivePort {
    device: TapDevice<LiveDevice>,
    config: LiveConfig,
    /// For the queues that are not taken yet, in the order of the configuration.
    hosts: Vec<(u16, LiveHost)>,
    /// What stands for the wants.
    steered: Vec<Steered>,
    /// The interface's addresses at the start: those of a want that names none.
    addresses: Vec<Ipv4Prefix>,
    /// The queues that the interface has.
    queues: u16,
    // Dropped last: workers follow the kernel, and the network sends to us, to the end.
    _mirror: MirrorThread,
    _icmp_errors: Option<IcmpErrorListener>,
    memberships: Memberships,
    /// The number of the interface.
    idx: u32,
}

/// A rule that stands.
struct Steered {
    rule: Rule,
    queue: u16,
    id: RuleId,
}

impl LivePort {
    /// Makes everything that does not need the worker's own thread: the hosts, the kernel's
    /// memberships, the program on the interface with its rules, and the thread that follows the
    /// kernel until `stop`. Counters of that are registered in `scope`.
    ///
    /// The kernel goes on receiving every frame until a worker has polled its queue for the first
    /// time, or has sent something by it.
    ///
    /// # Errors
    /// One sentence with the next step in it; everything is given back.
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
            let what = format!(
                "{interface} has no MAC address, so no frame can be sent to us there: name an Ethernet interface"
            );
            return Err(LiveError::Config(what));
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
        let icmp_errors = match config.owner {
            Owner::Shared => Some(listen(interface, &mut hosts)?),
            Owner::Own(_) => None,
        };
        let queues = device.capabilities().queues;
        let mirror = mirror.start(stop)?;
        Ok(Self {
            device,
            config: config.clone(),
            hosts,
            steered,
            addresses,
            queues,
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

    /// Wants more while it runs: has it steered to the queues that are named and, where the kernel
    /// keeps the memberships, joined. The application joins or binds the same end at its sockets.
    /// Call it in the network namespace of [`open`](Self::open). On an error nothing has changed.
    pub fn add_flow(&mut self, flow: FlowSpec) -> Result<(), LiveError> {
        if flow.destination.ip().is_unspecified() {
            return Err(LiveError::Config("name the address that is wanted: only at start all are known".into()));
        }
        let mut config = self.config.clone();
        config.flows.push(flow);
        config.check()?;
        if config.igmp == IgmpMode::Kernel {
            self.memberships.join(&config.flows, config.port.interface(), self.idx)?;
        }
        let steered = steer_missing(&mut self.device, &config, &targets(&config, &self.addresses), &mut self.steered);
        if steered.is_err() {
            self.memberships.leave_all_but(&self.config.flows);
            return steered;
        }
        self.config = config;
        Ok(())
    }

    /// Takes a want back while it runs, one of the configuration or one of [`add_flow`](Self::add_flow):
    /// its rules leave the program or the NIC, a membership that the kernel keeps for it is left,
    /// and the kernel gets the frames again from the next one on. What another want needs as well
    /// stays, and a want that was given twice is taken back twice. Frames that are in the ring
    /// already still come; the application leaves or closes the same end at its sockets. Call it in
    /// the network namespace of [`open`](Self::open).
    ///
    /// # Errors
    /// It is not wanted: nothing has changed. On a ConnectX, where a rule stands for one queue, the
    /// NIC may refuse it for another queue that wants the same: those frames then go to the kernel.
    pub fn remove_flow(&mut self, flow: &FlowSpec) -> Result<(), LiveError> {
        let Some(place) = self.config.flows.iter().position(|wanted| wanted == flow) else {
            return Err(LiveError::Config(format!("{flow} is not wanted, so it cannot be taken back")));
        };
        self.config.flows.remove(place);
        let targets = targets(&self.config, &self.addresses);
        self.steered.retain(|steered| {
            let stays =
                targets.iter().any(|target| target.rule == steered.rule && target.queues.contains(&steered.queue));
            if !stays {
                // It stands, or the device is gone and its rules with it.
                let _ = self.device.unsteer(steered.id);
            }
            stays
        });
        self.memberships.leave_all_but(&self.config.flows);
        steer_missing(&mut self.device, &self.config, &targets, &mut self.steered)
    }

    /// Asks for any more frames while it runs: all taken queues of the interface get them, of a
    /// ConnectX the first. On an error nothing has changed.
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

    /// Takes back what [`steer`](Self::steer) asked for. A rule that is gone already is none to be
    /// taken back.
    pub fn unsteer(&mut self, ids: &[RuleId]) {
        for &id in ids {
            let _ = self.device.unsteer(id);
        }
    }

    /// What reads the clock that stamps frames, for
    /// [`TimelineConfig::nic`](crate::worker::timeline::TimelineConfig::nic): that of a ConnectX
    /// itself, else the interface's PTP hardware clock.
    ///
    /// # Errors
    /// The interface has none, or it may not be read: one sentence.
    pub fn nic_clock(&self) -> io::Result<NicClock> {
        if let Some(clock) = driver(self.device.inner()).nic_clock() {
            return Ok(clock);
        }
        let phc = Phc::of_interface(self.config.port.interface())?;
        Ok(Box::new(move || phc.now()))
    }

    /// The device: to ask what it can do.
    pub fn device(&mut self) -> &mut LiveDevice {
        self.device.inner_mut()
    }

    /// What was chosen, in words, for the operator: the device, whose the interface is, who speaks
    /// IGMP.
    pub fn describe(&self) -> String {
        let owner = match &self.config.owner {
            Owner::Shared => "shared with the kernel".to_owned(),
            Owner::Own(own) => {
                let addresses: Vec<_> = own.addresses.iter().map(ToString::to_string).collect();
                format!("ours, as {}", addresses.join(" and "))
            }
        };
        let igmp = match self.config.igmp {
            IgmpMode::Own => "IGMP of our own",
            IgmpMode::Kernel => "memberships kept by the kernel",
            IgmpMode::Nobody => "no IGMP",
        };
        format!("{}; {owner}, {igmp}", driver(self.device.inner()).describe())
    }

    /// Why no frame will come again though the interface is there, where that is so: somebody has
    /// taken our program off it.
    pub fn why_ended(&self) -> Option<String> {
        driver(self.device.inner()).why_ended()
    }

    /// The rules in place, each as an operator would say it.
    pub fn rules(&self) -> impl Iterator<Item = String> + '_ {
        let first_of_its_kind =
            |(idx, steered): &(usize, &Steered)| self.steered[..*idx].iter().all(|other| other.rule != steered.rule);
        self.steered.iter().enumerate().filter(first_of_its_kind).map(|(_, steered)| steered.rule.to_string())
    }

    /// What is not wrong and will surprise: sentences for the operator, once the queues are taken.
    pub fn notices(&self) -> Vec<String> {
        let interface = self.device.name();
        let mut notices: Vec<_> = self.device.problems().map(ToString::to_string).collect();
        let taken = self.config.queues.len();
        if self.config.port.steers_each_queue() && taken < usize::from(self.queues) {
            notices.push(format!(
                "{interface} spreads frames over {} queues and {taken} of them is ours: the kernel gets what comes on the others. \
                 `ethtool -L {interface} combined {taken}`, or steer the groups with `ethtool -N`",
                self.queues
            ));
        }
        let is_shared = matches!(self.config.owner, Owner::Shared);
        if is_shared && self.config.igmp == IgmpMode::Own {
            notices.push(format!(
                "IGMP on {interface} is ours now: the kernel hears no queries there, and memberships of other programs' sockets \
                 run out after some minutes. igmp = kernel lets both have theirs"
            ));
        }
        if matches!(self.config.owner, Owner::Own(_)) && taken > 1 {
            notices.push(format!(
                "ARP's answers come on one queue of {interface} and only that worker hears them: give the others their neighbors in \
                 the configuration, or use one queue"
            ));
        }
        if matches!(&self.config.owner, Owner::Own(own) if own.takes == CaptureMode::Everything) {
            notices.push(format!("{interface} is all ours: the kernel gets nothing from it until this ends"));
        }
        notices
    }
}

/// A rule, and the queues that want it.
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

/// Puts in place what of `targets` is not: for each queue that wants it, or for one where the
/// device steers a rule once. On an error what it had put in place is taken back.
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
                        // It was taken a moment ago.
                        let _ = device.unsteer(undone.id);
                    }
                    return Err(LiveError::Steering { rule: *rule, error });
                }
            }
        }
    }
    Ok(())
}

/// Lets the hosts hear of errors about their flows that come to the kernel.
fn listen(interface: &str, hosts: &mut [(u16, LiveHost)]) -> Result<IcmpErrorListener, LiveError> {
    let listening = sys::icmp_errors(interface).and_then(|socket| IcmpErrorListener::start(socket, hosts.len()));
    let (thread, ears) = listening.map_err(|error| LiveError::IcmpErrors { interface: interface.into(), error })?;
    for ((_, host), icmp_errors) in hosts.iter_mut().zip(ears) {
        host.follower.listen(icmp_errors);
    }
    Ok(thread)
}

/// What to do about a bond in active-backup. In the driver a frame arrives on a leg, and the kernel
/// gives it to no socket of the bond (`xsk_rcv_check` in net/xdp/xsk.c compares the interfaces).
fn bond(link: &Link, mirror: &Mirror) -> LiveError {
    let legs: Vec<_> = mirror.legs(link).into_iter().map(|leg| leg.name.as_str()).collect();
    LiveError::Config(format!(
        "{} is a bond in active-backup of {}: use mode = generic, where the kernel follows its active leg, or open the legs \
         as a BondDevice that Follower::steer_bond keeps on the active one",
        link.name,
        legs.join(" and ")
    ))
}
