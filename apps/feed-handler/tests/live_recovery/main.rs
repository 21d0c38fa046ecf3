//! Losses on both lines of a live feed that servers and loops heal: in one program, so that the
//! days of all formats, whose quiet seconds pass for each, are at the same time.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

#[path = "../common/mod.rs"]
mod common;
mod formats;
mod itch50;
mod mdp3;
