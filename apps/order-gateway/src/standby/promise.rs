//! What a standby has promised, and what it does next.

/// After this silence of a peer of whom no grant tells sooner that it is gone, its connection ends.
pub(super) const SILENCE_NS: u64 = 5_000_000_000;

/// What a standby does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// It takes over: it has granted nothing that has not ended, and never grants again.
    TakeOver,
    /// The primary has ended for good.
    Ended,
}

/// The promises of a standby.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promise {
    /// The end of the last promise, once there was one.
    until_ns: Option<u64>,
    next: Option<Followed>,
}

impl Promise {
    /// Promises not to take over for a lease and an eighth from now on. False where it takes over
    /// or ends already: then nothing is promised.
    pub(super) fn renew(&mut self, lease_ns: u64, now_ns: u64) -> bool {
        if self.next.is_some() {
            return false;
        }
        let until_ns = now_ns.saturating_add(lease_ns.saturating_add(lease_ns / 8));
        self.until_ns = Some(self.until_ns.unwrap_or(0).max(until_ns));
        true
    }

    /// The first word holds.
    pub(super) fn say(&mut self, next: Followed) {
        self.next = self.next.or(Some(next));
    }

    /// The standby leaves, whatever was said.
    pub(super) const fn leave(&mut self) {
        self.next = Some(Followed::Ended);
    }

    /// What is due at `now_ns`. A standby that has granted nothing takes nothing over.
    pub(super) fn poll(&mut self, now_ns: u64) -> Option<Followed> {
        if self.until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
            self.say(Followed::TakeOver);
        }
        self.next
    }

    /// Whether it has granted something, behind which it takes over when it hears no more.
    pub(super) const fn has_promised(&self) -> bool {
        self.until_ns.is_some()
    }
}
