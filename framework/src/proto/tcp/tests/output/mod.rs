//! Sending.

mod at_once;
mod delegated;
mod run;
mod transmit;
