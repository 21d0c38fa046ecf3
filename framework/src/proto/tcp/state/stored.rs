//! The options of a connection in compact form, for a million connections: durations in the unit of
//! their use, booleans as bits. The options that segments read are apart from those that only a
//! call, a probe or a handshake reads. Written by `state`, where the app changes them, and by
//! `input`, which keeps its marks of disorder among the switches.

use super::connection::{Connection, OutputFlags};
use crate::proto::tcp::options::{ConnectionOptions, Keepalive, Linger};
use crate::time::Duration;

/// The options that segments read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredOptions {
    pub(crate) send_buffer: u32,
    pub(crate) receive_buffer: u32,
    pub(crate) rto_min_us: u32,
    pub(crate) ack_delay_10us: u16,
    /// 0 is none.
    interactive_ack_delay_ms: u8,
    /// No option, but here as segments read both at once: the peer's data, so many times in a row,
    /// has acknowledged data of ours.
    exchanges: u8,
    /// 0 is none.
    pub(crate) user_timeout_ms: u32,
    pub(crate) switches: u8,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    /// 0 is no keepalive.
    pub(crate) keepalive_count: u8,
}

/// The options that segments do not read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RareOptions {
    /// 0 where `switch::PACING` is off.
    pub(crate) pacing_rate: u64,
    pub(crate) keepalive_idle_ms: u32,
    pub(crate) keepalive_interval_ms: u32,
    /// `u32::MAX` is in the background.
    pub(crate) linger_ms: u32,
    /// 0: as the path allows.
    pub(crate) mss_max: u16,
    /// 0: as the configuration says.
    pub(crate) syn_retries: u8,
    pub(crate) fin_wait_s: u8,
}

/// Switches of [`StoredOptions`].
pub(crate) mod switch {
    pub(crate) const NODELAY: u8 = 1 << 0;
    pub(crate) const QUICKACK: u8 = 1 << 1;
    pub(crate) const TIMESTAMPS: u8 = 1 << 2;
    pub(crate) const SACK: u8 = 1 << 3;
    pub(crate) const ECN: u8 = 1 << 4;
    /// There is a pacing rate.
    pub(crate) const PACING: u8 = 1 << 5;
    /// No option, but here as segments read both at once: a segment came out of order, or twice, in
    /// this stretch of the peer's bytes ([`Connection::end_stretch`]); and in the one before it.
    pub(crate) const DISORDER: u8 = 1 << 6;
    pub(crate) const DISORDER_BEFORE: u8 = 1 << 7;
    /// Something was lost of late.
    pub(crate) const DISORDERLY: u8 = DISORDER | DISORDER_BEFORE;
    /// Set where each segment is acknowledged at once instead of after the delayed-ACK time: the
    /// app asked for it, or segments were lost a moment ago (RFC 5681 4.2).
    pub(crate) const ACK_AT_ONCE: u8 = QUICKACK | DISORDERLY;
    /// The options that a SYN offers.
    pub(crate) const OFFERED: u8 = TIMESTAMPS | SACK | ECN;
}

impl Connection {
    /// Applies changed options of the app. Options that our SYN offers do not change while the peer
    /// may still agree to them.
    pub(crate) fn change_options(&mut self, options: &ConnectionOptions) {
        let offered = self.options.switches & switch::OFFERED;
        if self.is_on(switch::NODELAY) {
            // Segments that left at once were not recorded: when Nagle's algorithm begins, it takes
            // the last segment as a small one.
            self.snd.small = self.snd.nxt;
        }
        (self.options, self.rare_options) = (StoredOptions::new(options), RareOptions::new(options));
        if !self.state.is_synchronized() {
            self.options.switches = self.options.switches & !switch::OFFERED | offered;
        }
        self.change_congestion(options.congestion);
        // Another rate may allow sending now: transmit checks it again.
        self.clear(OutputFlags::PACED);
    }

    /// The options as the app set them, durations in the stored unit.
    pub(crate) fn options(&self) -> ConnectionOptions {
        let (options, rare) = (&self.options, &self.rare_options);
        let ms = |ms: u32| Duration::from_millis(ms.into());
        ConnectionOptions {
            nodelay: self.is_on(switch::NODELAY),
            quickack: self.is_on(switch::QUICKACK),
            ack_delay: Duration::from_micros(10 * u64::from(options.ack_delay_10us)),
            interactive_ack_delay: (options.interactive_ack_delay_ms != 0)
                .then(|| ms(options.interactive_ack_delay_ms.into())),
            keepalive: (options.keepalive_count != 0).then(|| Keepalive {
                idle: ms(rare.keepalive_idle_ms),
                interval: ms(rare.keepalive_interval_ms),
                count: options.keepalive_count,
            }),
            user_timeout: (options.user_timeout_ms != 0).then(|| ms(options.user_timeout_ms)),
            syn_retries: (rare.syn_retries != 0).then_some(rare.syn_retries),
            fin_wait: Duration::from_secs(rare.fin_wait_s.into()),
            linger: if rare.linger_ms == u32::MAX { Linger::Background } else { Linger::For(ms(rare.linger_ms)) },
            congestion: self.congestion.kind,
            rto_min: Duration::from_micros(options.rto_min_us.into()),
            pacing_rate: self.is_on(switch::PACING).then_some(rare.pacing_rate),
            send_buffer: options.send_buffer,
            receive_buffer: options.receive_buffer,
            mss_max: (rare.mss_max != 0).then_some(rare.mss_max),
            timestamps: self.is_on(switch::TIMESTAMPS),
            sack: self.is_on(switch::SACK),
            ecn: self.is_on(switch::ECN),
            ttl: options.ttl,
            tos: options.tos,
        }
    }
}

/// A duration in milliseconds, one at least.
fn ms(span: Duration) -> u32 {
    (span.as_nanos() / 1_000_000).clamp(1, u64::from(u32::MAX) - 1) as u32
}

impl StoredOptions {
    pub(crate) fn new(options: &ConnectionOptions) -> Self {
        let switches = [
            (options.nodelay, switch::NODELAY),
            (options.quickack, switch::QUICKACK),
            (options.timestamps, switch::TIMESTAMPS),
            (options.sack, switch::SACK),
            (options.ecn, switch::ECN),
            (options.pacing_rate.is_some(), switch::PACING),
        ];
        Self {
            send_buffer: options.send_buffer,
            receive_buffer: options.receive_buffer,
            rto_min_us: (options.rto_min.as_nanos() / 1_000) as u32,
            ack_delay_10us: (options.ack_delay.as_nanos() / 10_000) as u16,
            interactive_ack_delay_ms: options.interactive_ack_delay.map_or(0, |delay| ms(delay) as u8),
            exchanges: 0,
            user_timeout_ms: options.user_timeout.map_or(0, ms),
            keepalive_count: options.keepalive.map_or(0, |keepalive| keepalive.count),
            ttl: options.ttl,
            tos: options.tos,
            switches: switches.iter().filter(|(on, _)| *on).map(|(_, switch)| switch).sum(),
        }
    }
}

/// Exchanges in a row after which a connection is interactive.
const INTERACTIVE: u8 = 8;

impl StoredOptions {
    /// The delay of the acknowledgment of data that has come; `acks_data`: so that our answer to
    /// the data before was acknowledged. A peer that waits for an acknowledgment between two small
    /// segments of one request (RFC 9293 3.7.4) sends the second without, and waits for the short
    /// delay alone.
    #[inline(always)]
    pub(crate) fn next_ack_delay(&mut self, acks_data: bool) -> Duration {
        if self.interactive_ack_delay_ms != 0 {
            self.exchanges = if acks_data { self.exchanges.saturating_add(1) } else { 0 };
            if self.exchanges >= INTERACTIVE {
                return Duration::from_millis(self.interactive_ack_delay_ms.into());
            }
        }
        Duration::from_micros(10 * u64::from(self.ack_delay_10us))
    }

    /// A delayed acknowledgment leaves without data. After the delay of an interactive connection
    /// the next ones wait for less: its answers take longer.
    pub(crate) fn note_late_ack(&mut self) {
        if self.exchanges >= INTERACTIVE {
            self.exchanges = 0;
        }
    }
}

impl RareOptions {
    pub(crate) fn new(options: &ConnectionOptions) -> Self {
        let keepalive = options.keepalive.unwrap_or_default();
        Self {
            linger_ms: match options.linger {
                Linger::Background => u32::MAX,
                Linger::For(Duration::ZERO) => 0,
                Linger::For(span) => ms(span),
            },
            keepalive_idle_ms: ms(keepalive.idle),
            keepalive_interval_ms: ms(keepalive.interval),
            mss_max: options.mss_max.unwrap_or(0),
            syn_retries: options.syn_retries.unwrap_or(0),
            fin_wait_s: options.fin_wait.as_nanos().div_ceil(1_000_000_000) as u8,
            pacing_rate: options.pacing_rate.unwrap_or(0),
        }
    }
}
