//! The lines of the table: instructions by callgrind, and times for information. A real NIC's
//! caches and PCIe are in none of them.

use std::path::Path;
use std::process::Command;

use super::{BURST, dpdk};
use crate::measure::outside::{Missing, ROUNDS_OF_A_MILLION, Subject, numbers};
use crate::measure::sampling::{Samples, Spread};
use crate::measure::table::{DemuxMatch, Line};

/// Measures, and passes on each line as soon as it is complete.
pub struct Lines<'a> {
    /// Receives the lines.
    pub add: &'a mut dyn FnMut(Line),
    /// The binary that runs on software NICs.
    pub connectx: &'a str,
    /// The binary that has the driver over plain memory.
    pub packets: &'a str,
    /// The directory for compiled programs.
    pub directory: &'a Path,
    /// Pairs of timed rounds; zero where only counts are wanted.
    pub samples: usize,
}

impl Lines<'_> {
    /// All lines. Where software ConnectXs are not available they are skipped, with the reason.
    pub fn measure(&mut self) {
        self.alone();
        let (subject, dpdk) = (subject(self.connectx), dpdk::subject(self.directory));
        let instructions = |path| count(&subject, path);
        let times = subject.as_ref().map_err(Clone::clone);
        let times = times.and_then(|subject| match self.samples {
            0 => Err("this run counts and takes no times".to_owned()),
            samples => subject.run_output("times", &samples.to_string()),
        });

        let [ours, theirs] = ["rx", "libmlx5-rx"].map(instructions);
        let ratio = over(&ours, &theirs);
        self.add(Line::new(
            &format!("mlx5 receive with refill, software ConnectX, 64 B, burst {BURST}"),
            "instr",
            ours,
        ));
        self.add(Line::new("  libmlx5's ibv_poll_cq and ibv_post_recv in the same way", "instr", theirs));
        self.add(Line::new("  wirepath over libmlx5", "x", ratio).at_most(0.5));
        self.add(Line::new("  DPDK's mlx5 driver in the same way (vector code)", "instr", count(&dpdk, "rx")));
        self.add(Line::new("  with compressed CQEs", "instr", instructions("rx-compressed")));
        self.add(Line::new("  DPDK's mlx5 driver with compressed CQEs", "instr", count(&dpdk, "rx-compressed")));
        self.times(&times, "rx");

        let [ours, theirs] = ["tx", "libmlx5-tx"].map(instructions);
        let ratio = over(&ours, &theirs);
        self.add(Line::new(&format!("mlx5 send with reaping, software ConnectX, 64 B, burst {BURST}"), "instr", ours));
        self.add(Line::new("  libmlx5's ibv_post_send and ibv_poll_cq in the same way", "instr", theirs));
        self.add(Line::new("  wirepath over libmlx5", "x", ratio).at_most(0.4));
        self.add(Line::new("  DPDK's mlx5 driver in the same way (multi-packet WQEs)", "instr", count(&dpdk, "tx")));
        self.add(Line::new("  with a WQE for each frame", "instr", instructions("tx-single")));
        self.times(&times, "tx");

        for (path, what) in [("rx", "received"), ("tx", "sent")] {
            self.what_a_packet_must_not_cost(&subject, path, what);
        }
        // Four marks of each request are system calls as well: a million would take 20 minutes.
        let calls = subject.and_then(|subject| subject.system_calls_of("sockets", "100").map(Spread::exactly));
        let what = "system calls of a request and its response by sockets over mlx5, by strace of 25,600";
        self.add(Line::new(what, "calls", calls).at_most(0.0).hoping(0.0));
    }

    /// The device over plain memory, where the bench plays the NIC. A worker's nodes post frame by
    /// frame; a burst at once is what a forwarder may post.
    fn alone(&mut self) {
        let packets = Ok(Subject::new(self.packets));
        for (what, path, limit) in [
            ("mlx5 alone, CQE to mbuf with refill, 60 B, burst 32", "mlx5-rx", 60.0),
            ("  with compressed CQEs", "mlx5-rx-compressed", 40.0),
            ("  with stamps, hashes, tags and VLANs", "mlx5-rx-full", f64::INFINITY),
            ("mlx5 alone, mbuf to doorbell, frame by frame as nodes post, a WQE for each", "mlx5-tx-frames", 60.0),
            ("  with multi-packet WQEs", "mlx5-tx-multi-frames", f64::INFINITY),
            ("mlx5 alone, mbuf to doorbell, a burst at once, a WQE for each frame", "mlx5-tx", 60.0),
            ("  a burst at once, with multi-packet WQEs", "mlx5-tx-multi", 25.0),
            ("  with multi-packet WQEs, completion to pool", "mlx5-tx-multi-reap", f64::INFINITY),
        ] {
            let line = Line::new(what, "instr", count(&packets, path));
            self.add(if limit.is_finite() { line.at_most(limit) } else { line });
        }
    }

    /// For information: the NIC's share is left out, and its caches and PCIe are not modeled.
    fn times(&mut self, said: &Result<String, Missing>, path: &str) {
        let of = |path: &str| numbers(said.as_ref().map_err(Clone::clone)?, path).map(Samples::from);
        let (ours, theirs) = (of(path), of(&format!("libmlx5-{path}")));
        let ratio =
            ours.as_ref().map_err(Clone::clone).and_then(|ours| ours.over(theirs.as_ref().map_err(Clone::clone)?));
        self.add(Line::new("  time between the model's turns, which says nothing of a NIC", "ns", spread(ours)));
        self.add(Line::new("  time of libmlx5's calls, in turns", "ns", spread(theirs)));
        self.add(Line::new("  wirepath over libmlx5, time", "x", ratio));
    }

    fn what_a_packet_must_not_cost(&mut self, subject: &Result<Subject, Missing>, path: &str, what: &str) {
        let subject = subject.as_ref().map_err(Clone::clone);
        let allocations = subject.clone().and_then(|subject| {
            let said = subject.run_output(path, ROUNDS_OF_A_MILLION)?;
            Ok(Spread::exactly(numbers(&said, "allocations")?[0]))
        });
        let calls = subject.and_then(|subject| subject.system_calls(path).map(Spread::exactly));
        let title = format!("allocations in a million packets {what} by mlx5");
        self.add(Line::new(&title, "count", allocations).at_most(0.0));
        let title = format!("system calls a packet {what} by mlx5, by strace of a million");
        self.add(Line::new(&title, "calls", calls).at_most(0.0));
    }

    fn add(&mut self, line: Line) {
        (self.add)(line);
    }
}

fn spread(samples: Result<Samples, Missing>) -> DemuxMatch {
    samples?.spread()
}

/// The ratio of two counts.
fn over(ours: &DemuxMatch, theirs: &DemuxMatch) -> DemuxMatch {
    let (ours, theirs) = (ours.as_ref().map_err(Clone::clone)?, theirs.as_ref().map_err(Clone::clone)?);
    Ok(Spread::exactly(ours.median / theirs.median))
}

fn count(subject: &Result<Subject, Missing>, path: &str) -> DemuxMatch {
    subject.as_ref().map_err(Clone::clone)?.instructions(path).map(Spread::exactly)
}

/// The binary on two NICs that it steps itself. libmlx5 may omit its locks, because there is only
/// one thread.
fn subject(connectx: &str) -> Result<Subject, Missing> {
    let softhca = softhca::testing::command(&["--manual", "--devices", "2"])?;
    let mut launcher = Command::new("env");
    launcher.arg("MLX5_SINGLE_THREADED=1").arg(softhca.get_program()).args(softhca.get_args());
    Ok(Subject::new(connectx).started_by(&launcher))
}
