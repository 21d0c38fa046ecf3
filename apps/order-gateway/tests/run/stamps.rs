//! Time stamps: what those of sent bytes do to what the venue says, and those of quotes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use market::Price;
use market_ring::{Quote, RingConfig, RingWriter};
use order_entry::journal::Journal;
use order_entry::risk::KillSwitch;
use order_gateway::kernel::Kernel;
use order_gateway::latency::{Arrival, IDLE_NS, Latency, Stage};
use order_gateway::{Core, Gateway, LineConfig, Quotes, Run};

use super::common::line::Line;
use super::common::{Buyer, RESERVE, SECOND, SYMBOL, config};
use super::{TestRun, turn};

/// What the venue says before it closes.
const ANSWERS: usize = 1 << 20;
/// Far more than the turns in which all of it is read.
const TURNS: usize = 100_000;

/// A run that measures, over the kernel, and its venue.
fn connected() -> (TestRun<Buyer>, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("an address of IPv4") };
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let mut gateway = Gateway::new(Buyer::default(), Core::new(config(&KillSwitch::new()), Line::new(), journal));
    gateway.measure(Latency::start(IDLE_NS));
    let mut run = Run::new(gateway, LineConfig::new(address), Box::new(Kernel::start()));
    while !turn(&mut run).iter().any(|sentence| sentence.starts_with("connected")) {
        thread::yield_now();
    }
    let (venue, _) = listener.accept().unwrap();
    venue.set_nonblocking(true).unwrap();
    (run, venue)
}

/// Each write leaves a stamp in the socket's memory, which is that of what the venue says, too.
#[test]
fn answers_arrive_behind_thousands_of_writes_that_no_packet_caused() {
    let (mut run, mut venue) = connected();
    for _ in 0..5_000 {
        run.gateway.core_mut().session_mut().out.extend(b"heartbeat");
        assert_eq!(turn(&mut run), [""; 0]);
        while venue.read(&mut [0; 1 << 12]).is_ok() {}
    }
    let answers = vec![7; ANSWERS];
    let (mut left, mut is_heard) = (&answers[..], false);
    for _ in 0..TURNS {
        if !left.is_empty() {
            match venue.write(left) {
                Ok(len) => left = &left[len..],
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            if left.is_empty() {
                venue.shutdown(Shutdown::Write).unwrap();
            }
        }
        is_heard |= turn(&mut run).iter().any(|sentence| sentence.contains("the venue has closed the connection"));
        if is_heard {
            break;
        }
    }
    assert!(is_heard, "the venue's end never came");
}

/// The ring has the time at which the market-gateway had the packet: here 1970.
#[test]
fn order_that_a_quote_causes_is_measured_from_the_time_of_its_packet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring");
    let mut ring = RingWriter::create(&path, &RingConfig { records: 64, quotes: 64, ..RingConfig::default() }).unwrap();
    let (mut run, _venue) = connected();
    run.gateway.core_mut().session_mut().order = b"order";
    run.quotes = Some(Quotes::new(&path, &[SYMBOL]));
    let (bid_px, ask_px) = (Price(1_000_000), Price(1_000_100));
    let quote = Quote { symbol: SYMBOL, bid_qty: 10, ask_qty: 10, bid_px, ask_px, receive_ns: 1, ..Quote::default() };
    assert!(turn(&mut run)[0].starts_with("quotes come from"));
    for _ in 0..2 {
        ring.update(0, &quote);
        ring.alive(0);
        turn(&mut run);
    }
    run.gateway.core_mut().arm(SECOND);
    ring.update(0, &Quote { receive_ns: 2, ..quote });
    turn(&mut run);
    assert_eq!(run.gateway.strategy().ids.len(), 1, "{:?}", run.gateway.strategy().refusals);
    let latency = run.gateway.latency().unwrap();
    let of =
        |stage| latency.histogram(stage, Arrival::AfterIdle).max() + latency.histogram(stage, Arrival::First).max();
    assert_eq!(latency.measured(), 1);
    assert!(of(Stage::WireToPoll) > 59 * SECOND && of(Stage::PollToPosted) < 59 * SECOND);
}
