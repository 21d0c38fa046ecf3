//! A client's connection that is called again whenever it has ended.

use core::net::SocketAddrV4;

use super::{CloseReason, ConnectError, ConnectionId, ConnectionOptions, TcpEvent};
use crate::pipeline::node::Cx;
use crate::proto::ConsumerId;
use crate::time::{Duration, Instant};

/// What an event means for the app of a [`Caller`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallerEvent {
    /// The connection is open: the app may send.
    Up,
    /// The connection is gone, or was never made. The next call follows after the pause.
    Down(CloseReason),
    /// Nothing, or another connection's.
    None,
}

/// Keeps one connection to a server: calls, calls again after a pause, and closes where the server
/// has closed.
///
/// ```
/// # use core::net::{Ipv4Addr, SocketAddrV4};
/// # use wirepath::prelude::*;
/// struct Client { caller: Caller }
///
/// impl App for Client {
///     fn tick(&mut self, cx: &mut Cx<'_>) {
///         self.caller.tick(cx).unwrap_or_else(|error| println!("no call: {error}"));
///     }
///
///     fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
///         match self.caller.take(connection, event, cx) {
///             CallerEvent::Up => _ = cx.tcp().send(connection, b"hello"),
///             CallerEvent::Down(reason) => println!("no server: {reason}"),
///             _ => (),
///         }
///     }
/// }
///
/// let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
/// let server = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 80);
/// let client = Client { caller: Caller::new(any, server, ConsumerId(0)) };
/// ```
#[derive(Debug)]
pub struct Caller {
    local: SocketAddrV4,
    remote: SocketAddrV4,
    consumer: ConsumerId,
    /// The options of each connection. By default those of [`ConnectionOptions`].
    pub options: ConnectionOptions,
    /// The time from the end of a connection, or from a call that could not be made, to the next
    /// call. By default a second: often enough for a server that restarts, and no flood.
    pub pause: Duration,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next call is due, at once or at a time.
    Idle(Option<Instant>),
    Calling(ConnectionId),
    Up(ConnectionId),
}

impl Caller {
    /// Calls `remote` from `local`, whose address and port may be zero for any; events and data are
    /// the `consumer`'s. Nothing is called before [`Caller::tick`].
    pub fn new(local: SocketAddrV4, remote: SocketAddrV4, consumer: ConsumerId) -> Self {
        let (options, pause) = (ConnectionOptions::default(), Duration::from_secs(1));
        Self { local, remote, consumer, options, pause, state: State::Idle(None) }
    }

    /// Calls where it is time to. Call it in each turn, in the app's `tick`: one comparison while
    /// there is a connection.
    ///
    /// # Errors
    /// The call could not be made; it is tried again after the pause.
    #[inline]
    pub fn tick(&mut self, cx: &mut Cx<'_>) -> Result<(), ConnectError> {
        match self.state {
            State::Idle(at) if at.is_none_or(|at| at <= cx.now) => self.call(cx),
            _ => Ok(()),
        }
    }

    #[cold]
    fn call(&mut self, cx: &mut Cx<'_>) -> Result<(), ConnectError> {
        self.state = State::Idle(Some(cx.now + self.pause));
        let connection = cx.tcp().connect(self.local, self.remote, &self.options, self.consumer)?;
        self.state = State::Calling(connection);
        Ok(())
    }

    /// Takes an event of the app's. Where the server has closed, our end is closed too.
    pub fn take(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) -> CallerEvent {
        if !matches!(self.state, State::Calling(ours) | State::Up(ours) if ours == connection) {
            return CallerEvent::None;
        }
        match event {
            TcpEvent::Connected { .. } => {
                self.state = State::Up(connection);
                CallerEvent::Up
            }
            TcpEvent::PeerClosed => {
                // Where it cannot be closed, it is gone already, and `Closed` follows all the same.
                let _ = cx.tcp().close(connection);
                CallerEvent::None
            }
            TcpEvent::Closed(reason) => {
                self.state = State::Idle(Some(cx.now + self.pause));
                CallerEvent::Down(reason)
            }
            _ => CallerEvent::None,
        }
    }

    /// Sends as many of `bytes` as the open connection takes, and returns how many those are; 0
    /// where there is none.
    #[inline]
    pub fn send(&self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        match self.state {
            State::Up(connection) if !bytes.is_empty() => cx.tcp().send(connection, bytes).unwrap_or(0),
            _ => 0,
        }
    }

    /// Resets the connection, of a server that broke a rule. [`CallerEvent::Down`] follows, and the
    /// next call after the pause.
    #[cold]
    pub fn abort(&self, cx: &mut Cx<'_>) {
        if let State::Calling(connection) | State::Up(connection) = self.state {
            // Where it cannot be aborted, it is gone already, and `Closed` follows all the same.
            let _ = cx.tcp().abort(connection);
        }
    }

    /// The connection, while it is open.
    #[inline]
    pub fn connection(&self) -> Option<ConnectionId> {
        match self.state {
            State::Up(connection) => Some(connection),
            State::Idle(_) | State::Calling(_) => None,
        }
    }
}
