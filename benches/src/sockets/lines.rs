//! The lines of the table: what the calls of sockets add to the framework's own.

use super::c_calls::{Foreign, Own, Times};
use super::c_streams;
use super::{OwnExchange, OwnReception, SocketExchange, SocketReception};
use crate::measure::sampling::{Samples, Spread, interleave};
use crate::measure::table::{DemuxMatch, Line};

/// Requests of a sample.
const REQUESTS: usize = 500;

/// All lines, each as soon as it is measured, without times for zero samples; `instructions` counts
/// those of a path.
pub fn lines(samples: usize, instructions: impl Fn(&str) -> DemuxMatch, mut add: impl FnMut(Line)) {
    receptions(samples, &instructions, &mut add);
    exchanges(samples, &instructions, &mut add);
    calls_of_c(samples, &mut add);
    streams_of_c(samples, &mut add);
}

fn receptions(samples: usize, instructions: impl Fn(&str) -> DemuxMatch, add: &mut impl FnMut(Line)) {
    let (mut own, mut sockets) = (OwnReception::new(), SocketReception::new());
    let [own, sockets] = interleave(samples, [&mut || own.time(), &mut || sockets.time()]);
    add(Line::new(
        "UDP, a call of recvfrom in memory, 64 B: what it adds to the framework's own",
        "ns",
        sockets.minus(&own),
    )
    .at_most(120.0)
    .hoping(60.0));
    add(Line::new("  with the framework's share", "ns", sockets.spread()));
    add(Line::new("  the framework alone, in the same run", "ns", own.spread()));
    add(Line::new("  instructions added", "instr", added(&instructions, "sockets-udp", "host-udp")));
}

fn exchanges(samples: usize, instructions: impl Fn(&str) -> DemuxMatch, add: &mut impl FnMut(Line)) {
    let (mut own, mut sockets) = (OwnExchange::new(), SocketExchange::new());
    let [own, sockets] = interleave(samples, [&mut || own.time(REQUESTS), &mut || sockets.time(REQUESTS)]);
    let what = "TCP, four calls for a request and its response in memory, 64 B: what they add";
    add(Line::new(what, "ns", sockets.minus(&own)).at_most(120.0).hoping(60.0));
    add(Line::new("  with the framework's share, both ends", "ns", sockets.spread()));
    add(Line::new("  the framework alone, in the same run", "ns", own.spread()));
    add(Line::new("  instructions added", "instr", added(&instructions, "sockets-tcp", "host-tcp")));
}

fn calls_of_c(samples: usize, add: &mut impl FnMut(Line)) {
    let (mut own, mut foreign) = (Own::new(), Foreign::new());
    for (what, of) in [
        ("a turn that receives, by datagrams of 64 B", (|times: Times| times.receive) as fn(Times) -> f64),
        ("a call that sends 64 B", |times| times.send),
    ] {
        let both = interleave(samples, [&mut || of(own.times()), &mut || of(foreign.times())]);
        add_of_c(what, both, add);
    }
}

fn streams_of_c(samples: usize, add: &mut impl FnMut(Line)) {
    let (mut own, mut foreign) = (c_streams::Own::new(), c_streams::Foreign::new());
    for (what, of) in [
        ("a call that sends 64 B by TCP", (|times: c_streams::Times| times.send) as fn(c_streams::Times) -> f64),
        ("a prepared order of 64 B that is fired", |times| times.fire),
    ] {
        let both = interleave(samples, [&mut || of(own.times()), &mut || of(foreign.times())]);
        add_of_c(what, both, add);
    }
}

/// What the calls of C add to Rust's, of samples of both.
fn add_of_c(what: &str, [own, foreign]: [Samples; 2], add: &mut impl FnMut(Line)) {
    let what = format!("C in memory, {what}: what it adds to Rust's");
    add(Line::new(&what, "ns", foreign.minus(&own)).at_most(10.0));
    add(Line::new("  with Rust's share", "ns", foreign.spread()));
    add(Line::new("  Rust alone, in the same run", "ns", own.spread()));
}

/// The difference of two counts.
fn added(instructions: impl Fn(&str) -> DemuxMatch, path: &str, without: &str) -> DemuxMatch {
    Ok(Spread::exactly(instructions(path)?.median - instructions(without)?.median))
}
