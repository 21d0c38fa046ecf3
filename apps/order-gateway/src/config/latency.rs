//! How long requests take: measured where the section is there.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::latency::{IDLE_NS, Latency};

/// The section `[latency]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyConfig {
    /// A picture of the histograms, written at the end. By default none.
    #[serde(default)]
    picture: Option<PathBuf>,
    /// A packet behind a silence of so many microseconds comes after idle. By default 1000.
    #[serde(default)]
    idle_us: Option<u32>,
}

impl LatencyConfig {
    /// Measurements without values.
    pub fn start(&self) -> Latency {
        Latency::start(self.idle_us.map_or(IDLE_NS, |us| u64::from(us) * 1_000))
    }

    /// Where the picture is written.
    pub fn picture(&self) -> Option<&Path> {
        self.picture.as_deref()
    }
}
