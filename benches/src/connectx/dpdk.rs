//! DPDK's mlx5 driver as a contender: `dpdk.c` runs the same rounds with it. Compiled here, because
//! it needs DPDK's headers.

use std::path::Path;
use std::process::Command;

use crate::measure::outside::{Missing, Subject};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/connectx/dpdk.c");

/// The program on two software NICs, each with a kernel interface, which DPDK requires. Its paths
/// are `rx`, `rx-compressed` and `tx`.
pub(super) fn subject(directory: &Path) -> Result<Subject, Missing> {
    let launcher = softhca::testing::command(&["--manual", "--devices", "2", "--netns"])?;
    let program = compile(directory)?;
    Ok(Subject::new(program).started_by(&launcher))
}

fn compile(directory: &Path) -> Result<std::path::PathBuf, Missing> {
    let program = directory.join("dpdk");
    let mut find = Command::new("pkg-config");
    let flags = output(find.args(["--cflags", "--libs", "libdpdk"]), "apt-get install libdpdk-dev pkgconf")?;
    std::fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-o"]).arg(&program).arg(SOURCE).args(flags.split_whitespace());
    output(&mut compiler, "apt-get install gcc libc6-dev libdpdk-dev")?;
    Ok(program)
}

/// The output of a command; where it fails, the remedy.
fn output(command: &mut Command, remedy: &str) -> Result<String, Missing> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{name} does not start ({error}): {remedy}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{name}: {}: {remedy}", said.lines().next().unwrap_or("failed")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
