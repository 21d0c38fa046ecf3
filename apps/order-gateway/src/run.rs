//! A gateway with its connections: one thread, which spins or sleeps.

use std::io;
use std::net::SocketAddrV4;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use market::Line;
use market_ring::RingReader;
use order_entry::journal::JournalMemory;
use order_entry::session::{SessionError, VenueSession};

use crate::audit::{Audit, Direction};
use crate::control::{Command, KillSignal};
use crate::core::{LeftBehind, LineDuty};
use crate::drop_copy::{Difference, DropCopyLine};
use crate::feed::Feed;
use crate::feed_line::{FeedSocket, Received};
use crate::gateway::Gateway;
use crate::helper::Helper;
use crate::host::{Attempt, Attempted, Host, Stream, is_nothing};
use crate::logger::Logger;
use crate::quotes::{News, Quotes};
use crate::standby::{PrimaryEvent, StandbyLink};
use crate::strategy::Strategy;
use crate::sync::{DiskState, DiskWatch, JournalSync};

/// Bytes of one read.
const READ_LEN: usize = 64 * 1_024;
/// Packets of a line that one turn takes, so that answers and heartbeats are not starved.
const PACKETS: usize = 64;
/// Time stamps of sent bytes that one turn takes: one for each packet of both lines, because each
/// may cause a write, and one for the turn's own.
const STAMPS: usize = 2 * PACKETS + 1;
/// A Logout leaves within this time, or not at all: a standby acknowledges its record in one round
/// trip. So do the cancels of a kill behind which the gateway ends.
const LEAVE_NS: u64 = 1_000_000_000;
pub(crate) const LEAVE: Duration = Duration::from_nanos(LEAVE_NS);
/// Reads of the last bytes of a connection, which are nothing where it is silent.
const LAST_READS: usize = 4;
const LEAVE_PAUSE: Duration = Duration::from_millis(1);
/// A person is told when requests have used so much of the journal.
const FULL_PERCENT: u64 = 80;
/// Without a thread for it, a stop is on the disk after this time, whatever still waits for the
/// line or for the standby.
const STOP_SYNC_NS: u64 = 1_000_000_000;
/// The time between two looks at the helpers.
const HELPERS_NS: u64 = 1_000_000_000;
/// A gateway that ends waits so long for the disk.
const LAST_SYNC: Duration = Duration::from_secs(1);

const FENCED: &str = "the standby grants nothing: the venue's connection is closed until it does, or until a person who \
                      knows that it does not run says `alone`";

const DISK: &str = "the journal's disk failed: no order passes until the gateway is started on another disk; compare \
                    with the venue";

const UNSYNCED: &str =
    "the journal's disk has not answered for a second: after a power cut the journal may lack its end";

const SLOW: &str = "the journal's disk has not answered for a second: a power cut would take all that is newer";

const HANGS: &str = "the journal's disk has not answered for five seconds: no order passes until it does, and a person \
                     arms; cancels and answers go on";

const ANSWERS: &str = "the journal's disk answers again: for ten seconds no sync has taken one";

const THROWN: &str = "the kill switch was thrown after `arm` was said: it stays thrown until `arm` is said again";

const NOBODY: &str = "no standby has a grant in force and all records: nobody can take over, and orders go on";

/// How the thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineConfig {
    /// Where to connect first.
    pub primary: SocketAddrV4,
    /// Where to connect when that fails, by turns. By default none.
    pub secondary: Option<SocketAddrV4>,
    /// The time between two attempts. By default 1 s.
    pub retry: Duration,
    /// How long an attempt may take. By default 1 s.
    pub connect_timeout: Duration,
    /// Sleep so long in a turn that had nothing to do; zero spins. By default zero.
    pub idle: Duration,
}

impl LineConfig {
    /// The defaults, with `primary`.
    pub const fn new(primary: SocketAddrV4) -> Self {
        let second = Duration::from_secs(1);
        Self { primary, secondary: None, retry: second, connect_timeout: second, idle: Duration::ZERO }
    }
}

/// What a run is made of.
pub struct Run<T, S, M> {
    /// The strategy and its core.
    pub gateway: Gateway<T, S, M>,
    /// The venue.
    pub line: LineConfig,
    /// The books, and the sockets of the lines. By default none.
    pub feed: Option<(Feed, Vec<FeedSocket>)>,
    /// The quotes of a market-gateway. By default none.
    pub quotes: Option<Quotes>,
    /// The log of raw bytes. By default none.
    pub audit: Option<Audit>,
    /// The thread that writes the journal to its disk. By default none: then a stop is synced in
    /// the turn, when its cancels have left.
    pub sync: Option<JournalSync>,
    /// Who writes what is reported, so that the status says what was lost, and alarms leave room to
    /// what stops orders. By default nobody.
    pub logger: Option<Logger>,
    /// Threads without which something is done no more. By default none.
    pub helpers: Vec<Helper>,
    /// What people say. By default nothing.
    pub commands: Option<Receiver<Command>>,
    /// The signal that is a kill: the thread for it may not have looked before a turn, or before
    /// the gateway logs out. By default none.
    pub kill_signal: Option<KillSignal>,
    /// The standby, and whether bytes may leave. By default none.
    pub standby: Option<StandbyLink>,
    /// The drop copy, with which each trade is compared.
    drop_copy: Option<DropCopyLine>,
    /// The machine.
    host: Box<dyn Host>,
    /// What sessions and journal add to its time for the time since 1970.
    epoch_offset_ns: u64,
    connection: Connection,
    buffer: Vec<u8>,
    /// Line B is read first in the next turn: the last one ended within line A.
    is_line_b_first: bool,
    has_audit_failed: bool,
    has_disk_failed: bool,
    disk: DiskWatch,
    is_full_told: bool,
    /// When it is looked next whether helpers live, and those that have ended.
    helpers_at_ns: u64,
    ended: Vec<&'static str>,
    /// Something was done since memory and code of an order were last brought into the cache.
    is_cold: bool,
    /// Since when a stop is in the journal that is to be on the disk.
    stopped_ns: Option<u64>,
    /// The kill switch keeps the connection closed, and a person knows it.
    is_hung_up: bool,
    /// The gateway ends, and its Logout is written.
    is_logged_out: bool,
    has_handed_over: bool,
    /// At the end the standby granted nothing: it may have the orders.
    is_fenced: bool,
}

/// What a turn found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Something to do.
    Busy,
    /// Nothing: the thread may sleep.
    Idle,
    /// A person has the standby take over: the run ends.
    HandedOver,
}

/// A connection, or when to try again.
#[derive(Debug, Default)]
struct Connection {
    stream: Option<Box<dyn Stream>>,
    /// One that was begun, and its address.
    attempt: Option<(Attempt, SocketAddrV4)>,
    retry_at_ns: u64,
    /// When it is closed at the latest, once the session has written its Logout.
    leaves_until_ns: Option<u64>,
    /// The Logout has left, and nothing leaves behind it: what the venue still says is read.
    is_shut: bool,
    /// The session is over: what the venue still says is read, and is for nobody.
    is_session_over: bool,
    /// The next attempt goes to the secondary address.
    is_secondary_next: bool,
}

impl Connection {
    /// Ends the connection so that nothing of ours leaves behind this: by then the standby may have
    /// taken over, or another connection have told what came of our orders.
    fn reset(&mut self, report: &mut impl FnMut(&str)) {
        self.forget_leaving();
        if let Some(Err(error)) = self.stream.take().map(Stream::reset) {
            report(&format!("the venue's connection is closed, and not reset: {error}"));
        }
    }

    const fn forget_leaving(&mut self) {
        (self.leaves_until_ns, self.is_shut, self.is_session_over) = (None, false, false);
    }

    /// The last byte was written: the venue reads an end behind it, and closes its side. False
    /// where the connection is gone.
    fn close_sending(&mut self) -> bool {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.is_shut) else { return self.stream.is_some() };
        let closed = stream.close_sending();
        self.is_shut = closed.is_ok();
        closed.map_or_else(|error| is_nothing(&error), |()| true)
    }
}

impl<T: Strategy, S: VenueSession, M: JournalMemory> Run<T, S, M> {
    /// A run over `host` that has nothing but its venue.
    pub fn new(gateway: Gateway<T, S, M>, line: LineConfig, host: Box<dyn Host>) -> Self {
        Self {
            gateway,
            line,
            feed: None,
            quotes: None,
            audit: None,
            sync: None,
            logger: None,
            helpers: Vec::new(),
            commands: None,
            kill_signal: None,
            standby: None,
            drop_copy: None,
            epoch_offset_ns: host.epoch_offset_ns(),
            host,
            connection: Connection::default(),
            buffer: vec![0; READ_LEN],
            is_line_b_first: false,
            has_audit_failed: false,
            has_disk_failed: false,
            disk: DiskWatch::default(),
            is_full_told: false,
            helpers_at_ns: 0,
            ended: Vec::new(),
            is_cold: false,
            stopped_ns: None,
            is_hung_up: false,
            is_logged_out: false,
            has_handed_over: false,
            is_fenced: false,
        }
    }

    /// Compares each trade with the drop copy from now on.
    pub fn compare_with(&mut self, drop_copy: DropCopyLine) {
        self.gateway.core_mut().reconcile(drop_copy.lag_ns());
        self.drop_copy = Some(drop_copy);
    }

    /// Runs until `stop` says so, then logs out. `report` gets a sentence for people when something
    /// happened to the connection.
    pub fn run(&mut self, mut stop: impl FnMut(&Gateway<T, S, M>) -> bool, mut report: impl FnMut(&str)) {
        while !stop(&self.gateway) {
            match self.turn(&mut report) {
                Turn::HandedOver => break,
                Turn::Idle if !self.line.idle.is_zero() => thread::sleep(self.line.idle),
                _ => (),
            }
        }
        self.log_out(&mut report);
    }

    /// The orders that a gateway leaves at the venue when it ends; none where a standby has them.
    pub fn left_behind(&self) -> Option<LeftBehind> {
        let left = self.gateway.core().left_behind().filter(|_| !self.has_handed_over);
        left.map(|left| LeftBehind { standby_may_have_them: self.is_fenced, ..left })
    }

    /// Packets of senders that are none of the feed's sources, where some came to its sockets.
    pub fn feed_refused(&self) -> Option<u64> {
        let sockets = self.feed.iter().flat_map(|(_, sockets)| sockets);
        Some(sockets.map(FeedSocket::refused).sum()).filter(|refused| *refused > 0)
    }

    /// One turn over all that a run is made of.
    pub fn turn(&mut self, report: &mut impl FnMut(&str)) -> Turn {
        self.follow_wall_clock(report);
        self.kill_signal.iter().for_each(KillSignal::look);
        let mut is_busy = self.commands(report);
        if self.hand_over(report) {
            return Turn::HandedOver;
        }
        self.check_disk(report);
        self.check_room(report);
        self.check_helpers(report);
        self.reconcile(report);
        if let Some(notice) = self.feed.as_mut().and_then(|(feed, _)| feed.take_notice()) {
            report(&notice);
        }
        self.tell_notices(report);
        let may_send = self.follow(report) && self.obey_kill(report);
        // An order of now would leave when the standby has not taken over.
        if !self.standby.as_ref().is_some_and(StandbyLink::hands_over) {
            match self.feed() {
                Ok(busy) => is_busy |= busy,
                Err(why) => self.close(&why, report),
            }
            is_busy |= self.quotes(report);
        }
        if self.connection.stream.is_none() && may_send {
            self.connect(report);
        }
        match self.exchange() {
            Ok(busy) => is_busy |= busy,
            // The Logout has left, and was answered: a reset could take what was written back.
            Err(_) if self.connection.is_shut => self.hang_up(self.host.now_ns()),
            Err(why) => self.close(&why, report),
        }
        self.finish_leaving();
        self.keep_stop();
        if !self.has_audit_failed && self.audit.as_ref().is_some_and(Audit::has_failed) {
            self.has_audit_failed = true;
            report("the audit log's disk failed: nothing is written to it any more; orders go on");
        }
        if is_busy {
            self.is_cold = true;
            return Turn::Busy;
        }
        // What was done has pushed memory and code of an order out of the cache. Nothing waits now.
        if core::mem::take(&mut self.is_cold) {
            self.gateway.core_mut().warm();
        }
        Turn::Idle
    }

    /// Times of day in messages and in the journal are those of the wall clock, also behind a step
    /// of it. What the gateway waits for goes by the other clock, which never steps.
    fn follow_wall_clock(&mut self, report: &mut impl FnMut(&str)) {
        let (before, now) = (self.epoch_offset_ns, self.host.epoch_offset_ns());
        if now == before {
            return;
        }
        self.epoch_offset_ns = now;
        self.gateway.core_mut().set_epoch_offset_ns(now);
        self.drop_copy.iter_mut().for_each(|line| line.set_epoch_offset_ns(now));
        let way = if now > before { "forward" } else { "back" };
        let ms = now.abs_diff(before) / 1_000_000;
        report(&format!("the wall clock has stepped {way} by {ms} ms: times in messages and in the journal follow it"));
    }

    /// A disk that takes the journal no more stops orders, also those that a person arms later:
    /// what is sent would be in no journal after a power cut. So does one that hangs, while it
    /// does.
    fn check_disk(&mut self, report: &mut impl FnMut(&str)) {
        let core = self.gateway.core_mut();
        let has_failed = core.has_disk_failed() || self.sync.as_ref().is_some_and(JournalSync::has_failed);
        if has_failed {
            if core.risk().is_armed() {
                core.disarm(self.host.now_ns());
                self.has_disk_failed = false;
            }
            if !core::mem::replace(&mut self.has_disk_failed, true) {
                report(DISK);
            }
            return;
        }
        let Some(sync) = &self.sync else { return };
        match self.disk.look(sync, || self.host.now_ns()) {
            Some(DiskState::Slow) => report(SLOW),
            Some(DiskState::Answers) => report(ANSWERS),
            Some(DiskState::Hangs) | None => (),
        }
        if self.disk.hangs() && core.risk().is_armed() {
            core.disarm(self.host.now_ns());
            report(HANGS);
        }
    }

    /// A journal cannot grow. Says once that it fills.
    fn check_room(&mut self, report: &mut impl FnMut(&str)) {
        let journal = self.gateway.core().journal();
        if !self.is_full_told && journal.has_used(FULL_PERCENT) {
            self.is_full_told = true;
            report(&format!(
                "requests have used {FULL_PERCENT} % of the journal's room for them: behind the last no order passes, while \
                 answers and cancels do; begin another journal, with more `megabytes`, when no order lives"
            ));
        }
    }

    /// Says once of each helper that it has ended.
    fn check_helpers(&mut self, report: &mut impl FnMut(&str)) {
        let now_ns = self.host.now_ns();
        if now_ns < self.helpers_at_ns {
            return;
        }
        self.helpers_at_ns = now_ns.saturating_add(HELPERS_NS);
        for helper in self.helpers.extract_if(.., |helper| helper.has_ended()) {
            let name = helper.name();
            self.ended.push(name);
            report(&format!(
                "the thread `{name}` has ended by a defect, and what it does is done no more: start the gateway again \
                 when that is missed"
            ));
        }
    }

    /// A stop of this turn goes to the standby at once, which would arm by what it has, and to the
    /// disk behind its cancels: a disk may hang, and nothing may wait for it.
    fn keep_stop(&mut self) {
        let core = self.gateway.core_mut();
        if !core.is_sync_due() {
            self.stopped_ns = None;
            return;
        }
        let has_all = self.standby.as_mut().is_none_or(|link| link.push(core.journal()));
        if let Some(sync) = &self.sync {
            core.take_sync_due();
            sync.request();
            return;
        }
        let now_ns = self.host.now_ns();
        let is_late = now_ns.saturating_sub(*self.stopped_ns.get_or_insert(now_ns)) >= STOP_SYNC_NS;
        if is_late || has_all && core.to_send().is_empty() {
            core.sync(now_ns);
        }
    }

    /// One turn of the drop copy. Where it differs, lags or is away, no order passes until a person
    /// has compared.
    fn reconcile(&mut self, report: &mut impl FnMut(&str)) {
        let Some(line) = &mut self.drop_copy else { return };
        let (now_ns, core) = (self.host.now_ns(), self.gateway.core_mut());
        if let Err(why) = line.turn(now_ns, &*self.host, |trade, of| core.drop_copied(trade, of, now_ns)) {
            report(&why);
        }
        if let Some(why) = line.take_unread() {
            core.disarm(now_ns);
            report(&format!("{why}: no order passes until a person has compared, and arms"));
        }
        if line.is_absent(now_ns) {
            core.disarm(now_ns);
            report("there is no drop copy: no order passes until a person arms");
        }
        while let Some(difference) = self.gateway.reconcile(now_ns) {
            report(&match difference {
                Difference::Awaited(_) => format!("{difference}: it is booked where the session opens without it"),
                Difference::OnlyTheirs(_) => {
                    format!("{difference}: it is booked; no order passes until a person has compared, and arms")
                }
                _ => format!("{difference}: no order passes until a person has compared, and arms"),
            });
        }
    }

    /// One turn of the standby. Without its grants the venue's connection is closed.
    fn follow(&mut self, report: &mut impl FnMut(&str)) -> bool {
        let Some(link) = &mut self.standby else { return true };
        let now_ns = self.host.now_ns();
        let core = self.gateway.core_mut();
        let noted = match link.turn(now_ns, core.journal(), report) {
            // It has not been asked for a grant yet.
            Some(PrimaryEvent::Attached(id)) => core.set_standby(id, now_ns).inspect_err(|_| link.dismiss(now_ns)),
            Some(PrimaryEvent::Left) => core.set_standby(0, now_ns),
            None => Ok(()),
        };
        if let Err(error) = noted {
            core.disarm(now_ns);
            report(&format!("the journal's disk failed: {error}: no standby is taken, and no order passes"));
        }
        let may_send = link.may_send(now_ns);
        if !may_send {
            self.connection.attempt = None;
        }
        if !may_send && self.connection.stream.is_some() {
            self.close(FENCED, report);
        }
        may_send
    }

    /// Ends the connection when the time of a thrown kill switch is over. Whether there may be one.
    fn obey_kill(&mut self, report: &mut impl FnMut(&str)) -> bool {
        let now_ns = self.host.now_ns();
        let duty = self.gateway.core().line_duty(now_ns);
        if duty.is_none() {
            self.is_hung_up = false;
            return true;
        }
        self.connection.attempt = None;
        let is_connected = self.connection.stream.is_some();
        if is_connected && self.connection.leaves_until_ns.is_none() {
            let sentence = duty.sentence(true);
            match duty {
                LineDuty::Break { .. } => {
                    self.close(&sentence, report);
                    self.gateway.core_mut().line_broken();
                }
                _ => {
                    report(&sentence);
                    self.gateway.core_mut().log_out(now_ns);
                    self.connection.leaves_until_ns = Some(now_ns.saturating_add(LEAVE_NS));
                }
            }
        } else if !is_connected && !self.is_hung_up {
            report(&duty.sentence(false));
        }
        self.is_hung_up = true;
        false
    }

    /// Closes our side of a connection whose Logout has left, behind its record, where there is a
    /// standby; the rest when the venue has closed its side. A line that does not take it in time
    /// gets nothing more.
    fn finish_leaving(&mut self) {
        let Some(until_ns) = self.connection.leaves_until_ns else { return };
        let now_ns = self.host.now_ns();
        let has_left = self.gateway.core().to_send().is_empty();
        if has_left && !self.connection.close_sending() || now_ns >= until_ns {
            return self.hang_up(now_ns);
        }
        // No order lives: what the venue still says is for nobody.
        if self.connection.is_shut && !core::mem::replace(&mut self.connection.is_session_over, true) {
            self.part(now_ns);
        }
    }

    /// Receives, lets time pass, sends. Behind the Logout it receives alone.
    fn exchange(&mut self) -> Result<bool, String> {
        if self.connection.is_shut {
            self.gateway.core_mut().poll(self.host.now_ns());
            return if self.receive_rest() { Err("the venue has closed the connection".to_owned()) } else { Ok(false) };
        }
        let core = self.gateway.core();
        let before = core.to_send().is_empty().then(|| core.requests());
        let Some(stream) = &mut self.connection.stream else {
            // The kill switch and the strategy's timer do not wait for the venue.
            self.gateway.tick(self.host.now_ns()).map_err(|error| error.to_string())?;
            return Ok(false);
        };
        let mut is_busy = false;
        if let Some(latency) = &mut self.gateway.latency {
            for _ in 0..STAMPS {
                if !latency.awaits_stamp() {
                    break;
                }
                let Some((last_byte, at_ns)) = stream.take_sent() else { break };
                latency.left(last_byte, at_ns);
            }
        }
        match stream.read(&mut self.buffer) {
            Ok(0) => return Err("the venue has closed the connection".to_owned()),
            Ok(len) => {
                let now_ns = self.host.now_ns();
                record(&mut self.audit, &*self.host, Direction::In, &self.buffer[..len]);
                let received = self.gateway.received(&self.buffer[..len], now_ns);
                self.or_last_words(received, before)?;
                is_busy = true;
            }
            Err(error) if is_nothing(&error) => (),
            Err(error) => return Err(format!("the connection is broken: {error}")),
        }
        let ticked = self.gateway.tick(self.host.now_ns());
        self.or_last_words(ticked, before)?;
        Ok(self.send()? || is_busy)
    }

    /// A session that ends by a rule has written which: FIX a Logout, iLink 3 a Terminate. It
    /// leaves before the connection is reset, where the line takes it at once. Not where other
    /// bytes waited for the line, or where a request stands before it: there was none at `before`,
    /// and orders must not leave when nobody hears their answers.
    fn or_last_words(&mut self, result: Result<(), SessionError>, before: Option<u64>) -> Result<(), String> {
        result.map_err(|error| {
            if before == Some(self.gateway.core().requests()) {
                let _ = self.send();
            }
            error.to_string()
        })
    }

    /// Takes what the venue says to a gateway that logs out: the answers to its cancels. True where
    /// nothing follows. Behind the Logout the session may be over, and the bytes are read all the
    /// same: where some are unread at the end, the kernel resets, and drops what has not left.
    fn receive_rest(&mut self) -> bool {
        let Some(stream) = &mut self.connection.stream else { return true };
        match stream.read(&mut self.buffer) {
            Ok(0) => true,
            Ok(len) => {
                record(&mut self.audit, &*self.host, Direction::In, &self.buffer[..len]);
                let is_over = &mut self.connection.is_session_over;
                *is_over = *is_over || self.gateway.received(&self.buffer[..len], self.host.now_ns()).is_err();
                false
            }
            Err(error) => !is_nothing(&error),
        }
    }

    fn send(&mut self) -> Result<bool, String> {
        if self.connection.is_shut {
            return Ok(false);
        }
        let Self { gateway, standby, audit, host, connection, .. } = self;
        let Some(stream) = &mut connection.stream else { return Ok(false) };
        Outgoing { gateway, standby, audit, host: &**host }.write(|bytes| stream.write(bytes))
    }

    /// Goes on with the attempt that is under way, or begins one when its time has come.
    fn connect(&mut self, report: &mut impl FnMut(&str)) {
        let (now_ns, connection) = (self.host.now_ns(), &mut self.connection);
        let (begun, address) = match connection.attempt.take() {
            Some((attempt, address)) => (Ok(attempt), address),
            None if now_ns < connection.retry_at_ns => return,
            None => {
                let retry_ns = u64::try_from(self.line.retry.as_nanos()).unwrap_or(u64::MAX);
                connection.retry_at_ns = now_ns.saturating_add(retry_ns);
                let address = match self.line.secondary {
                    Some(secondary) if connection.is_secondary_next => secondary,
                    _ => self.line.primary,
                };
                (Attempt::begin(&*self.host, address, self.line.connect_timeout), address)
            }
        };
        match begun.and_then(|attempt| attempt.poll(now_ns)) {
            Ok(Attempted::Waiting(attempt)) => connection.attempt = Some((attempt, address)),
            Ok(Attempted::Open(mut stream)) => match self.gateway.connected(self.host.now_ns()) {
                Ok(()) => {
                    if let Some(latency) = &mut self.gateway.latency {
                        latency.line_opened(stream.stamp_sent());
                    }
                    report(&format!("connected to {address}"));
                    if let Some(lease) = self.standby.as_ref().and_then(StandbyLink::resent_for)
                        && let Err(error) = stream.give_up_after(lease)
                    {
                        report(&format!("the connection may send again what is older than a grant: {error}"));
                    }
                    connection.stream = Some(stream);
                }
                Err(error) => report(&error.to_string()),
            },
            Err(error) => {
                connection.is_secondary_next = !connection.is_secondary_next;
                report(&format!("no connection to {address}: {error}"));
            }
        }
    }

    /// Orders that the kernel still holds must not leave minutes later, when nobody counts on them.
    pub(crate) fn close(&mut self, why: &str, report: &mut impl FnMut(&str)) {
        report(why);
        self.connection.reset(report);
        self.connection.is_secondary_next = !self.connection.is_secondary_next;
        self.gateway.disconnected(self.host.now_ns());
        if let Some(link) = &mut self.standby {
            link.reset();
        }
    }

    /// Ends: obeys commands and a kill that have come since the last turn, asks the venue to close,
    /// takes what it says until it has, and has the journal on the disk. A standby has the record
    /// of what leaves first. For each of the two this waits a second at most.
    pub fn log_out(&mut self, report: &mut impl FnMut(&str)) {
        let until = Instant::now() + LEAVE;
        while self.go_on_leaving(report) && Instant::now() < until {
            thread::sleep(LEAVE_PAUSE);
        }
        self.end_leaving();
        self.settle(report);
    }

    /// Writes what is to leave before the end: the cancels of a kill, and behind them the Logout;
    /// then takes what the venue says. Whether some of it still waits, or the venue has not closed.
    pub(crate) fn go_on_leaving(&mut self, report: &mut impl FnMut(&str)) -> bool {
        // By now the standby has the orders.
        if self.has_handed_over || !self.follow(report) || self.hand_over(report) {
            return false;
        }
        let now_ns = self.host.now_ns();
        if !self.is_logged_out {
            self.kill_signal.iter().for_each(KillSignal::look);
            // Whoever said one was answered "ok".
            while self.commands(report) {}
            self.gateway.core_mut().poll(now_ns);
            // The session is the standby's, unless nobody can take over.
            if self.standby.as_ref().is_some_and(StandbyLink::hands_over) {
                return true;
            }
        }
        let is_before_logout = !self.is_logged_out && !self.connection.is_shut;
        if self.receive_rest() || is_before_logout && self.connection.is_session_over {
            return false;
        }
        let core = self.gateway.core_mut();
        if !self.is_logged_out && !core.has_cancels_due(now_ns) {
            // The answers that are still read cause no order behind the Logout.
            if core.risk().is_armed() {
                core.disarm(now_ns);
            }
            // Who says something from now on hears that the gateway has ended.
            self.commands = None;
            if self.connection.leaves_until_ns.is_none() {
                core.log_out(now_ns);
            }
            self.is_logged_out = true;
        }
        if self.send().is_err() {
            return false;
        }
        let has_left = self.is_logged_out && self.gateway.core().to_send().is_empty();
        !has_left || self.connection.close_sending()
    }

    /// Closes the connection. A kill that came behind the Logout is in the journal, for the next
    /// start.
    pub(crate) fn end_leaving(&mut self) {
        let now_ns = self.host.now_ns();
        self.commands = None;
        self.hang_up(now_ns);
        if !self.has_handed_over {
            self.kill_signal.iter().for_each(KillSignal::look);
            self.gateway.core_mut().poll(now_ns);
        }
    }

    /// Lets the standby go, and has the end of the journal on the disk. By now nothing can leave. A
    /// standby that heard of the end behind a slow disk would have taken over.
    pub(crate) fn settle(&mut self, report: &mut impl FnMut(&str)) {
        if let Some(link) = &mut self.standby {
            self.is_fenced = !link.may_send(self.host.now_ns());
            link.leave();
        }
        let core = self.gateway.core_mut();
        match &self.sync {
            Some(sync) => {
                core.take_sync_due();
                if !sync.wait(LAST_SYNC) {
                    report(if sync.has_failed() { DISK } else { UNSYNCED });
                }
            }
            None if core.is_sync_due() => core.sync(self.host.now_ns()),
            None => (),
        }
    }

    /// Closes the connection behind its Logout. What the line has not taken leaves soon, or never:
    /// nobody counts on it later.
    fn hang_up(&mut self, now_ns: u64) {
        for _ in 0..LAST_READS {
            if self.receive_rest() {
                break;
            }
        }
        let has_parted = self.connection.leaves_until_ns.is_some() && self.connection.is_session_over;
        self.connection.forget_leaving();
        if let Some(mut stream) = self.connection.stream.take() {
            // Without it the machine sends again as long as it does by itself.
            let _ = stream.give_up_after(LEAVE);
        }
        if !has_parted {
            self.part(now_ns);
        }
    }

    /// The session is over: nothing of it leaves any more.
    fn part(&mut self, now_ns: u64) {
        self.gateway.disconnected(now_ns);
        self.standby.iter_mut().for_each(StandbyLink::reset);
    }

    /// Takes a packet of one of the feed's lines, from a port that brought it in this call. What
    /// the strategy sends is given to `write` before this returns.
    ///
    /// # Errors
    ///
    /// The connection is broken: it is to be closed.
    pub(crate) fn on_packet(
        &mut self,
        line: Line,
        packet: &[u8],
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> Result<(), String> {
        let Self { gateway, standby, audit, host, is_cold, feed: Some((feed, _)), .. } = self else { return Ok(()) };
        let now_ns = host.now_ns();
        *is_cold = true;
        if let Some(latency) = &mut gateway.latency {
            latency.packet_of_burst();
        }
        if feed.on_packet(line, packet, now_ns) {
            gateway.core_mut().feed_heard(now_ns);
        }
        // An order of now would leave when the standby has not taken over. The next packet, or the
        // turn's end, tells the strategy of the books.
        if standby.as_ref().is_some_and(StandbyLink::hands_over) {
            return Ok(());
        }
        let (mut written, mut outgoing) = (Ok(()), Outgoing { gateway, standby, audit, host: &**host });
        feed.publish(now_ns, |book, depth| {
            outgoing.gateway.on_book_of(book, Some(depth));
            if written.is_ok() {
                written = outgoing.write(&mut write).map(drop);
            }
        });
        if let Some(latency) = &mut gateway.latency {
            latency.packet_over();
        }
        written
    }

    /// Takes what is new in the ring of a market-gateway.
    fn quotes(&mut self, report: &mut impl FnMut(&str)) -> bool {
        let Some(quotes) = &mut self.quotes else { return false };
        let (gateway, now_ns) = (&mut self.gateway, self.host.now_ns());
        let mut arrived_ns = None;
        gateway.begin_poll();
        quotes.poll(now_ns, |news| match news {
            News::Packet(at_ns) => arrived_ns = Some(at_ns),
            News::Book(book) => gateway.on_quote(book, arrived_ns.take()),
            News::Alive(instrument) => gateway.core_mut().instrument_heard(instrument, now_ns),
            News::Lifeless(symbol, channel) if usize::from(channel) >= RingReader::LIVES => report(&format!(
                "the ring does not tell whether channel {channel} lives, only channels below {}: {symbol} stays stale, and \
                 no order of it passes; have a market-gateway with fewer channels bring it",
                RingReader::LIVES
            )),
            News::Lifeless(symbol, channel) => report(&format!(
                "the market-gateway has quotes of {symbol} and does not say that their channel {channel} lives: {symbol} \
                 stays stale, and no order of it passes; a market-gateway of this version says it"
            )),
            News::Ambiguous(symbol, [one, other]) => report(&format!(
                "channels {one} and {other} of the market-gateway both have quotes of {symbol}: it stays stale, and no order of it \
                 passes, until `channels` of [quotes] says which is meant"
            )),
            News::Opened(path) => report(&format!("quotes come from {}", path.display())),
            News::Lost(path) => report(&format!(
                "the market-gateway of {} has ended: no orders pass until there is another one",
                path.display()
            )),
        })
    }

    /// Takes the packets that wait on the feed's sockets. What one of them causes leaves before the
    /// next is read, so that the last order of a burst waits for no more than its own packet. Where
    /// it has to wait for the standby, the turn reads no more packets, and the next one begins with
    /// the other line.
    ///
    /// # Errors
    ///
    /// The connection is broken: it is to be closed.
    fn feed(&mut self) -> Result<bool, String> {
        let Self { gateway, standby, audit, host, connection, buffer, is_line_b_first, .. } = self;
        let Some((feed, sockets)) = &mut self.feed else { return Ok(false) };
        let (mut outgoing, mut was_busy) = (Outgoing { gateway, standby, audit, host: &**host }, false);
        outgoing.gateway.begin_poll();
        let lines = if *is_line_b_first { [Line::B, Line::A] } else { [Line::A, Line::B] };
        'lines: for line in lines {
            let Some(socket) = sockets.get_mut(line.0) else { continue };
            for _ in 0..PACKETS {
                let latency = outgoing.gateway.latency.as_deref_mut();
                let Some(received) = socket.receive(buffer, latency) else { break };
                was_busy = true;
                let Received::Packet(len) = received else { continue };
                let (now_ns, waited) = (host.now_ns(), outgoing.waiting());
                if feed.on_packet(line, &buffer[..len], now_ns) {
                    outgoing.gateway.core_mut().feed_heard(now_ns);
                }
                feed.publish(now_ns, |book, depth| outgoing.gateway.on_book_of(book, Some(depth)));
                if let Some(latency) = &mut outgoing.gateway.latency {
                    latency.packet_over();
                }
                let Some(stream) = connection.stream.as_mut().filter(|_| outgoing.waiting() > waited) else { continue };
                outgoing.write(|bytes| stream.write(bytes))?;
                // The standby gets the record of what waits for it in the turn, and not before.
                if outgoing.standby.is_some() && outgoing.waiting() > 0 {
                    *is_line_b_first = line == Line::A;
                    break 'lines;
                }
            }
        }
        feed.tick(host.now_ns(), |book, depth| outgoing.gateway.on_book_of(book, Some(depth)));
        Ok(was_busy)
    }

    /// Reports what stopped orders, and alarms as far as they leave room to that.
    fn tell_notices(&mut self, report: &mut impl FnMut(&str)) {
        while let Some(notice) = self.gateway.core_mut().take_notice(|| self.host.now_ns()) {
            if !notice.is_alarm() || self.logger.as_ref().is_none_or(Logger::admits_alarm) {
                report(&notice.to_string());
            }
        }
    }

    /// One command of a person. True where there was one.
    fn commands(&mut self, report: &mut impl FnMut(&str)) -> bool {
        let command = self.commands.as_ref().and_then(|commands| commands.try_recv().ok());
        let Some(command) = command else { return false };
        let now_ns = self.host.now_ns();
        let core = self.gateway.core_mut();
        match command {
            Command::Arm(throws) => {
                if !core.arm_for(throws, now_ns) {
                    report(if core.has_disk_failed() { DISK } else { THROWN });
                }
            }
            // Whoever asked may have gone.
            Command::Status(answer) => {
                let mut status = core.status();
                let refused = self.feed_refused();
                let troubles = [
                    refused.map(|refused| format!("the feed refused {refused} packets of other senders")),
                    self.disk.words(now_ns),
                    self.audit.as_ref().and_then(Audit::losses),
                    self.logger.as_ref().and_then(Logger::losses),
                ];
                status.extend(troubles.into_iter().flatten().map(|trouble| format!("; {trouble}")));
                status.extend(self.ended.iter().map(|name| format!("; the thread `{name}` has ended")));
                drop(answer.send(status));
            }
            Command::Disarm => core.disarm(now_ns),
            // The switch is looked at in each turn.
            Command::Kill => (),
            Command::CancelAll => {
                // Who cancels does not wait for a standby, nor does the standby know of it.
                self.standby.iter_mut().for_each(StandbyLink::give_up_hand_over);
                core.cancel_all(now_ns);
            }
            Command::Alone => {
                if let Err(error) = core.set_standby(0, now_ns) {
                    report(&format!("the journal's disk failed: {error}: after a power cut say `alone` again"));
                }
                self.standby.iter_mut().for_each(StandbyLink::alone);
            }
            Command::HandOver => {
                if !self.standby.as_mut().is_some_and(|link| link.want_hand_over(now_ns)) {
                    report(NOBODY);
                }
            }
            Command::Unblock(instrument) => core.unblock(instrument, now_ns),
            Command::KillStrategy(strategy) => {
                if core.kill_strategy(strategy, now_ns) {
                    let name = core.strategy_name(strategy);
                    report(&format!("strategy {name} is stopped: its orders are canceled, and others trade on"));
                }
            }
            Command::ArmStrategy(strategy) => {
                if core.arm_strategy(strategy, now_ns) {
                    report(&format!("strategy {} may trade again", core.strategy_name(strategy)));
                }
            }
            Command::Limits(limits) => match core.set_limits(limits, now_ns) {
                // Commands are rare, so that the old block may be freed here.
                Ok(_old) => report(&format!("limits of version {} are in force", core.risk().limits().version)),
                Err((why, _)) => report(&why.to_string()),
            },
        }
        true
    }

    /// Goes on with a handover that a person wants. True where the standby takes over.
    fn hand_over(&mut self, report: &mut impl FnMut(&str)) -> bool {
        let Some(link) = &mut self.standby else { return false };
        let (now_ns, core, connection) = (self.host.now_ns(), self.gateway.core_mut(), &mut self.connection);
        if link.hands_over() {
            // The standby goes on by the journal: what disarms must be in it.
            core.poll(now_ns);
        }
        let handed = link.hand_over(now_ns, core.journal(), || connection.reset(report));
        if handed == Some(false) {
            report(NOBODY);
        }
        self.has_handed_over = handed == Some(true);
        self.has_handed_over
    }
}

/// What decides which bytes may leave.
struct Outgoing<'a, T, S, M> {
    gateway: &'a mut Gateway<T, S, M>,
    standby: &'a mut Option<StandbyLink>,
    audit: &'a mut Option<Audit>,
    host: &'a dyn Host,
}

impl<T: Strategy, S: VenueSession, M: JournalMemory> Outgoing<'_, T, S, M> {
    /// Bytes that the session has written and the line has not taken.
    #[inline]
    fn waiting(&self) -> usize {
        self.gateway.core().to_send().len()
    }

    /// Gives `write` what the session has written, as far as the standby lets it leave. Whether
    /// something left.
    #[inline]
    fn write(&mut self, write: impl FnOnce(&[u8]) -> io::Result<usize>) -> Result<bool, String> {
        if let Some(latency) = &mut self.gateway.latency {
            latency.line_is_given();
        }
        let core = self.gateway.core();
        let mut bytes = core.to_send();
        let written = bytes.len();
        if let Some(link) = self.standby {
            bytes = &bytes[..link.sendable(bytes.len(), core.journal(), || self.host.clock_ns())];
        }
        if bytes.is_empty() {
            return Ok(false);
        }
        match write(bytes) {
            Ok(len) => {
                record(self.audit, self.host, Direction::Out, &bytes[..len]);
                // Also what waits for the standby has not left.
                let has_more = len < written;
                self.gateway.core_mut().sent(len);
                if let Some(latency) = &mut self.gateway.latency {
                    latency.line_took(len, has_more);
                }
                self.standby.iter_mut().for_each(|link| link.sent(len));
                Ok(true)
            }
            Err(error) if is_nothing(&error) => Ok(false),
            Err(error) => Err(format!("the connection is broken: {error}")),
        }
    }
}

fn record(audit: &mut Option<Audit>, host: &dyn Host, direction: Direction, bytes: &[u8]) {
    if let Some(audit) = audit {
        audit.record(direction, bytes, host.now_ns().saturating_add(host.epoch_offset_ns()));
    }
}
