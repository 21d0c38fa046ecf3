//! Findings about a machine, in words for its operator.

use core::fmt;

/// How much a finding matters, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Good,
    /// Worth knowing; cannot be changed from here, or costs little.
    Note,
    /// The worker runs, with occasional latency.
    Warning,
    /// The worker cannot start.
    Fault,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Fault => "fault",
        })
    }
}

/// One fact, its consequence, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// One sentence: the fact and its cost.
    pub what: String,
    /// The remedy, as a command if there is one; `None` if no action is needed.
    pub remedy: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {}", self.severity, self.what)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// All findings, in the order of the checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyReport {
    /// The findings.
    pub findings: Vec<Finding>,
}

impl TopologyReport {
    /// The worst severity; `Good` if nothing was found.
    pub fn worst(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Good)
    }

    /// The findings of at least this severity.
    pub fn at_least(&self, severity: Severity) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.severity >= severity)
    }

    pub(super) fn good(&mut self, what: String) {
        self.findings.push(Finding { severity: Severity::Good, what, remedy: None });
    }

    pub(super) fn add(&mut self, severity: Severity, what: String, remedy: String) {
        self.findings.push(Finding { severity, what, remedy: Some(remedy) });
    }
}

impl fmt::Display for TopologyReport {
    /// One line per finding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.findings.iter().try_for_each(|finding| writeln!(f, "{finding}"))
    }
}
