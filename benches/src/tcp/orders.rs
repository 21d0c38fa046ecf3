//! A prepared order: patched and fired, and posted to the wire.

use std::time;

use wirepath::pipeline::tcp::{Sent, Template};

use super::pair::{PairConfig, Role, TcpPair};
use super::{Checksums, MESSAGE_LEN};

/// Orders that are fired between two turns: fewer bytes than the initial window.
pub const BATCH: usize = 64;

/// A connection and an order for it.
pub struct Orders {
    pair: TcpPair,
    template: Template,
    number: u64,
}

impl Orders {
    /// Connected, with an order of [`MESSAGE_LEN`] bytes.
    pub fn new() -> Self {
        let mut pair = TcpPair::new(PairConfig::one(Checksums::On, Role::Sink));
        let now = pair.now();
        let template = pair.client.with_app(now, |app, cx| cx.tcp().template(app.connections[0], &[b'0'; MESSAGE_LEN]));
        Self { pair, template: template.expect("the connection is open"), number: 0 }
    }

    /// What is measured: a price of eight bytes changes, and the order leaves. [`BATCH`] times.
    #[inline(never)]
    pub fn fire(&mut self) {
        let Self { pair, template, number } = self;
        let now = pair.now();
        pair.client.with_app(now, |_, cx| {
            let last = *number + BATCH as u64;
            while *number < last {
                *number += 1;
                template.patch(16, &number.to_be_bytes()).expect("it is inside");
                let fired = cx.tcp().fire(template);
                assert_eq!(fired, Ok(Sent::Posted), "the window is open");
            }
        });
    }

    /// The server takes what was fired, and the client its acknowledgment. Not part of what is measured.
    pub fn settle(&mut self) {
        let before = self.pair.server.app().received;
        for _ in 0..4 {
            self.pair.turn_server();
            self.pair.turn_client();
        }
        assert_eq!(self.pair.server.app().received - before, BATCH * MESSAGE_LEN, "each order arrives");
    }

    /// Nanoseconds for an order, over so many batches.
    pub fn time(&mut self, batches: usize) -> f64 {
        let mut spent = time::Duration::ZERO;
        for _ in 0..batches {
            let start = time::Instant::now();
            self.fire();
            spent += start.elapsed();
            self.settle();
        }
        spent.as_nanos() as f64 / (batches * BATCH) as f64
    }
}

impl Default for Orders {
    fn default() -> Self {
        Self::new()
    }
}
