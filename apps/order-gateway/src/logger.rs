//! What people are told, written by a thread of its own: whoever reads it may stand still, or have
//! gone, and the thread that trades waits for nobody.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use wirepath::counters::printable;
use wirepath::worker::affinity::spawn_helper;

/// Sentences that wait. A day has some hundred of them; a reader who lacks more has lost them.
const SENTENCES: usize = 1_024;
/// Places of these that alarms leave to what else is said.
const KEPT: usize = 64;
/// How often it is looked whether all are written.
const FLUSH_PAUSE: Duration = Duration::from_millis(1);

/// Gives sentences to the thread that writes them. Clones give them to the same one, which lives
/// until the last of them is dropped.
#[derive(Clone, Debug)]
pub struct Logger {
    prefix: &'static str,
    texts: SyncSender<Text>,
    shared: Arc<Shared>,
}

/// What is to be written.
enum Text {
    Made(String),
    /// The thread that writes makes it: what takes longer than the one that says it may wait.
    Late(Box<dyn FnOnce() -> String + Send>),
}

#[derive(Debug, Default)]
struct Shared {
    /// Texts that wait, with the one that is being written.
    waiting: AtomicU64,
    /// Texts that found no room, or that the output did not take.
    lost: AtomicU64,
}

impl Logger {
    /// Starts the thread that writes to `out`, each sentence behind `prefix`.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn start(prefix: &'static str, out: impl Write + Send + 'static) -> io::Result<Self> {
        let (texts, receiver) = sync_channel(SENTENCES);
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        spawn_helper(thread::Builder::new().name("logger".into()), move || write(prefix, &receiver, out, &theirs))?;
        Ok(Self { prefix, texts, shared })
    }

    /// Has a sentence written soon, as a line in which nothing obeys a terminal. Where so many wait
    /// that there is no room, it is lost and counted. Allocates, and waits for nobody.
    pub fn say(&self, sentence: &str) {
        self.write(format!("{}{}\n", self.prefix, printable(sentence)));
    }

    /// The same with lines that are written as they are.
    pub fn write(&self, lines: String) {
        self.send(Text::Made(lines));
    }

    /// The same with what `make` returns on the thread that writes.
    pub fn write_late(&self, make: impl FnOnce() -> String + Send + 'static) {
        self.send(Text::Late(Box::new(make)));
    }

    fn send(&self, text: Text) {
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        if self.texts.try_send(text).is_err() {
            self.shared.lost.fetch_add(1, Ordering::AcqRel);
            self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether an alarm finds room that is not kept for what else is said. One that does not is
    /// lost, and counted.
    pub fn admits_alarm(&self) -> bool {
        let admits = self.shared.waiting.load(Ordering::Acquire) < (SENTENCES - KEPT) as u64;
        if !admits {
            self.shared.lost.fetch_add(1, Ordering::AcqRel);
        }
        admits
    }

    /// Waits until all is written, or lost, and at most so long. Whether nothing waits any more.
    pub fn flush(&self, within: Duration) -> bool {
        let end = Instant::now() + within;
        while self.shared.waiting.load(Ordering::Acquire) > 0 {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(FLUSH_PAUSE);
        }
        true
    }

    /// What is missing, in words for people.
    pub fn losses(&self) -> Option<String> {
        let lost = self.shared.lost.load(Ordering::Acquire);
        (lost > 0).then(|| missing(lost))
    }
}

fn missing(count: u64) -> String {
    format!("{count} sentences for people were lost")
}

/// Writes each text whole, and behind lost ones how many they were.
fn write(prefix: &str, texts: &Receiver<Text>, mut out: impl Write, shared: &Shared) {
    let mut told = 0;
    for text in texts {
        let lost = shared.lost.load(Ordering::Acquire);
        if lost > told && put(&mut out, &format!("{prefix}{}\n", missing(lost - told))).is_ok() {
            told = lost;
        }
        let text = match text {
            Text::Made(text) => text,
            Text::Late(make) => make(),
        };
        if put(&mut out, &text).is_err() {
            shared.lost.fetch_add(1, Ordering::AcqRel);
        }
        shared.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

fn put(out: &mut impl Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read, pipe};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// One that says how often it was called, and then waits until it is let go.
    struct Stalled {
        begun: SyncSender<()>,
        go_on: PipeReader,
    }

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // A test that has seen enough listens no more.
            let _ = self.begun.send(());
            let _ = self.go_on.read(&mut [0; 1]);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn sentences_that_find_no_room_are_counted_and_nobody_waits() {
        let (begun, has_begun) = sync_channel(8);
        let (go_on, let_go) = pipe().unwrap();
        let logger = Logger::start("gateway: ", Stalled { begun, go_on }).unwrap();
        logger.say("first");
        has_begun.recv().unwrap();
        (0..SENTENCES).for_each(|_| logger.say("more"));
        assert_eq!(logger.losses(), None);
        (0..3).for_each(|_| logger.say("too many"));
        assert_eq!(logger.losses().unwrap(), "3 sentences for people were lost");
        assert!(!logger.flush(Duration::ZERO));
        drop((let_go, has_begun));
        assert!(logger.flush(PATIENCE));
    }

    #[test]
    fn output_says_how_many_sentences_it_lacks_and_ends_each_in_a_line_that_obeys_no_terminal() {
        let (mut reader, writer) = pipe().unwrap();
        let logger = Logger::start("gateway: ", writer).unwrap();
        logger.shared.lost.fetch_add(2, Ordering::AcqRel);
        logger.say("one\u{1b}[2J\ntwo");
        assert!(logger.flush(PATIENCE));
        drop(logger);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text:?}");
        assert_eq!(lines[0], "gateway: 2 sentences for people were lost");
        assert!(lines[1].starts_with("gateway: one") && !lines[1].contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn output_that_takes_nothing_loses_what_it_was_given() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let logger = Logger::start("", writer).unwrap();
        logger.say("nobody reads it");
        assert!(logger.flush(PATIENCE));
        assert_eq!(logger.losses().unwrap(), "1 sentences for people were lost");
    }
}
