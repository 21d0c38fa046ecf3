//! The form of every error of this floor: a `Copy` enum whose variants are reasons with fixed
//! words.

/// Declares an error enum: each variant has the words that name it in a counter and in a message.
macro_rules! reasons {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident => $words:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $name {
            /// Every reason in the order of declaration, which is the order of `self as usize`.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The reason in fixed words, for counters and messages.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $words,)+
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl core::error::Error for $name {}
    };
}

/// Declares the reasons for which a machine of `proto` drops: an enum whose variants have the names
/// by which the node above counts them.
macro_rules! drop_list {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident => $text:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $(
                $(#[$variant_meta])*
                #[doc = concat!("\n\nCounted as `drop/", $text, "`.")]
                $variant,
            )+
        }

        impl $name {
            /// The counters' names, in the order of declaration, which is that of `self as usize`.
            pub const COUNTED_AS: &'static [&'static str] = &[$($text),+];
        }
    };
}
pub(crate) use drop_list;
