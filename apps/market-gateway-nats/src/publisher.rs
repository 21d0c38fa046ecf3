//! The publisher: reads the ring, sends batches, keeps each until the broker has acknowledged it,
//! and for some time after that.
//!
//! A broker that is killed may lose what it has acknowledged last, because it writes its files to
//! the disk late. So the newest acknowledged batches are sent again after an outage too; the broker
//! drops those that it has by their message ids.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use market_ring::{Read, Record, RingReader};
use serde_json::Value;

use crate::batch::{Batch, OpenBatch};
use crate::config::{Policy, PublisherConfig};
use crate::connection::{Connection, Inbox, NumberedInbox};
use crate::quotes::Quotes;
use crate::stream;
use crate::wire::ServerMessage;

/// Records that a turn reads at most.
const RECORDS_PER_TURN: usize = 16_384;
/// Bytes that wait for a broker that does not take them: beyond, batches and quotes wait as such.
const QUEUED_MAX: usize = 1 << 20;
/// The longest wait after a message that JetStream refused: all that is kept is sent again then,
/// which are many mebibytes for a stream that has no room.
const REFUSED_RETRY_MAX: Duration = Duration::from_secs(10);
/// A ring in which nothing comes for so long is asked whether its writer lives, a system call.
const IDLE_MAX: Duration = Duration::from_millis(100);

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

/// What a turn was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There may be more to do at once.
    Busy,
    /// Nothing came: a caller may sleep for a moment.
    Idle,
    /// The ring's writer has ended, and all is acknowledged. The next ring of the name is another
    /// file: [`Publisher::follow`].
    Ended,
    /// The same, but the writer was killed.
    WriterGone,
}

/// The publisher ended by its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The first record that the broker has not acknowledged: a consumer resumes here from a
    /// recording.
    pub first: u64,
    /// The last that the ring had overwritten.
    pub last: u64,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        write!(f, "the ring has overwritten records to {last}: resume at {first} from a recording")
    }
}

impl core::error::Error for Stopped {}

/// A connection, and where the broker acknowledges batches, by their numbers, and quotes.
struct Link {
    connection: Connection,
    batches: NumberedInbox,
    quotes: Inbox,
}

impl Link {
    /// Connects, and makes the streams; a broker that does not answer takes some seconds.
    fn open(config: &PublisherConfig) -> io::Result<Self> {
        let mut connection = Connection::open(&config.server)?;
        stream::create(&mut connection, &config.stream, &config.venue, config.stream_bytes_max)?;
        let (batches, quotes) = (connection.open_numbered_inbox(), connection.open_inbox());
        Ok(Self { connection, batches, quotes })
    }
}

/// See the [module's text](crate).
pub struct Publisher {
    config: PublisherConfig,
    ring: RingReader,
    channels: BTreeMap<u16, OpenBatch>,
    /// The number that follows the last record read; all from `read_from` on were read.
    read_until: u64,
    read_from: u64,
    /// Records that the ring had overwritten, where the policy is to end then.
    overrun: Option<Stopped>,
    read_at: Instant,
    /// Oldest first; the first has the number `first`.
    batches: VecDeque<Batch>,
    first: u64,
    /// The next batch to be sent.
    next: u64,
    quotes: Quotes,
    /// Quotes without an answer.
    quotes_waiting: u64,
    quotes_at: Instant,
    link: Option<Link>,
    /// Where the thread that connects puts the connection.
    opening: Option<Receiver<io::Result<Link>>>,
    retry_at: Instant,
    /// Connections in a row that ended because JetStream refused a message.
    refusals: u32,
    why_down: Option<String>,
    /// How the ring has ended.
    end: Option<Turn>,
    silence: Silence,
    /// Of quotes: these have no numbers, so that of their acknowledgments stands for the oldest.
    quotes_silence: Silence,
    counts: PublisherCounts,
}

impl Publisher {
    /// A publisher of what is in the ring and of what comes. Connects from its first turn on.
    pub fn new(config: PublisherConfig, mut ring: RingReader) -> Self {
        ring.rewind();
        let (now, next) = (Instant::now(), ring.next_seq());
        Self {
            config,
            ring,
            channels: BTreeMap::new(),
            read_until: next,
            read_from: next,
            overrun: None,
            read_at: now,
            batches: VecDeque::new(),
            first: 0,
            next: 0,
            quotes: Quotes::default(),
            quotes_waiting: 0,
            quotes_at: now,
            link: None,
            opening: None,
            retry_at: now,
            refusals: 0,
            why_down: None,
            end: None,
            silence: Silence { oldest: 0, since: now },
            quotes_silence: Silence { oldest: 0, since: now },
            counts: PublisherCounts::default(),
        }
    }

    /// What it has done.
    pub fn counts(&self) -> &PublisherCounts {
        &self.counts
    }

    /// The number of the ring's stream: the next ring has another.
    pub fn session(&self) -> u64 {
        self.ring.session()
    }

    /// Why there is no connection, where there is none.
    pub fn why_down(&self) -> Option<&str> {
        self.why_down.as_deref()
    }

    /// Goes on with the next ring, after [`Turn::Ended`]: the feed's process was started again, and
    /// numbers begin anew. Nothing of the old one is sent again.
    pub fn follow(&mut self, mut ring: RingReader) {
        ring.rewind();
        (self.read_from, self.read_until) = (ring.next_seq(), ring.next_seq());
        self.channels.clear();
        self.first += self.batches.len() as u64;
        self.next = self.first;
        self.batches.clear();
        (self.ring, self.end, self.read_at) = (ring, None, Instant::now());
    }

    /// Sends what was read, and takes acknowledgments, but reads no more of the ring. Returns
    /// whether all is acknowledged.
    pub fn flush(&mut self) -> bool {
        let is_done = self.send();
        is_done || self.waiting() == 0 && self.quotes_waiting == 0
    }

    /// Reads, sends, and takes acknowledgments. An outage is no error: it is tried again.
    pub fn turn(&mut self) -> Result<Turn, Stopped> {
        let has_read = match self.config.policy {
            _ if self.overrun.is_some() || self.end.is_some() => false,
            Policy::Conflate => self.look_for_end(),
            _ => self.read_ring(),
        };
        let is_done = self.send();
        if let Some(overrun) = self.overrun
            && (is_done || self.read_at.elapsed() >= self.config.patience)
        {
            let first = self.first_unacknowledged().map_or(overrun.first, |first| first.min(overrun.first));
            return Err(Stopped { first, ..overrun });
        }
        Ok(match self.end.filter(|_| is_done) {
            Some(end) => end,
            None if has_read => Turn::Busy,
            None => Turn::Idle,
        })
    }

    /// Sends, and takes acknowledgments. Returns whether all is acknowledged by this connection.
    fn send(&mut self) -> bool {
        // The turn that connects has sent nothing yet.
        let was_connected = self.link.is_some();
        match self.exchange() {
            Ok(()) => (),
            Err(error) => self.fail(&error),
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

    /// Reads over the records, because a reader that is not interested in them meets the ring's end
    /// behind them.
    fn look_for_end(&mut self) -> bool {
        loop {
            match self.ring.read() {
                Read::Closed => break self.end_ring(Turn::Ended),
                Read::Empty => break self.end_ring_where_its_writer_is_gone(),
                _ => self.read_at = Instant::now(),
            }
        }
        false
    }

    /// Whether anything was read.
    fn read_ring(&mut self) -> bool {
        if self.waiting() >= self.config.unacknowledged_max {
            return false;
        }
        for idx in 0..RECORDS_PER_TURN {
            match self.ring.read() {
                Read::Record { seq, record } => self.take(seq, &record),
                // The first batch of each channel says where it begins.
                Read::Joined { .. } => {}
                Read::Overrun { first, last } => {
                    self.skip(first, last);
                    if self.config.policy == Policy::Disconnect {
                        self.close_all();
                        (self.overrun, self.read_at) = (Some(Stopped { first, last }), Instant::now());
                        return true;
                    }
                }
                Read::Unknown { seq } => self.skip(seq, seq),
                end @ (Read::Empty | Read::Closed) => {
                    self.close_all();
                    match end {
                        Read::Closed => self.end_ring(Turn::Ended),
                        _ if idx > 0 => self.read_at = Instant::now(),
                        _ => self.end_ring_where_its_writer_is_gone(),
                    }
                    return idx > 0;
                }
            }
        }
        // A quiet channel's records wait for no other channel to be quiet.
        self.close_all();
        self.read_at = Instant::now();
        true
    }

    /// The quotes of a ring that is written no more say nothing about the market.
    fn end_ring(&mut self, end: Turn) {
        self.quotes.read(&mut self.ring, &self.config.venue);
        self.quotes.mark_stale();
        self.close_session();
        self.end = Some(end);
    }

    /// Says of each channel that nothing follows: a consumer of the next session that has not had
    /// this misses the end of the last one.
    fn close_session(&mut self) {
        self.close_all();
        let (session, until) = (self.ring.session(), self.read_until);
        for (_, filling) in core::mem::take(&mut self.channels) {
            self.counts.batches += 1;
            self.batches.push_back(filling.end(&self.config.venue, session, until));
        }
    }

    /// A writer that was killed closes no ring. What it had written was read: the ring is empty.
    fn end_ring_where_its_writer_is_gone(&mut self) {
        if self.read_at.elapsed() < IDLE_MAX {
            return;
        }
        self.read_at = Instant::now();
        // A ring that cannot be asked is read on.
        if self.ring.is_writer_gone().unwrap_or(false) && self.ring.behind() == 0 {
            self.end_ring(Turn::WriterGone);
        }
    }

    fn take(&mut self, seq: u64, record: &Record) {
        self.counts.records += 1;
        self.read_until = seq + 1;
        let (channel, from) = (record.channel, self.read_from);
        let filling = self.channels.entry(channel).or_insert_with(|| OpenBatch::new(channel, from));
        filling.push(seq, record);
        if filling.records() >= self.config.batch_records {
            self.close(channel);
        }
    }

    fn skip(&mut self, first: u64, last: u64) {
        self.close_all();
        self.counts.missed += last - first + 1;
        (self.read_from, self.read_until) = (last + 1, last + 1);
        self.channels.values_mut().for_each(|filling| filling.skip_to(last + 1));
    }

    fn close_all(&mut self) {
        let channels: Vec<u16> = self.channels.keys().copied().collect();
        channels.into_iter().for_each(|channel| self.close(channel));
    }

    fn close(&mut self, channel: u16) {
        let (session, until) = (self.ring.session(), self.read_until);
        let filling = self.channels.get_mut(&channel);
        if let Some(batch) = filling.and_then(|filling| filling.take(&self.config.venue, session, until)) {
            self.counts.batches += 1;
            self.batches.push_back(batch);
        }
    }

    fn exchange(&mut self) -> io::Result<()> {
        let Some(Link { connection, batches: inbox, quotes }) = &mut self.link else { return self.connect() };
        while self.next < self.first + self.batches.len() as u64 && connection.queued() < QUEUED_MAX {
            let batch = &self.batches[(self.next - self.first) as usize];
            let headers: Vec<(&str, &str)> =
                batch.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            connection.publish(&batch.subject, &inbox.subject(self.next), &headers, &batch.payload);
            self.next += 1;
        }
        let now = Instant::now();
        // What waits longer is replaced by what is the latest then.
        if (now >= self.quotes_at || self.end.is_some()) && connection.queued() < QUEUED_MAX {
            self.quotes_at = now + self.config.quotes_every;
            if self.end.is_none() {
                self.quotes.read(&mut self.ring, &self.config.venue);
            }
            let sent = self.quotes.send(connection, &quotes.subject);
            self.counts.quotes += sent;
            self.quotes_waiting += sent;
        }
        connection.write_queued_some()?;
        let (first, batches, counts) = (self.first, &mut self.batches, &mut self.counts);
        let waiting = &mut self.quotes_waiting;
        let mut refused = Ok(());
        connection.poll(Duration::ZERO, |told| {
            let ServerMessage::Message { subject, subscription, payload, .. } = told else { return };
            let batch = inbox.number(subject);
            if batch.is_none() && subscription != quotes.subscription {
                return;
            }
            match (parse_answer(payload), batch) {
                (Err(error), _) => refused = Err(error),
                (Ok(is_duplicate), Some(number)) => acknowledge(number, is_duplicate, first, batches, counts),
                (Ok(_), None) => *waiting = waiting.saturating_sub(1),
            }
        })?;
        if let Err(error) = refused {
            self.refusals += 1;
            return Err(error);
        }
        self.forget_oldest();
        let idx = self.batches.iter().position(|batch| !batch.is_acknowledged);
        let oldest = idx.map(|idx| self.first + idx as u64).filter(|number| *number < self.next);
        if self.silence.of(oldest, now) > self.config.patience {
            // They are sent again by another connection.
            return Err(unacknowledged("no batch, or leaves one out"));
        }
        let answered = (self.quotes_waiting > 0).then_some(self.counts.quotes - self.quotes_waiting);
        if self.quotes_silence.of(answered, now) > self.config.patience {
            return Err(unacknowledged("no quote"));
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
    fn connect(&mut self) -> io::Result<()> {
        let Some(opening) = &self.opening else { return self.begin_to_connect() };
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
        let config = self.config.clone();
        let connect = move || {
            // A publisher that has ended takes no connection.
            let _ = sender.send(Link::open(&config));
        };
        thread::Builder::new().name("nats-connect".into()).spawn(connect)?;
        self.opening = Some(opening);
        Ok(())
    }

    fn take_link(&mut self, link: Link) {
        // All that is kept, in its order; the broker drops what it has.
        self.next = self.first;
        self.quotes.forget();
        self.quotes_waiting = 0;
        self.quotes_at = Instant::now();
        (self.silence.since, self.quotes_silence.since) = (Instant::now(), Instant::now());
        self.counts.connections += 1;
        (self.link, self.why_down) = (Some(link), None);
    }

    fn fail(&mut self, error: &io::Error) {
        (self.link, self.why_down) = (None, Some(error.to_string()));
        self.retry_at = Instant::now() + retry_wait(self.config.retry_every, self.refusals);
    }
}

/// The answer of JetStream to a message: whether it had it already, or why it does not take it,
/// which costs the connection.
fn parse_answer(payload: &[u8]) -> io::Result<bool> {
    let answer: Value = serde_json::from_slice(payload).unwrap_or(Value::Null);
    // A refusal has a number too: 0, which no message of a stream has.
    if answer["error"].is_null() && answer["seq"].as_u64().is_some_and(|seq| seq > 0) {
        return Ok(answer["duplicate"] == true);
    }
    let why = match &answer["error"]["description"] {
        Value::String(sentence) => sentence.clone(),
        // The answer is a header that says so, and no body.
        _ if answer.is_null() => "no stream has its subject".to_owned(),
        _ => answer.to_string(),
    };
    Err(io::Error::other(format!("JetStream does not take a message: {why}; {LIMITS}")))
}

/// How long to wait after so many refusals in a row: twice as long after each.
fn retry_wait(every: Duration, refusals: u32) -> Duration {
    every.saturating_mul(2_u32.saturating_pow(refusals)).min(REFUSED_RETRY_MAX.max(every))
}

fn unacknowledged(what: &str) -> io::Error {
    io::Error::other(format!("JetStream acknowledges {what}; {LIMITS}"))
}

/// What to do about a stream that takes nothing.
const LIMITS: &str = "check the stream's limits with `nats stream info`";

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
    use market::event::{Clear, Event};
    use market_ring::{RingConfig, RingWriter};

    use super::*;

    #[test]
    fn answer_with_an_error_is_a_refusal_although_it_has_a_number() {
        let full =
            br#"{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"MD","seq":0}"#;
        assert!(parse_answer(full).unwrap_err().to_string().contains("maximum bytes exceeded"));
        assert!(parse_answer(br#"{"stream":"MD","seq":0}"#).is_err(), "no message of a stream has the number 0");
        assert!(parse_answer(b"").unwrap_err().to_string().contains("no stream"));
        let answers = [&br#"{"stream":"MD","seq":1}"#[..], br#"{"stream":"MD","seq":1,"duplicate":true}"#];
        assert_eq!(answers.map(|answer| parse_answer(answer).unwrap()), [false, true]);
    }

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

    #[test]
    fn quiet_channels_record_waits_for_no_busy_channel_to_pause() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        let config = RingConfig { records: 4 * RECORDS_PER_TURN, ..RingConfig::default() };
        let mut ring = RingWriter::create(&path, &config).unwrap();
        let reader = RingReader::open(&path).unwrap();
        let mut publish =
            |channel| _ = ring.publish(&Record { channel, ..Record::new(0, Event::Clear(Clear { at_ns: 0 })) });
        publish(1);
        (0..RECORDS_PER_TURN + 1_000).for_each(|_| publish(0));
        // Nobody listens there.
        let server = "127.0.0.1:1".to_owned();
        let mut publisher =
            Publisher::new(PublisherConfig { server: server.into(), ..PublisherConfig::default() }, reader);
        assert_eq!(publisher.turn(), Ok(Turn::Busy));
        assert!(
            publisher.ring.behind() > 0 && publisher.batches.iter().any(|batch| batch.subject == "md.venue.1.events")
        );
    }
}
