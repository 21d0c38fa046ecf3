//! Where the preload library is, and whether rdma-core is there for it.

use std::fs;
use std::path::{Path, PathBuf};

use super::Failure;

const NAME: &str = "libsofthca_preload.so";

/// Beside the program, where an installation and cargo put it; or in `deps`, where cargo puts it first.
pub(super) fn find() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::new(format!("where am I? {error}")))?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    let found = [directory.join(NAME), directory.join("deps").join(NAME)].into_iter().find(|path| path.exists());
    found.ok_or_else(|| {
        let wanted = directory.join(NAME);
        Failure::new(format!("{} is missing: cargo build -p softhca -p softhca-preload", wanted.display()))
    })
}

/// Says so where libmlx5 is in none of its usual places. It may still be in an unusual one.
pub(super) fn look_for_rdma_core() {
    let is_provider = |name: &str| name.starts_with("libmlx5-rdmav");
    let libraries = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib64"].map(PathBuf::from).into_iter();
    let places = libraries.flat_map(|library| [vec![library.clone()], entries(&library)].concat());
    let found = places.flat_map(|place| entries(&place.join("libibverbs")));
    let mut names = found.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    if !names.any(|name| is_provider(&name)) {
        eprintln!(
            "softhca: rdma-core's mlx5 provider is not installed, and without it no program finds a device: \
                   apt install rdma-core ibverbs-providers"
        );
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).map(|entries| entries.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
}
