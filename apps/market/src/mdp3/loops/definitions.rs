//! Whether each instrument of a channel was defined.

use std::collections::HashSet;

use super::super::layout::{FutureDefinition, OptionDefinition, SpreadDefinition, split_head};

/// Instruments that are told apart: more than any channel has, and a bound on what forged
/// definitions cost.
const INSTRUMENTS_MAX: usize = 1 << 20;

/// The loop of a channel's definitions, from the first packet that is received to the one with
/// which each instrument was defined. Allocates as instruments come: it is not for the hot core.
#[derive(Clone, Debug, Default)]
pub struct DefinitionLoop {
    seen: HashSet<i32>,
    /// Of the last definition.
    total: u32,
    is_whole: bool,
}

/// What a message of the loop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    security_id: i32,
    total: Option<u32>,
}

impl Head {
    /// `None` where the message defines no instrument that books are built of.
    fn read(message: &[u8]) -> Option<Self> {
        macro_rules! head {
            ($message:ident, $head:ident, $body:ident) => {{
                let root = $message::parse($head, $body).ok()?.root;
                Some(Self { security_id: root.security_id.get(), total: root.reports_total() })
            }};
        }
        let (head, body) = split_head(message).ok()?;
        match head.template {
            FutureDefinition::ID => head!(FutureDefinition, head, body),
            OptionDefinition::ID => head!(OptionDefinition, head, body),
            SpreadDefinition::ID => head!(SpreadDefinition, head, body),
            _ => None,
        }
    }
}

impl DefinitionLoop {
    /// A message of the loop. Returns whether it defines an instrument. How many there are is
    /// believed when two definitions in a row say the same.
    pub fn take(&mut self, message: &[u8]) -> bool {
        let Some(Head { security_id, total }) = Head::read(message) else { return false };
        if self.seen.len() < INSTRUMENTS_MAX {
            self.seen.insert(security_id);
        }
        let total = total.unwrap_or(u32::MAX);
        let agrees = core::mem::replace(&mut self.total, total) == total;
        self.is_whole |= agrees && self.seen.len() >= total as usize;
        true
    }

    /// Whether each instrument of the loop was defined: then leave its group.
    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The loop is listened to again, from anywhere in it.
    pub fn restart(&mut self) {
        self.seen.clear();
        (self.total, self.is_whole) = (0, false);
    }
}
