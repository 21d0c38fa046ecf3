//! Which rings a frame goes to: its headers are found (`parse`), the flow rules are asked
//! (`rules`), and where a rule names a transport interface (`tir`), a hash chooses among its rings
//! (`rss`).

mod flow_key;
pub(super) mod parse;
mod rss;
mod rules;
mod tir;

pub(super) use parse::{Headers, L3, L4};
pub(super) use rules::{Delivery, Rest, Steering};
pub(super) use tir::{Spread, Tirs};
