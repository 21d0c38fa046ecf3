//! TCP against the Linux kernel: connections in both directions, whose bytes come whole whatever the wire does.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::TcpStream;
use std::time::Instant;

use wirepath::pipeline::tcp::{CloseReason, ConnectionId, ConnectionOptions, ListenOptions, TcpConfig};
use wirepath_tests::live::{Live, LiveConfig, NEAR, OURS, Plan, THEIRS, Wire, peer, table};

const PORT: u16 = 7_000;
/// Enough for slow start, full windows and what wraps in between, and little enough for every run.
const BULK: u64 = 16 << 20;

fn tcp() -> TcpConfig {
    TcpConfig { connections_max: 64, chunks_max: 4_096, ..TcpConfig::default() }
}

/// A wire with us on it.
fn start(test: &str) -> Option<(Wire, Live)> {
    let wire = Wire::new(test)?;
    let live = Live::start(&wire.near, &LiveConfig::own(NEAR).with_tcp(tcp())).unwrap();
    Some((wire, live))
}

/// Which end begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    Us,
    Them,
}

/// A connection on a quiet wire.
fn open(live: &Live, wire: &Wire, opens: Opens, plan: Plan) -> (ConnectionId, TcpStream) {
    match opens {
        Opens::Us => {
            let listener = peer::listener(&wire.far, 0);
            let port = listener.local_addr().unwrap().port();
            let id = live.dial((THEIRS, port), ConnectionOptions::default(), plan);
            (id, peer::accept(&listener).unwrap())
        }
        Opens::Them => {
            let before = live.with(|recorder, _| recorder.traffic.accepted.len());
            let stream = peer::connect(&wire.far, (OURS, PORT)).unwrap();
            (live.accepted(before), stream)
        }
    }
}

/// Sends so many bytes each way, all at the same time, and checks every one of them.
fn transfer(live: &Live, id: ConnectionId, socket: &TcpStream, ours: u64, theirs: u64) {
    let start = Instant::now();
    let heard = peer::exchange(socket, theirs);
    let took = start.elapsed();
    let heard = heard.unwrap_or_else(|error| panic!("{error}: {:?}\n{}", live.end_of(id), table(&live.snapshot())));
    assert_eq!(heard, ours, "what the kernel has heard of us");
    live.until("the connection is closed", |live| live.end_of(id).closed.is_some());
    let end = live.end_of(id);
    assert_eq!((end.wrong_at, end.received), (None, theirs), "what we have heard of the kernel");
    assert_eq!(end.closed, Some(CloseReason::Finished));
    let rate = (ours + theirs) as f64 / took.as_secs_f64() / 1e6;
    let info = end.info.unwrap();
    println!(
        "{ours} bytes to the kernel and {theirs} from it in {took:?}, {rate:.0} MB/s; resent {} segments, {} timeouts",
        info.resent_segments, info.timeouts
    );
}

fn bulk(test: &str, opens: Opens, ours: u64, theirs: u64) {
    let Some((wire, live)) = start(test) else { return };
    let plan = Plan::send(ours);
    live.listen(PORT, ListenOptions::default(), plan);
    let (id, socket) = open(&live, &wire, opens, plan);
    transfer(&live, id, &socket, ours, theirs);
    live.stop();
}

#[test]
fn bulk_that_we_connect_for_comes_whole_to_the_kernel() {
    bulk("bulk_that_we_connect_for_comes_whole_to_the_kernel", Opens::Us, BULK, 0);
}

#[test]
fn bulk_that_we_connect_for_comes_whole_to_us() {
    bulk("bulk_that_we_connect_for_comes_whole_to_us", Opens::Us, 0, BULK);
}

#[test]
fn bulk_that_we_accept_comes_whole_to_the_kernel() {
    bulk("bulk_that_we_accept_comes_whole_to_the_kernel", Opens::Them, BULK, 0);
}

#[test]
fn bulk_that_we_accept_comes_whole_to_us() {
    bulk("bulk_that_we_accept_comes_whole_to_us", Opens::Them, 0, BULK);
}

#[test]
fn bulk_comes_whole_both_ways_at_once() {
    for opens in [Opens::Us, Opens::Them] {
        bulk("bulk_comes_whole_both_ways_at_once", opens, BULK, BULK);
    }
}
