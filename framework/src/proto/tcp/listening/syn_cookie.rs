//! SYN cookies (RFC 4987 3.6): where a listener's backlog is full, the next peer's SYN is not
//! stored. All state is in the sequence number of our SYN-ACK, which the peer's acknowledgment
//! brings back. Where the peer has timestamps, the options are in the low bits of our timestamp, as
//! on Linux. A peer without timestamps gets neither scale nor SACK.
//!
//! ```text
//!  number     31 ─ hash + peer's number, 24 bits ─ 8 │ 7 ── time, 5 bits ── 3 │ 2 ─ MSS ─ 0
//!  timestamp  31 ────────── our clock ──────────── 6 │ 5 ECN │ 4 SACK │ 3 ── scale ── 0
//! ```
//!
//! A guess succeeds with one number in 2^24, and only while cookies are sent. The peer's number is
//! added to the hash, as on Linux. So where the segment with the cookie is late or lost, the
//! segments after it can be recognized as possibly belonging to it.

use super::secret::Secret;
use crate::proto::Flow;
use crate::proto::tcp::segment::SynOptions;
use crate::proto::tcp::seq::Seq;
use crate::time::{Duration, Instant};

/// The values that a peer's MSS is rounded down to: Ethernet, less tunnels, jumbo frames, and the
/// minimum.
const MSS: [u16; 8] = [64, 536, 1220, 1360, 1400, 1440, 1460, 8960];
/// Nanoseconds of a step of the cookie's time, as a power of two: 69 s. A cookie is good for this
/// step and the next.
const STEP_SHIFT: u32 = 36;
const STEP_BITS: u32 = 5;
/// How long after the last cookie was sent one may come back.
pub(crate) const LIFETIME: Duration = Duration::from_nanos(2 << STEP_SHIFT);

/// Bytes that a peer may send on the cookie alone: the window that came with it, which is not
/// scaled.
const WINDOW_MAX: u32 = 65_535;

/// "No scale" in a timestamp.
const SCALE_NONE: u32 = 15;
const SACK_BIT: u32 = 1 << 4;
const ECN_BIT: u32 = 1 << 5;
const OPTIONS_MASK: u32 = 0x3f;

/// The number of the SYN-ACK that answers a peer's SYN.
pub(crate) fn encode(secret: &Secret, flow: Flow, peer_isn: Seq, mss: u16, now: Instant) -> Seq {
    let mss_idx = MSS.iter().rposition(|&known| known <= mss).unwrap_or(0) as u32;
    seal(secret, flow, peer_isn, step(now) << 3 | mss_idx)
}

/// The MSS that a cookie encodes, if it is ours, for this peer, and not old.
pub(crate) fn check(secret: &Secret, flow: Flow, peer_isn: Seq, cookie: Seq, now: Instant) -> Option<u16> {
    let low = cookie.0 & 0xff;
    (is_young(low, now) && seal(secret, flow, peer_isn, low) == cookie).then(|| MSS[(low & 7) as usize])
}

/// Whether a peer that was sent `cookie` may have reached `seq`: until the segment with the cookie
/// arrives, that is not confirmed. One random number in 4,000 passes.
pub(crate) fn may_be_before(secret: &Secret, flow: Flow, seq: Seq, cookie: Seq, now: Instant) -> bool {
    let low = cookie.0 & 0xff;
    let sent = (seal(secret, flow, seq, low).0 >> 8).wrapping_sub(cookie.0 >> 8) & 0x00ff_ffff;
    is_young(low, now) && sent <= WINDOW_MAX
}

fn is_young(low: u32, now: Instant) -> bool {
    step(now).wrapping_sub(low >> 3) & ((1 << STEP_BITS) - 1) <= 1
}

fn step(now: Instant) -> u32 {
    (now.as_nanos() >> STEP_SHIFT) as u32 & ((1 << STEP_BITS) - 1)
}

fn seal(secret: &Secret, flow: Flow, peer_isn: Seq, low: u32) -> Seq {
    let hash = secret.cookie(flow, low.into()) as u32;
    Seq(hash.wrapping_add(peer_isn.0) << 8 | low)
}

/// Our timestamp with a peer's options in it: at most 64 ms before `clock`, so that later ones are
/// newer.
pub(crate) fn stamp(clock: u32, options: &SynOptions, ecn: bool) -> u32 {
    let scale = options.window_scale.map_or(SCALE_NONE, |shift| u32::from(shift.min(14)));
    let bits = scale | if options.sack_permitted { SACK_BIT } else { 0 } | if ecn { ECN_BIT } else { 0 };
    let stamp = clock & !OPTIONS_MASK | bits;
    if bits > clock & OPTIONS_MASK { stamp.wrapping_sub(OPTIONS_MASK + 1) } else { stamp }
}

/// The options that come back in a timestamp's echo, and ECN.
pub(crate) fn read_stamp(echo_reply: u32) -> (SynOptions, bool) {
    let scale = echo_reply & 0xf;
    let window_scale = (scale != SCALE_NONE).then_some(scale as u8);
    let options = SynOptions { mss: None, window_scale, sack_permitted: echo_reply & SACK_BIT != 0 };
    (options, echo_reply & ECN_BIT != 0)
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, SocketAddrV4};

    use super::*;
    use crate::proto::HashSeed;

    const FLOW: Flow = Flow {
        local: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 80),
        remote: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 50_000),
    };

    fn secret() -> Secret {
        Secret::new(HashSeed::new(3, 4))
    }

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn cookie_brings_the_mss_back_rounded_down() {
        for (mss, wanted) in [(0, 64), (63, 64), (536, 536), (1300, 1220), (1460, 1460), (1461, 1460), (65_535, 8960)] {
            let cookie = encode(&secret(), FLOW, Seq(7), mss, at(100));
            assert_eq!(check(&secret(), FLOW, Seq(7), cookie, at(101)), Some(wanted), "{mss}");
        }
    }

    #[test]
    fn cookie_is_void_for_another_peer_another_number_and_another_secret() {
        let cookie = encode(&secret(), FLOW, Seq(7), 1460, at(100));
        let other = Flow { remote: SocketAddrV4::new(*FLOW.remote.ip(), 50_001), ..FLOW };
        assert_eq!(check(&secret(), other, Seq(7), cookie, at(100)), None);
        assert_eq!(check(&secret(), FLOW, Seq(8), cookie, at(100)), None);
        assert_eq!(check(&secret(), FLOW, Seq(7), cookie + 1, at(100)), None);
        assert_eq!(check(&Secret::new(HashSeed::new(3, 5)), FLOW, Seq(7), cookie, at(100)), None);
    }

    #[test]
    fn peer_may_have_got_as_far_as_its_window_before_the_cookie_comes_back() {
        let isn = Seq(u32::MAX - 5);
        let cookie = encode(&secret(), FLOW, isn, 1460, at(100));
        let may_be = |seq, cookie, s| may_be_before(&secret(), FLOW, seq, cookie, at(s));
        for (sent, wanted) in [(0, true), (1, true), (65_535, true), (65_536, false), (1 << 23, false)] {
            assert_eq!(may_be(isn + sent, cookie, 100), wanted, "{sent}");
        }
        assert!(!may_be(isn - 1, cookie, 100), "before its SYN");
        assert!(!may_be(isn, cookie, 100 + 138), "too late");
        let strangers =
            (0..1_u32 << 16).filter(|&number| may_be(isn, Seq(number.wrapping_mul(0x9e37_79b9)), 100)).count();
        assert!(strangers < 64, "{strangers} of 65,536");
    }

    #[test]
    fn cookie_is_void_after_two_steps_of_its_time() {
        let cookie = encode(&secret(), FLOW, Seq(7), 1460, at(0));
        assert!(check(&secret(), FLOW, Seq(7), cookie, at(68)).is_some());
        assert!(check(&secret(), FLOW, Seq(7), cookie, at(137)).is_some());
        assert!(check(&secret(), FLOW, Seq(7), cookie, at(138)).is_none());
    }

    #[test]
    fn options_come_back_in_a_timestamp_that_is_not_ahead_of_the_clock() {
        for clock in [0, 63, 64, 1_000_003, u32::MAX] {
            for (window_scale, sack_permitted, ecn) in
                [(None, false, false), (Some(0), true, false), (Some(14), true, true)]
            {
                let options = SynOptions { mss: None, window_scale, sack_permitted };
                let stamp = stamp(clock, &options, ecn);
                assert!(clock.wrapping_sub(stamp) < 64, "{clock} {stamp}");
                assert_eq!(read_stamp(stamp), (options, ecn));
            }
        }
    }
}
