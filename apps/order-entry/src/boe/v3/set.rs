//! The macro that makes the set of messages of one direction.

/// Declares the set of one direction.
macro_rules! message_set {
    ($(#[$doc:meta])* $set:ident; $($name:ident)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $set<'a> {
            $(
                #[doc = concat!("See [`", stringify!($name), "`].")]
                $name(&'a $name),
            )*
        }

        impl<'a> $set<'a> {
            /// The types and their lengths in bytes, with the header.
            pub const LENGTHS: &'static [(u16, usize)] = &[$(($name::KIND, $name::LEN)),*];

            /// Lays the structure of a message of type `kind` over its body. Returns with it what
            /// follows the known fields: of a purge the groups, of the venue's messages the fields
            /// of later revisions.
            ///
            /// # Errors
            ///
            /// The body is no message of this direction that is known.
            pub fn parse(kind: u16, body: &'a [u8]) -> Result<(Self, &'a [u8]), $crate::boe::BoeError> {
                use zerocopy::FromBytes;
                match kind {
                    $($name::KIND => match $name::ref_from_prefix(body) {
                        Ok((view, tail)) => Ok((Self::$name(view), tail)),
                        Err(_) => {
                            Err($crate::boe::BoeError::Length { kind, expected: size_of::<$name>(), found: body.len() })
                        }
                    },)*
                    _ => Err($crate::boe::BoeError::Unknown { kind }),
                }
            }

            /// The body, to send with the type.
            pub fn as_bytes(&self) -> &'a [u8] {
                use zerocopy::IntoBytes;
                match *self {
                    $(Self::$name(view) => view.as_bytes(),)*
                }
            }
        }
    };
}

pub(crate) use message_set;
