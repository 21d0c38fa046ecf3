//! What `recovery` will bring: it leaves here when it is there.

use super::machine::Turn;
use super::payload::{Output, Payload};

impl<P: Payload, O: Output<P>> Turn<'_, P, O> {
    pub(super) fn begin_congestion(&mut self) {}
}
