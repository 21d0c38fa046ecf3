//! What the machine keeps of payloads: an mbuf that nobody else has yet, or the held bytes of one.

use crate::mem::{Held, Mbuf};
use crate::proto::tcp::Payload;

/// Payload bytes. Letting go of them is their good end: they were acknowledged, delivered, or are somebody else's too.
pub(in crate::pipeline) enum Bytes {
    /// Ours alone: what came, or what was not sent yet.
    Mbuf(Own),
    /// Held while the NIC may still read them, and afterwards until they are acknowledged.
    Held(Held),
}

/// An mbuf that goes home when it is let go of. It is only `None` on the way to another form.
pub(in crate::pipeline) struct Own(pub(super) Option<Mbuf>);

impl Drop for Own {
    #[inline]
    fn drop(&mut self) {
        if let Some(mbuf) = self.0.take() {
            mbuf.free();
        }
    }
}

impl Bytes {
    /// No bytes, while they are elsewhere.
    pub(super) const NONE: Self = Self::Mbuf(Own(None));

    /// The bytes of an mbuf.
    #[inline]
    pub(super) fn of(mbuf: Mbuf) -> Self {
        Self::Mbuf(Own(Some(mbuf)))
    }

    /// Gives the mbuf up, where it is ours alone.
    #[inline]
    pub(super) fn take_mbuf(&mut self) -> Option<Mbuf> {
        match self {
            Self::Mbuf(own) => own.0.take(),
            Self::Held(_) => None,
        }
    }

    fn mbuf(&mut self) -> Option<&mut Mbuf> {
        match self {
            Self::Mbuf(own) => own.0.as_mut(),
            Self::Held(_) => None,
        }
    }
}

impl Payload for Bytes {
    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::Mbuf(own) => own.0.as_ref().map_or(0, Mbuf::len),
            Self::Held(held) => held.len(),
        }
    }

    fn advance(&mut self, count: usize) {
        let len = self.len() - count;
        match self {
            Self::Mbuf(Own(Some(mbuf))) => mbuf.narrow(count, len),
            Self::Mbuf(Own(None)) => (),
            Self::Held(held) => *held = held.slice(count, len).expect("held bytes are in one buffer"),
        }
    }

    fn trim_to(&mut self, len: usize) {
        match self {
            Self::Mbuf(Own(Some(mbuf))) => mbuf.narrow(0, len),
            Self::Mbuf(Own(None)) => (),
            Self::Held(held) => *held = held.slice(0, len).expect("held bytes are in one buffer"),
        }
    }

    /// Both parts are held slices of the one buffer. Never refused but for a chain, of which none is kept to be sent.
    fn split_off(&mut self, at: usize) -> Option<Self> {
        if let Some(mbuf) = self.take_mbuf() {
            *self = Self::Held(mbuf.hold());
            mbuf.free();
        }
        let Self::Held(held) = self else { return None };
        let (front, back) = (held.slice(0, at)?, held.slice(at, held.len() - at)?);
        *held = front;
        Some(Self::Held(back))
    }

    fn append(&mut self, bytes: &[u8]) -> usize {
        let Some(mbuf) = self.mbuf() else { return 0 };
        if !mbuf.is_plain() || !mbuf.is_writable() {
            return 0;
        }
        let count = bytes.len().min(mbuf.tailroom());
        match mbuf.append(count) {
            Some(room) => {
                room.copy_from_slice(&bytes[..count]);
                count
            }
            None => 0,
        }
    }
}
