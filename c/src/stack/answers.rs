//! On an interface that is shared with the kernel: the steering of peers' segments to a stack, for
//! the connections that it has opened.

use core::net::SocketAddrV4;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use wirepath::port::{Subscription, tcp_from};
use wirepath::time::Instant;

/// A peer, and the local port that it answers to.
type Answer = (SocketAddrV4, u16);

/// What is steered, and for which connections.
#[derive(Default)]
pub(super) struct Answers {
    by_connection: HashMap<u64, Answer>,
    /// The connections of each: several local addresses may have one port.
    counts: HashMap<Answer, u32>,
    /// Connections in TIME-WAIT, and the end of it, in the order of their ends.
    waiting: VecDeque<(Instant, u64)>,
}

impl Answers {
    /// Steers a peer's answers by `subscribe`, unless they are steered already.
    pub(super) fn steer<E>(
        &mut self,
        answer: Answer,
        subscribe: impl FnOnce(Subscription) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.counts.entry(answer) {
            Entry::Occupied(mut count) => *count.get_mut() += 1,
            Entry::Vacant(place) => {
                subscribe(subscription(answer))?;
                place.insert(1);
            }
        }
        Ok(())
    }

    /// The connection that the answers are steered for.
    pub(super) fn belong_to(&mut self, answer: Answer, connection: u64) {
        self.by_connection.insert(connection, answer);
    }

    /// A connection is in TIME-WAIT, until then: a repeated FIN of its peer is still ours, and the
    /// kernel would answer it with a reset.
    pub(super) fn wait(&mut self, connection: u64, until: Instant) {
        self.waiting.push_back((until, connection));
    }

    /// Takes the next connection whose TIME-WAIT has ended.
    pub(super) fn waited(&mut self, now: Instant) -> Option<u64> {
        self.waiting.pop_front_if(|(until, _)| *until <= now).map(|(_, connection)| connection)
    }

    /// A connection has ended. Returns what is to be steered no more.
    pub(super) fn forget(&mut self, connection: u64) -> Option<Subscription> {
        let answer = self.by_connection.remove(&connection)?;
        self.give_up(answer)
    }

    /// The same where there has never been a connection.
    pub(super) fn give_up(&mut self, answer: Answer) -> Option<Subscription> {
        let count = self.counts.get_mut(&answer)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.counts.remove(&answer);
        Some(subscription(answer))
    }
}

fn subscription((remote, local_port): Answer) -> Subscription {
    tcp_from(*remote.ip(), remote.port()).local_port(local_port)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic here is the report
mod tests {
    use core::net::Ipv4Addr;

    use wirepath::time::Duration;

    use super::*;

    const ANSWER: Answer = (SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 80), 5_000);

    #[test]
    fn answers_are_steered_until_their_last_connection_has_ended() {
        let mut answers = Answers::default();
        let mut steered = 0;
        for connection in [1, 2] {
            let subscribe = |_| {
                steered += 1;
                Ok::<_, ()>(())
            };
            answers.steer(ANSWER, subscribe).unwrap();
            answers.belong_to(ANSWER, connection);
        }
        assert_eq!(steered, 1);
        assert!(answers.forget(3).is_none() && answers.forget(1).is_none() && answers.forget(1).is_none());
        assert!(answers.forget(2).is_some() && answers.forget(2).is_none());
    }

    #[test]
    fn connections_in_time_wait_are_taken_in_the_order_of_its_end() {
        let mut answers = Answers::default();
        let [soon, later] = [1, 2].map(|s| Instant::ZERO + Duration::from_secs(s));
        answers.wait(7, soon);
        answers.wait(8, later);
        assert_eq!(answers.waited(Instant::ZERO), None);
        assert_eq!([answers.waited(soon), answers.waited(soon)], [Some(7), None]);
        assert_eq!(answers.waited(Instant::MAX), Some(8));
    }

    #[test]
    fn refused_steering_is_asked_for_again() {
        let mut answers = Answers::default();
        assert_eq!(answers.steer(ANSWER, |_| Err('r')), Err('r'));
        answers.steer(ANSWER, |_| Ok::<_, ()>(())).unwrap();
        assert!(answers.give_up(ANSWER).is_some() && answers.give_up(ANSWER).is_none());
    }
}
