//! The measurements as a table.

use std::fmt;

use wirepath::time::Duration;

use super::{Arrival, Latency, Stage};

const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

impl fmt::Display for Latency {
    /// A line for each stage and arrival that has values; no newline at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "latency of {} requests that a packet caused; after idle: behind {} without one",
            self.measured(),
            Duration::from_nanos(self.idle_ns)
        )?;
        write!(f, "  {:<18} {:<14} {:>9}", "stage", "tick", "count")?;
        ["p50", "p90", "p99", "p99.9", "max"].iter().try_for_each(|column| write!(f, " {column:>9}"))?;
        for stage in Stage::ALL {
            match self.missing[stage as usize] {
                Some(why) => write!(f, "\n  {:<18} not available: {why}", stage.name())?,
                None => self.rows(stage, f)?,
            }
        }
        Ok(())
    }
}

impl Latency {
    fn rows(&self, stage: Stage, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for arrival in Arrival::ALL {
            let values = self.histogram(stage, arrival);
            if values.is_empty() {
                continue;
            }
            write!(f, "\n  {:<18} {:<14} {:>9}", stage.name(), arrival.name(), values.len())?;
            let quantiles = QUANTILES.iter().map(|quantile| values.value_at_quantile(*quantile));
            for ns in quantiles.chain([values.max()]) {
                write!(f, " {:>9}", Duration::from_nanos(ns).to_string())?;
            }
        }
        Ok(())
    }
}
