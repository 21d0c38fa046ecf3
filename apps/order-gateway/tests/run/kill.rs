//! What a thrown kill switch does to the connection when its time is over.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use order_entry::journal::{Entry, Journal, Records};
use order_entry::orders::VenueEvent;
use order_entry::risk::{KillCause, KillSwitch};
use order_gateway::control::Command;
use order_gateway::host::{Host, Stream, Waits};
use order_gateway::{Core, CoreConfig, Gateway, JournalSync, KillLine, LeftBehind, LineConfig, Run, SyncPolicy};

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
    /// It takes no connection, and the one that there is breaks.
    is_away: Cell<bool>,
    attempts: Cell<usize>,
    /// It reads our end, and closes its side.
    has_closed: Cell<bool>,
    /// It takes ten bytes a write.
    is_slow: Cell<bool>,
    /// What it took.
    left: RefCell<Vec<u8>>,
    /// How long it sends again what is not acknowledged, where that was said.
    given_up_after: Cell<Option<Duration>>,
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
        self.0.attempts.set(self.0.attempts.get() + 1);
        if self.0.is_away.get() {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        self.0.connects.set(self.0.connects.get() + 1);
        self.0.is_open.set(true);
        self.0.has_closed.set(false);
        Ok(Box::new(Connection(self.0.clone())))
    }
}

impl Read for Connection {
    /// A byte where the venue's messages are to be taken.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.0.is_away.get() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if self.0.has_closed.get() {
            return Ok(0);
        }
        if !self.0.has_said.replace(false) {
            return Err(ErrorKind::WouldBlock.into());
        }
        bytes[0] = 0;
        Ok(1)
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = if self.0.is_slow.get() { bytes.len().min(10) } else { bytes.len() };
        self.0.left.borrow_mut().extend_from_slice(&bytes[..len]);
        Ok(len)
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
    fn give_up_after(&mut self, timeout: Duration) -> io::Result<()> {
        self.0.given_up_after.set(Some(timeout));
        Ok(())
    }

    fn close_sending(&mut self) -> io::Result<()> {
        self.0.has_closed.set(true);
        Ok(())
    }

    fn reset(self: Box<Self>) -> io::Result<()> {
        self.0.resets.set(self.0.resets.get() + 1);
        Ok(())
    }
}

type LineRun = Run<Buyer, Line, Vec<u8>>;

/// The switch ends the session a second after it was thrown.
fn ending(kill: &KillSwitch, cancels_on_disconnect: bool) -> CoreConfig {
    CoreConfig { kill_line: KillLine { after_ns: Some(SECOND), cancels_on_disconnect }, ..config(kill) }
}

fn run_of(core: Core<Line, Vec<u8>>) -> (LineRun, Rc<Wire>) {
    let wire = Rc::new(Wire::default());
    wire.now_ns.set(SECOND);
    let venue = LineConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));
    (Run::new(Gateway::new(Buyer::default(), core), venue, Box::new(Machine(wire.clone()))), wire)
}

/// An armed run with a connection and `orders` live orders, whose switch ends the session a second
/// after it was thrown.
fn run(kill: &KillSwitch, orders: u64, cancels_on_disconnect: bool) -> (LineRun, Rc<Wire>) {
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let core = Core::new(ending(kill, cancels_on_disconnect), Line::new(), journal);
    let (mut run, wire) = run_of(core);
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
    assert_eq!(after(&mut run, &wire, 1_001), "", "the venue has closed its side");
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
    (2_000..2_002).for_each(|ms| drop(after(&mut run, &wire, ms)));
    assert_eq!((wire.is_open.get(), wire.resets.get(), run.gateway.core().session().log_outs), (false, 0, 1));
}

#[test]
fn switch_that_is_thrown_without_a_connection_is_told_when_its_time_is_over() {
    let kill = KillSwitch::new();
    let (mut run, wire) = run(&kill, 0, false);
    wire.is_away.set(true);
    assert!(after(&mut run, &wire, 0).contains("the connection is broken"));
    kill.throw();
    after(&mut run, &wire, 0);
    assert!(!after(&mut run, &wire, 999).contains("until somebody arms"));
    assert!(after(&mut run, &wire, 1_000).contains("no connection is made until somebody arms"));
    assert_eq!(after(&mut run, &wire, 1_001), "", "said once");
    let attempts = wire.attempts.get();
    (2..60).for_each(|second| drop(after(&mut run, &wire, second * 1_000)));
    assert_eq!(wire.attempts.get(), attempts);
}

/// Nothing but a session tells what became of them.
#[test]
fn orders_that_live_are_dialed_for_and_the_time_of_the_switch_begins_with_the_session() {
    let kill = KillSwitch::new();
    let (mut run, wire) = run(&kill, 2, true);
    wire.is_away.set(true);
    run.gateway.core_mut().session_mut().is_closed = true;
    kill.throw();
    (0..6).for_each(|second| drop(after(&mut run, &wire, second * 1_000)));
    assert!(wire.attempts.get() > 4, "{} attempts", wire.attempts.get());
    wire.is_away.set(false);
    assert!(after(&mut run, &wire, 7_000).contains("connected"));
    assert_eq!((after(&mut run, &wire, 9_000), wire.is_open.get()), (String::new(), true), "no login yet");
    run.gateway.core_mut().session_mut().is_closed = false;
    after(&mut run, &wire, 10_000);
    assert_eq!((after(&mut run, &wire, 10_999), wire.is_open.get()), (String::new(), true), "for its cancels");
    // The switch is looked at behind the time of the session.
    let said = [11_000, 11_001].map(|ms| after(&mut run, &wire, ms)).concat();
    assert!(said.contains("2 orders live, and the connection is broken"), "{said}");
    after(&mut run, &wire, 60_000);
    assert!(!wire.is_open.get());
}

#[test]
fn session_that_a_kill_has_closed_stays_closed_over_a_restart_while_no_order_lives() {
    for orders in [0, 1] {
        let kill = KillSwitch::new();
        let (mut before, wire) = run(&kill, orders, false);
        kill.throw();
        after(&mut before, &wire, 0);
        let journal = before.gateway.core().journal().memory().clone();
        let (core, _) = Core::recover(ending(&KillSwitch::new(), false), Line::new(), journal, RESERVE).unwrap();
        let (mut run, wire) = run_of(core);
        let said = turn(&mut run).join("; ");
        assert_eq!(said.contains("no connection is made until somebody arms"), orders == 0, "{said}");
        // Nobody but us cancels the order.
        assert_eq!(wire.connects.get() as u64, orders);
        run.gateway.core_mut().arm(2 * SECOND);
        turn(&mut run);
        assert_eq!(wire.connects.get(), 1);
    }
}

/// The gateway ends, and what a person is told.
fn log_out(run: &mut LineRun) -> String {
    let mut said = String::new();
    run.log_out(&mut |sentence: &str| said.push_str(sentence));
    said
}

/// The kernel holds it for a quarter of an hour, for a venue that has stopped reading.
#[test]
fn what_a_closed_line_has_not_taken_leaves_within_a_second_or_never() {
    let (mut run, wire) = run(&KillSwitch::new(), 1, false);
    log_out(&mut run);
    assert_eq!(wire.given_up_after.get(), Some(Duration::from_secs(1)));
}

fn has_killed(run: &LineRun) -> bool {
    let journal = run.gateway.core().journal();
    let killed = Some(Entry::Killed(KillCause::Program));
    Records::new(journal.memory()).unwrap().any(|record| Entry::decode(record.kind, record.payload) == killed)
}

#[test]
fn kill_behind_the_last_turn_cancels_before_the_logout_however_little_the_line_takes_at_once() {
    let kill = KillSwitch::new();
    let (mut run, wire) = run(&kill, 3, false);
    run.gateway.core_mut().session_mut().cancel = b"a cancel of an order; ";
    wire.is_slow.set(true);
    kill.throw();
    assert_eq!(log_out(&mut run), "");
    let left = String::from_utf8(wire.left.take()).unwrap();
    assert_eq!(left, "a cancel of an order; a cancel of an order; a cancel of an order; logout");
    assert!(has_killed(&run) && !wire.is_open.get());
}

#[test]
fn cancel_behind_the_last_turn_leaves_before_the_logout() {
    let ((mut run, wire), (sender, receiver)) = (run(&KillSwitch::new(), 2, false), channel());
    run.gateway.core_mut().session_mut().cancel = b"cancel ";
    run.commands = Some(receiver);
    sender.send(Command::CancelAll).unwrap();
    log_out(&mut run);
    assert_eq!(String::from_utf8(wire.left.take()).unwrap(), "cancel cancel logout");
}

#[test]
fn gateway_that_has_ended_takes_no_command() {
    for is_connected in [true, false] {
        let ((mut run, wire), (sender, receiver)) = (run(&KillSwitch::new(), 0, false), channel());
        run.commands = Some(receiver);
        wire.is_away.set(!is_connected);
        log_out(&mut run);
        assert!(sender.send(Command::CancelAll).is_err(), "connected: {is_connected}");
    }
}

#[test]
fn kill_behind_the_last_turn_is_in_the_journal_without_a_connection_too() {
    let kill = KillSwitch::new();
    let (mut run, wire) = run(&kill, 1, false);
    wire.is_away.set(true);
    after(&mut run, &wire, 0);
    kill.throw();
    log_out(&mut run);
    assert!(has_killed(&run));
}

#[test]
fn gateway_that_ends_waits_for_the_disk_and_says_that_one_hangs() {
    let kill = KillSwitch::new();
    let (mut run, _) = run(&kill, 0, false);
    let syncs = Arc::new(AtomicUsize::new(0));
    let theirs = syncs.clone();
    let sync = move || {
        theirs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    run.sync = Some(JournalSync::start_with(sync, SyncPolicy::Off).unwrap());
    kill.throw();
    assert_eq!(log_out(&mut run), "");
    assert_eq!(syncs.load(Ordering::SeqCst), 1);
    let (hangs, hanging) = channel::<()>();
    let sync = move || {
        let _ = hanging.recv();
        Ok(())
    };
    run.sync = Some(JournalSync::start_with(sync, SyncPolicy::Off).unwrap());
    assert!(log_out(&mut run).contains("the journal's disk has not answered for a second"));
    drop(hangs);
}

#[test]
fn gateway_that_ends_tells_the_orders_that_live_and_whether_the_venue_cancels_them() {
    for end_with_the_connection in [false, true] {
        let (mut run, _) = run(&KillSwitch::new(), 2, end_with_the_connection);
        log_out(&mut run);
        let left = run.left_behind().unwrap();
        assert_eq!(left, LeftBehind { live: 2, in_doubt: 2, end_with_the_connection, standby_may_have_them: false });
        assert_eq!(left.to_string().contains("nobody cancels them"), !end_with_the_connection);
    }
    let (mut run, _) = run(&KillSwitch::new(), 0, false);
    log_out(&mut run);
    assert_eq!(run.left_behind(), None);
}
