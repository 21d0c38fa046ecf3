//! What the holder of a copy obeys on one connection, without sockets, clock and memory.
//!
//! Only a primary whose queue pair is connected may write the copy. So only it can ask for a
//! promise: with any other peer's promise the standby would take over without what was sent.

use super::frame::{Frame, RdmaEnd};
use super::promise::{Followed, Promise};

/// A connection on which no queue pair was named makes room for the next one after this time.
pub(super) const NAMELESS_NS: u64 = 200_000_000;

const STRANGER: &str = "it asks for a grant before its queue pair is connected, so its records do not reach the copy: \
                        nothing was promised";

const GOES_ON: &str = "it asks for a grant, while the policy here is go-on, by which nobody waits for grants: both \
                       ends have the same section";

const LEFT: &str = "it has left, and had asked for no grant: the copy waits for the next primary";

const LEFT_EARLY: &str = "it said that the primary leaves before its queue pair was connected, so it is not believed: \
                          a promise holds, and at its end this standby takes over";

/// What a frame asks of the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Nothing,
    /// To connect the copy's queue pair to this one.
    Connect(RdmaEnd),
    /// To send the grant of this question.
    Grant {
        asked_ns: u64,
    },
}

/// A connection of a primary.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Session {
    /// When it was accepted.
    pub(super) begun_ns: u64,
    pub(super) heard_at_ns: u64,
    /// Its policy is that nobody waits for grants, by this end's section.
    goes_on: bool,
    is_named: bool,
    is_connected: bool,
    has_granted: bool,
}

impl Session {
    pub(super) fn begin(now_ns: u64, goes_on: bool) -> Self {
        Self { begun_ns: now_ns, heard_at_ns: now_ns, goes_on, ..Self::default() }
    }

    /// The queue pair answers.
    pub(super) const fn connected(&mut self) {
        self.is_connected = true;
    }

    /// Whether another connection may have its place: a primary names its queue pair at once.
    pub(super) const fn makes_room(&self, now_ns: u64) -> bool {
        !self.is_named && now_ns.saturating_sub(self.begun_ns) >= NAMELESS_NS
    }

    /// What to do about a frame of the primary. An error ends the connection.
    pub(super) fn take(&mut self, frame: Frame<'_>, promise: &mut Promise, now_ns: u64) -> Result<Asked, String> {
        match frame {
            Frame::Queue(_) if self.is_named => Err("it named a second queue pair".to_owned()),
            Frame::Queue(end) => {
                self.is_named = true;
                Ok(Asked::Connect(end))
            }
            Frame::Renew { asked_ns, lease_ns } => self.renew(asked_ns, lease_ns, promise, now_ns),
            Frame::HandOver if self.has_granted => {
                promise.say(Followed::TakeOver);
                Ok(Asked::Nothing)
            }
            // What an earlier connection was promised holds on this one.
            Frame::Leave if self.is_connected && promise.has_promised() => {
                promise.say(Followed::Ended);
                Ok(Asked::Nothing)
            }
            Frame::HandOver | Frame::Leave if promise.has_promised() => Err(LEFT_EARLY.to_owned()),
            Frame::HandOver | Frame::Leave => Err(LEFT.to_owned()),
            Frame::Alive => Ok(Asked::Nothing),
            Frame::TooSmall { needed } => Err(format!(
                "its journal has {needed} bytes, and this copy less: give the mirror an empty file of the same `megabytes`"
            )),
            frame => Err(format!("it sent {frame:?}, which is none of the messages of a mirrored primary")),
        }
    }

    fn renew(&mut self, asked_ns: u64, lease_ns: u64, promise: &mut Promise, now_ns: u64) -> Result<Asked, String> {
        if !self.is_connected {
            return Err(STRANGER.to_owned());
        }
        if self.goes_on {
            return Err(GOES_ON.to_owned());
        }
        if !promise.renew(lease_ns, now_ns)? {
            return Ok(Asked::Nothing);
        }
        self.has_granted = true;
        Ok(Asked::Grant { asked_ns })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LEASE_NS: u64 = 1_000_000_000;
    const END: RdmaEnd = RdmaEnd { qpn: 17, psn: 1, mtu: 3, ip: Ipv4Addr::new(192, 0, 2, 10) };
    const RENEW: Frame<'_> = Frame::Renew { asked_ns: 1, lease_ns: LEASE_NS };

    /// A connection whose queue pair is connected.
    fn connected(promise: &mut Promise) -> Session {
        let mut session = Session::begin(0, false);
        assert_eq!(session.take(Frame::Queue(END), promise, 0), Ok(Asked::Connect(END)));
        session.connected();
        session
    }

    #[test]
    fn peer_without_a_queue_pair_is_promised_nothing_and_hands_nothing_over() {
        for frame in [RENEW, Frame::HandOver, Frame::Leave] {
            let mut promise = Promise::default();
            assert!(Session::begin(0, false).take(frame, &mut promise, 5).is_err());
            assert!(!promise.has_promised() && promise.poll(u64::MAX).is_none(), "{frame:?}");
        }
    }

    #[test]
    fn copy_that_orders_do_not_wait_for_is_never_promised_by() {
        let mut promise = Promise::default();
        let mut session = Session::begin(0, true);
        session.take(Frame::Queue(END), &mut promise, 0).unwrap();
        session.connected();
        assert_eq!(session.take(RENEW, &mut promise, 0), Err(GOES_ON.to_owned()));
        assert!(!promise.has_promised());
    }

    #[test]
    fn primary_that_leaves_behind_a_reconnect_and_before_its_next_grant_is_obeyed() {
        let mut promise = Promise::default();
        assert_eq!(connected(&mut promise).take(RENEW, &mut promise, 0), Ok(Asked::Grant { asked_ns: 1 }));
        let mut again = connected(&mut promise);
        assert_eq!(again.take(Frame::Leave, &mut promise, 5), Ok(Asked::Nothing));
        assert_eq!(promise.poll(u64::MAX), Some(Followed::Ended));
    }

    #[test]
    fn primary_that_asks_for_no_grants_leaves_the_copy_to_the_next_one() {
        let mut promise = Promise::default();
        assert_eq!(connected(&mut promise).take(Frame::Leave, &mut promise, 5), Err(LEFT.to_owned()));
        assert_eq!(promise.poll(u64::MAX), None);
    }

    #[test]
    fn connection_that_names_no_queue_pair_makes_room_for_the_next_whatever_was_promised() {
        let mut promise = Promise::default();
        let mut session = Session::begin(0, false);
        assert!(!session.makes_room(NAMELESS_NS - 1) && session.makes_room(NAMELESS_NS));
        session.take(Frame::Alive, &mut promise, 0).unwrap();
        assert!(session.makes_room(NAMELESS_NS), "a word is no queue pair");
        assert!(!connected(&mut promise).makes_room(u64::MAX));
    }
}
