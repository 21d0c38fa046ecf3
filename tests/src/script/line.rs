//! The parts of a parsed script.

use core::net::SocketAddrV4;

use wirepath::pipeline::tcp::AcceptDecision;
use wirepath::time::Duration;

use super::app::Call;
use super::expect::Expectation;
use super::expression::Expression;
use super::options::{Limit, Setting};
use super::segment::{Expected, Incoming};

/// One line of a script, and where it stood.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) text: String,
    pub(super) when: When,
    /// The connection that it is about, where it names one.
    pub(super) flow: Option<String>,
    pub(super) action: Action,
}

/// When a line happens, from the one before it on.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    /// In the same burst.
    Same,
    /// After a time; the segment may leave at any time from the first to the second.
    After(Duration, Duration),
}

/// The content of a line.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// `option NAME VALUE`, before the first line that does something.
    Option(Setting),
    /// `config NAME VALUE`, there too.
    Config(Limit),
    /// `< …`
    Receive(Box<Incoming>),
    /// `> …`
    Leaves(Box<Expected>),
    /// `> nothing`
    Silence,
    /// `call …`, and how the answer begins where it is an error.
    Call(Call, Option<String>),
    /// `expect …`
    Expect(Expectation),
    /// `app accepts | refuses | ignores`
    Policy(AcceptDecision),
    /// `app reads`, `app waits`
    Reads(bool),
    /// `wire …`
    Wire(WireState),
    /// `anew`: the next SYN of this flow begins another connection.
    Anew,
    /// `like NAME`: this flow has the same remote end.
    Like(String),
    /// `at ADDRESS:PORT`: the remote end of this flow.
    At(SocketAddrV4),
    /// `let NAME = EXPRESSION`
    Let(String, Expression),
    /// `repeat COUNT [NAME]` … `end`
    Repeat(Expression, Option<String>, Vec<Line>),
}

/// The behavior of the output from now on.
#[derive(Clone, Debug)]
pub(super) enum WireState {
    /// Takes segments.
    Free,
    /// Has no room.
    Busy,
    /// Loses segments, and says so.
    Down,
    /// Takes packets of so many bytes.
    Mtu(Expression),
    /// Cuts payloads of this many bytes into segments.
    Cuts(Expression),
}
