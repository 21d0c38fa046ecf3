//! How a publisher works.

use std::time::Duration;

use crate::login::NatsServer;

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

/// How a publisher works.
#[derive(Clone, Debug)]
pub struct PublisherConfig {
    /// The server. By default `127.0.0.1:4222`, without a login.
    pub server: NatsServer,
    /// The word for the venue in subjects. By default `venue`.
    pub venue: String,
    /// The stream of events; that of quotes has `-quotes` appended. By default `MD`.
    pub stream: String,
    /// By default [`Policy::Skip`].
    pub policy: Policy,
    /// Records of a batch; a batch also ends when the ring is empty. By default 256: 32 KiB.
    pub batch_records: usize,
    /// Batches that may wait for their acknowledgment: while there are more, the ring is not read.
    /// By default 4,096: 128 MiB, a million records.
    pub unacknowledged_max: usize,
    /// Acknowledged batches that are sent again after an outage. By default 256: 8 MiB.
    pub kept: usize,
    /// Bytes that a stream keeps, the oldest go first. By default 1 GiB.
    pub stream_bytes_max: i64,
    /// Time between rounds of quotes. By default 100 ms.
    pub quotes_every: Duration,
    /// Time between attempts to reach the server. By default 100 ms.
    pub retry_every: Duration,
    /// A connection by which no batch is acknowledged for so long, although some wait, is made
    /// anew; so long a publisher that ends by its policy waits for its last acknowledgments. By
    /// default 10 s.
    pub patience: Duration,
}

impl Default for PublisherConfig {
    fn default() -> Self {
        Self {
            server: "127.0.0.1:4222".into(),
            venue: "venue".to_owned(),
            stream: "MD".to_owned(),
            policy: Policy::default(),
            batch_records: 256,
            unacknowledged_max: 4_096,
            kept: 256,
            stream_bytes_max: 1 << 30,
            quotes_every: Duration::from_millis(100),
            retry_every: Duration::from_millis(100),
            patience: Duration::from_secs(10),
        }
    }
}
