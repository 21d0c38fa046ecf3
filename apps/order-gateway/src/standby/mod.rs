//! A standby: another process that has a copy of the journal, and takes over when the primary is
//! gone. Never do both send.
//!
//! ```text
//!  primary ── header, records ──▶ standby        bytes leave for the venue when their records are
//!          ◀── position ─────────                acknowledged
//!          ── renew(t) ─────────▶                the standby promises not to take over for a lease
//!          ◀── grant(t, position)                the primary may send until t + lease
//! ```
//!
//! # The fencing rule
//!
//! A primary with a standby sends only while it has a grant. A grant ends a lease after the primary
//! *asked* for it, by the primary's clock. The standby promises with each grant not to take over
//! until a lease and an eighth after it *received* the question, by its own clock, which is later.
//! So neither clock is compared with the other, and delays of the network only shorten the
//! primary's time. The rule relies on these and no more:
//!
//! 1. Both monotonic clocks run, and at rates that differ by less than an eighth. A virtual machine
//!    that is stopped as a whole has a clock that stands still.
//! 2. What was handed to the kernel before the end of a lease arrives before the standby has logged
//!    in. TCP may break this when its peer's acknowledgements are lost, and so may a process that
//!    is stopped between the look at its clock and its send. The venue decides these: it has one
//!    login at a time, and each UserRefNum counts once.
//! 3. A person who says `alone` knows that the standby does not run.
//!
//! A primary that gets no grants closes its connection to the venue. The standby is named in the
//! journal, so a primary that restarts waits for its grant, and one whose standby has taken over
//! waits for a person. Another standby is refused before the first has left.

mod follower;
mod frame;
mod link;
mod primary;

pub use follower::{Followed, Follower};
pub use link::{FollowerLink, StandbyLink, follow};
pub use primary::{Primary, PrimaryEvent};
