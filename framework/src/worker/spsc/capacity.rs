//! The capacity of a ring, checked once for both kinds.

use core::fmt;

/// The smallest ring. The lossy ring marks a slot that is being written with the number of the
/// event before, which must be in another slot; one slot would also make a lossless ring wait for
/// the peer at every event.
pub(crate) const CAPACITY_MIN: usize = 2;

/// The largest ring: 1 GiB of 64-byte events. A reader that falls further behind is not late; it
/// has stopped.
pub(crate) const CAPACITY_MAX: usize = 1 << 24;

/// An invalid capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityError {
    asked: usize,
}

impl fmt::Display for CapacityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = self.asked.clamp(CAPACITY_MIN, CAPACITY_MAX).next_power_of_two();
        write!(
            f,
            "a ring cannot hold {} events: its capacity is a power of two from {CAPACITY_MIN} to {CAPACITY_MAX}; \
             use {next}",
            self.asked
        )
    }
}

impl std::error::Error for CapacityError {}

/// Returns `asked` if it is valid: a power of two, so that a position becomes a slot with one AND,
/// also after the position wraps.
pub(super) fn check(asked: usize) -> Result<usize, CapacityError> {
    if !asked.is_power_of_two() || !(CAPACITY_MIN..=CAPACITY_MAX).contains(&asked) {
        return Err(CapacityError { asked });
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_capacities_are_refused_with_the_next_good_one() {
        for (asked, advice) in [(0, "use 2"), (1, "use 2"), (1000, "use 1024"), (usize::MAX, "use 16777216")] {
            let message = check(asked).unwrap_err().to_string();
            assert!(message.ends_with(advice), "{message}");
        }
    }

    #[test]
    fn powers_of_two_within_the_limits_pass() {
        for asked in [CAPACITY_MIN, 1024, CAPACITY_MAX] {
            assert_eq!(check(asked), Ok(asked));
        }
    }
}
