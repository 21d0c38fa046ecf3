//! What a segment costs a server with many connections: each segment is for another of them, without a pattern.
//!
//! The work must be the same for one connection as for many, or their ratio says nothing of the many. Segments that bring data and are not
//! answered are other work: of one connection those of a burst are acknowledged together, of many each by itself, 32 times as many segments
//! to send. So each segment is a request that the app answers, and the answer carries the acknowledgment, of one connection as of many.
//! What is measured is all that the server does in the turns in which requests arrive, from the device to the app and back onto the wire.
//!
//! The answers' acknowledgments come between batches and are not measured. Again one connection would have fewer of them; and each comes so
//! soon behind its request that the connection is still in the cache, so that counted as segments they would lower the ratio of the many.

use std::time;

use wirepath::pipeline::tcp::Congestion;

use super::Checksums;
use super::MESSAGE_LEN;
use super::pair::{PairConfig, Role, TcpPair};

/// Segments that wait on the wire when the server's turn comes.
pub const BATCH: usize = 256;
/// A client has 64,000 ports and one address.
const LISTENERS: u16 = 16;

/// A server with established connections.
pub struct Crowd {
    pair: TcpPair,
    /// A walk over the connections without a pattern.
    next: usize,
    connections: usize,
}

impl Crowd {
    /// All connected.
    pub fn new(connections: usize) -> Self {
        // A batch on one connection is more than a first window.
        let congestion = Congestion::None;
        let usual = PairConfig::one(Checksums::On, Role::Echo);
        // The wire is no part of what is measured: it takes as little as can be of the cache.
        let slots = BATCH as u32;
        let config = PairConfig { connections, listeners: LISTENERS, congestion, slots, ..usual };
        Self { pair: TcpPair::new(config), next: 0, connections }
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

    /// The client takes the answers, and the server what acknowledges them.
    pub fn take_answers(&mut self) {
        while self.pair.turn_client() > 0 || self.pair.turn_server() > 0 {}
    }

    /// A segment of each of some clients onto the wire.
    pub fn send_batch(&mut self) {
        for _ in 0..BATCH {
            // A linear congruence with an odd factor visits all of a power of two, and jumps far.
            self.next = self.next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let idx = (self.next >> 20) % self.connections;
            let now = self.pair.now();
            self.pair.client.with_app(now, |app, cx| {
                cx.tcp().send(app.connections[idx], &[7; MESSAGE_LEN]).expect("the window is open");
            });
        }
    }

    /// What is measured.
    #[inline(never)]
    pub fn receive_batch(&mut self) {
        let before = self.pair.server.app().received;
        while self.pair.server.app().received - before < BATCH * MESSAGE_LEN {
            self.pair.turn_server();
        }
        self.pair.turn_server();
    }
}
