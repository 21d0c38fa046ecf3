//! A consumer: the records of a venue, those of each channel in order and each once, from the
//! topic's beginning, over outages of the broker.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use market_fanout::{ConsumerEvent, GapDetector};
use market_ring::Quote;
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{OffsetAt, PartitionClient};
use rskafka::record::Record;
use tokio::runtime::Runtime;

use crate::broker::{PATIENCE, client, events_topic, partitions, quotes_topic, runtime, within};

const RETRY_EVERY: Duration = Duration::from_millis(100);
/// Bytes of an answer, unless one batch alone is longer.
const FETCH_MAX: i32 = 1 << 20;

/// See the [module's text](crate).
pub struct Consumer {
    runtime: Runtime,
    servers: Vec<String>,
    topic: String,
    partitions: Vec<Arc<PartitionClient>>,
    retry_at: Instant,
    positions: BTreeMap<i32, Position>,
    gaps: GapDetector,
}

/// What was read last of a partition.
#[derive(Clone, Copy, Default)]
struct Position {
    /// The offset of the next message; `None` before the first answer, and where the broker has
    /// dropped what was next.
    next: Option<i64>,
}

impl Consumer {
    /// A consumer of the events of a venue.
    ///
    /// # Errors
    /// The process may have no more descriptors.
    pub fn new(servers: &[String], venue: &str) -> io::Result<Self> {
        Ok(Self {
            runtime: runtime()?,
            servers: servers.to_vec(),
            topic: events_topic(venue),
            partitions: Vec::new(),
            retry_at: Instant::now(),
            positions: BTreeMap::new(),
            gaps: GapDetector::default(),
        })
    }

    /// Waits for some `wait` for each partition at most, and never for more than five seconds, and
    /// shows what came. An outage is no
    /// error: it is tried again.
    pub fn turn(&mut self, wait: Duration, mut each: impl FnMut(ConsumerEvent)) {
        if self.exchange(wait, &mut each).is_err() {
            self.partitions.clear();
            self.retry_at = Instant::now() + RETRY_EVERY;
        }
    }

    fn exchange(&mut self, wait: Duration, each: &mut impl FnMut(ConsumerEvent)) -> io::Result<()> {
        if self.partitions.is_empty() {
            if Instant::now() < self.retry_at {
                std::thread::sleep(wait.min(RETRY_EVERY));
                return Ok(());
            }
            let connected = async { partitions(&client(&self.servers).await?, &self.topic).await };
            self.partitions = self.runtime.block_on(within(connected))?;
        }
        for partition in &self.partitions {
            let position = self.positions.entry(partition.partition()).or_default();
            let records = self.runtime.block_on(within(position.fetch(partition, wait)))?;
            records.iter().for_each(|record| take(&mut self.gaps, record, each));
        }
        Ok(())
    }
}

impl Position {
    /// The next messages of a partition.
    async fn fetch(&mut self, partition: &PartitionClient, wait: Duration) -> io::Result<Vec<Record>> {
        let next = match self.next {
            Some(next) => next,
            None => partition.get_offset(OffsetAt::Earliest).await.map_err(io::Error::other)?,
        };
        let wait = wait.min(PATIENCE / 2).as_millis() as i32;
        match partition.fetch_records(next, 1..FETCH_MAX, wait).await {
            Ok((records, high)) => {
                self.next = Some(behind(next, records.last().map(|last| last.offset), high));
                Ok(records.into_iter().map(|found| found.record).collect())
            }
            // The broker has dropped what was next, or has lost what was last.
            Err(Error::ServerError { protocol_error: ProtocolError::OffsetOutOfRange, .. }) => {
                self.next = None;
                Ok(Vec::new())
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// The offset to go on with, behind an answer whose last message has the offset `last`. An answer
/// without one ends before the partition does (`high`) where a compacted topic has lost the last
/// message of a batch, or where the next one is none of a producer: the broker would give the same
/// answer again.
fn behind(next: i64, last: Option<i64>, high: i64) -> i64 {
    match last {
        Some(last) => last + 1,
        None if next < high => next + 1,
        None => next,
    }
}

fn take(gaps: &mut GapDetector, record: &Record, each: &mut impl FnMut(ConsumerEvent)) {
    let text = |bytes: &Option<Vec<u8>>| bytes.as_ref().and_then(|bytes| str::from_utf8(bytes).ok()?.parse().ok());
    let (Some(channel), Some(value)) = (text(&record.key), &record.value) else {
        return each(ConsumerEvent::Malformed);
    };
    let header = |name: &str| record.headers.get(name).and_then(|value| str::from_utf8(value).ok());
    gaps.take(channel, header, value, each);
}

/// The latest quotes of a venue, in no order: what a late joiner begins with. Reads the topic
/// whole, so it should be a compacted one.
///
/// # Errors
/// The broker cannot be reached, or has no such topic.
pub fn latest_quotes(servers: &[String], venue: &str) -> io::Result<Vec<Quote>> {
    let mut latest = BTreeMap::new();
    runtime()?.block_on(async {
        let topic = quotes_topic(venue);
        for partition in within(async { partitions(&client(servers).await?, &topic).await }).await? {
            let until =
                within(async { partition.get_offset(OffsetAt::Latest).await.map_err(io::Error::other) }).await?;
            let mut position = Position::default();
            while until > 0 && position.next.is_none_or(|next| next < until) {
                for record in within(position.fetch(&partition, Duration::ZERO)).await? {
                    let quote =
                        record.value.as_deref().and_then(|value| Some(Quote::from_bytes(value.try_into().ok()?)));
                    latest.extend(record.key.zip(quote));
                }
            }
        }
        io::Result::Ok(())
    })?;
    Ok(latest.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_that_has_lost_its_last_message_to_compaction_is_left_behind() {
        // Messages 0 to 9 are one batch, and 9 was compacted away: the broker answers with the
        // batch again, of which the client shows what is at the offset or behind it, nothing.
        assert_eq!(behind(0, Some(8), 40), 9);
        assert_eq!(behind(9, None, 40), 10);
        // At the end there is nothing more to come.
        assert_eq!(behind(40, None, 40), 40);
    }
}
