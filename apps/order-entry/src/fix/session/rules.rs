//! The header and the session's own fields of a message that was received, and which rule they
//! break.

use super::config::{HEARTBEAT_S_MAX, Version};
use crate::fix::codec::{Message, parse_number, parse_utc};
use crate::fix::orders::{Defect, Reason};
use crate::fix::tag::tags;

/// What a message is to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Heartbeat,
    TestRequest,
    ResendRequest { begin: u64, end: u64 },
    Reject,
    SequenceReset { new_seq: u64, gap_fill: bool },
    Logout,
    Logon { heartbeat_s: u32, reset: bool, next_expected: Option<u64> },
    Application,
}

/// A message's type: one or two characters, and more where it is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MsgType([u8; 8], usize);

impl MsgType {
    pub(super) fn of(text: &[u8]) -> Self {
        let mut bytes = [0; 8];
        let len = text.len().min(8);
        bytes[..len].copy_from_slice(&text[..len]);
        Self(bytes, len)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

/// The header, with its values checked one by one; the session decides by their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) msg_type: MsgType,
    /// `None` where MsgSeqNum (34) is no number.
    pub(super) seq: Option<u64>,
    pub(super) poss_dup: bool,
    pub(super) sending_ns: Option<u64>,
    /// OrigSendingTime (122).
    pub(super) orig_ns: Option<u64>,
    pub(super) are_comp_ids_ours: bool,
    pub(super) is_begin_string_ours: bool,
    pub(super) kind: Kind,
    /// The first rule that the fields break.
    pub(super) defect: Option<Defect>,
}

impl Header {
    pub(super) fn parse(message: &Message<'_>, version: Version, sender: &str, target: &str) -> Self {
        let is = |tag, wanted: &str| message.get(tag) == Some(wanted.as_bytes());
        let (kind, unread) = kind_of(message);
        let defect = structure(message).or_else(|| required(message)).or(unread);
        Self {
            msg_type: MsgType::of(message.msg_type()),
            seq: message.number(tags::MSG_SEQ_NUM),
            poss_dup: message.flag(tags::POSS_DUP_FLAG),
            sending_ns: message.utc(tags::SENDING_TIME),
            orig_ns: message.utc(tags::ORIG_SENDING_TIME),
            are_comp_ids_ours: is(tags::SENDER_COMP_ID, target) && is(tags::TARGET_COMP_ID, sender),
            is_begin_string_ours: message.begin_string() == version.begin_string().as_bytes(),
            kind,
            defect,
        }
    }
}

/// Whether the tag is one of the header, whose fields come before all others (FIXT 1.1,
/// StandardHeader).
const fn is_of_header(tag: u32) -> bool {
    matches!(
        tag,
        8 | 9 | 34 | 35 | 43 | 49 | 50 | 52 | 56 | 57 | 90 | 91 | 97 | 115 | 116 | 122 | 128 | 129 | 142..=145
            | 212 | 213 | 347 | 369 | 627..=630 | 1128 | 1129 | 1156
    )
}

/// Defects that need no dictionary: of tags, empty values, flags, and the header's order.
fn structure(message: &Message<'_>) -> Option<Defect> {
    let mut is_in_header = true;
    let fields = message.fields();
    for (idx, field) in fields.iter().enumerate() {
        let (tag, is_of_header) = (field.tag(), is_of_header(field.tag()));
        let is_again = || fields[..idx].iter().any(|before| before.tag() == tag);
        let reason = match tag {
            0 => Some(Reason::InvalidTag),
            _ if field.value_len() == 0 => Some(Reason::Empty),
            // The group of hops (627) repeats its own.
            628..=630 => None,
            _ if is_of_header && is_again() => Some(Reason::Repeated),
            _ if is_of_header && !is_in_header => Some(Reason::Order),
            tags::POSS_DUP_FLAG | tags::POSS_RESEND | tags::GAP_FILL_FLAG | tags::RESET_SEQ_NUM_FLAG => {
                (!matches!(message.value(*field), b"Y" | b"N")).then_some(Reason::Format)
            }
            _ => None,
        };
        if let Some(reason) = reason {
            return Some(Defect { tag, reason });
        }
        is_in_header &= is_of_header;
    }
    None
}

fn required(message: &Message<'_>) -> Option<Defect> {
    for tag in [tags::SENDER_COMP_ID, tags::SENDING_TIME, tags::TARGET_COMP_ID] {
        let Some(value) = message.get(tag) else { return Some(Defect { tag, reason: Reason::Missing }) };
        if tag == tags::SENDING_TIME && parse_utc(value).is_none() {
            return Some(Defect { tag, reason: Reason::Format });
        }
    }
    None
}

/// What the message is, with the values that it needs; those that are absent or unreadable are 0,
/// and the defect says so.
fn kind_of(message: &Message<'_>) -> (Kind, Option<Defect>) {
    let mut defect = None;
    let mut number = |tag| match message.get(tag).map(parse_number) {
        Some(Some(value)) => value,
        found => {
            let reason = if found.is_some() { Reason::Format } else { Reason::Missing };
            defect = defect.or(Some(Defect { tag, reason }));
            0
        }
    };
    let kind = match message.msg_type() {
        b"0" => Kind::Heartbeat,
        b"1" => {
            if message.get(tags::TEST_REQ_ID).is_none() {
                defect = Some(Defect { tag: tags::TEST_REQ_ID, reason: Reason::Missing });
            }
            Kind::TestRequest
        }
        b"2" => Kind::ResendRequest { begin: number(tags::BEGIN_SEQ_NO), end: number(tags::END_SEQ_NO) },
        b"3" => {
            number(tags::REF_SEQ_NUM);
            Kind::Reject
        }
        b"4" => Kind::SequenceReset { new_seq: number(tags::NEW_SEQ_NO), gap_fill: message.flag(tags::GAP_FILL_FLAG) },
        b"5" => Kind::Logout,
        b"A" => Kind::Logon {
            heartbeat_s: number(tags::HEART_BT_INT).min(HEARTBEAT_S_MAX.into()) as u32,
            reset: message.flag(tags::RESET_SEQ_NUM_FLAG),
            next_expected: message.number(tags::NEXT_EXPECTED_MSG_SEQ_NUM),
        },
        _ => Kind::Application,
    };
    (kind, defect)
}

/// Whether the version has this type of application message.
pub(super) fn is_known(msg_type: &[u8], version: Version) -> bool {
    match (msg_type, version) {
        // A type that both sides agreed on.
        ([b'U', ..], _) => true,
        (b"I" | b"O", _) => false,
        ([b'6'..=b'9' | b'B'..=b'Z' | b'a'..=b'm'], _) => true,
        ([b'n'..=b'z'], Version::Fix44 | Version::Fix50Sp2) => true,
        ([b'A', b'A'..=b'Z'] | [b'B', b'A'..=b'H'], Version::Fix44 | Version::Fix50Sp2) => true,
        ([b'B', b'I'..=b'Z'] | [b'C', b'A'..=b'Z'], Version::Fix50Sp2) => true,
        _ => false,
    }
}
