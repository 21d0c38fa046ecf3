//! Ports that no client has any more, in a broker that passes frames on. Their frames are dropped
//! for a while: a server that replaces its processes has the port in the new ones a moment later.
//! The kernel would answer with resets meanwhile; or where the server's socket listens, which the
//! old processes share with the new ones, it would accept connections that end when the port is a
//! client's again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::claims::Claims;
use super::ended::REMOVED_A_TURN;
use super::flows::ROOT;
use super::owners::{self, KernelSocket, User};
use crate::device::broker::message::Flow;
use crate::device::steering::RuleId;

/// How long the frames of any port are dropped; and the interval at which the port is looked at
/// from then on.
const LEAVES_AFTER: Duration = Duration::from_millis(500);
/// The longest time for which they are dropped while a socket has the port and does not listen: new
/// processes take many seconds to start on a busy machine.
const WAITS_AT_MOST: Duration = Duration::from_secs(30);
/// The same where the socket listens.
const LISTENS_AT_MOST: Duration = Duration::from_secs(15);

/// The most ports that leave at a time.
const LEAVING_MAX: usize = 1_024;

/// All ports that leave. Each user has a share of them: a client that keeps taking ports and giving
/// them up displaces ports of its own user.
#[derive(Default)]
pub(super) struct LeavingPorts(Vec<LeavingPort>);

/// How many ports leave that were a user's, and that were of all users but root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeavingCounts {
    pub(super) of_user: usize,
    pub(super) of_users: usize,
}

impl LeavingCounts {
    pub(super) fn plus(self, other: Self) -> Self {
        Self { of_user: self.of_user + other.of_user, of_users: self.of_users + other.of_users }
    }
}

impl LeavingPorts {
    /// Adds a port. Returns the one that is the kernel's at once, where there are too many: the
    /// oldest one of the user who has most.
    pub(super) fn add(&mut self, port: LeavingPort) -> Option<LeavingPort> {
        self.0.push(port);
        if self.0.len() <= LEAVING_MAX { None } else { self.take_oldest_of(self.user_with_most()?) }
    }

    /// Whether the next look at one of them is due.
    pub(super) fn has_due(&self, now: Instant) -> bool {
        self.0.iter().any(|port| port.is_due(now))
    }

    /// Looks at those whose next look is due, given the kernel's TCP sockets of `devices`.
    pub(super) fn look(&mut self, sockets: &[KernelSocket], claims: &Claims, devices: &[u32], now: Instant) {
        for port in self.0.iter_mut().filter(|port| port.is_due(now)) {
            port.has_left = !port.stays(sockets, claims, devices, now);
        }
    }

    /// Removes ports that are the kernel's from now on: some in a turn, because a NIC may take a
    /// millisecond for a rule.
    pub(super) fn take_left(&mut self) -> Vec<LeavingPort> {
        self.0.extract_if(.., |port| port.has_left).take(REMOVED_A_TURN).collect()
    }

    /// Whether there are more of them.
    pub(super) fn has_left(&self) -> bool {
        self.0.iter().any(|port| port.has_left)
    }

    /// Removes the port that leaves at once because user `uid` wants a rule: the oldest one that
    /// was his, or of the user who has most.
    pub(super) fn take_for(&mut self, uid: u32) -> Option<LeavingPort> {
        self.take_oldest_of(uid).or_else(|| self.take_oldest_of(self.user_with_most()?))
    }

    pub(super) fn counts(&self, uid: u32) -> LeavingCounts {
        let count = |is_counted: &dyn Fn(u32) -> bool| self.0.iter().filter(|port| is_counted(port.uid)).count();
        LeavingCounts { of_user: count(&|owner| owner == uid), of_users: count(&|owner| owner != ROOT) }
    }

    fn take_oldest_of(&mut self, uid: u32) -> Option<LeavingPort> {
        let of_user = self.0.iter().enumerate().filter(|(_, port)| port.uid == uid);
        let oldest = of_user.min_by_key(|(_, port)| port.since).map(|(idx, _)| idx);
        oldest.map(|idx| self.0.swap_remove(idx))
    }

    fn user_with_most(&self) -> Option<u32> {
        let mut counts = BTreeMap::<u32, usize>::new();
        self.0.iter().for_each(|port| *counts.entry(port.uid).or_default() += 1);
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(uid, _)| uid)
    }
}

/// A port that no client has any more.
pub(super) struct LeavingPort {
    flow: Flow,
    /// The user whose it was.
    uid: u32,
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
    /// Its frames are the kernel's as soon as its rules are removed.
    has_left: bool,
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
    /// A port that its last client, of user `uid`, has just given up.
    pub(super) fn new(flow: Flow, uid: u32, rules: Vec<RuleId>, now: Instant) -> Self {
        let (listeners, is_servers_next, listens_since, has_left) = (Vec::new(), true, None, false);
        Self { flow, uid, rules, since: now, next_look: now, listeners, is_servers_next, listens_since, has_left }
    }

    fn is_due(&self, now: Instant) -> bool {
        !self.has_left && self.next_look <= now
    }

    /// Whether its frames are still dropped, given the kernel's TCP sockets of `devices`. The first
    /// look comes at once: a socket of the server's user that listens then is the server's, and so
    /// is one that had the port before it listened.
    fn stays(&mut self, sockets: &[KernelSocket], claims: &Claims, devices: &[u32], now: Instant) -> bool {
        self.next_look = now + LEAVES_AFTER;
        let user = User { uid: self.uid, claims };
        let listening: Vec<u32> = owners::listeners(&self.flow, user, sockets).collect();
        if self.is_servers_next {
            self.listeners.clone_from(&listening);
        }
        let holder = match listening.iter().any(|inode| self.listeners.contains(inode)) {
            true => Holder::Listening,
            false if listening.is_empty() && owners::waits_for_listener(&self.flow, sockets, devices) => {
                Holder::Waiting
            }
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
        LeavingPort::new(flow, 1000, vec![], begin)
    }

    #[test]
    fn user_who_keeps_giving_ports_up_displaces_his_own() {
        let (begin, mut all) = (Instant::now(), LeavingPorts::default());
        let mut now = begin;
        let mut leave = |uid| {
            now += Duration::from_millis(1);
            all.add(LeavingPort { uid, since: now, ..port(begin) }).map(|gone| gone.uid)
        };
        assert!((0..10).all(|_| leave(7).is_none()), "there is room");
        assert_eq!((0..LEAVING_MAX).filter_map(|_| leave(1000)).collect::<Vec<_>>(), [1000; 10]);
        assert_eq!((0..5).map(|_| leave(8)).collect::<Vec<_>>(), [Some(1000); 5]);
        let counts = |of_user| LeavingCounts { of_user, of_users: LEAVING_MAX };
        assert_eq!([7, 8, 1000].map(|uid| all.counts(uid)), [10, 5, LEAVING_MAX - 15].map(counts));
        let oldest = all.take_for(7).unwrap();
        assert_eq!((oldest.uid, oldest.since), (7, begin + Duration::from_millis(1)));
        assert_eq!(all.take_for(9).unwrap().uid, 1000, "who has most");
    }

    #[test]
    fn ports_that_a_client_has_given_up_at_once_leave_by_turns_and_count_until_then() {
        let (begin, mut all) = (Instant::now(), LeavingPorts::default());
        (0..200).for_each(|_| _ = all.add(port(begin)));
        all.look(&[], &Claims::default(), &[], begin);
        assert!(all.take_left().is_empty() && !all.has_due(begin));
        let now = begin + LEAVES_AFTER;
        assert!(all.has_due(now));
        all.look(&[], &Claims::default(), &[], now);
        let mut turn = || (all.has_left(), all.counts(1000).of_user, all.take_left().len());
        assert_eq!(
            [(); 5].map(|()| turn()),
            [(true, 200, 64), (true, 136, 64), (true, 72, 64), (true, 8, 8), (false, 0, 0)]
        );
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
        let listener = |inode| KernelSocket::listening(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 80), 1000, inode);
        let mut kept = port(begin);
        assert!(kept.stays(&[listener(7)], &Claims::default(), &[], begin));
        assert!(kept.stays(&[listener(7)], &Claims::default(), &[], begin + Duration::from_secs(1)));
        for before in [&[listener(7)][..], &[]] {
            let mut replaced = port(begin);
            assert!(replaced.stays(before, &Claims::default(), &[], begin));
            assert!(!replaced.stays(&[listener(8)], &Claims::default(), &[], begin + Duration::from_secs(1)));
        }
    }

    #[test]
    fn port_on_which_another_user_listens_is_the_kernels_after_half_a_second() {
        let begin = Instant::now();
        let anothers = [KernelSocket::listening(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 80), 7, 9)];
        let mut taken_back = port(begin);
        assert!(taken_back.stays(&anothers, &Claims::default(), &[], begin));
        assert!(!taken_back.stays(&anothers, &Claims::default(), &[], begin + LEAVES_AFTER));
    }
}
