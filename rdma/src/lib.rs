#![doc = include_str!("../README.md")]

pub mod cable;
pub mod cm;
pub mod mirror;
pub mod out_of_band;
#[cfg(feature = "port")]
pub mod port;
pub mod provider;
pub mod roce;
pub mod snapshot;
pub mod wire;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
