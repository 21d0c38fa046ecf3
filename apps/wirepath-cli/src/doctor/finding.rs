//! Constructors of findings: one severity each, with words.

use wirepath::worker::topology::{Finding, Severity};

/// As it should be.
pub(super) fn good(what: impl Into<String>) -> Vec<Finding> {
    vec![Finding { severity: Severity::Good, what: what.into(), remedy: None }]
}

/// Worth knowing.
pub(super) fn note(what: impl Into<String>, remedy: impl Into<String>) -> Vec<Finding> {
    found(Severity::Note, what, remedy)
}

/// Runs, and costs packets or time now and then.
pub(super) fn warning(what: impl Into<String>, remedy: impl Into<String>) -> Vec<Finding> {
    found(Severity::Warning, what, remedy)
}

/// A worker cannot start in this state, or receives no frames.
pub(super) fn fault(what: impl Into<String>, remedy: impl Into<String>) -> Vec<Finding> {
    found(Severity::Fault, what, remedy)
}

fn found(severity: Severity, what: impl Into<String>, remedy: impl Into<String>) -> Vec<Finding> {
    vec![Finding { severity, what: what.into(), remedy: Some(remedy.into()) }]
}
