//! The output of `--version`: each program's build script, in a clone, in a package and in a
//! tarball.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The build script, and a folder as of a package for it to run in.
struct Script {
    folder: TempDir,
    program: PathBuf,
}

impl Script {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("version");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/version.rs");
        let compiled =
            Command::new("rustc").args(["--edition=2024", "-o"]).arg(&program).arg(&source).status().unwrap();
        assert!(compiled.success());
        let package = folder.path().join("package");
        fs::create_dir(&package).unwrap();
        fs::copy(&source, package.join("build.rs")).unwrap();
        Self { folder, program }
    }

    fn package(&self) -> PathBuf {
        self.folder.path().join("package")
    }

    /// The printed version, and the files that the script wants watched.
    fn run(&self) -> (String, Vec<PathBuf>) {
        let mut command = Command::new(&self.program);
        let output = command.current_dir(self.package()).env("CARGO_PKG_VERSION", "1.2.3").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        let line = |prefix: &'static str| said.lines().filter_map(move |line| line.strip_prefix(prefix));
        let watched = line("cargo:rerun-if-changed=").map(|path| self.package().join(path)).collect();
        (line("cargo:rustc-env=VERSION_AND_COMMIT=").next().unwrap().to_owned(), watched)
    }

    fn git(&self, arguments: &[&str]) -> String {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
        let mut command = Command::new("git");
        let output = command.args(identity).args(arguments).current_dir(self.package()).output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn head(&self) -> String {
        self.git(&["rev-parse", "--short=12", "HEAD"])
    }
}

/// The contents of files, so that a change is noticed for any resolution of the file system's
/// clock.
fn contents(files: &[PathBuf]) -> Vec<Vec<u8>> {
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

#[test]
fn tarball_says_the_version_alone() {
    let script = Script::new();
    let (version, watched) = script.run();
    assert_eq!((&*version, watched), ("1.2.3", vec![script.package().join("build.rs")]));
}

#[test]
fn package_says_the_commit_that_it_was_made_of() {
    let script = Script::new();
    let info = "{\n  \"git\": {\n    \"sha1\": \"0123456789abcdef0123456789abcdef01234567\"\n  },\n  \"path_in_vcs\": \"a\"\n}";
    fs::write(script.package().join(".cargo_vcs_info.json"), info).unwrap();
    assert_eq!(script.run().0, "1.2.3 (0123456789ab)");
    fs::write(script.package().join(".cargo_vcs_info.json"), "{\"git\": {\"sha1\": \"none\"}}").unwrap();
    assert_eq!(script.run().0, "1.2.3");
}

#[test]
fn clone_says_its_head_and_watches_what_moves_with_it() {
    let script = Script::new();
    script.git(&["init", "-q", "-b", "main"]);
    assert_eq!(script.run().0, "1.2.3", "nothing is committed");
    script.git(&["add", "build.rs"]);
    script.git(&["commit", "-q", "-m", "one"]);
    let (version, watched) = script.run();
    assert_eq!(version, format!("1.2.3 ({})", script.head()));

    let before = contents(&watched);
    fs::write(script.package().join("other"), "").unwrap();
    script.git(&["add", "other"]);
    script.git(&["branch", "another"]);
    assert_eq!(contents(&watched), before, "HEAD has not moved");
    script.git(&["commit", "-q", "-m", "two"]);
    assert_ne!(contents(&watched), before, "HEAD has moved");
    assert_eq!(script.run().0, format!("1.2.3 ({})", script.head()));
}

#[test]
fn worktree_without_a_reflog_watches_its_branch() {
    let script = Script::new();
    script.git(&["init", "-q", "-b", "main"]);
    script.git(&["config", "core.logAllRefUpdates", "false"]);
    script.git(&["add", "build.rs"]);
    script.git(&["commit", "-q", "-m", "one"]);
    let (_, watched) = script.run();
    let before = contents(&watched);
    script.git(&["commit", "-q", "--allow-empty", "-m", "two"]);
    assert_ne!(contents(&watched), before);
}

#[test]
fn repository_around_a_tarball_is_somebody_elses() {
    let script = Script::new();
    script.git(&["init", "-q", "-b", "main"]);
    script.git(&["commit", "-q", "--allow-empty", "-m", "of somebody else"]);
    assert_eq!(script.run().0, "1.2.3");
}

#[test]
fn every_program_has_the_script() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for package in ["apps/wirepath-cli", "apps/feed-handler", "apps/exchange-sim", "hugepage-setup", "tests/softhca"] {
        let link = root.join(package).join("build.rs");
        let script = fs::read(root.join("scripts/version.rs")).unwrap();
        assert!(fs::read(&link).unwrap() == script, "{} is not scripts/version.rs", link.display());
    }
}
