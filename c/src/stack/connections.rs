//! The connections of a stack, and the orders that are prepared for them.

use core::net::SocketAddrV4;

use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::{
    CallError, ConnectError, ConnectionId, ConnectionOptions, PreparedOrderError, SendError, State, TcpConfig, TcpSent,
};
use wirepath::port::Subscription;
use wirepath::proto::ConsumerId;
use wirepath::time::Instant;

use super::{Stack, send};
use crate::abi::{self, Handle};
use crate::error::{Code, Fault, Result};

impl Stack {
    pub(crate) fn connect(
        &mut self,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        options: Option<ConnectionOptions>,
        tag: u32,
    ) -> Result<Handle> {
        let answer = self.port.is_shared().then_some((remote, local.port()));
        if let Some(answer) = answer {
            self.steer_answers(answer)?;
        }
        let options = options.unwrap_or_default();
        let id = self.call(0, |cx| cx.tcp().connect(local, remote, &options, ConsumerId(tag)));
        let connection = id.map(|id| Handle { id: id.to_bits() ^ self.number.mark() });
        match (answer, connection) {
            (Some(answer), Ok(connection)) => self.answers.belong_to(answer, connection.id),
            (Some(answer), Err(_)) => {
                let steered = self.answers.give_up(answer);
                self.steer_no_more(steered);
            }
            (None, _) => (),
        }
        connection.map_err(|error| match error {
            ConnectError::TooMany { .. } => Fault::because(Code::Limit, error),
            ConnectError::NoRoute(_) => Fault::because(Code::Unreachable, error),
            ConnectError::NoTcp => {
                Fault::because(Code::State, "the stack was opened without TCP: set wp_options.connections")
            }
            ConnectError::BadAddress(_) | ConnectError::Option(_) => Fault::because(Code::Argument, error),
            error => Fault::because(Code::Refused, error),
        })
    }

    /// On an interface that is shared with the kernel: steers the peer's segments to this port
    /// here, as long as there is a connection between them.
    fn steer_answers(&mut self, answer: (SocketAddrV4, u16)) -> Result<()> {
        if answer.1 == 0 {
            let why = "on an interface that is shared with the kernel a connection needs a local port of its own choice, \
                       so that its answers come here: set sin_port of the local address";
            return Err(Fault::because(Code::Argument, why));
        }
        self.forget_waited(self.port.now());
        let mut steered = self.try_steer(answer);
        if steered.is_err() {
            // The rules may all be taken: a TIME-WAIT is worth less than a connection.
            self.forget_waited(Instant::MAX);
            steered = self.try_steer(answer);
        }
        steered.map_err(|error| Fault::because(Code::Refused, error))
    }

    /// On an interface that is shared with the kernel: a listener is about to close, and its rule
    /// goes with it. Each connection that it has accepted gets a rule of its own, without which the
    /// kernel would reset the peer.
    ///
    /// # Errors
    /// The device has no rule left for one of them: the listener has to stay.
    pub(super) fn keep_accepted(&mut self, listener: SocketAddrV4) -> Result<()> {
        let Some(shared) = &mut self.port.app_mut().shared else { return Ok(()) };
        let accepted = shared.take_accepted(|local| {
            local.port() == listener.port() && (listener.ip().is_unspecified() || listener.ip() == local.ip())
        });
        let mut accepted = accepted.into_iter();
        while let Some((connection, local, remote)) = accepted.next() {
            let answer = (remote, local.port());
            if let Err(fault) = self.steer_answers(answer) {
                if let Some(shared) = &mut self.port.app_mut().shared {
                    shared.give_back(core::iter::once((connection, local, remote)).chain(accepted));
                }
                return Err(fault);
            }
            self.answers.belong_to(answer, connection);
        }
        Ok(())
    }

    fn try_steer(&mut self, answer: (SocketAddrV4, u16)) -> core::result::Result<(), wirepath::Error> {
        let Self { answers, port, .. } = self;
        answers.steer(answer, |subscription| port.subscribe(subscription))
    }

    /// Gives the answers to connections that have ended back to the kernel.
    #[cold]
    pub(super) fn forget_answers(&mut self) {
        let now = self.port.now();
        let ended = self.port.app_mut().shared.as_mut().map(|shared| core::mem::take(&mut shared.ended));
        let ended = ended.unwrap_or_default();
        for (connection, has_segments_to_come) in ended {
            match has_segments_to_come {
                true => self.answers.wait(connection, now + TcpConfig::default().time_wait),
                false => self.forget_answer(connection),
            }
        }
        self.forget_waited(now);
    }

    /// The same of connections whose TIME-WAIT has ended by then.
    fn forget_waited(&mut self, now: Instant) {
        while let Some(connection) = self.answers.waited(now) {
            self.forget_answer(connection);
        }
    }

    fn forget_answer(&mut self, connection: u64) {
        let steered = self.answers.forget(connection);
        self.steer_no_more(steered);
    }

    fn steer_no_more(&mut self, steered: Option<Subscription>) {
        // A rule that the device keeps goes with the stack, or serves the next such connection.
        let _ = steered.map(|steered| self.port.unsubscribe(&steered));
    }

    /// The framework's name of a connection.
    #[inline]
    fn connection(&self, connection: Handle) -> ConnectionId {
        ConnectionId::from_bits(connection.id ^ self.number.mark())
    }

    #[inline]
    pub(crate) fn tcp_send(&mut self, connection: Handle, payload: &[u8], flags: u32) -> Result<i64> {
        let id = self.connection(connection);
        let Self { port, stamp, .. } = self;
        match send(port, stamp, flags, |cx| cx.tcp().send(id, payload)) {
            Ok(count) => Ok(count as i64),
            Err(error) => Err(tcp_fault(error)),
        }
    }

    pub(crate) fn shutdown(&mut self, connection: Handle) -> Result<()> {
        self.on_connection(connection, |id, cx| cx.tcp().shutdown(id))
    }

    pub(crate) fn close(&mut self, connection: Handle) -> Result<()> {
        self.on_connection(connection, |id, cx| cx.tcp().close(id))
    }

    pub(crate) fn abort(&mut self, connection: Handle) -> Result<()> {
        self.on_connection(connection, |id, cx| cx.tcp().abort(id))
    }

    pub(crate) fn pause(&mut self, connection: Handle) -> Result<()> {
        self.on_connection(connection, |id, cx| cx.tcp().pause(id))
    }

    pub(crate) fn resume(&mut self, connection: Handle) -> Result<()> {
        self.on_connection(connection, |id, cx| cx.tcp().resume(id))
    }

    pub(crate) fn tcp_info(&mut self, connection: Handle) -> Result<abi::TcpInfo> {
        let id = self.connection(connection);
        let info = self.port.with_app_batched(|_, cx| cx.tcp().info(id)).ok_or(Code::Stale)?;
        Ok(abi::TcpInfo {
            size: size_of::<abi::TcpInfo>() as u32,
            state: state(info.state),
            rto_ns: info.rto.as_nanos(),
            srtt_ns: info.srtt.as_nanos(),
            rttvar_ns: info.rttvar.as_nanos(),
            rtt_min_ns: info.rtt_min.as_nanos(),
            silence_ns: info.silence.as_nanos(),
            bytes_sent: info.bytes_sent,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            segments_out: info.segments_out,
            segments_in: info.segments_in,
            mss: info.snd_mss.into(),
            cwnd: info.cwnd,
            send_window: info.snd_wnd,
            receive_window: info.rcv_wnd,
            unacked: info.unacked_len,
            unsent: info.unsent_len,
            unread: info.unread_len,
            resent: info.resent_segments,
            timeouts: info.timeouts,
            reserved: 0,
        })
    }

    fn on_connection(
        &mut self,
        connection: Handle,
        act: impl FnOnce(ConnectionId, &mut Cx<'_>) -> core::result::Result<(), CallError>,
    ) -> Result<()> {
        let id = self.connection(connection);
        self.call(0, |cx| act(id, cx)).map_err(|error| match error {
            CallError::NotFound => Code::Stale.into(),
            CallError::NotConnected => Code::State.into(),
            error => Fault::because(Code::Argument, error),
        })
    }

    // Orders.

    pub(crate) fn prepare(&mut self, connection: Handle, payload: &[u8]) -> Result<Handle> {
        let id = self.connection(connection);
        let order = self.call(0, |cx| cx.tcp().prepare(id, payload));
        self.orders.insert(order.map_err(order_fault)?)
    }

    #[inline]
    pub(crate) fn patch(&mut self, order: Handle, offset: usize, bytes: &[u8]) -> Result<()> {
        self.orders.get_mut(order)?.patch(offset, bytes).map_err(order_fault)
    }

    #[inline]
    pub(crate) fn fire(&mut self, order: Handle, flags: u32) -> Result<i32> {
        let Self { orders, port, stamp, .. } = self;
        let order = orders.get_mut(order)?;
        // `fire` rings the doorbell itself.
        let sent = send(port, stamp, abi::WP_MORE, |cx| match flags & (abi::WP_MORE | abi::WP_NOW_OR_NEVER) {
            0 => cx.tcp().fire(order).map_err(Some),
            abi::WP_MORE => cx.tcp().post(order).map_err(Some),
            _ => match cx.tcp().try_fire(order).map_err(Some)? {
                true => Ok(TcpSent::Posted),
                false => Err(None),
            },
        });
        match sent {
            Ok(TcpSent::Posted) => Ok(abi::WP_SENT),
            Ok(TcpSent::Queued) => Ok(abi::WP_QUEUED),
            Ok(TcpSent::Unreachable(_)) => Ok(abi::WP_WAITS_FOR_PATH),
            // A later way to wait.
            Ok(_) => Ok(abi::WP_QUEUED),
            Err(Some(error)) => Err(tcp_fault(error)),
            Err(None) => Err(Code::Again.into()),
        }
    }

    pub(crate) fn warm(&mut self, order: Handle) -> Result<i32> {
        let Self { orders, port, .. } = self;
        let order = orders.get_mut(order)?;
        port.with_app_batched(|_, cx| cx.tcp().warm(order)).map(i32::from).map_err(tcp_fault)
    }

    pub(crate) fn free_order(&mut self, order: Handle) -> Result<()> {
        self.orders.remove(order).map(drop)
    }
}

fn state(state: State) -> u32 {
    match state {
        State::SynSent => abi::WP_TCP_SYN_SENT,
        State::SynReceived => abi::WP_TCP_SYN_RECEIVED,
        State::Established => abi::WP_TCP_ESTABLISHED,
        State::FinWait1 => abi::WP_TCP_FIN_WAIT_1,
        State::FinWait2 => abi::WP_TCP_FIN_WAIT_2,
        State::CloseWait => abi::WP_TCP_CLOSE_WAIT,
        State::Closing => abi::WP_TCP_CLOSING,
        State::LastAck => abi::WP_TCP_LAST_ACK,
        State::TimeWait => abi::WP_TCP_TIME_WAIT,
        State::Closed => abi::WP_TCP_CLOSED,
    }
}

#[cold]
fn tcp_fault(error: SendError) -> Fault {
    match error {
        SendError::NotFound => Code::Stale.into(),
        SendError::Full | SendError::PoolEmpty | SendError::NoChunk => Code::Again.into(),
        SendError::TooLong { .. } => Fault::because(Code::TooLong, error),
        error => Fault::because(Code::State, error),
    }
}

#[cold]
fn order_fault(error: PreparedOrderError) -> Fault {
    match error {
        PreparedOrderError::Send(error) => tcp_fault(error),
        PreparedOrderError::OverSegment { .. } | PreparedOrderError::OverWindow { .. } => {
            Fault::because(Code::TooLong, error)
        }
        error => Fault::because(Code::Argument, error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic here is the report
mod tests {
    use wirepath::port::udp;

    use super::super::{ANY, Settings, Subscribed};
    use super::*;
    use crate::collector::Shared;

    #[test]
    fn listener_stays_where_one_of_its_connections_gets_no_rule() {
        let settings = Settings { address: Some("192.0.2.1/24".into()), connections: 4, ..Settings::default() };
        let mut stack = Stack::open("memory:no-rule", &settings).unwrap();
        // No rule has port 0.
        let (local, remote) = ("192.0.2.1:0".parse().unwrap(), "192.0.2.2:9".parse().unwrap());
        let mut shared = Shared::with_capacity(4);
        shared.give_back([(7, local, remote)].into_iter());
        stack.port.app_mut().shared = Some(shared);
        let listens_at = Some(ANY);
        let handle = stack.subscriptions.insert(Subscribed { subscription: udp(*ANY.ip(), 9), listens_at }).unwrap();
        for _ in 0..2 {
            assert!(stack.unsubscribe(handle).is_err_and(|fault| fault.code != Code::Stale));
        }
        let accepted = stack.port.app_mut().shared.as_mut().unwrap().take_accepted(|_| true);
        assert_eq!(accepted, [(7, local, remote)]);
    }
}
