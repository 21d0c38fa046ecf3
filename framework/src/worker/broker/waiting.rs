//! What clients request and get, and whose turn it is. A try may make a client's packet buffers, so
//! there is one in each turn of the broker's loop.

use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use super::flows::ClientId;
use crate::device::af_xdp::broker::forwarded::ForwardedEnd;
use crate::device::af_xdp::broker::lend::LentQueue;
use crate::device::broker::request::QueueRequest;
#[cfg(feature = "mlx5")]
use crate::device::mlx5::lend::LentNic;

/// What a client has requested and not got yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingRequest {
    pub(super) request: QueueRequest,
    pub(super) since: Instant,
    /// How often the kernel has not given a queue for it.
    pub(super) tries: usize,
}

/// What a client has been given.
pub(super) enum Lent {
    /// A queue of the interface.
    Queue(LentQueue),
    /// A queue whose frames are passed on.
    Forwarded(ForwardedEnd),
    /// A queue of a NIC that steers.
    #[cfg(feature = "mlx5")]
    Nic(LentNic),
}

impl Lent {
    /// A socket in which its client may have sent files.
    pub(super) fn take_socket(&mut self) -> Option<OwnedFd> {
        match self {
            Self::Forwarded(end) => end.take_kept(),
            _ => None,
        }
    }

    /// The file of the packet buffers.
    pub(super) fn memory(&self) -> &File {
        match self {
            Self::Queue(queue) => queue.memory(),
            Self::Forwarded(end) => end.memory(),
            #[cfg(feature = "mlx5")]
            Self::Nic(nic) => nic.memory(),
        }
    }

    /// The descriptors that the client gets.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Queue(queue) => queue.descriptors().into(),
            Self::Forwarded(end) => end.descriptors().into(),
            #[cfg(feature = "mlx5")]
            Self::Nic(nic) => nic.descriptors().into(),
        }
    }
}

/// Whose turn it is: one user after another, and of a user's clients the one with the fewest tries.
#[derive(Debug, Default)]
pub(super) struct Turns {
    last_user: u32,
}

impl Turns {
    /// The client whose turn is next, of `(client, user, tries)`.
    pub(super) fn next(&mut self, waiting: impl Iterator<Item = (ClientId, u32, usize)>) -> Option<ClientId> {
        let order = |&(id, user, tries): &(ClientId, u32, usize)| (user <= self.last_user, user, tries, id.0);
        let (id, user, _) = waiting.min_by_key(order)?;
        self.last_user = user;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_with_many_clients_has_as_many_turns_as_another() {
        let mut turns = Turns::default();
        let mut waiting = [(1, 1000, 0), (2, 1000, 0), (3, 1000, 0), (4, 7, 0), (5, 0, 0)];
        let mut next = || {
            let id = turns.next(waiting.iter().map(|&(id, user, tries)| (ClientId(id), user, tries)))?.0;
            waiting.iter_mut().filter(|client| client.0 == id).for_each(|client| client.2 += 1);
            Some(id)
        };
        let order: Vec<u64> = (0..9).map_while(|_| next()).collect();
        assert_eq!(order, [4, 1, 5, 4, 2, 5, 4, 3, 5]);
        assert_eq!(turns.next([].into_iter()), None);
    }
}
