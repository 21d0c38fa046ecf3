//! DPDK's mlx5 driver as a contender: `dpdk.c` runs the same rounds with it. Compiled here, because
//! it needs DPDK's headers.

use std::path::Path;
use std::process::Command;

use crate::measure::outside::{Missing, Subject, output};

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
