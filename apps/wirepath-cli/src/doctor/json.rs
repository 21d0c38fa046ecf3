//! The report as JSON: one object with an array of findings and their sums.

use std::path::Path;

use serde_json::{Value, json};
use wirepath::worker::topology::Severity;

use super::inspected::Inspected;
use super::{Diagnosis, count};

/// One object and a newline.
pub(super) fn render(inspected: &Inspected, diagnoses: &[Diagnosis]) -> String {
    let mut report = sums(diagnoses);
    report["interface"] = inspected.nic.as_ref().map(|nic| nic.name()).into();
    report["cores"] = inspected.cores.to_string().into();
    format!("{report}\n")
}

/// The same of a program, in place of interface and cores.
pub(super) fn render_program(program: &Path, diagnoses: &[Diagnosis]) -> String {
    let mut report = sums(diagnoses);
    report["program"] = program.to_string_lossy().into();
    format!("{report}\n")
}

fn sums(diagnoses: &[Diagnosis]) -> Value {
    let findings: Vec<Value> = diagnoses.iter().map(finding).collect();
    json!({
        "faults": count(diagnoses, Severity::Fault),
        "warnings": count(diagnoses, Severity::Warning),
        "notes": count(diagnoses, Severity::Note),
        "findings": findings,
    })
}

fn finding(diagnosis: &Diagnosis) -> Value {
    let Diagnosis { check, finding } = diagnosis;
    json!({
        "check": check,
        "severity": finding.severity.to_string(),
        "what": finding.what,
        "remedy": finding.remedy,
    })
}
