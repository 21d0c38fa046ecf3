//! The sockets of both sides.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::SocketAddrV4;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use order_entry::journal::{Journal, JournalMemory};

use super::follower::Follower;
use super::primary::{Primary, PrimaryEvent};
use super::promise::{Followed, SILENCE_NS};
use super::secret::{ProvenStream, Role, Secret};
use super::writer::{MirrorPolicy, Writer};
use crate::error::Error;
use crate::host::{Host, Listener, Stream, Waits, is_nothing};
use crate::kernel::Kernel;
use crate::memory::MappedFile;
use crate::rdma_port::RdmaPort;
use rdma::mirror::MirrorCounters;

const READ_LEN: usize = 64 * 1_024;
const RETRY: Duration = Duration::from_millis(20);
const RETRY_NS: u64 = RETRY.as_nanos() as u64;
/// A read waits no longer, because the promise ends in time; a record that arrives ends it at once.
const WAITS: Waits = Waits { connect: Duration::from_millis(100), read: Duration::from_millis(5) };

/// A mirror that ends a connection without a grant is dialed again after this time: it would refuse
/// the next one too, and each costs the thread of the orders a queue pair. So is a primary that
/// ends a connection without a word.
const PAUSE_NS: u64 = 1_000_000_000;

/// A standby has all records within this time, or does not take over: meanwhile no cancel leaves,
/// and what leaves then must not be old. A WRITE that is lost is sent again after 67 ms.
const HAND_OVER_NS: u64 = 200_000_000;

const LEFT: &str = "the mirror has left: nothing is sent until there is one again, or until a person says `alone`";

/// The primary's listener, its standby's connection, and what of the output may leave.
#[derive(Debug)]
pub struct StandbyLink {
    listener: Box<dyn Listener>,
    stream: Option<Box<dyn Stream>>,
    primary: Primary,
    /// Writes into the standby's memory.
    writer: Option<Writer>,
    /// Times that a standby's connection was lost.
    losses: u64,
    heard_at_ns: u64,
    /// When the next connection is taken.
    retry_at_ns: u64,
    /// Why the last connection ended, until one has come further.
    ended: String,
    /// So many bytes of the output may leave when the standby has the records before this position.
    barrier: Option<(usize, usize)>,
    /// Since when a person waits for the standby to take over.
    hands_over: Option<u64>,
}

impl StandbyLink {
    /// Waits for a standby at `listener`. `standby` is the one that the journal names.
    pub fn new(listener: Box<dyn Listener>, lease: Duration, standby: u64) -> Self {
        let lease_ns = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        Self::over(listener, Primary::new(lease_ns, standby), None)
    }

    /// Writes into the memory of a standby, to which `dialer` connects. `standby` is the one that
    /// the journal names.
    ///
    /// # Errors
    ///
    /// The device of `port` has no room.
    pub fn mirrored(
        dialer: Box<dyn Listener>,
        (port, policy): (RdmaPort, MirrorPolicy),
        lease: Duration,
        standby: u64,
    ) -> Result<Self, Error> {
        let lease_ns = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        let primary = Primary::writing(lease_ns, standby, policy != MirrorPolicy::GoOn);
        let writer = Some(Writer::new(port, policy)?);
        Ok(Self::over(dialer, primary, writer))
    }

    fn over(listener: Box<dyn Listener>, primary: Primary, writer: Option<Writer>) -> Self {
        let (heard_at_ns, retry_at_ns, ended) = (0, 0, String::new());
        let (stream, losses, barrier, hands_over) = (None, 0, None, None);
        Self { listener, stream, primary, writer, losses, heard_at_ns, retry_at_ns, ended, barrier, hands_over }
    }

    /// What was written into a standby's memory, and how often its connection was lost.
    pub fn mirror_counts(&self) -> Option<(MirrorCounters, u64)> {
        self.writer.as_ref().map(|writer| (writer.counters(), self.losses))
    }

    /// How long bytes for the venue may be sent again: as long as a grant holds. `None` where
    /// nobody takes over without a person.
    pub const fn resent_for(&self) -> Option<Duration> {
        match self.primary.fenced_ns() {
            Some(lease_ns) => Some(Duration::from_nanos(lease_ns)),
            None => None,
        }
    }

    /// Whether the venue may be spoken to.
    pub const fn may_send(&self, now_ns: u64) -> bool {
        self.primary.may_send(now_ns)
    }

    /// How many of the `len` bytes that wait for the venue may leave: those whose records, which
    /// end where the journal does at the latest, the standby has. `clock` reads the time: a turn
    /// that stood still may have outlasted the grants.
    pub fn sendable<M: JournalMemory>(&mut self, len: usize, journal: &Journal<M>, clock: impl Fn() -> u64) -> usize {
        if len == 0 || self.hands_over.is_some() || !self.primary.may_send(clock()) {
            return 0;
        }
        let (bytes, records) = *self.barrier.get_or_insert((len, journal.end()));
        let is_there = match &mut self.writer {
            Some(writer) => {
                // A failure is seen, and said, in the next turn.
                let _ = writer.write(&mut self.primary, journal);
                // The WRITEs took their time.
                writer.lets(&self.primary, records) && self.primary.may_send(clock())
            }
            None => self.primary.has(records),
        };
        if is_there { bytes } else { 0 }
    }

    /// Whether the standby has all of `journal`, or there is none. What it lacks is on its way when
    /// this returns, as far as its connection takes it.
    pub(crate) fn push<M: JournalMemory>(&mut self, journal: &Journal<M>) -> bool {
        match &mut self.writer {
            // A failure is seen, and said, in the next turn.
            Some(writer) => _ = writer.write(&mut self.primary, journal),
            None => {
                self.primary.frame_all(journal);
                let _ = self.flush();
            }
        }
        self.primary.has(journal.end())
    }

    /// The venue's line took `len` bytes.
    pub const fn sent(&mut self, len: usize) {
        if let Some((bytes, _)) = &mut self.barrier {
            *bytes = bytes.saturating_sub(len);
            if *bytes == 0 {
                self.barrier = None;
            }
        }
    }

    /// A person knows that the standby does not run. Its connection may be half open, and is none.
    pub fn alone(&mut self) {
        self.disconnect();
        self.primary.alone();
    }

    /// Drops a standby that has just attached, and that nothing was asked of.
    pub fn dismiss(&mut self, now_ns: u64) {
        self.retry_at_ns = now_ns.saturating_add(PAUSE_NS);
        self.disconnect();
        self.primary.dismiss();
    }

    /// The output was emptied, because the venue's connection is gone.
    pub const fn reset(&mut self) {
        self.barrier = None;
    }

    /// One turn of the standby's socket. `report` gets a sentence when something happened.
    pub fn turn<M: JournalMemory>(
        &mut self,
        now_ns: u64,
        journal: &Journal<M>,
        report: &mut impl FnMut(&str),
    ) -> Option<PrimaryEvent> {
        if self.stream.is_none()
            && now_ns >= self.retry_at_ns
            && let Some(stream) = self.listener.accept()
        {
            self.stream = Some(stream);
            self.heard_at_ns = now_ns;
            self.primary.connected();
        }
        self.stream.as_ref()?;
        let event = self.exchange(now_ns, journal, report).unwrap_or_else(|why| {
            self.lose(now_ns, why, report);
            None
        });
        match event {
            Some(PrimaryEvent::Attached(_)) => report("a standby follows: nothing is sent without its grants"),
            Some(PrimaryEvent::Left) if self.writer.is_some() => report(LEFT),
            Some(PrimaryEvent::Left) => report("the standby has left: this gateway is alone"),
            None => (),
        }
        event
    }

    /// The connection has ended. A reason that comes again is said once.
    fn lose(&mut self, now_ns: u64, why: String, report: &mut impl FnMut(&str)) {
        let effect = match self.writer.as_ref().map(Writer::policy) {
            Some(MirrorPolicy::GoOn) => "; orders go on without it",
            Some(_) => "; no order leaves without it",
            None => "",
        };
        if self.writer.is_some() && !self.primary.has_promise() {
            self.retry_at_ns = now_ns.saturating_add(PAUSE_NS);
        }
        if self.primary.has_promise() || self.ended != why {
            report(&format!("the standby's connection has ended: {why}{effect}"));
            self.ended = why;
        }
        self.losses += 1;
        self.disconnect();
    }

    fn disconnect(&mut self) {
        self.stream = None;
        self.primary.disconnected();
        // Without another queue pair the next standby is not written, and so never asked.
        let _ = self.writer.as_mut().map(Writer::disconnected);
    }

    fn exchange<M: JournalMemory>(
        &mut self,
        now_ns: u64,
        journal: &Journal<M>,
        report: &mut impl FnMut(&str),
    ) -> Result<Option<PrimaryEvent>, String> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        let mut buffer = [0; 4_096];
        match stream.read(&mut buffer) {
            Ok(0) => return Err("it was closed".to_owned()),
            Ok(len) => {
                self.heard_at_ns = now_ns;
                let received = self.primary.receive(&buffer[..len], journal);
                if received.is_err() {
                    // What it is told of the reason, as far as its socket takes it.
                    let _ = self.flush();
                }
                let last_word = received?;
                if last_word.is_some() {
                    self.part(now_ns);
                    return Ok(last_word);
                }
            }
            Err(error) if is_nothing(&error) => {
                let silence_ns = now_ns.saturating_sub(self.heard_at_ns);
                if self.primary.silence_ns_max().is_some_and(|most_ns| silence_ns >= most_ns) {
                    return Err("it is silent".to_owned());
                }
            }
            Err(error) => return Err(error.to_string()),
        }
        if let Some(writer) = &mut self.writer
            && writer.turn(&mut self.primary, journal)?
        {
            self.ended.clear();
            report("the mirror's memory is written from now on");
        }
        let attached = self.primary.poll(now_ns, journal);
        let flushed = self.flush();
        if flushed.is_err() && attached.is_some() {
            // Nobody has written it down, and it was asked for nothing.
            self.primary.dismiss();
        }
        flushed.map(|()| attached)
    }

    /// The standby has left, and nothing can take its last word back: not what it says behind it,
    /// and not a connection that takes no more.
    fn part(&mut self, now_ns: u64) {
        if self.writer.is_some() {
            self.retry_at_ns = now_ns.saturating_add(PAUSE_NS);
        }
        self.disconnect();
    }

    fn flush(&mut self) -> Result<(), String> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        if !self.primary.to_send().is_empty() {
            match stream.write(self.primary.to_send()) {
                Ok(len) => self.primary.sent(len),
                Err(error) if is_nothing(&error) => (),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// Wants the standby to take over. From now on nothing leaves for the venue, until
    /// [`StandbyLink::hand_over`] says what became of it, within 200 ms. False where none has a
    /// grant in force.
    pub fn want_hand_over(&mut self, now_ns: u64) -> bool {
        let is_there = self.primary.can_hand_over(now_ns);
        if is_there {
            self.hands_over.get_or_insert(now_ns);
        }
        is_there
    }

    /// Whether a person waits for the standby to take over.
    pub const fn hands_over(&self) -> bool {
        self.hands_over.is_some()
    }

    /// Gives up a handover that is waited for: what waits leaves.
    pub const fn give_up_hand_over(&mut self) {
        self.hands_over = None;
    }

    /// Has the standby take over, where that is wanted, as soon as it has all of `journal`: frames
    /// arrive in front of the word, WRITEs go another way and are waited for. Nothing is sent to
    /// the venue any more then: `silence` ends the line to it before the standby is told. Call it
    /// in each turn, because grants are asked for meanwhile.
    ///
    /// True where it takes over, false where it does not: its grant is over, or it has not all
    /// records within 200 ms. `None` before, and where nothing is wanted.
    pub fn hand_over<M: JournalMemory>(
        &mut self,
        now_ns: u64,
        journal: &Journal<M>,
        silence: impl FnOnce(),
    ) -> Option<bool> {
        let since_ns = self.hands_over?;
        let has_all = match self.writer {
            Some(_) => self.primary.has(journal.end()),
            None => self.primary.frame_all(journal),
        };
        let is_late = now_ns.saturating_sub(since_ns) >= HAND_OVER_NS;
        if !has_all && !is_late && self.primary.can_hand_over(now_ns) {
            return None;
        }
        self.hands_over = None;
        if !has_all || !self.primary.hand_over(now_ns) {
            return Some(false);
        }
        silence();
        // What is lost here is done at the end of the standby's promise.
        let _ = self.flush();
        Some(true)
    }

    /// The gateway ends: so does its standby.
    pub fn leave(&mut self) {
        self.primary.leave();
        // The process ends: a standby that hears nothing keeps its promise, and takes over then.
        let _ = self.flush();
    }
}

/// A standby's connection to its primary.
#[derive(Debug)]
pub struct FollowerLink<M> {
    follower: Follower<M>,
    primary: SocketAddrV4,
    secret: Option<Secret>,
    stream: Option<Box<dyn Stream>>,
    retry_at_ns: u64,
    heard_at_ns: u64,
    /// The primary has said something on this connection.
    is_heard: bool,
    /// Why the last connection ended without a word of the primary, until there is one.
    ended: String,
    buffer: Vec<u8>,
}

impl<M: JournalMemory> FollowerLink<M> {
    /// A standby of the primary at this address that is not connected. Where there is a `secret`,
    /// both ends prove it before anything else.
    pub fn new(follower: Follower<M>, primary: SocketAddrV4, secret: Option<Secret>) -> Self {
        let (stream, retry_at_ns, heard_at_ns, buffer) = (None, 0, 0, vec![0; READ_LEN]);
        let (is_heard, ended) = (false, String::new());
        Self { follower, primary, secret, stream, retry_at_ns, heard_at_ns, is_heard, ended, buffer }
    }

    /// Whether there is a connection.
    pub const fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    /// The copy and the promises.
    pub const fn follower(&self) -> &Follower<M> {
        &self.follower
    }

    /// One turn: connects where there is no connection, sends, receives. `report` gets a sentence
    /// when something happened.
    ///
    /// # Errors
    ///
    /// The copy is none of the primary's journal, or has no room for it. The primary is told that
    /// this standby leaves: it would be fenced otherwise.
    pub fn turn(&mut self, host: &dyn Host, report: &mut impl FnMut(&str)) -> Result<Option<Followed>, String> {
        if self.stream.is_none() && host.now_ns() >= self.retry_at_ns {
            self.retry_at_ns = host.now_ns().saturating_add(RETRY_NS);
            self.stream = host.connect(self.primary, WAITS).ok().map(|stream| match &self.secret {
                Some(secret) => Box::new(ProvenStream::new(stream, secret.clone(), Role::Standby)),
                None => stream,
            });
            if self.stream.is_some() {
                self.follower.connected();
                (self.heard_at_ns, self.is_heard) = (host.now_ns(), false);
                if self.ended.is_empty() {
                    report(&format!("follows {}", self.primary));
                }
            }
        }
        match self.exchange(host) {
            Ok(()) => (),
            Err(End::Copy(why)) => {
                self.leave();
                return Err(why);
            }
            Err(End::Line(error)) => self.lose(error.to_string(), host.now_ns(), report),
        }
        if self.is_heard && !self.ended.is_empty() {
            self.ended.clear();
            report(&format!("follows {}", self.primary));
        }
        Ok(self.follower.poll(host.now_ns()))
    }

    /// The connection has ended. A primary that ends each without a word does so for a reason that
    /// stays: it is dialed again after a while, and a reason that comes again is said once.
    fn lose(&mut self, why: String, now_ns: u64, report: &mut impl FnMut(&str)) {
        self.stream = None;
        if self.is_heard || self.ended != why {
            report(&format!("the connection to the primary has ended: {why}"));
        }
        if !self.is_heard {
            self.ended = why;
            self.retry_at_ns = now_ns.saturating_add(PAUSE_NS);
        }
    }

    fn exchange(&mut self, host: &dyn Host) -> Result<(), End> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        send(&mut self.follower, stream)?;
        match stream.read(&mut self.buffer) {
            Ok(0) => return Err(End::Line(io::ErrorKind::UnexpectedEof.into())),
            Ok(len) => {
                (self.heard_at_ns, self.is_heard) = (host.now_ns(), true);
                self.follower.receive(&self.buffer[..len], host.now_ns()).map_err(End::Copy)?;
            }
            // Behind a promise silence ends in a take-over. Before one, the host of the primary may
            // have started anew, and the primary waits for a standby that waits for it.
            Err(error) if is_nothing(&error) => {
                let silence_ns = host.now_ns().saturating_sub(self.heard_at_ns);
                if silence_ns >= SILENCE_NS && !self.follower.has_promised() {
                    return Err(End::Line(io::ErrorKind::TimedOut.into()));
                }
            }
            Err(error) => return Err(End::Line(error)),
        }
        send(&mut self.follower, stream)
    }

    /// The standby ends, and does not take over.
    pub fn leave(&mut self) {
        self.follower.leave();
        if let Some(stream) = &mut self.stream {
            // Where it is lost, the primary waits for a person who says `alone`.
            let _ = send(&mut self.follower, stream);
        }
    }
}

fn send<M: JournalMemory>(follower: &mut Follower<M>, stream: &mut Box<dyn Stream>) -> Result<(), End> {
    if follower.to_send().is_empty() {
        return Ok(());
    }
    match stream.write(follower.to_send()) {
        Ok(len) => follower.sent(len),
        Err(error) if is_nothing(&error) => (),
        Err(error) => return Err(End::Line(error)),
    }
    Ok(())
}

/// Why a connection ended.
enum End {
    Line(io::Error),
    Copy(String),
}

/// Follows the primary at `address` until this process must take over, or end. `stop` ends it. Both
/// ends have the same `secret`, or none.
///
/// # Errors
///
/// The copy is none of the primary's journal, or has no room for it.
pub fn follow(
    address: SocketAddrV4,
    memory: MappedFile,
    secret: Option<Secret>,
    stop: impl Fn() -> bool,
    mut report: impl FnMut(&str),
) -> Result<Followed, String> {
    let standby = name(&memory).map_err(|error| error.to_string())?;
    let mut link = FollowerLink::new(Follower::new(standby, memory)?, address, secret);
    let kernel = Kernel::start();
    loop {
        if let Some(followed) = link.turn(&kernel, &mut report)? {
            return Ok(followed);
        }
        if stop() {
            link.leave();
            return Ok(Followed::Ended);
        }
        if !link.is_connected() {
            thread::sleep(RETRY);
        }
    }
}

/// The name of a copy: its file on its machine. The file is locked, so a process with the same name
/// proves that the one before it has ended.
pub(super) fn name(memory: &MappedFile) -> io::Result<u64> {
    let file = memory.file()?.metadata()?;
    let mut hasher = DefaultHasher::new();
    // A machine without an id has the same as all others without one, but hardly the same inode.
    std::fs::read_to_string("/etc/machine-id").unwrap_or_default().hash(&mut hasher);
    (file.dev(), file.ino()).hash(&mut hasher);
    Ok(hasher.finish().max(1))
}
