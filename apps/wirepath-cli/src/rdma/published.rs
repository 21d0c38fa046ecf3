//! What `wirepath stats` shows of an end without a port: what carries its queue pair, and in
//! software its counters. Those of a port are the port's.

use ::rdma::port::DeviceRows;
use ::rdma::roce::Device;
use wirepath::counters::{Block, Scope};
use wirepath::time::Instant;

/// The published counters of an end.
pub(super) struct Published {
    rows: DeviceRows,
    block: Block,
}

impl Published {
    /// Publishes by the name of the carrier; `None` where other processes cannot read it, which is
    /// said.
    pub(super) fn create(carrier: &str) -> Option<Self> {
        let published = Block::create("rdma").map(|block| Self::over(block, carrier));
        let complete = published.and_then(|published| published.block.check().map(|()| published));
        complete.inspect_err(|error| eprintln!("wirepath: no counters: {error}")).ok()
    }

    fn over(block: Block, carrier: &str) -> Self {
        let scope = block.scope("rdma");
        name_carrier(&scope, carrier);
        Self { rows: DeviceRows::new(&scope, 1), block }
    }

    /// Publishes what the device has counted, if it is time.
    pub(super) fn publish(&mut self, now: u64, device: &Device) {
        self.rows.publish(Instant::from_nanos(now), device);
    }
}

/// Names what carries the queue pair of an end, in the scope of its device.
pub(super) fn name_carrier(scope: &Scope, carrier: &str) {
    scope.scope("qp0").text("carrier", carrier);
}

#[cfg(test)]
mod tests {
    use ::rdma::roce::DeviceConfig;

    use super::*;

    #[test]
    fn carrier_is_named_beside_the_counters_of_its_queue_pair() {
        let mut published = Published::over(Block::heap(), "shared memory");
        published.publish(1, &Device::new(&DeviceConfig::default()));
        let seen = published.block.snapshot();
        assert_eq!(seen.text("rdma/qp0/carrier"), Some("shared memory"));
        assert_eq!((seen.count("rdma/qp0/packets_tx"), seen.count("rdma/packets_rx")), (Some(0), Some(0)));
        assert_eq!(published.block.check(), Ok(()));
    }
}
