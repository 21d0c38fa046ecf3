//! DPDK's testpmd on an AF_XDP port, as a separate process.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use super::pair::{FAR, Pair};

/// Installed by `apt-get install dpdk-dev librte-net-af-xdp23` on Debian 12.
const PROGRAM: &str = "dpdk-testpmd";

/// A testpmd that forwards. It ends when this is dropped.
pub struct Testpmd(Child);

impl Testpmd {
    /// Starts it at the far end of `pair`: its main lcore on the first of `cores`, the forwarding
    /// one on the second.
    ///
    /// # Errors
    /// It is not installed.
    pub fn start(pair: &Pair, cores: [usize; 2]) -> Result<Self, String> {
        let installed = Command::new(PROGRAM).arg("--version").output().is_ok();
        if !installed {
            return Err(format!("{PROGRAM} is missing: apt-get install dpdk-dev librte-net-af-xdp23"));
        }
        let line = command_line(cores);
        let child = Command::new("ip")
            .args(["netns", "exec", pair.far.name()])
            .args(line.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        child.map(Self).map_err(|error| format!("{PROGRAM} does not start: {error}"))
    }
}

/// Its command line. Busy polling is off, because testpmd forwards more without it here: with it,
/// the receiver's system calls poll the veth, which otherwise is work of the sender's core.
pub fn command_line([idle, forwarding]: [usize; 2]) -> String {
    format!(
        "chrt -r 1 {PROGRAM} -l {idle},{forwarding} --main-lcore {idle} --no-huge -m 256 --no-pci --no-shconf --no-telemetry \
         --vdev net_af_xdp0,iface={},busy_budget=0 -- --forward-mode=mac --nb-cores=1 --total-num-mbufs=16384 \
         --auto-start",
        FAR.interface
    )
}

impl Drop for Testpmd {
    /// testpmd waits for a line on its input; when it gets one, it detaches its program from the
    /// interface.
    fn drop(&mut self) {
        if let Some(stdin) = &mut self.0.stdin {
            // A process that has died already is still waited for.
            let _ = stdin.write_all(b"\n");
        }
        let _ = self.0.wait();
    }
}
