//! Passive opens.

mod admission;
