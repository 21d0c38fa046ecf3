//! CME MDP 3.0: the layouts of its messages, generated from `schemas/cme-mdp3.xml`, and the decoder
//! to events.
//!
//! Instruments are numbers here ([`crate::Symbol::from_number`]); their names come with their
//! definitions. Prices keep their nine decimals ([`crate::Price9`]), because treasuries and
//! currencies have more than four: an event of MDP 3.0 is never rounded, and a book rounds only
//! where it is asked for a [`crate::TopOfBook`].
//!
//! The state of an instrument is that of its SecurityStatus, or of one that CME tells of its whole
//! product group ([`crate::event::GroupStatus`]), whichever is later, and behind a snapshot that of
//! the snapshot. A snapshot does not say whose state it has: a halt by it may end with a status of
//! the group, so that [`crate::Halts::take_snapshot`] begins it where the group is known.

mod decode;
pub mod emit;
#[rustfmt::skip]
pub mod layout;
mod loops;

pub use decode::{Mdp3, name};

#[cfg(test)]
mod tests;
