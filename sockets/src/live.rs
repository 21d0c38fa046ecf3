//! Sockets on an interface of this machine, beside the kernel's: from a name to a [`Stack`].

use std::thread;

use wirepath::counters::Block;
use wirepath::pipeline::tcp::TcpConfig;
use wirepath::time::MonotonicClock;
use wirepath::worker::StopFlag;
use wirepath::worker::live::{FlowSpec, LiveConfig, LivePort};

use crate::errno::Errno;
use crate::stack::Stack;
use crate::steering::Steering;
use crate::table::Sockets;

/// Packet buffers that may wait in sockets.
const BUFFERS: usize = 4_096;
/// Turns that bring nothing before a call that waits begins to sleep: some 100 µs of spinning.
const SPINS: u32 = 1_000;
/// How long it then sleeps between two turns.
const NAP: core::time::Duration = core::time::Duration::from_micros(50);

impl Stack {
    /// Sockets on queue 0 of an interface that stays the kernel's: what a socket of ours is bound
    /// to, or connected with, comes to it; all else goes to the kernel. Addresses, routes and
    /// neighbors are the kernel's. A call that waits spins for some 100 µs and then looks every
    /// 50 µs. Counters stand in shared memory, for `wirepath stats`.
    ///
    /// # Errors
    /// One sentence with the next step: no such interface, no privilege, another program on it.
    pub fn open(interface: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Self::open_with(&LiveConfig::new(interface).named("sockets").with_tcp(TcpConfig::default()), 1_024)
    }

    /// The same by a configuration of one queue, with TCP, and room for so many sockets.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        config: &LiveConfig,
        sockets_max: usize,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let block = Block::create(&config.app)?;
        let mut port = LivePort::open(config, &block.scope("port"), &StopFlag::new())?;
        let queue = port.take_queue()?.ok_or("the configuration names no queue: take queue 0")?;
        let scope = block.scope("worker0");
        let sockets = Sockets::steered(sockets_max, Live { port, _block: block });
        let worker = queue.builder().held(BUFFERS).build(sockets, &scope)?;
        let stack = Self::over(worker, MonotonicClock::start());
        stack.when_idle(spin_then_nap);
        // From its first turn on the queue receives: what a socket is bound to is then ours at once.
        stack.turn();
        Ok(stack)
    }
}

/// The port, and the counters, which stay as long as it does.
struct Live {
    port: LivePort,
    _block: Block,
}

impl Steering for Live {
    fn add_flow(&mut self, flow: FlowSpec) -> Result<(), Errno> {
        Steering::add_flow(&mut self.port, flow)
    }

    fn remove_flow(&mut self, flow: &FlowSpec) {
        Steering::remove_flow(&mut self.port, flow);
    }
}

/// Spins at first; who waits for long leaves the processor to others.
fn spin_then_nap(turns: u32) {
    match turns {
        ..SPINS => core::hint::spin_loop(),
        _ => thread::sleep(NAP),
    }
}
