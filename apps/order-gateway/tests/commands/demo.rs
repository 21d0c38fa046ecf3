//! The demo of `make trade`, as a user without privileges has it: both programs on loopback. It is
//! here because it waits for the quiet seconds of a day, as others of these tests wait.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

const NOBODY: u32 = 65_534;

#[test]
fn demo_of_a_user_without_privileges_balances_and_draws_its_latencies() {
    let gateway = Path::new(env!("CARGO_BIN_EXE_order-gateway"));
    let exchange = gateway.with_file_name("exchange-sim");
    if !exchange.exists() {
        println!("SKIPPED demo: {} is not built; `make test` builds it", exchange.display());
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/demo-trade");
    for program in [gateway, &exchange, &script] {
        let copy = directory.path().join(program.file_name().unwrap());
        fs::copy(program, &copy).unwrap();
        fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let demo = directory.path().join("demo-trade");
    let mut command = if rustix::process::geteuid().is_root() {
        chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(demo);
        command
    } else {
        Command::new(demo)
    };
    let ended = command.arg(directory.path()).arg("1").env("WIREPATH_SHM", directory.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("balanced over loopback"), "{said}");
    let table: Vec<_> = said.lines().filter(|line| line.contains(" → ")).collect();
    for stage in ["wire → poll", "poll → decoded", "decoded → decided", "decided → posted", "posted → wire"] {
        assert!(table.iter().any(|row| row.contains(stage) && !row.contains("not available")), "{stage}: {said}");
    }
    let picture = fs::read_to_string(directory.path().join("trade-latency.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("first in burst"), "{picture}");
}
