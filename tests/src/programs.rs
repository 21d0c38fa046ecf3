//! Copies of programs that a test starts.

use std::path::Path;
use std::process::Command;

/// Copies a program by a process of its own. A copy that this process wrote could not be started
/// now and then ("text file busy"): a child that another test starts meanwhile has the descriptor
/// that writes it until its `exec`.
///
/// # Panics
/// With the words of cp, where it fails.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let output = Command::new("cp").args([from.as_ref(), to.as_ref()]).output().expect("cp is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
