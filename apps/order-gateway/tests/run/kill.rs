//! What a thrown kill switch does to the connection when its time is over.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use order_entry::journal::Journal;
use order_entry::orders::VenueEvent;
use order_entry::risk::KillSwitch;
use order_gateway::host::{Host, Stream, Waits};
use order_gateway::{Core, CoreConfig, Gateway, KillLine, LineConfig, Run};

use super::common::line::Line;
use super::common::{Buyer, RESERVE, SECOND, book, config};
use super::turn;

/// Connections of a venue that says nothing by itself.
#[derive(Debug, Default)]
struct Wire {
    now_ns: Cell<u64>,
    connects: Cell<usize>,
    resets: Cell<usize>,
    is_open: Cell<bool>,
    has_said: Cell<bool>,
}

#[derive(Debug)]
struct Machine(Rc<Wire>);

#[derive(Debug)]
struct Connection(Rc<Wire>);

impl Host for Machine {
    fn now_ns(&self) -> u64 {
        self.0.now_ns.get()
    }

    fn epoch_offset_ns(&self) -> u64 {
        0
    }

    fn connect(&self, _to: SocketAddrV4, _waits: Waits) -> io::Result<Box<dyn Stream>> {
        self.0.connects.set(self.0.connects.get() + 1);
        self.0.is_open.set(true);
        Ok(Box::new(Connection(self.0.clone())))
    }
}

impl Read for Connection {
    /// A byte where the venue's messages are to be taken.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if !self.0.has_said.replace(false) {
            return Err(ErrorKind::WouldBlock.into());
        }
        bytes[0] = 0;
        Ok(1)
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.is_open.set(false);
    }
}

impl Stream for Connection {
    fn reset(self: Box<Self>) -> io::Result<()> {
        self.0.resets.set(self.0.resets.get() + 1);
        Ok(())
    }
}

type LineRun = Run<Buyer, Line, Vec<u8>>;

/// An armed run with a connection and `orders` live orders, whose switch ends the session a second
/// after it was thrown.
fn run(kill: &KillSwitch, orders: u64, cancels_on_disconnect: bool) -> (LineRun, Rc<Wire>) {
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let kill_line = KillLine { after_ns: Some(SECOND), cancels_on_disconnect };
    let core = Core::new(CoreConfig { kill_line, ..config(kill) }, Line::new(), journal);
    let wire = Rc::new(Wire::default());
    wire.now_ns.set(SECOND);
    let venue = LineConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));
    let mut run = Run::new(Gateway::new(Buyer::default(), core), venue, Box::new(Machine(wire.clone())));
    run.gateway.core_mut().arm(SECOND);
    turn(&mut run);
    for id in 1..=orders {
        run.gateway.on_book(&book(10, id * SECOND));
        answer(&mut run, &wire, id, VenueEvent::Accepted { venue_id: 900 + id });
    }
    assert_eq!(run.gateway.core().orders().live_count() as u64, orders);
    wire.now_ns.set(10 * SECOND);
    (run, wire)
}

fn answer(run: &mut LineRun, wire: &Wire, id: u64, event: VenueEvent) {
    run.gateway.core_mut().session_mut().say(id, event);
    wire.has_said.set(true);
    turn(run);
}

/// A turn at `ms` behind the throw, and what a person is told.
fn after(run: &mut LineRun, wire: &Wire, ms: u64) -> String {
    wire.now_ns.set(10 * SECOND + ms * 1_000_000);
    turn(run).join("; ")
}

#[test]
fn session_is_logged_out_when_the_time_of_a_thrown_switch_is_over_and_closed_until_somebody_arms() {
    let kill = KillSwitch::new();
    let (mut run, wire) = run(&kill, 1, false);
    kill.throw();
    after(&mut run, &wire, 0);
    assert_eq!(run.gateway.core().session().canceled, [1]);
    answer(&mut run, &wire, 1, VenueEvent::Canceled { reason: 0 });
    assert_eq!(after(&mut run, &wire, 999), "");
    assert!(wire.is_open.get(), "its time is not over");
    assert!(after(&mut run, &wire, 1_000).contains("logged out until somebody arms"));
    assert_eq!((wire.is_open.get(), wire.resets.get(), run.gateway.core().session().log_outs), (false, 0, 1));
    // Nor does another throw have it connect.
    kill.throw();
    (2..60).for_each(|second| drop(after(&mut run, &wire, second * 1_000)));
    assert_eq!(wire.connects.get(), 1);
    run.gateway.core_mut().arm(70 * SECOND);
    after(&mut run, &wire, 61_000);
    assert_eq!((wire.connects.get(), wire.is_open.get()), (2, true));
}

#[test]
fn connection_is_broken_with_orders_alone_where_the_venue_then_cancels_them() {
    let kill = KillSwitch::new();
    let (mut run, wire) = run(&kill, 2, true);
    kill.throw();
    after(&mut run, &wire, 0);
    assert!(after(&mut run, &wire, 1_000).contains("2 orders live, and the connection is broken"));
    assert_eq!((wire.is_open.get(), wire.resets.get(), run.gateway.core().session().log_outs), (false, 1, 0));
    after(&mut run, &wire, 9_000);
    assert_eq!(wire.connects.get(), 1);
}

#[test]
fn connection_stays_for_cancels_where_nothing_else_ends_orders() {
    let kill = KillSwitch::new();
    let (mut run, wire) = run(&kill, 2, false);
    kill.throw();
    after(&mut run, &wire, 0);
    answer(&mut run, &wire, 1, VenueEvent::Canceled { reason: 0 });
    assert_eq!(after(&mut run, &wire, 1_000), "");
    assert!(after(&mut run, &wire, 1_001).contains("1 orders live, which end by their cancels alone"));
    assert_eq!((after(&mut run, &wire, 1_500), wire.is_open.get()), (String::new(), true), "said once");
    answer(&mut run, &wire, 2, VenueEvent::Canceled { reason: 0 });
    after(&mut run, &wire, 2_000);
    assert_eq!((wire.is_open.get(), wire.resets.get(), run.gateway.core().session().log_outs), (false, 0, 1));
}
