//! Sizes in human notation: `512M`, `1G`, `2 MiB`. Units are powers of two, as in the kernel's own
//! options.

use std::fmt;

/// Parses a size in bytes: a whole number and K, M, G or T (with or without `B` or `iB`), or plain
/// bytes.
///
/// # Errors
/// Names the error in the text and shows a valid example.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let error = |fault| SizeError { text: text.to_owned(), fault };
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    if number.is_empty() {
        return Err(error(SizeFault::NoNumber));
    }
    if unit.starts_with(['.', ',']) {
        return Err(error(SizeFault::Fraction));
    }
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(error(SizeFault::Unit)),
    };
    let number: u64 = number.parse().map_err(|_| error(SizeFault::TooLarge))?;
    number.checked_mul(1 << shift).ok_or_else(|| error(SizeFault::TooLarge))
}

/// Formats a size for people: the largest unit that leaves a whole number, else one digit after the
/// point.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let Some((unit, scale)) = UNITS.into_iter().find(|(_, scale)| bytes >= *scale) else {
        return format!("{bytes} B");
    };
    if bytes.is_multiple_of(scale) {
        return format!("{} {unit}", bytes / scale);
    }
    format!("{:.1} {unit}", bytes as f64 / scale as f64)
}

/// Formats a page size as in the options of this tool, of the kernel and of its file names: `2M`,
/// `1G`, `64K`.
pub(crate) fn format_option(page_size: u64) -> String {
    format_size(page_size).replace(' ', "").replace("iB", "")
}

/// A size that could not be parsed, with the original text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeError {
    text: String,
    fault: SizeFault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SizeFault {
    NoNumber,
    Fraction,
    Unit,
    TooLarge,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.fault {
            SizeFault::NoNumber => "does not begin with a number",
            SizeFault::Fraction => "is not a whole number (write 512M for half a GiB)",
            SizeFault::Unit => "has a unit that is none of K, M, G, T",
            SizeFault::TooLarge => "is larger than any memory (it passes 2^64 bytes)",
        };
        write!(f, "size \"{}\" {why}; a good one is 512M or 1G", self.text)
    }
}

impl std::error::Error for SizeError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses(text: &str, fault: SizeFault) {
        assert_eq!(parse_size(text), Err(SizeError { text: text.to_owned(), fault }));
    }

    #[test]
    fn bad_sizes_are_refused_by_reason() {
        refuses("", SizeFault::NoNumber);
        refuses("M", SizeFault::NoNumber);
        refuses("-1M", SizeFault::NoNumber);
        refuses("0.5G", SizeFault::Fraction);
        refuses("12Q", SizeFault::Unit);
        refuses("1M2", SizeFault::Unit);
        refuses("99999999999999999999", SizeFault::TooLarge);
        refuses("18014398509481984K", SizeFault::TooLarge);
    }

    #[test]
    fn units_are_powers_of_two() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("2048k", 2 << 20), ("512M", 512 << 20), (" 1 GiB ", 1 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn sizes_are_written_in_their_largest_unit() {
        for (bytes, text) in [(0, "0 B"), (2 << 20, "2 MiB"), (1 << 30, "1 GiB"), (3 << 29, "1.5 GiB")] {
            assert_eq!(format_size(bytes), text);
        }
    }
}
