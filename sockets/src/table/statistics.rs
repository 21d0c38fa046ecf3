//! What a listing shows of a socket: its state, its queues, and what it has received and sent.

use core::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use wirepath::counters::Block;
use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::{ConnectionId, State as TcpState, TcpInfo};
use wirepath::time::Instant;

use super::{Kind, SocketId, Sockets};
use crate::errno::Errno;
use crate::listing::{Entry, Group, State as Listed};
use crate::socket::datagram::Membership;
use crate::socket::{Socket, State, Traffic};

impl Sockets {
    /// The values of a socket in a listing, at the wall time `now`. Its descriptor, its owner, the
    /// reason and the time at which it was opened are the caller's to fill in.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn entry(&self, id: SocketId, now: SystemTime, cx: &mut Cx<'_>) -> Result<Entry<'static>, Errno> {
        let socket = self.get(id)?;
        let info = match &socket.state {
            State::Stream(stream) => stream.connection.and_then(|connection| cx.tcp().info(connection)),
            State::Listener(_) | State::Datagram(_) => None,
        };
        let traffic = info.as_ref().map_or(socket.traffic, |info| Traffic::of(info, cx.now));
        let local = self.local_addr(id)?;
        let mut entry = Entry {
            local: local.into(),
            receive_limit: u64::from(socket.options.receive_buffer),
            rx_bytes: traffic.rx_bytes,
            rx_packets: traffic.rx_packets,
            tx_bytes: traffic.tx_bytes,
            tx_packets: traffic.tx_packets,
            retransmits: traffic.retransmits,
            epoll_sets: socket.watches.len() as u32,
            active: traffic.active.map_or(SystemTime::UNIX_EPOCH, |at| {
                let since = core::time::Duration::from_nanos(cx.now.since(at).as_nanos());
                now.checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH)
            }),
            ..Entry::default()
        };
        match &socket.state {
            State::Datagram(datagrams) => {
                entry.kind = Kind::Datagram;
                entry.state = match (datagrams.remote, local.port()) {
                    (Some(_), _) => Listed::Established,
                    (None, 0) => Listed::Closed,
                    (None, _) => Listed::Bound,
                };
                entry.remote = datagrams.remote.map(Into::into);
                entry.groups = datagrams.memberships.iter().map(Group::from).collect();
                entry.groups_count = datagrams.memberships.len() as u32;
                entry.receive_queue = datagrams.waiting_bytes() as u64;
                entry.receive_queue_max = datagrams.charge_max as u64;
                entry.drops = datagrams.dropped + datagrams.below_ttl_min + datagrams.of_others;
            }
            State::Listener(listener) => {
                entry.state = Listed::Listen;
                (entry.receive_queue, entry.receive_limit) = (listener.len() as u64, listener.backlog() as u64);
                entry.drops = listener.ignored;
            }
            State::Stream(stream) => {
                entry.state = match info.as_ref() {
                    Some(info) => listed(info.state),
                    None if local.port() != 0 && stream.connection.is_none() && !stream.is_read_shut => Listed::Bound,
                    None => Listed::Closed,
                };
                entry.remote = Some(stream.remote.into()).filter(|remote: &SocketAddr| remote.port() != 0);
                entry.receive_queue = stream.len() as u64;
                entry.receive_queue_max = stream.charge_max as u64;
                let unsent = info.as_ref().map_or(0, |info| info.unacked_len as usize + info.unsent_len as usize);
                entry.send_queue = (unsent + stream.pending.len()) as u64;
            }
        }
        Ok(entry)
    }
}

impl Sockets {
    /// How often the port was asked to add or remove a flow, which costs system calls.
    pub fn flow_changes(&self) -> u64 {
        self.flows.changes()
    }

    /// The counters of the worker and its device, where [`Stack::open`](crate::Stack::open) has
    /// made them: another thread may take snapshots of them, which opens no file.
    pub fn counters(&self) -> Option<Arc<Block>> {
        self.flows.counters()
    }
}

impl From<&Membership> for Group {
    fn from(of: &Membership) -> Self {
        let sources = u16::try_from(of.sources.len()).unwrap_or(u16::MAX);
        Self { address: of.group, mode: of.mode, sources }
    }
}

impl Traffic {
    /// The traffic of a connection.
    pub(super) fn of(info: &TcpInfo, now: Instant) -> Self {
        let last = now.as_nanos().checked_sub(info.silence.as_nanos()).map(Instant::from_nanos);
        Self {
            rx_bytes: info.bytes_received,
            rx_packets: info.segments_in,
            tx_bytes: info.bytes_sent,
            tx_packets: info.segments_out,
            retransmits: u64::from(info.resent_segments),
            active: last.filter(|_| info.segments_in > 0),
        }
    }

    /// A datagram was received.
    pub(super) fn received(&mut self, len: usize, now: Instant) {
        self.rx_packets += 1;
        self.rx_bytes += len as u64;
        self.active = Some(now);
    }

    /// A datagram was sent.
    pub(super) fn sent(&mut self, len: usize, now: Instant) {
        self.tx_packets += 1;
        self.tx_bytes += len as u64;
        self.active = Some(now);
    }
}

impl Socket {
    /// Keeps what a connection that is about to be reset has received and sent.
    pub(super) fn keep_traffic(&mut self, cx: &mut Cx<'_>) {
        if let State::Stream(stream) = &self.state
            && let Some(info) = stream.connection.and_then(|connection| cx.tcp().info(connection))
        {
            self.traffic = Traffic::of(&info, cx.now);
        }
    }

    /// Keeps the statistics of a connection that has ended.
    pub(super) fn keep_statistics(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        if let State::Stream(stream) = &mut self.state
            && let Some(info) = cx.tcp().info_at_end(connection)
        {
            stream.last_info = Some(Box::new(info));
            self.traffic = Traffic::of(&info, cx.now);
        }
    }
}

fn listed(state: TcpState) -> Listed {
    match state {
        TcpState::Established => Listed::Established,
        TcpState::SynSent => Listed::SynSent,
        TcpState::SynReceived => Listed::SynReceived,
        TcpState::FinWait1 => Listed::FinWait1,
        TcpState::FinWait2 => Listed::FinWait2,
        TcpState::TimeWait => Listed::TimeWait,
        TcpState::Closed => Listed::Closed,
        TcpState::CloseWait => Listed::CloseWait,
        TcpState::LastAck => Listed::LastAck,
        TcpState::Closing => Listed::Closing,
    }
}
