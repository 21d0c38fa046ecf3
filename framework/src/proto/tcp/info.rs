//! The state of a connection: the fields of Linux's `TCP_INFO` (`struct tcp_info` in
//! `linux/tcp.h`), by our names for them.
//!
//! Not included: fields that each segment would have to update and nothing here uses
//! (`tcpi_delivery_rate`, `tcpi_delivered`, `tcpi_busy_time`, `tcpi_rwnd_limited`,
//! `tcpi_sndbuf_limited`, `tcpi_rcv_ooopack`, `tcpi_data_segs_in`, `tcpi_data_segs_out`), one for
//! which a connection has no room in its eight cache lines (`tcpi_bytes_retrans`), the state of
//! mechanisms that we do not have (`tcpi_rcv_ssthresh`, `tcpi_rcv_rtt` and `tcpi_rcv_space` of
//! buffers that tune themselves, `tcpi_fackets`, Fast Open), and fields that follow from others
//! (`tcpi_pmtu`).

use core::net::SocketAddrV4;

use super::event::ConnectionId;
use super::machine::Tcp;
use super::options::Congestion;
use super::state::connection::{Connection, InputFlags, LossFlags, Recovery, State};
use super::state::stored::switch;
use crate::time::{Duration, Instant};

/// A connection at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Our end.
    pub local: SocketAddrV4,
    /// The peer's.
    pub remote: SocketAddrV4,
    /// RFC 9293 3.3.2 (`tcpi_state`).
    pub state: State,
    /// Losses are being repaired (`tcpi_ca_state` other than Open).
    pub recovering: bool,
    /// Timeouts in a row (`tcpi_backoff`).
    pub backoff: u8,
    /// Probes without an answer (`tcpi_probes`): of keepalive, of a closed window, and of a tail
    /// except the first.
    pub probes: u8,
    /// Negotiated by the SYNs (`tcpi_options`).
    pub timestamps: bool,
    /// Selective acknowledgments (RFC 2018), likewise negotiated.
    pub sack: bool,
    /// Explicit congestion notification (RFC 3168), likewise negotiated.
    pub ecn: bool,
    /// The shift of the peer's windows (`tcpi_snd_wscale`).
    pub snd_wscale: u8,
    /// The shift of ours (`tcpi_rcv_wscale`).
    pub rcv_wscale: u8,
    /// Largest payload of our segments (`tcpi_snd_mss`).
    pub snd_mss: u16,
    /// Largest payload of the peer's (`tcpi_advmss`).
    pub rcv_mss: u16,
    /// (`tcpi_rto`).
    pub rto: Duration,
    /// Zero before the first sample (`tcpi_rtt`).
    pub srtt: Duration,
    /// (`tcpi_rttvar`).
    pub rttvar: Duration,
    /// The recent minimum (`tcpi_min_rtt`).
    pub rtt_min: Duration,
    /// The congestion control.
    pub congestion: Congestion,
    /// Bytes (`tcpi_snd_cwnd`, which counts segments).
    pub cwnd: u32,
    /// Bytes; `u32::MAX` before the first loss (`tcpi_snd_ssthresh`).
    pub ssthresh: u32,
    /// Limit in bytes a second; `None` for no limit (`tcpi_pacing_rate`).
    pub pacing_rate: Option<u64>,
    /// The peer's window in bytes (`tcpi_snd_wnd`).
    pub snd_wnd: u32,
    /// Ours (`tcpi_rcv_wnd`).
    pub rcv_wnd: u32,
    /// Bytes sent and not acknowledged (`tcpi_unacked`).
    pub unacked_len: u32,
    /// The part of them that the peer has received out of order (`tcpi_sacked`).
    pub sacked_len: u32,
    /// The part of them that is considered lost (`tcpi_lost`).
    pub lost_len: u32,
    /// The part of them that was retransmitted and is in flight (`tcpi_retrans`).
    pub resent_len: u32,
    /// Bytes queued and never sent yet (`tcpi_notsent_bytes`).
    pub unsent_len: u32,
    /// Bytes in order that the app has not read.
    pub unread_len: u32,
    /// Since an acceptable segment arrived (`tcpi_last_data_recv`, `tcpi_last_ack_recv`).
    pub silence: Duration,
    /// Since data or a FIN was sent last (`tcpi_last_data_sent`); `None` where there was none
    /// yet. Of a connection that has ended, what the peer has acknowledged counts.
    pub since_sent: Option<Duration>,
    /// Bytes sent for the first time (`tcpi_bytes_sent`, less `tcpi_bytes_retrans`).
    pub bytes_sent: u64,
    /// (`tcpi_bytes_acked`).
    pub bytes_acked: u64,
    /// (`tcpi_bytes_received`).
    pub bytes_received: u64,
    /// (`tcpi_segs_out`).
    pub segments_out: u64,
    /// (`tcpi_segs_in`).
    pub segments_in: u64,
    /// (`tcpi_total_retrans`), 2^32 - 1 at most.
    pub resent_segments: u32,
    /// Segments that the peer got twice (`tcpi_dsack_dups`), 2^32 - 1 at most.
    pub dsacks: u32,
    /// Retransmission timeouts (`tcpi_total_rto`), 65,535 at most.
    pub timeouts: u32,
    /// Segments were seen out of order (`tcpi_reord_seen`).
    pub reordering_seen: bool,
    /// ICMP errors about our segments that end no connection: a route that is converging, or a
    /// forgery (RFC 9293 3.9.2.2; `IP_RECVERR`), 255 at most.
    pub soft_errors: u32,
}

impl<P> Tcp<P> {
    /// The state of a connection; `None` where the name is invalid.
    pub fn info(&self, id: ConnectionId, now: Instant) -> Option<TcpInfo> {
        let connection = self.connections.get(id.slot).filter(|connection| connection.generation == id.generation)?;
        let newest = self.shared.chunks.get(connection.send.in_flight.tail).map(|chunk| now.since(chunk.sent_at));
        let info = connection.info(now);
        Some(TcpInfo { since_sent: newest.or(info.since_sent), ..info })
    }

    /// The state of a connection at its end, for an app that gets its `Closed` event; `None` once
    /// another one has ended.
    pub fn info_at_end(&self, id: ConnectionId, now: Instant) -> Option<TcpInfo> {
        let (_, received_at, info) = self.shared.last_closed.filter(|(last, ..)| *last == id)?;
        let later = now.since(received_at);
        Some(TcpInfo { silence: later, since_sent: info.since_sent.map(|since| since + later), ..info })
    }
}

impl Connection {
    /// Its state at `now`.
    pub(super) fn info(&self, now: Instant) -> TcpInfo {
        let flight = self.snd.flight();
        let arrived_sent_at = self.rack_segment.xmit_ts;
        TcpInfo {
            local: self.flow.local,
            remote: self.flow.remote,
            state: self.state,
            recovering: self.recovery != Recovery::Open,
            backoff: self.clock.backoff,
            probes: self.clock.probes,
            timestamps: self.has(InputFlags::TIMESTAMPS),
            sack: self.has(InputFlags::SACK),
            ecn: self.has(InputFlags::ECN),
            snd_wscale: self.snd.wscale,
            rcv_wscale: self.snd.rcv_wscale,
            snd_mss: self.snd.mss,
            rcv_mss: self.rcv.mss,
            rto: self.rtt.rto.span(),
            srtt: self.rtt.srtt.span(),
            rttvar: self.round.rttvar.span(),
            rtt_min: self.round.rtt_min.span(),
            congestion: self.congestion.kind,
            cwnd: self.congestion.cwnd,
            ssthresh: self.congestion.ssthresh,
            pacing_rate: self.is_on(switch::PACING).then_some(self.rare_options.pacing_rate),
            snd_wnd: self.snd.wnd,
            rcv_wnd: self.rcv_wnd(),
            unacked_len: flight,
            sacked_len: self.sack.sacked_len,
            lost_len: self.sack.lost_len,
            resent_len: self.sack.resent_len,
            // A FIN or SYN in flight takes a sequence number, but is no byte.
            unsent_len: self.send.len.saturating_sub(flight),
            unread_len: self.rcv.in_order_len,
            silence: now.since(self.clock.last_received_at),
            since_sent: (arrived_sent_at != Instant::ZERO).then(|| now.since(arrived_sent_at)),
            bytes_sent: self.bytes_sent(),
            bytes_acked: self.bytes_acked(),
            bytes_received: self.tally.bytes_received,
            segments_out: self.tally.segments_out,
            segments_in: self.tally.segments_in,
            resent_segments: self.rare_tally.resent_segments,
            dsacks: self.rare_tally.dsacks,
            timeouts: self.rare_tally.timeouts.into(),
            reordering_seen: self.has(LossFlags::REORDERING_SEEN),
            soft_errors: self.path.soft_errors.into(),
        }
    }
}
