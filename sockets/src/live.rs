//! Sockets on an interface of this machine, beside the kernel's: from a name to a [`Stack`].

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::{fs, process, thread};

use wirepath::Error;
use wirepath::counters::{Block, Capacity, default_directory};
use wirepath::pipeline::tcp::TcpConfig;
use wirepath::time::{Clock, Instant, MonotonicClock, TscClock};
use wirepath::wire::Protocol;
use wirepath::worker::StopFlag;
use wirepath::worker::live::{FlowSpec, LiveConfig, LivePort, sleep_on};

use crate::errno::Errno;
use crate::sockopt::System;
use crate::stack::{Sleep, Stack};
use crate::steering::Steering;
use crate::table::Sockets;
use crate::wall::SystemWall;

/// Packet buffers that may wait in sockets, beside those of TCP.
const BUFFERS: usize = 4_096;
/// One worker's counters, some 300 of them, and histograms: a quarter of what a block has by
/// default, because there may be many programs.
const COUNTERS: Capacity = Capacity { entries: 1_024, values: 65_536 };
/// Turns without packets before a waiting call begins to sleep: some 100 µs of spinning.
const SPINS: u32 = 1_000;
/// The time that it then sleeps between two turns, on a device that has no descriptor to sleep on.
const NAP: core::time::Duration = core::time::Duration::from_micros(50);

impl Stack {
    /// Sockets on queue 0 of an interface that the kernel keeps. Frames for the addresses and peers
    /// of its sockets come to this stack; all other frames go to the kernel. Addresses, routes and
    /// neighbors are the kernel's. A call that waits spins for some 100 µs and then sleeps until a
    /// frame comes or a timer is due. The counters are in shared memory, for `wirepath stats`.
    ///
    /// # Errors
    /// No such interface, no privilege, another program on it.
    pub fn open(interface: &str) -> wirepath::Result<Self> {
        Self::open_with(&LiveConfig::new(interface).named("sockets").tcp_with(TcpConfig::default()), 1_024)
    }

    /// As [`open`](Self::open), with a configuration of one queue, with TCP, and room for
    /// `sockets_max` sockets.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(config: &LiveConfig, sockets_max: usize) -> wirepath::Result<Self> {
        Self::open_sized(config, sockets_max, BUFFERS)
    }

    /// As [`open_with`](Self::open_with), with a number of packet buffers that may wait in sockets
    /// (4,096 without it), beside those of TCP (`TcpConfig::chunks_max`).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_sized(config: &LiveConfig, sockets_max: usize, buffers: usize) -> wirepath::Result<Self> {
        // The clock measures its rate meanwhile.
        let clock = thread::Builder::new().name("wirepath-clock".into()).spawn(SystemClock::start);
        let block = Arc::new(Block::create_in(&default_directory(), &config.app, COUNTERS)?);
        let mut port = LivePort::open(config, &block.scope("port"), &StopFlag::new())?;
        let queue =
            port.take_queue()?.ok_or_else(|| Error::Config("the configuration names no queue: take queue 0".into()))?;
        let scope = block.scope("worker0");
        let interface = (namespace(), config.port.interface().to_owned());
        let mut sockets = Sockets::steered(sockets_max, Live { port, block, interface, claims: HashSet::new() });
        let clock = clock.ok().and_then(|clock| clock.join().ok()).unwrap_or_else(SystemClock::start);
        sockets.follow_wall(SystemWall::beside(clock.clone()));
        sockets.count_in(&scope);
        sockets.follow_system(System::of(config.port.interface()));
        let worker = queue.builder().held(buffers).build(sockets, &scope)?;
        let stack = Self::over(worker, clock);
        stack.when_asleep(SPINS, sleep);
        // The queue receives from its first turn on, so that frames for a bound socket come to us
        // at once.
        stack.turn();
        Ok(stack)
    }
}

impl System {
    /// The kernel's settings in this network namespace; a setting that cannot be read has its
    /// default.
    pub fn of(interface: &str) -> Self {
        let read = |path: String| fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
        let fresh = Self::default();
        Self {
            receive_buffer_max: read("/proc/sys/net/core/rmem_max".into()).unwrap_or(fresh.receive_buffer_max),
            send_buffer_max: read("/proc/sys/net/core/wmem_max".into()).unwrap_or(fresh.send_buffer_max),
            interface_idx: read(format!("/sys/class/net/{interface}/ifindex")).unwrap_or(fresh.interface_idx),
        }
    }
}

/// The clock of sockets: the processor's counter, or the system's clock where the counter does not
/// run evenly.
#[derive(Clone)]
enum SystemClock {
    Counter(TscClock),
    System(MonotonicClock),
}

impl SystemClock {
    fn start() -> Self {
        TscClock::start().map_or_else(|| Self::System(MonotonicClock::start()), Self::Counter)
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&mut self) -> Instant {
        match self {
            Self::Counter(clock) => clock.now(),
            Self::System(clock) => clock.now(),
        }
    }
}

/// The port, and the counters, which it needs as long as it lives.
struct Live<P> {
    port: P,
    block: Arc<Block>,
    interface: Interface,
    /// Its flows among those of [`CLAIMED`].
    claims: HashSet<FlowSpec>,
}

/// An interface: its network namespace, and its name there.
type Interface = (u64, String);

/// The number of the calling thread's network namespace.
fn namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |found| found.ino())
}

/// A unicast port of a stack: the process, because a child of `fork` has a copy of this memory and
/// none of the stacks, and the interface.
type Claim = (u32, Interface, FlowSpec);

/// The unicast ports of all stacks of this process. A NIC copies a frame to each queue that has a
/// rule for it, as the members of a group need it; a port would be answered twice. A broker that
/// passes frames on chooses one of the stacks, and AF_XDP copies no frame: there each stack has the
/// connections that come to its queue.
static CLAIMED: LazyLock<Mutex<HashSet<Claim>>> = LazyLock::new(Mutex::default);

impl<P: Steering> Live<P> {
    fn claim(&mut self, flow: &FlowSpec) -> Result<(), Errno> {
        let is_shared = self.port.hands_over() || (flow.protocol == Protocol::TCP && self.port.shares_listeners());
        if flow.is_group() || flow.source_port.is_some() || is_shared {
            return Ok(());
        }
        let claim = (process::id(), self.interface.clone(), flow.clone());
        if !CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).insert(claim) {
            return Err(Errno::EADDRINUSE);
        }
        self.claims.insert(flow.clone());
        Ok(())
    }
}

impl<P> Live<P> {
    fn give_up(&mut self, flow: &FlowSpec) {
        if self.claims.remove(flow) {
            let claim = (process::id(), self.interface.clone(), flow.clone());
            CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).remove(&claim);
        }
    }
}

impl<P> Drop for Live<P> {
    fn drop(&mut self) {
        let claims: Vec<FlowSpec> = self.claims.iter().cloned().collect();
        claims.iter().for_each(|flow| self.give_up(flow));
    }
}

impl<P: Steering> Steering for Live<P> {
    fn add_flow(&mut self, flow: FlowSpec) -> Result<(), Errno> {
        self.claim(&flow)?;
        Steering::add_flow(&mut self.port, flow.clone()).inspect_err(|_| self.give_up(&flow))
    }

    /// Another stack may have the port once its rule is out.
    fn remove_flow(&mut self, flow: &FlowSpec) {
        Steering::remove_flow(&mut self.port, flow);
        self.give_up(flow);
    }

    fn set_listening(&mut self, flow: &FlowSpec, listening: bool) {
        Steering::set_listening(&mut self.port, flow, listening);
    }

    fn claim(&mut self, socket: BorrowedFd<'_>, protocol: Protocol, port: u16) {
        Steering::claim(&mut self.port, socket, protocol, port);
    }

    fn hands_over(&self) -> bool {
        Steering::hands_over(&self.port)
    }

    fn shares_listeners(&self) -> bool {
        Steering::shares_listeners(&self.port)
    }

    fn unsteered(&self) -> Option<String> {
        Steering::unsteered(&self.port)
    }

    fn why_ended(&self) -> Option<String> {
        Steering::why_ended(&self.port)
    }

    fn lost_flag(&self) -> Arc<AtomicBool> {
        Steering::lost_flag(&self.port)
    }

    fn take_lost_flows(&mut self) -> Vec<(FlowSpec, Errno)> {
        let lost = Steering::take_lost_flows(&mut self.port);
        lost.iter().for_each(|(flow, _)| self.give_up(flow));
        lost
    }

    fn counters(&self) -> Option<Arc<Block>> {
        Some(Arc::clone(&self.block))
    }
}

/// Sleeps until a frame or news of the kernel comes, or a timer is due.
fn sleep(how: Sleep) {
    let timeout = how.timeout.map(|timeout| core::time::Duration::from_nanos(timeout.as_nanos()));
    match how.fd {
        Some(_) => sleep_on([how.fd, how.updates], timeout),
        None => thread::sleep(timeout.map_or(NAP, |timeout| timeout.min(NAP))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use std::net::Ipv4Addr;

    use super::*;

    /// The interface of these tests.
    fn interface(namespace: u64) -> Interface {
        (namespace, "near".to_owned())
    }

    const HERE: u64 = 1;

    /// A port that takes each flow, and has taken these back.
    #[derive(Default)]
    struct Port(Vec<(FlowSpec, Errno)>);

    impl Steering for Port {
        fn add_flow(&mut self, _: FlowSpec) -> Result<(), Errno> {
            Ok(())
        }

        fn remove_flow(&mut self, flow: &FlowSpec) {
            let claim = (process::id(), interface(HERE), flow.clone());
            assert!(CLAIMED.lock().unwrap().contains(&claim), "the rule goes before the claim");
        }

        fn take_lost_flows(&mut self) -> Vec<(FlowSpec, Errno)> {
            core::mem::take(&mut self.0)
        }
    }

    fn live() -> Live<Port> {
        live_in(HERE)
    }

    fn live_in(namespace: u64) -> Live<Port> {
        let (port, block) = (Port::default(), Arc::new(Block::heap()));
        Live { port, block, interface: interface(namespace), claims: HashSet::new() }
    }

    fn flow(port: u16) -> FlowSpec {
        FlowSpec::udp(Ipv4Addr::new(192, 0, 2, 1), port)
    }

    #[test]
    fn port_of_a_stack_is_no_other_stacks_until_its_rule_is_out() {
        let (mut one, mut other) = (live(), live());
        assert_eq!((one.add_flow(flow(1)), other.add_flow(flow(1))), (Ok(()), Err(Errno::EADDRINUSE)));
        one.remove_flow(&flow(1));
        assert_eq!(other.add_flow(flow(1)), Ok(()));
    }

    /// A thread of a process may be in another one, where an interface has the same name.
    #[test]
    fn namespaces_have_ports_of_their_own() {
        let (mut here, mut there) = (live(), live_in(2));
        assert_eq!((here.add_flow(flow(3)), there.add_flow(flow(3))), (Ok(()), Ok(())));
    }

    #[test]
    fn port_that_was_taken_back_may_be_had_again() {
        let mut live = live();
        live.add_flow(flow(2)).unwrap();
        live.port.0.push((flow(2), Errno::EACCES));
        assert_eq!(live.take_lost_flows(), [(flow(2), Errno::EACCES)]);
        assert_eq!(live.add_flow(flow(2)), Ok(()));
    }
}
