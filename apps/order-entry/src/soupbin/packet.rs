//! The packet: length, type, payload.

use super::{HEADER_LEN, SoupError};
use crate::session::{Output, OutputFull};

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// `+` Text for people, either way, at any time.
    Debug = b'+',
    /// `A` The server accepts the login.
    LoginAccepted = b'A',
    /// `J` The server refuses the login.
    LoginRejected = b'J',
    /// `S` A numbered message of the server.
    Sequenced = b'S',
    /// `U` A message without a number, either way.
    Unsequenced = b'U',
    /// `H` The server is there.
    ServerHeartbeat = b'H',
    /// `R` The client is there.
    ClientHeartbeat = b'R',
    /// `Z` The session is over for good.
    EndOfSession = b'Z',
    /// `L` The client's first packet.
    LoginRequest = b'L',
    /// `O` The client asks the server to close the connection.
    LogoutRequest = b'O',
}

impl PacketType {
    /// The type of a type byte, or `None` where the protocol has none.
    #[inline]
    pub const fn from_wire(byte: u8) -> Option<Self> {
        Some(match byte {
            b'+' => Self::Debug,
            b'A' => Self::LoginAccepted,
            b'J' => Self::LoginRejected,
            b'S' => Self::Sequenced,
            b'U' => Self::Unsequenced,
            b'H' => Self::ServerHeartbeat,
            b'R' => Self::ClientHeartbeat,
            b'Z' => Self::EndOfSession,
            b'L' => Self::LoginRequest,
            b'O' => Self::LogoutRequest,
            _ => return None,
        })
    }

    /// The type byte.
    pub const fn to_wire(self) -> u8 {
        self as u8
    }

    /// Bytes of the payload, for types where it is always the same.
    pub const fn payload_len(self) -> Option<usize> {
        match self {
            Self::Debug | Self::Sequenced | Self::Unsequenced => None,
            Self::LoginAccepted => Some(30),
            Self::LoginRejected => Some(1),
            Self::LoginRequest => Some(46),
            Self::ServerHeartbeat | Self::ClientHeartbeat | Self::EndOfSession | Self::LogoutRequest => Some(0),
        }
    }
}

/// A whole packet, viewed in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// What it is.
    pub kind: PacketType,
    /// All after the type byte.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// The length of the packet that begins with `bytes`, length field included, or `None` where
    /// the field is incomplete.
    ///
    /// # Errors
    ///
    /// The packet has no type byte.
    #[inline]
    pub fn len(bytes: &[u8]) -> Result<Option<usize>, SoupError> {
        let Some(&[high, low]) = bytes.first_chunk() else { return Ok(None) };
        match u16::from_be_bytes([high, low]) {
            0 => Err(SoupError::NoType),
            len => Ok(Some(2 + usize::from(len))),
        }
    }

    /// Reads a whole packet, which `bytes` is from its length field to its end.
    ///
    /// # Errors
    ///
    /// A type that the protocol does not have, or a payload of another length than its type has.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SoupError> {
        let [_, _, kind, payload @ ..] = bytes else { return Err(SoupError::NoType) };
        let Some(kind) = PacketType::from_wire(*kind) else { return Err(SoupError::UnknownType { kind: *kind }) };
        match kind.payload_len() {
            Some(expected) if expected != payload.len() => {
                Err(SoupError::PayloadLength { kind, expected, found: payload.len() })
            }
            _ => Ok(Self { kind, payload }),
        }
    }
}

/// Writes one packet. Use it for orders that are prepared once and patched before each send: the
/// session is then told by its `sent`.
///
/// # Errors
///
/// The output is too small, or the payload longer than the length field can say: 65,534 bytes.
#[inline]
pub fn emit(kind: PacketType, payload: &[u8], output: &mut Output<'_>) -> Result<(), OutputFull> {
    let needed = HEADER_LEN + payload.len();
    let len = u16::try_from(payload.len() + 1).map_err(|_| OutputFull { needed, room: super::PACKET_LEN_MAX })?;
    let [high, low] = len.to_be_bytes();
    output.push_all(&[&[high, low, kind.to_wire()], payload])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_types_are_their_bytes() {
        let known = (0..=u8::MAX).filter_map(|byte| Some((byte, PacketType::from_wire(byte)?)));
        assert!(known.clone().all(|(byte, kind)| kind.to_wire() == byte));
        assert_eq!(known.count(), 10);
    }

    #[test]
    fn heartbeat_is_three_bytes() {
        let mut buffer = [0; 3];
        let mut output = Output::new(&mut buffer);
        emit(PacketType::ClientHeartbeat, &[], &mut output).unwrap();
        assert_eq!(output.written(), b"\0\x01R");
        assert_eq!(Packet::parse(output.written()).unwrap().kind, PacketType::ClientHeartbeat);
    }

    #[test]
    fn payload_beyond_the_length_field_is_refused() {
        let mut buffer = vec![0; 70_000];
        let mut output = Output::new(&mut buffer);
        assert!(emit(PacketType::Unsequenced, &[0; 65_535], &mut output).is_err());
        assert!(output.is_empty());
        emit(PacketType::Unsequenced, &[0; 65_534], &mut output).unwrap();
        assert_eq!(Packet::len(output.written()), Ok(Some(super::super::PACKET_LEN_MAX)));
    }
}
