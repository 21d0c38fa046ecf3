//! The list of options of IPv4 and TCP headers (RFC 791 3.1, RFC 9293 3.1): a kind, and for all but
//! two kinds a length and data.

const END: u8 = 0;
pub(super) const NO_OPERATION: u8 = 1;

/// The next option's kind and data. No-operations are skipped. `None` at the end-of-list option and
/// at the last byte; after an error, which is a length that leads out of the list, nothing follows.
#[inline(always)]
pub(super) fn next_option<'a>(rest: &mut &'a [u8]) -> Option<Result<(u8, &'a [u8]), BadLength>> {
    while let [NO_OPERATION, behind @ ..] = *rest {
        *rest = behind;
    }
    let bytes = core::mem::take(rest);
    let &kind = bytes.first()?;
    if kind == END {
        return None;
    }
    // The length includes kind and length bytes, so 0 and 1 are invalid.
    let len = bytes.get(1).map_or(0, |&len| usize::from(len));
    Some(bytes.get(2..len).ok_or(BadLength).map(|data| {
        *rest = &bytes[len..];
        (kind, data)
    }))
}

/// An option's length leads out of the list.
pub(super) struct BadLength;
