//! CME MDP 3.0: the layouts of its messages, generated from `schemas/cme-mdp3.xml`, and the decoder
//! to events.
//!
//! Instruments are numbers here ([`crate::Symbol::from_number`]); their names come with their
//! definitions. Prices keep their nine decimals ([`crate::Price9`]), because treasuries and
//! currencies have more than four: an event of MDP 3.0 is never rounded, and a book rounds only
//! where it is asked for a [`crate::TopOfBook`].
//!
//! The state of an instrument is that of its SecurityStatus, and behind a snapshot that of the
//! snapshot. One that CME tells of a whole product group, without an instrument, is no event of an
//! instrument: a halt by it is not known here. As a snapshot does not say whose state it has, it
//! ends a halt and begins none: what the group would end later would stay for ever.

mod decode;
pub mod emit;
#[rustfmt::skip]
pub mod layout;
mod loops;

pub use decode::{Mdp3, name};

#[cfg(test)]
mod tests;
