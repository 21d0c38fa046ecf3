//! The configuration of a live port.

use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};

use super::config_problem::LiveConfigProblem;
use super::device::PortConfig;
use super::error::LiveError;
#[cfg(feature = "af-xdp")]
use crate::device::af_xdp::AfXdpConfig;
use crate::pipeline::ChecksumPolicy;
use crate::pipeline::tcp::{TcpConfig, TcpSockets};
use crate::proto::Ipv4Prefix;
use crate::wire::{EtherType, IgmpVersion, MacAddr, Protocol, VlanTags};
use crate::worker::topology::Machine;

/// The interface, its owner, and the flows it receives.
#[derive(Clone, Debug)]
pub struct LiveConfig {
    /// The application's name, as in [`Block::create`](crate::counters::Block::create):
    /// `wirepath capture` finds the queues by it. By default `wirepath`.
    pub app: String,
    /// The interface, its device, and the lengths of the rings.
    pub port: PortConfig,
    /// The queues to open, one per worker. The NIC decides which frames arrive on which queue. By
    /// default queue 0.
    pub queues: Vec<u16>,
    /// The owner of the interface. By default [`Owner::Shared`].
    pub owner: Owner,
    /// Whether the kernel or the worker keeps the IGMP memberships. By default
    /// [`IgmpMode::Kernel`]; [`IgmpMode::Worker`] on an interface with a host of its own.
    pub igmp: IgmpMode,
    /// The oldest version of IGMP that a worker speaks. Set version 3 if all routers and switches
    /// of the link speak it, because a query in version 2 lets anyone have all sources of the
    /// groups sent to the port. By default version 1.
    pub igmp_version_min: IgmpVersion,
    /// The flows to receive. The applications join and bind the same groups and ports at their
    /// sockets. By default none.
    pub flows: Vec<FlowSpec>,
    /// Protocols beside IPv4 whose frames come to
    /// [`App::on_frame`](crate::pipeline::App::on_frame), on all queues. The kernel gets none of
    /// them then. By default none.
    pub ethertypes: Vec<EtherType>,
    /// The VLAN tags of a host of our own: it receives only frames with these tags, and sends all
    /// its frames with them. Two tags for a VLAN within a provider's (QinQ). [`VlanTags::NONE`] for
    /// untagged frames, and if the kernel owns the interface. By default [`VlanTags::NONE`].
    pub vlan: VlanTags,
    /// The limits on each worker's connections and their data; `None` for no TCP. `connections_max`
    /// and `chunks_max` determine how much memory it needs: a chunk is a buffer of the pool. By
    /// default `None`.
    pub tcp: Option<TcpConfig>,
    /// The policy for UDP and TCP checksums; `None` decides by the driver: virtual links (veth,
    /// tap) between kernels carry partial checksums, a physical link does not. By default `None`.
    pub checksum: Option<ChecksumPolicy>,
}

/// The owner of the interface.
#[derive(Clone, Debug, Default)]
pub enum Owner {
    /// The kernel. We send from its addresses, follow its routes, neighbors and link, and receive
    /// only the configured flows; ARP, ICMP, ssh and all other traffic remain with it.
    #[default]
    Shared,
    /// The worker. It has an address that the kernel does not have, and answers ARP and ICMP
    /// itself.
    Dedicated(DedicatedHost),
}

/// A host beside the kernel's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DedicatedHost {
    /// The host's addresses with the prefix lengths of their networks; the first one is the default
    /// source. By default none: at least one is needed.
    pub addresses: Vec<Ipv4Prefix>,
    /// Routes to networks that are not on the link. By default none.
    pub routes: Vec<StaticRoute>,
    /// Static neighbors. By default none.
    pub neighbors: Vec<(Ipv4Addr, MacAddr)>,
    /// The frames that the kernel does not receive. By default [`CaptureMode::Needed`].
    pub takes: CaptureMode,
}

/// A network behind a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticRoute {
    /// The network; [`Ipv4Prefix::ALL`] for a default route.
    pub network: Ipv4Prefix,
    /// The router, on one of our own networks.
    pub via: Ipv4Addr,
}

/// The frames of an interface of our own that the kernel does not receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureMode {
    /// ARP, frames to our addresses and to the groups, and IGMP if a worker speaks it. The kernel
    /// receives the rest: LLDP, IPv6.
    #[default]
    Needed,
    /// All of them.
    Everything,
}

/// Whether the worker or the kernel keeps the memberships of the joined groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IgmpMode {
    /// The worker reports its groups and answers queries. IGMP then does not reach the kernel, so
    /// the kernel's own memberships on this interface expire.
    Worker,
    /// The kernel: a socket beside the workers holds a membership for each configured group, with
    /// its sources.
    Kernel,
    /// No one: the exchange floods, or another host has joined.
    Off,
}

/// A flow to receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowSpec {
    /// UDP or TCP.
    pub protocol: Protocol,
    /// A group and port, or a local address and port; [`Ipv4Addr::UNSPECIFIED`] for all addresses
    /// of the interface, port 0 for any.
    pub destination: SocketAddrV4,
    /// The only senders; empty for any.
    pub sources: Vec<Ipv4Addr>,
    /// The only source port; `None` for any.
    pub source_port: Option<u16>,
    /// The only VLAN; `None` for tagged and untagged.
    pub vlan: Option<u16>,
    /// The only queue to receive it; `None` for all opened queues.
    pub queue: Option<u16>,
}

impl LiveConfig {
    /// Queue 0 of an interface that belongs to the kernel, which also keeps the memberships, over
    /// AF_XDP in the best mode available.
    #[cfg(feature = "af-xdp")]
    pub fn new(interface: &str) -> Self {
        Self::over(PortConfig::AfXdp(AfXdpConfig::new(interface)))
    }

    /// As `new`, over a device of one's choice.
    pub fn over(port: PortConfig) -> Self {
        Self {
            app: "wirepath".into(),
            port,
            queues: vec![0],
            owner: Owner::Shared,
            igmp: IgmpMode::Kernel,
            igmp_version_min: IgmpVersion::V1,
            flows: Vec::new(),
            ethertypes: Vec::new(),
            vlan: VlanTags::NONE,
            tcp: None,
            checksum: None,
        }
    }

    /// Sets the application's name.
    #[must_use]
    pub fn named(self, app: &str) -> Self {
        Self { app: app.into(), ..self }
    }

    /// Adds a flow to receive.
    #[must_use]
    pub fn flow(mut self, flow: FlowSpec) -> Self {
        self.flows.push(flow);
        self
    }

    /// Enables TCP within these limits.
    #[must_use]
    pub fn tcp_with(self, tcp: TcpConfig) -> Self {
        Self { tcp: Some(tcp), ..self }
    }

    /// Makes the interface our own, with IGMP of our own.
    #[must_use]
    pub fn dedicated(self, host: DedicatedHost) -> Self {
        Self { owner: Owner::Dedicated(host), igmp: IgmpMode::Worker, ..self }
    }

    /// The checksum policy on a virtual or a physical link.
    pub(super) fn checksum_on(&self, is_virtual: bool) -> ChecksumPolicy {
        self.checksum.unwrap_or(match is_virtual {
            true => ChecksumPolicy::AcceptPartial,
            false => ChecksumPolicy::Verify,
        })
    }

    /// Checks the configuration for contradictions, before anything is touched.
    pub(super) fn check(&self) -> Result<(), LiveError> {
        if self.queues.is_empty() {
            return Err(LiveConfigProblem::NoQueue.into());
        }
        if !is_unique(&self.queues) {
            return Err(LiveConfigProblem::QueueTwice.into());
        }
        if self.queues.len() > 1 && self.igmp == IgmpMode::Worker {
            return Err(LiveConfigProblem::IgmpOfSeveralQueues.into());
        }
        if let Some(queue) = self.flows.iter().filter_map(|flow| flow.queue).find(|queue| !self.queues.contains(queue))
        {
            return Err(LiveConfigProblem::QueueNotOpened(queue).into());
        }
        if let Some(tcp) = &self.tcp {
            tcp.check().map_err(LiveError::Tcp)?;
        } else if self.flows.iter().any(|flow| flow.protocol == Protocol::TCP) {
            return Err(LiveConfigProblem::NoTcp.into());
        }
        let is_lost = |flow: &&FlowSpec| flow.is_call() && flow.queue.is_none();
        if self.queues.len() > 1
            && let Some(flow) = self.flows.iter().find(is_lost)
        {
            let peer = *flow.sources.first().unwrap_or(&Ipv4Addr::UNSPECIFIED);
            return Err(LiveConfigProblem::AnswersOnAnyQueue { peer }.into());
        }
        match &self.owner {
            Owner::Shared => Ok(self.check_shared()?),
            Owner::Dedicated(host) => Ok(self.check_own(host)?),
        }
    }

    /// Checks that the machine has the memory for TCP in all workers. The kernel would grant each
    /// of them memory that it does not have, and kill a process at first use.
    pub(super) fn check_memory(&self, machine: &Machine) -> Result<(), LiveError> {
        let (Some(tcp), Some(left)) = (self.tcp, machine.memory_left()) else { return Ok(()) };
        let (workers, each) = (self.queues.len(), TcpSockets::bytes(&tcp));
        match (each as u128).saturating_mul(workers as u128) > left.bytes {
            true => Err(LiveError::TcpMemory { tcp: Box::new(tcp), workers, each, left }),
            false => Ok(()),
        }
    }

    fn check_shared(&self) -> Result<(), LiveConfigProblem> {
        if self.vlan.is_empty() { Ok(()) } else { Err(LiveConfigProblem::VlanOfShared) }
    }

    fn check_own(&self, host: &DedicatedHost) -> Result<(), LiveConfigProblem> {
        let ours = self.vlan.inner().map(|tag| tag.vid());
        let other = |vlan: &u16| ours.is_some_and(|ours| ours != *vlan);
        if let Some(other) = self.flows.iter().filter_map(|flow| flow.vlan).find(other) {
            return Err(LiveConfigProblem::OtherVlan(other));
        }
        if host.addresses.is_empty() {
            return Err(LiveConfigProblem::NoAddress);
        }
        if host.takes == CaptureMode::Everything && self.igmp == IgmpMode::Kernel {
            return Err(LiveConfigProblem::NoQueriesForKernel);
        }
        Ok(())
    }
}

impl FlowSpec {
    /// Datagrams to a group or a local address, from any sender.
    pub const fn udp(destination: Ipv4Addr, port: u16) -> Self {
        let destination = SocketAddrV4::new(destination, port);
        Self { protocol: Protocol::UDP, destination, sources: Vec::new(), source_port: None, vlan: None, queue: None }
    }

    /// Segments to a local address that we listen on.
    pub fn tcp(destination: Ipv4Addr, port: u16) -> Self {
        Self { protocol: Protocol::TCP, ..Self::udp(destination, port) }
    }

    /// Segments from an address and port that we connect to. On an interface of the kernel, the
    /// segments of the kernel's own connections to that peer would come here too, and we would
    /// reset them: [`to_port`](Self::to_port) prevents that.
    pub fn tcp_from(remote: SocketAddrV4) -> Self {
        let flow = Self::tcp(Ipv4Addr::UNSPECIFIED, 0).from(&[*remote.ip()]);
        Self { source_port: Some(remote.port()), ..flow }
    }

    /// Restricts it to one local port: the one we connect from.
    #[must_use]
    pub fn to_port(mut self, port: u16) -> Self {
        self.destination.set_port(port);
        self
    }

    /// Restricts it to these senders.
    #[must_use]
    pub fn from(self, sources: &[Ipv4Addr]) -> Self {
        Self { sources: sources.to_vec(), ..self }
    }

    /// Whether the destination is a group.
    pub fn is_group(&self) -> bool {
        self.destination.ip().is_multicast()
    }

    /// Whether it is the flow of a peer, by [`tcp_from`](Self::tcp_from).
    fn is_call(&self) -> bool {
        self.protocol == Protocol::TCP && self.source_port.is_some()
    }

    /// Whether its segments are those of one connection: both ends are named.
    pub(super) fn is_connection(&self) -> bool {
        self.is_call() && self.destination.port() != 0 && self.sources.len() == 1
    }

    /// Whether queue `idx` receives it.
    pub(super) fn is_on(&self, idx: u16) -> bool {
        self.queue.is_none_or(|queue| queue == idx)
    }
}

/// For the operator: `UDP to 239.1.1.1:9000 from 10.0.0.1`.
impl fmt::Display for FlowSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.protocol, self.destination)?;
        for (idx, source) in self.sources.iter().enumerate() {
            write!(f, "{}{source}", if idx == 0 { " from " } else { " or " })?;
        }
        let part = |name: &str, value: Option<u16>| value.map_or(String::new(), |value| format!(" {name} {value}"));
        f.write_str(&part("source port", self.source_port))?;
        f.write_str(&part("VLAN", self.vlan))?;
        f.write_str(&part("queue", self.queue))
    }
}

fn is_unique(queues: &[u16]) -> bool {
    queues.iter().enumerate().all(|(idx, queue)| !queues[..idx].contains(queue))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::VlanTag;

    fn refused(config: &LiveConfig, expected: &LiveConfigProblem) {
        match config.check() {
            Err(LiveError::Config(problem)) => assert_eq!(problem, *expected),
            other => panic!("{other:?}"),
        }
    }

    fn own(takes: CaptureMode) -> LiveConfig {
        let addresses = vec![Ipv4Prefix::new(Ipv4Addr::new(10, 0, 0, 2), 24).unwrap()];
        LiveConfig::new("eth1").dedicated(DedicatedHost { addresses, takes, ..DedicatedHost::default() })
    }

    /// The kernel would grant the memory, and the OOM killer end the process as the tables are
    /// made.
    #[test]
    fn more_tcp_than_the_machine_has_left_is_refused_with_the_sum_and_the_bound() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/meminfo"), "MemTotal: 9000000 kB\nMemAvailable: 1048576 kB\n").unwrap();
        let (machine, nowhere) = (Machine::at(root.path()), Machine::at("/nonexistent"));
        let tcp = TcpConfig { connections_max: 1 << 20, chunks_max: 1 << 10, ..TcpConfig::default() };
        let one = LiveConfig::new("eth1").tcp_with(tcp);
        let two = LiveConfig { queues: vec![0, 1], ..one.clone() };
        assert!(one.check_memory(&machine).is_ok() && two.check_memory(&nowhere).is_ok());
        let refused = two.check_memory(&machine).unwrap_err().to_string();
        assert!(refused.starts_with("TCP of 2 workers takes 127"), "{refused}");
        assert!(refused.contains("for 1048576 connections and 1024 chunks each"), "{refused}");
        assert!(refused.contains("1024 MiB are left (MemAvailable of /proc/meminfo): lower TcpConfig::"), "{refused}");
    }

    #[test]
    fn contradictions_are_refused_by_their_names() {
        use LiveConfigProblem as P;

        let config = LiveConfig::new("eth1");
        refused(&LiveConfig { queues: vec![], ..config.clone() }, &P::NoQueue);
        refused(&LiveConfig { queues: vec![1, 0, 1], ..config.clone() }, &P::QueueTwice);
        let igmp = LiveConfig { queues: vec![0, 1], igmp: IgmpMode::Worker, ..config.clone() };
        refused(&igmp, &P::IgmpOfSeveralQueues);
        refused(&config.clone().dedicated(DedicatedHost::default()), &P::NoAddress);
        refused(&LiveConfig { igmp: IgmpMode::Kernel, ..own(CaptureMode::Everything) }, &P::NoQueriesForKernel);
        let tagged = |vid| VlanTags::single(VlanTag::new(vid));
        refused(&LiveConfig { vlan: tagged(20), ..config.clone() }, &P::VlanOfShared);
        let other = FlowSpec { vlan: Some(21), ..FlowSpec::udp(Ipv4Addr::new(239, 1, 1, 1), 1) };
        refused(&LiveConfig { vlan: tagged(20), ..own(CaptureMode::Needed).flow(other) }, &P::OtherVlan(21));
        refused(&config.clone().flow(FlowSpec::tcp(Ipv4Addr::UNSPECIFIED, 80)), &P::NoTcp);
        let none = TcpConfig { chunks_max: 0, ..TcpConfig::default() };
        let limits = config.clone().tcp_with(none).check();
        assert!(matches!(limits, Err(LiveError::Tcp(_))), "{limits:?}");
        let flow = FlowSpec { queue: Some(3), ..FlowSpec::udp(Ipv4Addr::new(239, 1, 1, 1), 1) };
        refused(&config.clone().flow(flow), &P::QueueNotOpened(3));
        let peer = Ipv4Addr::new(10, 0, 0, 9);
        let call = FlowSpec::tcp_from(SocketAddrV4::new(peer, 443));
        let both = LiveConfig { queues: vec![0, 1], ..config.tcp_with(TcpConfig::default()) };
        refused(&both.clone().flow(call.clone()), &P::AnswersOnAnyQueue { peer });
        both.flow(FlowSpec { queue: Some(1), ..call }).check().unwrap();
    }

    #[test]
    fn usual_configurations_pass() {
        LiveConfig::new("eth1").check().unwrap();
        LiveConfig { queues: vec![0, 1], ..LiveConfig::new("eth1") }.check().unwrap();
        own(CaptureMode::Needed).check().unwrap();
        own(CaptureMode::Everything).check().unwrap();
    }
}
