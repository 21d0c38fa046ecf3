//! The table of targets: one line a figure, with its promise and a verdict. As text for people, and
//! as JSON.

use core::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::figures::{Figure, Section};
use crate::measure::sampling::Spread;

/// A figure, or why it is not available and the remedy.
pub type DemuxMatch = Result<Spread, String>;

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    what: String,
    unit: &'static str,
    found: DemuxMatch,
    promise: Option<Promise>,
    floor: Option<f64>,
}

/// The promise of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// Whether lower or higher values are better.
    pub bound: Bound,
    /// The promised limit.
    pub must: f64,
    /// The desired limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hope: Option<f64>,
}

/// Whether lower or higher values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// Less is better.
    #[serde(rename = "<=")]
    AtMost,
    /// More is better.
    #[serde(rename = ">=")]
    AtLeast,
}

/// The verdict on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetOutcome {
    /// As good as hoped, or better.
    Hoped,
    /// As good as promised.
    Kept,
    /// The figure is not as good as promised.
    Missed,
    /// The figure has no promise.
    Shown,
    /// Not measured.
    Skipped,
}

impl Line {
    /// A figure for information: `what`, with its conditions, in `unit`.
    pub fn new(what: &str, unit: &'static str, found: DemuxMatch) -> Self {
        Self { what: what.to_owned(), unit, found, promise: None, floor: None }
    }

    /// Promises this.
    pub fn promising(mut self, promise: Promise) -> Self {
        self.promise = Some(promise);
        self
    }

    /// Promises that the figure is at most `must`.
    pub fn at_most(mut self, must: f64) -> Self {
        self.promise = Some(Promise { bound: Bound::AtMost, must, hope: None });
        self
    }

    /// Promises that the figure is at least `must`.
    pub fn at_least(mut self, must: f64) -> Self {
        self.promise = Some(Promise { bound: Bound::AtLeast, must, hope: None });
        self
    }

    /// Adds the desired limit to a promise.
    pub fn hoping(mut self, hope: f64) -> Self {
        if let Some(promise) = &mut self.promise {
            promise.hope = Some(hope);
        }
        self
    }

    /// Adds the cost in plain C without a framework.
    pub fn over_floor(mut self, floor: f64) -> Self {
        self.floor = Some(floor);
        self
    }

    /// Whether the line is a part of an earlier one: its text is indented.
    pub fn is_part(&self) -> bool {
        self.what.starts_with(' ')
    }

    /// The description, without the indentation.
    pub fn what(&self) -> &str {
        self.what.trim_start()
    }

    /// The line as a record of the history, below `head` where it is a part; `None` if it was
    /// skipped.
    pub fn figure(&self, section: Section, head: &str) -> Option<Figure> {
        let found = self.found.as_ref().ok()?;
        Some(Figure {
            section,
            of: self.is_part().then(|| head.to_owned()),
            what: self.what().to_owned(),
            unit: self.unit.to_owned(),
            median: rounded(found.median),
            min: rounded(found.min),
            max: rounded(found.max),
            promise: self.promise,
            floor: self.floor,
        })
    }

    /// The verdict, by the median.
    pub fn verdict(&self) -> TargetOutcome {
        let Ok(found) = &self.found else { return TargetOutcome::Skipped };
        let Some(Promise { bound, must, hope }) = self.promise else { return TargetOutcome::Shown };
        match hope {
            Some(hope) if bound.holds(found.median, hope) => TargetOutcome::Hoped,
            _ if bound.holds(found.median, must) => TargetOutcome::Kept,
            _ => TargetOutcome::Missed,
        }
    }

    /// The line as JSON.
    pub fn to_json(&self) -> Value {
        let (found, skipped) = match &self.found {
            Ok(found) => (json!({"median": found.median, "min": found.min, "max": found.max}), None),
            Err(why) => (Value::Null, Some(why)),
        };
        json!({
            "what": self.what,
            "unit": self.unit,
            "bound": self.promise.map(|promise| promise.bound.sign()),
            "must": self.promise.map(|promise| promise.must),
            "hope": self.promise.and_then(|promise| promise.hope),
            "found": found,
            "skipped": skipped,
            "verdict": self.verdict().to_string(),
        })
    }
}

impl Promise {
    /// Whether a figure keeps the promise.
    pub fn is_kept(self, figure: f64) -> bool {
        self.bound.holds(figure, self.must)
    }
}

impl Bound {
    /// Its text for people.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::AtMost => "≤",
            Self::AtLeast => "≥",
        }
    }

    fn holds(self, found: f64, limit: f64) -> bool {
        match self {
            Self::AtMost => found <= limit,
            Self::AtLeast => found >= limit,
        }
    }

    const fn sign(self) -> &'static str {
        match self {
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
        }
    }
}

/// The heading that goes with a [`Line`]'s text.
pub fn heading() -> String {
    let heading = format!("{:<70} {:>9} {:>19} {:>8} {:>8}  verdict", "what", "median", "min .. max", "must", "hope");
    format!("{heading}\n{}", "-".repeat(heading.len()))
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = format!("{} [{}]", self.what, self.unit);
        let (must, hope) = self.promise.map_or(Default::default(), |Promise { bound, must, hope }| {
            let limit = |limit| format!("{} {limit}", bound.sign());
            (limit(must), hope.map_or(String::new(), limit))
        });
        let (median, range) = match &self.found {
            Ok(found) => (figure(found.median), format!("{} .. {}", figure(found.min), figure(found.max))),
            Err(_) => Default::default(),
        };
        write!(f, "{what:<70} {median:>9} {range:>19} {must:>8} {hope:>8}  {}", self.verdict())?;
        match &self.found {
            Ok(_) => Ok(()),
            Err(why) => write!(f, ": {why}"),
        }
    }
}

/// Six digits: more have no meaning, and lengthen the history.
fn rounded(figure: f64) -> f64 {
    format!("{figure:.5e}").parse().unwrap_or(figure)
}

/// Three digits or so.
fn figure(figure: f64) -> String {
    match figure.abs() {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{figure:.2}"),
        ..1000.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

impl fmt::Display for TargetOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hoped => "hope",
            Self::Kept => "must",
            Self::Missed => "MISSED",
            Self::Shown => "",
            Self::Skipped => "SKIPPED",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(figure: f64) -> Line {
        Line::new("it", "ns", Ok(Spread::of(vec![figure])))
    }

    #[test]
    fn limit_itself_is_kept() {
        let at_most = [18.1, 18.0, 13.1, 13.0].map(|figure| found(figure).at_most(18.0).hoping(13.0).verdict());
        assert_eq!(at_most, [TargetOutcome::Missed, TargetOutcome::Kept, TargetOutcome::Kept, TargetOutcome::Hoped]);
        let at_least = [41.9, 42.0, 49.9, 50.0].map(|figure| found(figure).at_least(42.0).hoping(50.0).verdict());
        assert_eq!(at_least, [TargetOutcome::Missed, TargetOutcome::Kept, TargetOutcome::Kept, TargetOutcome::Hoped]);
    }

    #[test]
    fn figure_that_could_not_be_had_is_skipped_with_its_reason() {
        let line = Line::new("it", "x", Err("no valgrind".to_owned())).at_most(1.0);
        assert_eq!(line.verdict(), TargetOutcome::Skipped);
        assert!(line.to_string().ends_with("SKIPPED: no valgrind"));
        assert_eq!(line.to_json()["skipped"], "no valgrind");
    }
}
