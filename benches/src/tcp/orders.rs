//! A prepared order: patched and fired, and posted to the wire.

use std::time;

use wirepath::counters::Block;
use wirepath::device::mlx5::Mlx5Tx;
use wirepath::device::{Offload, TxQueue};
use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::{PreparedOrder, TcpSent};
use wirepath::testing::mlx5::{PlainTxConfig, PlainTxNic, plain_tx};

use super::pair::{PairConfig, Role, TcpPair};
use super::{Checksums, MESSAGE_LEN};

/// Orders that are fired between two turns: fewer bytes than the initial window.
pub const BATCH: usize = 64;

/// A connection and an order for it.
pub struct Orders {
    pair: TcpPair,
    order: PreparedOrder,
    number: u64,
}

impl Orders {
    /// Connected, with an order of [`MESSAGE_LEN`] bytes.
    pub fn new() -> Self {
        let mut pair = TcpPair::new(PairConfig::one(Checksums::On, Role::Sink));
        let now = pair.now();
        let order = pair.client.with_app(now, |app, cx| cx.tcp().prepare(app.connections[0], &[b'0'; MESSAGE_LEN]));
        Self { pair, order: order.expect("the connection is open"), number: 0 }
    }

    /// Measured: a price of eight bytes changes, and the order leaves. [`BATCH`] times.
    #[inline(never)]
    pub fn fire(&mut self) {
        let Self { pair, order, number } = self;
        let now = pair.now();
        pair.client.with_app(now, |_, cx| {
            let last = *number + BATCH as u64;
            while *number < last {
                *number += 1;
                order.patch(16, &number.to_be_bytes()).expect("it is inside");
                let fired = cx.tcp().fire(order);
                assert_eq!(fired, Ok(TcpSent::Posted), "the window is open");
            }
        });
    }

    /// The server takes the orders, and the client the acknowledgment. Not measured.
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

/// A connection, and an order for it that leaves by a ConnectX of plain memory. The memory device
/// carries the frames of its ring to the peer, outside of the measured time.
pub struct Mlx5Orders {
    orders: Orders,
    tx: Mlx5Tx,
    nic: PlainTxNic,
}

impl Mlx5Orders {
    /// As [`Orders::new`].
    pub fn new() -> Self {
        let mut orders = Orders::new();
        let now = orders.pair.now();
        let (scope, config) =
            (Block::heap().scope("mlx5"), PlainTxConfig { blocks: 512, cqes: 512, ..PlainTxConfig::default() });
        let (tx, nic) =
            orders.pair.client.with_app(now, |_, cx| plain_tx(config, cx.pool, &scope)).expect("it is a ring");
        Self { orders, tx, nic }
    }

    /// Fires [`BATCH`] orders, each with the step `before`.
    pub fn batch(&mut self, before: fn(&mut PreparedOrder, &mut Cx<'_>), fire: fn(&mut PreparedOrder, &mut Cx<'_>)) {
        let Self { orders: Orders { pair, order, number }, tx, .. } = self;
        let now = pair.now();
        pair.client.with_app(now, |_, cx| {
            let (_, rest) = cx.split_tx();
            rest.with_tx(tx, |cx| {
                for _ in 0..BATCH {
                    *number += 1;
                    order.patch(0, &number.to_be_bytes()).expect("it is inside");
                    before(order, cx);
                    fire(order, cx);
                }
            });
        });
    }

    /// The server takes the [`BATCH`] orders. Not measured.
    pub fn settle(&mut self) {
        let Self { orders, tx, nic } = self;
        let mut frames = Vec::new();
        while nic.sq.done() != nic.sq.producer_index() {
            let idx = nic.sq.done();
            let units = usize::from(nic.sq.block(idx)[7] & 0x3f);
            let blocks = units.div_ceil(4) as u16;
            let wqe: Vec<u8> = (0..blocks).flat_map(|block| nic.sq.block(idx.wrapping_add(block))).collect();
            nic.sq.set_done(idx.wrapping_add(blocks));
            // The others do nothing (mlx5.md 2.2, 2.3).
            if wqe[3] == 0x0a {
                let len = usize::from(u16::from_be_bytes([wqe[28], wqe[29]]));
                assert!(len > 0, "it is inline, as the ring has room");
                frames.push(wqe[30..30 + len].to_vec());
            }
            if wqe[11] == 8 {
                nic.cq.complete(0, 0, |cqe| cqe[60..62].copy_from_slice(&idx.to_be_bytes()));
            }
        }
        tx.reap();
        assert_eq!(frames.len(), BATCH, "each order is in the ring, inline");
        let now = orders.pair.now();
        orders.pair.client.with_app(now, |_, cx| {
            for frame in &frames {
                let mbuf = cx.pool.alloc_copy(frame).expect("the pool has more buffers than the window");
                cx.tx.post(mbuf, Offload::NONE).map_err(wirepath::mem::Mbuf::free).expect("the wire has room");
            }
        });
        orders.settle();
    }
}

/// Measured: a price of eight bytes changes, and the order leaves.
#[inline(always)]
pub fn fire(order: &mut PreparedOrder, cx: &mut Cx<'_>) {
    order.patch(16, &cx.now.as_nanos().to_be_bytes()).expect("it is inside");
    assert_eq!(cx.tcp().fire(order), Ok(TcpSent::Posted), "the window is open");
}

/// Measured by itself: an order is preposted into the ring, as an app does in its tick.
#[inline(always)]
pub fn prepost(order: &mut PreparedOrder, cx: &mut Cx<'_>) {
    assert_eq!(cx.tcp().prepost(order), Ok(true), "there is room");
}

impl Default for Mlx5Orders {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Orders {
    fn default() -> Self {
        Self::new()
    }
}
