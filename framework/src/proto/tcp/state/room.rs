//! Who was refused for want of room is told when there is some.
//!
//! Room is three things: the connection's send buffer, its share of the store of chunks, and a
//! buffer of the pool. Acknowledgments of its own data make the first, and most often the others;
//! where something else lacks, it is in the hands of other connections, or of an app that holds
//! buffers, and nobody who gives it back knows of us. So who waits looks again every now and then,
//! and nobody else spends an instruction.

use super::super::event::ConnectionId;
use super::super::machine::{Context, Tcp};
use super::super::payload::{NoOutput, Output, Payload};
use super::connection::{AppFlags, pending};
use crate::time::{Duration, Instant};

/// How often who waits for chunks or buffers of others looks: a thousand that do take a few per
/// cent of a core.
const LOOK_SPAN: Duration = Duration::from_millis(4);

impl<P: Payload> Tcp<P> {
    /// The caller has no buffer for what the app sends: `Writable` tells when there is one.
    #[cold]
    pub fn await_room(&mut self, id: ConnectionId, now: Instant) {
        if let Some(mut cx) = self.context_of(id, &mut NoOutput, now) {
            cx.await_room();
        }
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// A chunk or a buffer lacks: `Writable` is to tell when there is one again.
    #[cold]
    pub(in crate::proto::tcp) fn await_room(&mut self) {
        if self.connection.state.may_send() {
            self.connection.set(AppFlags::WANTS_ROOM);
            self.wake(self.now + LOOK_SPAN);
        }
    }

    /// Tells an app that wants room that there is some, where there is: half of the send buffer, a
    /// chunk and a buffer.
    #[cold]
    pub(in crate::proto::tcp) fn offer_room(&mut self) {
        let connection = &mut *self.connection;
        if connection.send.len > connection.options.send_buffer / 2 {
            // Its acknowledgments come by.
            return;
        }
        if !self.has_chunk() || !self.output.has_buffer() {
            return self.wake(self.now + LOOK_SPAN);
        }
        self.connection.clear(AppFlags::WANTS_ROOM);
        self.tell(pending::WRITABLE);
    }
}
