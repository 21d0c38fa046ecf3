//! The end of a connection whose socket was closed: its bytes leave, and the FIN behind them.

use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::{ConnectionId, State as TcpState, TcpEvent};
use wirepath::time::Duration;

use super::{NONE, SocketId, Sockets};
use crate::errno::Errno;
use crate::options::Options;
use crate::socket::State;
use crate::socket::stream::{Phase, Stream};

impl Sockets {
    /// Ends the connection of a socket that was closed.
    pub(super) fn end(&mut self, mut stream: Stream, options: &Options, cx: &mut Cx<'_>) {
        let Some(connection) = stream.connection else { return };
        if let Some(slot) = self.by_connection.get_mut(connection.slot()) {
            *slot = NONE;
        }
        if stream.len() > 0 || options.linger.is_some_and(|linger| linger == Duration::ZERO) {
            return self.refuse(connection, cx);
        }
        if stream.phase == Phase::Open && !stream.send_last(connection, cx) {
            self.closing.push((connection, stream));
            return;
        }
        // An error means that it is gone already.
        let _ = cx.tcp().close(connection);
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
        state.is_some_and(|state| !matches!(state, TcpState::FinWait2 | TcpState::TimeWait | TcpState::Closed))
    }
}

/// A connection whose socket was closed while the caller waits for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing(ConnectionId);
