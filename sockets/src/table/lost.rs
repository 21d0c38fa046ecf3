//! Sockets whose frames come no more: the interface is gone, the port has ended, or a broker has
//! taken their flows back.

use wirepath::pipeline::Cx;

use super::{SocketId, Sockets};
use crate::errno::Errno;
use crate::socket::stream::{Phase, Stream};
use crate::socket::{Socket, State};

impl Sockets {
    /// The interface is gone, or the port has ended: connections end with `error`, each datagram
    /// socket reports it once, and all that is sent from now on fails with it.
    pub fn lose(&mut self, error: Errno, cx: &mut Cx<'_>) {
        self.lost = Some(error);
        self.refuse_closing(cx);
        for slot in 1..self.slots.len() as u32 {
            let id = SocketId { slot, generation: self.slots[slot as usize].generation };
            match self.find(id) {
                Ok(Socket { state: State::Stream(Stream { phase: Phase::Closed, .. }), .. }) | Err(_) => (),
                Ok(Socket { state: State::Stream(_), .. }) => self.hang_up(id, error, cx),
                Ok(Socket { state: State::Listener(_), .. }) => (),
                Ok(socket) => {
                    socket.error = Some(error);
                    self.wake(id);
                }
            }
        }
    }

    /// Why the port lost a flow of this socket, if it did and the socket has got none since:
    /// `EACCES` or `EADDRINUSE`, as the broker of the port would refuse it now. A connection has
    /// ended by it; a datagram socket and a listener have reported it once, and get nothing more by
    /// us.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn taken_back(&self, id: SocketId) -> Result<Option<Errno>, Errno> {
        Ok(self.get(id)?.taken_back)
    }

    /// Ends what the sockets have by flows that were taken from the port.
    #[cold]
    pub(super) fn lose_flows(&mut self, cx: &mut Cx<'_>) {
        let lost = self.flows.take_lost();
        for slot in 1..self.slots.len() as u32 {
            let id = SocketId { slot, generation: self.slots[slot as usize].generation };
            let Ok(socket) = self.find(id) else { continue };
            let (mut error, mut is_own) = (None, false);
            socket.flows.retain(|flow| match lost.iter().find(|(other, _)| other == flow) {
                Some((_, errno)) => {
                    // A group is one of several, and the socket still has its port.
                    is_own |= !flow.is_group();
                    error = Some(*errno);
                    false
                }
                None => true,
            });
            let Some(error) = error else { continue };
            if is_own || socket.flows.is_empty() {
                socket.taken_back = Some(error);
            }
            match socket.state {
                State::Stream(Stream { phase: Phase::Closed, .. }) => (),
                State::Stream(_) => self.hang_up(id, error, cx),
                State::Listener(_) | State::Datagram(_) => {
                    socket.error = Some(error);
                    self.wake(id);
                }
            }
        }
    }
}
