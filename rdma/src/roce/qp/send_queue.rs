//! The send queue: requests from their post to their completion.

use crate::roce::work::{
    CompletionKind, Data, Destination, INLINE_MAX, PostError, SGES_MAX, SendOperation, SendRequest, Sge,
};
use crate::wire::opcode::Operation;
use crate::wire::psn::Psn;

/// A ring of requests. Positions count up and wrap; what is before `head` is complete.
pub(crate) struct SendQueue {
    ring: Box<[SendWqe]>,
    /// The oldest request that is not complete.
    pub(crate) head: u32,
    /// Behind the last request.
    pub(crate) tail: u32,
    depth: u32,
}

/// A request in the queue.
#[derive(Clone)]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) operation: SendOperation,
    payload: Payload,
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
    /// Where a datagram goes.
    pub(crate) destination: Option<Destination>,
}

#[derive(Clone)]
enum Payload {
    Sges([Sge; SGES_MAX]),
    Inline([u8; INLINE_MAX]),
}

/// What a request's bytes are.
pub(crate) enum Bytes<'a> {
    Sges(&'a [Sge]),
    Inline(&'a [u8]),
}

impl SendQueue {
    pub(crate) fn new(depth: u32) -> Self {
        let empty = SendWqe {
            wr_id: 0,
            operation: SendOperation::Send,
            payload: Payload::Sges([Sge::default(); SGES_MAX]),
            len: 0,
            packets: 0,
            psn: Psn::default(),
            ssn: 0,
            is_signaled: false,
            is_solicited: false,
            has_fence: false,
            destination: None,
        };
        // A power of two, so that positions may wrap.
        let ring = vec![empty; depth.next_power_of_two() as usize].into();
        Self { ring, head: 0, tail: 0, depth }
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
        let (payload, len) = Payload::new(&request.data)?;
        if u64::from(len_max) < len || request.operation.is_atomic() && len != 8 {
            return Err(PostError::Length);
        }
        let mut packets = packet_count(len as u32, mtu_shift);
        if request.operation.is_local() {
            if len != 0 {
                return Err(PostError::Length);
            }
            packets = 0;
        } else if request.operation.needs_response() && matches!(request.data, Data::Inline(_)) {
            return Err(PostError::Operation);
        }
        let tail = self.tail;
        *self.at_mut(tail) = SendWqe {
            wr_id: request.wr_id,
            operation: request.operation,
            payload,
            len: len as u32,
            packets,
            psn: Psn::default(),
            ssn: 0,
            is_signaled,
            is_solicited: request.solicited,
            has_fence: request.fence,
            destination: request.destination,
        };
        self.tail = tail.wrapping_add(1);
        Ok(())
    }

    #[inline]
    pub(crate) fn at(&self, position: u32) -> &SendWqe {
        &self.ring[position as usize & (self.ring.len() - 1)]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, position: u32) -> &mut SendWqe {
        let mask = self.ring.len() - 1;
        &mut self.ring[position as usize & mask]
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

impl Payload {
    /// The pieces, or the bytes, and how many bytes they are.
    #[inline]
    fn new(data: &Data<'_>) -> Result<(Self, u64), PostError> {
        match *data {
            Data::Sges(list) => {
                let mut sges = [Sge::default(); SGES_MAX];
                sges.get_mut(..list.len()).ok_or(PostError::TooManySges)?.copy_from_slice(list);
                Ok((Self::Sges(sges), list.iter().map(|sge| u64::from(sge.len)).sum()))
            }
            Data::Inline(list) => {
                let mut bytes = [0; INLINE_MAX];
                bytes.get_mut(..list.len()).ok_or(PostError::TooManySges)?.copy_from_slice(list);
                Ok((Self::Inline(bytes), list.len() as u64))
            }
        }
    }
}

impl SendWqe {
    #[inline]
    pub(crate) fn bytes(&self) -> Bytes<'_> {
        match &self.payload {
            Payload::Sges(sges) => Bytes::Sges(sges),
            Payload::Inline(bytes) => Bytes::Inline(&bytes[..self.len as usize]),
        }
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
