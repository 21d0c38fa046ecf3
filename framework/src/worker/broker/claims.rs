//! The kernel's sockets that count as a user's although another user has made them. The master of a
//! server binds and listens as root, and its workers become another user: their listener is root's
//! in the kernel for as long as it lives. A process that has such a socket shows it to the broker,
//! which keeps the socket's number. No other socket ever has that number, so a claim ends with the
//! socket, and lets nobody have a socket that he has not had.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use super::error::Refusal;
use super::flows::{ClientId, FLOWS_MAX, take_one};
use crate::wire::Protocol;

/// The most claims of a client: one for each flow.
pub(super) const CLAIMS_MAX: usize = FLOWS_MAX;
/// How long the claims of a client are kept that has ended: its ports leave meanwhile.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// The most of them for each user.
const KEPT_MAX: usize = 1_024;

/// A socket that a client has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) cookie: u64,
    pub(super) protocol: Protocol,
    /// The port that it has, as the client says.
    pub(super) port: u16,
}

/// The claims of all clients.
#[derive(Default)]
pub(super) struct Claims {
    of_clients: HashMap<ClientId, OfClient>,
    /// Those of clients that have ended, the oldest first.
    past: VecDeque<Past>,
    /// How many have claimed a socket, by user and cookie.
    counts: HashMap<(u32, u64), usize>,
}

struct OfClient {
    uid: u32,
    /// The port of each, by the cookie.
    ports: HashMap<u64, (Protocol, u16)>,
    /// Those of which the last review has not found the socket.
    missed: HashSet<u64>,
}

struct Past {
    uid: u32,
    cookies: Vec<u64>,
    until: Instant,
}

impl Claims {
    /// A client of user `uid` has shown a socket.
    pub(super) fn add(&mut self, client: ClientId, uid: u32, claim: Claim) -> Result<(), Refusal> {
        let Claim { cookie, protocol, port } = claim;
        let of_client = self.of_clients.entry(client).or_insert_with(|| OfClient {
            uid,
            ports: HashMap::new(),
            missed: HashSet::new(),
        });
        if of_client.ports.len() >= CLAIMS_MAX && !of_client.ports.contains_key(&cookie) {
            let sentence = format!(
                "the client has shown {CLAIMS_MAX} sockets that another user has made, and may have no more: close some"
            );
            return Err(Refusal::new(libc::ENOBUFS, sentence));
        }
        of_client.missed.remove(&cookie);
        if of_client.ports.insert(cookie, (protocol, port)).is_none() {
            *self.counts.entry((uid, cookie)).or_default() += 1;
        }
        Ok(())
    }

    /// Whether a process of user `uid` has shown the socket with this cookie.
    pub(super) fn has(&self, uid: u32, cookie: u64) -> bool {
        self.counts.contains_key(&(uid, cookie))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of_clients.is_empty()
    }

    /// Forgets those of which `is_there` returns false for the second time in a row: the sockets
    /// are gone. One that is only bound may be in no list until its client has a flow.
    pub(super) fn retain(&mut self, is_there: impl Fn(ClientId, Claim) -> bool) {
        for (client, OfClient { uid, ports, missed }) in &mut self.of_clients {
            let mut missed_now = HashSet::new();
            ports.retain(|&cookie, &mut (protocol, port)| {
                if is_there(*client, Claim { cookie, protocol, port }) {
                    return true;
                }
                let stays = !missed.contains(&cookie) && missed_now.insert(cookie);
                if !stays {
                    take_one(&mut self.counts, (*uid, cookie));
                }
                stays
            });
            *missed = missed_now;
        }
        self.of_clients.retain(|_, of_client| !of_client.ports.is_empty());
    }

    /// A client has ended. What it has shown at these TCP ports, which leave, counts for a while.
    pub(super) fn end(&mut self, client: ClientId, leaving: &HashSet<u16>, now: Instant) {
        let Some(OfClient { uid, ports, .. }) = self.of_clients.remove(&client) else { return };
        let leaves = |(protocol, port): (Protocol, u16)| protocol == Protocol::TCP && leaving.contains(&port);
        let (kept, gone): (Vec<_>, Vec<_>) = ports.into_iter().partition(|(_, port)| leaves(*port));
        gone.into_iter().for_each(|(cookie, _)| take_one(&mut self.counts, (uid, cookie)));
        if !kept.is_empty() {
            let cookies = kept.into_iter().map(|(cookie, _)| cookie).collect();
            self.past.push_back(Past { uid, cookies, until: now + KEPT_FOR });
        }
        self.bound_past(uid);
    }

    /// Forgets the oldest of a user's while there are too many. A socket that all workers of a
    /// server have shown is one.
    fn bound_past(&mut self, uid: u32) {
        let mut seen = HashSet::new();
        let of_user = self.past.iter().rev().filter(|past| past.uid == uid);
        let fits = |past: &&Past| {
            seen.extend(past.cookies.iter().copied());
            seen.len() <= KEPT_MAX
        };
        let kept = of_user.take_while(fits).count();
        let mut goes = self.past.iter().filter(|past| past.uid == uid).count() - kept;
        let counts = &mut self.counts;
        self.past.retain(|past| {
            let stays = past.uid != uid || goes == 0;
            if !stays {
                goes -= 1;
                past.cookies.iter().for_each(|cookie| take_one(counts, (uid, *cookie)));
            }
            stays
        });
    }

    /// Forgets those of clients that have ended long ago.
    pub(super) fn forget_past(&mut self, now: Instant) {
        self.forget(|past| past.until <= now);
    }

    fn forget(&mut self, is_over: impl Fn(&Past) -> bool) {
        let counts = &mut self.counts;
        self.past.retain(|past| {
            let stays = !is_over(past);
            if !stays {
                past.cookies.iter().for_each(|cookie| take_one(counts, (past.uid, *cookie)));
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClientId = ClientId(1);
    const OTHER: ClientId = ClientId(2);

    fn claim(cookie: u64) -> Claim {
        Claim { cookie, protocol: Protocol::TCP, port: 80 }
    }

    #[test]
    fn claim_is_its_users_until_the_last_client_that_has_shown_the_socket_has_ended() {
        let (mut claims, now) = (Claims::default(), Instant::now());
        [ONE, ONE, OTHER].into_iter().for_each(|client| claims.add(client, 33, claim(7)).unwrap());
        assert!(claims.has(33, 7) && !claims.has(34, 7) && !claims.has(33, 8));
        claims.end(ONE, &HashSet::new(), now);
        assert!(claims.has(33, 7));
        claims.end(OTHER, &HashSet::new(), now);
        assert!(!claims.has(33, 7) && claims.is_empty() && claims.counts.is_empty());
    }

    #[test]
    fn claims_of_ports_that_leave_outlive_their_client_for_a_minute() {
        let (mut claims, now) = (Claims::default(), Instant::now());
        claims.add(ONE, 33, claim(7)).unwrap();
        claims.add(ONE, 33, Claim { port: 81, ..claim(8) }).unwrap();
        claims.add(ONE, 33, Claim { protocol: Protocol::UDP, ..claim(9) }).unwrap();
        claims.end(ONE, &HashSet::from([80]), now);
        assert_eq!([7, 8, 9].map(|cookie| claims.has(33, cookie)), [true, false, false]);
        claims.forget_past(now + KEPT_FOR - Duration::from_secs(1));
        assert!(claims.has(33, 7));
        claims.forget_past(now + KEPT_FOR);
        assert!(claims.counts.is_empty());
    }

    #[test]
    fn claims_of_a_client_are_bounded_and_those_of_ended_clients_as_well() {
        let (mut claims, now, ports) = (Claims::default(), Instant::now(), HashSet::from([80]));
        (0..CLAIMS_MAX as u64).for_each(|cookie| claims.add(ONE, 33, claim(cookie)).unwrap());
        let refusal = claims.add(ONE, 33, claim(u64::MAX)).unwrap_err();
        assert!(refusal.errno == libc::ENOBUFS && refusal.sentence.contains("close some"), "{refusal:?}");
        claims.add(ONE, 33, claim(7)).unwrap();
        claims.retain(|_, Claim { cookie, .. }| cookie != 7);
        assert!(claims.has(33, 7), "it may be in no list before its flow is");
        claims.retain(|_, Claim { cookie, .. }| cookie != 7);
        assert!(!claims.has(33, 7));
        claims.add(ONE, 33, claim(u64::MAX)).unwrap();
        claims.end(ONE, &ports, now);
        assert!(claims.counts.is_empty(), "more than are kept");
        claims.add(OTHER, 34, claim(7)).unwrap();
        claims.end(OTHER, &ports, now);
        for client in 3..3 + KEPT_MAX as u64 {
            claims.add(ClientId(client), 33, claim(client)).unwrap();
            claims.end(ClientId(client), &ports, now);
        }
        assert_eq!(claims.counts.len(), 1 + KEPT_MAX);
        // One more displaces the oldest, and the same socket of another client is no more.
        claims.add(ONE, 33, claim(5)).unwrap();
        claims.end(ONE, &ports, now);
        assert_eq!(claims.counts.len(), 1 + KEPT_MAX);
        claims.add(ONE, 33, claim(1)).unwrap();
        claims.end(ONE, &ports, now);
        assert!(claims.has(34, 7) && claims.has(33, 1) && !claims.has(33, 3) && claims.has(33, 4));
    }
}
