//! What is wrong with a file, and where.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use crate::error::Error;

/// The position and description of an error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The bytes of the file.
    pub at: Range<usize>,
    /// A sentence.
    pub what: String,
}

impl ConfigProblem {
    pub(super) fn new(at: Range<usize>, what: impl fmt::Display) -> Self {
        Self { at, what: what.to_string() }
    }

    /// What the parser says of a text that it cannot read.
    pub(super) fn of_parser(error: &toml::de::Error) -> Self {
        Self::new(error.span().unwrap_or(0..0), in_words(error.message()))
    }

    /// The sentence for the operator, of a file with this text.
    pub(super) fn told(&self, path: &Path, text: &str) -> Error {
        let (line, column) = line_and_column(text, self.at.start);
        let key = key_of(text, self.at.start).map(|key| format!(", {key}")).unwrap_or_default();
        Error::Usage(format!("{} line {line}, column {column}{key}: {}", path.display(), self.what))
    }
}

/// The parser's message, without the names of Rust's types.
fn in_words(message: &str) -> String {
    let number =
        ["i64", "u32", "u64", "usize"].iter().find_map(|name| message.strip_suffix(&format!("expected {name}")));
    number.map_or_else(|| message.trim_end().to_owned(), |before| format!("{before}expected a whole number, 0 or more"))
}

/// The key whose value is at this position; `None` where a key or a section is there itself.
pub(super) fn key_of(text: &str, at: usize) -> Option<&str> {
    let (before, value) = text.get(..at)?.rsplit_once('=')?;
    let is_in_key = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let rest = &text[at..];
    if rest.starts_with('[') && value.trim_end_matches(' ').ends_with('\n') {
        return None;
    }
    let is_key_itself = rest.trim_start_matches(is_in_key).trim_start().starts_with('=');
    let key = before.trim_end().rsplit(|c| !is_in_key(c)).next()?;
    (!key.is_empty() && !is_key_itself).then_some(key)
}

/// Counted from 1, as editors do; columns are characters.
pub(super) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
