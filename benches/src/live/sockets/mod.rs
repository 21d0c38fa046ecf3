//! Unmodified programs on wirepath, against the same programs on the kernel.
//!
//! ```text
//!  near: a kernel's client ── veth0 ═══ veth1 ── far: a server, on the kernel or under the library
//! ```
//! Each run starts its server anew, on a new pair. All programs run before those that are not
//! real-time (SCHED_RR). A client and a server of one thread each have a core each, as everywhere
//! in these figures; a server of several threads or processes shares both cores with its client, as
//! the kernel's scheduler decides.

mod calls;
mod idle;
mod ping_pong;
mod program;
mod servers;

use std::time::Duration;

use super::Live;
use super::lines::{Runs, apart, turns};
use super::sys;
use crate::is_quick;
use crate::measure::table::Line;
use program::Side;

impl Live<'_> {
    /// All lines of programs on wirepath's sockets. A program that is not installed is named, and
    /// its lines are skipped.
    ///
    /// The calling thread may run on both cores from here on: a program inherits its cores from the
    /// thread that starts it, and a server that shared the one core of this report with its client
    /// would say nothing about either.
    pub fn programs(&mut self) {
        if let Some(why) = self.cores.and_then(|cores| sys::run_on(&cores).err()) {
            eprintln!("bench: servers share one core with their clients: {why}");
        }
        self.ping_pongs();
        self.servers();
        self.added();
        self.receptions();
        self.churns();
        self.system_calls();
        self.idle_server();
        self.idle_connections();
    }

    /// A figure of ours, the kernel's, and their ratio with its promise: at most so much where less
    /// is better, else at least.
    fn compare<T>(&mut self, title: &Title<'_>, runs: &Runs<T>, figure: impl Fn(&T) -> f64) {
        let (ours, kernel, ratio) = apart(runs, figure);
        let Title { what, unit, must, hope, less } = *title;
        self.add(Line::new(what, unit, ours));
        self.add(Line::new(&part(what, "the kernel in the same run"), unit, kernel));
        let ratio = Line::new(&part(what, "wirepath over the kernel"), "x", ratio);
        self.add(if less { ratio.at_most(must) } else { ratio.at_least(must) }.hoping(hope));
    }
}

/// The lines of a comparison.
struct Title<'a> {
    what: &'a str,
    unit: &'static str,
    must: f64,
    hope: f64,
    /// Less is better.
    less: bool,
}

/// A line below another, which may be a part itself.
fn part(of: &str, what: &str) -> String {
    match of.trim_start().split_once(": ").filter(|_| of.starts_with(' ')) {
        Some((of, _)) => format!("  {of}: {what}"),
        None => format!("  {what}"),
    }
}

/// Ours and the kernel's in turn.
fn both<T>(run: impl FnMut(Side) -> Result<T, String>) -> Runs<T> {
    let rounds = if is_quick() { 1 } else { 5 };
    in_turns(rounds, run)
}

/// The same in at least three rounds: a server of several threads that shares both cores with its
/// client is served differently in each run.
fn several<T>(run: impl FnMut(Side) -> Result<T, String>) -> Runs<T> {
    in_turns(if is_quick() { 3 } else { 7 }, run)
}

fn in_turns<T>(rounds: usize, mut run: impl FnMut(Side) -> Result<T, String>) -> Runs<T> {
    let run = std::cell::RefCell::new(&mut run);
    turns(rounds, || (run.borrow_mut())(Side::Ours), || (run.borrow_mut())(Side::Kernel))
}

/// How long a client asks.
fn window() -> Duration {
    Duration::from_secs(if is_quick() { 1 } else { 2 })
}
