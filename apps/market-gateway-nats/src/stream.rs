//! The streams that a publisher wants to exist, and requests to JetStream.

use std::io;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::connection::Connection;
use crate::wire::ServerMessage;

/// How long JetStream may take to answer: after a start it reads its files first.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks JetStream, and waits for the answer. What else comes meanwhile is shown to `other`.
pub(crate) fn request(
    connection: &mut Connection,
    api: &str,
    body: &Value,
    mut other: impl FnMut(ServerMessage<'_>),
) -> io::Result<Value> {
    let inbox = connection.open_inbox();
    connection.publish(&format!("$JS.API.{api}"), &inbox.subject, &[], body.to_string().as_bytes());
    connection.write_queued()?;
    let until = Instant::now() + PATIENCE;
    let mut answer = None;
    while answer.is_none() && Instant::now() < until {
        connection.poll(Duration::from_millis(100), |told| match told {
            ServerMessage::Message { subscription, payload, .. } if subscription == inbox.subscription => {
                answer = Some(serde_json::from_slice(payload).unwrap_or(Value::Null));
            }
            told => other(told),
        })?;
    }
    let answer =
        answer.ok_or_else(|| io::Error::other("JetStream does not answer: is the server started with -js?"))?;
    match &answer["error"]["description"] {
        Value::String(sentence) => Err(io::Error::other(format!("JetStream refuses {api}: {sentence}"))),
        _ if answer.is_null() => Err(io::Error::other("JetStream is not ready: start the server with -js")),
        _ => Ok(answer),
    }
}

/// Makes the stream of events, and that of the latest quotes, which keeps one a subject.
pub(crate) fn create(connection: &mut Connection, name: &str, venue: &str, bytes_max: i64) -> io::Result<()> {
    let stream = |name: &str, subject: String, per_subject: i64| {
        json!({
            "name": name, "subjects": [subject], "retention": "limits", "discard": "old", "storage": "file",
            "max_consumers": -1, "max_msgs": -1, "max_bytes": bytes_max, "max_age": 0,
            "max_msgs_per_subject": per_subject, "num_replicas": 1, "duplicate_window": 120_000_000_000_i64,
        })
    };
    let quotes = format!("{name}-quotes");
    request(connection, &format!("STREAM.CREATE.{name}"), &stream(name, format!("md.{venue}.*.events"), -1), |_| ())?;
    request(
        connection,
        &format!("STREAM.CREATE.{quotes}"),
        &stream(&quotes, format!("md.{venue}.*.quote.*"), 1),
        |_| (),
    )?;
    Ok(())
}
