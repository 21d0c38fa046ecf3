//! What differs between the versions: header, types of the session's messages, login.

use super::login::{self, LoginAnswer, LoginRequest};
use super::{BoeError, LogoutReason, UnitSequence};
use crate::Text;
use crate::session::{Output, OutputFull};

/// A whole message, viewed in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its type.
    pub kind: u16,
    /// The matching unit that made it; 0 on session messages and on the client's.
    pub unit: u8,
    /// Its number; 0 where it has none.
    pub sequence: u32,
    /// All after the header.
    pub body: &'a [u8],
}

/// The types of the session's messages.
#[derive(Clone, Copy, Debug)]
pub struct SessionKinds {
    /// Login request of the client.
    pub login: u16,
    /// Logout request of the client.
    pub logout_request: u16,
    /// Heartbeat of the client.
    pub client_heartbeat: u16,
    /// The venue's answer to a login.
    pub login_response: u16,
    /// The venue's last message of a replay.
    pub replay_complete: u16,
    /// Logout of the venue.
    pub logout: u16,
    /// Heartbeat of the venue.
    pub server_heartbeat: u16,
}

/// A version of the protocol: [`V2`] or [`V3`].
pub trait Version {
    /// The two bytes that each message begins with.
    const START: [u8; 2];
    /// Bytes of the header, start included.
    const HEADER_LEN: usize;
    /// The types of the session's messages.
    const KINDS: SessionKinds;

    /// Type, unit and sequence of a header, which is whole.
    fn read_header(header: &[u8]) -> Option<(u16, u8, u32)>;

    /// Fills `header`, of [`HEADER_LEN`](Self::HEADER_LEN) bytes, with all after the length.
    fn write_header(header: &mut [u8], kind: u16, unit: u8, sequence: u32);

    /// Whether the venue's application messages of type `kind` are numbered.
    fn is_sequenced(kind: u16) -> bool;

    /// Whether `kind` is an application message of a client.
    fn is_client_message(kind: u16) -> bool;

    /// The body of a login request. The second part is what only version 2 has: the groups that ask
    /// for optional fields, encoded.
    fn write_login(login: &LoginRequest<'_>, output: &mut Output<'_>) -> Result<(), OutputFull>;

    /// Reads the body of a login request.
    fn read_login(body: &[u8]) -> Result<LoginRequest<'_>, BoeError>;

    /// The body of the answer to a login.
    fn write_login_answer(answer: &LoginAnswer<'_>, output: &mut Output<'_>) -> Result<(), OutputFull>;

    /// Reads the body of the answer to a login.
    fn read_login_answer(body: &[u8]) -> Result<LoginAnswer<'_>, BoeError>;

    /// The body of a logout of the venue.
    fn write_logout(
        reason: LogoutReason,
        text: &Text<60>,
        last_received: u32,
        units: &[UnitSequence],
        output: &mut Output<'_>,
    ) -> Result<(), OutputFull>;

    /// The length of the message that begins with `bytes`, start included, or `None` where the
    /// field is incomplete.
    ///
    /// # Errors
    ///
    /// Another start, or a length below the header's.
    #[inline]
    fn frame_len(bytes: &[u8]) -> Result<Option<usize>, BoeError> {
        let Some((&start, rest)) = bytes.split_first_chunk::<2>() else { return Ok(None) };
        if start != Self::START {
            return Err(BoeError::Start { found: start, expected: Self::START });
        }
        let Some(&len) = rest.first_chunk::<2>() else { return Ok(None) };
        let len = usize::from(u16::from_le_bytes(len));
        if len + 2 < Self::HEADER_LEN {
            return Err(BoeError::TooShort { len });
        }
        Ok(Some(len + 2))
    }

    /// Reads a whole message.
    ///
    /// # Errors
    ///
    /// It is shorter than a header.
    #[inline]
    fn parse(bytes: &[u8]) -> Result<Message<'_>, BoeError> {
        let too_short = BoeError::TooShort { len: bytes.len().saturating_sub(2) };
        let (header, body) = bytes.split_at_checked(Self::HEADER_LEN).ok_or(too_short)?;
        let (kind, unit, sequence) = Self::read_header(header).ok_or(too_short)?;
        Ok(Message { kind, unit, sequence, body })
    }

    /// Writes a message with `body`.
    ///
    /// # Errors
    ///
    /// The output is too small, or the message longer than its length field can say.
    #[inline]
    fn emit(message: &Message<'_>, output: &mut Output<'_>) -> Result<(), OutputFull> {
        let needed = Self::HEADER_LEN + message.body.len();
        let len = u16::try_from(needed - 2).map_err(|_| OutputFull { needed, room: super::MESSAGE_LEN_MAX })?;
        let room = output.take(needed)?;
        let (header, body) = room.split_at_mut(Self::HEADER_LEN);
        header[..2].copy_from_slice(&Self::START);
        header[2..4].copy_from_slice(&len.to_le_bytes());
        Self::write_header(header, message.kind, message.unit, message.sequence);
        body.copy_from_slice(message.body);
        Ok(())
    }
}

/// Writes a message of the session, whose body `write` writes in parts.
pub(super) fn emit_parts<V: Version>(
    kind: u16,
    output: &mut Output<'_>,
    write: impl FnOnce(&mut Output<'_>) -> Result<(), OutputFull>,
) -> Result<(), OutputFull> {
    let message = output.write_whole(|output| {
        output.take(V::HEADER_LEN)?;
        write(output)
    })?;
    // Logins with the most units and groups stay below the length field's end; a longer one is cut
    // off by the venue.
    let len = u16::try_from(message.len() - 2).unwrap_or(u16::MAX);
    let header = &mut message[..V::HEADER_LEN];
    header[..2].copy_from_slice(&V::START);
    header[2..4].copy_from_slice(&len.to_le_bytes());
    V::write_header(header, kind, 0, 0);
    Ok(())
}

/// Version 2, of US equities.
#[derive(Clone, Copy, Debug)]
pub struct V2;

impl Version for V2 {
    const START: [u8; 2] = [0xba, 0xba];
    const HEADER_LEN: usize = 10;
    const KINDS: SessionKinds = SessionKinds {
        login: 0x37,
        logout_request: 0x02,
        client_heartbeat: 0x03,
        login_response: 0x24,
        replay_complete: 0x13,
        logout: 0x08,
        server_heartbeat: 0x09,
    };

    #[inline]
    fn read_header(header: &[u8]) -> Option<(u16, u8, u32)> {
        let &[_, _, _, _, kind, unit, a, b, c, d] = header.first_chunk::<10>()?;
        Some((u16::from(kind), unit, u32::from_le_bytes([a, b, c, d])))
    }

    #[inline]
    fn write_header(header: &mut [u8], kind: u16, unit: u8, sequence: u32) {
        // All types of this version are below 256.
        header[4] = kind.to_le_bytes()[0];
        header[5] = unit;
        header[6..10].copy_from_slice(&sequence.to_le_bytes());
    }

    fn is_sequenced(kind: u16) -> bool {
        matches!(kind, 0x25 | 0x27 | 0x28 | 0x2a | 0x2c | 0x2d)
    }

    fn is_client_message(kind: u16) -> bool {
        matches!(kind, 0x38 | 0x39 | 0x3a | 0x47)
    }

    fn write_login(request: &LoginRequest<'_>, output: &mut Output<'_>) -> Result<(), OutputFull> {
        login::write_login_v2(request, output)
    }

    fn read_login(body: &[u8]) -> Result<LoginRequest<'_>, BoeError> {
        login::read_login_v2(body)
    }

    fn write_login_answer(answer: &LoginAnswer<'_>, output: &mut Output<'_>) -> Result<(), OutputFull> {
        login::write_answer_v2(answer, output)
    }

    fn read_login_answer(body: &[u8]) -> Result<LoginAnswer<'_>, BoeError> {
        login::read_answer_v2(body)
    }

    fn write_logout(
        reason: LogoutReason,
        text: &Text<60>,
        last_received: u32,
        units: &[UnitSequence],
        output: &mut Output<'_>,
    ) -> Result<(), OutputFull> {
        output.push_all(&[&[reason.0], &text.0, &last_received.to_le_bytes()])?;
        login::write_units(units, output)
    }
}

/// Version 3, of the futures exchange, revision 1.1.31.
#[derive(Clone, Copy, Debug)]
pub struct V3;

impl Version for V3 {
    const START: [u8; 2] = [0xb0, 0xe3];
    const HEADER_LEN: usize = 12;
    const KINDS: SessionKinds = SessionKinds {
        login: 1,
        logout_request: 2,
        client_heartbeat: 3,
        login_response: 501,
        replay_complete: 502,
        logout: 503,
        server_heartbeat: 504,
    };

    #[inline]
    fn read_header(header: &[u8]) -> Option<(u16, u8, u32)> {
        let &[_, _, _, _, low, high, unit, _, a, b, c, d] = header.first_chunk::<12>()?;
        Some((u16::from_le_bytes([low, high]), unit, u32::from_le_bytes([a, b, c, d])))
    }

    #[inline]
    fn write_header(header: &mut [u8], kind: u16, unit: u8, sequence: u32) {
        header[4..6].copy_from_slice(&kind.to_le_bytes());
        header[6] = unit;
        header[7] = 0;
        header[8..12].copy_from_slice(&sequence.to_le_bytes());
    }

    /// Rejects and acknowledgments of mass cancels, purges and risk resets have no number.
    fn is_sequenced(kind: u16) -> bool {
        !matches!(kind, 0..=999 | 1502 | 1504 | 1507..=1511 | 1516 | 1522 | 1527)
    }

    fn is_client_message(kind: u16) -> bool {
        matches!(kind, 1002..=1011)
    }

    fn write_login(request: &LoginRequest<'_>, output: &mut Output<'_>) -> Result<(), OutputFull> {
        login::write_login_v3(request, output)
    }

    fn read_login(body: &[u8]) -> Result<LoginRequest<'_>, BoeError> {
        login::read_login_v3(body)
    }

    fn write_login_answer(answer: &LoginAnswer<'_>, output: &mut Output<'_>) -> Result<(), OutputFull> {
        login::write_answer_v3(answer, output)
    }

    fn read_login_answer(body: &[u8]) -> Result<LoginAnswer<'_>, BoeError> {
        login::read_answer_v3(body)
    }

    fn write_logout(
        reason: LogoutReason,
        text: &Text<60>,
        _last_received: u32,
        _units: &[UnitSequence],
        output: &mut Output<'_>,
    ) -> Result<(), OutputFull> {
        output.push_all(&[&[reason.0], &text.0])
    }
}
