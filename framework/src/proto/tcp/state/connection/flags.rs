//! Booleans of a connection. Each room that writes some has its own set. All sets are in one word,
//! so that the fast path tests the flags of several rooms at once.
//!
//! In the first cache line. Written by `state` alone, whose verbs `set` and `clear` take a set: the
//! word belongs to no room, each set to some. [`InputFlags`] are written by `input`, [`LossFlags`]
//! by `loss`,
//! [`AppFlags`] by the app's side (`calls`, `machine`, `state::room`) and where a connection begins
//! and ends (`input::arrival`), [`OutputFlags`] by `output` and by the rooms that cause its work:
//! `machine`, which has a connection processed when the burst ends, `route_watch`, `timers`,
//! changed options where the rate differs, and `loss` where the peer must learn of a reduced
//! window. Every room reads all flags.

use core::ops::BitOr;

/// Flags of any rooms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u32);

impl Flags {
    pub(crate) const NONE: Self = Self(0);

    /// The union of `sets`.
    pub(crate) const fn of(sets: &[Self]) -> Self {
        let (mut all, mut idx) = (0, 0);
        while idx < sets.len() {
            all |= sets[idx].0;
            idx += 1;
        }
        Self(all)
    }

    /// Whether one of `any` is there.
    #[inline(always)]
    pub(crate) fn intersects(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, flags: Self) {
        self.0 |= flags.0;
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, flags: Self) {
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
        pub(crate) struct $set(u32);

        impl $set {
            $($(#[$flag_doc])* pub(crate) const $flag: Self = Self(1 << $bit);)*

            #[cfg(test)]
            const ALL: Flags = Flags(0 $(| 1 << $bit)*);

            /// As flags of any room.
            pub(crate) const fn flags(self) -> Flags {
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
    /// Negotiated options, and states set by the peer's segments.
    InputFlags,
    TIMESTAMPS = 0,
    SACK = 1,
    ECN = 2,
    /// Both SYNs have a window scale (RFC 7323 2.2).
    WINDOW_SCALE = 3,
    /// ECE is set in our segments until the peer's CWR (RFC 3168 6.1.3).
    ECE_OWED = 4,
    /// The peer's FIN has arrived, perhaps before missing data: its number is `rare_rcv.fin`.
    FIN_SEEN = 5,
    /// Full segments are on trial after timeouts had shortened them, and none has arrived yet.
    MSS_PROBE = 6,
}

set_of_a_room! {
    /// States that delay segments, and pending flags of them.
    OutputFlags,
    /// CWR is to be set in the next new data (RFC 3168 6.1.2).
    CWR_OWED = 7,
    /// In the list of connections with segments to send.
    IN_FLUSH = 8,
    /// A SYN is due that the output had no room for.
    SYN_OWED = 9,
    /// Data waits for `pace_at`.
    PACED = 10,
    /// A due segment has found no path.
    NO_ROUTE = 11,
    /// The app had the event that its SYN has no path to the peer.
    NO_ROUTE_REPORTED = 12,
    /// Every segment shows the same window, and the stored field is exact. Valid as long as
    /// `fast_send_room` is.
    WINDOW_STAYS = 13,
    /// The numbers from SND.NXT on are delegated to another sender.
    DELEGATED = 14,
}

set_of_a_room! {
    /// State of losses, and of the use of the congestion window.
    LossFlags,
    /// The last tail loss probe was a retransmission (RFC 8985 7.3).
    PROBE_IS_RESENT = 15,
    /// A tail loss probe is in flight.
    PROBE_OUT = 16,
    /// A tail loss probe leaves with the next transmit (RFC 8985 7.3).
    PROBE_DUE = 17,
    /// In this round trip cwnd was the limit of sending.
    CWND_LIMITED = 18,
    /// `CWND_LIMITED` of the previous round trip.
    CWND_WAS_LIMITED = 19,
    /// Segments were seen out of order (RFC 8985 6.2 step 3).
    REORDERING_SEEN = 20,
    /// A duplicate was reported in this round: `round.end` is RACK.dsack_round (RFC 8985 6.2 step
    /// 4).
    DSACK_ROUND = 21,
    /// The reduction of this recovery can be undone.
    UNDO = 22,
    /// F-RTO has seen the first acknowledgment after the timeout (RFC 5682 2.1 step 2b).
    FRTO_ADVANCED = 23,
}

set_of_a_room! {
    /// The app's relation to the connection.
    AppFlags,
    /// The app has closed its side: a FIN is queued or sent.
    FIN_QUEUED = 24,
    /// The app accepts no data now.
    PAUSED = 25,
    /// A send was refused for lack of room, or a FIN found no chunk.
    WANTS_ROOM = 26,
    /// In the list of connections with events.
    IN_READY = 27,
    /// The app does not know the connection yet: a listener's handshake.
    EMBRYONIC = 28,
    /// The app has closed it: it gets no more events.
    ORPHANED = 29,
    /// The app accepts no more data: data that still arrives is answered by a reset (RFC 9293
    /// 3.6.1).
    RECEIVES_NO_MORE = 30,
    /// The app has had no event yet that the connection is open; until then data waits in order.
    CONNECT_EVENT_PENDING = 31,
}

impl AppFlags {
    /// States in which data in order is queued instead of delivered.
    pub(crate) const HOLDS: Self = Self(Self::PAUSED.0 | Self::CONNECT_EVENT_PENDING.0);
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
