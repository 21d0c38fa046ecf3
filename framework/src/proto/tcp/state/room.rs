//! Reports to apps that were refused for lack of room.
//!
//! Room needs three things: space in the connection's send buffer, a share of the store of chunks,
//! and a buffer of the pool. Acknowledgments of the connection's own data free the first, and most
//! often the other two. But where other connections, or an app that holds buffers, use those two,
//! freeing them does not notify this connection. So a waiting connection polls, and others spend no
//! instruction on it.
//!
//! A FIN needs a chunk as well. An app that has closed its side does not try again, so a FIN that
//! found no chunk waits here in the same way, and leaves by itself.

use super::connection::{AppFlags, Pending};
use super::queue::FIN;
use crate::proto::tcp::event::ConnectionId;
use crate::proto::tcp::machine::{Context, Tcp};
use crate::proto::tcp::output::interface::{NoOutput, Output};
use crate::proto::tcp::payload::Payload;
use crate::time::{Duration, Instant};

/// Interval at which a connection polls for chunks or buffers of others: a thousand of them take a
/// few per cent of a core.
const LOOK_SPAN: Duration = Duration::from_millis(4);

impl<P: Payload> Tcp<P> {
    /// The caller has no buffer for the app's data: `Writable` reports when there is one.
    #[cold]
    pub fn await_room(&mut self, id: ConnectionId, now: Instant) {
        if let Some(mut cx) = self.context_of(id, &mut NoOutput, now) {
            cx.await_room();
        }
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// A chunk or a buffer is missing: `Writable` is to report when there is one again.
    #[cold]
    pub(crate) fn await_room(&mut self) {
        if self.connection.state.may_send() {
            self.connection.set(AppFlags::WANTS_ROOM);
            self.wake(self.now + LOOK_SPAN);
        }
    }

    /// Queues the FIN behind data that has all left once. It stays owed while no chunk is free.
    pub(crate) fn queue_fin(&mut self) {
        if self.queue_chunk(0, FIN, None).is_err() {
            self.connection.set(AppFlags::WANTS_ROOM);
            return self.wake(self.now + LOOK_SPAN);
        }
        self.connection.set(AppFlags::FIN_QUEUED);
        self.connection.clear(AppFlags::WANTS_ROOM);
    }

    /// Reports room to an app that waits for it, where there is some: half of the send buffer, a
    /// chunk and a buffer. Queues the FIN of an app that has closed its side.
    #[cold]
    pub(crate) fn offer_room(&mut self) {
        if self.connection.owes_fin() {
            self.queue_fin();
            return self.flush_later();
        }
        let connection = &mut *self.connection;
        if connection.send.len > connection.options.send_buffer / 2 {
            // The acknowledgments of that data will call this again.
            return;
        }
        if !self.has_chunk() || !self.output.has_buffer() {
            return self.wake(self.now + LOOK_SPAN);
        }
        self.connection.clear(AppFlags::WANTS_ROOM);
        self.notify(Pending::WRITABLE);
    }
}
