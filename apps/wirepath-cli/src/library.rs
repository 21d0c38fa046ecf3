//! Finds the preload library.

use std::env;
use std::path::{Path, PathBuf};

use wirepath::counters::environment;

use crate::obstacle::Obstacle;

const NAME: &str = "libwirepath_preload.so";
/// The variable that names the library at another place.
const VARIABLE: &str = "WIREPATH_PRELOAD";

/// The library: the file that `WIREPATH_PRELOAD` names, otherwise the one beside this program, in
/// `../lib`, or where cargo built it.
pub(crate) fn find() -> Result<PathBuf, Obstacle> {
    if let Some(path) = environment(VARIABLE).map(PathBuf::from) {
        return match path.is_file() {
            true => Ok(std::path::absolute(&path).unwrap_or(path)),
            false => Err(Obstacle::new(
                format!("{VARIABLE} names {}, which is no file", path.display()),
                format!("set it to the path of {NAME}, or unset it"),
            )),
        };
    }
    let folder = env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned())).unwrap_or_default();
    let places = places(&folder);
    let found = places.iter().map(|place| place.join(NAME)).find(|path| path.is_file());
    found.map(|path| path.canonicalize().unwrap_or(path)).ok_or_else(|| {
        Obstacle::new(
            format!("{NAME} is neither in {} nor in {}", folder.display(), places[1].display()),
            format!("build it with `cargo build --release -p wirepath-preload`, or set {VARIABLE} to its path"),
        )
    })
}

/// Beside `target/debug/wirepath` there is `target/debug/libwirepath_preload.so` or, if only the
/// other profile was built, `target/release/libwirepath_preload.so`. A test is one folder deeper.
fn places(folder: &Path) -> [PathBuf; 6] {
    ["", "../lib", "../release", "../debug", "../../release", "../../debug"].map(|place| match place {
        "" => folder.to_owned(),
        place => folder.join(place),
    })
}
