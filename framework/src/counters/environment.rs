//! The environment, which belongs to whoever starts the program.

use std::ffi::OsString;

use super::sys;

/// The value of an environment variable; none where it is empty, or where the program has rights
/// that whoever set the variable need not have: it could send our files, and what we load,
/// anywhere.
pub fn environment(name: &str) -> Option<OsString> {
    if is_privileged() {
        return None;
    }
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Whether the program got rights by being started, as one that is setuid, setgid or has
/// capabilities on its file does. A service manager that gives capabilities to an ordinary program
/// (`AmbientCapabilities=`) sets its environment, too.
pub(crate) fn is_privileged() -> bool {
    sys::is_privileged()
}
