//! Losses on both lines of a live feed that servers and loops heal: in one program, so that the
//! days of all formats, whose quiet seconds pass for each, are at the same time.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

#[path = "../common/mod.rs"]
mod common;
mod formats;
mod itch50;
mod mdp3;

use clap::Parser;
use feed_handler::RunPlan;
use feed_handler::args::{Cli, Command};
use feed_handler::feed::Tops;
use tempfile::tempdir;

use crate::common::network::PORT;

/// The plan of a live run on the port, as the command line makes it of a file: `settings` is what
/// the file has beside the port.
fn plan(settings: &str) -> RunPlan {
    let directory = tempdir().unwrap();
    let path = directory.path().join("feed.toml");
    let port = format!(
        "[port]\ninterface = \"{PORT}\"\nowner = \"dedicated\"\nrx_ring = 8192\n[host]\naddresses = [\"10.77.0.2/24\"]\n"
    );
    std::fs::write(&path, format!("{port}{settings}")).unwrap();
    let Command::Run(args) = Cli::parse_from(["feed-handler", "run", path.to_str().unwrap(), "--cpu", "any"]).command
    else {
        panic!("a live run was asked for")
    };
    let mut plan = args.plan().unwrap();
    plan.feed.tops = Tops::All;
    plan
}
