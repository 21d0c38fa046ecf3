//! The protocols of venues, as far as a reader needs them: where a message ends, and what it says.

use std::fmt::{Debug, Write};
use std::str::FromStr;

use order_entry::boe::{V2, V3, Version};
use order_entry::fix::codec::{Frame as FixFrame, frame};
use order_entry::ilink3::Frame as IlinkFrame;
use order_entry::ouch::{v42, v50};
use order_entry::soupbin::{Packet, PacketType};

/// Bytes of the longest message of FIX that is looked for.
const FIX_LEN_MAX: usize = 64 * 1_024;
/// A message of FIX begins so.
const FIX: &[u8] = b"8=FIX";
/// Tags of FIX whose values are not shown: RawData, Password, NewPassword, EncryptedPassword and
/// EncryptedNewPassword. Three are data, whose length the field before says.
const SECRETS: [(&[u8], Option<&[u8]>); 5] =
    [(b"96=", Some(b"95=")), (b"554=", None), (b"925=", None), (b"1402=", Some(b"1401=")), (b"1404=", Some(b"1403="))];
/// A login of SoupBinTCP begins so: its length and its type.
const SOUP_LOGIN: &[u8] = b"\x00\x2fL";
/// The framing header of iLink 3 has this behind its length.
const ILINK3: [u8; 2] = [0xfe, 0xca];

/// Whose messages a log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuditProtocol {
    Ouch50,
    Ouch42,
    Fix,
    Boe2,
    Boe3,
    Ilink3,
}

/// What the bytes of a direction begin with.
pub(super) enum Next {
    /// A message whose end is still to come.
    Incomplete,
    /// A message of `len` bytes.
    Message { len: usize, text: String },
    /// `len` bytes that are no message, behind which one may begin.
    Garbled { len: usize },
    /// No message.
    Unknown,
}

impl FromStr for AuditProtocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "ouch50" => Self::Ouch50,
            "ouch42" => Self::Ouch42,
            "fix" => Self::Fix,
            "boe2" => Self::Boe2,
            "boe3" => Self::Boe3,
            "ilink3" => Self::Ilink3,
            _ => return Err(format!("'{text}' should be ouch50, ouch42, fix, boe2, boe3 or ilink3")),
        })
    }
}

impl AuditProtocol {
    /// By the first bytes of a connection.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            _ if bytes.starts_with(FIX) => Some(Self::Fix),
            _ if bytes.starts_with(&V2::START) => Some(Self::Boe2),
            _ if bytes.starts_with(&V3::START) => Some(Self::Boe3),
            [_, _, encoding @ ..] if encoding.starts_with(&ILINK3) => Some(Self::Ilink3),
            [_, _, kind, ..] if PacketType::from_wire(*kind).is_some() => Some(Self::Ouch50),
            _ => None,
        }
    }

    /// Whether `bytes` of a client begin a connection. They may be the rest of a message of which
    /// the socket took a part, so one byte is no proof.
    pub(super) fn is_login(self, bytes: &[u8]) -> bool {
        match self {
            Self::Ouch50 | Self::Ouch42 => bytes.starts_with(SOUP_LOGIN) && bytes[SOUP_LOGIN.len()..].is_ascii(),
            Self::Fix => bytes.starts_with(FIX) && bytes.windows(6).take(64).any(|field| field == b"\x0135=A\x01"),
            Self::Boe2 => is_boe_login::<V2>(bytes),
            Self::Boe3 => is_boe_login::<V3>(bytes),
            Self::Ilink3 => false,
        }
    }

    /// The message that `bytes` begin with.
    pub(super) fn next(self, bytes: &[u8]) -> Next {
        match self {
            Self::Ouch50 => soup(bytes, ouch50),
            Self::Ouch42 => soup(bytes, ouch42),
            Self::Fix => fix(bytes),
            Self::Boe2 => boe::<V2>(bytes),
            Self::Boe3 => boe::<V3>(bytes),
            Self::Ilink3 => ilink3(bytes),
        }
    }
}

/// The message of this length, which `text` shows whole; what it says where it is not.
fn whole<E>(bytes: &[u8], len: Result<Option<usize>, E>, text: impl FnOnce(&[u8]) -> Option<String>) -> Next {
    let len = match len {
        Ok(Some(len)) => len,
        Ok(None) => return Next::Incomplete,
        Err(_) => return Next::Unknown,
    };
    match bytes.get(..len) {
        None => Next::Incomplete,
        Some(message) => text(message).map_or(Next::Unknown, |text| Next::Message { len, text }),
    }
}

/// A packet of SoupBinTCP. `message` shows what it carries, by the direction that its type has.
fn soup(bytes: &[u8], message: impl FnOnce(PacketType, &[u8]) -> Option<String>) -> Next {
    whole(bytes, Packet::len(bytes), |packet| {
        let Packet { kind, payload } = Packet::parse(packet).ok()?;
        Some(match kind {
            PacketType::Sequenced | PacketType::Unsequenced => {
                message(kind, payload).unwrap_or_else(|| format!("no message: {}", payload.escape_ascii()))
            }
            // It has the password.
            PacketType::LoginRequest => format!("{kind:?} {}", payload.get(..6)?.escape_ascii()),
            _ => format!("{kind:?} {}", payload.escape_ascii()),
        })
    })
}

fn ouch50(kind: PacketType, message: &[u8]) -> Option<String> {
    match kind {
        PacketType::Unsequenced => {
            v50::Inbound::parse(message).ok().map(|(message, options)| with_options(&message, options))
        }
        _ => v50::Outbound::parse(message).ok().map(|(message, options)| with_options(&message, options)),
    }
}

fn with_options(message: &impl Debug, options: v50::Appendage<'_>) -> String {
    let mut text = plain(message);
    for option in options.fields() {
        let _ = write!(text, " {}", plain(&option));
    }
    text
}

fn ouch42(kind: PacketType, message: &[u8]) -> Option<String> {
    match kind {
        PacketType::Unsequenced => v42::Inbound::parse(message).ok().map(|message| plain(&message)),
        _ => v42::Outbound::parse(message).ok().map(|message| plain(&message)),
    }
}

fn fix(bytes: &[u8]) -> Next {
    match frame(bytes, FIX_LEN_MAX) {
        FixFrame::Incomplete => Next::Incomplete,
        FixFrame::Message { len } => Next::Message { len, text: fix_fields(&bytes[..len]) },
        FixFrame::Garbled { len, .. } => Next::Garbled { len },
    }
}

/// Fields as they are, apart by `|`, and of a secret its tag alone.
fn fix_fields(mut rest: &[u8]) -> String {
    let (mut fields, mut before) = (Vec::new(), &b""[..]);
    while !rest.is_empty() {
        let secret = SECRETS.iter().find(|(tag, _)| rest.starts_with(tag));
        // Data may have the separator in it.
        let data_len = secret.and_then(|(_, len_tag)| number(before.strip_prefix((*len_tag)?)?)).unwrap_or(0);
        let from = secret.map_or(0, |(tag, _)| tag.len().saturating_add(data_len)).min(rest.len());
        let len = rest[from..].iter().position(|&byte| byte == 1).map_or(rest.len(), |at| from + at);
        let field = &rest[..len];
        fields.push(match secret {
            Some((tag, _)) => format!("{}*", tag.escape_ascii()),
            None => field.escape_ascii().to_string(),
        });
        (before, rest) = (field, rest.get(len + 1..).unwrap_or_default());
    }
    fields.join("|")
}

fn number(digits: &[u8]) -> Option<usize> {
    str::from_utf8(digits).ok()?.parse().ok()
}

fn is_boe_login<V: Version>(bytes: &[u8]) -> bool {
    bytes.starts_with(&V::START) && V::parse(bytes).is_ok_and(|message| message.kind == V::KINDS.login)
}

fn boe<V: Version>(bytes: &[u8]) -> Next {
    whole(bytes, V::frame_len(bytes), |message| {
        let message = V::parse(message).ok()?;
        let (kind, unit, sequence) = (message.kind, message.unit, message.sequence);
        let body = if kind == V::KINDS.login { String::new() } else { message.body.escape_ascii().to_string() };
        Some(format!("message {kind:#x}, unit {unit}, number {sequence}: {body}"))
    })
}

fn ilink3(bytes: &[u8]) -> Next {
    whole(bytes, IlinkFrame::len(bytes), |message| {
        let IlinkFrame { template, version, block, tail } = IlinkFrame::parse(message).ok()?;
        Some(format!("template {template}, version {version}: {}{}", block.escape_ascii(), tail.escape_ascii()))
    })
}

/// A message as its fields, with numbers alone where those on the wire have a type of their own.
fn plain(message: &impl Debug) -> String {
    let text = format!("{message:?}");
    let mut plain = String::with_capacity(text.len());
    let mut rest = &text[..];
    while let Some((at, wrapper)) =
        ["U16(", "U32(", "U64(", "I32(", "I64("].iter().filter_map(|it| Some((rest.find(it)?, it.len()))).min()
    {
        let (before, number) = (&rest[..at], &rest[at + wrapper..]);
        let (number, behind) = number.split_once(')').unwrap_or((number, ""));
        plain.extend([before, number]);
        rest = behind;
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_is_that_of_the_first_bytes() {
        for (bytes, protocol) in [
            (&b"8=FIX.4.4\x01"[..], Some(AuditProtocol::Fix)),
            (b"\xba\xba\x10\x00", Some(AuditProtocol::Boe2)),
            (b"\xb0\xe3\x10\x00", Some(AuditProtocol::Boe3)),
            (b"\x50\x00\xfe\xca", Some(AuditProtocol::Ilink3)),
            (b"\x00\x2fLUSER", Some(AuditProtocol::Ouch50)),
            (b"\x00\x2f?", None),
        ] {
            assert_eq!(AuditProtocol::of(bytes), protocol, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn numbers_of_the_wire_stand_alone() {
        let cancel = v50::CancelOrder { user_ref: 7.into(), quantity: 0.into() };
        assert_eq!(plain(&v50::Inbound::CancelOrder(&cancel)), "CancelOrder(CancelOrder { user_ref: 7, quantity: 0 })");
    }

    #[test]
    fn passwords_are_not_shown() {
        let login = [b"\x00\x2fLALICE SECRET    ".as_slice(), &[b' '; 30]].concat();
        let Next::Message { text, .. } = AuditProtocol::Ouch50.next(&login) else { panic!("a packet") };
        assert_eq!(text, "LoginRequest ALICE ");
    }
}
