//! A stage for foreign programs: a network namespace with a veth in it.

use std::process::Command;
use std::sync::{Mutex, PoisonError};

use softhca::testing;
pub(crate) use softhca::testing::{Ended, Running};

/// Both ABIs of the kernel, as `softhca run --abi` names them.
pub(crate) const ABIS: [&str; 2] = ["ioctl", "write"];

/// Starts this test again in a new network namespace; `true` inside it. Outside, the test ends
/// after this returns. Prints SKIPPED where the program or something that it needs is missing.
pub(crate) fn is_inside(test: &str, program: &str, package: &str) -> bool {
    const INSIDE: &str = "SOFTHCA_TEST_STAGE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if let Some(why) = testing::not_installed(program, package).or_else(testing::missing) {
        println!("SKIPPED {test}: {why}");
        return false;
    }
    // Programs that poll leave no processor for those of another test.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // Sysfs shows the interfaces of the namespace that it was mounted in.
    let inside = "mount -t sysfs sysfs /sys && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--", "sh", "-c", inside]).arg(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1").output().unwrap();
    testing::show(test, &output);
    false
}

/// A veth pair that is up and carries no other traffic: veth0 and veth1, with the addresses in
/// [`MACS`].
pub(crate) fn veth() {
    for scope in ["all", "default"] {
        // A kernel without IPv6 is quiet anyway.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
    }
    let [here, there] = MACS;
    ip("link set lo up");
    ip(&format!("link add veth0 address {here} type veth peer name veth1 address {there}"));
    ip("link set veth0 up");
    ip("link set veth1 up");
}

/// The addresses of veth0 and veth1.
pub(crate) const MACS: [&str; 2] = ["02:00:00:00:00:a0", "02:00:00:00:00:a1"];

/// Runs `ip` in this namespace.
pub(crate) fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}
