//! The macro that makes the set of messages of one direction.

/// Declares the enum over the messages, `parse` and `emit`.
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
            /// The types and their lengths in bytes.
            pub const LENGTHS: &'static [(u8, usize)] = &[$(($name::KIND, $name::LEN)),*];

            /// Lays the message's structure over its bytes, which must have exactly its length.
            ///
            /// # Errors
            ///
            /// The bytes are no message of this direction.
            #[inline]
            pub fn parse(bytes: &'a [u8]) -> Result<Self, $crate::ouch::OuchError> {
                use zerocopy::FromBytes;
                let Some((&kind, body)) = bytes.split_first() else {
                    return Err($crate::ouch::OuchError::Empty);
                };
                match kind {
                    $($name::KIND => match $name::ref_from_bytes(body) {
                        Ok(view) => Ok(Self::$name(view)),
                        Err(_) => Err($crate::ouch::OuchError::Length {
                            kind,
                            expected: $name::LEN,
                            found: bytes.len(),
                        }),
                    },)*
                    _ => Err($crate::ouch::OuchError::Unknown { kind }),
                }
            }

            /// Writes the message to the front of `out` and returns its length; `None` where it
            /// does not fit.
            pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
                match self {
                    $(Self::$name(message) => message.emit(out),)*
                }
            }
        }

        $(
            impl $name {
                /// Writes the message to the front of `out` and returns its length; `None` where it
                /// does not fit.
                #[inline]
                pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
                    use zerocopy::IntoBytes;
                    let (kind, body) = out.get_mut(..Self::LEN)?.split_first_mut()?;
                    *kind = Self::KIND;
                    body.copy_from_slice(self.as_bytes());
                    Some(Self::LEN)
                }
            }

            impl<'a> From<&'a $name> for $set<'a> {
                fn from(view: &'a $name) -> Self {
                    Self::$name(view)
                }
            }
        )*
    };
}

pub(crate) use message_set;
