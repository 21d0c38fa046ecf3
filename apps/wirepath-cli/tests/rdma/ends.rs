//! The ends of a test: the tool in a namespace, and what it says.

use std::process::{Child, Command, Output, Stdio};

use wirepath_tests::live::wait_until;
use wirepath_tests::netns::Namespace;

const WIREPATH: &str = env!("CARGO_BIN_EXE_wirepath");
/// What an end says of packets that were damaged or are of nobody.
pub(crate) const UNDAMAGED: &str = "0 packets with a wrong ICRC, 0 dropped";

/// What a server of a pingpong says whose client has left before its last acknowledgment came.
pub(crate) const UNCERTAIN: &str = "all messages but our last are acknowledged";

/// Starts the tool in a namespace.
pub(crate) fn start(namespace: &Namespace, arguments: &str) -> Child {
    start_under(namespace, &[], arguments)
}

/// The same by a launcher, such as a software ConnectX.
pub(crate) fn start_under(namespace: &Namespace, launcher: &[&str], arguments: &str) -> Child {
    run_in(namespace, &[launcher, &[WIREPATH, "rdma"]].concat(), arguments)
}

/// Starts a program in a namespace, which ends it after two minutes: a peer that waits for ever
/// must fail its test.
pub(crate) fn run_in(namespace: &Namespace, program: &[&str], arguments: &str) -> Child {
    Command::new("ip")
        .args(["netns", "exec", namespace.name(), "timeout", "-s", "INT", "120"])
        .args(program)
        .args(arguments.split(' '))
        // Tests of other subcommands read all counters of this machine.
        .env("WIREPATH_SHM", env!("CARGO_TARGET_TMPDIR"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

pub(crate) fn check(output: &Output, word: &str) {
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains(word), "{said}");
}

/// Waits until somebody in the namespace listens at the exchange's port.
pub(crate) fn wait_for_listener(namespace: &Namespace) {
    wait_until("a listener at the exchange's port", || {
        let listeners = namespace.command("cat", &["/proc/net/tcp"]).unwrap();
        // 18515, and the state of a listener.
        String::from_utf8_lossy(&listeners.stdout).lines().any(|line| line.contains(":4853 ") && line.contains(" 0A "))
    });
}
