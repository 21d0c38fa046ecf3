//! Datagrams that nobody has read, for the socket that takes the place of theirs: a process that
//! forks closes a socket, and it or its child opens it again.

use wirepath::pipeline::Cx;
use wirepath::time::Duration;

use super::{SocketId, Sockets};
use crate::errno::Errno;
use crate::ready::Ready;
use crate::socket::datagram::UnreadDatagram;
use crate::socket::{Socket, State};

impl Sockets {
    /// The port steers no more frames here for a datagram socket. Those that it has received
    /// already arrive with the next turns.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn stop_receiving(&mut self, id: SocketId) -> Result<(), Errno> {
        let flows = core::mem::take(&mut self.find(id)?.flows);
        self.flows.release(&flows);
        Ok(())
    }

    /// Takes all datagrams out of a socket, the oldest first; none of a stream.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn take_unread(&mut self, id: SocketId, cx: &Cx<'_>) -> Result<Vec<UnreadDatagram>, Errno> {
        Ok(match &mut self.find(id)?.state {
            State::Datagram(datagrams) => datagrams.take_unread(cx.now),
            State::Stream(_) | State::Listener(_) => Vec::new(),
        })
    }

    /// Gives a new datagram socket those of its predecessor, which were taken out that long ago.
    /// Those that its receive buffer has no room for count as dropped.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn put_unread(
        &mut self,
        id: SocketId,
        unread: &[UnreadDatagram],
        ago: Duration,
        cx: &Cx<'_>,
    ) -> Result<(), Errno> {
        let Socket { state: State::Datagram(datagrams), options, traffic, .. } = self.find(id)? else { return Ok(()) };
        for datagram in unread {
            let info = datagram.info_after(ago, cx.now);
            if datagrams.push_copy(&info, &datagram.bytes, options.receive_buffer as usize) {
                traffic.received(info.len, info.arrived);
            }
        }
        self.wake_for(id, Ready::IN);
        Ok(())
    }
}
