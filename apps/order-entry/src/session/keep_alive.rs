//! Heartbeats and silence: when ours is due, and when the peer is dead.

/// Two timers of one connection: a heartbeat after an interval in which nothing was sent, the end
/// after an interval in which nothing was received. Times that step backward count as no time
/// passed.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    heartbeat_ns: u64,
    silence_ns_max: u64,
    sent_ns: u64,
    received_ns: u64,
}

impl KeepAlive {
    /// Timers that start at `now_ns`.
    pub const fn new(heartbeat_ns: u64, silence_ns_max: u64, now_ns: u64) -> Self {
        Self { heartbeat_ns, silence_ns_max, sent_ns: now_ns, received_ns: now_ns }
    }

    /// Something was sent.
    #[inline]
    pub const fn sent(&mut self, now_ns: u64) {
        self.sent_ns = now_ns;
    }

    /// Something was received.
    #[inline]
    pub const fn received(&mut self, now_ns: u64) {
        self.received_ns = now_ns;
    }

    /// Whether a heartbeat must be sent.
    pub const fn is_heartbeat_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.sent_ns) >= self.heartbeat_ns
    }

    /// How long the peer has been silent, where that is too long.
    pub const fn dead_silence_ns(&self, now_ns: u64) -> Option<u64> {
        let silence_ns = now_ns.saturating_sub(self.received_ns);
        if silence_ns >= self.silence_ns_max { Some(silence_ns) } else { None }
    }

    /// When the next heartbeat is due.
    pub const fn heartbeat_at_ns(&self) -> u64 {
        self.sent_ns.saturating_add(self.heartbeat_ns)
    }

    /// When the peer is dead, if nothing arrives.
    pub const fn dead_at_ns(&self) -> u64 {
        self.received_ns.saturating_add(self.silence_ns_max)
    }

    /// When one of the two happens next.
    pub fn deadline_ns(&self) -> u64 {
        self.heartbeat_at_ns().min(self.dead_at_ns())
    }
}
