//! The ring's side of a publisher: records become batches, and the ring's end a last batch of each
//! channel.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use market_ring::{Read, Record, RingReader};

use crate::batch::{Batch, OpenBatch};
use crate::quotes::Quotes;

/// Records that a turn reads at most.
const RECORDS_PER_TURN: usize = 16_384;
/// A ring in which nothing comes for so long is asked whether its writer lives, a system call.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// What happens when the broker is so slow, or away for so long, that the ring overtakes us. In
/// none of the policies the feed waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The next batch of each channel says by its header `Wp-Covers` what it does not have.
    #[default]
    Skip,
    /// Only the latest quotes are published, never events.
    Conflate,
    /// The publisher sends what it has read, ends, and says where to resume.
    Disconnect,
}

impl FromStr for Policy {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "skip" => Ok(Self::Skip),
            "conflate" => Ok(Self::Conflate),
            "disconnect" => Ok(Self::Disconnect),
            _ => Err("use skip, conflate or disconnect"),
        }
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
    /// file: [`Publisher::follow`](crate::Publisher::follow).
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

/// What was read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SourceCounts {
    pub(crate) records: u64,
    /// Records that the ring had overwritten.
    pub(crate) missed: u64,
    pub(crate) batches: u64,
}

/// Reads a ring, and makes batches of its records.
pub(crate) struct Source {
    ring: RingReader,
    policy: Policy,
    batch_records: usize,
    channels: BTreeMap<u16, OpenBatch>,
    /// The number that follows the last record read; all from `read_from` on were read.
    read_until: u64,
    read_from: u64,
    read_at: Instant,
    /// Batches that nobody has taken yet.
    batches: VecDeque<Batch>,
    /// The latest quotes.
    pub(crate) quotes: Quotes,
    /// Records that the ring had overwritten, where the policy is to end then.
    pub(crate) overrun: Option<Stopped>,
    /// How the ring has ended.
    pub(crate) end: Option<Turn>,
    pub(crate) counts: SourceCounts,
}

impl Source {
    /// Of what is in the ring and of what comes.
    pub(crate) fn new(mut ring: RingReader, policy: Policy, batch_records: usize) -> Self {
        ring.rewind();
        let next = ring.next_seq();
        Self {
            ring,
            policy,
            batch_records,
            channels: BTreeMap::new(),
            read_until: next,
            read_from: next,
            read_at: Instant::now(),
            batches: VecDeque::new(),
            quotes: Quotes::default(),
            overrun: None,
            end: None,
            counts: SourceCounts::default(),
        }
    }

    /// The number of the ring's stream.
    pub(crate) fn session(&self) -> u64 {
        self.ring.session()
    }

    /// How long ago something was read, or the ring was asked for its writer.
    pub(crate) fn silence(&self) -> Duration {
        self.read_at.elapsed()
    }

    /// Goes on with the next ring, in which numbers begin anew.
    pub(crate) fn follow(&mut self, mut ring: RingReader) {
        ring.rewind();
        (self.read_from, self.read_until) = (ring.next_seq(), ring.next_seq());
        self.channels.clear();
        self.batches.clear();
        (self.ring, self.end, self.read_at) = (ring, None, Instant::now());
    }

    /// Reads, a bounded part. Returns whether there may be more at once.
    pub(crate) fn read(&mut self) -> bool {
        match self.policy {
            _ if self.overrun.is_some() || self.end.is_some() => false,
            Policy::Conflate => self.look_for_end(),
            _ => self.read_ring(),
        }
    }

    /// The oldest batch that nobody has taken.
    pub(crate) fn next_batch(&mut self) -> Option<Batch> {
        self.batches.pop_front()
    }

    /// Takes over the quotes that have changed. Those of a ring that has ended stay as they are.
    pub(crate) fn read_quotes(&mut self) {
        if self.end.is_none() {
            self.quotes.read(&mut self.ring);
        }
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
        for idx in 0..RECORDS_PER_TURN {
            match self.ring.read() {
                Read::Record { seq, record } => self.take(seq, &record),
                // The first batch of each channel says where it begins.
                Read::Joined { .. } => {}
                Read::Overrun { first, last } => {
                    self.skip(first, last);
                    if self.policy == Policy::Disconnect {
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
        self.quotes.read(&mut self.ring);
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
            self.batches.push_back(filling.end(session, until));
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
        if filling.records() >= self.batch_records {
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
        if let Some(batch) = filling.and_then(|filling| filling.take(session, until)) {
            self.counts.batches += 1;
            self.batches.push_back(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic is the report of a test

    use market::event::{Clear, Event};
    use market_ring::{RingConfig, RingWriter};

    use super::*;

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
        let mut source = Source::new(reader, Policy::Skip, 256);
        assert!(source.read());
        assert!(source.ring.behind() > 0 && source.batches.iter().any(|batch| batch.channel == 1));
    }
}
