//! `TCP_INFO`: a connection's state in the kernel's layout.

use wirepath::pipeline::tcp::{State as TcpState, TcpInfo};
use wirepath::time::Duration;

use crate::options::{INTERACTIVE_ACK_DELAY, Options};
use crate::socket::{Socket, State};

/// `struct tcp_info` as of Linux 6.7.
const TCP_INFO_LEN: usize = 248;

/// `struct tcp_info`, with 0 in the fields that docs/sockets.md names.
pub(super) fn tcp_info(socket: &Socket, info: Option<&TcpInfo>, options: &Options) -> [u8; TCP_INFO_LEN] {
    const ESTABLISHED_BITS: [u8; 4] = [1, 2, 4, 8];
    let mut out = [0; TCP_INFO_LEN];
    out[0] = match (&socket.state, info) {
        (State::Listener(_), _) => 10,
        (_, Some(info)) => state_of(info.state),
        (_, None) => 7,
    };
    let mut put = |at: usize, number: u32| out[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    if let State::Listener(listener) = &socket.state {
        // The length of the queue, and its limit.
        put(24, listener.len() as u32);
        put(28, listener.backlog() as u32);
    }
    let Some(info) = info else { return out };
    let words = words_of(info);
    words.into_iter().for_each(|(at, number)| put(at, number));
    let longs = [
        (104, info.pacing_rate.unwrap_or(u64::MAX)),
        (112, options.pacing_rate.unwrap_or(u64::MAX)),
        (120, info.bytes_acked),
        (128, info.bytes_received),
        (200, info.bytes_sent),
    ];
    longs.into_iter().for_each(|(at, number)| out[at..at + 8].copy_from_slice(&number.to_ne_bytes()));
    // Open, or Recovery.
    out[1] = if info.recovering { 3 } else { 0 };
    // Retransmissions by timeout in a row; what is sent meanwhile otherwise is a probe.
    out[2] = if info.probes == 0 { info.backoff } else { 0 };
    (out[3], out[4]) = (info.probes, info.backoff);
    let has_scale = info.snd_wscale > 0 || info.rcv_wscale > 0;
    let negotiated = [info.timestamps, info.sack, has_scale, info.ecn];
    out[5] = negotiated.into_iter().zip(ESTABLISHED_BITS).filter(|(on, _)| *on).map(|(_, bit)| bit).sum();
    out[6] = info.snd_wscale | info.rcv_wscale << 4;
    out[240..242].copy_from_slice(&(info.timeouts as u16).to_ne_bytes());
    out
}

/// Fields of four bytes: their offsets and values.
fn words_of(info: &TcpInfo) -> [(usize, u32); 28] {
    /// Headers of IPv4 and of TCP, and the option of timestamps, which each segment has.
    const HEADERS_LEN: u32 = 40;
    const TIMESTAMPS_LEN: u32 = 12;
    let micros = |span: Duration| u32::try_from(span.as_nanos() / 1_000).unwrap_or(u32::MAX);
    let millis = |span: Duration| u32::try_from(span.as_nanos() / 1_000_000).unwrap_or(u32::MAX);
    let mss = u32::from(info.snd_mss).max(1);
    let segments = |bytes: u32| bytes.div_ceil(mss);
    let options_len = if info.timestamps { TIMESTAMPS_LEN } else { 0 };
    [
        (8, micros(info.rto)),
        (12, micros(INTERACTIVE_ACK_DELAY)),
        (16, info.snd_mss.into()),
        (20, info.rcv_mss.into()),
        (24, segments(info.unacked_len)),
        (28, segments(info.sacked_len)),
        (32, segments(info.lost_len)),
        (36, segments(info.resent_len)),
        (44, millis(info.since_sent.unwrap_or_default())),
        (52, millis(info.silence)),
        (56, millis(info.silence)),
        (60, u32::from(info.snd_mss) + options_len + HEADERS_LEN),
        // The receive buffer does not grow by itself.
        (64, info.rcv_wnd),
        (68, micros(info.srtt)),
        (72, micros(info.rttvar)),
        (76, if info.ssthresh == u32::MAX { i32::MAX as u32 } else { segments(info.ssthresh) }),
        (80, segments(info.cwnd)),
        (84, info.rcv_mss.into()),
        (96, info.rcv_wnd),
        (100, info.resent_segments),
        (136, info.segments_out as u32),
        (140, info.segments_in as u32),
        (144, info.unsent_len),
        (148, micros(info.rtt_min)),
        (216, info.dsacks),
        (220, info.reordering_seen.into()),
        (228, info.snd_wnd),
        (232, info.rcv_wnd),
    ]
}

/// `TCP_ESTABLISHED` and the others.
fn state_of(state: TcpState) -> u8 {
    match state {
        TcpState::Established => 1,
        TcpState::SynSent => 2,
        TcpState::SynReceived => 3,
        TcpState::FinWait1 => 4,
        TcpState::FinWait2 => 5,
        TcpState::TimeWait => 6,
        TcpState::Closed => 7,
        TcpState::CloseWait => 8,
        TcpState::LastAck => 9,
        TcpState::Closing => 11,
    }
}
