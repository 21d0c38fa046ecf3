//! From a tick to its order over a veth, seen by the venue: wirepath's trader, which is
//! `apps/order-entry/examples/trader.rs` as it is, against `incumbent.c`, which does the same over
//! kernel sockets.
//!
//! ```text
//!  near: the venue, on kernel sockets ── a tick, UDP ──▶ far: a trader, which spins
//!                                     ◀── its order, TCP ──┘
//! ```
//! The venue's clock runs from before the call that sends the tick until the call that read the
//! order has returned, so the kernel's share of the venue's end is in both figures. That of the
//! send alone is reported too: it is the least that any trader could add to.
//!
//! Both spin, a core each, as ordinary threads: the kernel stops a real-time one for 50 ms of each
//! second where others wait, which would be the slowest hundredth. So the machine must be quiet.

#[path = "../../../../apps/order-entry/benches/trade/exchange.rs"]
#[allow(clippy::unwrap_used, reason = "a bench may unwrap: a panic is the report")]
mod exchange;
mod venue;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::pair::{FAR, NEAR, Pair};
use super::sys;
use crate::measure::cores::pin;
use crate::measure::outside::{Missing, output};
use venue::Venue;

pub(super) use venue::TickTimes;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/live/trading/incumbent.c");

/// Who trades.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trader<'a> {
    /// The trader on wirepath, this binary.
    Ours(&'a str),
    /// The same without feed, books, checks and journal: the floor of AF_XDP and TCP here.
    Bare(&'a str),
    /// The C program on kernel sockets, compiled.
    Incumbent(&'a Path),
}

/// Compiles the incumbent into `directory`.
///
/// # Errors
/// Why it cannot be, and what to install.
pub(super) fn incumbent(directory: &Path) -> Result<PathBuf, Missing> {
    let program = directory.join("incumbent");
    std::fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    output(Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(SOURCE), "apt-get install gcc libc6-dev")?;
    Ok(program)
}

/// The times of `count` ticks, on a new pair.
///
/// # Errors
/// Why they could not be measured.
pub(super) fn tick_to_trade(cores: [usize; 2], trader: Trader<'_>, count: usize) -> Result<TickTimes, String> {
    let pair = Pair::new()?;
    let mut venue = pair.near.run(Venue::open)?;
    let _running = pair.far.run(|| {
        trader.take_cores(cores);
        trader.start()
    })?;
    pair.near.run(|| {
        pin(cores[0]);
        venue.wait_for_trader()?;
        venue.trade(count)
    })
}

impl Trader<'_> {
    /// Gives the calling thread, from which the trader inherits them, its cores. A port pins its
    /// worker to the last core and needs the other one for the thread that mirrors the kernel's
    /// state.
    fn take_cores(self, cores: [usize; 2]) {
        pin(cores[1]);
        if !matches!(self, Self::Incumbent(_))
            && let Err(error) = sys::run_on(&cores)
        {
            eprintln!("bench: not on both cores: {error}");
        }
    }

    /// Starts it in the namespace and on the cores of the calling thread.
    fn start(self) -> Result<Running, String> {
        let venue = NEAR.address.to_string();
        let mut command = match self {
            Self::Ours(program) | Self::Bare(program) => {
                let mut command = Command::new(program);
                command.args([FAR.interface.to_owned(), format!("{venue}:{}", venue::PORT)]);
                command.args(matches!(self, Self::Bare(_)).then_some("bare"));
                // What a port says of its machine is not news here.
                command.stderr(Stdio::null());
                command
            }
            Self::Incumbent(program) => {
                let mut command = Command::new(program);
                command.args([FAR.address.to_string(), venue, venue::PORT.to_string()]);
                command
            }
        };
        command.spawn().map(Running).map_err(|error| format!("{command:?}: {error}"))
    }
}

/// A trader that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already needs nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
