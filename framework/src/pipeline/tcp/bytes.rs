//! Payloads that the machine keeps: an mbuf that is ours alone, or held bytes of one.

use crate::mem::{Held, Mbuf};
use crate::proto::tcp::Payload;
use crate::wire::checksum::Sum;

/// Payload bytes. Dropping them is their normal end: they were acknowledged, delivered, or are held
/// elsewhere too.
pub(crate) enum Bytes {
    /// Ours alone: received, or not sent yet.
    Mbuf(OwnedMbuf),
    /// Held while the NIC may still read them, and then until they are acknowledged.
    Held(Held),
}

/// An mbuf that is freed when it is dropped.
pub(crate) struct OwnedMbuf {
    /// `None` only during a conversion.
    pub(super) mbuf: Option<Mbuf>,
    /// The sum of all its bytes, where the copy computed it: the segment that carries the bytes
    /// need not read them again.
    sum: Option<Sum>,
}

impl Drop for OwnedMbuf {
    #[inline]
    fn drop(&mut self) {
        if let Some(mbuf) = self.mbuf.take() {
            mbuf.free();
        }
    }
}

impl Bytes {
    /// No bytes, during a conversion.
    pub(super) const NONE: Self = Self::Mbuf(OwnedMbuf { mbuf: None, sum: None });

    /// The bytes of an mbuf.
    #[inline]
    pub(super) fn of(mbuf: Mbuf) -> Self {
        Self::summed(mbuf, None)
    }

    /// The bytes of an mbuf, and their sum where that is known.
    #[inline]
    pub(super) fn summed(mbuf: Mbuf, sum: Option<Sum>) -> Self {
        Self::Mbuf(OwnedMbuf { mbuf: Some(mbuf), sum })
    }

    /// A copy of `bytes`, or of as many from their front as fit, in an empty mbuf. `sums`: the
    /// sender needs their sum, so compute it during the copy.
    #[inline]
    pub(super) fn copy(bytes: &[u8], mbuf: Mbuf, sums: bool) -> Self {
        let mut own = OwnedMbuf { mbuf: Some(mbuf), sum: sums.then_some(Sum::EMPTY) };
        own.append(bytes);
        Self::Mbuf(own)
    }

    /// The bytes, where they are in one buffer.
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Mbuf(own) => own.mbuf.as_ref().filter(|mbuf| mbuf.is_linear()).map(Mbuf::bytes),
            Self::Held(held) => held.bytes(),
        }
    }

    /// The sum of the bytes, where that is known.
    #[inline]
    pub(super) fn sum(&self) -> Option<Sum> {
        match self {
            Self::Mbuf(own) => own.sum,
            Self::Held(_) => None,
        }
    }

    /// Takes the mbuf out, where it is ours alone.
    #[inline]
    pub(super) fn take_mbuf(&mut self) -> Option<Mbuf> {
        match self {
            Self::Mbuf(own) => own.mbuf.take(),
            Self::Held(_) => None,
        }
    }

    /// Becomes held bytes; the mbuf was taken out before, so that nothing is freed.
    #[inline(always)]
    pub(super) fn become_held(&mut self, held: Held) {
        core::mem::forget(core::mem::replace(self, Self::Held(held)));
    }

    /// One more handle to the bytes; from now on the buffer is not ours alone.
    pub(super) fn shared(&mut self) -> Held {
        if let Some(mbuf) = self.take_mbuf() {
            self.become_held(mbuf.hold());
            mbuf.free();
        }
        match self {
            Self::Held(held) => held.another(),
            Self::Mbuf(_) => unreachable!("its mbuf was just held"),
        }
    }

    /// Puts the mbuf back, with its sum where that is known.
    pub(super) fn become_own(&mut self, mbuf: Mbuf, sum: Option<Sum>) {
        core::mem::forget(core::mem::replace(self, Self::summed(mbuf, sum)));
    }
}

impl OwnedMbuf {
    /// Appends a copy of as many of `bytes` as fit, and returns their number.
    #[inline]
    fn append(&mut self, bytes: &[u8]) -> usize {
        let Some(mbuf) = self.mbuf.as_mut().filter(|mbuf| mbuf.is_plain() && mbuf.is_writable()) else { return 0 };
        let bytes = &bytes[..bytes.len().min(mbuf.tailroom())];
        let Some(room) = mbuf.append(bytes.len()) else { return 0 };
        match &mut self.sum {
            Some(sum) => *sum = sum.combine(Sum::of_copy(room, bytes)),
            None => copy(room, bytes),
        }
        bytes.len()
    }

    /// Keeps a part of the bytes.
    fn narrow(&mut self, offset: usize, len: usize) {
        if let Some(mbuf) = &mut self.mbuf {
            mbuf.narrow(offset, len);
            self.sum = None;
        }
    }
}

/// Copies many bytes in pieces: for two kilobytes or more the C library uses one instruction (`rep
/// movsb`), which is slow to start and on some CPUs slower for each byte.
#[inline]
fn copy(to: &mut [u8], from: &[u8]) {
    const PIECE_LEN: usize = 1536;
    for (to, from) in to.chunks_mut(PIECE_LEN).zip(from.chunks(PIECE_LEN)) {
        to.copy_from_slice(from);
    }
}

impl Payload for Bytes {
    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::Mbuf(own) => own.mbuf.as_ref().map_or(0, Mbuf::len),
            Self::Held(held) => held.len(),
        }
    }

    fn advance(&mut self, count: usize) {
        let len = self.len() - count;
        match self {
            Self::Mbuf(own) => own.narrow(count, len),
            Self::Held(held) => *held = held.slice(count, len).expect("held bytes are in one buffer"),
        }
    }

    fn trim_to(&mut self, len: usize) {
        match self {
            Self::Mbuf(own) => own.narrow(0, len),
            Self::Held(held) => *held = held.slice(0, len).expect("held bytes are in one buffer"),
        }
    }

    /// Both parts are held slices of one buffer. Fails only for a chain, and no chain is kept for
    /// sending.
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
        match self {
            Self::Mbuf(own) => own.append(bytes),
            Self::Held(_) => 0,
        }
    }

    #[cold]
    fn join(&mut self, next: &Self) -> bool {
        if let Some(mbuf) = owned(self) {
            *self = Self::of(mbuf);
        }
        let (Self::Mbuf(own), Some(bytes)) = (self, next.bytes()) else { return false };
        let has_room = own.mbuf.as_ref().is_some_and(|mbuf| mbuf.is_writable() && mbuf.tailroom() >= bytes.len());
        has_room && own.append(bytes) == bytes.len()
    }
}

/// The payload as an mbuf that we may write: it was not sent yet, or no one else holds it any more.
pub(super) fn owned(payload: &mut Bytes) -> Option<Mbuf> {
    if let Bytes::Held(_) = payload {
        return reclaim(payload);
    }
    let mbuf = payload.take_mbuf()?;
    if mbuf.is_plain() && mbuf.is_writable() {
        return Some(mbuf);
    }
    payload.become_held(mbuf.hold());
    mbuf.free();
    None
}

/// The buffer of held bytes, cut down to them, where no other handle holds it any more.
fn reclaim(payload: &mut Bytes) -> Option<Mbuf> {
    let Bytes::Held(held) = core::mem::replace(payload, Bytes::NONE) else { return None };
    let (start, len) = (held.bytes()?.as_ptr() as usize, held.len());
    match held.into_mbuf() {
        Err(held) => {
            *payload = Bytes::Held(held);
            None
        }
        Ok(mut mbuf) => {
            assert!(mbuf.is_plain(), "only linear buffers are sent");
            let offset = start - mbuf.bytes().as_ptr() as usize;
            mbuf.narrow(offset, len);
            Some(mbuf)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::*;
    use crate::mem::Pool;

    fn copy(pool: &Pool, bytes: &[u8], sums: bool) -> Bytes {
        Bytes::copy(bytes, pool.alloc().unwrap(), sums)
    }

    fn sum(bytes: &Bytes) -> Option<u16> {
        bytes.sum().map(Sum::finish)
    }

    #[test]
    fn sum_is_of_all_that_was_appended_up_to_the_end_of_the_buffer() {
        let pool = Pool::heap(1).unwrap();
        let text: Vec<u8> = (0..4000u32).map(|n| ((n * 7) >> 2) as u8).collect();
        let mut bytes = copy(&pool, &text[..333], true);
        for len in [0, 1, 300, 4, 4000] {
            bytes.append(&text[bytes.len()..text.len().min(bytes.len() + len)]);
            assert_eq!(sum(&bytes), Some(Sum::of(&text[..bytes.len()]).finish()), "after {len}");
        }
        assert!(bytes.len() >= 1500 && bytes.append(&text) == 0, "it is full");
    }

    #[test]
    fn sent_bytes_are_joined_once_nobody_reads_them_any_more() {
        let pool = Pool::heap(2).unwrap();
        let sent = |bytes: &[u8]| {
            let mbuf = pool.alloc_copy(bytes).unwrap();
            let held = mbuf.hold_part(2, bytes.len() - 2);
            (mbuf, Bytes::Held(held))
        };
        let ((frame, mut first), (other, second)) = (sent(b"h:new "), sent(b"h:order"));
        assert!(!first.join(&second), "the NIC still reads the first");
        assert_eq!(first.bytes().unwrap(), b"new ");
        frame.free();
        assert!(first.join(&second), "that it reads the second does not matter");
        assert_eq!((first.bytes().unwrap(), second.bytes().unwrap()), (&b"new order"[..], &b"order"[..]));
        other.free();
        drop(second);
        let long = copy(&pool, &[7; 2000], false);
        assert!(!first.join(&long), "there is no room for all of it");
        assert_eq!(first.bytes().unwrap(), b"new order");
    }

    #[test]
    fn sum_is_forgotten_with_a_part_of_the_bytes() {
        let pool = Pool::heap(1).unwrap();
        assert_eq!(sum(&copy(&pool, b"order", false)), None, "nobody asks for it");
        let cuts: [fn(&mut Bytes); 3] =
            [|bytes| bytes.advance(1), |bytes| bytes.trim_to(2), |bytes| drop(bytes.split_off(3))];
        for cut in cuts {
            let mut bytes = copy(&pool, b"order", true);
            assert!(sum(&bytes).is_some());
            cut(&mut bytes);
            assert_eq!(sum(&bytes), None);
        }
    }
}
