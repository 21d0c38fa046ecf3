//! Two hosts over a wire of plain memory, in virtual time: where a call of one waits, the other
//! takes its turn and 10 µs pass.

use std::cell::Cell;
use std::io;
use std::net::SocketAddrV4;
use std::rc::Rc;

use sockets::{Errno, Sockets, Stack, Steering};
use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, pair};
use wirepath::pipeline::tcp::TcpConfig;
use wirepath::time::{Clock, Duration, Instant};
use wirepath::worker::Worker;

/// Sockets that each host may have.
pub(crate) const SOCKETS_MAX: usize = 64;

/// A clock that both hosts share.
#[derive(Clone, Default)]
pub(crate) struct SharedClock(Rc<Cell<Instant>>);

impl Clock for SharedClock {
    fn now(&mut self) -> Instant {
        self.0.get()
    }
}

impl SharedClock {
    pub(crate) fn advance(&self, span: Duration) {
        self.0.set(self.0.get() + span);
    }
}

/// The hosts 192.0.2.1 and 192.0.2.2.
pub(crate) struct Wire {
    pub(crate) left: Stack,
    pub(crate) right: Stack,
    pub(crate) clock: SharedClock,
}

#[allow(dead_code, reason = "the tests of steering name their own")]
pub(crate) fn wire() -> Wire {
    steered_wire(())
}

/// As `wire`, where the hosts have few packet buffers: room for 1,000 that wait, and those of a few
/// connections. The second value is the counter of copies.
#[allow(dead_code, reason = "only one test needs few")]
pub(crate) fn poor_wire() -> (Wire, impl Fn() -> u64) {
    let block = Block::heap();
    let tcp = TcpConfig { connections_max: 16, chunks_max: 256, ..TcpConfig::default() };
    let mut sockets = Sockets::new(SOCKETS_MAX);
    sockets.count_in(&block.scope("right"));
    let wire = wire_of(sockets, tcp, 1_000);
    (wire, move || block.snapshot().count("right/sockets/copied_from_scarce_buffers").unwrap_or(0))
}

/// As `wire`, where the TCP of each host has `chunks` of data at most that wait.
#[allow(dead_code, reason = "only one test needs few")]
pub(crate) fn wire_of_chunks(chunks: usize) -> Wire {
    let tcp = TcpConfig { connections_max: 32, chunks_max: chunks, ..TcpConfig::default() };
    wire_of(Sockets::new(SOCKETS_MAX), tcp, 0)
}

/// As `wire`, where the right host's port steers only the flows that its sockets name.
#[allow(dead_code, reason = "only the tests of steering name one")]
pub(crate) fn steered_wire(steering: impl Steering + 'static) -> Wire {
    wire_of(Sockets::steered(SOCKETS_MAX, steering), TcpConfig::default(), 0)
}

fn wire_of(right: Sockets, tcp: TcpConfig, held: usize) -> Wire {
    let clock = SharedClock::default();
    let (mut near, mut far) = pair("wire", MemoryConfig::default());
    let block = Block::heap();
    let host = |device: &mut _, address: &str, name: &str, sockets| {
        let worker = Worker::builder(device).unwrap().address(address.parse().unwrap()).tcp(tcp);
        let worker = if held > 0 { worker.held(held) } else { worker };
        Stack::over(worker.build(sockets, &block.scope(name)).unwrap(), clock.clone())
    };
    let left = host(&mut near, "192.0.2.1/24", "left", Sockets::new(SOCKETS_MAX));
    let right = host(&mut far, "192.0.2.2/24", "right", right);
    let moves = |other: &Stack| {
        let (other, clock) = (other.clone(), clock.clone());
        move |_: u32| {
            other.turn();
            clock.advance(Duration::from_micros(10));
        }
    };
    left.when_idle(moves(&right));
    right.when_idle(moves(&left));
    Wire { left, right, clock }
}

impl Wire {
    /// Lets both hosts run until nothing moves any more but timers of a millisecond and beyond.
    pub(crate) fn settle(&self) {
        for _ in 0..40 {
            self.left.turn();
            self.right.turn();
            self.clock.advance(Duration::from_micros(50));
        }
    }
}

pub(crate) fn at(host: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new([192, 0, 2, host].into(), port)
}

/// The number of an error, by the name that Linux has for it.
#[allow(dead_code, reason = "not every test file makes errors by std::net")]
pub(crate) fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| error.raw_os_error()).map(Errno)
}
