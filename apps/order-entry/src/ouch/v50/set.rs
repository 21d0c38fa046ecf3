//! The macro that makes the set of messages of one direction.

/// Declares the enum over the messages, `parse`, and `emit` of each. `required` is an appendage
/// whose length must be there, 0 where it is empty; `optional` one that is left out where it is
/// empty.
macro_rules! message_set {
    ($(#[$doc:meta])* $set:ident; $($name:ident $appendage:ident)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $set<'a> {
            $(
                #[doc = concat!("See [`", stringify!($name), "`].")]
                $name(&'a $name),
            )*
        }

        impl<'a> $set<'a> {
            /// The types and the bytes of their fixed part, type byte included and the length of
            /// the appendage not.
            pub const LENGTHS: &'static [(u8, usize)] = &[$(($name::KIND, $name::LEN)),*];

            /// Lays the message's structure over its bytes, and checks its appendage. Some ten
            /// nanoseconds.
            ///
            /// # Errors
            ///
            /// The bytes are no message of this direction.
            #[inline]
            pub fn parse(
                bytes: &'a [u8],
            ) -> Result<(Self, $crate::ouch::v50::Appendage<'a>), $crate::ouch::OuchError> {
                use zerocopy::FromBytes;
                let Some((&kind, body)) = bytes.split_first() else {
                    return Err($crate::ouch::OuchError::Empty);
                };
                match kind {
                    $($name::KIND => match $name::ref_from_prefix(body) {
                        Ok((view, tail)) => {
                            let appendage = $crate::ouch::v50::Appendage::parse(kind, tail)?;
                            match appendage {
                                Some(appendage) => Ok((Self::$name(view), appendage)),
                                None if !$name::APPENDAGE_REQUIRED => Ok((Self::$name(view), Default::default())),
                                None => Err($crate::ouch::OuchError::Length {
                                    kind,
                                    expected: $name::LEN + 2,
                                    found: bytes.len(),
                                }),
                            }
                        }
                        Err(_) => Err($crate::ouch::OuchError::Length {
                            kind,
                            expected: $name::LEN,
                            found: bytes.len(),
                        }),
                    },)*
                    _ => Err($crate::ouch::OuchError::Unknown { kind }),
                }
            }

            /// Writes the message with `fields` to the front of `out` and returns its length;
            /// `None` where it does not fit.
            pub fn emit(&self, fields: &[$crate::ouch::v50::Field<'_>], out: &mut [u8]) -> Option<usize> {
                match self {
                    $(Self::$name(message) => message.emit(fields, out),)*
                }
            }
        }

        $(
            impl $name {
                /// Whether the length of the appendage is always there.
                pub const APPENDAGE_REQUIRED: bool = $crate::ouch::v50::set::message_set!(@ $appendage);

                /// Writes the message with `fields` to the front of `out` and returns its length;
                /// `None` where it does not fit. A copy of the structure; allocates nothing.
                #[inline]
                pub fn emit(
                    &self,
                    fields: &[$crate::ouch::v50::Field<'_>],
                    out: &mut [u8],
                ) -> Option<usize> {
                    use zerocopy::IntoBytes;
                    let (front, tail) = out.split_at_mut_checked(Self::LEN)?;
                    let (kind, body) = front.split_first_mut()?;
                    *kind = Self::KIND;
                    body.copy_from_slice(self.as_bytes());
                    if fields.is_empty() && !Self::APPENDAGE_REQUIRED {
                        return Some(Self::LEN);
                    }
                    Some(Self::LEN + $crate::ouch::v50::Appendage::emit(fields, tail)?)
                }
            }

            impl<'a> From<&'a $name> for $set<'a> {
                fn from(view: &'a $name) -> Self {
                    Self::$name(view)
                }
            }
        )*
    };
    (@ required) => { true };
    (@ optional) => { false };
}

pub(crate) use message_set;
