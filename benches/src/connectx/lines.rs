//! The lines of the table: instructions by callgrind, and times for information. A real NIC's caches and PCIe are in none of them.

use std::path::Path;
use std::process::Command;

use super::{BURST, dpdk};
use crate::outside::{Missing, Subject, numbers};
use crate::sampling::{Samples, Spread};
use crate::table::{Found, Line};

/// Measures, and hands each line on as soon as it has it.
pub struct Lines<'a> {
    /// Who takes the lines.
    pub add: &'a mut dyn FnMut(Line),
    /// The binary that is looked at.
    pub connectx: &'a str,
    /// Where what is compiled may lie.
    pub directory: &'a Path,
    /// Pairs of timed rounds.
    pub samples: usize,
}

impl Lines<'_> {
    /// All lines. Where no software ConnectX can be had they are skipped, with the reason.
    pub fn measure(&mut self) {
        let (ours, dpdk) = (subject(self.connectx), dpdk::subject(self.directory));
        let says = ours.as_ref().map_err(Clone::clone);
        let said = says.and_then(|subject| subject.says("times", &self.samples.to_string()));
        let times = |path| {
            let said = said.as_ref().map_err(Clone::clone)?;
            numbers(said, path).map(Samples::from)
        };

        let what = format!("ConnectX rings, 64 B, burst {BURST}, libmlx5's");
        self.add(Line::new(&format!("{what} poll_cq and post_recv"), "instr", count(&ours, "libmlx5-rx")));
        self.add(Line::new("  its time, without the NIC's", "ns", times("libmlx5-rx").map(|samples| samples.spread())));
        self.add(Line::new("  DPDK's mlx5 driver (vector)", "instr", count(&dpdk, "rx")));
        self.add(Line::new("  DPDK's mlx5 driver, compressed CQEs", "instr", count(&dpdk, "rx-compressed")));
        self.add(Line::new(&format!("{what} post_send and poll_cq"), "instr", count(&ours, "libmlx5-tx")));
        self.add(Line::new("  its time, without the NIC's", "ns", times("libmlx5-tx").map(|samples| samples.spread())));
        self.add(Line::new("  DPDK's mlx5 driver (multi-packet WQEs)", "instr", count(&dpdk, "tx")));
    }

    fn add(&mut self, line: Line) {
        (self.add)(line);
    }
}

fn count(subject: &Result<Subject, Missing>, path: &str) -> Found {
    subject.as_ref().map_err(Clone::clone)?.instructions(path).map(Spread::exactly)
}

/// The binary on two NICs that move when it says so. libmlx5 may leave its locks out, because one thread is all there is.
fn subject(connectx: &str) -> Result<Subject, Missing> {
    let softhca = softhca::testing::command(&["--manual", "--devices", "2"])?;
    let mut launcher = Command::new("env");
    launcher.arg("MLX5_SINGLE_THREADED=1").arg(softhca.get_program()).args(softhca.get_args());
    Ok(Subject::new(connectx).started_by(&launcher))
}
