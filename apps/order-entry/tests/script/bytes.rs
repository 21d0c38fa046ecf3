//! Bytes in a script.

/// The bytes that `text` describes.
pub(super) fn parse(text: &str) -> Result<Vec<u8>, String> {
    let mut rest = text;
    let bytes = sequence(&mut rest)?;
    if rest.is_empty() { Ok(bytes) } else { Err(format!("unexpected {rest:?}")) }
}

fn sequence(rest: &mut &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    loop {
        *rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('[') {
            *rest = after;
            let inner = sequence(rest)?;
            *rest = rest.strip_prefix(']').ok_or("a [ without ]")?;
            bytes.extend_from_slice(&(inner.len() as u16).to_be_bytes());
            bytes.extend(inner);
        } else if rest.is_empty() || rest.starts_with(']') {
            return Ok(bytes);
        } else if let Some(after) = rest.strip_prefix('"') {
            let (quoted, after) = after.split_once('"').ok_or("a text without its end")?;
            *rest = after;
            bytes.extend_from_slice(quoted.as_bytes());
        } else {
            let end = rest.find([' ', ']', '[']).unwrap_or(rest.len());
            bytes.extend(word(&rest[..end])?);
            *rest = &rest[end..];
        }
    }
}

fn word(word: &str) -> Result<Vec<u8>, String> {
    if let Some((kind, number)) = word.split_once(':') {
        let number: i128 = number.parse().map_err(|_| format!("{word} has no number"))?;
        let len = kind.get(2..).and_then(|bits| bits.parse::<usize>().ok()).unwrap_or(0) / 8;
        let le = number.to_le_bytes();
        let le = le.get(..len).filter(|le| !le.is_empty()).ok_or_else(|| format!("{word} has no width"))?;
        return match &kind[..2] {
            "le" => Ok(le.to_vec()),
            "be" => Ok(le.iter().rev().copied().collect()),
            _ => Err(format!("{word} is neither le nor be")),
        };
    }
    let (hex, count) = word.split_once('*').unwrap_or((word, "1"));
    let byte =
        u8::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 2).ok_or_else(|| format!("{hex} is no byte"))?;
    Ok(vec![byte; count.parse().map_err(|_| format!("{word} has no count"))?])
}

/// Bytes as a failure shows them.
pub(super) fn show(bytes: &[u8]) -> String {
    let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{} = \"{}\"", hex.join(" "), bytes.escape_ascii())
}
