//! Booleans of a connection: a set for each room that writes them, and all sets in one word, so
//! that the fast path asks for those of several rooms in one test.
//!
//! In the first line. [`InputFlags`] are written by `input`, [`LossFlags`] by `loss`, [`AppFlags`]
//! by the app's side (`calls`, `machine`, `state::room`) and where a connection begins and ends
//! (`input::arrival`), [`OutputFlags`] by `output` and by whom it waits for: `machine`, which has a
//! connection looked at when the burst ends, `route_watch`, `timers` and other options where the
//! rate is another, `loss` where the peer is to hear of a reduced window. All read all.

use core::ops::BitOr;

/// Flags of any rooms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::proto::tcp) struct Flags(u32);

impl Flags {
    pub(in crate::proto::tcp) const NONE: Self = Self(0);

    /// All that are in any of `sets`.
    pub(in crate::proto::tcp) const fn of(sets: &[Self]) -> Self {
        let (mut all, mut idx) = (0, 0);
        while idx < sets.len() {
            all |= sets[idx].0;
            idx += 1;
        }
        Self(all)
    }

    /// Whether one of `any` is there.
    #[inline(always)]
    pub(in crate::proto::tcp) fn intersects(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }

    #[inline(always)]
    pub(in crate::proto::tcp) fn insert(&mut self, flags: Self) {
        self.0 |= flags.0;
    }

    #[inline(always)]
    pub(in crate::proto::tcp) fn remove(&mut self, flags: Self) {
        self.0 &= !flags.0;
    }
}

impl<F: Into<Self>> BitOr<F> for Flags {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: F) -> Self {
        Self(self.0 | other.into().0)
    }
}

/// The set of a room: bits of the word that no other set has.
macro_rules! set_of_a_room {
    ($(#[$set_doc:meta])* $set:ident, $($(#[$flag_doc:meta])* $flag:ident = $bit:literal,)*) => {
        $(#[$set_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in crate::proto::tcp) struct $set(u32);

        impl $set {
            $($(#[$flag_doc])* pub(in crate::proto::tcp) const $flag: Self = Self(1 << $bit);)*

            #[cfg(test)]
            const ALL: Flags = Flags(0 $(| 1 << $bit)*);

            /// As flags of any room.
            pub(in crate::proto::tcp) const fn flags(self) -> Flags {
                Flags(self.0)
            }
        }

        impl From<$set> for Flags {
            #[inline(always)]
            fn from(set: $set) -> Self {
                set.flags()
            }
        }

        impl<F: Into<Flags>> BitOr<F> for $set {
            type Output = Flags;

            #[inline(always)]
            fn bitor(self, other: F) -> Flags {
                self.flags() | other
            }
        }
    };
}

set_of_a_room! {
    /// What the SYNs have agreed on, and what the peer's segments have said since.
    InputFlags,
    TIMESTAMPS = 0,
    SACK = 1,
    ECN = 2,
    /// Both SYNs have a window scale: ours says it (RFC 7323 2.2).
    WINDOW_SCALE = 3,
    /// ECE is set in what we send until the peer's CWR (RFC 3168 6.1.3).
    ECE_OWED = 4,
    /// The peer's FIN came, perhaps before data that is missing: its number is `rare_rcv.fin`.
    FIN_SEEN = 5,
    /// Full segments are tried again that timeouts had shortened, and none has arrived yet.
    MSS_PROBE = 6,
}

set_of_a_room! {
    /// What keeps segments from leaving, and what they say.
    OutputFlags,
    /// CWR is to be set in the next new data (RFC 3168 6.1.2).
    CWR_OWED = 7,
    /// In the list of connections that have something to send.
    IN_FLUSH = 8,
    /// A SYN is to be sent that the way out had no room for.
    SYN_OWED = 9,
    /// Data waits for `pace_at`.
    PACED = 10,
    /// What is to be sent has found no way out.
    NO_ROUTE = 11,
    /// The app was told that its call finds no way.
    NO_ROUTE_TOLD = 12,
    /// Each segment shows the window of the last, and the field says it exactly. True as long as
    /// `fast_send_room` is.
    WINDOW_STAYS = 13,
    /// The numbers from SND.NXT on are somebody else's to send.
    DELEGATED = 14,
}

set_of_a_room! {
    /// What is known of losses, and of the use of the congestion window.
    LossFlags,
    /// The last tail loss probe was a retransmission (RFC 8985 7.3).
    PROBE_IS_RESENT = 15,
    /// A tail loss probe is out.
    PROBE_OUT = 16,
    /// A tail loss probe is to leave with the next look (RFC 8985 7.3).
    PROBE_DUE = 17,
    /// In this round trip so much was sent that cwnd was what limited it.
    CWND_LIMITED = 18,
    /// `CWND_LIMITED` as it was in the round trip before.
    CWND_WAS_LIMITED = 19,
    /// Segments were seen out of order (RFC 8985 6.2 step 3).
    REORDERING_SEEN = 20,
    /// A duplicate was reported in this round: `round.end` is RACK.dsack_round (RFC 8985 6.2 step
    /// 4).
    DSACK_ROUND = 21,
    /// What the recovery took can be given back.
    UNDO = 22,
    /// F-RTO has seen the first acknowledgment after the timeout (RFC 5682 2.1 step 2b).
    FRTO_ADVANCED = 23,
}

set_of_a_room! {
    /// How the app and the connection stand to each other.
    AppFlags,
    /// The app has closed its side: a FIN is queued or sent.
    FIN_QUEUED = 24,
    /// The app wants no data now.
    PAUSED = 25,
    /// A send was refused for lack of room.
    WANTS_ROOM = 26,
    /// In the list of connections with events.
    IN_READY = 27,
    /// The app does not know it yet: a listener's, in its handshake.
    EMBRYONIC = 28,
    /// The app let go of it: it is told nothing more.
    ORPHANED = 29,
    /// The app wants nothing more of the peer: what still comes is answered by a reset
    /// (RFC 9293 3.6.1).
    RECEIVES_NO_MORE = 30,
    /// The app has still to hear that it is connected: until then data waits in order.
    UNTOLD = 31,
}

impl AppFlags {
    /// What keeps data in order from being handed over as it comes.
    pub(in crate::proto::tcp) const HOLDS: Self = Self(Self::PAUSED.0 | Self::UNTOLD.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_share_the_word_and_no_bit() {
        let sets = [InputFlags::ALL, OutputFlags::ALL, LossFlags::ALL, AppFlags::ALL];
        assert_eq!((Flags::of(&sets).0, sets.iter().map(|set| set.0.count_ones()).sum::<u32>()), (u32::MAX, 32));
    }
}
