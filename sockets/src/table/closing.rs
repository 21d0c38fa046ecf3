//! The end of a connection whose socket was closed: its bytes leave, and the FIN behind them.

use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::{ConnectionId, State as TcpState, TcpEvent};
use wirepath::time::Duration;

use super::{NONE, SocketId, Sockets};
use crate::errno::Errno;
use crate::options::Options;
use crate::socket::stream::{Phase, Stream};
use crate::socket::{Socket, State};

impl Sockets {
    /// Ends the connection of a socket that was closed.
    pub(super) fn end(&mut self, mut stream: Stream, options: &Options, cx: &mut Cx<'_>) {
        let Some(connection) = stream.connection else { return };
        if let Some(slot) = self.by_connection.get_mut(connection.slot()) {
            *slot = NONE;
        }
        if stream.is_reset_by_end(options) {
            return self.refuse(connection, cx);
        }
        if stream.phase == Phase::Open && !stream.send_last(connection, cx) {
            self.closing.push((connection, stream));
            return;
        }
        // An error means that it is gone already.
        let _ = cx.tcp().close(connection);
    }

    /// The process is about to end, and other threads may be in calls on this socket until then: a
    /// connection sends all that it has, and its FIN, and the socket stays as it is. One with
    /// unread bytes waits for [`reset_if_unread`](Self::reset_if_unread).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn send_end(&mut self, id: SocketId, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let Socket { state: State::Stream(stream), options, .. } = self.find(id)? else { return Ok(()) };
        if let (Phase::Open, Some(connection)) = (stream.phase, stream.connection)
            && !stream.sends_fin
            && !stream.is_reset_by_end(options)
        {
            stream.is_writable = false;
            // An error means that the connection is gone already.
            let _ = stream.send_fin(connection, cx);
        }
        Ok(())
    }

    /// The process ends now: resets a connection whose bytes nobody has read.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn reset_if_unread(&mut self, id: SocketId, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let Socket { state: State::Stream(stream), options, .. } = self.find(id)? else { return Ok(()) };
        if let Some(connection) = stream.connection.filter(|_| stream.is_reset_by_end(options)) {
            self.refuse(connection, cx);
        }
        Ok(())
    }

    /// The longest retransmission timeout of the connections that have sent a FIN, or are to send
    /// it, and whose peers have not acknowledged it yet; `None` if there are none.
    pub fn longest_end(&self, cx: &mut Cx<'_>) -> Option<Duration> {
        let open = self.slots.iter().filter_map(|slot| match &slot.socket.as_ref()?.state {
            State::Stream(stream) if stream.sends_fin && stream.len() == 0 => stream.connection,
            _ => None,
        });
        let closed = self.closing.iter().map(|(connection, _)| *connection);
        let mut longest = None;
        for connection in open.chain(closed).chain(self.flows.closing()) {
            if let Some(info) = cx.tcp().info(connection).filter(|info| !is_sent(info.state)) {
                longest = longest.max(Some(info.rto));
            }
        }
        longest
    }

    /// An event of a connection whose socket was closed before all of its bytes had room.
    pub(super) fn go_on_closing(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        let Some(place) = self.closing.iter().position(|(other, _)| *other == connection) else { return };
        let is_sent = event == TcpEvent::Writable && self.closing[place].1.send_last(connection, cx);
        if is_sent {
            let _ = cx.tcp().close(connection);
        }
        if is_sent || matches!(event, TcpEvent::Closed(_)) {
            self.closing.swap_remove(place);
        }
    }

    /// Data of a peer for a socket that was closed: resets a connection that the TCP machine does
    /// not know to be closed yet (RFC 9293 3.6.1).
    pub(super) fn refuse_data(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        if let Some(place) = self.closing.iter().position(|(other, _)| *other == connection) {
            self.closing.swap_remove(place);
            self.refuse(connection, cx);
        }
    }

    /// Resets the connections whose socket was closed before all of its bytes had room.
    pub(super) fn refuse_closing(&mut self, cx: &mut Cx<'_>) {
        for (connection, _) in core::mem::take(&mut self.closing) {
            self.refuse(connection, cx);
        }
    }

    /// `close` of a socket that lingers for a time (`SO_LINGER`): returns the connection for which
    /// the caller then waits, by [`is_closing`](Self::is_closing), for that time at most; `None`
    /// where there is nothing to wait for.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close_lingering(&mut self, id: SocketId, cx: &mut Cx<'_>) -> Result<Option<Closing>, Errno> {
        let socket = self.find(id)?;
        let lingers = socket.options.linger.is_some_and(|linger| linger > Duration::ZERO);
        let connection = match &socket.state {
            State::Stream(stream) if lingers && stream.phase == Phase::Open => stream.connection,
            _ => None,
        };
        self.close(id, cx)?;
        Ok(connection.map(Closing))
    }

    /// Whether data or the FIN that was sent before `close` is still unacknowledged (Linux
    /// `sk_stream_wait_close`).
    pub fn is_closing(&self, closing: Closing, cx: &mut Cx<'_>) -> bool {
        let state = cx.tcp().info(closing.0).map(|info| info.state);
        state.is_some_and(|state| !is_sent(state))
    }
}

/// Whether the peer has acknowledged all data and the FIN.
fn is_sent(state: TcpState) -> bool {
    matches!(state, TcpState::FinWait2 | TcpState::TimeWait | TcpState::Closed)
}

impl Stream {
    /// Whether `close` and the end of the process reset the connection instead of sending a FIN.
    fn is_reset_by_end(&self, options: &Options) -> bool {
        self.len() > 0 || options.linger.is_some_and(|linger| linger == Duration::ZERO)
    }
}

/// A connection whose socket was closed while the caller waits for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing(ConnectionId);
