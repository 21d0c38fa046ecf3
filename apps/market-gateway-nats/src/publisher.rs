//! JetStream as a publisher's broker.

use std::io;
use std::time::Duration;

use market_fanout::{Acknowledged, Batch, Broker, LatestQuote, Link, LinkError, MERGED};
use serde_json::Value;

use crate::connection::{Connection, Inbox, NumberedInbox};
use crate::login::NatsServer;
use crate::stream;
use crate::wire::ServerMessage;

/// Bytes that wait for a server that does not take them: beyond, batches and quotes wait as such.
const QUEUED_MAX: usize = 1 << 20;

/// What publishes a ring to JetStream.
pub type Publisher = market_fanout::Publisher<JetStream>;

/// A server with JetStream, and the streams on it.
#[derive(Clone, Debug)]
pub struct JetStream {
    /// By default `127.0.0.1:4222`, without a login.
    pub server: NatsServer,
    /// The word for the venue in subjects. By default `venue`.
    pub venue: String,
    /// The stream of events; that of quotes has `-quotes` appended. By default `MD`.
    pub stream: String,
    /// Bytes that a stream keeps, the oldest go first. By default 1 GiB.
    pub stream_bytes_max: i64,
}

impl Default for JetStream {
    fn default() -> Self {
        Self {
            server: "127.0.0.1:4222".into(),
            venue: "venue".to_owned(),
            stream: "MD".to_owned(),
            stream_bytes_max: 1 << 30,
        }
    }
}

/// A connection, and where the server acknowledges batches, by their numbers, and quotes.
pub struct JetStreamLink {
    venue: String,
    connection: Connection,
    batches: NumberedInbox,
    quotes: Inbox,
}

impl Broker for JetStream {
    type Link = JetStreamLink;
    const HINT: &str = "check the stream's limits with `nats stream info`";

    fn connect(&self) -> io::Result<JetStreamLink> {
        let mut connection = Connection::open(&self.server)?;
        stream::create(&mut connection, &self.stream, &self.venue, self.stream_bytes_max)?;
        let (batches, quotes) = (connection.open_numbered_inbox(), connection.open_inbox());
        Ok(JetStreamLink { venue: self.venue.clone(), connection, batches, quotes })
    }
}

impl Link for JetStreamLink {
    fn has_room(&self) -> bool {
        self.connection.queued() < QUEUED_MAX
    }

    fn send_batch(&mut self, number: u64, batch: &Batch) {
        let subject = format!("md.{}.{}.events", self.venue, batch.channel);
        let id = ("Nats-Msg-Id", batch.id.as_str());
        let others = batch.headers.iter().map(|(name, value)| (*name, value.as_str()));
        let headers: Vec<(&str, &str)> = [id].into_iter().chain(others).collect();
        self.connection.publish(&subject, &self.batches.subject(number), &headers, &batch.payload);
    }

    fn send_quote(&mut self, LatestQuote { token, quote, merged, .. }: &LatestQuote) {
        let subject = format!("md.{}.{}.quote.{token}", self.venue, quote.channel);
        let headers = [(MERGED, &*merged.to_string())];
        self.connection.publish(&subject, &self.quotes.subject, &headers, &quote.to_bytes());
    }

    fn exchange(&mut self, mut acknowledged: impl FnMut(Acknowledged)) -> Result<(), LinkError> {
        let Self { connection, batches, quotes, .. } = self;
        connection.write_queued_some()?;
        let mut refused = Ok(());
        connection.poll(Duration::ZERO, |told| {
            let ServerMessage::Message { subject, subscription, payload, .. } = told else { return };
            let batch = batches.number(subject);
            if batch.is_none() && subscription != quotes.subscription {
                return;
            }
            match (parse_answer(payload), batch) {
                (Err(error), _) => refused = Err(LinkError::Refused(error)),
                (Ok(is_duplicate), Some(number)) => acknowledged(Acknowledged::Batch { number, is_duplicate }),
                (Ok(_), None) => acknowledged(Acknowledged::Quotes(1)),
            }
        })?;
        refused
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
    Err(io::Error::other(format!("JetStream does not take a message: {why}; {}", JetStream::HINT)))
}

#[cfg(test)]
mod tests {
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
}
