//! The worker's end: takes what the mirror found out and applies it to the worker's [`Host`].

use crate::proto::{Host, HostEvent};
use crate::worker::spsc::lossless::Consumer;

/// Tidings that one turn applies at most: about 10 ns each (neighbours, ring in cache), so that a dump of hundreds of
/// them does not hold up a packet for longer than some 0.2 µs.
const TIDINGS_PER_TURN: usize = 16;

/// What the mirror tells a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tidings {
    /// Something that the host takes.
    Host(HostEvent),
    /// The interface itself changed.
    Link(LinkState),
}

/// The interface, as the kernel sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Its number; None while there is no such interface. Another number than before: it was gone and is back, and
    /// whoever has a socket on the old one has to open it again.
    pub idx: Option<u32>,
    /// Set up by the operator, and with a carrier.
    pub up: bool,
    /// The number of the active leg, for a bond in active-backup.
    pub active_leg: Option<u32>,
}

/// The reading end of one interface's tidings. Give it to the worker that owns the interface
/// ([`Worker::follow`](crate::worker::Worker::follow)), or call [`catch_up`](Self::catch_up) in a loop of one's own.
pub struct Follower {
    tidings: Consumer<Tidings>,
    link: LinkState,
    refused: u64,
}

impl Follower {
    pub(super) fn new(tidings: Consumer<Tidings>) -> Self {
        Self { tidings, link: LinkState::default(), refused: 0 }
    }

    /// Applies what is new, 16 tidings at most, and returns how many. About 1 ns where there are none; no allocation, no
    /// system call.
    #[inline]
    pub fn catch_up(&mut self, host: &mut Host) -> usize {
        let (link, refused) = (&mut self.link, &mut self.refused);
        self.tidings.pop_each(TIDINGS_PER_TURN, |tidings| match tidings {
            Tidings::Host(event) => *refused += u64::from(host.apply(event).is_err()),
            Tidings::Link(state) => {
                *link = state;
                // A link needs no room.
                let _ = host.apply(HostEvent::Link { is_up: state.up });
            }
        })
    }

    /// The interface, as last told. Without an index until the first tidings.
    pub fn link(&self) -> LinkState {
        self.link
    }

    /// Tidings that the host refused: neighbours for which it has no room beside those that others told it. What can
    /// never fit is not sent, and is in the mirror's counters.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The mirror has ended: what the host knows gets old from now on.
    pub fn is_orphaned(&self) -> bool {
        self.tidings.is_closed()
    }
}
