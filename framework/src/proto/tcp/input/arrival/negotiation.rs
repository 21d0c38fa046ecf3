//! The options negotiated by the two SYNs: segment size, window scale, SACK, timestamps, ECN.

use crate::proto::tcp::machine::Context;
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::Segment;
use crate::proto::tcp::state::connection::{Connection, InputFlags, State, coarse_seconds};
use crate::proto::tcp::state::stored::switch;
use crate::wire::tcp::TcpFlags;

/// RFC 9293 3.7.1: the default of a peer without the option.
const MSS_DEFAULT: u16 = 536;
/// A smaller MSS costs a header for each few bytes (Linux: `tcp_min_snd_mss`).
const MSS_MIN: u16 = 64;
/// IPv4 and TCP headers without options: RFC 6691 2 subtracts no more.
pub(crate) const HEADERS_LEN: usize = 40;
/// The timestamps option, padded: it is in every segment, so the sender subtracts it (RFC 6691 3).
const TIMESTAMPS_LEN: u16 = 12;

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Our side of a new connection: its numbers, its clock, and its offers.
    pub(crate) fn prepare(&mut self) {
        let mtu = self.output.mtu(*self.connection.flow.remote.ip());
        let connection = &mut *self.connection;
        connection.rare_snd.iss = self.shared.secret.isn(connection.flow, self.now);
        connection.ts.offset = self.shared.secret.timestamp_offset(connection.flow);
        (connection.snd.una, connection.snd.nxt) = (connection.rare_snd.iss, connection.rare_snd.iss);
        connection.rcv.mss = receive_mss(mtu, connection.rare_options.mss_max);
        connection.snd.rcv_wscale = window_scale(connection.options.receive_buffer);
    }

    /// Applies the peer's SYN.
    pub(crate) fn take_syn(&mut self, segment: &Segment) {
        let connection = &mut *self.connection;
        (connection.rare_rcv.irs, connection.rcv.nxt) = (segment.seq, segment.seq + 1);
        connection.advertised.last_ack_sent = connection.rcv.nxt;
        // The window of a SYN of ours that was sent before, if there was one: no window of a SYN is
        // scaled (RFC 7323 2.2).
        let is_answer = connection.state == State::SynSent;
        connection.advertised.adv = connection.rcv.nxt;
        if is_answer {
            connection.advertised.adv += connection.options.receive_buffer.min(65_535);
        }
        connection.snd.wnd = segment.wnd.into();
        connection.rare_snd.wnd_max = connection.snd.wnd;
        connection.snd.wl1 = segment.seq;
        connection.snd.wl2 = if segment.has(TcpFlags::ACK) { segment.ack } else { connection.rare_snd.iss };
        negotiate(connection, segment);
        connection.ts.recent_at_s = coarse_seconds(self.now);
    }
}

/// An option is on where both offer it.
fn negotiate(connection: &mut Connection, segment: &Segment) {
    if let Some(timestamps) = segment.timestamps.filter(|_| connection.is_on(switch::TIMESTAMPS)) {
        connection.ts.recent = timestamps.value;
        connection.set(InputFlags::TIMESTAMPS);
    }
    if segment.syn.sack_permitted && connection.is_on(switch::SACK) {
        connection.set(InputFlags::SACK);
    }
    match segment.syn.window_scale {
        Some(shift) => {
            // RFC 7323 2.3: more than 14 is 14.
            connection.snd.wscale = shift.min(14);
            connection.set(InputFlags::WINDOW_SCALE);
        }
        None => (connection.snd.wscale, connection.snd.rcv_wscale) = (0, 0),
    }
    if connection.is_on(switch::ECN) && asks_for_ecn(segment) {
        connection.set(InputFlags::ECN);
    }
    connection.snd.mss = send_mss(segment.syn.mss, connection);
    connection.path.mss_max = connection.snd.mss;
}

/// RFC 3168 6.1.1: both bits in a SYN, one of them in its answer; both in an answer come from a
/// peer that reflects unknown bits.
pub(super) fn asks_for_ecn(segment: &Segment) -> bool {
    let has_cwr = segment.has(TcpFlags::CWR);
    segment.has(TcpFlags::ECE) && has_cwr != segment.has(TcpFlags::ACK)
}

/// RFC 6691 2: the MSS option is the MTU less the fixed headers; `mss_max` limits it unless it is
/// 0.
pub(crate) fn receive_mss(mtu: usize, mss_max: u16) -> u16 {
    let mss = mtu.saturating_sub(HEADERS_LEN).clamp(MSS_MIN.into(), u16::MAX.into()) as u16;
    if mss_max == 0 { mss } else { mss.min(mss_max) }
}

/// RFC 9293 3.7.1: Eff.snd.MSS = min(SendMSS + 20, MMS_S) - TCPhdrsize - IPoptionsize. Our own
/// receive MSS applies to the same links.
fn send_mss(peer: Option<u16>, connection: &Connection) -> u16 {
    let mss = peer.unwrap_or(MSS_DEFAULT).max(MSS_MIN).min(connection.rcv.mss);
    let wanted = match connection.rare_options.mss_max {
        0 => mss,
        // Less than our SYN has announced where the app has since lowered it.
        mss_max => mss.min(mss_max),
    };
    less_options(wanted, connection)
}

/// A segment's payload where `mss` is without options.
pub(crate) fn less_options(mss: u16, connection: &Connection) -> u16 {
    if connection.has(InputFlags::TIMESTAMPS) { mss - TIMESTAMPS_LEN } else { mss }
}

/// The smallest shift with which 16 bits cover the whole buffer (RFC 7323 2.3).
pub(crate) fn window_scale(receive_buffer: u32) -> u8 {
    let bits = u32::BITS - receive_buffer.leading_zeros();
    bits.saturating_sub(16).min(14) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_scale_is_the_least_that_shows_the_buffer() {
        for (buffer, shift) in [(1, 0), (65_535, 0), (65_536, 1), (131_071, 1), (131_072, 2), (1 << 30, 14)] {
            assert_eq!(window_scale(buffer), shift, "{buffer}");
            assert!((buffer >> shift) <= 65_536);
        }
    }

    #[test]
    fn announced_mss_is_the_mtu_less_forty() {
        assert_eq!(receive_mss(1500, 0), 1460);
        assert_eq!(receive_mss(1500, 1000), 1000);
        assert_eq!(receive_mss(9000, 0), 8960);
        assert_eq!(receive_mss(20, 0), MSS_MIN);
        assert_eq!(receive_mss(1 << 20, 0), u16::MAX);
    }
}
