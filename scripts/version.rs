//! The build script of each program: it makes `--version` print the commit that was built, as
//! `0.1.0 (3b7b8f0a1b2c)`.
//!
//! In a clone git supplies the commit, in a `cargo package` `.cargo_vcs_info.json` does. A tarball
//! has neither, and its programs print the version alone. Uncommitted changes do not show. The
//! packages link to this one file, and `cargo package` puts a copy where the link was.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Digits of a commit: enough to identify it in any repository.
const DIGITS: usize = 12;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    match packaged_commit().or_else(checked_out_commit) {
        Some(commit) => println!("cargo:rustc-env=VERSION_AND_COMMIT={version} ({commit})"),
        None => println!("cargo:rustc-env=VERSION_AND_COMMIT={version}"),
    }
}

/// The commit that `cargo package` recorded: `{"git": {"sha1": "…"}, …}`.
fn packaged_commit() -> Option<String> {
    let info = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, behind) = info.split_once("\"sha1\"")?;
    let digits = behind.trim_start_matches([':', ' ', '"']);
    digits.get(..DIGITS).filter(|commit| commit.bytes().all(|byte| byte.is_ascii_hexdigit())).map(str::to_owned)
}

/// The commit that is checked out. `None` where the source tree is not this repository, for example
/// a tarball that was unpacked inside another one.
fn checked_out_commit() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let commit = git(&["rev-parse", "--verify", &format!("--short={DIGITS}"), "HEAD"])?;
    watch_head();
    Some(commit)
}

/// Makes cargo run this script again when HEAD moves. Git appends each move to HEAD's reflog. Where
/// there is no reflog, the branch's file changes, or appears if the branch was packed.
fn watch_head() {
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]).unwrap_or_default();
    let moves = ["logs/HEAD", &branch, "refs/heads"].into_iter().filter(|name| !name.is_empty()).find_map(git_path);
    for path in git_path("HEAD").into_iter().chain(moves) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}

/// The path of git's file `name`, also in a worktree. A path that does not exist would make cargo
/// run this script each time.
fn git_path(name: &str) -> Option<PathBuf> {
    git(&["rev-parse", "--git-path", name]).map(PathBuf::from).filter(|path| Path::exists(path))
}

/// The output of git; `None` where there is no git, no repository, or a repository whose owner git
/// does not trust.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}
