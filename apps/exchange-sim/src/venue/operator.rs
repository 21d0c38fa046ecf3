//! What the venue's operator does, by a script or by hand: auctions, halts, trades that are broken.
//! All of it is told where it is seen: on the feed, to the accounts and in their drop copies.

use std::fmt;
use std::str::FromStr;

use market::{Locate, Symbol};
use matching_engine::{BreakError, TradingState};

use super::Venue;

/// One, or all that are in a state for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All listed instruments.
    All,
    /// This instrument.
    One(Symbol),
}

/// A command of the operator: `halt AAPL`, `quote AAPL`, `imbalance all`, `cross AAPL`,
/// `close all`, `break 17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Halts an instrument: orders are refused, and those that rest stay, or end where their
    /// account says so.
    Halt(Which),
    /// Takes orders for a cross, without trading; imbalances are published each second.
    Quote(Which),
    /// Publishes what the next cross would do now.
    Imbalance(Which),
    /// Holds the cross that opens, resumes or, where the instrument trades, closes it; it trades
    /// from then on.
    Cross(Which),
    /// Ends all orders of an instrument, and its day.
    Close(Which),
    /// Breaks the trade of this match number; of a cross all its executions.
    Break(u64),
}

impl Venue {
    /// Obeys a command.
    ///
    /// # Errors
    ///
    /// It makes no sense now, in words; nothing has happened.
    pub fn operate(&mut self, command: Command, now_ns: u64) -> Result<(), String> {
        let which = match command {
            Command::Break(number) => return self.break_trade(number, now_ns),
            Command::Halt(which)
            | Command::Quote(which)
            | Command::Imbalance(which)
            | Command::Cross(which)
            | Command::Close(which) => which,
        };
        match which {
            Which::One(symbol) => {
                let locate = *self.locates.get(&symbol).ok_or_else(|| format!("{symbol} is not listed"))?;
                self.check(command, locate).map_err(|why| format!("{symbol} {why}"))?;
                self.obey(command, locate, now_ns);
            }
            Which::All => {
                let those: Vec<_> = self.locates().filter(|&locate| self.check(command, locate).is_ok()).collect();
                if those.is_empty() {
                    return Err("no instrument is in a state for it".into());
                }
                those.into_iter().for_each(|locate| self.obey(command, locate, now_ns));
            }
        }
        Ok(())
    }

    /// Whether a command makes sense in the instrument's state.
    fn check(&self, command: Command, locate: Locate) -> Result<(), &'static str> {
        use TradingState::{Closed, Halted, Quoting, Trading};
        match (command, self.engine.trading_state(locate)) {
            (_, Closed) => Err("is closed"),
            (Command::Halt(_), Halted) => Err("is halted already"),
            (Command::Quote(_), Quoting) => Err("is quoted already"),
            (Command::Imbalance(_) | Command::Cross(_), Halted) => Err("is halted: quote it first"),
            (_, Halted | Quoting | Trading) => Ok(()),
        }
    }

    fn obey(&mut self, command: Command, locate: Locate, now_ns: u64) {
        let (engine, mut streams) = self.split();
        // The instrument exists: it was found.
        let _ = match command {
            Command::Halt(_) => engine.halt(locate, now_ns, &mut streams),
            Command::Quote(_) => engine.quote(locate, now_ns, &mut streams),
            Command::Close(_) => engine.close(locate, now_ns, &mut streams),
            Command::Imbalance(_) => return self.imbalance(locate, now_ns),
            Command::Cross(_) => return self.cross(locate, now_ns),
            Command::Break(_) => return,
        };
    }

    fn break_trade(&mut self, match_number: u64, now_ns: u64) -> Result<(), String> {
        let (engine, mut streams) = self.split();
        engine.break_trade(match_number, now_ns, &mut streams).map_err(|error| match error {
            BreakError::Unknown => format!("no trade has the number {match_number}, or it is too old"),
            BreakError::Again => format!("trade {match_number} was broken before"),
        })
    }
}

impl FromStr for Command {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "use halt, quote, imbalance, cross or close with SYMBOL or all, or break NUMBER";
        let (verb, object) = text.trim().split_once(char::is_whitespace).ok_or(FORM)?;
        let (object, which) = (object.trim(), || object.parse());
        match verb {
            "halt" => which().map(Self::Halt),
            "quote" => which().map(Self::Quote),
            "imbalance" => which().map(Self::Imbalance),
            "cross" => which().map(Self::Cross),
            "close" => which().map(Self::Close),
            "break" => match object.parse() {
                Ok(number) => Ok(Self::Break(number)),
                Err(_) => Err(format!("{object:?} is no match number")),
            },
            _ => Err(format!("{verb:?} is no command: {FORM}")),
        }
    }
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let symbol = Symbol::new(text).filter(|_| text.bytes().all(|byte| byte.is_ascii_graphic()));
        symbol.map(Self::One).ok_or_else(|| format!("{text:?} is no symbol of 1 to 8 visible characters"))
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::One(symbol) => write!(f, "{symbol}"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Halt(which) => write!(f, "halt {which}"),
            Self::Quote(which) => write!(f, "quote {which}"),
            Self::Imbalance(which) => write!(f, "imbalance {which}"),
            Self::Cross(which) => write!(f, "cross {which}"),
            Self::Close(which) => write!(f, "close {which}"),
            Self::Break(number) => write!(f, "break {number}"),
        }
    }
}
