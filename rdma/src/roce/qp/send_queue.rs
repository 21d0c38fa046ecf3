//! The send queue: requests from their post to their completion.

use zerocopy::IntoBytes;

use crate::roce::handle::AhHandle;
use crate::roce::work::{
    CompletionKind, Data, Destination, INLINE_MAX, PostError, SGES_MAX, SendOperation, SendRequest, Sge,
};
use crate::wire::opcode::Operation;
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// A ring of requests. Positions count up and wrap; what is before `head` is complete.
///
/// The first place is here, in the lines of the queue pair, and a queue that has become empty
/// begins there again: of a thousand queue pairs with a request each, each has its request where
/// its state is, and always in the same lines.
#[repr(C)]
pub(crate) struct SendQueue {
    /// The oldest request that is not complete.
    pub(crate) head: u32,
    /// Behind the last request.
    pub(crate) tail: u32,
    pub(super) depth: u32,
    /// The other places: one less than a power of two, so that positions may wrap.
    mask: u32,
    first: SendWqe,
    rest: Box<[SendWqe]>,
    /// Requests that were flushed and whose completions were not polled: they keep their places,
    /// so that the state ERR takes no end of requests, and the completion queue is not overrun by
    /// them.
    pub(super) flushed: u32,
}

/// A request in the queue. What a message of one piece needs is in the first 128 bytes.
#[derive(Clone)]
#[repr(C)]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) operation: SendOperation,
    pub(crate) len: u32,
    /// The sequence numbers that it takes: for a READ those of its answers, none where nothing is
    /// sent.
    pub(crate) packets: u32,
    /// The first packet's number, once it was sent.
    pub(crate) psn: Psn,
    /// The number of the message, for the peer's credits.
    pub(crate) ssn: u32,
    pub(crate) is_signaled: bool,
    pub(crate) is_solicited: bool,
    pub(crate) has_fence: bool,
    /// The bytes are where the pieces would be.
    is_inline: bool,
    /// Pieces.
    sge_count: u8,
    is_datagram: bool,
    sges: [Sge; SGES_MAX],
    /// Where a datagram goes.
    destination: Destination,
}

const NOWHERE: Destination = Destination { ah: AhHandle::NONE, qpn: Qpn::new(0), qkey: 0 };

/// What a request's bytes are.
pub(crate) enum Bytes<'a> {
    Sges(&'a [Sge]),
    Inline(&'a [u8]),
}

impl SendQueue {
    /// Where its first request is.
    pub(super) const FIRST_AT: usize = core::mem::offset_of!(Self, first);

    pub(crate) fn new(depth: u32) -> Self {
        let empty = SendWqe {
            wr_id: 0,
            operation: SendOperation::Send,
            len: 0,
            packets: 0,
            psn: Psn::default(),
            ssn: 0,
            is_signaled: false,
            is_solicited: false,
            has_fence: false,
            is_inline: false,
            sge_count: 0,
            is_datagram: false,
            sges: [Sge::default(); SGES_MAX],
            destination: NOWHERE,
        };
        let mask = depth.next_power_of_two() - 1;
        let rest = vec![empty.clone(); mask as usize].into();
        Self { head: 0, tail: 0, depth, mask, first: empty, rest, flushed: 0 }
    }

    /// Takes a request of up to `len_max` bytes in.
    #[inline]
    pub(crate) fn post(
        &mut self,
        request: &SendRequest<'_>,
        is_signaled: bool,
        len_max: u32,
        mtu_shift: u32,
    ) -> Result<(), PostError> {
        if self.tail.wrapping_sub(self.head) >= self.depth {
            return Err(PostError::QueueFull);
        }
        let (len, sge_count) = request.check_data(len_max)?;
        let packets = if request.operation.is_local() { 0 } else { packet_count(len, mtu_shift) };
        // Field by field: the pieces and the destination that it has not are not written, nor their
        // lines touched.
        let wqe = self.at_mut(self.tail);
        (wqe.wr_id, wqe.operation) = (request.wr_id, request.operation);
        (wqe.len, wqe.packets, wqe.psn, wqe.ssn) = (len, packets, Psn::default(), 0);
        (wqe.is_signaled, wqe.is_solicited, wqe.has_fence) = (is_signaled, request.solicited, request.fence);
        (wqe.is_inline, wqe.sge_count) = (matches!(request.data, Data::Inline(_)), sge_count);
        match request.data {
            Data::Sges([sge]) => wqe.sges[0] = *sge,
            Data::Sges(list) => wqe.sges.iter_mut().zip(list).for_each(|(place, sge)| *place = *sge),
            Data::Inline(bytes) => wqe.sges.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes),
        }
        wqe.is_datagram = request.destination.is_some();
        if let Some(destination) = request.destination {
            wqe.destination = destination;
        }
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    #[inline]
    pub(crate) fn at(&self, position: u32) -> &SendWqe {
        match self.place(position) {
            0 => &self.first,
            place => &self.rest[place - 1],
        }
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, position: u32) -> &mut SendWqe {
        match self.place(position) {
            0 => &mut self.first,
            place => &mut self.rest[place - 1],
        }
    }

    #[inline]
    const fn place(&self, position: u32) -> usize {
        (position & self.mask) as usize
    }

    /// True if a request is queued that is answered by data.
    pub(crate) fn has_response_to_come(&self) -> bool {
        let count = self.tail.wrapping_sub(self.head);
        (0..count).any(|place| self.at(self.head.wrapping_add(place)).operation.needs_response())
    }

    /// Forgets all requests.
    pub(crate) fn clear(&mut self) {
        (self.head, self.tail) = (0, 0);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }
}

impl SendWqe {
    #[inline]
    pub(crate) fn bytes(&self) -> Bytes<'_> {
        if self.is_inline {
            Bytes::Inline(&self.sges.as_bytes()[..self.len as usize])
        } else {
            Bytes::Sges(&self.sges[..usize::from(self.sge_count)])
        }
    }

    #[inline]
    pub(crate) fn destination(&self) -> Option<Destination> {
        self.is_datagram.then_some(self.destination)
    }
}

impl SendRequest<'_> {
    /// The bytes and the pieces of a request of up to `len_max` bytes.
    #[inline]
    pub(crate) fn check_data(&self, len_max: u32) -> Result<(u32, u8), PostError> {
        let (len, sge_count) = match self.data {
            Data::Sges(list) if list.len() <= SGES_MAX => {
                (list.iter().map(|sge| u64::from(sge.len)).sum(), list.len() as u8)
            }
            Data::Inline(bytes) if bytes.len() <= INLINE_MAX => (bytes.len() as u64, 0),
            _ => return Err(PostError::TooManySges),
        };
        let is_local = self.operation.is_local();
        if u64::from(len_max) < len || self.operation.is_atomic() && len != 8 || is_local && len != 0 {
            return Err(PostError::Length);
        }
        if self.operation.needs_response() && matches!(self.data, Data::Inline(_)) {
            return Err(PostError::Operation);
        }
        Ok((len as u32, sge_count))
    }
}

/// Packets of a message, of any length that a header may say.
#[inline]
pub(crate) const fn packet_count(len: u32, mtu_shift: u32) -> u32 {
    // By shifts: of a power of two that it does not know the compiler makes a division.
    let has_rest = len & ((1 << mtu_shift) - 1) != 0;
    let count = (len >> mtu_shift) + has_rest as u32;
    if count == 0 { 1 } else { count }
}

impl SendOperation {
    #[inline]
    pub(crate) const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// True if an acknowledgment does not complete it.
    #[inline]
    pub(crate) const fn needs_response(&self) -> bool {
        matches!(self, Self::Read(_)) || self.is_atomic()
    }

    /// True if nothing is sent for it.
    #[inline]
    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::BindWindow(_) | Self::Invalidate(_))
    }

    /// True if it takes a receive of the peer.
    #[inline]
    pub(crate) const fn takes_receive(&self) -> bool {
        matches!(self, Self::Send | Self::SendImm(_) | Self::SendInvalidate(_) | Self::WriteImm(..))
    }

    #[inline]
    pub(crate) const fn imm(&self) -> Option<[u8; 4]> {
        match *self {
            Self::SendImm(imm) | Self::WriteImm(_, imm) => Some(imm),
            _ => None,
        }
    }

    pub(crate) const fn kind(&self) -> CompletionKind {
        match self {
            Self::Send | Self::SendImm(_) | Self::SendInvalidate(_) => CompletionKind::Send,
            Self::BindWindow(_) => CompletionKind::BindWindow,
            Self::Invalidate(_) => CompletionKind::Invalidate,
            Self::Write(_) | Self::WriteImm(..) => CompletionKind::Write,
            Self::Read(_) => CompletionKind::Read,
            Self::CompareSwap { .. } => CompletionKind::CompareSwap,
            Self::FetchAdd { .. } => CompletionKind::FetchAdd,
        }
    }

    /// The operation of a packet at this place of the message.
    #[inline]
    pub(crate) const fn packet(&self, is_first: bool, is_last: bool) -> Operation {
        match (self, is_first, is_last) {
            (Self::Send, true, true) => Operation::SendOnly,
            (Self::SendImm(_), true, true) => Operation::SendOnlyImm,
            (Self::SendInvalidate(_), true, true) => Operation::SendOnlyInvalidate,
            (Self::SendInvalidate(_), false, true) => Operation::SendLastInvalidate,
            (Self::Send | Self::SendImm(_) | Self::SendInvalidate(_), true, false) => Operation::SendFirst,
            (Self::Send | Self::SendImm(_) | Self::SendInvalidate(_), false, false) => Operation::SendMiddle,
            (Self::Send, false, true) => Operation::SendLast,
            (Self::SendImm(_), false, true) => Operation::SendLastImm,
            (Self::Write(_), true, true) => Operation::WriteOnly,
            (Self::WriteImm(..), true, true) => Operation::WriteOnlyImm,
            (Self::Write(_) | Self::WriteImm(..), true, false) => Operation::WriteFirst,
            (Self::Write(_) | Self::WriteImm(..), false, false) => Operation::WriteMiddle,
            (Self::Write(_), false, true) => Operation::WriteLast,
            (Self::WriteImm(..), false, true) => Operation::WriteLastImm,
            (Self::Read(_), ..) => Operation::ReadRequest,
            (Self::CompareSwap { .. }, ..) => Operation::CompareSwap,
            (Self::FetchAdd { .. }, ..) => Operation::FetchAdd,
            // Never sent.
            (Self::BindWindow(_) | Self::Invalidate(_), ..) => Operation::SendOnly,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_its_own_pieces_bytes_and_destination_and_none_of_the_one_before_it() {
        let mut queue = SendQueue::new(1);
        let sge = |len| Sge { address: 7, len, lkey: 1 };
        let (pieces, bytes) = ([sge(1), sge(2), sge(3)], [9; INLINE_MAX]);
        let to = Destination { ah: AhHandle::NONE, qpn: Qpn::new(5), qkey: 6 };
        let (list, one, none) = (Data::Sges(&pieces), Data::Sges(&pieces[..1]), Data::Sges(&[]));
        for (data, destination) in
            [(list, Some(to)), (one, None), (Data::Inline(&bytes), None), (none, Some(to)), (Data::Inline(&[4]), None)]
        {
            let request = SendRequest { destination, ..SendRequest::new(1, SendOperation::Send, data) };
            queue.post(&request, true, 100, 8).unwrap();
            let wqe = queue.at(queue.head);
            assert_eq!(wqe.destination(), destination);
            match (wqe.bytes(), data) {
                (Bytes::Sges(ours), Data::Sges(theirs)) => assert_eq!(ours, theirs),
                (Bytes::Inline(ours), Data::Inline(theirs)) => assert_eq!(ours, theirs),
                _ => panic!("bytes for pieces, or pieces for bytes"),
            }
            queue.head = queue.tail;
        }
    }
}
