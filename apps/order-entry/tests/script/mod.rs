//! Plays scripts: what a session is told, what it must answer.
//!
//! ```text
//! machine NAME KEY=VALUE …    the machine, its first line; a later one begins anew
//! at 1.5s                     the clock moves there; tick is called at each deadline on the way
//! do VERB ARGUMENTS           a call of the application
//! in BYTES                    bytes arrive
//! out BYTES                   these bytes were written since the last stimulus
//! event TEXT                  this event happened since the last stimulus
//! error TEXT                  a call failed since the last stimulus; the text begins so
//! ```
//! BYTES are `"text"`, hexadecimal bytes, `be32:7` or `le16:7` numbers, `00*20` repeated bytes, and
//! `[ … ]`, bytes with their length in two bytes, big endian, in front. A stimulus is `at`, `do` or
//! `in`: before the next one, and at the end, all that was written and happened must have been
//! expected. Each script is played with the arriving bytes whole, byte by byte, and three by three.

pub(crate) mod boe;
mod bytes;
pub(crate) mod ilink3;
pub(crate) mod soupbin;

use std::fmt::Write as _;
use std::path::Path;

use order_entry::session::Output;

/// A session under test, its events and errors as text.
pub(crate) trait Machine {
    /// A call of the application.
    fn act(&mut self, now_ns: u64, words: &[&str], output: &mut Output<'_>) -> Result<(), String>;
    /// One event of the input.
    fn receive(&mut self, now_ns: u64, input: &mut &[u8], output: &mut Output<'_>) -> Result<Option<String>, String>;
    /// The clock moved.
    fn tick(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), String>;
    /// When the clock matters next.
    fn deadline_ns(&self) -> Option<u64>;
}

/// Plays every script of a folder, and reports all that fail.
pub(crate) fn check_folder(folder: &str, machine: fn(&[&str]) -> Box<dyn Machine>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(folder);
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no script in {}", folder.display());
    let mut failures = String::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        for cut in [usize::MAX, 1, 3] {
            if let Err(failure) = play(&text, cut, machine) {
                writeln!(failures, "{} (cut {cut}): {failure}", path.display()).unwrap();
                break;
            }
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

struct Player {
    machine: Box<dyn Machine>,
    now_ns: u64,
    cut: usize,
    written: Vec<u8>,
    happened: Vec<String>,
}

fn play(text: &str, cut: usize, machine: fn(&[&str]) -> Box<dyn Machine>) -> Result<(), String> {
    let mut player: Option<Player> = None;
    for (idx, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let at_line = |failure: String| format!("line {}: {line}\n    {failure}", idx + 1);
        if verb == "machine" {
            let words: Vec<_> = rest.split_whitespace().collect();
            if let Some(before) = &player {
                before.nothing_left().map_err(at_line)?;
            }
            player =
                Some(Player { machine: machine(&words), now_ns: 0, cut, written: Vec::new(), happened: Vec::new() });
            continue;
        }
        let player = player.as_mut().ok_or("the first line is not a machine")?;
        player.step(verb, rest.trim()).map_err(at_line)?;
    }
    player.ok_or("no machine")?.nothing_left().map_err(|failure| format!("at the end: {failure}"))
}

impl Player {
    fn step(&mut self, verb: &str, rest: &str) -> Result<(), String> {
        match verb {
            "at" | "do" | "in" => {
                self.nothing_left()?;
                self.stimulate(verb, rest)
            }
            "out" => {
                let expected = bytes::parse(rest)?;
                match self.written.strip_prefix(&expected[..]) {
                    Some(left) => self.written = left.to_vec(),
                    None => return Err(format!("instead: {}", bytes::show(&self.written))),
                }
                Ok(())
            }
            "event" => self.take_first(|first| first.trim_end() == rest),
            "error" => self.take_first(|first| first.starts_with(&format!("error {rest}"))),
            _ => Err("no such verb".into()),
        }
    }

    fn take_first(&mut self, is_expected: impl Fn(&str) -> bool) -> Result<(), String> {
        match self.happened.first() {
            Some(first) if is_expected(first) => {
                self.happened.remove(0);
                Ok(())
            }
            first => Err(format!("instead: {first:?}")),
        }
    }

    fn stimulate(&mut self, verb: &str, rest: &str) -> Result<(), String> {
        let mut buffer = vec![0; 70_000];
        let mut output = Output::new(&mut buffer);
        match verb {
            "at" => {
                let to_ns = parse_time(rest)?;
                while let Some(deadline_ns) = self.machine.deadline_ns().filter(|&deadline_ns| deadline_ns < to_ns) {
                    self.now_ns = deadline_ns;
                    let result = self.machine.tick(deadline_ns, &mut output);
                    note(&mut self.happened, result);
                }
                self.now_ns = to_ns;
                let result = self.machine.tick(to_ns, &mut output);
                note(&mut self.happened, result);
            }
            "do" => {
                let words: Vec<_> = rest.split_whitespace().collect();
                let result = self.machine.act(self.now_ns, &words, &mut output);
                note(&mut self.happened, result);
            }
            _ => self.receive(&bytes::parse(rest)?, &mut output),
        }
        self.written.extend_from_slice(output.written());
        Ok(())
    }

    fn receive(&mut self, arrived: &[u8], output: &mut Output<'_>) {
        for mut input in arrived.chunks(self.cut.min(arrived.len().max(1))) {
            loop {
                match self.machine.receive(self.now_ns, &mut input, output) {
                    Ok(Some(event)) => self.happened.push(event),
                    Ok(None) => break,
                    Err(error) => {
                        self.happened.push(format!("error {error}"));
                        return;
                    }
                }
            }
        }
    }

    fn nothing_left(&self) -> Result<(), String> {
        if !self.written.is_empty() {
            return Err(format!("unexpected output: {}", bytes::show(&self.written)));
        }
        match self.happened.first() {
            Some(first) => Err(format!("unexpected event: {first}")),
            None => Ok(()),
        }
    }
}

fn note(happened: &mut Vec<String>, result: Result<(), String>) {
    if let Err(error) = result {
        happened.push(format!("error {error}"));
    }
}

fn parse_time(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is no time such as 1.5s");
    let (whole, fraction) =
        text.strip_suffix('s').ok_or_else(bad)?.split_once('.').unwrap_or((&text[..text.len() - 1], ""));
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    let fraction: u64 = format!("{fraction:0<9}").parse().map_err(|_| bad())?;
    Ok(whole * 1_000_000_000 + fraction)
}
