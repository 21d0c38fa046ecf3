//! The program of a gateway: a ring to a broker, until the ring ends or Ctrl-C.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use market_ring::{OpenError, RingReader};
use wirepath::counters::printable;
use wirepath::worker::StopFlag;

use crate::publisher::{Broker, Publisher, PublisherConfig};
use crate::source::Turn;

/// How long to sleep when nothing came.
const IDLE: Duration = Duration::from_micros(100);
/// How long the broker may take to acknowledge the last batches after Ctrl-C.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// A word that a topic or a subject may have in it.
///
/// # Errors
/// A sentence for the command line.
pub fn parse_word(text: &str) -> Result<String, String> {
    let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_word { Ok(text.to_owned()) } else { Err("use letters, digits, - and _".to_owned()) }
}

/// Publishes the ring at `path` until it ends, or until Ctrl-C; with `follow` each next ring of the
/// name too. Speaks on standard error as the program `name`, and prints the counts of each ring.
/// Exit code 0: the ring ended, or Ctrl-C, and all is acknowledged; 1: something failed, or the
/// ring's writer was killed.
pub fn run<B: Broker>(name: &str, path: &Path, follow: bool, broker: B, config: PublisherConfig) -> ExitCode {
    let mut outages = Outages { name, told: None };
    publish(path, follow, broker, config, &mut outages).unwrap_or_else(|sentence| {
        outages.say(&sentence);
        ExitCode::FAILURE
    })
}

fn publish<B: Broker>(
    path: &Path,
    follow: bool,
    broker: B,
    config: PublisherConfig,
    outages: &mut Outages<'_>,
) -> Result<ExitCode, String> {
    let stop = StopFlag::on_signals().map_err(|error| error.to_string())?;
    let name = outages.name;
    let waiting = |error: &OpenError| say(name, &format!("{error}; waiting"));
    let open = |before| {
        let opened = RingReader::wait(path, before, || stop.is_stopping(), waiting);
        opened.map_err(|error| error.to_string())
    };
    let Some(ring) = open(None)? else { return Ok(ExitCode::SUCCESS) };
    let mut publisher = Publisher::new(broker, config, ring);
    loop {
        let end = publish_ring(&mut publisher, outages, &stop)?;
        if end.is_none() {
            flush(&mut publisher, outages);
        }
        println!("{}", publisher.counts());
        if end == Some(Turn::WriterGone) {
            outages.say(&format!("the writer of {} was killed", path.display()));
        }
        let is_well = match end {
            None => publisher.waiting() == 0,
            Some(end) => end == Turn::Ended,
        };
        if !follow || end.is_none() {
            return Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        let Some(ring) = open(Some(publisher.session()))? else { return Ok(ExitCode::SUCCESS) };
        publisher.follow(ring);
    }
}

/// Publishes a ring to its end; `None` where it was stopped before.
fn publish_ring<B: Broker>(
    publisher: &mut Publisher<B>,
    outages: &mut Outages<'_>,
    stop: &StopFlag,
) -> Result<Option<Turn>, String> {
    while !stop.is_stopping() {
        match publisher.turn().map_err(|stopped| stopped.to_string())? {
            Turn::Busy => (),
            Turn::Idle => thread::sleep(IDLE),
            end @ (Turn::Ended | Turn::WriterGone) => return Ok(Some(end)),
        }
        outages.tell(publisher);
    }
    Ok(None)
}

/// What was read is sent and acknowledged before the program ends, as far as the broker is there.
fn flush<B: Broker>(publisher: &mut Publisher<B>, outages: &mut Outages<'_>) {
    let until = Instant::now() + FLUSH_MAX;
    while !publisher.flush() && publisher.why_down().is_none() && Instant::now() < until {
        thread::sleep(IDLE);
    }
    outages.tell(publisher);
    if publisher.waiting() > 0 {
        outages
            .say(&format!("{} batches are not acknowledged; the ring keeps them while it lasts", publisher.waiting()));
    }
}

/// What an operator was told of the connection last.
struct Outages<'a> {
    /// The program's.
    name: &'a str,
    /// Why there was none, where there was none; `None` before the first word.
    told: Option<Option<String>>,
}

impl Outages<'_> {
    fn tell<B: Broker>(&mut self, publisher: &Publisher<B>) {
        let why = publisher.why_down();
        let is_first_attempt = why.is_none() && publisher.counts().connections == 0;
        if !is_first_attempt && self.told.as_ref().is_none_or(|told| told.as_deref() != why) {
            self.say(why.unwrap_or("connected"));
            self.told = Some(why.map(str::to_owned));
        }
    }

    fn say(&self, sentence: &str) {
        say(self.name, sentence);
    }
}

fn say(name: &str, sentence: &str) {
    eprintln!("{name}: {}", printable(sentence));
}
