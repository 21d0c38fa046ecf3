//! Login, its answer, and the lists of units in both.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BoeError, LoginStatus, V2, V3, Version};
use crate::Text;
use crate::session::{Output, OutputFull};

/// The last number received from a matching unit, or sent by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UnitSequence {
    /// The unit.
    pub unit: u8,
    /// The number.
    pub sequence: U32,
}

impl UnitSequence {
    /// Number `sequence` of `unit`.
    pub const fn new(unit: u8, sequence: u32) -> Self {
        Self { unit, sequence: U32::new(sequence) }
    }
}

/// Units as a login or its answer lists them.
pub type UnitSequences<'a> = &'a [UnitSequence];

/// What the venue does about units that a login does not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnspecifiedUnits {
    /// Replay them from the first message.
    Replay,
    /// Do not replay them.
    Skip,
    /// Refuse the login (version 3 alone).
    Fail,
}

/// Who logs in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// The user (version 2), the session (version 3).
    pub user: Text<4>,
    /// The session's sub-identifier.
    pub sub_id: Text<4>,
    /// The password.
    pub password: Text<10>,
}

impl Credentials {
    /// The credentials; `None` where a text is too long.
    pub fn new(user: &str, sub_id: &str, password: &str) -> Option<Self> {
        Some(Self {
            user: Text::zero_padded(user)?,
            sub_id: Text::zero_padded(sub_id)?,
            password: Text::zero_padded(password)?,
        })
    }
}

impl core::fmt::Debug for Credentials {
    /// Without the password.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Credentials({:?}, {:?})", self.user, self.sub_id)
    }
}

/// A login request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequest<'a> {
    /// Who logs in.
    pub credentials: Credentials,
    /// What to do about units that are not listed.
    pub unspecified: UnspecifiedUnits,
    /// The last number received from each unit.
    pub units: UnitSequences<'a>,
    /// Of version 2: the groups that ask for optional fields, as
    /// [`ReturnFields`](super::v2::ReturnFields) makes them, with their count.
    pub returns: (u8, &'a [u8]),
}

/// The answer to a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginAnswer<'a> {
    /// Accepted, or why not.
    pub status: LoginStatus,
    /// More about it.
    pub text: Text<60>,
    /// The last number of the client that the venue has read.
    pub last_received: u32,
    /// The last number that the venue has sent from each unit.
    pub units: UnitSequences<'a>,
}

/// The group of unit sequences, and that of return bitfields, of version 2.
const UNIT_SEQUENCES: u8 = 0x80;
const RETURN_BITFIELDS: u8 = 0x81;

/// Takes `N` bytes off the front.
fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (front, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(front)
}

/// Takes a count and so many units off the front.
fn take_units<'a>(bytes: &mut &'a [u8]) -> Option<UnitSequences<'a>> {
    let [count] = *take(bytes)?;
    let (units, rest) = <[UnitSequence]>::ref_from_prefix_with_elems(bytes, usize::from(count)).ok()?;
    *bytes = rest;
    Some(units)
}

/// Writes a count and the units. There are at most 255, because a unit is a byte.
pub(super) fn write_units(units: UnitSequences<'_>, output: &mut Output<'_>) -> Result<(), OutputFull> {
    let units = &units[..units.len().min(255)];
    output.push_all(&[&[u8::try_from(units.len()).unwrap_or(u8::MAX)], units.as_bytes()])
}

pub(super) fn write_login_v2(login: &LoginRequest<'_>, output: &mut Output<'_>) -> Result<(), OutputFull> {
    let Credentials { user, sub_id, password } = &login.credentials;
    let (returns, groups) = login.returns;
    output.push_all(&[&sub_id.0, &user.0, &password.0, &[1 + returns]])?;
    let units = &login.units[..login.units.len().min(255)];
    let len = u16::try_from(5 + size_of_val(units)).unwrap_or(u16::MAX);
    let skips = u8::from(login.unspecified == UnspecifiedUnits::Skip);
    output.push_all(&[&len.to_le_bytes(), &[UNIT_SEQUENCES, skips]])?;
    write_units(units, output)?;
    output.push(groups)
}

pub(super) fn read_login_v2(body: &[u8]) -> Result<LoginRequest<'_>, BoeError> {
    let short = BoeError::Length { kind: V2::KINDS.login, expected: 19, found: body.len() };
    let mut rest = body;
    let sub_id = Text(*take(&mut rest).ok_or(short)?);
    let user = Text(*take(&mut rest).ok_or(short)?);
    let password = Text(*take(&mut rest).ok_or(short)?);
    let [count] = *take(&mut rest).ok_or(short)?;
    let credentials = Credentials { user, sub_id, password };
    let mut login = LoginRequest { credentials, unspecified: UnspecifiedUnits::Replay, units: &[], returns: (0, rest) };
    let mut returns_start = 0;
    for idx in 0..count {
        let before = rest;
        let (kind, mut data) = take_group(&mut rest)?;
        let bad = BoeError::Group { kind };
        match kind {
            // The groups that ask for fields are those after the units, so that they are one slice.
            UNIT_SEQUENCES if idx == 0 => {
                let [skips] = *take(&mut data).ok_or(bad)?;
                login.unspecified = if skips == 1 { UnspecifiedUnits::Skip } else { UnspecifiedUnits::Replay };
                login.units = take_units(&mut data).ok_or(bad)?;
                returns_start = body.len() - 19 - rest.len();
            }
            RETURN_BITFIELDS => {
                let [_, len] = *take(&mut data).ok_or(bad)?;
                data = data.get(usize::from(len)..).ok_or(bad)?;
                login.returns.0 += 1;
            }
            _ => return Err(BoeError::Group { kind }),
        }
        if !data.is_empty() || before.len() == rest.len() {
            return Err(bad);
        }
    }
    if !rest.is_empty() {
        return Err(BoeError::Length { kind: V2::KINDS.login, expected: body.len() - rest.len(), found: body.len() });
    }
    login.returns.1 = &body[19 + returns_start..];
    Ok(login)
}

/// Takes a group off the front: its type and data.
fn take_group<'a>(bytes: &mut &'a [u8]) -> Result<(u8, &'a [u8]), BoeError> {
    let &[low, high, kind] = bytes.first_chunk::<3>().ok_or(BoeError::Group { kind: 0 })?;
    let len = usize::from(u16::from_le_bytes([low, high]));
    let (group, rest) = bytes.split_at_checked(len).ok_or(BoeError::Group { kind })?;
    let data = group.get(3..).ok_or(BoeError::Group { kind })?;
    *bytes = rest;
    Ok((kind, data))
}

pub(super) fn write_answer_v2(answer: &LoginAnswer<'_>, output: &mut Output<'_>) -> Result<(), OutputFull> {
    let last = answer.last_received.to_le_bytes();
    output.push_all(&[&[answer.status.0], &answer.text.0, &[0], &last])?;
    write_units(answer.units, output)?;
    // No group of the request is echoed.
    output.push(&[0])
}

pub(super) fn read_answer_v2(body: &[u8]) -> Result<LoginAnswer<'_>, BoeError> {
    let short = BoeError::Length { kind: V2::KINDS.login_response, expected: 67, found: body.len() };
    let mut rest = body;
    let [status] = *take(&mut rest).ok_or(short)?;
    let text = Text(*take(&mut rest).ok_or(short)?);
    let [_] = *take(&mut rest).ok_or(short)?;
    let last_received = u32::from_le_bytes(*take(&mut rest).ok_or(short)?);
    let units = take_units(&mut rest).ok_or(short)?;
    // The groups of the request follow, echoed.
    Ok(LoginAnswer { status: LoginStatus(status), text, last_received, units })
}

pub(super) fn write_login_v3(login: &LoginRequest<'_>, output: &mut Output<'_>) -> Result<(), OutputFull> {
    let Credentials { user, sub_id, password } = &login.credentials;
    let unspecified = match login.unspecified {
        UnspecifiedUnits::Replay => b'R',
        UnspecifiedUnits::Skip => b'S',
        UnspecifiedUnits::Fail => b'F',
    };
    output.push_all(&[&user.0, &sub_id.0, &password.0, &[unspecified]])?;
    write_units(login.units, output)
}

pub(super) fn read_login_v3(body: &[u8]) -> Result<LoginRequest<'_>, BoeError> {
    let short = BoeError::Length { kind: V3::KINDS.login, expected: 20, found: body.len() };
    let mut rest = body;
    let user = Text(*take(&mut rest).ok_or(short)?);
    let sub_id = Text(*take(&mut rest).ok_or(short)?);
    let password = Text(*take(&mut rest).ok_or(short)?);
    let unspecified = match take(&mut rest).ok_or(short)? {
        b"R" => UnspecifiedUnits::Replay,
        b"S" => UnspecifiedUnits::Skip,
        _ => UnspecifiedUnits::Fail,
    };
    let units = take_units(&mut rest).ok_or(short)?;
    if !rest.is_empty() {
        return Err(BoeError::Length { expected: body.len() - rest.len(), kind: V3::KINDS.login, found: body.len() });
    }
    let credentials = Credentials { user, sub_id, password };
    Ok(LoginRequest { credentials, unspecified, units, returns: (0, &[]) })
}

pub(super) fn write_answer_v3(answer: &LoginAnswer<'_>, output: &mut Output<'_>) -> Result<(), OutputFull> {
    output.push_all(&[&[answer.status.0], &answer.text.0, &answer.last_received.to_le_bytes()])?;
    write_units(answer.units, output)
}

pub(super) fn read_answer_v3(body: &[u8]) -> Result<LoginAnswer<'_>, BoeError> {
    let short = BoeError::Length { kind: V3::KINDS.login_response, expected: 66, found: body.len() };
    let mut rest = body;
    let [status] = *take(&mut rest).ok_or(short)?;
    let text = Text(*take(&mut rest).ok_or(short)?);
    let last_received = u32::from_le_bytes(*take(&mut rest).ok_or(short)?);
    let units = take_units(&mut rest).ok_or(short)?;
    Ok(LoginAnswer { status: LoginStatus(status), text, last_received, units })
}
