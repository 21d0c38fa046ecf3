//! The report as JSON: one object with an array of processes, and in each an array of all values in
//! tree order.

use std::time::UNIX_EPOCH;

use serde_json::{Value, json};
use wirepath::counters::{Distribution, Reading, Sample};

use super::Process;

/// One object and a newline.
pub(super) fn render(processes: &[Process]) -> String {
    let processes: Vec<Value> = processes.iter().map(process).collect();
    format!("{}\n", json!({ "processes": processes }))
}

fn process(process: &Process) -> Value {
    let Process { now, .. } = process;
    let started = now.started.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let values: Vec<Value> = now.samples.iter().map(|sample| value(sample, process)).collect();
    json!({ "app": now.app, "pid": now.pid, "user": now.user, "started_unix_seconds": started, "values": values })
}

fn value(sample: &Sample, process: &Process) -> Value {
    let mut object = match &sample.reading {
        Reading::Counter(value) => {
            let change = process.now.change(&sample.name, &process.before);
            let per_second = change.map_or(0.0, |change| change.per_second);
            json!({ "kind": "counter", "value": value, "per_second": per_second })
        }
        Reading::Gauge(value) => json!({ "kind": "gauge", "value": value }),
        Reading::Text(text) => json!({ "kind": "text", "value": text }),
        Reading::Histogram(distribution) => histogram(distribution),
    };
    object["name"] = sample.name.as_str().into();
    object["unit"] = sample.unit.as_str().into();
    if let Some(class) = sample.class.as_str() {
        object["class"] = class.into();
    }
    object
}

/// Quantiles of an empty histogram are null.
fn histogram(distribution: &Distribution) -> Value {
    json!({
        "kind": "histogram",
        "count": distribution.count(),
        "mean": distribution.mean(),
        "p50": distribution.quantile(0.5),
        "p99": distribution.quantile(0.99),
        "p999": distribution.quantile(0.999),
        "max": distribution.max(),
    })
}
