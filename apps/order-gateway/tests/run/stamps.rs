//! What time stamps of sent bytes do to what the venue says.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use order_entry::journal::Journal;
use order_entry::risk::KillSwitch;
use order_gateway::kernel::Kernel;
use order_gateway::latency::{IDLE_NS, Latency};
use order_gateway::{Core, Gateway, LineConfig, Run};

use super::common::line::Line;
use super::common::{Buyer, RESERVE, config};
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
