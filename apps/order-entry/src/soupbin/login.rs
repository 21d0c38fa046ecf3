//! The three packets of a login, their fields, and the judgement of credentials.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::SoupError;
use crate::session::Escaped;

/// A session's name: up to ten letters and digits. Padded on the left on the wire, so that a name
/// compares equal however its sender padded it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId([u8; 10]);

impl SessionId {
    /// No name: in a login it asks for the active session.
    pub const BLANK: Self = Self([b' '; 10]);

    /// The name `name`; `None` where it is longer than ten bytes.
    pub fn new(name: &str) -> Option<Self> {
        let name = name.trim_matches(' ').as_bytes();
        let mut padded = [b' '; 10];
        padded[10usize.checked_sub(name.len())?..].copy_from_slice(name);
        Some(Self(padded))
    }

    /// The name in a field of a login, on whichever side it is padded.
    pub fn from_wire(field: [u8; 10]) -> Self {
        let pad = field.iter().rev().take_while(|&&byte| byte == b' ').count() % 10;
        let mut padded = field;
        padded.rotate_right(pad);
        Self(padded)
    }

    /// The name padded on the left.
    pub const fn to_wire(self) -> [u8; 10] {
        self.0
    }

    /// Whether it is no name.
    pub fn is_blank(self) -> bool {
        self == Self::BLANK
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", Escaped(self.0.trim_ascii_start()))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A message number in twenty digits, padded with spaces on the left.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct NumberField(pub [u8; 20]);

impl NumberField {
    /// The field for `number`.
    pub fn new(number: u64) -> Self {
        let mut field = [b' '; 20];
        let mut rest = number;
        for digit in field.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        Self(field)
    }

    /// The number. Zeros in front, and spaces on either side, are tolerated.
    ///
    /// # Errors
    ///
    /// No digit, another byte than digits between the spaces, more than 64 bits.
    pub fn get(&self) -> Result<u64, SoupError> {
        let bad = SoupError::BadNumber { field: self.0 };
        let digits = self.0.trim_ascii();
        if digits.is_empty() {
            return Err(bad);
        }
        digits.iter().try_fold(0u64, |number, &digit| {
            let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0')).ok_or(bad)?;
            number.checked_mul(10).and_then(|number| number.checked_add(digit)).ok_or(bad)
        })
    }
}

impl fmt::Debug for NumberField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", Escaped(&self.0))
    }
}

/// Payload of `L`.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LoginRequest {
    /// The user, padded on the right.
    pub username: [u8; 6],
    /// The password, padded on the right.
    pub password: [u8; 10],
    /// The session asked for; blank is the active one.
    pub session: [u8; 10],
    /// The number of the first message wanted; 0 begins with the next new one.
    pub number: NumberField,
}

impl fmt::Debug for LoginRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginRequest")
            .field("username", &format_args!("\"{}\"", Escaped(&self.username)))
            .field("session", &SessionId::from_wire(self.session))
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// Payload of `A`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LoginAccepted {
    /// The session, padded on the left.
    pub session: [u8; 10],
    /// The number of the next numbered message.
    pub number: NumberField,
}

const _: () = assert!(size_of::<LoginRequest>() == 46 && size_of::<LoginAccepted>() == 30);

/// Why a server refuses a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoginRejectReason {
    /// `A` User and password do not match.
    NotAuthorized,
    /// `S` The session asked for is not available.
    SessionNotAvailable,
    /// A reason that the protocol does not have.
    Other(u8),
}

impl LoginRejectReason {
    /// The reason of a byte.
    pub const fn from_wire(byte: u8) -> Self {
        match byte {
            b'A' => Self::NotAuthorized,
            b'S' => Self::SessionNotAvailable,
            other => Self::Other(other),
        }
    }

    /// The byte of the reason.
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::NotAuthorized => b'A',
            Self::SessionNotAvailable => b'S',
            Self::Other(byte) => byte,
        }
    }
}

/// A user and password, padded. Case does not matter in either.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    username: [u8; 6],
    password: [u8; 10],
}

impl Credentials {
    /// The credentials; `None` where the user has more than 6 bytes or the password more than 10.
    pub fn new(username: &str, password: &str) -> Option<Self> {
        Some(Self { username: pad_right(username)?, password: pad_right(password)? })
    }

    /// The user, without its padding.
    pub fn username(&self) -> &[u8] {
        self.username.trim_ascii_end()
    }

    /// The password, without its padding.
    pub fn password(&self) -> &[u8] {
        self.password.trim_ascii_end()
    }

    /// Whether a login has these credentials, in upper or lower case.
    pub fn match_login(&self, login: &LoginRequest) -> bool {
        self.username.eq_ignore_ascii_case(&login.username) && self.password.eq_ignore_ascii_case(&login.password)
    }

    /// The login with these credentials for `session` from message `number` on.
    pub fn login(&self, session: SessionId, number: u64) -> LoginRequest {
        LoginRequest {
            username: self.username,
            password: self.password,
            session: session.to_wire(),
            number: NumberField::new(number),
        }
    }
}

impl fmt::Debug for Credentials {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials(\"{}\")", Escaped(&self.username))
    }
}

fn pad_right<const LEN: usize>(text: &str) -> Option<[u8; LEN]> {
    let mut padded = [b' '; LEN];
    padded.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    Some(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_compares_equal_on_whichever_side_it_is_padded() {
        let left = SessionId::from_wire(*b"    SESS01");
        assert_eq!(left, SessionId::from_wire(*b"SESS01    "));
        assert_eq!(left, SessionId::new("SESS01").unwrap());
        assert_eq!(&left.to_wire(), b"    SESS01");
        assert!(SessionId::from_wire([b' '; 10]).is_blank());
        assert_eq!(SessionId::new("12345678901"), None);
    }

    #[test]
    fn numbers_are_digits_after_spaces() {
        for number in [0, 1, 42, u64::MAX] {
            assert_eq!(NumberField::new(number).get(), Ok(number));
        }
        assert_eq!(&NumberField::new(42).0, b"                  42");
        assert_eq!(NumberField(*b"00000000000000000007").get(), Ok(7));
    }

    #[test]
    fn numbers_that_are_not_digits_or_exceed_64_bits_are_refused() {
        for field in
            [b"                    ", b"                 4 2", b"                  -1", b"99999999999999999999"]
        {
            assert!(NumberField(*field).get().is_err());
        }
    }

    #[test]
    fn credentials_match_in_either_case() {
        let credentials = Credentials::new("alice", "Secret").unwrap();
        let login = Credentials::new("ALICE", "sECRET").unwrap().login(SessionId::BLANK, 1);
        assert!(credentials.match_login(&login));
        assert!(!Credentials::new("alice", "Secret1").unwrap().match_login(&login));
        assert!(Credentials::new("toolong", "x").is_none());
    }

    #[test]
    fn password_is_not_in_debug_text() {
        let credentials = Credentials::new("alice", "hunter2").unwrap();
        let text = format!("{credentials:?} {:?}", credentials.login(SessionId::BLANK, 1));
        assert!(!text.contains("hunter2"), "{text}");
    }
}
