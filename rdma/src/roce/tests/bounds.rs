//! What a peer, or its silence, cannot make a queue pair do.

use super::pair::Pair;
use crate::roce::*;

#[test]
fn overrun_with_requests_that_wait_flushes_each_once() {
    let config = DeviceConfig { cqes: 2, unacknowledged_packets: 4, ..DeviceConfig::default() };
    let mut pair = Pair::of(&config, |_| ());
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    for wr_id in 0..32 {
        pair.a.post(wr_id, SendOperation::Write(remote), sge);
    }
    pair.run();
    assert_eq!((pair.a.state(), pair.a.completions().len()), (QpState::Err, 2));
    assert_eq!(pair.a.device.counters().cq_overruns, 30, "the others, each once");
}
