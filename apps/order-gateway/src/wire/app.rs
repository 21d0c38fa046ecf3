//! The worker's app: it gives the run what came, and carries out with TCP what the run wants.

use std::fmt;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4};

use market::Line;
use order_entry::journal::JournalMemory;
use order_entry::session::VenueSession;
use wirepath::pipeline::tcp::{ConnectionId, ConnectionOptions, TcpData, TcpEvent};
use wirepath::pipeline::{App, AppError, Cx, Datagram};
use wirepath::proto::ConsumerId;
use wirepath::time::Duration;

use super::endpoint::{INBOX_MAX, Phase, Request};
use super::host::WireHandle;
use super::prepared::{Prepared, send};
use crate::host::{Host, is_nothing};
use crate::run::{LEAVE, Run, Turn};
use crate::standby::StandbyLink;
use crate::strategy::Strategy;

/// The consumers of the port's subscriptions.
pub mod consumer {
    use wirepath::proto::ConsumerId;

    /// The feed's line A. Line B is the next one.
    pub const FEED: ConsumerId = ConsumerId(0);
    /// The venue.
    pub const VENUE: ConsumerId = ConsumerId(2);
}

/// How requests left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounts {
    /// Within the call of their tick, as a prepared segment.
    pub fired: u64,
    /// Within that call, without one: the first of their length, or behind what waits.
    pub sent: u64,
}

impl fmt::Display for WireCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fired, sent } = self;
        write!(f, "{fired} fired as prepared segments in the call of their tick, {sent} sent in it without")
    }
}

/// A run on a port's worker.
pub struct WireGateway<T, S, M, H> {
    /// The run. Its host is the [`WireHost`](super::WireHost) of `machine`.
    pub run: Run<T, S, M>,
    machine: WireHandle<H>,
    ports: [u16; 2],
    connection: Option<ConnectionId>,
    is_paused: bool,
    prepared: Prepared,
    /// A tick's code has displaced an order's from the cache.
    is_cold: bool,
    report: Box<dyn FnMut(&str)>,
    /// A person had the standby take over, or the gateway logs out.
    is_over: bool,
    /// It logs out, and something still waits for the line.
    is_leaving: bool,
}

impl<T: Strategy, S: VenueSession, M: JournalMemory, H: Host> WireGateway<T, S, M, H> {
    /// A gateway that calls the venue from the first of `ports`, or from the other one while the
    /// last connection from there is in TIME-WAIT: who logs out and is armed again does not wait a
    /// minute. `report` gets sentences for people.
    pub fn new(run: Run<T, S, M>, machine: WireHandle<H>, ports: [u16; 2], report: impl FnMut(&str) + 'static) -> Self {
        Self {
            run,
            machine,
            ports,
            connection: None,
            is_paused: false,
            prepared: Prepared::default(),
            is_cold: false,
            report: Box::new(report),
            is_over: false,
            is_leaving: false,
        }
    }

    /// How requests left so far.
    pub const fn counts(&self) -> WireCounts {
        WireCounts { fired: self.prepared.fired, sent: self.prepared.sent }
    }

    /// Whether a person had the standby take over, or [`WireGateway::log_out`] was called: the port
    /// is to be dropped when what has left is acknowledged.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Logs out: the cancels of a kill leave, then the Logout, and the connection is closed when
    /// the venue has closed its side, and has acknowledged them. The next turns go on with it.
    pub fn log_out(&mut self, cx: &mut Cx<'_>) {
        (self.is_over, self.is_leaving) = (true, true);
        self.go_on_leaving(cx);
    }

    fn go_on_leaving(&mut self, cx: &mut Cx<'_>) {
        if !self.is_leaving {
            return;
        }
        let waits = self.run.go_on_leaving(&mut self.report);
        self.carry_out(cx);
        if !waits && !self.is_unacknowledged(cx) {
            self.end_leaving(cx);
        }
    }

    /// Closes the connection of a gateway that logs out, whatever waits for it.
    pub fn end_leaving(&mut self, cx: &mut Cx<'_>) {
        if core::mem::take(&mut self.is_leaving) {
            self.run.end_leaving();
            self.carry_out(cx);
        }
    }

    /// Has the end of the journal on the disk, and lets the standby go. It waits for the disk: call
    /// it last.
    pub fn settle(&mut self) {
        self.run.settle(&mut self.report);
    }

    /// Whether the venue has not acknowledged all that was written.
    fn is_unacknowledged(&self, cx: &mut Cx<'_>) -> bool {
        let info = self.connection.and_then(|connection| cx.tcp().info(connection));
        info.is_some_and(|info| {
            info.unsent_len > 0 || info.unacked_len > 0 || !self.machine.endpoint.0.borrow().outbox.is_empty()
        })
    }

    /// Whether the connection is over: its end has left.
    pub const fn is_closed(&self) -> bool {
        self.connection.is_none()
    }

    /// Does with TCP what the run has asked for: bytes first, because a close is behind them.
    fn carry_out(&mut self, cx: &mut Cx<'_>) {
        self.flush(cx);
        loop {
            let request = self.machine.endpoint.0.borrow_mut().requests.pop_at(0);
            match request {
                None => return,
                Some(Request::Call(to)) => self.call(to, cx),
                // One that has ended is not found, and the run hears of it when it reads.
                Some(Request::CloseSending) => {
                    _ = self.connection.map(|connection| cx.tcp().shutdown(connection));
                }
                Some(Request::Close) => self.leave(close, cx),
                Some(Request::Reset) => self.leave(|connection, cx| _ = cx.tcp().abort(connection), cx),
            }
        }
    }

    fn call(&mut self, to: SocketAddrV4, cx: &mut Cx<'_>) {
        // What is older than a grant is not sent again: the standby may have taken over.
        let lease = self.run.standby.as_ref().and_then(StandbyLink::resent_for);
        let user_timeout = lease.map(|lease| Duration::from_nanos(lease.as_nanos() as u64));
        let options = ConnectionOptions { user_timeout, ..ConnectionOptions::default() };
        let [first, second] = self.ports.map(|port| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
        let is_first = cx.tcp().is_free(first, to, &options) || !cx.tcp().is_free(second, to, &options);
        let local = if is_first { first } else { second };
        let connected = cx.tcp().connect(local, to, &options, consumer::VENUE);
        match connected {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => self.machine.endpoint.0.borrow_mut().phase = Phase::Failed(error.to_string()),
        }
    }

    /// Ends the connection. One that has ended already is not found, and nothing is lost by that.
    fn leave(&mut self, end: impl FnOnce(ConnectionId, &mut Cx<'_>), cx: &mut Cx<'_>) {
        if let Some(connection) = self.connection.take() {
            end(connection, cx);
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.prepared.clear();
        self.is_paused = false;
    }

    /// Gives TCP what the run has written.
    fn flush(&mut self, cx: &mut Cx<'_>) {
        let Some(connection) = self.connection else { return };
        let mut shared = self.machine.endpoint.0.borrow_mut();
        if shared.outbox.is_empty() {
            return;
        }
        match send(connection, &shared.outbox, cx) {
            Ok(taken) => _ = shared.outbox.drain(..taken),
            Err(error) if is_nothing(&error) => (),
            // The run hears of it when it reads.
            Err(error) => shared.phase = Phase::Failed(error.to_string()),
        }
    }

    /// Takes a packet of the feed. What the strategy answers leaves before this returns.
    #[inline]
    fn take_tick(&mut self, line: Line, packet: &[u8], cx: &mut Cx<'_>) {
        let Self { run, machine, connection, prepared, .. } = self;
        let connection = connection.filter(|_| machine.endpoint.0.borrow().outbox.is_empty());
        let written = run.on_packet(line, packet, |bytes| match connection {
            Some(connection) => prepared.send(connection, bytes, cx),
            None => Err(ErrorKind::WouldBlock.into()),
        });
        if let Err(why) = written {
            self.run.close(&why, &mut self.report);
            self.carry_out(cx);
        }
    }

    /// The connection reads no more before the run has read.
    fn pace(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        let waiting = self.machine.endpoint.0.borrow().inbox.len();
        let is_full = if self.is_paused { waiting > 0 } else { waiting > INBOX_MAX };
        if is_full != self.is_paused {
            self.is_paused = is_full;
            // One that has ended is not found, and its end is an event.
            let _ = if is_full { cx.tcp().pause(connection) } else { cx.tcp().resume(connection) };
        }
    }
}

impl<T: Strategy, S: VenueSession, M: JournalMemory, H: Host> App for WireGateway<T, S, M, H> {
    fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
        self.machine.clock.align(cx.now.as_nanos(), || self.machine.inner.now_ns());
        Ok(())
    }

    #[inline]
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        if self.is_over {
            return;
        }
        self.machine.clock.set(cx.now.as_nanos());
        self.is_cold = true;
        let line = if datagram.consumer == consumer::FEED { Line::A } else { Line::B };
        self.take_tick(line, datagram.payload, cx);
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, _cx: &mut Cx<'_>) {
        if self.connection != Some(connection) {
            return;
        }
        let phase = match event {
            TcpEvent::Connected { .. } => Phase::Open,
            TcpEvent::PeerClosed => Phase::PeerClosed,
            TcpEvent::Closed(reason) => {
                self.connection = None;
                self.forget();
                Phase::Failed(reason.to_string())
            }
            _ => return,
        };
        self.machine.endpoint.0.borrow_mut().phase = phase;
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        if self.connection != Some(data.connection) {
            return;
        }
        self.machine.endpoint.0.borrow_mut().inbox.extend(data.payload);
        self.pace(data.connection, cx);
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.machine.clock.align(cx.now.as_nanos(), || self.machine.inner.now_ns());
        if self.is_over {
            return self.go_on_leaving(cx);
        }
        self.is_over = self.run.turn(&mut self.report) == Turn::HandedOver;
        self.run.gateway.begin_poll();
        self.carry_out(cx);
        if let Some(connection) = self.connection {
            self.pace(connection, cx);
            self.prepared.prepare(connection, core::mem::take(&mut self.is_cold), cx);
        }
    }
}

impl<T, S, M, H> fmt::Debug for WireGateway<T, S, M, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireGateway").field("connection", &self.connection).finish_non_exhaustive()
    }
}

/// Closes behind what was written, which leaves soon or never: nobody counts on it later.
fn close(connection: ConnectionId, cx: &mut Cx<'_>) {
    if let Some(options) = cx.tcp().options(connection) {
        let user_timeout = Some(Duration::from_nanos(LEAVE.as_nanos() as u64));
        // One that has ended is not found.
        let _ = cx.tcp().set_options(connection, &ConnectionOptions { user_timeout, ..options });
    }
    let _ = cx.tcp().close(connection);
}

/// [`consumer::FEED`] and the next one are the lines'.
pub(super) const fn of_line(line: u32) -> ConsumerId {
    ConsumerId(consumer::FEED.0 + line)
}
