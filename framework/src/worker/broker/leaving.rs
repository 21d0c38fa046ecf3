//! Ports that no client has any more, in a broker that passes frames on. Their frames are dropped
//! for a while: a server that replaces its processes has the port in the new ones a moment later.
//! The kernel would answer with resets meanwhile; or where the server's socket listens, which the
//! old processes share with the new ones, it would accept connections that end when the port is a
//! client's again.

use std::time::{Duration, Instant};

use super::owners::{self, KernelSocket};
use crate::device::af_xdp::broker::message::Flow;
use crate::device::steering::RuleId;

/// How long the frames of any port are dropped; and the interval at which the port is looked at
/// from then on.
const LEAVES_AFTER: Duration = Duration::from_millis(500);
/// The longest time for which they are dropped while a socket has the port and does not listen: new
/// processes take many seconds to start on a busy machine.
const WAITS_AT_MOST: Duration = Duration::from_secs(30);
/// The same where the socket listens.
const LISTENS_AT_MOST: Duration = Duration::from_secs(15);

/// A port that no client has any more.
pub(super) struct LeavingPort {
    flow: Flow,
    /// The rules by which its frames still come to the broker.
    pub(super) rules: Vec<RuleId>,
    since: Instant,
    next_look: Instant,
    /// The kernel sockets that listen at the port and are the server's, by their inodes.
    listeners: Vec<u32>,
    /// A socket that listens at the next look is the server's.
    is_servers_next: bool,
    /// Since when one of them does.
    listens_since: Option<Instant>,
}

/// Who has a leaving port in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// A socket that does not listen.
    Waiting,
    /// A socket of the server that has left it.
    Listening,
    /// No socket, or one of another server.
    Other,
}

impl LeavingPort {
    /// A port that its last client has just given up.
    pub(super) fn new(flow: Flow, rules: Vec<RuleId>, now: Instant) -> Self {
        let (listeners, is_servers_next, listens_since) = (Vec::new(), true, None);
        Self { flow, rules, since: now, next_look: now, listeners, is_servers_next, listens_since }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next_look <= now
    }

    /// Whether its frames are still dropped, given the kernel's TCP sockets. The first look comes
    /// at once: a socket that listens then is the server's, and so is one that had the port before
    /// it listened.
    pub(super) fn stays(&mut self, sockets: &[KernelSocket], now: Instant) -> bool {
        self.next_look = now + LEAVES_AFTER;
        let listening: Vec<u32> = owners::listeners(&self.flow, sockets).collect();
        if self.is_servers_next {
            self.listeners.clone_from(&listening);
        }
        let holder = match listening.iter().any(|inode| self.listeners.contains(inode)) {
            true => Holder::Listening,
            false if listening.is_empty() && owners::waits_for_listener(&self.flow, sockets) => Holder::Waiting,
            false => Holder::Other,
        };
        self.is_servers_next = holder == Holder::Waiting;
        self.stays_with(holder, now)
    }

    fn stays_with(&mut self, holder: Holder, now: Instant) -> bool {
        if holder != Holder::Listening {
            self.listens_since = None;
        }
        let passed = now.duration_since(self.since);
        match holder {
            Holder::Waiting => passed < WAITS_AT_MOST,
            Holder::Listening => {
                let since = *self.listens_since.get_or_insert(now);
                now.duration_since(since) < LISTENS_AT_MOST && passed < WAITS_AT_MOST
            }
            Holder::Other => passed < LEAVES_AFTER,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, SocketAddrV4};

    use super::*;
    use crate::wire::Protocol;

    fn port(begin: Instant) -> LeavingPort {
        let destination = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 80);
        let flow = Flow { protocol: Protocol::TCP, destination, source: None, source_port: None, vlan: None };
        LeavingPort::new(flow, vec![], begin)
    }

    #[test]
    fn port_of_a_server_that_replaces_its_processes_is_kept_from_the_kernel_for_a_while() {
        use Holder::{Listening, Other, Waiting};
        let begin = Instant::now();
        // Looks, each by its time in tenths of a second.
        let check = |looks: &[(u64, Holder)], expected: &[bool]| {
            let mut port = port(begin);
            let mut look = |&(tenths, holder): &(u64, Holder)| {
                port.stays_with(holder, begin + Duration::from_millis(100 * tenths))
            };
            assert_eq!(looks.iter().map(&mut look).collect::<Vec<_>>(), expected, "{looks:?}");
        };
        check(&[(0, Other), (5, Other)], &[true, false]);
        check(&[(0, Listening), (149, Listening), (150, Listening)], &[true, true, false]);
        check(&[(0, Listening), (10, Other)], &[true, false]);
        check(&[(0, Waiting), (20, Listening), (169, Listening), (170, Listening)], &[true, true, true, false]);
        check(&[(0, Waiting), (20, Listening), (60, Waiting), (70, Listening), (219, Listening)], &[true; 5]);
        check(&[(0, Waiting), (299, Waiting), (300, Waiting)], &[true, true, false]);
    }

    #[test]
    fn port_is_the_kernels_at_once_where_a_server_without_wirepath_listens_by_a_socket_of_its_own() {
        let begin = Instant::now();
        let listener = |inode| KernelSocket::listening(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 80), inode);
        let mut kept = port(begin);
        assert!(kept.stays(&[listener(7)], begin));
        assert!(kept.stays(&[listener(7)], begin + Duration::from_secs(1)));
        for before in [&[listener(7)][..], &[]] {
            let mut replaced = port(begin);
            assert!(replaced.stays(before, begin));
            assert!(!replaced.stays(&[listener(8)], begin + Duration::from_secs(1)));
        }
    }
}
