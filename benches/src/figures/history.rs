//! The history: a line of JSON for each run, oldest first. People edit and merge this file, so each
//! line is checked before it is used, and an error names its line.

use std::collections::HashSet;
use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::Section;
use crate::measure::table::Promise;

/// One run of the report: its time, commit, machine and figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// UTC, as `2026-11-23T10:30:00Z`.
    pub date: String,
    /// The commit's first digits, and a `+` where the tree had uncommitted changes.
    pub commit: String,
    /// The machine.
    pub machine: Machine,
    /// The figures; skipped ones are not among them.
    pub figures: Vec<Figure>,
}

/// The properties of a machine that figures depend on, as far as they can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// The number of cores.
    pub cores: usize,
    /// The release of the kernel.
    pub kernel: String,
}

/// One figure of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its section on the page.
    pub section: Section,
    /// The figure that it belongs to, as instructions belong to a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// A description of the figure. With `of` and `section` this is the figure's name, the same in
    /// each run.
    pub what: String,
    /// The unit, such as `ns`.
    pub unit: String,
    /// Half of the samples are below.
    pub median: f64,
    /// The lowest sample.
    pub min: f64,
    /// The highest sample.
    pub max: f64,
    /// The promise at the time of the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<Promise>,
    /// The cost in plain C without a framework, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<f64>,
}

impl Figure {
    /// The name that identifies the figure across runs.
    pub(super) fn name(&self) -> (Section, Option<&str>, &str) {
        (self.section, self.of.as_deref(), &self.what)
    }

    /// The figure above it on the page: the one that it belongs to, or itself.
    pub(super) fn head(&self) -> &str {
        self.of.as_deref().unwrap_or(&self.what)
    }
}

/// All runs, oldest first, each of them checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    runs: Vec<Run>,
}

impl History {
    /// Reads a file; a missing one is a history without runs.
    pub fn read(path: &Path) -> Result<Self, String> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|why| {
                format!(
                    "{}, {why}; mend the line, or take it out: a history that is broken is left alone",
                    path.display()
                )
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{} cannot be read: {error}; restore it from git", path.display())),
        }
    }

    /// Parses the history's text. The error names the line and the mistake, without control
    /// characters.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut runs = Vec::new();
        for (idx, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let run = serde_json::from_str(line);
            // The parser reports each line as the first.
            let run = run.map_err(|error| error.to_string().replace("at line 1 column", "at column"));
            let run = run.and_then(|run: Run| check(&run).map(|()| run));
            runs.push(run.map_err(|why| format!("line {}: {}", idx + 1, why.replace(char::is_control, "?")))?);
        }
        // Merged branches add theirs in any order.
        runs.sort_by(|a, b| a.date.cmp(&b.date));
        Ok(Self { runs })
    }

    /// All runs, oldest first.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The latest figures of a section, each with the index of its run, in the order of the page:
    /// first those of the run that has most of them, in its order, then the figures that it lacks.
    /// Parts of a figure follow the figure.
    pub(super) fn latest(&self, section: Section) -> Vec<(&Figure, usize)> {
        let of_run = |run: usize| {
            let figures = self.runs[run].figures.iter().filter(move |figure| figure.section == section);
            figures.map(move |figure| (figure, run))
        };
        let newest_first = || (0..self.runs.len()).rev();
        // `min_by_key` takes the first of equals: the newest.
        let fullest = newest_first().min_by_key(|&run| core::cmp::Reverse(of_run(run).count()));
        let mut names = Vec::new();
        for (figure, _) in fullest.into_iter().chain(newest_first()).flat_map(of_run) {
            if !names.contains(&figure.name()) {
                names.push(figure.name());
            }
        }
        let mut heads = Vec::new();
        for &(_, of, what) in &names {
            let head = of.unwrap_or(what);
            if !heads.contains(&head) {
                heads.push(head);
            }
        }
        names.sort_by_key(|&(_, of, what)| (heads.iter().position(|&head| head == of.unwrap_or(what)), of.is_some()));
        let last = |name| newest_first().flat_map(of_run).find(|(figure, _)| figure.name() == name);
        names.into_iter().filter_map(last).collect()
    }
}

/// A run as a line of the file, if it passes the checks of the file's lines.
pub(super) fn line(run: &Run) -> Result<String, String> {
    let line = check(run).and_then(|()| serde_json::to_string(run).map_err(|error| error.to_string()));
    line.map_err(|why| format!("this run cannot be recorded: {why}"))
}

/// Whether the page and the plots can show a run. The error is half a sentence.
fn check(run: &Run) -> Result<(), String> {
    if !is_date(&run.date) {
        return Err(format!("`{}` is no date such as 2026-11-23T10:30:00Z", run.date));
    }
    let digits = run.commit.strip_suffix('+').unwrap_or(&run.commit);
    if !(7..=40).contains(&digits.len()) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(format!("`{}` is no commit: 7 to 40 hexadecimal digits, and a + for changes", run.commit));
    }
    for text in [&run.machine.cpu, &run.machine.kernel] {
        check_text(text, 100)?;
    }
    let mut names = HashSet::new();
    for figure in &run.figures {
        check_figure(figure)?;
        if !names.insert(figure.name()) {
            return Err(format!("`{}` of `{}` is there twice", figure.what, figure.head()));
        }
    }
    Ok(())
}

fn check_figure(figure: &Figure) -> Result<(), String> {
    for text in figure.of.iter().chain([&figure.what]) {
        check_text(text, 150)?;
    }
    check_text(&figure.unit, 12)?;
    let Figure { median, min, max, .. } = *figure;
    let promised = figure.promise.into_iter().flat_map(|promise| [Some(promise.must), promise.hope]).flatten();
    let mut all = promised.chain(figure.floor).chain([median, max]);
    // The lowest sample of a difference may be below zero: what the machine did meanwhile.
    let is_low = (-1e15..1e15).contains(&min);
    if !all.all(|value| (0.0..1e15).contains(&value)) || !is_low || !(min..=max).contains(&median) {
        return Err(format!("`{}` is {median} of {min} to {max}: no figure that was measured", figure.what));
    }
    Ok(())
}

fn check_text(text: &str, len_max: usize) -> Result<(), String> {
    if text.trim() != text || text.is_empty() || text.len() > len_max || text.contains(char::is_control) {
        let shown: String = text.chars().take(40).collect();
        return Err(format!("`{shown}` is no name: 1 to {len_max} bytes that can be printed, no space around them"));
    }
    Ok(())
}

/// Whether a text looks like `2026-11-23T10:30:00Z`; of dates in the same form the later is the
/// greater text.
fn is_date(text: &str) -> bool {
    let form = b"0000-00-00T00:00:00Z";
    let fits = |(byte, form): (u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == *form };
    text.len() == form.len()
        && text.bytes().zip(form).all(fits)
        && ("01".."13").contains(&&text[5..7])
        && ("01".."32").contains(&&text[8..10])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::table::Bound;

    fn figure(of: Option<&str>, what: &str, median: f64) -> Figure {
        Figure {
            section: Section::Memory,
            of: of.map(str::to_owned),
            what: what.to_owned(),
            unit: "ns".to_owned(),
            median,
            min: median,
            max: median,
            promise: Some(Promise { bound: Bound::AtMost, must: 18.0, hope: None }),
            floor: None,
        }
    }

    fn run(day: u32, figures: &[Figure]) -> Run {
        Run {
            date: format!("2026-11-{day:02}T10:30:00Z"),
            commit: "cfb19a6".to_owned(),
            machine: Machine { cpu: "a CPU".to_owned(), cores: 2, kernel: "6.18.5".to_owned() },
            figures: figures.to_vec(),
        }
    }

    fn history(runs: &[Run]) -> History {
        let text: String = runs.iter().map(|run| serde_json::to_string(run).expect("it has no maps") + "\n").collect();
        History::parse(&text).expect("it is sound")
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (first, second) = (run(1, &[figure(None, "udp", 9.3)]), run(2, &[figure(Some("udp"), "burst 1", 17.5)]));
        let lines = [&first, &second].map(|run| line(run).expect("it is sound"));
        assert_eq!(History::parse(&lines.join("\n")).expect("it is sound").runs(), [first, second]);
    }

    #[test]
    fn figure_that_a_run_has_not_keeps_its_last_row() {
        let runs = [
            run(1, &[figure(None, "udp", 9.3), figure(Some("udp"), "burst 1", 17.5), figure(None, "forward", 66.0)]),
            run(2, &[figure(None, "forward", 65.0)]),
        ];
        let history = history(&runs);
        let found: Vec<_> =
            history.latest(Section::Memory).iter().map(|(figure, run)| (&*figure.what, figure.median, *run)).collect();
        assert_eq!(found, [("udp", 9.3, 0), ("burst 1", 17.5, 0), ("forward", 65.0, 1)]);
        assert_eq!(history.latest(Section::Tcp), []);
    }

    #[test]
    fn what_belongs_to_a_figure_follows_it_wherever_it_was_measured() {
        let history = history(&[
            run(1, &[figure(None, "udp", 9.3), figure(None, "forward", 66.0)]),
            run(2, &[figure(Some("udp"), "instructions", 219.0)]),
        ]);
        let found: Vec<_> = history.latest(Section::Memory).iter().map(|(figure, _)| &*figure.what).collect();
        assert_eq!(found, ["udp", "instructions", "forward"]);
    }

    #[test]
    fn runs_are_in_the_order_of_their_dates() {
        let history = history(&[run(9, &[figure(None, "udp", 9.0)]), run(8, &[figure(None, "udp", 8.0)])]);
        assert_eq!(history.latest(Section::Memory)[0].0.median, 9.0);
    }

    #[test]
    fn broken_line_is_named_with_what_is_wrong() {
        let sound = serde_json::to_string(&run(1, &[figure(None, "udp", 9.3)])).expect("it has no maps");
        for (from, to, why) in [
            ("2026-11-01", "2026-13-01", "is no date"),
            ("2026-11-01T", "2026-11-01 ", "is no date"),
            ("2026-11-01", "2026-1\u{e9}-01", "is no date"),
            ("cfb19a6", "main", "is no commit"),
            ("cfb19a6", "`rm`", "is no commit"),
            ("a CPU", "", "is no name"),
            ("\"udp\"", "\"u\\u001b[2Jdp\"", "is no name"),
            ("\"udp\"", "\" udp\"", "is no name"),
            ("\"median\":9.3", "\"median\":9.4", "no figure that was measured"),
            ("9.3", "-1.0", "no figure that was measured"),
            ("\"min\":9.3", "\"min\":-1e16", "no figure that was measured"),
            ("9.3", "1e999", "number out of range"),
            ("9.3", "NaN", "expected value"),
            ("\"memory\"", "\"cellar\"", "unknown variant"),
            ("\"unit\"", "\"u\\u001bnit\"", "unknown field"),
            ("}]}", "}", "EOF"),
        ] {
            let broken = sound.replace(from, to);
            assert_ne!(broken, sound, "{from}");
            let found = History::parse(&format!("{sound}\n\n{broken}\n")).expect_err(to);
            assert!(found.starts_with("line 3: ") && found.contains(why), "{to}: {found}");
            assert!(!found.contains(char::is_control) && !found.contains("line 1"), "{found:?}");
        }
        let twice = run(1, &[figure(None, "udp", 9.3), figure(None, "udp", 9.3)]);
        assert!(line(&twice).is_err_and(|why| why.contains("there twice")));
    }
}
