//! `expect`: the events that the app must have got, and the values that the machine must report.

use super::expression::Expression;

/// The required condition.
#[derive(Clone, Debug)]
pub(super) enum Expectation {
    /// `expect Connected`, `expect Closed(Reset)`: the next event.
    Event(String),
    /// `expect no event`
    NoEvent,
    /// `expect data N`: N bytes since the last such line; that they are the right ones is always
    /// checked.
    Data(Expression),
    /// `expect drop NAME`: the reason why the last segment was dropped; `none`.
    Drop(String),
    /// `expect state NAME`; `none` where the connection is forgotten.
    State(String),
    /// `expect cwnd <= 14600`
    Number(String, Comparison, Expression),
    /// `expect isn differs b`, `expect port differs b`
    Differs(Secret, String),
    /// `expect isn after b`: on the ring.
    IsnAfter(String),
    /// `expect isn after last`: than that of the connection before.
    IsnAfterLast,
}

/// Numbers that must not be guessable.
#[derive(Clone, Copy, Debug)]
pub(super) enum Secret {
    Isn,
    Port,
    Clock,
}

/// How numbers compare.
#[derive(Clone, Copy, Debug)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
}

const EVENTS: [&str; 5] = ["Connected", "NoRoute", "Readable", "Writable", "PeerClosed"];
const REASONS: [&str; 11] = [
    "Finished",
    "Aborted",
    "Reset",
    "Refused",
    "NoRoute",
    "NoAnswer",
    "TimedOut",
    "KeepaliveTimedOut",
    "Unreachable",
    "NoNeighbor",
    "LingerTimedOut",
];

impl Expectation {
    /// Parses the words after `expect`.
    pub(super) fn parse(words: &[&str]) -> Result<Self, String> {
        Ok(match *words {
            [event] if EVENTS.contains(&event) || is_closed(event) => Self::Event(event.to_owned()),
            ["no", "event"] => Self::NoEvent,
            ["data", len] => Self::Data(Expression::parse(len)?),
            ["drop", name] => Self::Drop(name.to_owned()),
            ["state", name] => Self::State(name.to_owned()),
            ["isn", "differs", flow] => Self::Differs(Secret::Isn, flow.to_owned()),
            ["port", "differs", flow] => Self::Differs(Secret::Port, flow.to_owned()),
            ["clock", "differs", flow] => Self::Differs(Secret::Clock, flow.to_owned()),
            ["isn", "after", "last"] => Self::IsnAfterLast,
            ["isn", "after", flow] => Self::IsnAfter(flow.to_owned()),
            [name, comparison, value] => {
                Self::Number(name.to_owned(), Comparison::parse(comparison)?, Expression::parse(value)?)
            }
            _ => return Err(format!("nothing like {:?} can be expected", words.join(" "))),
        })
    }
}

fn is_closed(event: &str) -> bool {
    let reason = event.strip_prefix("Closed(").and_then(|rest| rest.strip_suffix(')'));
    reason.is_some_and(|reason| REASONS.contains(&reason))
}

impl Comparison {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "=" => Self::Equal,
            "!=" => Self::Unequal,
            "<" => Self::Less,
            "<=" => Self::AtMost,
            ">" => Self::More,
            ">=" => Self::AtLeast,
            _ => return Err(format!("{text:?} compares nothing: = != < <= > >=")),
        })
    }

    pub(super) fn holds(self, left: i64, right: i64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::Less => left < right,
            Self::AtMost => left <= right,
            Self::More => left > right,
            Self::AtLeast => left >= right,
        }
    }
}
