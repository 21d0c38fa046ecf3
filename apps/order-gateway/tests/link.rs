//! A run with a standby whose connection is half open: nobody closes it, and nobody answers.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use common::line::Line;
use common::{Buyer, RESERVE, SECOND, book, config};
use order_entry::journal::{Journal, JournalMemory, Rebuild};
use order_entry::orders::VenueEvent;
use order_entry::risk::{KillSwitch, LevelLimits, Rate, StrategyIdx};
use order_gateway::control::Command;
use order_gateway::host::{Host, Listener, Stream, Waits};
use order_gateway::standby::{Followed, Follower, FollowerLink, StandbyLink};
use order_gateway::{Core, CoreConfig, Gateway, JournalSync, KillLine, LineConfig, Run, SyncPolicy};

const LEASE_NS: u64 = SECOND;

/// A connection that says some bytes, and nothing more.
#[derive(Debug)]
struct HalfOpen {
    says: Vec<u8>,
    /// A write finds that it was reset.
    is_reset: bool,
}

impl HalfOpen {
    fn saying(says: Vec<u8>) -> Self {
        Self { says, is_reset: false }
    }

    /// Of a standby with an empty copy.
    fn standby(name: u64) -> Self {
        Self::saying(follows(name))
    }

    /// Of one that dies while it connects.
    fn dying(name: u64) -> Self {
        Self { says: follows(name), is_reset: true }
    }
}

/// What a standby with an empty copy says first.
fn follows(name: u64) -> Vec<u8> {
    let mut standby = Follower::new(name, vec![0; 1 << 16]).unwrap();
    standby.connected();
    standby.to_send().to_vec()
}

/// What it says first, and its last word.
fn follows_and_leaves(name: u64) -> Vec<u8> {
    let mut standby = Follower::new(name, vec![0; 1 << 16]).unwrap();
    standby.connected();
    standby.leave();
    standby.to_send().to_vec()
}

impl Read for HalfOpen {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.says.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let len = buffer.len().min(self.says.len());
        buffer[..len].copy_from_slice(&self.says[..len]);
        self.says.drain(..len);
        Ok(len)
    }
}

impl Write for HalfOpen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_reset { Err(ErrorKind::ConnectionReset.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for HalfOpen {
    fn reset(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

/// A standby that answers at once, while its socket takes bytes.
#[derive(Clone, Debug)]
struct Answering {
    standby: Rc<RefCell<Follower<Vec<u8>>>>,
    is_full: Rc<Cell<bool>>,
}

impl Answering {
    /// With a copy of at most `len` bytes.
    fn new(len: usize) -> Self {
        let mut standby = Follower::new(77, vec![0; len]).unwrap();
        standby.connected();
        Self { standby: Rc::new(RefCell::new(standby)), is_full: Rc::default() }
    }

    /// The gateway that takes over with its copy.
    fn core(&self) -> (Core<Line, Vec<u8>>, Rebuild) {
        let memory = self.standby.borrow().journal().unwrap().memory().clone();
        Core::recover(config(&KillSwitch::new()), Line::new(), memory, RESERVE).unwrap()
    }

    fn has_taken_over(&self) -> bool {
        self.standby.borrow_mut().poll(SECOND) == Some(Followed::TakeOver)
    }
}

impl Read for Answering {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut standby = self.standby.borrow_mut();
        let len = HalfOpen::saying(standby.to_send().to_vec()).read(buffer)?;
        standby.sent(len);
        Ok(len)
    }
}

impl Write for Answering {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_full.get() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.standby.borrow_mut().receive(bytes, SECOND).unwrap();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Answering {
    fn reset(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

/// Has one standby connect.
#[derive(Debug)]
struct Once(RefCell<Option<Answering>>);

impl Listener for Once {
    fn accept(&self) -> Option<Box<dyn Stream>> {
        Some(Box::new(self.0.borrow_mut().take()?))
    }
}

/// The connections that wait.
#[derive(Clone, Debug, Default)]
struct Waiting(Rc<RefCell<Vec<HalfOpen>>>);

impl Listener for Waiting {
    fn accept(&self) -> Option<Box<dyn Stream>> {
        Some(Box::new(self.0.borrow_mut().pop()?))
    }
}

/// A venue that says nothing, and counts the bytes that it gets.
#[derive(Debug)]
struct Venue {
    left: Rc<Cell<usize>>,
    given_up_after: Rc<Cell<Option<Duration>>>,
}

impl Read for Venue {
    fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }
}

impl Write for Venue {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left.set(self.left.get() + bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Venue {
    fn give_up_after(&mut self, timeout: Duration) -> io::Result<()> {
        self.given_up_after.set(Some(timeout));
        Ok(())
    }

    fn reset(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

/// A machine whose time is what a test says, and whose venue takes each connection.
#[derive(Debug)]
struct Machine {
    clock: Rc<Cell<u64>>,
    /// How long the turn has been going on.
    stall_ns: Rc<Cell<u64>>,
    left: Rc<Cell<usize>>,
    given_up_after: Rc<Cell<Option<Duration>>>,
}

impl Host for Machine {
    fn now_ns(&self) -> u64 {
        self.clock.get()
    }

    fn clock_ns(&self) -> u64 {
        self.clock.get() + self.stall_ns.get()
    }

    fn epoch_offset_ns(&self) -> u64 {
        0
    }

    fn connect(&self, _to: SocketAddrV4, _waits: Waits) -> io::Result<Box<dyn Stream>> {
        let (left, given_up_after) = (self.left.clone(), self.given_up_after.clone());
        Ok(Box::new(Venue { left, given_up_after }))
    }
}

type Look = Option<Box<dyn Fn()>>;

/// What a test looks at when the disk is asked to sync.
#[derive(Clone, Default)]
struct AtSync(Rc<RefCell<Look>>);

impl std::fmt::Debug for AtSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AtSync")
    }
}

/// Memory whose disk fails when it is told to.
#[derive(Debug)]
struct Disk {
    bytes: Vec<u8>,
    fails: Rc<Cell<bool>>,
    at_sync: AtSync,
}

impl AsRef<[u8]> for Disk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Disk {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// As with `sync = "before-send"`.
impl JournalMemory for Disk {
    fn before_send(&self, from: usize, len: usize) -> io::Result<()> {
        self.sync(from + len)
    }

    fn sync(&self, _end: usize) -> io::Result<()> {
        if let Some(look) = &*self.at_sync.0.borrow() {
            look();
        }
        if self.fails.get() { Err(io::Error::other("a test's disk")) } else { Ok(()) }
    }
}

/// A run with its standby's connections.
struct World {
    run: Run<Buyer, Line, Disk>,
    kill: KillSwitch,
    fails: Rc<Cell<bool>>,
    at_sync: AtSync,
    /// Bytes that the venue has got.
    left: Rc<Cell<usize>>,
    clock: Rc<Cell<u64>>,
    stall_ns: Rc<Cell<u64>>,
    waiting: Waiting,
    commands: Sender<Command>,
    given_up_after: Rc<Cell<Option<Duration>>>,
}

impl World {
    fn new() -> Self {
        Self::with(1 << 16)
    }

    /// With a standby that has granted, and answers.
    fn followed(len: usize) -> (Self, Answering) {
        let (mut world, standby) = (Self::with(len), Answering::new(len));
        let listener = Box::new(Once(RefCell::new(Some(standby.clone()))));
        world.run.standby = Some(StandbyLink::new(listener, Duration::from_nanos(LEASE_NS), 0));
        world.run.gateway.core_mut().arm(SECOND);
        (0..4).for_each(|_| drop(world.turn(0)));
        assert!(standby.core().1.is_armed());
        (world, standby)
    }

    /// With a standby whose connection takes no more, and whose copy lacks more than has room in
    /// front of a word.
    fn far_behind() -> (Self, Answering) {
        let (mut world, standby) = Self::followed(1 << 20);
        standby.is_full.set(true);
        let core = world.run.gateway.core_mut();
        while core.journal().end() < 1 << 19 {
            core.arm(SECOND);
            core.disarm(SECOND);
        }
        (world, standby)
    }

    /// With a journal of `len` bytes.
    fn with(len: usize) -> Self {
        let fails = Rc::new(Cell::new(false));
        let (at_sync, left) = (AtSync::default(), Rc::new(Cell::new(0)));
        let disk = Disk { bytes: vec![0; len], fails: fails.clone(), at_sync: at_sync.clone() };
        let journal = Journal::create(disk, 7, 0, RESERVE).unwrap();
        let kill = KillSwitch::new();
        let kill_line = KillLine { after_ns: Some(SECOND), ..KillLine::default() };
        let mut of = CoreConfig { kill_line, ..config(&kill) };
        let (qty_max, most, orders) = (1_000, i64::MAX, Rate::new(1_000_000, 1_000));
        let strategy = LevelLimits { qty_max, notional_max: most, buy_credit_max: most, sell_credit_max: most, orders };
        of.manager.limits.strategies = [strategy].into();
        let core = Core::new(of, Line::new(), journal);
        let (clock, waiting, (commands, receiver)) = (Rc::new(Cell::new(SECOND)), Waiting::default(), channel());
        let line = LineConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));
        let stall_ns = Rc::new(Cell::new(0));
        let given_up_after = Rc::new(Cell::new(None));
        let machine = Machine {
            clock: clock.clone(),
            stall_ns: stall_ns.clone(),
            left: left.clone(),
            given_up_after: given_up_after.clone(),
        };
        let mut run = Run::new(Gateway::new(Buyer::default(), core), line, Box::new(machine));
        run.commands = Some(receiver);
        run.standby = Some(StandbyLink::new(Box::new(waiting.clone()), Duration::from_nanos(LEASE_NS), 0));
        Self { run, kill, fails, at_sync, left, clock, stall_ns, waiting, commands, given_up_after }
    }

    /// One turn a while later, and what it says.
    fn turn(&mut self, later_ns: u64) -> String {
        self.clock.set(self.clock.get() + later_ns);
        let mut said = String::new();
        self.run.turn(&mut |sentence: &str| said += &format!("{sentence}\n"));
        said
    }

    fn may_send(&self) -> bool {
        self.run.standby.as_ref().unwrap().may_send(self.clock.get())
    }

    /// The standby that a gateway waits for which begins with the journal.
    fn named(&self) -> u64 {
        let memory = self.run.gateway.core().journal().memory().bytes.clone();
        Core::recover(config(&KillSwitch::new()), Line::new(), memory, RESERVE).unwrap().1.standby()
    }

    /// With a standby that has attached, and whose connection has ended.
    fn attached() -> Self {
        let mut world = Self::new();
        world.waiting.0.borrow_mut().push(HalfOpen::standby(77));
        world.turn(0);
        world.turn(1);
        assert!(world.turn(4 * LEASE_NS).contains("it is silent"));
        assert_eq!(world.named(), 77);
        world
    }
}

#[test]
fn alone_holds_while_the_connection_of_a_dead_standby_is_half_open() {
    let mut world = World::new();
    world.waiting.0.borrow_mut().push(HalfOpen::standby(77));
    assert!(world.turn(0).contains("a standby follows"));
    assert!(world.turn(LEASE_NS).contains("the standby grants nothing"));
    world.commands.send(Command::Alone).unwrap();
    world.turn(1);
    for _ in 0..20 {
        let said = world.turn(LEASE_NS);
        assert!(world.may_send() && !said.contains("follows"), "{said}");
    }
    // The standby is started again, with another copy.
    world.waiting.0.borrow_mut().push(HalfOpen::standby(78));
    assert!(world.turn(1).contains("a standby follows"));
}

#[test]
fn standby_that_is_silent_for_four_leases_makes_room_for_its_next_connection() {
    let mut world = World::new();
    world.waiting.0.borrow_mut().push(HalfOpen::standby(77));
    assert!(world.turn(0).contains("a standby follows"));
    world.waiting.0.borrow_mut().push(HalfOpen::standby(77));
    let said = world.turn(4 * LEASE_NS - 1);
    assert!(!said.contains("silent"), "{said}");
    let said = world.turn(1);
    assert!(said.contains("it is silent"), "{said}");
    world.turn(1);
    assert!(world.waiting.0.borrow().is_empty());
}

/// It would promise not to trade, and the journal would not know it.
#[test]
fn standby_that_dies_in_the_turn_in_which_it_attaches_attaches_when_it_comes_again() {
    let mut world = World::new();
    world.waiting.0.borrow_mut().push(HalfOpen::dying(77));
    let said = world.turn(0);
    assert!(said.contains("has ended") && !said.contains("a standby follows"), "{said}");
    // It was asked for nothing, so nothing waits for it.
    world.turn(LEASE_NS);
    assert!(world.may_send() && world.named() == 0);
    world.waiting.0.borrow_mut().push(HalfOpen::standby(77));
    assert!(world.turn(1).contains("a standby follows"));
    assert_eq!(world.named(), 77);
}

#[test]
fn last_word_of_a_standby_counts_where_nothing_can_be_sent_to_it_any_more() {
    let mut world = World::attached();
    world.waiting.0.borrow_mut().push(HalfOpen { says: follows_and_leaves(77), is_reset: true });
    let said = world.turn(1);
    assert!(said.contains("the standby has left") && !said.contains("has ended"), "{said}");
    assert!(world.may_send() && world.named() == 0);
}

/// What it says would be taken, and not written down.
#[test]
fn nothing_counts_that_comes_behind_the_last_word_of_a_standby() {
    let mut world = World::attached();
    let says = [follows_and_leaves(77), follows(77)].concat();
    world.waiting.0.borrow_mut().push(HalfOpen::saying(says));
    assert!(world.turn(1).contains("the standby has left"));
    world.turn(LEASE_NS);
    assert!(world.may_send() && world.named() == 0);
    world.waiting.0.borrow_mut().push(HalfOpen::standby(78));
    assert!(world.turn(1).contains("a standby follows"), "its connection has ended");
}

#[test]
fn connection_that_says_nothing_makes_room_for_a_standby() {
    let mut world = World::new();
    world.waiting.0.borrow_mut().extend([HalfOpen::standby(77), HalfOpen::saying(Vec::new())]);
    assert!(!world.turn(0).contains("a standby follows"));
    world.turn(5 * SECOND);
    assert!(world.turn(1).contains("a standby follows"));
}

#[test]
fn standby_that_the_disk_cannot_take_down_stops_orders() {
    let mut world = World::new();
    world.run.gateway.core_mut().arm(SECOND);
    world.fails.set(true);
    world.waiting.0.borrow_mut().push(HalfOpen::standby(77));
    let said = world.turn(0);
    assert!(said.contains("no standby is taken"), "{said}");
    assert!(!world.run.gateway.core().risk().is_armed());
    // It is not taken again in each turn.
    world.waiting.0.borrow_mut().push(HalfOpen::standby(77));
    assert!(!world.turn(SECOND - 1).contains("no standby is taken"));
    assert!(world.turn(1).contains("no standby is taken"));
}

/// The standby goes on as the journal says: it would arm itself, and trade.
#[test]
fn standby_that_is_handed_over_to_knows_a_switch_that_was_thrown_just_before() {
    let (mut world, standby) = World::followed(1 << 16);
    world.kill.throw();
    world.commands.send(Command::HandOver).unwrap();
    world.turn(0);
    assert!(standby.has_taken_over());
    let (core, rebuild) = standby.core();
    assert!(core.killed().is_some() && !rebuild.is_armed());
}

#[test]
fn standby_that_is_handed_over_to_knows_what_was_written_down_just_before() {
    let (mut world, standby) = World::followed(1 << 16);
    world.run.gateway.core_mut().disarm(SECOND);
    world.commands.send(Command::HandOver).unwrap();
    world.turn(0);
    assert!(standby.has_taken_over() && !standby.core().1.is_armed());
}

/// Its connection has no room for the last of them.
#[test]
fn standby_that_is_far_behind_is_handed_nothing() {
    let (mut world, standby) = World::far_behind();
    world.commands.send(Command::HandOver).unwrap();
    let said = world.turn(0);
    assert!(said.is_empty(), "its records are on their way: {said}");
    let said = world.turn(SECOND / 5);
    assert!(said.contains("nobody can take over"), "{said}");
    assert!(!standby.has_taken_over() && world.may_send());
}

/// While its copy is waited for, the kill switch is noted, for the standby to know of it.
#[test]
fn switch_that_is_thrown_while_a_standby_is_handed_over_to_is_known_to_it() {
    let (mut world, standby) = World::far_behind();
    world.commands.send(Command::HandOver).unwrap();
    assert_eq!(world.turn(0), "");
    world.kill.throw();
    world.turn(1);
    assert!(world.run.gateway.core().killed().is_some());
    standby.is_full.set(false);
    (0..8).for_each(|_| drop(world.turn(1)));
    assert!(standby.has_taken_over() && standby.core().0.killed().is_some(), "with what came meanwhile");
}

#[test]
fn cancel_of_a_person_gives_a_handover_up_that_waits() {
    let (mut world, standby) = World::far_behind();
    world.commands.send(Command::HandOver).unwrap();
    world.turn(0);
    assert!(world.run.standby.as_ref().unwrap().hands_over());
    world.commands.send(Command::CancelAll).unwrap();
    world.turn(1);
    assert!(!world.run.standby.as_ref().unwrap().hands_over());
    standby.is_full.set(false);
    (0..8).for_each(|_| drop(world.turn(1)));
    assert!(!standby.has_taken_over());
}

#[test]
fn logout_of_the_kill_switch_leaves_when_the_standby_has_its_record() {
    let (mut world, standby) = World::followed(1 << 16);
    world.kill.throw();
    let said: String = (0..12).map(|_| world.turn(SECOND / 10)).collect();
    assert!(said.contains("the session is logged out until somebody arms"), "{said}");
    (0..4).for_each(|_| drop(world.turn(1)));
    let session = world.run.gateway.core().session();
    assert_eq!((session.log_outs, &session.left[..]), (1, &b"logout"[..]));
    let journal = world.run.gateway.core().journal();
    assert_eq!(standby.standby.borrow().journal().unwrap().end(), journal.end());
}

#[test]
fn handover_that_a_person_wants_just_before_the_end_is_done() {
    let (mut world, standby) = World::followed(1 << 16);
    trade(&mut world, 2);
    world.commands.send(Command::HandOver).unwrap();
    world.run.log_out(&mut |sentence: &str| panic!("{sentence}"));
    assert!(standby.has_taken_over());
    assert_eq!(world.run.gateway.core().session().log_outs, 0, "the session is the standby's");
    assert_eq!(world.run.left_behind(), None);
}

/// Has `orders` live orders.
fn trade(world: &mut World, orders: u64) {
    world.run.gateway.core_mut().arm(SECOND);
    for id in 1..=orders {
        world.run.gateway.on_book(&book(10, id * SECOND));
        world.run.gateway.core_mut().session_mut().say(id, VenueEvent::Accepted { venue_id: 900 + id });
        world.run.gateway.received(&[], id * SECOND).unwrap();
    }
    assert_eq!(world.run.gateway.core().orders().live_count() as u64, orders);
}

#[test]
fn stop_of_a_strategy_behind_the_last_turn_cancels_before_the_logout_however_little_the_line_takes() {
    let mut world = World::new();
    world.turn(0);
    trade(&mut world, 3);
    let session = world.run.gateway.core_mut().session_mut();
    (session.cancel, session.room, session.room_of_sent) = (b"cancel ", 1, 1);
    world.commands.send(Command::KillStrategy(StrategyIdx(0))).unwrap();
    world.run.log_out(&mut |_: &str| ());
    let left = &world.run.gateway.core().session().left;
    assert_eq!(String::from_utf8_lossy(left), "cancel cancel cancel logout");
}

#[test]
fn primary_that_is_fenced_at_its_end_says_that_its_standby_may_have_the_orders() {
    for is_fenced in [false, true] {
        let (mut world, standby) = World::followed(1 << 16);
        trade(&mut world, 2);
        standby.is_full.set(is_fenced);
        (0..4).for_each(|_| drop(world.turn(if is_fenced { LEASE_NS } else { 1 })));
        world.run.log_out(&mut |_: &str| ());
        let left = world.run.left_behind().unwrap();
        assert_eq!((left.live, left.standby_may_have_them), (2, is_fenced));
        assert_eq!(left.to_string().contains("its standby may have taken over, and trade with them"), is_fenced);
        assert_eq!(left.to_string().contains("nobody cancels them"), !is_fenced);
    }
}

/// Until its promise is over: then it would trade beside nobody.
#[test]
fn standby_of_a_gateway_that_ends_hears_so_before_the_disk_is_waited_for() {
    let (mut world, standby) = World::followed(1 << 16);
    let (hangs, hanging) = channel::<()>();
    let sync = move || {
        let _ = hanging.recv();
        Ok(())
    };
    world.run.sync = Some(JournalSync::start_with(sync, SyncPolicy::Off).unwrap());
    let (mut said, mut became) = (String::new(), None);
    world.run.log_out(&mut |sentence: &str| {
        said.push_str(sentence);
        became = standby.standby.borrow_mut().poll(SECOND + 9 * LEASE_NS);
    });
    assert!(said.contains("the journal's disk has not answered for a second"), "{said}");
    assert_eq!(became, Some(Followed::Ended));
    drop(hangs);
}

#[test]
fn logout_of_a_gateway_that_ends_leaves_when_the_standby_has_its_record() {
    let (mut world, _standby) = World::followed(1 << 16);
    world.run.log_out(&mut |_: &str| ());
    assert_eq!(world.run.gateway.core().session().left, b"logout");
}

/// Its disk hangs for longer than the lease: by what its copy has then, the standby would arm, and
/// trade.
#[test]
fn switch_that_is_thrown_is_known_to_the_standby_before_the_disk_is_waited_for() {
    let (mut world, standby) = World::followed(1 << 16);
    let known = Rc::new(Cell::new(None));
    let (seen, copy) = (known.clone(), standby.clone());
    *world.at_sync.0.borrow_mut() = Some(Box::new(move || seen.set(Some(copy.core().0.killed().is_some()))));
    world.kill.throw();
    (0..3).for_each(|_| drop(world.turn(1)));
    assert_eq!(known.get(), Some(true));
}

/// Where the standby takes nothing more, the disk has the throw after a second.
#[test]
fn switch_that_no_standby_takes_down_is_on_the_disk_after_a_second() {
    let (mut world, standby) = World::followed(1 << 16);
    standby.is_full.set(true);
    let syncs = Rc::new(Cell::new(0));
    let seen = syncs.clone();
    *world.at_sync.0.borrow_mut() = Some(Box::new(move || seen.set(seen.get() + 1)));
    world.kill.throw();
    (0..9).for_each(|_| drop(world.turn(SECOND / 10)));
    assert_eq!(syncs.get(), 0);
    (0..9).for_each(|_| drop(world.turn(SECOND / 10)));
    assert_eq!(syncs.get(), 1);
}

/// A disk that hangs keeps back no cancel.
#[test]
fn cancels_of_a_stop_leave_before_the_disk_is_waited_for() {
    for is_whole in [true, false] {
        let mut world = World::new();
        world.turn(0);
        world.run.gateway.core_mut().arm(SECOND);
        world.run.gateway.core_mut().session_mut().cancel = b"cancel";
        world.run.gateway.on_book(&book(10, SECOND));
        world.run.gateway.core_mut().session_mut().say(1, VenueEvent::Accepted { venue_id: 901 });
        world.run.gateway.received(&[], SECOND).unwrap();
        assert_eq!(world.run.gateway.core().orders().live_count(), 1);
        let left_at_sync = Rc::new(Cell::new(None));
        let (seen, left) = (left_at_sync.clone(), world.left.clone());
        *world.at_sync.0.borrow_mut() = Some(Box::new(move || seen.set(seen.get().or(Some(left.get())))));
        if is_whole {
            world.kill.throw();
        } else {
            world.commands.send(Command::KillStrategy(StrategyIdx(0))).unwrap();
        }
        (0..3).for_each(|_| drop(world.turn(1)));
        assert_eq!(left_at_sync.get(), Some(b"cancel".len()), "of everything: {is_whole}");
    }
}

/// A turn stands still, in a sync or in a mirror's queue, and the standby takes over meanwhile.
#[test]
fn order_of_a_turn_that_outlasts_the_lease_does_not_leave() {
    for (stall_ns, leaves) in [(LEASE_NS / 2, true), (LEASE_NS, false)] {
        let (mut world, _standby) = World::followed(1 << 16);
        (0..3).for_each(|_| drop(world.turn(1)));
        world.run.gateway.core_mut().session_mut().order = b"order";
        world.run.gateway.on_book(&book(10, world.clock.get()));
        world.stall_ns.set(stall_ns);
        (0..3).for_each(|_| drop(world.turn(0)));
        assert_eq!(world.left.get() > 0, leaves, "a turn of {stall_ns} ns");
    }
}

/// The kernel would send again by itself what the venue has not acknowledged, for a quarter of an
/// hour.
#[test]
fn what_the_venue_does_not_acknowledge_is_sent_again_for_a_lease_and_no_longer() {
    let (world, _standby) = World::followed(1 << 16);
    assert_eq!(world.given_up_after.get(), Some(Duration::from_nanos(LEASE_NS)));
}

/// A primary's machine: each connection says the same bytes, and then ends where it is `closed`.
#[derive(Debug)]
struct PrimaryMachine {
    clock: Cell<u64>,
    says: Vec<u8>,
    is_closed: bool,
    written: Rc<RefCell<Vec<u8>>>,
    dials: Cell<usize>,
}

impl PrimaryMachine {
    fn new(says: Vec<u8>, is_closed: bool) -> Self {
        Self { clock: Cell::new(SECOND), says, is_closed, written: Rc::default(), dials: Cell::new(0) }
    }
}

impl Host for PrimaryMachine {
    fn now_ns(&self) -> u64 {
        self.clock.get()
    }

    fn epoch_offset_ns(&self) -> u64 {
        0
    }

    fn connect(&self, _to: SocketAddrV4, _waits: Waits) -> io::Result<Box<dyn Stream>> {
        self.dials.set(self.dials.get() + 1);
        Ok(Box::new(OfPrimary { says: self.says.clone(), is_closed: self.is_closed, written: self.written.clone() }))
    }
}

#[derive(Debug)]
struct OfPrimary {
    says: Vec<u8>,
    is_closed: bool,
    written: Rc<RefCell<Vec<u8>>>,
}

impl Read for OfPrimary {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match HalfOpen::saying(core::mem::take(&mut self.says)).read(buffer) {
            Err(_) if self.is_closed => Ok(0),
            read => read,
        }
    }
}

impl Write for OfPrimary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for OfPrimary {
    fn reset(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

fn follower_link() -> FollowerLink<Vec<u8>> {
    let follower = Follower::new(77, vec![0; 1 << 16]).unwrap();
    FollowerLink::new(follower, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1), None)
}

/// Its primary would be fenced for good, and wait for a person who says `alone`.
#[test]
fn standby_that_ends_by_an_error_says_so_to_its_primary() {
    // Records without the header of their journal.
    let machine = PrimaryMachine::new([&[4, 0, 0, 0, b'J'][..], &[0; 4]].concat(), false);
    let mut link = follower_link();
    assert!(link.turn(&machine, &mut |_: &str| ()).is_err());
    let last_word = [0, 0, 0, 0, b'L'];
    assert!(machine.written.borrow().ends_with(&last_word), "{:?}", machine.written.borrow());
}

#[test]
fn primary_that_ends_each_connection_without_a_word_is_dialed_each_second_and_said_once() {
    let machine = PrimaryMachine::new(Vec::new(), true);
    let (mut link, mut said) = (follower_link(), Vec::new());
    for _ in 0..300 {
        link.turn(&machine, &mut |sentence: &str| said.push(sentence.to_owned())).unwrap();
        machine.clock.set(machine.clock.get() + SECOND / 100);
    }
    assert_eq!((machine.dials.get(), said.len()), (3, 2), "{said:?}");
    assert!(said[1].contains("the connection to the primary has ended"), "{said:?}");
}
