#![doc = include_str!("../README.md")]

pub mod roce;
pub mod wire;
