//! A stage for foreign programs: a network namespace with a veth in it, and programs under `softhca run` that are watched
//! while they run.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use softhca::testing;

/// Both of the kernel's interfaces, as `softhca run --abi` names them.
pub(crate) const ABIS: [&str; 2] = ["ioctl", "write"];

/// Starts this test again in a network namespace of its own: `true` inside it. Outside, the test is over with the return. Says
/// SKIPPED where the program or something that it needs is not there.
pub(crate) fn is_inside(test: &str, program: &str, package: &str) -> bool {
    const INSIDE: &str = "SOFTHCA_TEST_STAGE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_installed = std::env::split_paths(&paths).any(|directory| directory.join(program).exists());
    let missing = (!is_installed).then(|| format!("{program} is not installed; apt install {package}"));
    if let Some(why) = missing.or_else(testing::missing) {
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
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test} failed inside its namespace, see above");
    false
}

/// A veth pair that is up and silent: veth0 and veth1, with the addresses that [`MACS`] says.
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

/// Of veth0 and veth1.
pub(crate) const MACS: [&str; 2] = ["02:00:00:00:00:a0", "02:00:00:00:00:a1"];

/// Runs `ip` in this namespace.
pub(crate) fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A program that runs.
pub(crate) struct Running {
    child: Child,
    said: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

/// What a program said and how it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its exit code; `None` where it took too long and was killed.
    pub(crate) code: Option<i32>,
    /// What it wrote, both outputs as they came.
    pub(crate) said: String,
}

impl Running {
    /// Starts a command line, words by single spaces, under `softhca run OPTIONS`. What it says is seen line by line.
    pub(crate) fn start(options: &str, command_line: &str) -> Self {
        let mut command = testing::command(&options.split(' ').collect::<Vec<_>>()).unwrap();
        if Path::new("/usr/bin/stdbuf").exists() {
            command.args(["stdbuf", "-oL"]);
        }
        command.args(command_line.split(' '));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::default();
        let readers = vec![
            collect(child.stdout.take().unwrap(), Arc::clone(&said)),
            collect(child.stderr.take().unwrap(), Arc::clone(&said)),
        ];
        Self { child, said, readers }
    }

    /// Waits until it has said something: `false` where it ended without, or takes too long.
    pub(crate) fn says(&mut self, text: &str, patience: Duration) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < patience {
            let is_over = self.child.try_wait().unwrap().is_some();
            if self.said.lock().unwrap().contains(text) {
                return true;
            }
            if is_over {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Whether it has not ended by itself.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Asks it to end, as the terminal's ^C does.
    pub(crate) fn interrupt(&self) {
        Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
    }

    /// Waits for its end, and ends it where it takes too long.
    pub(crate) fn end(mut self, patience: Duration) -> Ended {
        let begin = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            if begin.elapsed() > patience {
                // The command dies with the program that started it.
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                break None;
            }
            thread::sleep(Duration::from_millis(10));
        };
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        let said = self.said.lock().unwrap().clone();
        Ended { code, said }
    }
}

fn collect(mut from: impl Read + Send + 'static, into: Arc<Mutex<String>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
    })
}
