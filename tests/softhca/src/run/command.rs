//! Starts the command, passes signals on to it, and waits for its end.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use softhca::settings::Settings;

use super::{Failure, displaced, sys};

/// Its exit code: 128 and the signal's number where a signal ended it.
pub(super) fn run(command: &[OsString], library: &Path, settings: &Settings) -> Result<u8, Failure> {
    let [program, arguments @ ..] = command else { return Err(Failure::new("no command: softhca run -- COMMAND")) };
    let mut preload = OsString::from(library);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(program);
    command.args(arguments).envs(settings.variables()).env("LD_PRELOAD", preload);
    // Blocked before there is a child, so that the end of one that ends at once is not missed.
    let signals = sys::Signals::block().map_err(|error| Failure::new(format!("signals: {error}")))?;
    sys::prepare(&mut command, &signals);
    // Behind the signals: its thread is not to get one.
    displaced::watch(library);
    let child = command.spawn().map_err(|error| cannot_start(program, &error))?;
    let status = wait(child, &signals).map_err(|error| Failure::new(format!("waiting for the command: {error}")))?;
    Ok(exit_code(status))
}

fn cannot_start(program: &OsString, error: &io::Error) -> Failure {
    let exit_code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    Failure { sentence: format!("{}: {error}", program.display()), exit_code }
}

fn wait(mut child: Child, signals: &sys::Signals) -> io::Result<ExitStatus> {
    loop {
        match signals.next() {
            sys::Signal::Child => {}
            // A signal of the terminal's goes to every process in front of it.
            sys::Signal::Terminal => {}
            sys::Signal::ToPass(number) => sys::kill(child.id(), number),
        }
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => 128 + signal.unwrap_or(0) as u8,
    }
}
