//! The environment, which is controlled by the user who starts the program.

use std::ffi::OsString;

use crate::sys::process;

/// The value of an environment variable; `None` if it is empty. Also `None` if the program has
/// privileges that the user who set the variable may lack, because the variable could redirect our
/// files and loaded libraries.
pub fn environment(name: &str) -> Option<OsString> {
    if is_privileged() {
        return None;
    }
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Whether the program gained privileges at its start, by setuid, setgid or file capabilities. A
/// service manager that gives capabilities to an ordinary program (`AmbientCapabilities=`) controls
/// its environment, too.
pub(crate) fn is_privileged() -> bool {
    process::is_privileged()
}
