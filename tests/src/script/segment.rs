//! Segments as scripts write them: `FLAGS seq N[:N] ack N win N <options>`. For an arriving
//! segment, omitted fields have their usual values. Of an expected segment, omitted fields are not
//! compared, except for its length and its control bits.

use wirepath::wire::tcp::TcpFlags;

use super::expression::{Expression, Variables};
use super::options::number;

/// A segment of the peer's.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    pub(super) flags: TcpFlags,
    /// The peer's next number, if omitted.
    pub(super) seq: Option<Expression>,
    pub(super) len: Length,
    pub(super) ack: Option<Expression>,
    /// The same as before where it is left out.
    pub(super) win: Option<Expression>,
    pub(super) urgent: Option<Expression>,
    pub(super) options: Vec<OptionLine>,
    pub(super) ce: bool,
}

/// A segment that the machine must send.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// PSH only where the script asks for it.
    pub(super) flags: TcpFlags,
    pub(super) seq: Wanted,
    pub(super) len: Length,
    pub(super) ack: Wanted,
    pub(super) win: Wanted,
    pub(super) ttl: Wanted,
    pub(super) tos: Wanted,
    /// `Outgoing::segment_len`.
    pub(super) cut: Wanted,
    pub(super) options: Option<Vec<OptionLine>>,
    pub(super) ect: Option<bool>,
}

/// How long a segment is.
#[derive(Clone, Debug)]
pub(super) enum Length {
    Bytes(Expression),
    UpTo(Expression),
}

/// The required value of a number.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    Anything,
    Exactly(Expression),
    /// Both ends included.
    Between(Expression, Expression),
}

/// An option of a segment.
#[derive(Clone, Debug)]
pub(super) enum OptionLine {
    Mss(Expression),
    WindowScale(Expression),
    SackPermitted,
    /// `*` is none.
    Timestamps(Option<Expression>, Option<Expression>),
    Sack(Vec<(Expression, Expression)>),
    /// Literal bytes.
    Raw(Vec<u8>),
}

impl Length {
    /// Bytes of a segment from `seq` on.
    pub(super) fn value(&self, seq: i64, variables: &Variables) -> Result<i64, String> {
        let len = match self {
            Self::Bytes(len) => len.value(variables)?,
            Self::UpTo(end) => end.value(variables)? - seq,
        };
        if (0..=1 << 20).contains(&len) { Ok(len) } else { Err(format!("{len} bytes are no segment")) }
    }
}

impl Wanted {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Anything);
        }
        Ok(match text.split_once("..") {
            Some((from, to)) => Self::Between(Expression::parse(from)?, Expression::parse(to)?),
            None => Self::Exactly(Expression::parse(text)?),
        })
    }

    /// Whether `came` is as wanted; otherwise the wanted value in words. `place` makes both
    /// comparable: as sequence numbers, or unchanged.
    pub(super) fn check(&self, came: i64, variables: &Variables, place: fn(i64) -> i64) -> Result<(), String> {
        match self {
            Self::Anything => Ok(()),
            Self::Exactly(wanted) => {
                let wanted = wanted.value(variables)?;
                if place(came) == place(wanted) { Ok(()) } else { Err(format!("{wanted}")) }
            }
            Self::Between(from, to) => {
                let (from, to) = (from.value(variables)?, to.value(variables)?);
                if (from..=to).contains(&came) { Ok(()) } else { Err(format!("{from} to {to}")) }
            }
        }
    }
}

impl Incoming {
    /// Parses the words after `<`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (head, options) = split_options(text)?;
        let mut words = head.split_whitespace();
        let mut segment = Self {
            flags: parse_flags(words.next())?,
            seq: None,
            len: Length::Bytes(Expression::Number(0)),
            ack: None,
            win: None,
            urgent: None,
            options: options.unwrap_or_default(),
            ce: false,
        };
        while let Some(word) = words.next() {
            if word == "ce" {
                segment.ce = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} has no value"))?;
            match word {
                "seq" => (segment.seq, segment.len) = parse_seq(value, segment.len)?,
                "len" => segment.len = Length::Bytes(Expression::parse(value)?),
                "ack" => segment.ack = Some(Expression::parse(value)?),
                "win" => segment.win = Some(Expression::parse(value)?),
                "urgent" => segment.urgent = Some(Expression::parse(value)?),
                _ => return Err(format!("there is no field {word:?}: seq, len, ack, win, urgent, ce")),
            }
        }
        if segment.flags.contains(TcpFlags::ACK) != segment.ack.is_some() {
            return Err("ack N goes with the flag A, and only with it".to_owned());
        }
        Ok(segment)
    }
}

impl Expected {
    /// Parses the words after `>`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (head, options) = split_options(text)?;
        let mut words = head.split_whitespace();
        let anything = || Wanted::Anything;
        let mut segment = Self {
            flags: parse_flags(words.next())?,
            seq: anything(),
            len: Length::Bytes(Expression::Number(0)),
            ack: anything(),
            win: anything(),
            ttl: anything(),
            tos: anything(),
            cut: anything(),
            options,
            ect: None,
        };
        let (mut has_seq, mut has_ack) = (false, false);
        while let Some(word) = words.next() {
            if let "ect" | "not-ect" = word {
                segment.ect = Some(word == "ect");
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} has no value"))?;
            match word {
                "seq" if value.contains(':') => {
                    let (seq, len) = parse_seq(value, segment.len)?;
                    (segment.seq, segment.len, has_seq) = (seq.map_or(Wanted::Anything, Wanted::Exactly), len, true);
                }
                "seq" => (segment.seq, has_seq) = (Wanted::parse(value)?, true),
                "len" => segment.len = Length::Bytes(Expression::parse(value)?),
                "ack" => (segment.ack, has_ack) = (Wanted::parse(value)?, true),
                "win" => segment.win = Wanted::parse(value)?,
                "ttl" => segment.ttl = Wanted::parse(value)?,
                "tos" => segment.tos = Wanted::parse(value)?,
                "cut" => segment.cut = Wanted::parse(value)?,
                _ => {
                    return Err(format!("there is no field {word:?}: seq, len, ack, win, ttl, tos, cut, ect, not-ect"));
                }
            }
        }
        if !has_seq {
            return Err("a segment that is expected says its seq, or seq *".to_owned());
        }
        if segment.flags.contains(TcpFlags::ACK) != has_ack {
            return Err("ack N, or ack *, goes with the flag A, and only with it".to_owned());
        }
        Ok(segment)
    }
}

/// `N` or `N:N`.
fn parse_seq(text: &str, len: Length) -> Result<(Option<Expression>, Length), String> {
    Ok(match text.split_once(':') {
        Some((from, to)) => (Some(Expression::parse(from)?), Length::UpTo(Expression::parse(to)?)),
        None => (Some(Expression::parse(text)?), len),
    })
}

fn parse_flags(word: Option<&str>) -> Result<TcpFlags, String> {
    let word = word.ok_or("the flags are missing")?;
    if word == "-" {
        return Ok(TcpFlags::NONE);
    }
    word.chars().try_fold(TcpFlags::NONE, |flags, letter| {
        let flag = match letter {
            'F' => TcpFlags::FIN,
            'S' => TcpFlags::SYN,
            'R' => TcpFlags::RST,
            'P' => TcpFlags::PSH,
            'A' => TcpFlags::ACK,
            'U' => TcpFlags::URG,
            'E' => TcpFlags::ECE,
            'W' => TcpFlags::CWR,
            _ => return Err(format!("{word:?} are no flags: letters of FSRPAUEW, or - for none")),
        };
        Ok(flags | flag)
    })
}

/// Parts `head <options>`.
fn split_options(text: &str) -> Result<(&str, Option<Vec<OptionLine>>), String> {
    let Some((head, rest)) = text.split_once('<') else { return Ok((text, None)) };
    let inner = rest.strip_suffix('>').ok_or("the options end with > at the end of the line")?;
    let parts = inner.split(',').map(str::trim).filter(|part| !part.is_empty());
    Ok((head, Some(parts.map(parse_option).collect::<Result<_, _>>()?)))
}

fn parse_option(text: &str) -> Result<OptionLine, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    Ok(match words[..] {
        ["mss", value] => OptionLine::Mss(Expression::parse(value)?),
        ["ws", value] => OptionLine::WindowScale(Expression::parse(value)?),
        ["sackOK"] => OptionLine::SackPermitted,
        ["ts", value, echo] => {
            let parse = |word| if word == "*" { Ok(None) } else { Expression::parse(word).map(Some) };
            OptionLine::Timestamps(parse(value)?, parse(echo)?)
        }
        ["sack", ref blocks @ ..] if !blocks.is_empty() => OptionLine::Sack(
            blocks
                .iter()
                .map(|block| {
                    let (left, right) = block.split_once(':').ok_or("a SACK block is LEFT:RIGHT")?;
                    Ok::<_, String>((Expression::parse(left)?, Expression::parse(right)?))
                })
                .collect::<Result<_, _>>()?,
        ),
        ["raw", ref bytes @ ..] if !bytes.is_empty() => OptionLine::Raw(
            bytes
                .iter()
                .map(|byte| match byte.strip_prefix("0x") {
                    Some(hex) => u8::from_str_radix(hex, 16).map_err(|_| format!("{byte:?} is no byte")),
                    None => number(byte),
                })
                .collect::<Result<_, _>>()?,
        ),
        _ => return Err(format!("there is no option {text:?}: mss N, ws N, sackOK, ts N N, sack L:R …, raw BYTE …")),
    })
}
