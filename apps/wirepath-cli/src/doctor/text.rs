//! The report for people: a line a finding, its remedy below, and a sum.

use wirepath::worker::topology::Severity;

use super::inspected::Inspected;
use super::{Diagnosis, count};

const SEVERITY_WIDTH: usize = 7;
const CHECK_WIDTH: usize = 17;

/// The whole report.
pub(super) fn render(inspected: &Inspected, diagnoses: &[Diagnosis]) -> String {
    let mut text = lines(diagnoses);
    if count(diagnoses, Severity::Fault) + count(diagnoses, Severity::Warning) > 0 {
        text.push_str("sysctl -w, ethtool, ip and echo last until the next boot: put them where yours start from, /etc/sysctl.d or a unit\n");
    }
    if inspected.nic.is_none() {
        text.push_str("no interface was looked at: `wirepath doctor INTERFACE` does; `wirepath devices` lists them\n");
    }
    text
}

/// The report about a program.
pub(super) fn render_program(diagnoses: &[Diagnosis]) -> String {
    lines(diagnoses)
}

fn lines(diagnoses: &[Diagnosis]) -> String {
    let mut text = String::new();
    for Diagnosis { check, finding } in diagnoses {
        text.push_str(&format!("{:SEVERITY_WIDTH$}  {check:CHECK_WIDTH$}  {}\n", finding.severity, finding.what));
        if let Some(remedy) = &finding.remedy {
            text.push_str(&format!("{:SEVERITY_WIDTH$}  {:CHECK_WIDTH$}  -> {remedy}\n", "", ""));
        }
    }
    let sum = |severity, word: &str| match count(diagnoses, severity) {
        1 => format!("1 {word}"),
        count => format!("{count} {word}s"),
    };
    let (faults, warnings, notes) =
        (sum(Severity::Fault, "fault"), sum(Severity::Warning, "warning"), sum(Severity::Note, "note"));
    text.push_str(&format!("\n{faults}, {warnings}, {notes}; {} good\n", count(diagnoses, Severity::Good)));
    text
}
