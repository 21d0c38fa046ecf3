//! Logins that arrive late, on connections that their gateway has given up.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use exchange_sim::FaultPlan;
use order_entry::fix::FixClient;
use order_entry::ouch::{Ouch42Client, OuchClient};
use order_entry::session::VenueSession;
use order_gateway::host::{Host, Stream, Waits};

use super::super::gateway::SimSession;
use super::super::network::{Network, Shared, SimHost, address};
use super::SimVenue;

const VENUE: usize = 0;
const PRIMARY: usize = 1;
const STANDBY: usize = 2;
const PORT: u16 = 9_000;
const STEP_NS: u64 = 5_000_000;
/// Steps within which a lost segment is sent again.
const RESENT_WITHIN: usize = 600;

/// The venue, and one session from two machines.
struct World<S> {
    network: Shared,
    venue: SimVenue,
    session: S,
}

impl<S: SimSession> World<S> {
    fn new() -> Self {
        let network: Shared = Rc::new(RefCell::new(Network::new(1, 3)));
        network.borrow_mut().listen(VENUE, PORT);
        let venue = SimVenue::new(&network, VENUE, S::PROTOCOL, FaultPlan::default(), true);
        Self { network, venue, session: S::start() }
    }

    fn now_ns(&self) -> u64 {
        self.network.borrow().now_ns()
    }

    fn step(&mut self) {
        self.network.borrow_mut().step(STEP_NS);
        self.venue.turn(self.now_ns());
        let logged_in = self.venue.lines.iter().filter(|line| line.is_logged_in).count();
        assert!(logged_in <= 1, "{:?}: {logged_in} connections have the account", S::PROTOCOL);
    }

    /// Has the session connect from a machine.
    fn connect(&mut self, machine: usize) -> Box<dyn Stream> {
        let host = SimHost { network: Rc::clone(&self.network), machine, rate: 1_000 };
        let waits = Waits { connect: Duration::ZERO, read: Duration::ZERO };
        let stream = host.connect(address(VENUE, PORT), waits).unwrap();
        (0..4).for_each(|_| self.step());
        self.session.disconnected();
        self.session.connected(self.now_ns()).unwrap();
        stream
    }

    /// Lets bytes pass both ways for some steps.
    fn talk(&mut self, stream: &mut dyn Stream, steps: usize) {
        for _ in 0..steps {
            let written = stream.write(self.session.to_send()).unwrap_or(0);
            self.session.sent(written);
            self.step();
            let mut buffer = [0; 4_096];
            let len = stream.read(&mut buffer).unwrap_or(0);
            let mut input = &buffer[..len];
            while self.session.receive(self.now_ns(), &mut input).unwrap().is_some() {}
        }
    }

    /// The primary's login is lost on its way, and the standby takes over.
    fn take_over(&mut self) -> Box<dyn Stream> {
        let mut first = self.connect(PRIMARY);
        self.network.borrow_mut().cut(PRIMARY, true);
        self.talk(&mut *first, 1);
        drop(first);
        let mut second = self.connect(STANDBY);
        self.talk(&mut *second, 8);
        assert!(self.session.is_open(), "{:?}", S::PROTOCOL);
        second
    }

    /// The login that was lost arrives: the connection ends.
    fn await_late_login(&mut self, rest: usize) {
        self.network.borrow_mut().cut(PRIMARY, false);
        assert_eq!(self.venue.lines.len(), rest + 1);
        for _ in 0..RESENT_WITHIN {
            self.step();
            if self.venue.lines.len() == rest {
                return;
            }
        }
        panic!("{:?}: the lost login has not arrived", S::PROTOCOL);
    }
}

fn refuses_late_login<S: SimSession>() {
    let mut world = World::<S>::new();
    let second = world.take_over();
    world.await_late_login(1);
    assert_eq!(world.venue.fault, None);
    assert!(world.venue.lines[0].is_logged_in, "{:?}", S::PROTOCOL);
    drop(second);
}

#[test]
fn late_login_is_refused_while_another_connection_has_the_account() {
    refuses_late_login::<OuchClient>();
    refuses_late_login::<Ouch42Client>();
    refuses_late_login::<FixClient>();
}

#[test]
fn late_logon_with_a_used_number_is_no_fault_of_its_gateway() {
    let mut world = World::<FixClient>::new();
    drop(world.take_over());
    (0..4).for_each(|_| world.step());
    world.await_late_login(0);
    assert_eq!(world.venue.fault, None);
}

#[test]
fn logon_with_a_used_number_is_a_fault_of_a_gateway_that_waits_for_the_answer() {
    let mut world = World::<FixClient>::new();
    let mut first = world.connect(PRIMARY);
    world.talk(&mut *first, 8);
    drop(first);
    (0..4).for_each(|_| world.step());
    world.session = FixClient::start();
    let mut second = world.connect(PRIMARY);
    second.write_all(world.session.to_send()).unwrap();
    (0..2).for_each(|_| world.step());
    let fault = world.venue.fault.take();
    assert!(fault.as_ref().is_some_and(|fault| fault.contains("MsgSeqNum (34)")), "{fault:?}");
}
