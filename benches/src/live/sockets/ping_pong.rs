//! sockperf's ping-pong of 64 bytes, one message on its way at a time: the half of a round trip, as
//! sockperf says it.
//!
//! The kernel's ends spin as ours do (`--nonblocked`): an end that sleeps waits for the scheduler,
//! which is longer than all that is measured. Ours block, and the library polls.

use std::path::Path;
use std::thread;

use wirepath::device::af_xdp::{AfXdpConfig, Mode};
use wirepath::worker::StopFlag;
use wirepath::worker::broker::{Broker, BrokerConfig};
use wirepath::worker::live::PortConfig;

use super::super::pair::{FAR, NEAR, Pair};
use super::super::round_trip::{self, Kind, Times, begin};
use super::super::tcp_round_trip::{self, exchange};
use super::program::{Server, Side, installed, pinned, run, until};
use super::{Live, Title, both, window};
use crate::is_quick;
use crate::live::lines::{Runs, apart, turns};
use crate::measure::table::Line;

const PORT: u16 = 11_111;
/// Trips without sockets.
const COUNT: usize = 5_000;

/// Times of half a round trip, in nanoseconds.
struct Trip {
    p50: f64,
    p99: f64,
}

/// Half a round trip of a program's, and of the same without a stack, or by the framework's own
/// calls, in the same run.
type WithFloor = (Trip, Trip);

impl From<Times> for Trip {
    fn from(whole: Times) -> Self {
        Self { p50: whole.p50 / 2.0, p99: whole.p99 / 2.0 }
    }
}

impl Live<'_> {
    pub(super) fn ping_pongs(&mut self) {
        let found = self.cores().and_then(|cores| {
            installed(&["sockperf"])?;
            both(|side| {
                let floor = round_trip::times_of(cores, Kind::Ours, Kind::Ours, count())?;
                Ok((ping_pong(cores, [side; 2], false)?, floor.into()))
            })
        });
        let what = "sockperf over UDP and veth, both ends ours, half a round trip, p50";
        self.compare(&Title { what, unit: "ns", must: 0.6, hope: 0.5, less: true }, &found, |(trip, _): &WithFloor| {
            trip.p50
        });
        let what = "  p99: both ends ours";
        self.compare(&Title { what, unit: "ns", must: 0.7, hope: 0.7, less: true }, &found, |(trip, _)| trip.p99);
        let workers = "  workers of the framework at both ends, without sockets, in the same run";
        self.floors(workers, &found);
        let found = self.cores().and_then(|cores| {
            installed(&["sockperf"])?;
            both(|side| {
                let floor = exchange(cores, tcp_round_trip::Server::NoTcp, count())?;
                Ok((ping_pong(cores, [Side::Kernel, side], true)?, floor.into()))
            })
        });
        let what = "sockperf over TCP and veth, a kernel's client, our server, half a round trip, p50";
        self.compare(
            &Title { what, unit: "ns", must: 0.85, hope: 0.78, less: true },
            &found,
            |(trip, _): &WithFloor| trip.p50,
        );
        let (ours, theirs, ratio) = apart(&found, |(trip, _)| trip.p99);
        self.add(Line::new("  p99", "ns", ours));
        self.add(Line::new("  p99, the kernel in the same run", "ns", theirs));
        self.add(Line::new("  p99, wirepath over the kernel", "x", ratio));
        self.floors("  each request its own answer, without a stack: the floor of AF_XDP here", &found);
        self.forwarded();
    }

    /// The cost of a broker that passes the frames on. The broker and a client that sleeps share a
    /// core, on which the client comes first; the server has the other core.
    fn forwarded(&mut self) {
        let found = self.cores().and_then(|cores| {
            installed(&["sockperf"])?;
            turns(
                if is_quick() { 3 } else { 7 },
                || {
                    let (pair, folder) = (Pair::new()?, tempfile::tempdir().map_err(|error| error.to_string())?);
                    let path = folder.path().join("broker");
                    beside_broker(&pair, cores[0], &path, || {
                        let broker = format!("WIREPATH_BROKER={}", path.display());
                        ping_pong_of_sleeper(&pair, cores, &[&broker])
                    })
                },
                || ping_pong_of_sleeper(&Pair::new()?, cores, &[]),
            )
        });
        let (passed, own, ratio) = apart(&found, |trip: &Trip| trip.p50);
        let what = "sockperf over UDP and veth, a kernel's client that sleeps, our server by a broker that passes \
                    frames on, half a round trip, p50";
        self.add(Line::new(what, "ns", passed));
        self.add(Line::new("  by a queue of its own, in the same run", "ns", own));
        self.add(Line::new("  passed on over own", "x", ratio));
    }

    fn floors(&mut self, what: &str, found: &Runs<WithFloor>) {
        for (name, figure) in
            [("p50", (|(_, floor)| floor.p50) as fn(&WithFloor) -> f64), ("p99", |(_, floor)| floor.p99)]
        {
            let (floor, ..) = apart(found, figure);
            self.add(Line::new(&format!("{what}, {name}"), "ns", floor));
        }
    }
}

fn count() -> usize {
    if is_quick() { COUNT / 2 } else { COUNT }
}

/// Runs `act` while a broker at the far end passes frames on, at `path`.
pub(super) fn beside_broker<T>(
    pair: &Pair,
    core: usize,
    path: &Path,
    act: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    let stop = StopFlag::new();
    let port = PortConfig::AfXdp(AfXdpConfig { mode: Mode::Generic, ..AfXdpConfig::new(FAR.interface) });
    let config = BrokerConfig { path: path.to_path_buf(), forward: true, ..BrokerConfig::over(port) };
    thread::scope(|scope| {
        let serve = || {
            begin(core);
            Broker::open(config).and_then(|broker| broker.serve(&stop, |_| ())).map_err(|error| error.to_string())
        };
        let serving = scope.spawn(|| pair.far.run(serve));
        let acted = if until(|| path.exists() || serving.is_finished()) { act() } else { Err("no broker".to_owned()) };
        stop.stop();
        serving.join().unwrap_or_else(|_| Err("the broker panicked".to_owned())).and(acted)
    })
}

/// The round trip of a client that sleeps in the kernel, and a server of ours with these variables.
/// `taskset` has them too: it is under the library before the server is.
fn ping_pong_of_sleeper(pair: &Pair, cores: [usize; 2], variables: &[&str]) -> Result<Trip, String> {
    let cores = cores.map(|core| core.to_string());
    let (host, port, seconds) = (FAR.address.to_string(), PORT.to_string(), window().as_secs().to_string());
    let place = ["-i", host.as_str(), "-p", port.as_str()];
    let line = [&["sockperf", "server"], &place[..]].concat();
    let line = [variables, &pinned(&cores[1], &line)].concat();
    let _server = Server::start_udp(pair, Side::Ours, PORT, &line)?;
    let line =
        [&["chrt", "--rr", "2", "sockperf", "ping-pong", "-m", "64", "-t", seconds.as_str()], &place[..]].concat();
    let said = run(&pair.near, NEAR, Side::Kernel, &pinned(&cores[0], &line))?;
    Ok(Trip { p50: percentile(&said, "50.000")?, p99: percentile(&said, "99.000")? })
}

/// The round trip between a client and a server on these sides.
fn ping_pong(cores: [usize; 2], [client, server]: [Side; 2], is_tcp: bool) -> Result<Trip, String> {
    let pair = Pair::new()?;
    let cores = cores.map(|core| core.to_string());
    let (host, port, seconds) = (FAR.address.to_string(), PORT.to_string(), window().as_secs().to_string());
    let protocol: &[&str] = if is_tcp { &["--tcp"] } else { &[] };
    let common = |side| {
        let polls: &[&str] = if side == Side::Kernel { &["--nonblocked"] } else { &[] };
        [&["-i", host.as_str(), "-p", port.as_str()], protocol, polls].concat()
    };
    let line = [&["sockperf", "server"], &common(server)[..]].concat();
    let line = pinned(&cores[1], &line);
    let _server = match is_tcp {
        true => Server::start(&pair, server, PORT, &line)?,
        false => Server::start_udp(&pair, server, PORT, &line)?,
    };
    let line = [&["sockperf", "ping-pong", "-m", "64", "-t", seconds.as_str()], &common(client)[..]].concat();
    let said = run(&pair.near, NEAR, client, &pinned(&cores[0], &line))?;
    Ok(Trip { p50: percentile(&said, "50.000")?, p99: percentile(&said, "99.000")? })
}

/// `sockperf: ---> percentile 50.000 =    5.123`, in microseconds.
fn percentile(said: &str, which: &str) -> Result<f64, String> {
    let found = said.lines().find_map(|line| {
        let (_, figures) = line.split_once("percentile ")?;
        let (name, figure) = figures.split_once('=')?;
        (name.trim() == which).then(|| figure.trim().parse::<f64>().ok())?
    });
    found.map(|us| us * 1e3).ok_or_else(|| format!("sockperf printed no percentile {which}"))
}
