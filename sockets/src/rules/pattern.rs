//! Names of programs with wildcards, as fnmatch(3) without flags matches them: `*`, `?`, `[a-z]`,
//! `[!a-z]`, and a backslash before a character that is meant literally.

/// Whether `pattern` matches all of `name`. Makes no allocation; in the worst case takes time
/// proportional to the product of the two lengths.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // The pattern after the last `*`, and the part of the name that this `*` has not matched yet.
    let mut retry: Option<(&str, &str)> = None;
    loop {
        if let Some(behind) = pattern.strip_prefix('*') {
            retry = Some((behind, name));
            pattern = behind;
            continue;
        }
        let mut letters = name.chars();
        match letters.next() {
            None if pattern.is_empty() => return true,
            None => return false,
            Some(letter) => {
                if let Some(behind) = one(pattern, letter) {
                    (pattern, name) = (behind, letters.as_str());
                    continue;
                }
            }
        }
        // The last `*` takes one character more.
        let Some((behind, rest)) = retry else { return false };
        let mut letters = rest.chars();
        if letters.next().is_none() {
            return false;
        }
        (pattern, name) = (behind, letters.as_str());
        retry = Some((behind, name));
    }
}

/// The rest of `pattern` after its first element, where `letter` matches that element.
fn one(pattern: &str, letter: char) -> Option<&str> {
    let mut rest = pattern.chars();
    match rest.next()? {
        '?' => Some(rest.as_str()),
        '[' => match set(rest.as_str(), letter) {
            Some((fits, behind)) => fits.then_some(behind),
            // Without an end it is a character like any other.
            None => (letter == '[').then_some(rest.as_str()),
        },
        '\\' => (rest.next()? == letter).then_some(rest.as_str()),
        other => (other == letter).then_some(rest.as_str()),
    }
}

/// Whether `letter` is in the set that begins after the opening bracket, and the text after the
/// set.
fn set(text: &str, letter: char) -> Option<(bool, &str)> {
    let (negated, mut rest) = match text.strip_prefix(['!', '^']) {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mut fits, mut first) = (false, true);
    loop {
        let mut letters = rest.chars();
        let low = match letters.next()? {
            ']' if !first => return Some((fits != negated, letters.as_str())),
            '\\' => letters.next()?,
            low => low,
        };
        first = false;
        rest = letters.as_str();
        let high = match rest.strip_prefix('-') {
            Some(behind) if !behind.starts_with(']') => {
                let mut letters = behind.chars();
                let high = match letters.next()? {
                    '\\' => letters.next()?,
                    high => high,
                };
                rest = letters.as_str();
                high
            }
            _ => low,
        };
        fits |= (low..=high).contains(&letter);
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn wildcards_match_as_in_the_shell() {
        for (pattern, name) in [
            ("*", ""),
            ("*", "redis-server"),
            ("db2*", "db2"),
            ("db2*", "db2sync"),
            ("t?cp", "ttcp"),
            ("*a*b", "aaxbb"),
            ("**x", "x"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[]x]", "]"),
            ("[a-]", "-"),
            (r"a\*", "a*"),
            ("a[b", "a[b"),
            ("?", "ä"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "x"),
            ("db2*", "db"),
            ("t?cp", "tcp"),
            ("*a*b", "aaxbc"),
            ("[a-c]x", "dx"),
            ("[!a-c]x", "ax"),
            (r"a\*", "ab"),
            ("redis", "redis-server"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
