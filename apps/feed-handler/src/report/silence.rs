//! Channels of a live run without a packet: a sentence for each, with its possible cause by the
//! counters.

use wirepath::worker::live::IgmpMode;

use super::Summary;
use super::limits::{limits, meanings};
use crate::format::Format;
use crate::plan::RunPlan;

/// Sentences for the operator, who finds zeros in the summary. This is not a failure, because
/// exchanges send nothing at night.
pub(crate) fn silence(plan: &RunPlan, summary: &Summary) -> Vec<String> {
    let is_silent = |name: &str| {
        let lines = summary.channels.iter().filter(|channel| channel.name == name).flat_map(|channel| &channel.lines);
        lines.map(|line| line.packets + line.heartbeats).sum::<u64>() == 0
    };
    let silent = plan.feed.sets.iter().filter(|set| is_silent(&set.name));
    silent.map(|set| format!("nothing came for channel {}: {}", set.name, causes(plan, set.format, summary))).collect()
}

/// Whether a reason means that the bytes do not have the format, rather than that a limit was
/// reached.
fn is_of_format(reason: &str) -> bool {
    reason.starts_with("feed.") && meanings().iter().all(|(limit, _)| *limit != reason)
}

/// The likeliest first: counted causes before possible ones.
fn causes(plan: &RunPlan, format: Format, summary: &Summary) -> String {
    let dropped = |is_it: fn(&str) -> bool| {
        summary.drops.iter().filter(|(reason, _)| is_it(reason)).map(|(_, count)| count).sum::<u64>()
    };
    let (unread, other_ports) = (dropped(is_of_format), dropped(|r| r == "udp.no_consumer"));
    let mut causes = limits(summary);
    if unread > 0 {
        causes.push(format!(
            "{unread} datagrams to our groups are not whole packets of {format} (dropped: feed.*): replay a capture of them, and it \
             names the format that they are of"
        ));
    }
    if other_ports > 0 {
        causes.push(format!(
            "{other_ports} datagrams went to ports or groups that no line names (dropped: udp.no_consumer): compare the ports of \
             the lines with what the exchange publishes"
        ));
    }
    if causes.is_empty() {
        let igmp = match plan.live.igmp {
            IgmpMode::Off => "igmp = \"off\" asks no switch for the groups",
            _ => "a switch on the way does not forward the groups",
        };
        let interface = plan.live.port.interface();
        causes.push(format!("the senders are silent, or {igmp}: check with `wirepath doctor {interface}`"));
    }
    causes.join("; ")
}
