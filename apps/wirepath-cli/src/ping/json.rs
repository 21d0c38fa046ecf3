//! The report as JSON: one object, with an object for each path. Times are nanoseconds.

use serde_json::{Value, json};

use super::clock::PingClock;
use super::histogram;
use super::path::Target;
use super::rounds::{MeasuredPath, Plan};

/// One object and a newline.
pub(super) fn render(target: &Target, plan: &Plan, clock: &PingClock, lanes: &[MeasuredPath]) -> String {
    let paths: Vec<Value> = lanes.iter().map(path).collect();
    let report = json!({
        "address": target.address.to_string(),
        "protocol": if target.udp.is_some() { "udp" } else { "icmp" },
        "port": target.udp,
        "size": target.payload.len(),
        "count": plan.count,
        "interval_ns": plan.interval.as_nanos(),
        "timeout_ns": plan.timeout.as_nanos(),
        "spin": target.spins,
        "clock": clock.name(),
        "paths": paths,
    });
    format!("{report}\n")
}

/// The round trips of a path without any are null.
fn path(lane: &MeasuredPath) -> Value {
    let counts = lane.tracker.counts();
    let values = lane.tracker.round_trips();
    let round_trips = lane.tracker.extremes().map(|(fastest, slowest)| {
        let quantile = |quantile| values.value_at_quantile(quantile).min(slowest.as_nanos());
        json!({
            "min": fastest.as_nanos(),
            "mean": values.mean(),
            "p50": quantile(0.5),
            "p90": quantile(0.9),
            "p99": quantile(0.99),
            "p999": quantile(0.999),
            "max": slowest.as_nanos(),
        })
    });
    let rows = histogram::rows(values);
    let histogram: Vec<Value> =
        rows.iter().map(|row| json!({ "from_ns": row.from, "to_ns": row.to, "count": row.count })).collect();
    json!({
        "via": lane.path.name(),
        "description": lane.path.describe(),
        "sent": counts.sent,
        "received": counts.received,
        "lost": counts.unanswered(),
        "late": counts.late,
        "duplicates": counts.duplicates,
        "damaged": counts.damaged,
        "refused": counts.refused,
        "unsent": counts.unsent,
        "trouble": lane.first_error,
        "round_trip_ns": round_trips,
        "histogram": histogram,
    })
}
