//! A server for `iperf3`, as far as a client needs one: a control connection with states of one
//! byte and parameters in JSON, and streams that begin with the same cookie (`iperf_api.h` and
//! `iperf_server_api.c` of iperf 3).

use std::collections::HashMap;

use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::ConnectionId;

use super::traffic::{Plan, Server};

/// Bytes of the cookie, with the zero at its end.
const COOKIE_LEN: usize = 37;

const TEST_START: u8 = 1;
const TEST_RUNNING: u8 = 2;
const TEST_END: u8 = 4;
const PARAM_EXCHANGE: u8 = 9;
const CREATE_STREAMS: u8 = 10;
const EXCHANGE_RESULTS: u8 = 13;
const DISPLAY_RESULTS: u8 = 14;

/// The next message on the control connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Parameters,
    End,
    Results,
    Done,
}

/// One test at a time.
#[derive(Debug, Default)]
pub struct Iperf3 {
    control: Option<ConnectionId>,
    step: Step,
    /// The unread bytes of the control connection, and of streams that have not sent their cookie
    /// yet.
    unread: HashMap<ConnectionId, Vec<u8>>,
    /// Whether we send.
    is_reverse: bool,
    /// Streams that the client opens, and those that it has opened.
    wanted: usize,
    streams: Vec<(ConnectionId, u64)>,
}

impl Iperf3 {
    /// For [`Traffic::server`](super::Traffic::server).
    pub fn into_server(mut self) -> Server {
        Box::new(move |id, bytes, cx| self.take(id, bytes, cx))
    }

    fn take(&mut self, id: ConnectionId, bytes: &[u8], cx: &mut Cx<'_>) -> Option<Plan> {
        if let Some((_, count)) = self.streams.iter_mut().find(|(stream, _)| *stream == id) {
            *count += bytes.len() as u64;
            return None;
        }
        let unread = self.unread.entry(id).or_default();
        unread.extend_from_slice(bytes);
        match self.control {
            Some(control) if control == id => {
                self.take_control(id, cx);
                None
            }
            Some(_) if unread.len() >= COOKIE_LEN => self.take_stream(id, cx),
            None if unread.len() >= COOKIE_LEN => {
                unread.drain(..COOKIE_LEN);
                self.control = Some(id);
                say(id, &[PARAM_EXCHANGE], cx);
                None
            }
            _ => None,
        }
    }

    fn take_stream(&mut self, id: ConnectionId, cx: &mut Cx<'_>) -> Option<Plan> {
        let early = self.unread.remove(&id).map_or(0, |unread| unread.len() - COOKIE_LEN);
        self.streams.push((id, early as u64));
        if self.streams.len() == self.wanted {
            say(self.control?, &[TEST_START, TEST_RUNNING], cx);
        }
        // Until the client has enough and closes.
        self.is_reverse.then_some(Plan { stays: true, ..Plan::send(u64::MAX) })
    }

    fn take_control(&mut self, id: ConnectionId, cx: &mut Cx<'_>) {
        let Some(mut unread) = self.unread.remove(&id) else { return };
        while let Some(len) = self.take_message(id, &unread, cx) {
            unread.drain(..len);
        }
        self.unread.insert(id, unread);
    }

    /// Takes one message; returns its length, or None if it is incomplete.
    fn take_message(&mut self, id: ConnectionId, bytes: &[u8], cx: &mut Cx<'_>) -> Option<usize> {
        match self.step {
            Step::Parameters => {
                let (text, len) = json(bytes)?;
                self.is_reverse = text.contains("\"reverse\":");
                self.wanted = number(&text, "\"parallel\":").unwrap_or(1);
                self.step = Step::End;
                say(id, &[CREATE_STREAMS], cx);
                Some(len)
            }
            Step::End => {
                if *bytes.first()? == TEST_END {
                    self.step = Step::Results;
                    say(id, &[EXCHANGE_RESULTS], cx);
                }
                Some(1)
            }
            Step::Results => {
                let (_, len) = json(bytes)?;
                self.step = Step::Done;
                let results = self.results(cx);
                say(id, &(results.len() as u32).to_be_bytes(), cx);
                say(id, results.as_bytes(), cx);
                say(id, &[DISPLAY_RESULTS], cx);
                Some(len)
            }
            Step::Done => (!bytes.is_empty()).then_some(bytes.len()),
        }
    }

    fn results(&self, cx: &mut Cx<'_>) -> String {
        let streams = (1..).zip(&self.streams).map(|(number, (id, received))| {
            // The client numbers its streams 1, 3, 4, 5.
            let number = if number == 1 { 1 } else { number + 1 };
            let sent = cx.tcp().info(*id).map_or(0, |info| info.bytes_acked);
            let bytes = if self.is_reverse { sent } else { *received };
            format!(
                "{{\"id\":{number},\"bytes\":{bytes},\"retransmits\":-1,\"jitter\":0,\"errors\":0,\"packets\":0,\
                 \"start_time\":0,\"end_time\":1}}"
            )
        });
        format!(
            "{{\"cpu_util_total\":0,\"cpu_util_user\":0,\"cpu_util_system\":0,\"sender_has_retransmits\":0,\"streams\":[{}]}}",
            streams.collect::<Vec<_>>().join(",")
        )
    }
}

/// Few bytes on a connection that has sent little: there is room.
fn say(id: ConnectionId, bytes: &[u8], cx: &mut Cx<'_>) {
    let said = cx.tcp().send(id, bytes);
    assert_eq!(said, Ok(bytes.len()), "the control connection takes what we say");
}

/// JSON with its length before it in four bytes; says how long both are.
fn json(bytes: &[u8]) -> Option<(String, usize)> {
    let len = u32::from_be_bytes(*bytes.first_chunk()?) as usize;
    let text = bytes.get(4..4 + len)?;
    Some((String::from_utf8_lossy(text).into_owned(), 4 + len))
}

fn number(text: &str, name: &str) -> Option<usize> {
    let after = text.split(name).nth(1)?;
    after.trim_start().split(|char: char| !char.is_ascii_digit()).next()?.parse().ok()
}
