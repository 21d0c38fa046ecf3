//! Where the connection is in its life, and how it ended.
//!
//! [`State`] is in the first cache line, [`Ending`] after all fields that every segment needs.
//! Written by `input` and `calls`. Other rooms end a connection by `close`; `timers` reports an
//! expired linger time by a verb here.

use crate::proto::tcp::event::CloseReason;

/// RFC 9293 3.3.2. LISTEN is a listener, and CLOSED has no connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the RFC's names")]
pub enum State {
    SynSent,
    SynReceived,
    #[default]
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    /// Closed, but the app has had no event of it yet.
    Closed,
}

impl State {
    /// Whether the handshake is done: SND and RCV variables are synchronized.
    #[inline]
    pub fn is_synchronized(self) -> bool {
        self >= Self::Established
    }

    /// Whether the app may still send.
    #[inline]
    pub fn may_send(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait)
    }

    /// Whether the peer may still send.
    #[inline]
    pub fn may_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }
}

/// The report to the app about the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) reason: CloseReason,
}

impl Ending {
    pub(super) const NEW: Self = Self { reason: CloseReason::Finished };

    pub(crate) fn set(&mut self, reason: CloseReason) {
        self.reason = reason;
    }
}
