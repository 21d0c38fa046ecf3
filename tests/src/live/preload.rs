//! Unmodified programs under the preload library.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::NEAR;

/// The library, built once a process by the cargo and with the profile that built the test.
///
/// # Panics
/// With cargo's words, where it does not compile.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(build)
}

/// A command line that runs `program` under the library: its sockets are ours on [`NEAR`].
pub fn under_library<'a>(program: &'a str, arguments: &[&'a str]) -> Vec<String> {
    let mut line = vec![
        "env".to_owned(),
        format!("LD_PRELOAD={}", library().display()),
        format!("WIREPATH_INTERFACE={NEAR}"),
        program.to_owned(),
    ];
    line.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    line
}

fn build() -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its program");
    let place = test.ancestors().find(|place| place.join("deps").is_dir()).expect("cargo built this test");
    let profile = place.file_name().unwrap_or(OsStr::new("debug"));
    let profile = if profile == "debug" { OsStr::new("dev") } else { profile };
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../preload/Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--manifest-path", manifest]).arg("--profile").arg(profile);
    command.arg("--target-dir").arg(place.parent().unwrap_or(place));
    let output = command.output().expect("cargo runs: it runs this test");
    assert!(output.status.success(), "wirepath-preload was not built: {}", String::from_utf8_lossy(&output.stderr));
    place.join("libwirepath_preload.so")
}
