//! A gateway over the kernel's sockets: one thread, which spins or sleeps.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use market::Line;

use crate::JournalMemory;
use crate::audit::{Audit, Direction};
use crate::control::Command;
use crate::drop_copy::DropCopyLine;
use crate::error::Error;
use crate::feed::Feed;
use crate::gateway::Gateway;
use crate::session::Session;
use crate::standby::{PrimaryEvent, StandbyLink};
use crate::strategy::Strategy;

/// Bytes of one read.
const READ_LEN: usize = 64 * 1_024;
/// Packets of a line that one turn takes, so that answers and heartbeats are not starved.
const PACKETS: usize = 64;

const FENCED: &str = "the standby grants nothing: the venue's connection is closed until it does, or until a person who \
                      knows that it does not run says `alone`";

/// How the thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineConfig {
    /// Where to connect first.
    pub primary: SocketAddrV4,
    /// Where to connect when that fails, by turns. By default none.
    pub secondary: Option<SocketAddrV4>,
    /// The time between two attempts. By default 1 s.
    pub retry: Duration,
    /// How long an attempt may take. By default 1 s. The thread waits for it: a gateway without a
    /// session has nothing else to do that is urgent.
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

/// The clock of a run: nanoseconds that never go back, whatever happens to the time of day.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    epoch_offset_ns: u64,
}

impl Clock {
    /// Begins now, at 1 s, so that no time is zero.
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch_ns = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
        Self { start: Instant::now(), epoch_offset_ns: epoch_ns.saturating_sub(1_000_000_000) }
    }

    /// The time.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1_000_000_000)
    }

    /// What to add for the time since the epoch.
    pub const fn epoch_offset_ns(&self) -> u64 {
        self.epoch_offset_ns
    }
}

/// Joins each line's group on an interface.
///
/// # Errors
///
/// The port is taken, or no interface has the address: which line, and where to look.
pub fn join(lines: impl IntoIterator<Item = (SocketAddrV4, Ipv4Addr)>) -> Result<Vec<UdpSocket>, Error> {
    let join = |(group, interface): (SocketAddrV4, Ipv4Addr)| -> io::Result<UdpSocket> {
        // Bound to the group, so that other groups of the port are not received.
        let socket = UdpSocket::bind(group)?;
        socket.join_multicast_v4(group.ip(), &interface)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let failed = |(group, interface), error| {
        let way_on = "`interface` is an address of this machine, as `ip -4 address` lists them";
        Error::failed(format!("cannot join the feed {group} on {interface}: {error}; {way_on}"))
    };
    lines.into_iter().map(|line| join(line).map_err(|error| failed(line, error))).collect()
}

/// What a run is made of.
pub struct Run<T, S, M> {
    /// The strategy and its core.
    pub gateway: Gateway<T, S, M>,
    /// The venue.
    pub line: LineConfig,
    /// The books, and the sockets of the lines.
    pub feed: Option<(Feed, Vec<UdpSocket>)>,
    /// The log of raw bytes.
    pub audit: Option<Audit>,
    /// What people say.
    pub commands: Option<Receiver<Command>>,
    /// The standby, and whether bytes may leave.
    pub standby: Option<StandbyLink>,
    /// The drop copy, with which each trade is compared.
    pub drop_copy: Option<DropCopyLine>,
    /// The clock.
    pub clock: Clock,
}

/// A connection, or when to try again.
#[derive(Debug)]
struct Connection {
    stream: Option<TcpStream>,
    retry_at_ns: u64,
    /// The next attempt goes to the secondary address.
    is_secondary_next: bool,
}

impl<T: Strategy, S: Session, M: JournalMemory> Run<T, S, M> {
    /// Runs until `stop` says so, then logs out. `report` gets a sentence for people when something
    /// happened to the connection.
    pub fn run(&mut self, mut stop: impl FnMut(&Gateway<T, S, M>) -> bool, mut report: impl FnMut(&str)) {
        let mut connection = Connection { stream: None, retry_at_ns: 0, is_secondary_next: false };
        let mut buffer = vec![0; READ_LEN];
        if let Some(line) = &self.drop_copy {
            self.gateway.core_mut().reconcile(line.lag_ns());
        }
        let mut is_audited = self.audit.is_some();
        while !stop(&self.gateway) {
            let mut was_busy = match self.commands(&mut report) {
                Commanded::End => break,
                commanded => commanded == Commanded::Something,
            };
            self.reconcile(&mut report);
            let may_send = self.follow(&mut connection, &mut report);
            was_busy |= self.feed(&mut buffer);
            if connection.stream.is_none() && may_send {
                self.connect(&mut connection, &mut report);
            }
            match self.turn(&mut connection, &mut buffer) {
                Ok(busy) => was_busy |= busy,
                Err(why) => self.close(&mut connection, &why, &mut report),
            }
            if is_audited && self.audit.as_ref().is_some_and(Audit::has_failed) {
                is_audited = false;
                report("the audit log's disk failed: nothing is written to it any more; orders go on");
            }
            if !was_busy && !self.line.idle.is_zero() {
                thread::sleep(self.line.idle);
            }
        }
        self.log_out(&mut connection);
    }

    /// One turn of the drop copy. Where it differs, lags or is away, no order passes until a person
    /// has compared.
    fn reconcile(&mut self, report: &mut impl FnMut(&str)) {
        let Some(line) = &mut self.drop_copy else { return };
        let (now_ns, core) = (self.clock.now_ns(), self.gateway.core_mut());
        if let Err(why) = line.turn(now_ns, |trade| core.drop_copied(trade, now_ns)) {
            report(&why);
        }
        if line.is_absent(now_ns) {
            core.disarm(now_ns);
            report("there is no drop copy: no order passes until a person arms");
        }
        if let Some(difference) = core.poll_reconciler(now_ns) {
            report(&format!("{difference}: no order passes until a person has compared, and arms"));
        }
    }

    /// One turn of the standby. Without its grants the venue's connection is closed.
    fn follow(&mut self, connection: &mut Connection, report: &mut impl FnMut(&str)) -> bool {
        let Some(link) = &mut self.standby else { return true };
        let now_ns = self.clock.now_ns();
        let core = self.gateway.core_mut();
        match link.turn(now_ns, core.journal(), report) {
            Some(PrimaryEvent::Attached(id)) => core.set_standby(id, now_ns),
            Some(PrimaryEvent::Left) => core.set_standby(0, now_ns),
            None => (),
        }
        let may_send = link.may_send(now_ns);
        if !may_send && connection.stream.is_some() {
            self.close(connection, FENCED, report);
        }
        may_send
    }

    /// Receives, lets time pass, sends.
    fn turn(&mut self, connection: &mut Connection, buffer: &mut [u8]) -> Result<bool, String> {
        let Some(stream) = &mut connection.stream else {
            // The kill switch and the strategy's timer do not wait for the venue.
            self.gateway.tick(self.clock.now_ns()).map_err(|error| error.to_string())?;
            return Ok(false);
        };
        let mut was_busy = false;
        match stream.read(buffer) {
            Ok(0) => return Err("the venue has closed the connection".to_owned()),
            Ok(len) => {
                let now_ns = self.clock.now_ns();
                self.audit(Direction::In, &buffer[..len], now_ns);
                self.gateway.received(&buffer[..len], now_ns).map_err(|error| error.to_string())?;
                was_busy = true;
            }
            Err(error) if is_nothing(&error) => (),
            Err(error) => return Err(format!("the connection is broken: {error}")),
        }
        self.gateway.tick(self.clock.now_ns()).map_err(|error| error.to_string())?;
        was_busy |= self.send(stream)?;
        Ok(was_busy)
    }

    fn send(&mut self, stream: &mut TcpStream) -> Result<bool, String> {
        let core = self.gateway.core();
        let mut bytes = core.to_send();
        if let Some(link) = &mut self.standby {
            bytes = &bytes[..link.sendable(bytes.len(), core.journal().end(), self.clock.now_ns())];
        }
        if bytes.is_empty() {
            return Ok(false);
        }
        match stream.write(bytes) {
            Ok(len) => {
                if let Some(audit) = &mut self.audit {
                    let at_ns = self.clock.now_ns().saturating_add(self.clock.epoch_offset_ns());
                    audit.record(Direction::Out, &bytes[..len], at_ns);
                }
                self.gateway.core_mut().sent(len);
                if let Some(link) = &mut self.standby {
                    link.sent(len);
                }
                Ok(true)
            }
            Err(error) if is_nothing(&error) => Ok(false),
            Err(error) => Err(format!("the connection is broken: {error}")),
        }
    }

    fn connect(&mut self, connection: &mut Connection, report: &mut impl FnMut(&str)) {
        let now_ns = self.clock.now_ns();
        if now_ns < connection.retry_at_ns {
            return;
        }
        let retry_ns = u64::try_from(self.line.retry.as_nanos()).unwrap_or(u64::MAX);
        connection.retry_at_ns = now_ns.saturating_add(retry_ns);
        let address = match self.line.secondary {
            Some(secondary) if connection.is_secondary_next => secondary,
            _ => self.line.primary,
        };
        match open(address, self.line.connect_timeout) {
            Ok(stream) => match self.gateway.connected(self.clock.now_ns()) {
                Ok(()) => {
                    report(&format!("connected to {address}"));
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

    fn close(&mut self, connection: &mut Connection, why: &str, report: &mut impl FnMut(&str)) {
        report(why);
        connection.stream = None;
        connection.is_secondary_next = !connection.is_secondary_next;
        self.gateway.disconnected(self.clock.now_ns());
        if let Some(link) = &mut self.standby {
            link.reset();
        }
    }

    /// Asks the venue to close, and sends what can be sent at once.
    fn log_out(&mut self, connection: &mut Connection) {
        let now_ns = self.clock.now_ns();
        self.gateway.core_mut().log_out(now_ns);
        if let Some(stream) = &mut connection.stream {
            // The process ends: a line that takes nothing now gets nothing more.
            let _ = self.send(stream);
        }
        self.gateway.disconnected(now_ns);
        if let Some(link) = &mut self.standby {
            link.leave();
        }
    }

    fn feed(&mut self, buffer: &mut [u8]) -> bool {
        let Some((feed, sockets)) = &mut self.feed else { return false };
        let (gateway, mut was_busy) = (&mut self.gateway, false);
        for (socket, line) in sockets.iter().zip([Line::A, Line::B]) {
            for _ in 0..PACKETS {
                let Ok(len) = socket.recv(buffer) else { break };
                let now_ns = self.clock.now_ns();
                gateway.core_mut().feed_heard(now_ns);
                feed.on_packet(line, &buffer[..len], now_ns, |book| gateway.on_book(book));
                was_busy = true;
            }
        }
        feed.tick(self.clock.now_ns(), |book| gateway.on_book(book));
        was_busy
    }

    fn commands(&mut self, report: &mut impl FnMut(&str)) -> Commanded {
        let command = self.commands.as_ref().and_then(|commands| commands.try_recv().ok());
        let Some(command) = command else { return Commanded::Nothing };
        let now_ns = self.clock.now_ns();
        let core = self.gateway.core_mut();
        match command {
            Command::Arm => core.arm(now_ns),
            Command::Disarm => core.disarm(now_ns),
            Command::CancelAll => core.cancel_all(now_ns),
            Command::Alone => {
                core.set_standby(0, now_ns);
                self.standby.iter_mut().for_each(|link| link.primary_mut().alone());
            }
            Command::HandOver => {
                if self.standby.as_mut().is_some_and(StandbyLink::hand_over) {
                    return Commanded::End;
                }
                report("no standby follows: nobody can take over");
            }
            Command::Unblock(instrument) => core.unblock(instrument, now_ns),
            Command::Limits(limits) => match core.set_limits(limits, now_ns) {
                // Commands are rare, so that the old block may be freed here.
                Ok(_old) => report(&format!("limits of version {} are in force", core.risk().limits().version)),
                Err((why, _)) => report(&why.to_string()),
            },
        }
        Commanded::Something
    }

    fn audit(&mut self, direction: Direction, bytes: &[u8], now_ns: u64) {
        let at_ns = now_ns.saturating_add(self.clock.epoch_offset_ns());
        if let Some(audit) = &mut self.audit {
            audit.record(direction, bytes, at_ns);
        }
    }
}

fn open(address: SocketAddrV4, timeout: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::V4(address), timeout)?;
    // An order must not wait for the acknowledgement of the one before.
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// What became of the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commanded {
    Nothing,
    Something,
    /// The standby takes over.
    End,
}

/// Nothing to do now, rather than a broken connection.
pub(crate) fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
