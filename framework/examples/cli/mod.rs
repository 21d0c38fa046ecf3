//! Shared by the examples: parses the command line, and reports each mistake in one sentence.

use std::error::Error;
use std::process::ExitCode;
use std::str::FromStr;

/// How the process ends. `main() -> Result` would print the error's `Debug` form; an operator needs
/// the sentence.
pub(crate) fn exit_code(done: Result<(), Box<dyn Error>>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads an argument; `form` describes its expected form.
pub(crate) fn parse<T: FromStr>(text: &str, form: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not {form}"))
}
