//! Structs as the kernel's ABI lays them out: fields in host byte order, one after the other,
//! without gaps.
//!
//! [`layouts!`] declares such structs under the names that the kernel's headers give them and their
//! fields. They are read from any number of bytes: missing bytes are zero, as the kernel fills up a
//! request of an older client; further bytes are ignored. Tests compare the declarations with the
//! headers.

/// Something with a fixed length in a frame.
pub(in crate::uverbs) trait Layout: Sized {
    /// Bytes.
    const LEN: usize;

    /// The value that stands at the beginning of `bytes`; zeros where they end early.
    fn read(bytes: &[u8]) -> Self;

    /// Appends the value.
    fn write(&self, into: &mut Vec<u8>);

    /// The value alone.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::LEN);
        self.write(&mut bytes);
        bytes
    }
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Layout for $integer {
            const LEN: usize = size_of::<Self>();

            fn read(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(Layout::read(bytes))
            }

            fn write(&self, into: &mut Vec<u8>) {
                into.extend_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, i32);

impl<const LEN: usize> Layout for [u8; LEN] {
    const LEN: usize = LEN;

    fn read(bytes: &[u8]) -> Self {
        let mut value = [0; LEN];
        let len = LEN.min(bytes.len());
        value[..len].copy_from_slice(&bytes[..len]);
        value
    }

    fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self);
    }
}

/// The value at `at`, even if there are too few bytes.
pub(in crate::uverbs) fn read_at<T: Layout>(bytes: &[u8], at: usize) -> T {
    T::read(bytes.get(at..).unwrap_or_default())
}

/// Declares structs of the kernel's ABI. In tests, `declared()` lists them with the places of their
/// fields.
macro_rules! layouts {
    ($(
        $(#[$about:meta])*
        struct $name:ident = $c_name:ident { $($field:ident: $kind:ty),* $(,)? }
    )*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub(in crate::uverbs) struct $name {
                $(pub(in crate::uverbs) $field: $kind,)*
            }

            impl $crate::uverbs::abi::layout::Layout for $name {
                const LEN: usize = 0 $(+ <$kind as $crate::uverbs::abi::layout::Layout>::LEN)*;

                #[allow(unused_assignments)] // the place behind the last field is not read
                fn read(bytes: &[u8]) -> Self {
                    let mut at = 0;
                    $(
                        let $field = $crate::uverbs::abi::layout::read_at::<$kind>(bytes, at);
                        at += <$kind as $crate::uverbs::abi::layout::Layout>::LEN;
                    )*
                    Self { $($field),* }
                }

                fn write(&self, into: &mut Vec<u8>) {
                    $($crate::uverbs::abi::layout::Layout::write(&self.$field, into);)*
                }
            }

            impl Default for $name {
                fn default() -> Self {
                    $crate::uverbs::abi::layout::Layout::read(&[])
                }
            }
        )*

        /// Name of the struct, its length, and its fields with their places and lengths.
        #[cfg(test)]
        pub(in crate::uverbs) fn declared() -> Vec<(&'static str, usize, Vec<(&'static str, usize, usize)>)> {
            use $crate::uverbs::abi::layout::Layout;
            vec![$({
                let lens = [$((stringify!($field), <$kind as Layout>::LEN)),*];
                let mut end = 0;
                let fields = lens.map(|(field, len)| { end += len; (field, end - len, len) });
                (stringify!($c_name), <$name as Layout>::LEN, fields.to_vec())
            }),*]
        }
    };
}

pub(super) use layouts;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use std::fmt::Write as _;
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;
    use crate::uverbs::abi::{mlx5, verbs};

    #[test]
    fn missing_bytes_are_zeros_and_more_are_left_alone() {
        assert_eq!(u32::read(&[]), 0);
        assert_eq!(u32::read(&0x1234_u16.to_ne_bytes()).to_ne_bytes()[..2], 0x1234_u16.to_ne_bytes());
        assert_eq!(u16::read(&[1, 0, 255]), u16::from_ne_bytes([1, 0]));
        assert_eq!(read_at::<u64>(&[1, 2, 3], 7), 0);
    }

    proptest! {
        #[test]
        fn what_was_read_is_written_again(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let request = verbs::RegMr::read(&bytes);
            let mut padded = bytes.clone();
            padded.resize(padded.len().max(verbs::RegMr::LEN), 0);
            prop_assert_eq!(request.bytes(), &padded[..verbs::RegMr::LEN]);
        }
    }

    /// Asks the C compiler whether every struct and field lies where the kernel's headers put it.
    #[test]
    fn every_struct_lies_as_the_kernel_headers_say() {
        let mut source = String::from("#include <stddef.h>\n#include <stdint.h>\n");
        for header in ["ib_user_verbs.h", "ib_user_ioctl_verbs.h", "rdma_user_ioctl_cmds.h", "mlx5-abi.h"] {
            writeln!(source, "#include <rdma/{header}>").unwrap();
        }
        for (name, len, fields) in [verbs::declared(), mlx5::declared()].concat() {
            writeln!(source, "_Static_assert(sizeof(struct {name}) == {len}, \"{name}\");").unwrap();
            for (field, at, len) in fields {
                let field = field.trim_end_matches('_'); // `type` is a word of Rust
                let what = format!("{name}.{field}");
                writeln!(source, "_Static_assert(offsetof(struct {name}, {field}) == {at}, \"{what}\");").unwrap();
                writeln!(source, "_Static_assert(sizeof(((struct {name} *)0)->{field}) == {len}, \"{what}\");")
                    .unwrap();
            }
        }
        let compiler = Command::new("cc")
            .args(["-x", "c", "-fsyntax-only", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut compiler) = compiler else {
            println!("SKIPPED: there is no C compiler to compare the ABI with the kernel's headers");
            return;
        };
        std::io::Write::write_all(&mut compiler.stdin.take().unwrap(), source.as_bytes()).unwrap();
        let output = compiler.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("No such file or directory") {
            println!("SKIPPED: the kernel's headers are not installed (apt install linux-libc-dev)");
            return;
        }
        assert!(output.status.success(), "{errors}");
    }
}
