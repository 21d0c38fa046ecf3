//! `[channels.loops]`: the groups that bring a channel's snapshots and definitions again and again.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;

use market::loops::RecoveryConfig;
use market::truth::Group;
use serde::Deserialize;
use toml::Spanned;

use super::problem::ConfigProblem;
use super::recovery::Megabytes;
use super::words::{Port, Sender};
use crate::feed::LINES_MAX;
use crate::format::Format;
use crate::recovery::{LoopPlan, RecoveryGroup};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoopsSection {
    snapshots: Spanned<Vec<LoopLineSection>>,
    definitions: Option<Spanned<Vec<LoopLineSection>>>,
    interface: Option<Ipv4Addr>,
    queue_mb: Option<Megabytes>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoopLineSection {
    group: Spanned<Group>,
    port: Port,
    #[serde(default)]
    sources: Vec<Sender>,
}

impl LoopsSection {
    /// The groups of all lines, and where they stand.
    pub(super) fn groups(&self) -> impl Iterator<Item = (SocketAddrV4, Range<usize>)> {
        let definitions = self.definitions.iter().flat_map(Spanned::get_ref);
        self.snapshots.get_ref().iter().chain(definitions).map(|line| (line.address(), line.group.span()))
    }
}

impl LoopLineSection {
    fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.group.get_ref().address(), self.port.0)
    }
}

/// The loops, checked against the format of their channel.
pub(super) fn plan(section: &Spanned<LoopsSection>, format: Format) -> Result<LoopPlan, ConfigProblem> {
    if !matches!(format, Format::CmeMdp3 | Format::B3Umdf | Format::EurexEobi) {
        let what = format!("{format} has no loops of snapshots: leave this out");
        return Err(ConfigProblem::new(section.span(), what));
    }
    let own = section.get_ref();
    let usual = RecoveryConfig::default();
    Ok(LoopPlan {
        snapshots: lines(&own.snapshots, "snapshots")?,
        definitions: own.definitions.as_ref().map_or(Ok(Vec::new()), |given| lines(given, "definitions"))?,
        interface: own.interface.unwrap_or(Ipv4Addr::UNSPECIFIED),
        limits: RecoveryConfig {
            queue_len_max: own.queue_mb.map_or(usual.queue_len_max, |queue| queue.0 << 20),
            // A message with one level has 62 bytes.
            messages_max: own.queue_mb.map_or(usual.messages_max, |queue| queue.0 << 14),
            ..usual
        },
    })
}

fn lines(given: &Spanned<Vec<LoopLineSection>>, what: &str) -> Result<Vec<RecoveryGroup>, ConfigProblem> {
    let lines = given.get_ref();
    if lines.is_empty() || lines.len() > LINES_MAX {
        let what = format!("the loop of {what} has {} lines: give it 1 to {LINES_MAX}", lines.len());
        return Err(ConfigProblem::new(given.span(), what));
    }
    let line = |line: &LoopLineSection| RecoveryGroup {
        address: line.address(),
        senders: line.sources.iter().map(|sender| sender.0).collect(),
    };
    Ok(lines.iter().map(line).collect())
}
