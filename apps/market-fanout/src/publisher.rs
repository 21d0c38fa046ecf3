//! The publisher: sends batches of a ring, keeps each until the broker has acknowledged it, and for
//! some time after that.
//!
//! A broker that is killed may lose what it has acknowledged last, because it writes its files to
//! the disk late. So the newest acknowledged batches are sent again after an outage too; consumers
//! leave out what they have had.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, io, thread};

use market_ring::RingReader;

use crate::batch::Batch;
use crate::quotes::LatestQuote;
use crate::source::{Policy, Source, SourceCounts, Stopped, Turn};

/// The longest wait after a message that the broker refused: all that is kept is sent again then,
/// which are many mebibytes for one that has no room.
const REFUSED_RETRY_MAX: Duration = Duration::from_secs(10);

/// A broker, as a publisher finds it.
pub trait Broker: Clone + Send + 'static {
    /// A connection to it.
    type Link: Link + Send + 'static;
    /// What to do about a broker that takes nothing.
    const HINT: &str;

    /// Connects, and sees that what messages go to is there. Called on a thread of its own; a
    /// broker that does not answer may take some seconds.
    ///
    /// # Errors
    /// Why not. It is tried again.
    fn connect(&self) -> io::Result<Self::Link>;
}

/// A connection to a broker. No call waits for the broker.
pub trait Link {
    /// Whether it takes more now: what waits as a batch or a quote is kept once, and the quote may
    /// be replaced by a later one.
    fn has_room(&self) -> bool;

    /// Queues a batch; it is acknowledged by its number.
    fn send_batch(&mut self, number: u64, batch: &Batch);

    /// Queues a quote.
    fn send_quote(&mut self, quote: &LatestQuote);

    /// Sends what is queued, as far as the broker takes it, and shows what it has acknowledged.
    ///
    /// # Errors
    /// The connection has ended, or the broker refuses a message, which ends it too.
    fn exchange(&mut self, acknowledged: impl FnMut(Acknowledged)) -> Result<(), LinkError>;
}

/// What a broker has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    /// A batch.
    Batch {
        /// Its number.
        number: u64,
        /// The broker had it already.
        is_duplicate: bool,
    },
    /// So many quotes.
    Quotes(u64),
}

/// Why a connection has ended.
#[derive(Debug)]
pub enum LinkError {
    /// It is connected again at once.
    Down(io::Error),
    /// The broker does not take a message: it is connected again after twice as long each time.
    Refused(io::Error),
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        Self::Down(error)
    }
}

/// How a publisher works.
#[derive(Clone, Debug)]
pub struct PublisherConfig {
    /// By default [`Policy::Skip`].
    pub policy: Policy,
    /// Records of a batch; a batch also ends when the ring is empty. By default 256: 32 KiB.
    pub batch_records: usize,
    /// Batches that may wait for their acknowledgment: while there are more, the ring is not read.
    /// By default 4,096: 128 MiB, a million records.
    pub unacknowledged_max: usize,
    /// Acknowledged batches that are sent again after an outage. By default 256: 8 MiB.
    pub kept: usize,
    /// Time between rounds of quotes. By default 100 ms.
    pub quotes_every: Duration,
    /// Time between attempts to reach the broker. By default 100 ms.
    pub retry_every: Duration,
    /// A connection by which no batch is acknowledged for so long, although some wait, is made
    /// anew; so long a publisher that ends by its policy waits for its last acknowledgments. By
    /// default 10 s.
    pub patience: Duration,
}

impl Default for PublisherConfig {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            batch_records: 256,
            unacknowledged_max: 4_096,
            kept: 256,
            quotes_every: Duration::from_millis(100),
            retry_every: Duration::from_millis(100),
            patience: Duration::from_secs(10),
        }
    }
}

/// What a publisher has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublisherCounts {
    /// Records read from the ring.
    pub records: u64,
    /// Records that the ring had overwritten.
    pub missed: u64,
    /// Batches made.
    pub batches: u64,
    /// Of these, acknowledged.
    pub acknowledged: u64,
    /// Batches that the broker had already.
    pub duplicates: u64,
    /// Quotes sent.
    pub quotes: u64,
    /// Connections made; all but the first are after an outage.
    pub connections: u64,
}

impl fmt::Display for PublisherCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, missed, batches, acknowledged, duplicates, quotes, connections } = self;
        write!(f, "{records} records in {batches} batches, {missed} missed; {acknowledged} batches acknowledged, ")?;
        write!(f, "{duplicates} repeated; {quotes} quotes; {connections} connections")
    }
}

/// Publishes a ring to a broker: it sends batches, and keeps each until it is acknowledged.
pub struct Publisher<B: Broker> {
    broker: B,
    config: PublisherConfig,
    source: Source,
    /// Oldest first; the first has the number `first`.
    batches: VecDeque<Batch>,
    first: u64,
    /// The next batch to be sent.
    next: u64,
    /// Quotes without an answer.
    quotes_waiting: u64,
    quotes_at: Instant,
    /// When all quotes are sent once more: a broker may store late what the connection before has
    /// sent, and an old quote must not be an instrument's last.
    quotes_again_at: Option<Instant>,
    link: Option<B::Link>,
    /// Where the thread that connects puts the connection.
    opening: Option<Receiver<io::Result<B::Link>>>,
    retry_at: Instant,
    /// Connections in a row that ended because the broker refused a message.
    refusals: u32,
    why_down: Option<String>,
    silence: Silence,
    /// Of quotes: these have no numbers, so that of their acknowledgments stands for the oldest.
    quotes_silence: Silence,
    counts: PublisherCounts,
}

impl<B: Broker> Publisher<B> {
    /// A publisher of what is in the ring and of what comes. Connects from its first turn on.
    pub fn new(broker: B, config: PublisherConfig, ring: RingReader) -> Self {
        let now = Instant::now();
        Self {
            broker,
            source: Source::new(ring, config.policy, config.batch_records),
            config,
            batches: VecDeque::new(),
            first: 0,
            next: 0,
            quotes_waiting: 0,
            quotes_at: now,
            quotes_again_at: None,
            link: None,
            opening: None,
            retry_at: now,
            refusals: 0,
            why_down: None,
            silence: Silence { oldest: 0, since: now },
            quotes_silence: Silence { oldest: 0, since: now },
            counts: PublisherCounts::default(),
        }
    }

    /// What it has done.
    pub fn counts(&self) -> PublisherCounts {
        let SourceCounts { records, missed, batches } = self.source.counts;
        PublisherCounts { records, missed, batches, ..self.counts }
    }

    /// The number of the ring's stream: the next ring has another.
    pub fn session(&self) -> u64 {
        self.source.session()
    }

    /// Why there is no connection, where there is none.
    pub fn why_down(&self) -> Option<&str> {
        self.why_down.as_deref()
    }

    /// Goes on with the next ring, after [`Turn::Ended`]: the feed's process was started again, and
    /// numbers begin anew. Nothing of the old one is sent again.
    pub fn follow(&mut self, ring: RingReader) {
        self.source.follow(ring);
        self.first += self.batches.len() as u64;
        self.next = self.first;
        self.batches.clear();
    }

    /// Sends what was read, and takes acknowledgments, but reads no more of the ring. Returns
    /// whether all is acknowledged.
    pub fn flush(&mut self) -> bool {
        let is_done = self.send();
        is_done || self.waiting() == 0 && self.quotes_waiting == 0
    }

    /// Reads, sends, and takes acknowledgments. An outage is no error: it is tried again.
    ///
    /// # Errors
    /// The ring has overtaken the publisher, and its policy is to end then.
    pub fn turn(&mut self) -> Result<Turn, Stopped> {
        let has_read = self.waiting() < self.config.unacknowledged_max && self.source.read();
        while let Some(batch) = self.source.next_batch() {
            self.batches.push_back(batch.published_at(utc_ns()));
        }
        let is_done = self.send();
        if let Some(overrun) = self.source.overrun
            && (is_done || self.source.silence() >= self.config.patience)
        {
            let first = self.first_unacknowledged().map_or(overrun.first, |first| first.min(overrun.first));
            return Err(Stopped { first, ..overrun });
        }
        Ok(match self.source.end.filter(|_| is_done) {
            Some(end) => end,
            None if has_read => Turn::Busy,
            None => Turn::Idle,
        })
    }

    /// Sends, and takes acknowledgments. Returns whether all is acknowledged by this connection.
    fn send(&mut self) -> bool {
        // The turn that connects has sent nothing yet.
        let was_connected = self.link.is_some();
        if let Err(error) = self.exchange() {
            self.fail(error);
        }
        let are_acknowledged = self.quotes_waiting == 0 && self.waiting() == 0;
        let is_done = are_acknowledged && was_connected && self.link.is_some();
        if is_done {
            self.refusals = 0;
        }
        is_done
    }

    /// Batches without an acknowledgment.
    pub fn waiting(&self) -> usize {
        self.batches.iter().filter(|batch| !batch.is_acknowledged).count()
    }

    fn first_unacknowledged(&self) -> Option<u64> {
        self.batches.iter().filter(|batch| !batch.is_acknowledged).map(|batch| batch.first).min()
    }

    fn exchange(&mut self) -> Result<(), LinkError> {
        let Some(link) = &mut self.link else { return self.connect() };
        while self.next < self.first + self.batches.len() as u64 && link.has_room() {
            link.send_batch(self.next, &self.batches[(self.next - self.first) as usize]);
            self.next += 1;
        }
        let now = Instant::now();
        // What waits longer is replaced by what is the latest then.
        if (now >= self.quotes_at || self.source.end.is_some()) && link.has_room() {
            self.quotes_at = now + self.config.quotes_every;
            self.source.read_quotes();
            if self.quotes_again_at.take_if(|at| *at <= now).is_some() {
                self.source.quotes.forget();
            }
            let sent = self.source.quotes.send(|quote| link.send_quote(quote));
            self.counts.quotes += sent;
            self.quotes_waiting += sent;
        }
        let (first, batches, counts) = (self.first, &mut self.batches, &mut self.counts);
        let waiting = &mut self.quotes_waiting;
        link.exchange(|acknowledged| match acknowledged {
            Acknowledged::Batch { number, is_duplicate } => acknowledge(number, is_duplicate, first, batches, counts),
            Acknowledged::Quotes(count) => *waiting = waiting.saturating_sub(count),
        })?;
        self.forget_oldest();
        self.look_for_silence(now).map_err(LinkError::Down)
    }

    /// An error where the broker has acknowledged nothing for too long: what waits is sent again by
    /// another connection.
    fn look_for_silence(&mut self, now: Instant) -> io::Result<()> {
        let unacknowledged = |what| Err(io::Error::other(format!("the broker acknowledges {what}; {}", B::HINT)));
        let idx = self.batches.iter().position(|batch| !batch.is_acknowledged);
        let oldest = idx.map(|idx| self.first + idx as u64).filter(|number| *number < self.next);
        if self.silence.of(oldest, now) > self.config.patience {
            return unacknowledged("no batch, or leaves one out");
        }
        let answered = (self.quotes_waiting > 0).then_some(self.counts.quotes - self.quotes_waiting);
        if self.quotes_silence.of(answered, now) > self.config.patience {
            return unacknowledged("no quote");
        }
        Ok(())
    }

    /// Drops acknowledged batches beyond those that are kept.
    fn forget_oldest(&mut self) {
        let is_dropped = |batch: &Batch| batch.is_acknowledged;
        // Not those that are still to be sent again: the broker may have lost them.
        while self.batches.len() > self.config.kept
            && self.first < self.next
            && self.batches.front().is_some_and(is_dropped)
        {
            self.batches.pop_front();
            self.first += 1;
        }
    }

    /// Connects on a thread of its own: meanwhile the ring is read.
    fn connect(&mut self) -> Result<(), LinkError> {
        let Some(opening) = &self.opening else { return Ok(self.begin_to_connect()?) };
        let link = match opening.try_recv() {
            Err(TryRecvError::Empty) => return Ok(()),
            Err(TryRecvError::Disconnected) => Err(io::Error::other("the thread that connects has panicked")),
            Ok(opened) => opened,
        };
        self.opening = None;
        self.take_link(link?);
        Ok(())
    }

    fn begin_to_connect(&mut self) -> io::Result<()> {
        if Instant::now() < self.retry_at {
            return Ok(());
        }
        let (sender, opening) = mpsc::channel();
        let broker = self.broker.clone();
        let connect = move || {
            // A publisher that has ended takes no connection.
            let _ = sender.send(broker.connect());
        };
        thread::Builder::new().name("broker-connect".into()).spawn(connect)?;
        self.opening = Some(opening);
        Ok(())
    }

    fn take_link(&mut self, link: B::Link) {
        // All that is kept, in its order; the broker drops what it has.
        self.next = self.first;
        self.source.quotes.forget();
        self.quotes_waiting = 0;
        self.quotes_at = Instant::now();
        self.quotes_again_at = (self.counts.connections > 0).then(|| self.quotes_at + self.config.patience);
        (self.silence.since, self.quotes_silence.since) = (Instant::now(), Instant::now());
        self.counts.connections += 1;
        (self.link, self.why_down) = (Some(link), None);
    }

    fn fail(&mut self, error: LinkError) {
        let (why, is_refusal) = match error {
            LinkError::Down(why) => (why, false),
            LinkError::Refused(why) => (why, true),
        };
        self.refusals += u32::from(is_refusal);
        (self.link, self.why_down) = (None, Some(why.to_string()));
        self.retry_at = Instant::now() + retry_wait(self.config.retry_every, self.refusals);
    }
}

/// The time since 1970. One clock for all publishers of a machine, which consumers compare with
/// theirs.
fn utc_ns() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// How long to wait after so many refusals in a row: twice as long after each.
fn retry_wait(every: Duration, refusals: u32) -> Duration {
    every.saturating_mul(2_u32.saturating_pow(refusals)).min(REFUSED_RETRY_MAX.max(every))
}

/// How long the oldest batch that was sent has had no acknowledgment. Those of later batches say
/// nothing of it: one that was lost on its way to the stream's server would keep its place, and all
/// behind it theirs, for as long as others arrive.
struct Silence {
    oldest: u64,
    since: Instant,
}

impl Silence {
    fn of(&mut self, oldest: Option<u64>, now: Instant) -> Duration {
        match oldest {
            Some(number) if number == self.oldest => now.duration_since(self.since),
            other => {
                (self.oldest, self.since) = (other.unwrap_or(self.oldest), now);
                Duration::ZERO
            }
        }
    }
}

/// Marks the batch of an acknowledgment.
fn acknowledge(
    number: u64,
    is_duplicate: bool,
    first: u64,
    batches: &mut VecDeque<Batch>,
    counts: &mut PublisherCounts,
) {
    let idx = number.checked_sub(first).and_then(|idx| usize::try_from(idx).ok());
    let Some(batch) = idx.and_then(|idx| batches.get_mut(idx)) else { return };
    counts.duplicates += u64::from(is_duplicate);
    if !core::mem::replace(&mut batch.is_acknowledged, true) {
        counts.acknowledged += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_doubles_with_each_refusal_to_ten_seconds() {
        let waits = [0, 1, 4, 7, 40].map(|refusals| retry_wait(Duration::from_millis(100), refusals).as_millis());
        assert_eq!(waits, [100, 200, 1_600, 10_000, 10_000]);
        assert_eq!(retry_wait(Duration::from_secs(60), 3), Duration::from_secs(60));
    }

    #[test]
    fn batch_that_is_left_out_is_silence_while_later_ones_are_acknowledged() {
        let start = Instant::now();
        let mut silence = Silence { oldest: 0, since: start };
        let mut at = |seconds, oldest| silence.of(oldest, start + Duration::from_secs(seconds)).as_secs();
        assert_eq!([at(1, Some(7)), at(2, Some(8)), at(3, None), at(4, Some(9))], [0; 4]);
        assert_eq!([at(6, Some(9)), at(9, Some(9)), at(10, Some(10))], [2, 5, 0]);
    }
}
