//! Requests that own their memory, over either provider.
//!
//! Nobody else implements this: an mbuf is given back when the completion of its request says that
//! the device no longer reaches for it, and a provider that completes requests too early would
//! give back what is still read or written.

use super::Provider;
use crate::roce::owned::Owned;
use crate::roce::{CqHandle, Device, DeviceError, PostError, QpHandle, SendRequest, Sge, WorkCompletion};

/// A post that was refused, and what it was to own.
pub(crate) type Refused = (PostError, Owned);

/// What [`Mbufs`](crate::port::Mbufs) is made of.
pub trait Owning: Provider {
    /// Makes room for what the requests of a new queue pair own.
    fn allow_owned(&mut self, qp: QpHandle) -> Result<(), DeviceError>;

    /// Refuses pieces that name the memory of a pool.
    fn check_sges(&self, sges: &[Sge]) -> Result<(), PostError>;

    /// The piece for bytes of an mbuf, by requests of this queue pair.
    fn pool_piece(&self, qp: QpHandle, address: u64, len: usize) -> Result<Sge, PostError>;

    /// Posts a send whose pieces in pools are those of what it owns.
    fn post_send_owned(&mut self, qp: QpHandle, request: &SendRequest<'_>, owned: Owned) -> Result<(), Refused>;

    /// Posts a receive whose pieces are those of what it owns.
    fn post_recv_owned(&mut self, qp: QpHandle, wr_id: u64, sges: &[Sge], owned: Owned) -> Result<(), Refused>;

    /// Takes the oldest completion, and what its request owned.
    fn poll_owned(&mut self, cq: CqHandle) -> Result<Option<(WorkCompletion, Option<Owned>)>, DeviceError>;
}

impl Owning for Device {
    fn allow_owned(&mut self, qp: QpHandle) -> Result<(), DeviceError> {
        Self::allow_owned(self, qp)
    }

    fn check_sges(&self, sges: &[Sge]) -> Result<(), PostError> {
        Self::check_sges(self, sges)
    }

    fn pool_piece(&self, qp: QpHandle, address: u64, len: usize) -> Result<Sge, PostError> {
        Self::pool_piece(self, qp, address, len)
    }

    fn post_send_owned(&mut self, qp: QpHandle, request: &SendRequest<'_>, owned: Owned) -> Result<(), Refused> {
        Self::post_send_owned(self, qp, request, Some(owned)).map_err(refused)
    }

    fn post_recv_owned(&mut self, qp: QpHandle, wr_id: u64, sges: &[Sge], owned: Owned) -> Result<(), Refused> {
        Self::post_recv_owned(self, qp, wr_id, sges, Some(owned)).map_err(refused)
    }

    fn poll_owned(&mut self, cq: CqHandle) -> Result<Option<(WorkCompletion, Option<Owned>)>, DeviceError> {
        Ok(Self::poll_owned(self, cq))
    }
}

/// Of a post that was to own something.
pub(super) fn refused((error, owned): (PostError, Option<Owned>)) -> Refused {
    (error, owned.expect("a post that owns something returns it"))
}
