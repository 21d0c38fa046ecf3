//! What a standby has promised, and what it does next.

use std::time::Duration;

/// After this silence of a peer of whom no grant tells sooner that it is gone, its connection ends.
pub(super) const SILENCE_NS: u64 = 5_000_000_000;

/// A primary that asks for no grants says so often that it lives: four of five may be late.
pub(super) const ALIVE_NS: u64 = 1_000_000_000;

/// A lease has this length at most: nobody trades for so long when a primary dies, and whoever
/// reaches a mirror's port could have it wait for ever.
pub const LEASE_MAX: Duration = Duration::from_secs(60);

/// A lease has this length at least: a shorter one ends before a busy machine asks again, and one
/// of nothing would have the standby take over while the primary lives.
pub const LEASE_MIN: Duration = Duration::from_millis(20);

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
    /// or ends already: then nothing is promised. An error is a lease that is too short or too
    /// long.
    pub(super) fn renew(&mut self, lease_ns: u64, now_ns: u64) -> Result<bool, String> {
        if u128::from(lease_ns) > LEASE_MAX.as_nanos() {
            let most = LEASE_MAX.as_secs();
            return Err(format!("the primary asks for a lease of {} s: {most} s at most", lease_ns / 1_000_000_000));
        }
        if u128::from(lease_ns) < LEASE_MIN.as_nanos() {
            let least = LEASE_MIN.as_millis();
            return Err(format!("the primary asks for a lease of {lease_ns} ns: {least} ms at least"));
        }
        if self.next.is_some() {
            return Ok(false);
        }
        let until_ns = now_ns.saturating_add(lease_ns.saturating_add(lease_ns / 8));
        self.until_ns = Some(self.until_ns.unwrap_or(0).max(until_ns));
        Ok(true)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_of_nothing_is_refused_and_promises_nothing() {
        let mut promise = Promise::default();
        assert!(promise.renew(0, 1).is_err() && promise.renew(LEASE_MIN.as_nanos() as u64 - 1, 1).is_err());
        assert_eq!(promise.poll(u64::MAX), None);
        assert_eq!(promise.renew(LEASE_MIN.as_nanos() as u64, 1), Ok(true));
    }

    #[test]
    fn lease_without_end_is_refused_and_promises_nothing() {
        let mut promise = Promise::default();
        assert!(promise.renew(LEASE_MAX.as_nanos() as u64 + 1, 1).is_err());
        assert!(promise.renew(u64::MAX, 1).is_err() && !promise.has_promised());
        assert_eq!(promise.renew(LEASE_MAX.as_nanos() as u64, 1), Ok(true));
    }
}
