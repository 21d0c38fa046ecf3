//! The cost of a segment for a server with many connections: each segment is for another of them,
//! without a pattern.
//!
//! The work must be the same for one connection as for many; otherwise their ratio would show
//! something else. Data without an answer would be different work: one connection acknowledges a
//! burst once, but many acknowledge each segment, and send 32 times as many segments. So each
//! segment is a request that the app answers, and in both cases the answer carries the
//! acknowledgment. The figure includes all work of the server in the turns in which requests
//! arrive, from the device to the app and back onto the wire.
//!
//! The answers' acknowledgments come between batches and are not measured. One connection would
//! have fewer of them. Also, each comes so soon after its request that the connection is still in
//! the cache; counted as segments, they would lower the ratio for many connections. The other end
//! is not measured either, and takes almost none of the cache: see [`callers`](super::callers).

use std::time;

use wirepath::device::memory::{MemoryConfig, pair};
use wirepath::pipeline::tcp::{Congestion, ConnectionOptions, ListenOptions};
use wirepath::time::{Duration, Instant};

use super::callers::Callers;
use super::pair::{BURST_LEN, End, EndConfig, Role, START, end, listen, options, short_buffers};
use super::{Checksums, MESSAGE_LEN, wire};

/// Segments that wait on the wire when the server's turn begins.
pub const BATCH: usize = 256;
/// A client has 64,000 ports and one address.
const LISTENERS: u16 = 16;

/// A server with established connections.
pub struct Crowd {
    callers: Callers,
    server: End,
    now: Instant,
    /// A walk over the connections without a pattern.
    next: usize,
    connections: usize,
}

impl Crowd {
    /// All connected.
    pub fn new(connections: usize) -> Self {
        // The wire is not measured: it takes as little of the cache as possible.
        let (left, right) = pair("tcp", MemoryConfig { slots: BATCH as u32, ..wire(Checksums::On) });
        let config = EndConfig { host: 2, role: Role::Echo, connections, burst_len: BURST_LEN };
        let mut server = end(right, short_buffers(), &config);
        // A batch on one connection is more than a first window.
        let connection = ConnectionOptions { congestion: Congestion::None, ..options() };
        let unlimited = ListenOptions {
            connection,
            syns_per_second: None,
            connections_per_source: None,
            ..ListenOptions::default()
        };
        listen(&mut server, LISTENERS, &unlimited);
        let callers = Callers::new(left, connections, LISTENERS);
        let mut crowd = Self { callers, server, now: START, next: 0, connections };
        crowd.all(Callers::call);
        assert_eq!(crowd.server.app().connections.len(), connections, "all are connected");
        // A connection's first answer initializes some of its state. This makes that state exist
        // for the many connections, as it does for the single one.
        crowd.all(Callers::ask);
        crowd
    }

    /// Each caller does it once, and gets an answer.
    fn all(&mut self, act: fn(&mut Callers, usize)) {
        for idx in 0..self.connections {
            act(&mut self.callers, idx);
            if idx % BURST_LEN == 0 {
                self.take_answers();
            }
        }
        self.take_answers();
    }

    /// Nanoseconds a segment.
    pub fn time(&mut self, batches: usize) -> f64 {
        let mut spent = time::Duration::ZERO;
        for _ in 0..batches {
            self.send_batch();
            let start = time::Instant::now();
            self.receive_batch();
            spent += start.elapsed();
            self.take_answers();
        }
        spent.as_nanos() as f64 / (batches * BATCH) as f64
    }

    /// The clients take their answers, and the server the acknowledgments.
    pub fn take_answers(&mut self) {
        while self.turn() > 0 || self.callers.take_answers() > 0 {}
    }

    /// Puts a segment of each of some clients onto the wire.
    pub fn send_batch(&mut self) {
        for _ in 0..BATCH {
            // A linear congruence with an odd factor visits all of a power of two, and jumps far.
            self.next = self.next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.callers.ask((self.next >> 20) % self.connections);
        }
    }

    /// Measured: the server's turns on a batch.
    #[inline(never)]
    pub fn receive_batch(&mut self) {
        let before = self.server.app().received;
        while self.server.app().received - before < BATCH * MESSAGE_LEN {
            self.turn();
        }
        self.turn();
    }

    fn turn(&mut self) -> usize {
        self.now += Duration::from_micros(1);
        self.server.poll_once(self.now)
    }
}
