//! The report as JSON: one object with an array of findings and their sums.

use serde_json::{Value, json};
use wirepath::worker::topology::Severity;

use super::inspected::Inspected;
use super::{Diagnosis, count};

/// One object and a newline.
pub(super) fn render(patient: &Inspected, diagnoses: &[Diagnosis]) -> String {
    let findings: Vec<Value> = diagnoses.iter().map(finding).collect();
    let report = json!({
        "interface": patient.nic.as_ref().map(|nic| nic.name()),
        "cores": patient.cores.to_string(),
        "faults": count(diagnoses, Severity::Fault),
        "warnings": count(diagnoses, Severity::Warning),
        "notes": count(diagnoses, Severity::Note),
        "findings": findings,
    });
    format!("{report}\n")
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
