//! Where the preload library is, and whether rdma-core is there for it.

use std::path::{Path, PathBuf};

use super::Failure;

const NAME: &str = "libsofthca_preload.so";

/// Beside the program, where an installation and cargo put it; or in `deps`, where cargo puts it
/// first.
pub(super) fn find() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::new(format!("where am I? {error}")))?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    let found = [directory.join(NAME), directory.join("deps").join(NAME)].into_iter().find(|path| path.exists());
    found.ok_or_else(|| {
        let wanted = directory.join(NAME);
        Failure::new(format!("{} is missing: cargo build -p softhca -p softhca-preload", wanted.display()))
    })
}

/// Prints a notice where libmlx5 is in none of its usual places. It may still be in an unusual one.
pub(super) fn look_for_rdma_core() {
    if !softhca::testing::has_provider() {
        eprintln!(
            "softhca: rdma-core's mlx5 provider is not installed, and without it no program finds a device: \
             apt install rdma-core ibverbs-providers"
        );
    }
}
