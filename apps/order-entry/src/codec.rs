//! The macros that declare messages and their codes.

/// Declares messages as structures over their bytes, each checked at compile time against the
/// length in the specification. `skip` is how many bytes of that length are not in the structure,
/// such as a type byte.
macro_rules! layouts {
    (skip $skip:literal, kind $kind_type:ty; $(
        $(#[$doc:meta])*
        $kind:literal $name:ident $len:literal { $($(#[$field_doc:meta])* $field:ident: $field_type:ty,)* }
    )*) => { $(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
            zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $field_type,)*
        }

        impl $name {
            /// The type on the wire.
            pub const KIND: $kind_type = $kind;
            /// Bytes in the specification.
            pub const LEN: usize = $len;
        }

        const _: () = assert!(
            size_of::<$name>() + $skip == $len,
            "the layout has another length than the specification",
        );
    )* };
}

/// Declares the codes of a field of one byte, or of a `u16`: a number whose known values have
/// names. Others are kept as they are, because venues add codes.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident: u8; $($code:ident = $value:literal $text:literal,)*) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
            zerocopy::Unaligned,
        )]
        #[repr(transparent)]
        pub struct $name(pub u8);

        $crate::codec::codes!(@names $name: u8; $($code = $value $text,)*);

        impl core::fmt::Display for $name {
            /// The name, or the escaped byte.
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "code '{}'", self.0.escape_ascii()),
                }
            }
        }
    };
    ($(#[$doc:meta])* $name:ident: u16; $($code:ident = $value:literal $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u16);

        $crate::codec::codes!(@names $name: u16; $($code = $value $text,)*);

        impl core::fmt::Display for $name {
            /// The name, or the number.
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "code {:#x}", self.0),
                }
            }
        }
    };
    (@names $name:ident: $number:ty; $($code:ident = $value:literal $text:literal,)*) => {
        impl $name {
            $(
                #[doc = concat!("`", stringify!($value), "`: ", $text, ".")]
                pub const $code: Self = Self($value);
            )*

            /// The codes that have a name.
            pub const ALL: &'static [Self] = &[$(Self($value)),*];

            /// What the code means; `None` where it is none of the specification.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}

pub(crate) use {codes, layouts};
