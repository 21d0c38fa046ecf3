//! `wirepath ping`: measures the round trip of an echo over any device, by ICMP or UDP, with a
//! histogram; and the server that sends UDP echoes back.
//!
//! Echoes travel by a kernel socket, or by a queue of an interface over AF_XDP: shared with the
//! kernel, under its address, or with an address of our own. On a shared interface the kernel
//! receives ICMP, so echoes there are UDP.

mod clock;
mod histogram;
mod json;
mod kernel;
mod live;
mod path;
mod rounds;
mod serve;
#[allow(unsafe_code)]
mod sys;
mod text;
mod tracker;

use std::error::Error;
use std::io::{self, Write};
use std::net::Ipv4Addr;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory};
use wirepath::counters::printable;
use wirepath::proto::Ipv4Prefix;
use wirepath::time::Duration;
use wirepath::worker::{StopFlag, affinity};

use clock::PingClock;
use kernel::KernelPath;
use live::{LivePath, LocalEnd};
use path::{DATA_LEN_MAX, EchoPayload, Path, SEQUENCE_LEN, Target};
use rounds::{MeasuredPath, Plan};

/// `--via` of the kernel's sockets. No interface has this name without malice.
const KERNEL: &str = "kernel";
/// The port of the echo service (RFC 862).
const ECHO_PORT: u16 = 7;
/// More replies than these, or faster ones than this, are counted and not shown one by one.
const LINES_MAX: u64 = 20;
const LINES_INTERVAL: Duration = Duration::from_millis(100);

/// Measures round trips by ICMP or UDP, over kernel sockets or a queue of AF_XDP, with a histogram.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    wirepath ping 10.0.0.2 --count 5                                            as ping does\n  \
    wirepath ping 10.0.0.2 --via eth1 --local 10.0.0.9/24 --flood --count 100000  ICMP, AF_XDP\n  \
    wirepath ping 10.0.0.2 --udp 7 --via eth1 --compare --flood --count 10000   AF_XDP and the kernel in turns\n  \
    wirepath ping --serve --udp 7 --via eth1                                    the other end\n  \
    socat UDP4-LISTEN:7,fork EXEC:cat                                           another other end\n\
Exit code: 0 if there was an answer, 1 if there was none, 2 for a wrong command line.")]
pub(crate) struct PingOptions {
    /// The address that echoes are sent to
    #[arg(required_unless_present = "serve")]
    address: Option<Ipv4Addr>,
    /// Send UDP echoes, to this port, instead of ICMP
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    udp: Option<u16>,
    /// Serve echoes: send back the datagrams that arrive at the UDP port, by default 7
    #[arg(long, conflicts_with_all = ["address", "compare", "count", "interval", "flood", "size", "timeout", "json"])]
    serve: bool,
    /// The sender: AF_XDP on an interface, or kernel sockets
    #[arg(long, value_name = "INTERFACE|kernel", default_value = KERNEL)]
    via: String,
    /// An address on the interface that the kernel does not have, with ARP and ICMP of our own
    #[arg(long, value_name = "ADDRESS/LEN", value_parser = parse_local)]
    local: Option<Ipv4Prefix>,
    /// The router, for targets beyond the network of --local
    #[arg(long, value_name = "ADDRESS", requires = "local")]
    gateway: Option<Ipv4Addr>,
    /// The queue of the interface on which answers come
    #[arg(long, value_name = "N", default_value_t = 0)]
    queue: u16,
    /// Measure the interface and the kernel in turns
    #[arg(long, requires = "udp", conflicts_with = "local")]
    compare: bool,
    /// Stop after this many echoes, of each sender with --compare; by default on Ctrl-C
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// The time between two echoes: 10ms, 250us, 1s
    #[arg(short, long, value_name = "SPAN", default_value = "1s", value_parser = parse_span)]
    interval: Duration,
    /// Send the next echo as soon as the answer arrives or is late
    #[arg(short, long, conflicts_with = "interval")]
    flood: bool,
    /// Bytes of an echo behind the UDP or ICMP header
    #[arg(short, long, value_name = "BYTES", default_value_t = 56, value_parser = parse_size)]
    size: usize,
    /// The time after which an answer is late
    #[arg(short = 'W', long, value_name = "SPAN", default_value = "1s", value_parser = parse_span)]
    timeout: Duration,
    /// Poll without a pause; otherwise a socket sleeps, and a queue yields the core while no frames
    /// come
    #[arg(long)]
    spin: bool,
    /// Pin the thread to this core
    #[arg(long, value_name = "N")]
    core: Option<usize>,
    /// Print only the summary, not a line for each answer
    #[arg(short, long)]
    quiet: bool,
    /// One JSON object with all numbers
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(options: &PingOptions) -> Result<(), Box<dyn Error>> {
    options.check();
    let stop = StopFlag::on_signals()?;
    if let Some(core) = options.core {
        affinity::pin(core)?;
    }
    let mut clock = PingClock::start();
    match options.address {
        Some(address) => options.ask(address, &mut clock, &stop),
        None => options.serve(&mut clock, &stop),
    }
}

impl PingOptions {
    /// Ends the program where the options contradict each other in a way that clap does not detect.
    fn check(&self) {
        let is_kernel = self.place().is_none();
        let problem = if is_kernel && self.local.is_some() {
            "an address of our own needs an interface: name it with --via"
        } else if is_kernel && self.compare {
            "--compare needs an interface to compare the kernel with: name it with --via"
        } else if !is_kernel && !self.serve && self.udp.is_none() && self.local.is_none() {
            "on an interface that is the kernel's, ICMP answers go to the kernel: take an address of your own with \
             --local ADDRESS/LEN, or send UDP echoes with --udp PORT"
        } else {
            return;
        };
        let mut wirepath = crate::Cli::command().bin_name("wirepath");
        wirepath.build();
        let ping = wirepath.find_subcommand_mut("ping").expect("this is the subcommand");
        ping.error(ErrorKind::ArgumentConflict, problem).exit()
    }

    /// The queue; `None` for the kernel.
    fn place(&self) -> Option<LocalEnd> {
        let place =
            || LocalEnd { interface: self.via.clone(), queue: self.queue, local: self.local, gateway: self.gateway };
        (self.via != KERNEL).then(place)
    }

    fn serve(&self, clock: &mut PingClock, stop: &StopFlag) -> Result<(), Box<dyn Error>> {
        let port = self.udp.unwrap_or(ECHO_PORT);
        let served = match self.place() {
            Some(place) => serve::by_queue(&place, port, self.spin, clock, stop)?,
            None => serve::by_kernel(port, self.spin, stop)?,
        };
        writeln!(io::stdout().lock(), "{} datagrams sent back, {} not", served.answered, served.unanswered)?;
        Ok(())
    }

    fn ask(&self, address: Ipv4Addr, clock: &mut PingClock, stop: &StopFlag) -> Result<(), Box<dyn Error>> {
        let mut payload = EchoPayload::new(self.size);
        let target = Target { address, udp: self.udp, payload: payload.clone(), spins: self.spin };
        let plan = Plan {
            count: self.count,
            interval: if self.flood { Duration::ZERO } else { self.interval },
            timeout: self.timeout,
        };
        let mut lanes = self.lanes(&target, clock, stop)?;
        if !self.json {
            self.print_begin(&target, clock, &lanes)?;
        }
        let mut printed = Ok(());
        rounds::run(&mut lanes, &plan, &mut payload, (clock, stop), |lane, event| {
            if self.shows_lines() && printed.is_ok() {
                printed = io::stdout().lock().write_all(text::line(lane, event).as_bytes());
            }
            if printed.is_err() {
                // The reader of the output is gone.
                stop.stop();
            }
        });
        printed?;
        let text = match self.json {
            true => json::render(&target, &plan, clock, &lanes),
            false => lanes.iter().map(text::summary).collect(),
        };
        io::stdout().lock().write_all(text.as_bytes())?;
        let has_answer = lanes.iter().any(|lane| lane.tracker.counts().received + lane.tracker.counts().late > 0);
        if has_answer { Ok(()) } else { Err(no_answer(&target, &lanes).into()) }
    }

    fn lanes(&self, target: &Target, clock: &mut PingClock, stop: &StopFlag) -> Result<Vec<MeasuredPath>, String> {
        let mut paths: Vec<Box<dyn Path>> = Vec::new();
        if let Some(place) = self.place() {
            paths.push(Box::new(LivePath::open(&place, target, clock, stop)?));
        }
        if paths.is_empty() || self.compare {
            paths.push(Box::new(KernelPath::open(target)?));
        }
        Ok(paths.into_iter().map(|path| MeasuredPath::new(path, self.timeout)).collect())
    }

    fn print_begin(&self, target: &Target, clock: &PingClock, lanes: &[MeasuredPath]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}, {} bytes, timed by {}", text::what(target), self.size, clock.name())?;
        for lane in lanes {
            writeln!(out, "by {}", printable(lane.path.describe()))?;
            lane.path.notices().iter().for_each(|notice| eprintln!("wirepath: {}", printable(notice)));
        }
        Ok(())
    }

    fn shows_lines(&self) -> bool {
        let is_slow = !self.flood && self.interval >= LINES_INTERVAL;
        !self.json && !self.quiet && self.count.map_or(is_slow, |count| count <= LINES_MAX)
    }
}

/// The sentence for a target that did not answer.
fn no_answer(target: &Target, lanes: &[MeasuredPath]) -> String {
    let sent: u64 = lanes.iter().map(|lane| lane.tracker.counts().sent).sum();
    let what = text::what(target);
    match (target.udp, lanes.iter().any(|lane| lane.tracker.counts().refused > 0)) {
        (Some(port), true) => {
            format!("no {what}: no program listens there; start `wirepath ping --serve --udp {port}` on it")
        }
        _ => format!("no {what} came back ({sent} sent)"),
    }
}

fn parse_local(text: &str) -> Result<Ipv4Prefix, String> {
    text.parse().map_err(|_| "give the address with the length of its network's prefix, such as 10.0.0.9/24".to_owned())
}

fn parse_size(text: &str) -> Result<usize, String> {
    let range = SEQUENCE_LEN..=DATA_LEN_MAX;
    let size = text.parse().ok().filter(|size| range.contains(size));
    size.ok_or_else(|| format!("give {SEQUENCE_LEN} to {DATA_LEN_MAX} bytes; the first {SEQUENCE_LEN} number the echo"))
}

/// A number with its unit, seconds by default.
fn parse_span(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic() || letter == 'µ');
    let unit = match &text[digits.len()..] {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" | "" => 1e9,
        _ => return Err("the units are ns, us, ms and s".to_owned()),
    };
    let ns = digits.parse::<f64>().map_err(|_| "give a number and its unit, such as 10ms".to_owned())? * unit;
    // Less than a microsecond is a flood, more than a day most likely a mistake.
    if !(1e3..=86_400e9).contains(&ns) {
        return Err("give 1us to 86400s".to_owned());
    }
    Ok(Duration::from_nanos(ns as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_units() {
        for (text, ns) in [("10ms", 10_000_000), ("250us", 250_000), ("1.5", 1_500_000_000), ("2s", 2_000_000_000)] {
            assert_eq!(parse_span(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for text in ["", "ms", "10m", "-1s", "0", "1ns", "inf", "nan"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn echo_has_room_for_its_number() {
        assert_eq!((parse_size("8"), parse_size("65507")), (Ok(8), Ok(65_507)));
        assert!(["7", "65508", "x"].iter().all(|text| parse_size(text).is_err()));
    }
}
