//! ibverbs-utils that do more than list devices, which `discovery.rs` tries.

use std::time::Duration;

use crate::stage::{ABIS, Running, ip, is_inside, veth};

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn asyncwatch_hears_of_the_link() {
    if !is_inside("ibverbs_utils::asyncwatch_hears_of_the_link", "ibv_asyncwatch", "ibverbs-utils") {
        return;
    }
    veth();
    for abi in ABIS {
        let mut watch = Running::start(&format!("--abi {abi} --wire veth0"), "ibv_asyncwatch -d mlx5_0");
        let mut heard = vec![watch.says("async event FD", TIMEOUT)];
        for (state, event) in [("down", "PORT_ERR (10), port 1"), ("up", "PORT_ACTIVE (9), port 1")] {
            ip(&format!("link set veth1 {state}"));
            heard.push(watch.says(event, TIMEOUT));
        }
        let said = watch.end(Duration::ZERO).said;
        assert_eq!(heard, [true; 3], "{abi}: {said}");
    }
}
