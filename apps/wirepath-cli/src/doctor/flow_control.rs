//! Checks the port's priority flow control (PFC), by which a switch or a host stops the other end
//! for one class of traffic: what it means for RoCE, and for all that is not RoCE.

use wirepath::worker::topology::Finding;

use super::finding::{good, note, warning};
use super::inspected::Inspected;
use crate::dcb::Pfc;

/// The priority of frames without a VLAN tag, and so of nearly everything.
const UNTAGGED: u8 = 1 << 0;

pub(super) fn pauses(inspected: &Inspected) -> Vec<Finding> {
    let Some((nic, pfc)) = inspected.nic.as_ref().and_then(|nic| Some((nic, nic.pfc?))) else { return Vec::new() };
    let (name, Pfc { priorities, received, .. }) = (nic.name(), pfc);
    if priorities == 0 {
        return good(format!(
            "{name} pauses no priority (PFC): RoCE goes back where a frame is lost, and slows down where switches mark \
             (ECN) what leaves ECN-capable (`wirepath rdma … --traffic-class 2`)"
        ));
    }
    if priorities & UNTAGGED != 0 {
        return warning(
            format!(
                "{name} can be paused on priority 0 (PFC), {received} times so far: all traffic without a VLAN waits then"
            ),
            format!("`dcb pfc set dev {name} prio-pfc 0:off`, and a priority of its own for RoCE"),
        );
    }
    note(
        format!("PFC of {name} is {pfc}: it protects RNICs; RoCE of wirepath leaves with priority 0"),
        "give its path the VLAN tag of such a priority (rdma::roce::Link::vlan) to have it protected too",
    )
}

#[cfg(test)]
mod tests {
    use super::super::inspected::Nic;
    use super::super::testing::{finds_on, nic};
    use super::*;

    fn finds(priorities: u8, severity: &str, what: &str, remedy: &str) {
        let pfc = Some(Pfc { priorities, sent: 1, received: 2 });
        let nic = nic().map(|nic| Nic { pfc, ..nic });
        finds_on(nic, pauses, &[], severity, what, remedy);
    }

    #[test]
    fn pauses_are_judged_by_whom_they_stop() {
        finds(0, "good", "pauses no priority", "");
        finds(1 << 3 | 1, "warning", "on priority 0 (PFC), 2 times", "prio-pfc 0:off");
        finds(1 << 3, "note", "on priority 3, 1 pauses sent, 2 received", "Link::vlan");
    }

    #[test]
    fn driver_without_them_is_no_finding() {
        let inspected = Inspected { nic: nic(), ..Inspected::new(crate::root::Root::new(None), None) };
        assert!(pauses(&inspected).is_empty());
    }
}
