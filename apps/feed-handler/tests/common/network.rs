//! A network of our own: the test runs again in a namespace with a veth, whose one end the handler
//! polls and whose other end the exchange sends from. Servers are at the loopback address.

use std::process::Command;

/// The end that the handler polls.
pub(crate) const PORT: &str = "veth0";
/// The end that the exchange sends from.
pub(crate) const EXCHANGE: &str = "veth1";
const INSIDE: &str = "WIREPATH_TEST_NETWORK";

/// True within the namespace. Outside, runs `test` there and reports its outcome, or says why it
/// cannot.
pub(crate) fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        for arguments in [
            "link set lo up",
            "link add veth0 type veth peer name veth1",
            "address add 10.77.0.1/24 dev veth1",
            "link set veth1 up",
            "link set veth0 up",
            "route add 233.252.0.0/24 dev veth1",
            "route add 239.0.0.0/8 dev lo",
        ] {
            let done = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2");
            assert!(done.success(), "ip {arguments}");
        }
        return true;
    }
    let can = Command::new("unshare").args(["--net", "true"]).status();
    if !can.is_ok_and(|status| status.success()) {
        println!("SKIPPED {test}: no network namespace (unshare --net); run as root");
        return false;
    }
    let outcome = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().expect("our own path"))
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .expect("unshare");
    assert!(outcome.success(), "in the namespace, see above");
    false
}
