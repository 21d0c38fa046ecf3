//! The exchange's own book as CME's MDP 3.0, beside ITCH: what a receiver of ITCH knows, by price
//! and ten levels deep.
//!
//! ```text
//!   messages of ITCH ─> [translator] ─ Book, TradeSummary ─> incremental A, B     numbered from 1
//!        time ─┬─ FutureDefinition of each instrument ─────> definitions A, B     from 1 in each loop
//!              └─ Snapshot of each active instrument ──────> snapshots A, B       from 1 in each loop
//! ```
//!
//! An instrument has the number that ITCH gives it as its locate code.

mod ladder;
mod lines;
mod loops;
mod settings;
mod translator;

pub use lines::Mdp3Counts;
pub(crate) use lines::{LINES_OF_ITCH, Mdp3Lines};
pub use settings::Mdp3Groups;

#[cfg(test)]
mod tests;
