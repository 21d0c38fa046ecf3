//! A gateway that ends, by the kernel's sockets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use order_entry::journal::Journal;
use order_entry::orders::VenueEvent;
use order_entry::risk::KillSwitch;
use order_gateway::kernel::Kernel;
use order_gateway::{Core, Gateway, LineConfig, Run};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::common::line::Line;
use super::common::{Buyer, RESERVE, SECOND, book, config};
use super::turn;

const ORDERS: u64 = 48;
/// A cancel; all of them are more than the venue's socket holds.
static CANCEL: [u8; 1 << 15] = [b'c'; 1 << 15];

/// The venue is slower than the line.
const PACE: Duration = Duration::from_millis(2);

/// Takes cancel by cancel and answers each, then the Logout; where the line has ended it closes.
/// How many cancels came, and the bytes behind them.
fn venue(listener: TcpListener) -> JoinHandle<(u64, Vec<u8>)> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut message, mut cancels, mut rest) = (vec![0; CANCEL.len()], 0, Vec::new());
        while cancels < ORDERS && stream.read_exact(&mut message).is_ok() {
            cancels += 1;
            // So that the kernel has taken all long before.
            thread::sleep(PACE);
            // The line may have been reset.
            let _ = stream.write_all(b"canceled");
        }
        let _ = stream.read_to_end(&mut rest);
        (cancels, rest)
    })
}

#[test]
fn cancels_and_logout_of_a_gateway_that_ends_reach_a_venue_that_answers_and_their_answers_are_taken() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    set_socket_recv_buffer_size(&listener, 1 << 16).unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("an address of IPv4") };
    let venue = venue(listener);
    let kill = KillSwitch::new();
    let journal = Journal::create(vec![0; 1 << 18], 7, 0, RESERVE).unwrap();
    let gateway = Gateway::new(Buyer::default(), Core::new(config(&kill), Line::new(), journal));
    let mut run = Run::new(gateway, LineConfig::new(address), Box::new(Kernel::start()));
    while !turn(&mut run).concat().contains("connected") {}
    run.gateway.core_mut().arm(SECOND);
    for id in 1..=ORDERS {
        run.gateway.on_book(&book(10, id * SECOND));
        run.gateway.core_mut().session_mut().say(id, VenueEvent::Accepted { venue_id: 900 + id });
        run.gateway.received(&[], id * SECOND).unwrap();
    }
    assert_eq!(run.gateway.core().orders().live_count() as u64, ORDERS);
    let session = run.gateway.core_mut().session_mut();
    session.cancel = &CANCEL;
    // Taken with the first answer that is read.
    (1..=ORDERS).for_each(|id| session.say(id, VenueEvent::Canceled { reason: 0 }));
    kill.throw();
    run.log_out(&mut |sentence: &str| panic!("{sentence}"));
    assert_eq!(venue.join().unwrap(), (ORDERS, b"logout".to_vec()));
    assert_eq!(run.left_behind(), None, "the venue has told that it canceled them");
}
