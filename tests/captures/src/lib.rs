//! Where tests find captures of real exchanges. The files belong to others, so they are not part of
//! the repository; docs/captures.md describes them.
//!
//! A package of its own, because the tests of every library need it, but not the other code that
//! tests share.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The variable that names their folder; a relative one begins at the root of the repository.
pub const VARIABLE: &str = "WIREPATH_CAPTURES";

/// Where they are looked for without it, from the root of the repository.
const USUAL: &str = "../shared/data";

/// The file of this name. `None` where it is not there, which is said aloud in the name of `test`.
///
/// # Panics
/// [`VARIABLE`] names something that is no folder.
pub fn find(test: &str, name: &str) -> Option<PathBuf> {
    let path = folder(env::var_os(VARIABLE).as_deref()).join(name);
    if path.is_file() {
        return Some(path);
    }
    println!("SKIPPED {test}: {} is not there; docs/captures.md says what it is", path.display());
    None
}

fn folder(named: Option<&OsStr>) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let Some(named) = named.filter(|named| !named.is_empty()) else { return root.join(USUAL) };
    let folder = root.join(named);
    assert!(folder.is_dir(), "{VARIABLE} names {}, which is no folder: docs/captures.md", folder.display());
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_the_one_that_is_named() {
        assert_eq!(folder(Some(OsStr::new("/tmp"))), Path::new("/tmp"));
        assert!(folder(Some(OsStr::new("tests"))).join("captures/Cargo.toml").is_file());
    }

    #[test]
    fn without_a_name_they_lie_beside_the_repository() {
        assert!(folder(None).ends_with("shared/data"));
        assert_eq!(folder(Some(OsStr::new(""))), folder(None));
    }

    #[test]
    #[should_panic(expected = "which is no folder")]
    fn name_of_no_folder_is_refused() {
        folder(Some(OsStr::new("/proc/version")));
    }
}
