//! The worker's callbacks: each hands its data or event to the socket, and wakes waiting callers.

use wirepath::pipeline::tcp::{AcceptDecision, CloseReason, ConnectionId, ListenerId, TcpData, TcpEvent};
use wirepath::pipeline::{App, Cx, Datagram, IcmpError};
use wirepath::proto::{ConsumerId, Flow};
use wirepath::time::Instant;

use super::{NONE, SocketId, Sockets};
use crate::errno::{self, Errno, FRAGMENTATION_NEEDED, IcmpErrorInfo};
use crate::options::MtuDiscover;
use crate::ready::Ready;
use crate::socket::stream::Phase;
use crate::socket::{Payload, Socket, State};

impl App for Sockets {
    #[inline]
    fn tick(&mut self, cx: &mut Cx<'_>) {
        if self.has_waiting_work() {
            self.work(cx);
        }
    }

    fn next_deadline(&self, cx: &Cx<'_>) -> Instant {
        self.flows
            .next_deadline()
            .min(self.uncorked_at())
            .min(self.stamps.next_deadline(cx.now))
            .min(self.accepts_overdue_at())
            .min(self.throttled_at(cx.now))
            .min(self.starved_at(cx.now))
    }

    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        let slot = datagram.consumer.0;
        let is_copied = self.buffers.are_scarce(cx);
        let Some(place) = self.slots.get_mut(slot as usize) else { return };
        let id = SocketId { slot, generation: place.generation };
        let Some(socket) = &mut place.socket else { return };
        let Socket { state: State::Datagram(datagrams), options, traffic, watches, .. } = socket else { return };
        if datagram.ttl < options.ttl_min {
            datagrams.below_ttl_min += 1;
            return;
        }
        if datagrams.push(datagram, cx.now, options.receive_buffer as usize, is_copied) {
            traffic.received(datagram.payload.len(), cx.now);
            if !watches.is_empty() {
                self.wake_for(id, Ready::IN);
            }
        }
    }

    fn on_icmp_error(&mut self, error: &IcmpError<'_>, _: &mut Cx<'_>) {
        let slot = error.consumer.0;
        let Some(place) = self.slots.get_mut(slot as usize) else { return };
        let id = SocketId { slot, generation: place.generation };
        let Some(socket) = &mut place.socket else { return };
        let State::Datagram(datagrams) = &socket.state else { return };
        let IcmpErrorInfo { errno, is_hard, kind, code, .. } = errno::of_icmp(error.kind);
        if (kind, code) == FRAGMENTATION_NEEDED && socket.options.mtu_discover == MtuDiscover::Dont {
            return;
        }
        if socket.options.receive_errors {
            socket.keep_icmp_error(error);
        } else if !is_hard || datagrams.remote != Some(error.flow.remote) {
            // On an unconnected socket the error may be about any datagram: Linux reports it only
            // by `IP_RECVERR`.
            return;
        }
        socket.error = Some(errno);
        self.wake_for(id, Ready::ERR);
    }

    /// Linux `tcp_v4_err`: an attempt to connect has an entry in the error queue in any case, a
    /// connection only an error, and only with `IP_RECVERR`.
    fn on_tcp_icmp_error(&mut self, connection: ConnectionId, error: &IcmpError<'_>, _: &mut Cx<'_>) {
        let Some((id, socket)) = self.stream_of(connection) else { return };
        let errno = errno::of_icmp(error.kind).errno;
        let receives_errors = socket.options.receive_errors;
        let State::Stream(stream) = &mut socket.state else { return };
        if stream.phase == Phase::Connecting {
            stream.failure = Some(errno);
            socket.keep_icmp_error(error);
        } else if receives_errors {
            socket.error = Some(errno);
        } else {
            return;
        }
        self.wake_for(id, Ready::ERR);
    }

    fn on_tcp_accept(&mut self, listener: ListenerId, _: ConsumerId, _: Flow) -> AcceptDecision {
        let at = self.listeners.iter().find(|(other, _)| *other == listener).map(|(_, id)| *id);
        let is_full = self.len() >= self.sockets_max
            || at.is_none_or(|id| match self.get(id) {
                Ok(Socket { state: State::Listener(listener), .. }) => listener.is_full(),
                _ => true,
            });
        if !is_full {
            return AcceptDecision::Yes;
        }
        if let Some(Ok(Socket { state: State::Listener(listener), .. })) = at.map(|id| self.find(id)) {
            listener.ignored += 1;
        }
        AcceptDecision::Ignore
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        if let TcpEvent::Connected { listener: Some(listener) } = event {
            return self.enqueue(connection, listener, cx);
        }
        let Some((id, socket)) = self.stream_of(connection) else { return self.go_on_closing(connection, event, cx) };
        if matches!(event, TcpEvent::Closed(_)) {
            socket.keep_statistics(connection, cx);
        }
        let State::Stream(stream) = &mut socket.state else { return };
        match event {
            TcpEvent::Connected { .. } => {
                stream.phase = Phase::Open;
                stream.is_writable = true;
            }
            TcpEvent::Writable => {
                stream.is_writable = !(stream.is_throttled | stream.sends_fin);
                if !stream.pending.is_empty() {
                    // Bytes whose cork was over before there was room leave whole.
                    let is_corked = socket.options.cork && stream.corked_until.is_some();
                    stream.send_more(connection, is_corked, cx);
                }
            }
            TcpEvent::PeerClosed => stream.is_peer_closed = true,
            TcpEvent::Closed(reason) => {
                // A socket that has read the peer's end, still sends and is reset gets the error
                // that a write would get (RFC 9293 3.10.7.4, Linux `tcp_reset`).
                let is_in_close_wait = reason == CloseReason::Reset && stream.is_peer_closed && !stream.sends_fin;
                let error = match (reason, stream.failure.take()) {
                    (CloseReason::Unreachable, Some(error)) => Some(error),
                    _ => errno::of_close(reason),
                };
                socket.error = if is_in_close_wait { Some(Errno::EPIPE) } else { error };
                stream.end();
                self.by_connection[connection.slot()] = NONE;
            }
            _ => return,
        }
        if matches!(event, TcpEvent::PeerClosed | TcpEvent::Closed(_)) {
            self.accept_deferred(id);
        }
        self.wake_for(id, if event == TcpEvent::Writable { Ready::OUT } else { Ready::ALL });
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        let connection = data.connection;
        let is_copied = self.buffers.are_scarce(cx);
        let Some((id, socket)) = self.stream_of(connection) else { return self.refuse_data(connection, cx) };
        let Socket { state: State::Stream(stream), options, watches, .. } = socket else { return };
        if stream.is_read_shut && stream.sends_fin {
            // The program will never read this data: reset the connection (RFC 1122 4.2.2.13).
            // That of a socket that was shut before it connected waits, as on Linux.
            return self.hang_up(id, Errno::ECONNRESET, cx);
        }
        stream.push(Payload::of(data.hold(), is_copied));
        if options.asks_for_times() {
            stream.keep_arrival((cx.now, data.timestamp));
        }
        if !stream.is_paused && stream.charge() >= options.receive_buffer as usize {
            stream.is_paused = cx.tcp().pause(connection).is_ok();
        }
        let (is_deferred, is_watched) = (stream.deferred_by.is_some(), !watches.is_empty());
        if is_deferred {
            self.accept_deferred(id);
        }
        if is_watched {
            self.wake_for(id, Ready::IN);
        }
    }
}

impl Sockets {
    /// Whether anything waits for a turn: mostly nothing does.
    #[inline]
    fn has_waiting_work(&self) -> bool {
        let lost = usize::from(self.flows.has_lost());
        let sends = self.corked.len() | self.throttled.len() | self.starved.len();
        let counts = [self.flows.leaving(), lost, sends, self.stamps.len(), self.deferred];
        counts.into_iter().fold(0, |all, count| all | count) != 0
    }

    #[inline(never)]
    fn work(&mut self, cx: &mut Cx<'_>) {
        self.flows.tick(cx);
        if self.flows.has_lost() {
            self.lose_flows(cx);
        }
        if self.uncorked_at() <= cx.now {
            self.uncork_due(cx);
        }
        if !self.stamps.is_empty() {
            self.settle_stamps(cx);
        }
        if !self.throttled.is_empty() {
            self.release_throttled(cx);
        }
        if !self.starved.is_empty() {
            self.feed_starved(cx);
        }
        if self.deferred > 0 {
            self.accept_overdue(cx.now);
        }
    }
}
