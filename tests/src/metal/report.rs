//! The report: plain text, a line for each thing, written as it becomes known.

use std::io::Write;

use wirepath::testing::conformance;
use wirepath::testing::conformance::Failure;

use super::broken_pipe;

/// Where lines go.
pub(super) struct Report<'a> {
    out: &'a mut dyn Write,
}

impl<'a> Report<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out }
    }

    pub(super) fn line(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.out, "{line}").and_then(|()| self.out.flush()).map_err(broken_pipe)
    }

    pub(super) fn item(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.line(&format!("{name:<26}{value}"))
    }

    /// Each fact of the suite, one way.
    pub(super) fn facts(&mut self, way: &str, failures: &[Failure]) -> Result<(), String> {
        self.line(&format!("\n{way}"))?;
        let failure = |fact: &str| failures.iter().find(|failure| failure.fact == fact);
        let was_broken_off = failures.iter().any(|failure| conformance::facts().all(|fact| fact != failure.fact));
        if was_broken_off {
            return failures
                .iter()
                .try_for_each(|Failure { fact, seen }| self.line(&format!("  FAILS  {fact}: {seen}")));
        }
        conformance::facts().try_for_each(|fact| match failure(fact) {
            None => self.line(&format!("  holds  {fact}")),
            Some(Failure { seen, .. }) => self.line(&format!("  FAILS  {fact}: {seen}")),
        })
    }

    pub(super) fn left_out(&mut self, way: &str, why: &str) -> Result<(), String> {
        self.line(&format!("\n{way}\n  left out: {why}"))
    }

    pub(super) fn verdict(&mut self, broken: usize) -> Result<(), String> {
        self.line("")?;
        match broken {
            0 => self.line("Every fact holds."),
            1 => self.line("One fact does not hold."),
            _ => self.line(&format!("{broken} facts do not hold.")),
        }
    }
}
