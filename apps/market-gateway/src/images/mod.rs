//! Images of one instrument for who joins late: its price levels (L2), or its resting orders (L3),
//! as of one sequence of the ring. A thread reads the ring as any process does and builds books of
//! its own, so that no request reaches the worker.
//!
//! ```text
//!   worker ─▶ ring ─▶ RingBooks, behind record SEQ - 1 ─▶ image ─ Unix socket ─▶ late joiner
//!               └──────────────── records from SEQ on ──────────────────────────────▲
//! ```
//!
//! A request is a line: `l2` or `l3`, the sequence of the record that the caller will read next,
//! the channel or `-`, and the instrument, which may have blanks in it: `l3 1042 - AAPL`. The
//! answer is a line and then records of 120 bytes, as [`Record::to_bytes`] has them:
//!
//! ```text
//!   image SESSION SEQ CHANNEL COUNT      the records behind it, of the ring from SEQ on, continue it
//!   refused: ...                         a sentence for people
//! ```
//!
//! An image is never older than what its caller asks with: the thread reads on to that record
//! first. So open the ring, ask with [`RingReader::next_seq`], leave out the records of the
//! instrument below SEQ, and apply those from it on.

mod books;

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use market::{Capacity, Symbol};
use market_ring::{Record, RingReader};
use wirepath::worker::affinity::spawn_helper;

use self::books::RingBooks;

/// Callers at once; others wait.
const CALLERS: usize = 16;
/// How long a caller may take to ask, and as long again to read.
const CALL_TIME: Duration = Duration::from_secs(2);
/// Bytes of a request, with the end of its line.
const LINE_MAX: usize = 64;
/// Records between two looks for callers. While there are more to read, no image is made, so that
/// callers do not make the thread miss records.
const RECORDS_PER_LOOK: usize = 4_096;
/// The pause where the ring has nothing new.
const IDLE: Duration = Duration::from_micros(200);

/// What an image has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Price levels, as `Depth` events with the action snapshot, the best first: the bids, then the
    /// offers. Their positions count up to 255 and stay there.
    Levels,
    /// Resting orders, as `Add` events, by their references: the ring does not tell their priority.
    Orders,
}

/// A request for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRequest {
    /// What it has.
    pub depth: Depth,
    /// The ring's sequence that the image must have reached.
    pub from: u64,
    /// The only channel that is meant, where several bring the instrument.
    pub channel: Option<u16>,
    /// The instrument.
    pub symbol: Symbol,
}

impl FromStr for ImageRequest {
    type Err = &'static str;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "say l2 or l3, the record to begin with, a channel or -, and the instrument: l3 1042 - AAPL";
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().ok_or(FORM);
        let depth = match word()? {
            "l2" => Depth::Levels,
            "l3" => Depth::Orders,
            _ => return Err(FORM),
        };
        let from = word()?.parse().map_err(|_| FORM)?;
        let channel = match word()? {
            "-" => None,
            number => Some(number.parse().map_err(|_| FORM)?),
        };
        let symbol = symbol(word()?).ok_or(FORM)?;
        Ok(Self { depth, from, channel, symbol })
    }
}

/// An instrument by its name, or by `#` and its number.
fn symbol(text: &str) -> Option<Symbol> {
    match text.strip_prefix('#') {
        Some(number) => number.parse().ok().map(Symbol::from_number),
        None => Symbol::new(text),
    }
}

/// An image.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// The ring's session.
    pub session: u64,
    /// The first record that is not in it.
    pub seq: u64,
    /// The instrument's channel.
    pub channel: u16,
    /// What it has.
    pub records: Vec<Record>,
}

impl Image {
    fn to_bytes(&self) -> Vec<u8> {
        let Self { session, seq, channel, records } = self;
        let mut bytes = format!("image {session} {seq} {channel} {}\n", records.len()).into_bytes();
        records.iter().for_each(|record| bytes.extend_from_slice(&record.to_bytes()));
        bytes
    }
}

/// The thread that gives images. Dropping it ends the thread and removes the socket.
#[derive(Debug)]
pub struct ImageServer {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    socket: PathBuf,
}

impl ImageServer {
    /// Listens at `socket` for who wants images out of the ring at `ring`, which has been made and
    /// has no record yet. Its books of a channel have room for `capacity`. `say` is told where the
    /// thread ends by itself, which it does by a defect alone.
    ///
    /// # Errors
    ///
    /// The ring cannot be opened, or the socket cannot be made.
    pub fn start(
        ring: &Path,
        socket: &Path,
        capacity: Capacity,
        say: impl FnOnce(&str) + Send + 'static,
    ) -> io::Result<Self> {
        let books = RingBooks::new(RingReader::open(ring).map_err(io::Error::other)?, capacity);
        let mut server = Server { books, listener: bind(socket)?, callers: Vec::new() };
        let is_ended = Arc::new(AtomicBool::new(false));
        let watched = Watched { is_ended: Arc::clone(&is_ended), say: Some(say) };
        let serve = move || {
            while !watched.is_ended.load(Ordering::Relaxed) {
                if !server.look(Instant::now()) {
                    thread::sleep(IDLE);
                }
            }
        };
        let thread = spawn_helper(thread::Builder::new().name("images".into()), serve)?;
        Ok(Self { is_ended, thread: Some(thread), socket: socket.to_owned() })
    }
}

impl Drop for ImageServer {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        // One that has panicked has said so.
        self.thread.take().map(JoinHandle::join);
        let _ = fs::remove_file(&self.socket);
    }
}

/// Tells that the thread has ended unasked.
struct Watched<F: FnOnce(&str)> {
    is_ended: Arc<AtomicBool>,
    say: Option<F>,
}

impl<F: FnOnce(&str)> Drop for Watched<F> {
    fn drop(&mut self) {
        if let Some(say) = self.say.take().filter(|_| !self.is_ended.load(Ordering::Relaxed)) {
            say("the thread `images` has ended: no image is given any more; the ring goes on");
        }
    }
}

/// A socket at which the user who runs the gateway, and root, may ask. Another user who connects
/// before it has its mode learns what the ring has for everyone. The socket of a gateway that has
/// ended is replaced; that of one that runs, and any other file, is not.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => (),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "a file that is no socket has this name"));
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            Err(error) => return Err(error),
            Ok(_) => return Err(io::Error::new(ErrorKind::AddrInUse, "another gateway gives images there")),
        },
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What the thread has.
struct Server {
    books: RingBooks,
    listener: UnixListener,
    callers: Vec<Caller>,
}

impl Server {
    /// Reads records, and serves each caller as far as it goes without waiting. `false` where there
    /// was no record.
    fn look(&mut self, now: Instant) -> bool {
        let count = self.books.read(RECORDS_PER_LOOK);
        while self.callers.len() < CALLERS
            && let Ok((stream, _)) = self.listener.accept()
        {
            self.callers.extend(Caller::new(stream, now));
        }
        let mut may_make = self.books.behind() < RECORDS_PER_LOOK as u64;
        self.callers.retain_mut(|caller| caller.turn(&self.books, now, &mut may_make));
        count > 0
    }
}

/// Somebody who asks.
struct Caller {
    stream: UnixStream,
    since: Instant,
    line: Vec<u8>,
    /// What it is told, and how much of that it has.
    answer: Option<(Vec<u8>, usize)>,
}

impl Caller {
    fn new(stream: UnixStream, since: Instant) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        Some(Self { stream, since, line: Vec::new(), answer: None })
    }

    /// `false` where there is nothing more to say. Only one caller of a look may have an image
    /// made.
    fn turn(&mut self, books: &RingBooks, now: Instant, may_make: &mut bool) -> bool {
        let is_late = now.saturating_duration_since(self.since) > CALL_TIME;
        if self.answer.is_none() {
            if !self.hear() {
                return false;
            }
            self.answer = answer(&self.line, books, is_late, may_make).map(|bytes| (bytes, 0));
            self.since = if self.answer.is_some() { now } else { self.since };
        }
        self.tell() && !is_late
    }

    /// Reads more of the line, where it is not whole. `false`: it never will be.
    fn hear(&mut self) -> bool {
        if self.line.contains(&b'\n') {
            return true;
        }
        let mut bytes = [0; LINE_MAX];
        match self.stream.read(&mut bytes) {
            Ok(len) => {
                self.line.extend_from_slice(&bytes[..len]);
                len > 0
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Writes what finds room. `false`: it has all, or is gone.
    fn tell(&mut self) -> bool {
        let Some((bytes, written)) = &mut self.answer else { return true };
        match self.stream.write(&bytes[*written..]) {
            Ok(len) => *written += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => (),
            Err(_) => return false,
        }
        *written < bytes.len()
    }
}

/// The answer to a line, once it is whole and the books have reached what it asks for.
fn answer(line: &[u8], books: &RingBooks, is_late: bool, may_make: &mut bool) -> Option<Vec<u8>> {
    let refused = |why: &dyn Display| Some(format!("refused: {why}\n").into_bytes());
    let end = match line.iter().take(LINE_MAX).position(|byte| *byte == b'\n') {
        Some(end) => end,
        None if line.len() < LINE_MAX => return None,
        None => return refused(&"a request is one short line"),
    };
    let request = match str::from_utf8(&line[..end]).unwrap_or_default().parse::<ImageRequest>() {
        Ok(request) => request,
        Err(why) => return refused(&why),
    };
    if request.from > books.next_seq() {
        return if is_late { refused(&format_args!("record {} has not come", request.from)) } else { None };
    }
    if !core::mem::take(may_make) {
        return None;
    }
    match books.image(&request) {
        Ok(image) => Some(image.to_bytes()),
        Err(why) => refused(&why),
    }
}

#[cfg(test)]
mod tests;
