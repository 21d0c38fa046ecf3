//! Kafka as a publisher's broker: a thread with the client's runtime, and queues to and from it.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use std::{io, thread};

use chrono::DateTime;
use market_fanout::{Acknowledged, Batch, Broker, LatestQuote, Link, LinkError, MERGED};
use rskafka::BackoffConfig;
use rskafka::client::error::Error;
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Bytes that wait for a broker that does not take them: beyond, batches and quotes wait as such.
const QUEUED_MAX: usize = 4 << 20;
/// Bytes of one request to a partition. A broker refuses more than its `message.max.bytes`, which
/// is 1 MiB by default.
const REQUEST_MAX: usize = 512 << 10;
/// Bytes that a message adds to its key, value and headers, at most.
const OVERHEAD: usize = 128;
/// How long a broker may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long the client tries again by itself what a broker cannot do at the moment, as during the
/// election of a leader.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// A cluster, and the venue whose topics it has.
#[derive(Clone, Debug)]
pub struct Kafka {
    /// Brokers to ask first, as `host:port`. By default `127.0.0.1:9092`.
    pub servers: Vec<String>,
    /// The word for the venue in topics. By default `venue`.
    pub venue: String,
    /// How many partitions the topic of events had at the first connection.
    partitions: Arc<OnceLock<usize>>,
}

impl Default for Kafka {
    fn default() -> Self {
        Self::new(vec!["127.0.0.1:9092".to_owned()], "venue")
    }
}

impl Kafka {
    /// A cluster by some of its brokers, and a venue.
    pub fn new(servers: Vec<String>, venue: &str) -> Self {
        Self { servers, venue: venue.to_owned(), partitions: Arc::default() }
    }

    /// A channel has one partition. With more of them it would have another, and consumers would
    /// meet its later batches before its earlier ones.
    fn check_partitions(&self, count: usize) -> io::Result<()> {
        let before = *self.partitions.get_or_init(|| count);
        if before == count {
            return Ok(());
        }
        let topic = events_topic(&self.venue);
        Err(io::Error::other(format!(
            "the topic {topic} had {before} partitions and has {count}, so channels would lose their order: \
             start this gateway and its consumers anew with another --venue"
        )))
    }
}

/// A connection: the two ends of the queues to its thread, which ends with them.
pub struct KafkaLink {
    messages: Sender<Message>,
    answers: Receiver<Answer>,
    /// Bytes that have no answer yet.
    queued: usize,
}

/// A message on its way to the broker.
struct Message {
    /// Of a batch; `None` of a quote.
    number: Option<u64>,
    channel: u16,
    record: Record,
    len: usize,
}

/// What became of messages.
enum Answer {
    Acknowledged { numbers: Vec<u64>, quotes: u64, len: usize },
    Failed(LinkError),
}

impl Broker for Kafka {
    type Link = KafkaLink;
    const HINT: &str = "ask the cluster for replicas that are out of sync: `kafka-topics.sh --describe`";

    fn connect(&self) -> io::Result<KafkaLink> {
        let (messages, received) = mpsc::channel();
        let (sender, answers) = mpsc::channel();
        let (ready, is_ready) = mpsc::sync_channel(1);
        let kafka = self.clone();
        thread::Builder::new().name("kafka".into()).spawn(move || match Topics::open(&kafka) {
            Ok(topics) => {
                // A publisher that has ended takes nothing.
                let _ = ready.send(Ok(()));
                topics.serve(&received, &sender);
            }
            Err(error) => _ = ready.send(Err(error)),
        })?;
        is_ready.recv().map_err(|_| io::Error::other("the thread of the client has panicked"))??;
        Ok(KafkaLink { messages, answers, queued: 0 })
    }
}

impl Link for KafkaLink {
    fn has_room(&self) -> bool {
        self.queued < QUEUED_MAX
    }

    fn send_batch(&mut self, number: u64, batch: &Batch) {
        let key = batch.channel.to_string();
        let headers = batch.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into_bytes()));
        self.send(Some(number), batch.channel, key, headers.collect(), batch.payload.clone());
    }

    fn send_quote(&mut self, LatestQuote { token, quote, merged, .. }: &LatestQuote) {
        let headers = BTreeMap::from([(MERGED.to_owned(), merged.to_string().into_bytes())]);
        self.send(None, quote.channel, format!("{}.{token}", quote.channel), headers, quote.to_bytes().to_vec());
    }

    fn exchange(&mut self, mut acknowledged: impl FnMut(Acknowledged)) -> Result<(), LinkError> {
        loop {
            match self.answers.try_recv() {
                Ok(Answer::Acknowledged { numbers, quotes, len }) => {
                    self.queued -= len;
                    let batches = numbers.into_iter();
                    batches.for_each(|number| acknowledged(Acknowledged::Batch { number, is_duplicate: false }));
                    acknowledged(Acknowledged::Quotes(quotes));
                }
                Ok(Answer::Failed(error)) => return Err(error),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => {
                    return Err(LinkError::Down(io::Error::other("the thread of the client has ended")));
                }
            }
        }
    }
}

impl KafkaLink {
    fn send(
        &mut self,
        number: Option<u64>,
        channel: u16,
        key: String,
        headers: BTreeMap<String, Vec<u8>>,
        value: Vec<u8>,
    ) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let timestamp = DateTime::from_timestamp_nanos(now.as_nanos() as i64);
        let record = Record { key: Some(key.into_bytes()), value: Some(value), headers, timestamp };
        let len = record.approximate_size() + OVERHEAD;
        self.queued += len;
        // Where the thread has ended, `exchange` says so.
        let _ = self.messages.send(Message { number, channel, record, len });
    }
}

/// The client, and the partitions of both topics.
struct Topics {
    runtime: Runtime,
    events: Vec<Arc<PartitionClient>>,
    quotes: Vec<Arc<PartitionClient>>,
}

impl Topics {
    fn open(kafka: &Kafka) -> io::Result<Self> {
        let runtime = runtime()?;
        let (events, quotes) = runtime.block_on(within(async {
            let client = client(&kafka.servers).await?;
            let events = partitions(&client, &events_topic(&kafka.venue)).await?;
            Ok((events, partitions(&client, &quotes_topic(&kafka.venue)).await?))
        }))?;
        kafka.check_partitions(events.len())?;
        Ok(Self { runtime, events, quotes })
    }

    /// Sends what comes, until its sender or its receiver ends, or the broker fails.
    fn serve(self, messages: &Receiver<Message>, answers: &Sender<Answer>) {
        while let Ok(first) = messages.recv() {
            let rest = std::iter::from_fn(|| messages.try_recv().ok());
            let mut waiting = Requests::default();
            std::iter::once(first).chain(rest).for_each(|message| waiting.add(message));
            if self.runtime.block_on(self.send(waiting, answers)).is_err() {
                return;
            }
        }
    }

    /// Sends the requests of all partitions at once, and those of each in their order. An error
    /// where nobody is to be told more.
    async fn send(&self, waiting: Requests, answers: &Sender<Answer>) -> Result<(), ()> {
        let mut sending = JoinSet::new();
        for ((is_batch, channel), requests) in waiting.of {
            let partitions = if is_batch { &self.events } else { &self.quotes };
            let partition = Arc::clone(&partitions[usize::from(channel) % partitions.len()]);
            let answers = answers.clone();
            sending.spawn(async move {
                for request in requests {
                    let answer = produce(&partition, request).await;
                    let has_failed = matches!(answer, Answer::Failed(_));
                    if answers.send(answer).is_err() || has_failed {
                        return Err(());
                    }
                }
                Ok(())
            });
        }
        while let Some(sent) = sending.join_next().await {
            sent.map_err(|_| ())??;
        }
        Ok(())
    }
}

/// Messages that wait, by batch or quote and by channel: a channel has one partition, and in it
/// its order. Requests of one partition for different channels may overtake each other.
#[derive(Default)]
struct Requests {
    of: BTreeMap<(bool, u16), Vec<Request>>,
}

#[derive(Default)]
struct Request {
    numbers: Vec<u64>,
    quotes: u64,
    records: Vec<Record>,
    len: usize,
}

impl Requests {
    fn add(&mut self, Message { number, channel, record, len }: Message) {
        let requests = self.of.entry((number.is_some(), channel)).or_default();
        if requests.last().is_none_or(|last| last.len + len > REQUEST_MAX) {
            requests.push(Request::default());
        }
        let Some(last) = requests.last_mut() else { return };
        last.numbers.extend(number);
        last.quotes += u64::from(number.is_none());
        last.records.push(record);
        last.len += len;
    }
}

async fn produce(partition: &PartitionClient, request: Request) -> Answer {
    let Request { numbers, quotes, records, len } = request;
    let produced = tokio::time::timeout(PATIENCE, partition.produce(records, Compression::NoCompression)).await;
    match produced {
        Ok(Ok(_)) => Answer::Acknowledged { numbers, quotes, len },
        Ok(Err(error)) => Answer::Failed(refusal_or_outage(error)),
        Err(_) => Answer::Failed(LinkError::Down(silent())),
    }
}

/// The broker's own refusal of a message, or a failure that another connection may not have.
fn refusal_or_outage(error: Error) -> LinkError {
    match error {
        Error::ServerError { protocol_error, .. } => {
            LinkError::Refused(io::Error::other(format!("Kafka does not take a message: {protocol_error}")))
        }
        other => LinkError::Down(io::Error::other(cause(&other))),
    }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the broker has not answered for {} s", PATIENCE.as_secs()))
}

/// What takes no longer than a broker may take to answer.
pub(crate) async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(silent()))
}

/// A runtime on the calling thread.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()
}

pub(crate) async fn client(servers: &[String]) -> io::Result<Client> {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(50),
        max_backoff: Duration::from_millis(500),
        deadline: Some(RETRY_MAX),
        ..BackoffConfig::default()
    };
    let builder = ClientBuilder::new(servers.to_vec()).client_id("wirepath").backoff_config(backoff);
    builder.build().await.map_err(|error| io::Error::other(cause(&error)))
}

/// Why, without the client's words about its retries in front.
fn cause(error: &Error) -> String {
    let whole = error.to_string();
    whole.rsplit_once("Source: ").map_or(whole.as_str(), |(_, why)| why).to_owned()
}

/// The partitions of a topic, in their order. A broker that makes topics that it is asked for makes
/// this one.
pub(crate) async fn partitions(client: &Client, topic: &str) -> io::Result<Vec<Arc<PartitionClient>>> {
    let missing = |error: Error| {
        let make = format!("make it with `kafka-topics.sh --create --topic {topic} --partitions 1`");
        io::Error::other(format!("the topic {topic} is not there ({}): {make}", cause(&error)))
    };
    let first = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await.map_err(missing)?;
    let topics = client.list_topics().await.map_err(io::Error::other)?;
    let numbers = topics.into_iter().find(|found| found.name == topic).map(|found| found.partitions);
    let mut partitions = vec![Arc::new(first)];
    for number in numbers.unwrap_or_default().into_iter().filter(|number| *number > 0) {
        let partition = client.partition_client(topic, number, UnknownTopicHandling::Retry).await;
        partitions.push(Arc::new(partition.map_err(missing)?));
    }
    Ok(partitions)
}

/// The topic of a venue's events.
pub(crate) fn events_topic(venue: &str) -> String {
    format!("md.{venue}.events")
}

/// The topic of a venue's latest quotes.
pub(crate) fn quotes_topic(venue: &str) -> String {
    format!("md.{venue}.quotes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_with_other_partitions_than_before_is_refused() {
        let kafka = Kafka::default();
        assert!(kafka.check_partitions(4).is_ok() && kafka.clone().check_partitions(4).is_ok());
        let refused = kafka.clone().check_partitions(5).unwrap_err().to_string();
        assert!(refused.contains("had 4 partitions and has 5"), "{refused}");
    }
}
