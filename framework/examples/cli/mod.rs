//! What the command lines of examples have in common: whatever is wrong is said in a sentence.

use std::error::Error;
use std::process::ExitCode;
use std::str::FromStr;

/// How the process ends. `main() -> Result` would print the error as a programmer sees it; the
/// sentences are what an operator can use.
pub(crate) fn exit_code(done: Result<(), Box<dyn Error>>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads an argument; `form` is what it should look like.
pub(crate) fn parse<T: FromStr>(text: &str, form: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not {form}"))
}
