//! For tests that run programs on a software ConnectX, or themselves.
//!
//! A test that already runs cannot be put under the preload library. So it starts itself again:
//!
//! ```no_run
//! #[test]
//! fn device_is_found_by_its_name() {
//!     if softhca::testing::is_inside("device_is_found_by_its_name", &["--strict"]) {
//!         // Here `mlx5_0` is there, and libibverbs finds it.
//!     }
//! }
//! ```
//!
//! Others start a program with [`command`], or watch it as a [`Running`] one. Program and library
//! are built by the first that asks: no test target can depend on a library that is only loaded.

mod running;
pub mod testpmd;

pub use running::{Ended, Running};

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Set for a test that runs inside.
const INSIDE: &str = "SOFTHCA_TEST_IS_INSIDE";

/// Whether this process runs inside `softhca run` with these options. Where it does not, starts the
/// test there, shows its output, and fails if it fails; the caller then has nothing left to do.
/// Prints SKIPPED where that is not possible.
///
/// # Panics
/// When the test failed inside.
pub fn is_inside(test: &str, options: &[&str]) -> bool {
    is_inside_under(test, options, &[])
}

/// The same, where the test is started by another program, which may take something away from it:
/// `["setpriv", "--bounding-set", "-net_raw"]`.
///
/// # Panics
/// When the test failed inside.
pub fn is_inside_under(test: &str, options: &[&str], launcher: &[&str]) -> bool {
    if std::env::var_os(INSIDE).is_some_and(|name| name == test) {
        return true;
    }
    match std::env::current_exe().map_err(|error| error.to_string()).and_then(|program| {
        let mut command = command(options)?;
        command
            .args(launcher)
            .arg(program)
            .args(["--exact", test, "--nocapture", "--include-ignored"])
            .env(INSIDE, test);
        command.output().map_err(|error| error.to_string())
    }) {
        Err(why) => println!("SKIPPED {test}: {why}"),
        Ok(output) => show(test, &output),
    }
    false
}

/// Shows the output of a test that was started again by its name.
///
/// # Panics
/// Panics when it failed, or when no test was run, for example because the test was renamed.
pub fn show(test: &str, output: &Output) {
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test} failed where it was started again, see above");
    let is_run = String::from_utf8_lossy(&output.stdout).contains("test result: ok. 1 passed");
    assert!(is_run, "{test} did not run where it was started again: is that its name?");
}

/// `softhca run OPTIONS --`: the program and its arguments are to be added.
///
/// # Errors
/// Why there is no software ConnectX here.
pub fn command(options: &[&str]) -> Result<Command, String> {
    missing().map_or(Ok(()), Err)?;
    let mut command = Command::new(program()?);
    command.arg("run").args(options).arg("--");
    Ok(command)
}

/// Compiles a C program for verbs into `directory`, under a name of this process.
///
/// # Errors
/// There is no compiler, or the header is missing.
///
/// # Panics
/// With the compiler's words, where it does not like the program.
pub fn compiled(source: &str, directory: &str) -> Result<PathBuf, String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        return Err("the headers of verbs are not installed; apt install libibverbs-dev".into());
    }
    let name = format!("program-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let program = Path::new(directory).join(name);
    let mut command = Command::new("cc");
    command.args(["-O1", "-Wall", "-Werror", "-o"]).arg(&program).arg(source).args(["-libverbs", "-ldl"]);
    let output = command.output().map_err(|error| format!("no C compiler: {error}"))?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}

/// The part that this machine lacks, in words that follow `SKIPPED test: `.
pub fn missing() -> Option<String> {
    if !is_root() {
        return Some("only root makes the namespaces of a software ConnectX".into());
    }
    if !has_provider() {
        return Some("rdma-core's mlx5 provider is not installed; apt install rdma-core ibverbs-providers".into());
    }
    None
}

/// Why a foreign program cannot be started, in such words.
pub fn not_installed(program: &str, package: &str) -> Option<String> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_installed = std::env::split_paths(&paths).any(|directory| directory.join(program).exists());
    (!is_installed).then(|| format!("{program} is not installed; apt install {package}"))
}

/// The program `softhca`, with the preload library beside it. Built once a process, by the cargo
/// and with the profile that built the test.
///
/// # Errors
/// There is no cargo.
///
/// # Panics
/// With cargo's words, where it does not compile.
pub fn program() -> Result<&'static Path, String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(build).as_deref().map_err(Clone::clone)
}

fn build() -> Result<PathBuf, String> {
    // target/PROFILE/deps/TEST
    let test = std::env::current_exe().map_err(|error| error.to_string())?;
    let place = test.ancestors().find(|place| place.join("deps").is_dir()).ok_or("a test that cargo did not build")?;
    let (target, profile) = (place.parent().unwrap_or(place), place.file_name().unwrap_or(OsStr::new("debug")));
    let profile = if profile == "debug" { OsStr::new("dev") } else { profile };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "softhca", "-p", "softhca-preload", "--manifest-path", manifest]);
    command.arg("--profile").arg(profile).arg("--target-dir").arg(target);
    let output = command.output().map_err(|error| format!("cargo: {error}"))?;
    // Not a reason to skip a test.
    assert!(output.status.success(), "softhca was not built: {}", String::from_utf8_lossy(&output.stderr));
    Ok(place.join("softhca"))
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective =
        status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1).map(str::to_owned));
    effective.as_deref() == Some("0")
}

/// Whether libmlx5 is in one of its usual places.
pub fn has_provider() -> bool {
    let entries = |directory: &Path| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let libraries = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib64"].map(PathBuf::from);
    let places = libraries.iter().flat_map(|library| [vec![library.clone()], entries(library)].concat());
    let mut found = places.flat_map(|place| entries(&place.join("libibverbs")));
    found.any(|path| path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("libmlx5-rdmav")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::*;

    fn again(test: &str) -> Output {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).output().unwrap()
    }

    #[test]
    fn child() {}

    #[test]
    fn test_that_runs_again_has_passed() {
        show("child", &again("testing::tests::child"));
    }

    #[test]
    #[should_panic(expected = "did not run where it was started again")]
    fn test_that_is_not_there_has_not_passed() {
        show("chidl", &again("testing::tests::chidl"));
    }
}
