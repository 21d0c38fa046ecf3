//! The machine's statistics as counters: the machine counts in plain numbers, and the worker
//! updates the counters when it publishes. No segment pays for it.

use crate::counters::{Counter, Scope, Unit};
use crate::proto::tcp::TcpTally;

/// A counter for each number of the tally that is counted nowhere else.
pub(super) struct TallyCounters(Vec<Counter>);

impl TallyCounters {
    /// Counters in `scope`.
    pub(super) fn new(scope: &Scope) -> Self {
        let names = parts(&TcpTally::default()).into_iter();
        Self(names.map(|(name, _)| scope.counter(name, Unit::Events)).collect())
    }

    /// Updates them.
    pub(super) fn publish(&self, tally: &TcpTally) {
        for (counter, (_, count)) in self.0.iter().zip(parts(tally)) {
            counter.add(count.wrapping_sub(counter.get()));
        }
    }
}

/// The numbers by their names. The pattern is exhaustive, so that none can be forgotten; segments
/// and a busy output are counted where they pass.
fn parts(tally: &TcpTally) -> [(&'static str, u64); 25] {
    let TcpTally {
        segments_in: _,
        segments_out: _,
        output_busy: _,
        segments_resent,
        active_opens,
        passive_opens,
        established,
        resets_in,
        resets_out,
        resets_suppressed,
        resets_lost,
        challenge_acks,
        challenge_acks_suppressed,
        syn_cookies_sent,
        syn_cookies_accepted,
        timeouts,
        tail_loss_probes,
        fast_recoveries,
        undone_recoveries,
        dsacks_in,
        dsacks_out,
        out_of_order,
        duplicates,
        zero_window_probes,
        keepalive_probes,
        time_waits_recycled,
        unreachables_ignored,
        negative_advice,
    } = *tally;
    [
        ("segments_resent", segments_resent),
        ("active_opens", active_opens),
        ("passive_opens", passive_opens),
        ("established", established),
        ("resets_in", resets_in),
        ("resets_out", resets_out),
        ("resets_suppressed", resets_suppressed),
        ("resets_lost", resets_lost),
        ("challenge_acks", challenge_acks),
        ("challenge_acks_suppressed", challenge_acks_suppressed),
        ("syn_cookies_sent", syn_cookies_sent),
        ("syn_cookies_accepted", syn_cookies_accepted),
        ("timeouts", timeouts),
        ("tail_loss_probes", tail_loss_probes),
        ("fast_recoveries", fast_recoveries),
        ("undone_recoveries", undone_recoveries),
        ("dsacks_in", dsacks_in),
        ("dsacks_out", dsacks_out),
        ("out_of_order", out_of_order),
        ("duplicates", duplicates),
        ("zero_window_probes", zero_window_probes),
        ("keepalive_probes", keepalive_probes),
        ("time_waits_recycled", time_waits_recycled),
        ("unreachables_ignored", unreachables_ignored),
        ("negative_advice", negative_advice),
    ]
}
