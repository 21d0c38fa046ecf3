//! The common part of all codecs: the trait, the errors, the counters by type, and the two macros
//! that declare messages.
//!
//! A message is a plain structure of bytes (zerocopy, alignment 1) over the packet: one length
//! check, then fields are read in place. [`Codec::decode`] turns it into a normalized [`Event`].

use core::fmt;

use crate::event::Event;
use crate::sbe::SbeError;

/// Turns the messages of one feed into events. Holds the state that decoding needs: for most feeds
/// none, for PITCH the last second.
pub trait Codec {
    /// The feed's name in configurations and reports.
    const NAME: &'static str;
    /// See [`Decoder::BOOK_KINDS`].
    const BOOK_KINDS: &'static [u8];
    /// See [`Decoder::IS_UNTOLD_HALTED`].
    const IS_UNTOLD_HALTED: bool = false;

    /// The type byte of a message, or `None` where it is too short to have one.
    fn kind(message: &[u8]) -> Option<u8>;

    /// The event that a message means. One message is exactly one event or one error; some 5 to 10
    /// ns.
    fn decode(&mut self, message: &[u8]) -> Result<Event, MessageError>;

    /// Decodes and counts. The error is in the counters, so the caller need not check it.
    #[inline]
    fn decode_counted(&mut self, message: &[u8], counts: &mut MessageCounts) -> Option<Event> {
        match self.decode(message) {
            Ok(event) => {
                counts.by_type[usize::from(Self::kind(message).unwrap_or(0))] += 1;
                Some(event)
            }
            Err(error) => {
                counts.count_error(error);
                None
            }
        }
    }
}

/// Turns messages into events, any number of each message: the interface for books. Feeds with one
/// event a message implement [`Codec`] and have it by that; feeds whose messages hold groups of
/// entries implement it themselves.
pub trait Decoder {
    /// The feed's name in configurations and reports.
    const NAME: &'static str;
    /// The types of the messages that books are built from: one of them that cannot be decoded
    /// leaves the books wrong.
    const BOOK_KINDS: &'static [u8];
    /// Whether an instrument is halted of which an image with states of others tells none.
    const IS_UNTOLD_HALTED: bool = false;

    /// The type of a message, or `None` where it is too short to have one.
    fn kind(message: &[u8]) -> Option<u8>;

    /// Passes the events of a message to `each`, in order, and counts the message by its type. A
    /// message with an error is not counted, and has passed none; but where it does to an order
    /// what is not known ([`MessageError::Unknown`]), it may have passed those that make the book
    /// stale.
    fn decode_each(
        &mut self,
        message: &[u8],
        counts: &mut MessageCounts,
        each: &mut impl FnMut(&Event),
    ) -> Result<(), MessageError>;

    /// The same, and counts the error.
    #[inline]
    fn decode_all(&mut self, message: &[u8], counts: &mut MessageCounts, each: &mut impl FnMut(&Event)) {
        if let Err(error) = self.decode_each(message, counts, each) {
            counts.count_error(error);
        }
    }
}

impl<C: Codec> Decoder for C {
    const NAME: &'static str = C::NAME;
    const BOOK_KINDS: &'static [u8] = C::BOOK_KINDS;
    const IS_UNTOLD_HALTED: bool = C::IS_UNTOLD_HALTED;

    #[inline]
    fn kind(message: &[u8]) -> Option<u8> {
        C::kind(message)
    }

    #[inline]
    fn decode_each(
        &mut self,
        message: &[u8],
        counts: &mut MessageCounts,
        each: &mut impl FnMut(&Event),
    ) -> Result<(), MessageError> {
        // By reference: an event is longer than a cache line, and a move copies it.
        match &self.decode(message) {
            Ok(event) => {
                counts.by_type[usize::from(C::kind(message).unwrap_or(0))] += 1;
                each(event);
                Ok(())
            }
            Err(error) => Err(*error),
        }
    }
}

/// Why a message gave no event. The next message is not affected: framing knows where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageError {
    /// Too short to have a type.
    Empty,
    /// A type, or what one does to an order, that this codec does not know; newer versions of a
    /// feed add types, so this is expected to happen.
    Unknown {
        /// The type byte.
        kind: u8,
    },
    /// A known type with another length than its layout has.
    Length {
        /// The type byte.
        kind: u8,
        /// Bytes that the layout has.
        expected: usize,
        /// Bytes that arrived.
        found: usize,
    },
    /// About an instrument whose definition has not arrived, without which its prices mean nothing.
    Undefined {
        /// The type byte.
        kind: u8,
    },
}

impl MessageError {
    /// Why a message of SBE, of this type, gave no event.
    pub(crate) const fn of_layout(error: SbeError, kind: u8) -> Self {
        match error {
            SbeError::UnknownTemplate(_) => Self::Unknown { kind },
            _ => {
                let (expected, found) = error.lengths();
                Self::Length { kind, expected, found }
            }
        }
    }

    /// The type of a message that gave no event.
    pub(crate) const fn kind(self) -> Option<u8> {
        match self {
            Self::Empty => None,
            Self::Unknown { kind } | Self::Length { kind, .. } | Self::Undefined { kind } => Some(kind),
        }
    }
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a message without a type"),
            Self::Unknown { kind } => write!(f, "unknown message type {}", kind.escape_ascii()),
            Self::Length { kind, expected, found } => {
                write!(f, "message {} has {found} bytes instead of {expected}", kind.escape_ascii())
            }
            Self::Undefined { kind } => {
                write!(f, "message {} about an instrument that was not defined", kind.escape_ascii())
            }
        }
    }
}

impl core::error::Error for MessageError {}

/// Messages by type, and those that gave no event. 2 KiB; one add per message.
#[derive(Clone, Debug)]
pub struct MessageCounts {
    /// Decoded messages, by type byte.
    pub by_type: [u64; 256],
    /// Messages without a type.
    pub empty: u64,
    /// Messages of a type that the codec does not know, or that do to an order what it does not.
    pub unknown: u64,
    /// Messages of a known type with a wrong length.
    pub wrong_length: u64,
    /// Messages about instruments that were not defined.
    pub undefined: u64,
    /// Of all these, the ones that books should have been built from.
    pub lost_to_books: u64,
}

impl MessageCounts {
    /// All zero.
    pub const fn new() -> Self {
        Self { by_type: [0; 256], empty: 0, unknown: 0, wrong_length: 0, undefined: 0, lost_to_books: 0 }
    }

    /// Messages that became events.
    pub fn decoded(&self) -> u64 {
        self.by_type.iter().sum()
    }

    /// All messages that were decoded or refused.
    pub fn total(&self) -> u64 {
        self.decoded() + self.empty + self.unknown + self.wrong_length + self.undefined
    }

    /// The types that occurred, with their counts, in the order of the type byte.
    pub fn iter(&self) -> impl Iterator<Item = (u8, u64)> + '_ {
        (0..=u8::MAX).zip(self.by_type).filter(|&(_, count)| count > 0)
    }

    #[cold]
    pub(crate) fn count_error(&mut self, error: MessageError) {
        match error {
            MessageError::Empty => self.empty += 1,
            MessageError::Unknown { .. } => self.unknown += 1,
            MessageError::Length { .. } => self.wrong_length += 1,
            MessageError::Undefined { .. } => self.undefined += 1,
        }
    }
}

impl Default for MessageCounts {
    fn default() -> Self {
        Self::new()
    }
}

/// Declares the messages of a feed as structures over its bytes, each checked at compile time
/// against the length in the feed's specification. `head` is the part that all its messages begin
/// with.
macro_rules! layouts {
    (head $head:ty; $(
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
            /// The beginning of all messages.
            pub head: $head,
            $($(#[$field_doc])* pub $field: $field_type,)*
        }

        impl $name {
            /// The type byte.
            pub const KIND: u8 = $kind;
            /// Bytes on the wire.
            pub const LEN: usize = $len;
        }

        const _: () = assert!(size_of::<$name>() == $len, "the layout has another length than the specification");
    )* };
}

/// How long a message may be, in words.
macro_rules! length_rule {
    (exact) => {
        "they have exactly its length."
    };
    (least) => {
        "they have its length at least. A venue appends fields to messages without notice, which are left out."
    };
}

/// A structure over the bytes of a message that has exactly its length, or at least.
macro_rules! view {
    (exact $name:ident $bytes:ident) => {
        $name::ref_from_bytes($bytes).ok()
    };
    (least $name:ident $bytes:ident) => {
        $name::ref_from_prefix($bytes).ok().map(|(view, _)| view)
    };
}

/// Declares the set of messages that a feed carries: the enum over the views, parse and emit. Their
/// lengths are `exact`, or the `least` that they have.
macro_rules! message_set {
    (kind at $kind_at:literal, length $length:ident; $($name:ident)*) => {
        /// A message, viewed in the packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Message<'a> {
            $(
                #[doc = concat!("See [`", stringify!($name), "`].")]
                $name(&'a $name),
            )*
        }

        impl<'a> Message<'a> {
            /// The types of the feed and their lengths in bytes.
            pub const LENGTHS: &'static [(u8, usize)] = &[$(($name::KIND, $name::LEN)),*];

            #[doc = concat!("Lays the message's structure over its bytes: ", $crate::codec::length_rule!($length))]
            #[inline]
            pub fn parse(bytes: &'a [u8]) -> Result<Self, $crate::codec::MessageError> {
                use zerocopy::FromBytes;
                let Some(&kind) = bytes.get($kind_at) else { return Err($crate::codec::MessageError::Empty) };
                match kind {
                    $($name::KIND => match $crate::codec::view!($length $name bytes) {
                        Some(view) => Ok(Self::$name(view)),
                        None => Err($crate::codec::MessageError::Length {
                            kind,
                            expected: $name::LEN,
                            found: bytes.len(),
                        }),
                    },)*
                    _ => Err($crate::codec::MessageError::Unknown { kind }),
                }
            }

            /// The message's bytes, as a packet carries them.
            pub fn as_bytes(&self) -> &'a [u8] {
                use zerocopy::IntoBytes;
                match *self {
                    $(Self::$name(view) => view.as_bytes(),)*
                }
            }

            /// Copies the message to the front of `out` and returns its length; `None` where it
            /// does not fit.
            pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
                let bytes = self.as_bytes();
                out.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Some(bytes.len())
            }
        }

        $(
            impl<'a> From<&'a $name> for Message<'a> {
                fn from(view: &'a $name) -> Self {
                    Self::$name(view)
                }
            }
        )*
    };
}

/// Declares a decoder without state, of a feed whose messages begin with their type: its name, the
/// types that books are built from, and [`Decoder::IS_UNTOLD_HALTED`]. The function `event` of the
/// same file makes an event of a message.
macro_rules! stateless_codec {
    ($(#[$doc:meta])* $name:ident, $text:literal, $book_kinds:literal, $is_untold_halted:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        impl $crate::codec::Codec for $name {
            const NAME: &'static str = $text;
            const BOOK_KINDS: &'static [u8] = $book_kinds;
            const IS_UNTOLD_HALTED: bool = $is_untold_halted;

            #[inline]
            fn kind(message: &[u8]) -> Option<u8> {
                message.first().copied()
            }

            #[inline]
            fn decode(&mut self, message: &[u8]) -> Result<$crate::event::Event, $crate::codec::MessageError> {
                Ok(event(Message::parse(message)?))
            }
        }
    };
}

pub(crate) use {layouts, length_rule, message_set, stateless_codec, view};
