//! Cboe's servers over TCP: the gap request proxy, and the spin server.
//!
//! Both directions are sequenced units ([`crate::framing::cboe_unit`]) of unit 0 and sequence 0,
//! and a unit without a message is a heartbeat. The gap request proxy answers over TCP whether a
//! request is accepted; the messages themselves come again on a multicast group of their own. The
//! spin server says now and then up to which number it has an image; who asks for one gets its
//! orders as adds, between [`ServerMessage::SpinResponse`] and [`ServerMessage::SpinFinished`]. The
//! live message behind an image is the one after its number: the border is exclusive.
//!
//! ```text
//!   0:1 length, itself included   1:1 type   then, little endian:
//!   01 login          2:4 session, 6:4 user, 12:10 password       02 reply         2:1 status
//!   03 gap request    2:1 unit, 3:4 first, 7:2 count              04 gap response  the same, 9:1 status
//!   80 image available 2:4 number                                 81 spin request  2:4 number
//!   82 spin response  2:4 number, 6:4 orders, 10:1 status         83 finished      2:4 number
//! ```

use arrayvec::ArrayVec;

/// Bytes of the longest message.
pub const LEN_MAX: usize = 22;

/// User and password of a login, padded with spaces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Login {
    /// The session's identifier.
    pub session: [u8; 4],
    /// The user.
    pub user: [u8; 4],
    /// The password.
    pub password: [u8; 10],
}

impl Login {
    /// `None` where a text is longer than its field: 4 bytes, 4 bytes, 10 bytes.
    pub fn new(session: &str, user: &str, password: &str) -> Option<Self> {
        Some(Self { session: padded(session)?, user: padded(user)?, password: padded(password)? })
    }
}

impl core::fmt::Debug for Login {
    /// Without the password.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Login({} {})", self.session.escape_ascii(), self.user.escape_ascii())
    }
}

fn padded<const LEN: usize>(text: &str) -> Option<[u8; LEN]> {
    let mut padded = [b' '; LEN];
    padded.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    Some(padded)
}

/// A message of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// The first message of a connection.
    Login(Login),
    /// Asks for messages of a unit.
    GapRequest {
        /// The unit.
        unit: u8,
        /// The first message wanted.
        first: u32,
        /// Messages wanted.
        count: u16,
    },
    /// Asks for the image of this number.
    SpinRequest {
        /// A number of an image that is available.
        seq: u32,
    },
}

/// A message of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMessage {
    /// The answer to a login; `A` accepts it.
    LoginReply {
        /// The server's letter.
        status: u8,
    },
    /// The answer to a gap request.
    GapResponse {
        /// The unit.
        unit: u8,
        /// The first message.
        first: u32,
        /// Messages.
        count: u16,
        /// `A` accepted; `D`, `M`, `S` the quota of the day, the minute, the second is used up;
        /// other letters refuse as well.
        status: u8,
    },
    /// An image up to this number can be asked for.
    ImageAvailable {
        /// Its number.
        seq: u32,
    },
    /// The answer to a spin request.
    SpinResponse {
        /// The number of the image.
        seq: u32,
        /// Orders that follow.
        orders: u32,
        /// `A` accepted; `S` another spin is running; other letters refuse as well.
        status: u8,
    },
    /// The image is over.
    SpinFinished {
        /// Its number: the live feed continues with the next one.
        seq: u32,
    },
}

/// The letter that accepts a login or a request.
pub const ACCEPTED: u8 = b'A';

impl ClientMessage {
    /// Parses a message; `None` where it is none of the client's, or has another length.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let body = body(message)?;
        Some(match (message[1], body.len()) {
            (0x01, 20) => Self::Login(Login {
                session: *body.first_chunk()?,
                user: *body[4..].first_chunk()?,
                password: *body[10..].first_chunk()?,
            }),
            (0x03, 7) => Self::GapRequest { unit: body[0], first: u32_at(body, 1)?, count: u16_at(body, 5)? },
            (0x81, 4) => Self::SpinRequest { seq: u32_at(body, 0)? },
            _ => return None,
        })
    }

    /// Writes the message.
    pub fn emit(&self) -> ArrayVec<u8, LEN_MAX> {
        match self {
            Self::Login(login) => message(0x01, &[&login.session, &login.user, &[b' '; 2], &login.password]),
            Self::GapRequest { unit, first, count } => {
                message(0x03, &[&[*unit], &first.to_le_bytes(), &count.to_le_bytes()])
            }
            Self::SpinRequest { seq } => message(0x81, &[&seq.to_le_bytes()]),
        }
    }
}

impl ServerMessage {
    /// Parses a message; `None` where it is none of a server's, or has another length: an order of
    /// an image is one of the feed's messages.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let body = body(message)?;
        Some(match (message[1], body.len()) {
            (0x02, 1) => Self::LoginReply { status: body[0] },
            (0x04, 8) => {
                Self::GapResponse { unit: body[0], first: u32_at(body, 1)?, count: u16_at(body, 5)?, status: body[7] }
            }
            (0x80, 4) => Self::ImageAvailable { seq: u32_at(body, 0)? },
            (0x82, 9) => Self::SpinResponse { seq: u32_at(body, 0)?, orders: u32_at(body, 4)?, status: body[8] },
            (0x83, 4) => Self::SpinFinished { seq: u32_at(body, 0)? },
            _ => return None,
        })
    }

    /// Writes the message.
    pub fn emit(&self) -> ArrayVec<u8, LEN_MAX> {
        match self {
            Self::LoginReply { status } => message(0x02, &[&[*status]]),
            Self::GapResponse { unit, first, count, status } => {
                message(0x04, &[&[*unit], &first.to_le_bytes(), &count.to_le_bytes(), &[*status]])
            }
            Self::ImageAvailable { seq } => message(0x80, &[&seq.to_le_bytes()]),
            Self::SpinResponse { seq, orders, status } => {
                message(0x82, &[&seq.to_le_bytes(), &orders.to_le_bytes(), &[*status]])
            }
            Self::SpinFinished { seq } => message(0x83, &[&seq.to_le_bytes()]),
        }
    }
}

/// What is behind length and type, where the length is right.
fn body(message: &[u8]) -> Option<&[u8]> {
    let (&len, _) = message.split_first()?;
    if usize::from(len) == message.len() { message.get(2..) } else { None }
}

fn u32_at(body: &[u8], at: usize) -> Option<u32> {
    body.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u16_at(body: &[u8], at: usize) -> Option<u16> {
    body.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn message(kind: u8, parts: &[&[u8]]) -> ArrayVec<u8, LEN_MAX> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = ArrayVec::new();
    out.extend([len as u8 + 2, kind]);
    parts.iter().for_each(|part| out.extend(part.iter().copied()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_messages_come_back_and_have_the_lengths_of_the_specification() {
        let login = Login::new("0001", "USER", "SECRET").unwrap();
        let messages = [
            (ClientMessage::Login(login), 22),
            (ClientMessage::GapRequest { unit: 3, first: 0x0102_0304, count: 77 }, 9),
            (ClientMessage::SpinRequest { seq: 9 }, 6),
        ];
        for (message, len) in messages {
            let bytes = message.emit();
            assert_eq!((bytes.len(), ClientMessage::parse(&bytes)), (len, Some(message)));
            assert_eq!(ClientMessage::parse(&bytes[..len - 1]), None);
            assert_eq!(ServerMessage::parse(&bytes), None);
        }
    }

    #[test]
    fn server_messages_come_back_and_have_the_lengths_of_the_specification() {
        let messages = [
            (ServerMessage::LoginReply { status: b'A' }, 3),
            (ServerMessage::GapResponse { unit: 3, first: 0x0102_0304, count: 77, status: b'D' }, 10),
            (ServerMessage::ImageAvailable { seq: 5 }, 6),
            (ServerMessage::SpinResponse { seq: 5, orders: 1_000, status: b'A' }, 11),
            (ServerMessage::SpinFinished { seq: 5 }, 6),
        ];
        for (message, len) in messages {
            let bytes = message.emit();
            assert_eq!((bytes.len(), ServerMessage::parse(&bytes)), (len, Some(message)));
            assert_eq!(ServerMessage::parse(&bytes[..len - 1]), None);
        }
    }

    #[test]
    fn password_is_not_in_debug_text() {
        let login = Login::new("0001", "USER", "SECRET").unwrap();
        assert!(!format!("{login:?}").contains("SECRET"));
        assert_eq!(Login::new("00001", "USER", "SECRET"), None);
    }
}
