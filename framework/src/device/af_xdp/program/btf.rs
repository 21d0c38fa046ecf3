//! The kernel's description of its own types (Documentation/bpf/btf.rst), parsed as far as needed
//! to find a function by its name: a program calls a kernel function by its BTF id.
//!
//! ```text
//!  header | types: name, kind, size, and what the kind adds ... | strings, each with a zero at its end
//! ```
//!
//! Types are numbered in order, from 1 on, and have different lengths, so a search reads all types
//! before the one it wants. The file is untrusted input: the parser reads no byte outside it, and
//! an unknown kind ends the search.

use core::fmt;

/// The path on a kernel with CONFIG_DEBUG_INFO_BTF.
pub(crate) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
/// Bytes of `struct btf_header`; later ones may be longer.
const HEADER_LEN: usize = 24;
/// Bytes of `struct btf_type`.
const TYPE_LEN: usize = 12;
const KIND_FUNC: u32 = 12;

/// The types of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

/// Why a search failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BtfError {
    /// The file has no BTF header.
    NotBtf,
    /// A part of the file lies outside it.
    Truncated,
    /// A kind of type that this parser does not know, so the types after it cannot be found.
    UnknownKind(u32),
}

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBtf => f.write_str("it is not BTF"),
            Self::Truncated => f.write_str("it is cut short"),
            Self::UnknownKind(kind) => write!(f, "it has types of the unknown kind {kind}"),
        }
    }
}

impl<'a> Btf<'a> {
    /// Locates the types and the strings.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        if u16_at(bytes, 0) != Some(MAGIC) || bytes.get(2) != Some(&VERSION) {
            return Err(BtfError::NotBtf);
        }
        let field = |at| u32_at(bytes, at).ok_or(BtfError::Truncated);
        let header_len = field(4)? as usize;
        if header_len < HEADER_LEN {
            return Err(BtfError::NotBtf);
        }
        let body = bytes.get(header_len..).ok_or(BtfError::Truncated)?;
        let part = |offset: u32, len: u32| {
            let end = (offset as usize).checked_add(len as usize)?;
            body.get(offset as usize..end)
        };
        let types = part(field(8)?, field(12)?).ok_or(BtfError::Truncated)?;
        let strings = part(field(16)?, field(20)?).ok_or(BtfError::Truncated)?;
        Ok(Self { types, strings })
    }

    /// The ids of the functions with these names, in one pass over all types, which takes some
    /// milliseconds for a kernel.
    pub(crate) fn functions<const N: usize>(&self, names: [&str; N]) -> Result<[Option<u32>; N], BtfError> {
        let mut found = [None; N];
        let (mut rest, mut id) = (self.types, 0u32);
        while !rest.is_empty() && found.contains(&None) {
            id += 1;
            let field = |at| u32_at(rest, at).ok_or(BtfError::Truncated);
            let (name, info) = (field(0)?, field(4)?);
            let (kind, count) = (info >> 24 & 0x1f, info as usize & 0xffff);
            if kind == KIND_FUNC {
                for (function, wanted) in found.iter_mut().zip(names) {
                    if function.is_none() && self.is_name(name, wanted) {
                        *function = Some(id);
                    }
                }
            }
            let len = TYPE_LEN + added_len(kind, count).ok_or(BtfError::UnknownKind(kind))?;
            rest = rest.get(len..).ok_or(BtfError::Truncated)?;
        }
        Ok(found)
    }

    /// Whether the string at `offset` is `wanted`.
    fn is_name(&self, offset: u32, wanted: &str) -> bool {
        let Some(text) = self.strings.get(offset as usize..) else { return false };
        text.strip_prefix(wanted.as_bytes()).and_then(<[u8]>::first) == Some(&0)
    }
}

/// Bytes that follow a type of this kind with `count` members (linux/btf.h).
fn added_len(kind: u32, count: usize) -> Option<usize> {
    match kind {
        // INT, VAR, DECL_TAG
        1 | 14 | 17 => Some(4),
        // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
        2 | 7..=KIND_FUNC | 16 | 18 => Some(0),
        // ARRAY
        3 => Some(12),
        // STRUCT, UNION, DATASEC, ENUM64
        4 | 5 | 15 | 19 => Some(count * 12),
        // ENUM, FUNC_PROTO
        6 | 13 => Some(count * 8),
        _ => None,
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STRINGS: &[u8] = b"\0int\0wanted\0wanted_too\0other\0";
    const WANTED: u32 = 5;
    const WANTED_TOO: u32 = 12;

    fn add(types: &mut Vec<u8>, words: &[u32]) {
        types.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    }

    fn kind(kind: u32, count: u32) -> u32 {
        kind << 24 | count
    }

    fn file(types: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes[..2].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[2] = VERSION;
        add(&mut bytes, &[HEADER_LEN as u32, 0, types.len() as u32, types.len() as u32, STRINGS.len() as u32]);
        [&bytes, types, STRINGS].concat()
    }

    /// A type of every kind, then a struct that has a wanted name, then the functions, 21 and 22.
    fn whole() -> Vec<u8> {
        let mut types = Vec::new();
        for number in 1..=19 {
            let added = added_len(number, 2).unwrap() / 4;
            let other = if number == KIND_FUNC { WANTED + 18 } else { 1 };
            add(&mut types, &[&[other, kind(number, 2), 7][..], &vec![WANTED; added]].concat());
        }
        add(&mut types, &[WANTED, kind(4, 0), 0]);
        add(&mut types, &[WANTED_TOO, kind(KIND_FUNC, 1), 3]);
        add(&mut types, &[WANTED, kind(KIND_FUNC, 1) | 1 << 31, 3]);
        file(&types)
    }

    fn find(bytes: &[u8]) -> Result<[Option<u32>; 2], BtfError> {
        Btf::parse(bytes)?.functions(["wanted", "wanted_too"])
    }

    #[test]
    fn functions_are_found_behind_types_of_every_kind() {
        assert_eq!(find(&whole()), Ok([Some(22), Some(21)]));
        assert_eq!(Btf::parse(&whole()).unwrap().functions(["want"]), Ok([None]));
        assert_eq!(Btf::parse(&whole()).unwrap().functions(["int"]), Ok([None]), "a name of other kinds only");
    }

    #[test]
    fn every_cut_is_refused() {
        let whole = whole();
        for len in 0..whole.len() {
            let expected = if len < 3 { BtfError::NotBtf } else { BtfError::Truncated };
            assert_eq!(find(&whole[..len]), Err(expected), "{len} bytes");
        }
    }

    #[test]
    fn parts_outside_the_file_are_refused() {
        for at in [4, 8, 12, 16, 20] {
            let mut bytes = whole();
            bytes[at..at + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
            assert_eq!(find(&bytes), Err(BtfError::Truncated), "{at}");
        }
        let mut bytes = whole();
        bytes[4..8].copy_from_slice(&23u32.to_ne_bytes());
        assert_eq!(find(&bytes), Err(BtfError::NotBtf), "a header that is too short");
    }

    #[test]
    fn unknown_kind_ends_the_walk_but_not_what_was_found_before() {
        let mut types = Vec::new();
        add(&mut types, &[WANTED, kind(KIND_FUNC, 0), 0, 1, kind(20, 0), 0]);
        let bytes = file(&types);
        assert_eq!(Btf::parse(&bytes).unwrap().functions(["wanted"]), Ok([Some(1)]));
        assert_eq!(find(&bytes), Err(BtfError::UnknownKind(20)));
    }

    #[test]
    fn name_outside_the_strings_is_no_name() {
        let mut types = Vec::new();
        let last = STRINGS.len() as u32;
        for name in [last - 1, last, u32::MAX] {
            add(&mut types, &[name, kind(KIND_FUNC, 0), 0]);
        }
        assert_eq!(find(&file(&types)), Ok([None, None]));
    }

    #[test]
    fn running_kernel_has_the_functions_that_it_exports() {
        let Ok(bytes) = std::fs::read(VMLINUX) else {
            return println!("SKIPPED running_kernel_has_the_functions_that_it_exports: there is no {VMLINUX}");
        };
        // Both are older than BTF itself.
        let found = Btf::parse(&bytes).unwrap().functions(["netif_rx", "ksys_read", "no_such_function_anywhere"]);
        assert!(matches!(found, Ok([Some(_), Some(_), None])), "{found:?}");
    }

    proptest! {
        #[test]
        fn no_bytes_bring_it_down(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
            let mut bytes = whole();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let _ = find(&bytes);
        }
    }
}
