//! A consumer: the records of a stream in order, each once, from its beginning, over outages of the
//! broker.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use market_ring::{Quote, Record};
use serde_json::json;

use crate::batch::{MISSED, SESSION, entries, parse_pair};
use crate::connection::Connection;
use crate::stream;
use crate::wire::{Told, header};

/// A connection on which nothing came for so long is made anew: the server's pings come later.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const RETRY_EVERY: Duration = Duration::from_millis(100);

/// What a consumer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerEvent {
    /// A record, and its number in the publisher's ring.
    Record(u64, Record),
    /// The publisher has missed these records of its ring.
    Missed(u64, u64),
    /// The publisher's ring is another one: numbers begin anew.
    Restart,
    /// A message that is no batch, or an entry that is no record.
    Malformed,
}

/// See the [module's text](crate).
pub struct Consumer {
    server: String,
    stream: String,
    link: Option<Connection>,
    retry_at: Instant,
    heard_at: Instant,
    position: Position,
    consumers: u64,
}

/// What was read last.
#[derive(Default)]
struct Position {
    /// Of the stream.
    stream_seq: u64,
    session: Option<u64>,
    /// The last number of each channel.
    channels: BTreeMap<u16, u64>,
}

impl Consumer {
    /// A consumer of the stream of events.
    pub fn new(server: &str, stream: &str) -> Self {
        let now = Instant::now();
        let (server, stream) = (server.to_owned(), stream.to_owned());
        Self { server, stream, link: None, retry_at: now, heard_at: now, position: Position::default(), consumers: 0 }
    }

    /// Waits for `wait` at most, and shows what came. An outage is no error: it is tried again.
    pub fn turn(&mut self, wait: Duration, each: impl FnMut(ConsumerEvent)) {
        if self.exchange(wait, each).is_err() {
            self.link = None;
            self.retry_at = Instant::now() + RETRY_EVERY;
        }
    }

    fn exchange(&mut self, wait: Duration, mut each: impl FnMut(ConsumerEvent)) -> io::Result<()> {
        let Some(link) = &mut self.link else {
            if Instant::now() < self.retry_at {
                std::thread::sleep(wait.min(RETRY_EVERY));
                return Ok(());
            }
            return self.connect(each);
        };
        let (position, mut has_come) = (&mut self.position, false);
        link.poll(wait, |told| {
            has_come = true;
            if let Told::Message { reply, headers, payload, .. } = told {
                position.take(reply, headers, payload, &mut each);
            }
        })?;
        if has_come {
            self.heard_at = Instant::now();
        } else if self.heard_at.elapsed() > SILENCE_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    fn connect(&mut self, mut each: impl FnMut(ConsumerEvent)) -> io::Result<()> {
        let mut link = Connection::open(&self.server)?;
        self.consumers += 1;
        let inbox = format!("_INBOX.md.{}.{}", std::process::id(), self.consumers);
        link.subscribe(&inbox, 3);
        let config = json!({
            "deliver_subject": inbox, "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.position.stream_seq + 1, "ack_policy": "none", "replay_policy": "instant",
            "max_deliver": 1, "mem_storage": true,
        });
        let body = json!({ "stream_name": self.stream, "config": config });
        let position = &mut self.position;
        stream::request(&mut link, &format!("CONSUMER.CREATE.{}", self.stream), &body, |told| {
            if let Told::Message { reply, headers, payload, .. } = told {
                position.take(reply, headers, payload, &mut each);
            }
        })?;
        (self.link, self.heard_at) = (Some(link), Instant::now());
        Ok(())
    }
}

/// The latest quotes of a stream of quotes, in no order: what a late joiner begins with. Waits
/// until all that the broker has are there.
pub fn latest_quotes(server: &str, stream: &str) -> io::Result<Vec<Quote>> {
    let mut link = Connection::open(server)?;
    let inbox = format!("_INBOX.quotes.{}", std::process::id());
    link.subscribe(&inbox, 4);
    let config = json!({
        "deliver_subject": inbox, "deliver_policy": "last_per_subject", "filter_subject": "md.*.*.quote.*",
        "ack_policy": "none",
        "replay_policy": "instant", "mem_storage": true,
    });
    let (mut quotes, mut came) = (Vec::new(), 0);
    let mut take = |told: Told<'_>| {
        if let Told::Message { payload, .. } = told {
            came += 1;
            quotes.extend(payload.try_into().ok().map(Quote::from_bytes));
        }
        came
    };
    let body = json!({ "stream_name": stream, "config": config });
    // One message a subject, so the stream has as many as there are instruments.
    let info = stream::request(&mut link, &format!("STREAM.INFO.{stream}"), &json!({}), |_| ())?;
    let pending = info["state"]["messages"].as_u64().unwrap_or(0);
    stream::request(&mut link, &format!("CONSUMER.CREATE.{stream}"), &body, |told| _ = take(told))?;
    let (mut count, mut heard_at) = (take(Told::Accepted), Instant::now());
    while count < pending {
        let before = count;
        link.poll(Duration::from_millis(100), |told| count = take(told))?;
        if count > before {
            heard_at = Instant::now();
        } else if heard_at.elapsed() > SILENCE_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(quotes)
}

impl Position {
    fn take(&mut self, reply: Option<&str>, headers: &[u8], payload: &[u8], each: &mut impl FnMut(ConsumerEvent)) {
        // $JS.ACK.stream.consumer.delivered.stream_seq.consumer_seq.time.pending
        let stream_seq = reply.and_then(|reply| reply.split('.').nth(5)?.parse().ok());
        self.stream_seq = stream_seq.unwrap_or(self.stream_seq);
        let session = header(headers, SESSION).and_then(|text| u64::from_str_radix(text, 16).ok());
        let Some(session) = session else { return each(ConsumerEvent::Malformed) };
        if self.session.replace(session).is_some_and(|before| before != session) {
            self.channels.clear();
            each(ConsumerEvent::Restart);
        }
        if let Some((first, last)) = header(headers, MISSED).and_then(parse_pair) {
            each(ConsumerEvent::Missed(first, last));
        }
        for entry in entries(payload) {
            let Some((seq, record)) = entry else { return each(ConsumerEvent::Malformed) };
            let is_new = self.channels.get(&record.channel).is_none_or(|&last| seq > last);
            if is_new {
                self.channels.insert(record.channel, seq);
                each(ConsumerEvent::Record(seq, record));
            }
        }
    }
}
