//! The report for people: a line an answer while it runs, and the summary with the histogram.

use std::fmt::Write;

use wirepath::time::Duration;

use super::histogram;
use super::path::Target;
use super::rounds::{Event, MeasuredPath};
use super::tracker::{EchoOutcome, EchoTracker};

/// Columns of the longest bar.
const BAR_WIDTH: u64 = 40;
/// The quantiles that are shown between the fastest and the slowest.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// `ICMP echo of 10.0.0.2` or `UDP echo of 10.0.0.2:7`
pub(super) fn what(target: &Target) -> String {
    match target.udp {
        None => format!("ICMP echo of {}", target.address),
        Some(port) => format!("UDP echo of {}:{port}", target.address),
    }
}

/// One line for an event on a lane.
pub(super) fn line(lane: &MeasuredPath, event: Event) -> String {
    let mut text = format!("{}: ", lane.path.name());
    let written = match event {
        Event::Answer { sequence, ttl, verdict } => {
            let ttl = ttl.map_or(String::new(), |ttl| format!(" ttl={ttl}"));
            let _ = write!(text, "seq={sequence}{ttl} ");
            match verdict {
                EchoOutcome::InTime(span) => write!(text, "{span}"),
                EchoOutcome::Late(span) => write!(text, "{span}, late"),
                EchoOutcome::Duplicate(span) => write!(text, "{span}, again"),
                EchoOutcome::Unknown => write!(text, "answers no echo of ours"),
            }
        }
        Event::Damaged => write!(text, "an answer has other bytes than were sent"),
        Event::Refused(refusal) => write!(text, "{} says: {}", refusal.reporter, refusal.why),
        Event::Unsent => write!(text, "not sent: {}", lane.first_error.as_deref().unwrap_or_default()),
    };
    // Writing to a String does not fail.
    let _ = written;
    text.push('\n');
    text
}

/// The summary of a lane.
pub(super) fn summary(lane: &MeasuredPath) -> String {
    let counts = lane.tracker.counts();
    let lost = counts.unanswered();
    let share = if counts.sent > 0 { lost as f64 * 100.0 / counts.sent as f64 } else { 0.0 };
    let mut text = format!(
        "\n{}: {} sent, {} received, {lost} lost ({share:.1} %), {} late, {} duplicates",
        lane.path.name(),
        counts.sent,
        counts.received,
        counts.late,
        counts.duplicates
    );
    let odd = [(counts.damaged, "damaged"), (counts.refused, "refused"), (counts.unsent, "not sent")];
    for (count, word) in odd.iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {count} {word}"));
    }
    text.push('\n');
    if let Some(first_error) = &lane.first_error {
        text.push_str(&format!("not sent: {first_error}\n"));
    }
    text + &round_trips(&lane.tracker)
}

fn round_trips(tracker: &EchoTracker) -> String {
    let Some((fastest, slowest)) = tracker.extremes() else { return String::new() };
    let values = tracker.round_trips();
    let mut text = format!("round trip: min {fastest}");
    for (name, quantile) in QUANTILES {
        let value = Duration::from_nanos(values.value_at_quantile(quantile)).min(slowest);
        text.push_str(&format!(", {name} {value}"));
    }
    text.push_str(&format!(", max {slowest}\n"));
    let rows = histogram::rows(values);
    let tallest = rows.iter().map(|row| row.count).max().unwrap_or(1);
    let mut end = None;
    for row in rows {
        if end.is_some_and(|end| end != row.from) {
            text.push_str(&format!("{:>23}\n", "..."));
        }
        end = Some(row.to);
        let [from, to] = [row.from, row.to].map(|ns| Duration::from_nanos(ns).to_string());
        // A count above zero shows at least one character.
        let bar = "#".repeat((row.count * BAR_WIDTH / tallest).max(1) as usize);
        text.push_str(&format!("{from:>10} - {to:>10} {:>9}  {bar}\n", row.count));
    }
    text
}
