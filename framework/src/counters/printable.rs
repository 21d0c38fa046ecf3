//! Untrusted text in a printable form: names in shared files, file names, symbols of a feed.
//!
//! A terminal interprets control characters: a name could clear the screen, set the title or
//! overwrite the line above.

use core::fmt::{self, Display, Write};

/// `text` with every character escaped that a terminal would interpret instead of showing it:
/// `\x1b` for escape, `\n` for a line feed, `\u{202e}` for a mark that reverses the direction of
/// writing. All other characters are unchanged, backslashes too.
pub fn printable<T: Display>(text: T) -> Printable<T> {
    Printable(text)
}

/// A report of several lines, each escaped as by [`printable`].
pub fn printable_lines(report: &str) -> String {
    report.split('\n').map(|line| printable(line).to_string()).collect::<Vec<_>>().join("\n")
}

/// The result of [`printable`], to be formatted.
#[derive(Clone, Copy, Debug)]
pub struct Printable<T>(T);

impl<T: Display> Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, bad)) = rest.char_indices().find(|(_, letter)| is_control(*letter)) {
            self.0.write_str(&rest[..at])?;
            match bad {
                '\n' | '\r' | '\t' => write!(self.0, "{}", bad.escape_default())?,
                '\0'..='\u{ff}' => write!(self.0, "\\x{:02x}", u32::from(bad))?,
                _ => write!(self.0, "{}", bad.escape_unicode())?,
            }
            rest = &rest[at + bad.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// Controls of C0 and C1, and their Unicode counterparts: marks that join, hide or reverse
/// neighboring characters (UTR 36, 2.6), and line separators.
fn is_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        let check = |text: &str, expected: &str| assert_eq!(printable(text).to_string(), expected);
        check("\x1b]0;owned\x07", r"\x1b]0;owned\x07");
        check("\x1b[2J", r"\x1b[2J");
        check("\u{9b}2J", r"\x9b2J");
        check("one\r\ntwo\tthree\0", r"one\r\ntwo\tthree\x00");
        check("a\u{202e}b\u{2066}c\u{feff}", r"a\u{202e}b\u{2066}c\u{feff}");
        check("\x7f", r"\x7f");
    }

    #[test]
    fn what_a_terminal_shows_stays() {
        for text in ["", "AAPL", "Käse µs → ▶ 株", r"C:\path", "a'b\"c"] {
            assert_eq!(printable(text).to_string(), text);
        }
    }

    #[test]
    fn lines_of_a_report_stay_lines() {
        for report in ["", "\n", "one", "one\n\ntwo\n"] {
            assert_eq!(printable_lines(report), report);
        }
        assert_eq!(printable_lines("one\r\x1b[2J\ntwo\n"), "one\\r\\x1b[2J\ntwo\n");
    }

    #[test]
    fn paths_and_numbers_are_printable_too() {
        assert_eq!(printable(std::path::Path::new("/tmp/a\x1bb").display()).to_string(), r"/tmp/a\x1bb");
        assert_eq!(printable(7).to_string(), "7");
    }
}
