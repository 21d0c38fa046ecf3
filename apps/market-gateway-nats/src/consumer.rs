//! A consumer: the records of a stream in order, each once, from its beginning, over outages of the
//! broker.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use market_fanout::{ConsumerEvent, GapDetector};
use market_ring::Quote;
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::login::NatsServer;
use crate::stream;
use crate::wire::{ServerMessage, header, status};

/// A connection on which nothing came for so long is made anew: the server's pings come later.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const RETRY_EVERY: Duration = Duration::from_millis(100);

/// See the [module's text](crate).
pub struct Consumer {
    server: NatsServer,
    stream: String,
    link: Option<Link>,
    retry_at: Instant,
    heard_at: Instant,
    position: Position,
}

/// A connection, and the number of the subscription that records come by.
struct Link {
    connection: Connection,
    subscription: u64,
}

/// What was read last.
#[derive(Default)]
struct Position {
    /// When the stream was made, as the broker writes it: another one begins anew.
    created: String,
    /// The number in the stream of the last message, 0 before the first.
    stream_seq: u64,
    /// When the broker stored that message.
    stored_at: u64,
    /// Messages that the broker has sent on this connection.
    delivered: u64,
    gaps: GapDetector,
}

impl Consumer {
    /// A consumer of the stream of events.
    pub fn new(server: impl Into<NatsServer>, stream: &str) -> Self {
        let now = Instant::now();
        let (server, stream) = (server.into(), stream.to_owned());
        Self { server, stream, link: None, retry_at: now, heard_at: now, position: Position::default() }
    }

    /// Waits for `wait` at most, and shows what came. An outage is no error: it is tried again.
    pub fn turn(&mut self, wait: Duration, each: impl FnMut(ConsumerEvent)) {
        if self.exchange(wait, each).is_err() {
            self.link = None;
            self.retry_at = Instant::now() + RETRY_EVERY;
        }
    }

    fn exchange(&mut self, wait: Duration, mut each: impl FnMut(ConsumerEvent)) -> io::Result<()> {
        let Some(Link { connection, subscription }) = &mut self.link else {
            if Instant::now() < self.retry_at {
                std::thread::sleep(wait.min(RETRY_EVERY));
                return Ok(());
            }
            return self.connect(each);
        };
        let (position, mut has_come, mut taken) = (&mut self.position, false, Ok(()));
        connection.poll(wait, |told| {
            has_come = true;
            if taken.is_ok() {
                taken = position.take(told, *subscription, &mut each);
            }
        })?;
        if has_come {
            self.heard_at = Instant::now();
        } else if self.heard_at.elapsed() > SILENCE_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        taken
    }

    fn connect(&mut self, mut each: impl FnMut(ConsumerEvent)) -> io::Result<()> {
        let mut connection = Connection::open(&self.server)?;
        let info = stream::request(&mut connection, &format!("STREAM.INFO.{}", self.stream), &json!({}), |_| ())?;
        self.position.resume(&info);
        let inbox = connection.open_inbox();
        let config = json!({
            "deliver_subject": inbox.subject, "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.position.start_seq(), "ack_policy": "none", "replay_policy": "instant",
            "max_deliver": 1, "mem_storage": true,
        });
        let body = json!({ "stream_name": self.stream, "config": config });
        let (position, mut taken) = (&mut self.position, Ok(()));
        stream::request(&mut connection, &format!("CONSUMER.CREATE.{}", self.stream), &body, |told| {
            if taken.is_ok() {
                taken = position.take(told, inbox.subscription, &mut each);
            }
        })?;
        taken?;
        (self.link, self.heard_at) = (Some(Link { connection, subscription: inbox.subscription }), Instant::now());
        Ok(())
    }
}

/// The latest quotes of a stream of quotes, in no order: what a late joiner begins with. Waits
/// until all that the broker has are there.
pub fn latest_quotes(server: impl Into<NatsServer>, stream: &str) -> io::Result<Vec<Quote>> {
    let mut link = Connection::open(&server.into())?;
    let inbox = link.open_inbox();
    let config = json!({
        "deliver_subject": inbox.subject, "deliver_policy": "last_per_subject",
        "filter_subject": "md.*.*.quote.*", "ack_policy": "none", "replay_policy": "instant", "mem_storage": true,
    });
    let (mut latest, subscription) = (LatestQuotes::default(), inbox.subscription);
    let body = json!({ "stream_name": stream, "config": config });
    let made = stream::request(&mut link, &format!("CONSUMER.CREATE.{stream}"), &body, |told| {
        latest.take(told, subscription);
    })?;
    latest.is_whole |= latest.count == 0 && made["num_pending"].as_u64() == Some(0);
    let mut heard_at = Instant::now();
    while !latest.is_whole {
        let before = latest.count;
        link.poll(Duration::from_millis(100), |told| latest.take(told, subscription))?;
        if latest.count > before {
            heard_at = Instant::now();
        } else if heard_at.elapsed() > SILENCE_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(latest.quotes.into_values().collect())
}

/// Quotes as they come. One that its publisher replaces meanwhile comes again, behind all others,
/// so how many have come says nothing: the broker says how many are still to come.
#[derive(Default)]
struct LatestQuotes {
    quotes: BTreeMap<String, Quote>,
    count: u64,
    /// None was to come behind the last one.
    is_whole: bool,
}

impl LatestQuotes {
    fn take(&mut self, told: ServerMessage<'_>, subscription: u64) {
        let ServerMessage::Message { subject, subscription: from, reply, payload, .. } = told else { return };
        if from != subscription {
            return;
        }
        self.count += 1;
        if let Ok(bytes) = payload.try_into() {
            self.quotes.insert(subject.to_owned(), Quote::from_bytes(bytes));
        }
        self.is_whole |= reply.and_then(Place::parse).is_some_and(|place| place.pending == 0);
    }
}

impl Position {
    /// Finds its place in the stream as the broker has it now. One that was set up anew has all
    /// from the beginning, and one that was killed may have lost the newest messages.
    fn resume(&mut self, info: &Value) {
        self.delivered = 0;
        let created = info["created"].as_str().unwrap_or_default();
        let last_seq = info["state"]["last_seq"].as_u64().unwrap_or(0);
        if self.created != created || last_seq < self.stream_seq {
            (self.created, self.stream_seq) = (created.to_owned(), 0);
        }
    }

    /// The number of the message to begin with: the last one again, which shows whether the broker
    /// still has it.
    fn start_seq(&self) -> u64 {
        self.stream_seq.max(1)
    }

    /// Takes a message of the subscription. An error where the broker ends it, or has left a
    /// message out: what is missing is asked for again then.
    fn take(
        &mut self,
        told: ServerMessage<'_>,
        subscription: u64,
        each: &mut impl FnMut(ConsumerEvent),
    ) -> io::Result<()> {
        let ServerMessage::Message { subject, subscription: from, reply, headers, payload } = told else {
            return Ok(());
        };
        if from != subscription {
            return Ok(());
        }
        if let Some(status) = status(headers) {
            return Err(io::Error::other(format!("the broker ends the subscription: {status}")));
        }
        if let Some(place) = reply.and_then(Place::parse)
            && self.has_had(&place)?
        {
            return Ok(());
        }
        match channel_of(subject) {
            Some(channel) => self.gaps.take(channel, |name| header(headers, name), payload, each),
            None => each(ConsumerEvent::Malformed),
        }
        Ok(())
    }

    /// Whether the message at this place is the last one again; it is the new last one otherwise.
    ///
    /// A broker that has lost its newest messages gives their numbers to others, which would be
    /// skipped by a consumer that goes on behind its last number. How many were lost nobody knows,
    /// so the stream is read from its beginning.
    fn has_had(&mut self, place: &Place) -> io::Result<bool> {
        if place.delivered != self.delivered + 1 {
            return Err(io::Error::other("the broker has left out a message"));
        }
        let is_again = place.stream_seq == self.stream_seq;
        if is_again && place.stored_at != self.stored_at {
            self.stream_seq = 0;
            return Err(io::Error::other("the broker has lost messages, and used their numbers again"));
        }
        (self.stream_seq, self.stored_at, self.delivered) = (place.stream_seq, place.stored_at, place.delivered);
        Ok(is_again)
    }
}

/// The channel of a subject of events: `md.VENUE.CHANNEL.events`.
fn channel_of(subject: &str) -> Option<u16> {
    subject.strip_suffix(".events")?.rsplit('.').next()?.parse().ok()
}

/// What the reply of a message says of it:
/// `$JS.ACK.STREAM.CONSUMER.DELIVERIES.STREAM_SEQ.CONSUMER_SEQ.TIME.PENDING`, in newer brokers with
/// a domain and an account after `ACK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Its number in the stream.
    stream_seq: u64,
    /// Its number on its way to this consumer.
    delivered: u64,
    /// When the broker stored it, in nanoseconds since 1970.
    stored_at: u64,
    /// Messages that are still to come behind this one.
    pending: u64,
}

impl Place {
    fn parse(reply: &str) -> Option<Self> {
        let tokens: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let first = if tokens.len() > 7 { 5 } else { 3 };
        let number = |idx: usize| tokens.get(first + idx)?.parse().ok();
        Some(Self { stream_seq: number(0)?, delivered: number(1)?, stored_at: number(2)?, pending: number(3)? })
    }
}

#[cfg(test)]
mod tests {
    use market::event::{Clear, Event};
    use market_ring::Record;

    use super::*;

    #[test]
    fn place_of_a_message_is_in_its_reply() {
        let place = Place { stream_seq: 40, delivered: 9, stored_at: 1_700_000_000, pending: 3 };
        assert_eq!(Place::parse("$JS.ACK.MD.x7.1.40.9.1700000000.3"), Some(place));
        assert_eq!(Place::parse("$JS.ACK.domain.account.MD.x7.1.40.9.1700000000.3.token"), Some(place));
        assert_eq!(Place::parse("$JS.ACK.MD.x7.1"), None);
        assert_eq!(Place::parse("_INBOX.1"), None);
    }

    #[test]
    fn latest_quotes_are_whole_when_none_is_to_come_however_many_came_twice() {
        let mut latest = LatestQuotes::default();
        for (symbol, bid_qty, pending) in [("A", 1, 1), ("A", 2, 2), ("B", 3, 1), ("C", 4, 0)] {
            assert!(!latest.is_whole);
            let (subject, reply) =
                (format!("md.v.0.quote.{symbol}"), format!("$JS.ACK.MD.x7.1.40.9.1700000000.{pending}"));
            let payload = Quote { bid_qty, ..Quote::default() }.to_bytes();
            let (reply, headers) = (Some(reply.as_str()), &b""[..]);
            latest.take(
                ServerMessage::Message { subject: &subject, subscription: 2, reply, headers, payload: &payload },
                2,
            );
        }
        assert!(latest.is_whole);
        assert_eq!(latest.quotes.values().map(|quote| quote.bid_qty).collect::<Vec<_>>(), [2, 3, 4]);
    }

    /// A message of a scripted stream: when it was stored, its channel, session and one record.
    type Stored = (u64, u16, u64, u64);

    /// What a consumer is told on a new connection to a broker with this stream: channel and number
    /// of records, `u64::MAX` for a restart. An error where it must connect again.
    fn connect(position: &mut Position, stream: &[Stored]) -> io::Result<Vec<(u16, u64)>> {
        position.resume(&json!({ "created": "1", "state": { "last_seq": stream.len() } }));
        let (mut told, start) = (Vec::new(), position.start_seq());
        let mut each = |event| match event {
            ConsumerEvent::Record(seq, record) => told.push((record.channel, seq)),
            ConsumerEvent::Restart { channel } => told.push((channel, u64::MAX)),
            other => panic!("{other:?}"),
        };
        for (stream_seq, &(at, channel, session, seq)) in (1_u64..).zip(stream).skip(start as usize - 1) {
            let reply = format!("$JS.ACK.MD.x.1.{stream_seq}.{}.{at}.0", stream_seq + 1 - start);
            let headers = format!("NATS/1.0\r\nWp-Session: {session}\r\nWp-Covers: {seq}-{seq}\r\nWp-End: 1\r\n\r\n");
            let record = Record { channel, ..Record::new(0, Event::Clear(Clear { at_ns: 0 })) };
            let payload = [&seq.to_le_bytes()[..], &record.to_bytes()].concat();
            let (subject, reply) = (format!("md.v.{channel}.events"), Some(reply.as_str()));
            let (headers, payload) = (headers.as_bytes(), &payload[..]);
            position.take(
                ServerMessage::Message { subject: &subject, subscription: 2, reply, headers, payload },
                2,
                &mut each,
            )?;
        }
        Ok(told)
    }

    #[test]
    fn numbers_that_a_broker_lost_and_gave_to_other_batches_are_read_again() {
        let mut position = Position::default();
        let before = [(10, 0, 1, 0), (11, 0, 2, 0), (12, 0, 2, 1), (13, 0, 2, 2)];
        assert_eq!(connect(&mut position, &before).unwrap(), [(0, 0), (0, u64::MAX), (0, 0), (0, 1), (0, 2)]);
        assert_eq!(connect(&mut position, &before).unwrap(), []);
        // The last two are lost, two publishers send, and that of channel 0 repeats what it keeps.
        let after = [before[0], before[1], (20, 1, 7, 0), (21, 0, 2, 1), (22, 1, 7, 1), (23, 0, 2, 2), (24, 0, 2, 3)];
        assert!(connect(&mut position, &after).is_err());
        assert_eq!(connect(&mut position, &after).unwrap(), [(1, 0), (1, 1), (0, 3)]);
        // The broker has fewer than were read.
        let fewer = [before[0], (30, 1, 7, 2)];
        assert_eq!(connect(&mut position, &fewer).unwrap(), [(1, 2)]);
    }

    /// A broker on another machine, or whose time was set right.
    #[test]
    fn session_that_begins_while_the_brokers_clock_has_stepped_back_is_followed() {
        let mut position = Position::default();
        let before = [(20, 0, 1, 0), (21, 0, 2, 0)];
        assert_eq!(connect(&mut position, &before).unwrap(), [(0, 0), (0, u64::MAX), (0, 0)]);
        let after = [before[0], before[1], (10, 0, 3, 0), (11, 0, 3, 1)];
        assert_eq!(connect(&mut position, &after).unwrap(), [(0, u64::MAX), (0, 0), (0, 1)]);
        // It has lost the last two, and has a session behind them that nobody has read.
        let lost = [before[0], before[1], (9, 0, 4, 0)];
        assert_eq!(connect(&mut position, &lost).unwrap(), [(0, u64::MAX), (0, 0)]);
    }

    #[test]
    fn stream_that_was_made_anew_is_read_from_its_beginning() {
        let mut position = Position { created: "1".into(), stream_seq: 40, ..Position::default() };
        position.resume(&json!({ "created": "2", "state": { "last_seq": 50 } }));
        assert_eq!(position.start_seq(), 1);
    }

    #[test]
    fn message_left_out_or_a_status_is_an_error_and_no_record() {
        let message = |headers, reply| ServerMessage::Message {
            subject: "md.x.0.events",
            subscription: 2,
            reply: Some(reply),
            headers,
            payload: b"",
        };
        let mut position = Position::default();
        let mut take = |told| position.take(told, 2, &mut |event| panic!("{event:?}"));
        let batch = b"NATS/1.0\r\nWp-Session: 1\r\nWp-Covers: 0-0\r\n\r\n";
        assert!(take(message(batch, "$JS.ACK.MD.x.1.40.1.0.0")).is_ok());
        assert!(take(message(batch, "$JS.ACK.MD.x.1.42.3.0.0")).is_err());
        assert!(take(message(b"NATS/1.0 409 Consumer Deleted\r\n\r\n", "$JS.ACK.MD.x.1.41.2.0.0")).is_err());
    }
}
