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
//! 2. What has left before the end of a lease arrives before the standby has logged in. What has
//!    not left never does, because the primary ends its connection with a reset, and TCP sends what
//!    is not acknowledged again for the length of a lease at most. A process that is
//!    stopped between the look at its clock and its send or its reset breaks this. The venue
//!    decides that: it has one login at a time, and each UserRefNum counts once.
//! 3. A person who says `alone` knows that the standby does not run.
//!
//! A primary that gets no grants resets its connection to the venue. The standby is named in the
//! journal, so a primary that restarts waits for its grant, and one whose standby has taken over
//! waits for a person. Another standby is refused before the first has left.

//!
//! # A mirror
//!
//! A primary may write its records into the standby's memory by RDMA instead: the standby's part
//! in that is its RoCE device alone, and completions take the place of positions. The file header
//! comes the same way. All else, the fencing rule too, is as above, over a connection that the
//! primary makes.
//!
//! ```text
//!  primary ── connects ────────▶ standby
//!          ◀── position, key, queue pair
//!          ── queue pair ──────▶
//!          == WRITE ===========▶ the copy: a beginning of the journal at any time
//! ```
//!
//! The position comes with the sum of the last record, so that a copy with another history of the
//! same journal is refused. A mirror is asked for its first grant when it has what the journal had
//! as its queue pair answered: before, it would take over without that. Whoever has named no queue
//! pair is promised nothing. Before a standby looks at the copy to take over, it takes the key
//! back.

mod follower;
mod frame;
mod holder;
mod link;
mod primary;
mod promise;
mod secret;
mod session;
mod writer;

pub use follower::Follower;
pub use holder::hold;
pub use link::{FollowerLink, StandbyLink, follow};
pub use primary::{Primary, PrimaryEvent};
pub use promise::{Followed, LEASE_MAX, LEASE_MIN};
pub use secret::{Role, Secret, proven};
pub use writer::{MIRROR_PORT, MirrorPolicy, mirror_address};
