//! Prepared segments: headers and checksums stand ready, and an order is written into one.

use std::io::{self, ErrorKind};

use arrayvec::ArrayVec;
use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::{ConnectionId, PreparedOrder, SendError};

/// Messages of so many lengths are prepared: an order, a replace, a cancel, and two at once.
const LENGTHS: usize = 4;
/// A longer message is no order.
const LEN_MAX: usize = 512;

/// The segments of one connection, by the length of their payload. Orders of a venue have one
/// length each, but for FIX with more than one: the first order of a length goes without.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    templates: ArrayVec<PreparedOrder, LENGTHS>,
    /// A length that was sent and is not prepared.
    wanted: Option<usize>,
    pub(super) fired: u64,
    pub(super) sent: u64,
}

impl Prepared {
    /// The connection is another one, or none.
    pub(super) fn clear(&mut self) {
        self.templates.clear();
        self.wanted = None;
    }

    /// Sends `bytes` within this call: by a prepared segment where there is one of their length and
    /// nothing waits before them. Returns how many were taken.
    #[inline]
    pub(super) fn send(&mut self, connection: ConnectionId, bytes: &[u8], cx: &mut Cx<'_>) -> io::Result<usize> {
        let of_len = self.templates.iter().position(|template| template.payload().len() == bytes.len());
        if let Some(idx) = of_len {
            let template = &mut self.templates[idx];
            if template.patch(0, bytes).is_ok() && cx.tcp().try_fire(template) == Ok(true) {
                self.fired += 1;
                return Ok(bytes.len());
            }
        } else if bytes.len() <= LEN_MAX && !self.templates.is_full() {
            self.wanted = Some(bytes.len());
        }
        let taken = send(connection, bytes, cx)?;
        self.sent += 1;
        // It does not wait for the burst that the tick came in.
        cx.ring_doorbell();
        Ok(taken)
    }

    /// Prepares what was wanted, and has the code and memory of a fired order in the cache. Call it
    /// when nothing is urgent: it may allocate.
    pub(super) fn prepare(&mut self, connection: ConnectionId, is_cold: bool, cx: &mut Cx<'_>) {
        if let Some(len) = self.wanted.take()
            && let Ok(template) = cx.tcp().prepare(connection, &[0; LEN_MAX][..len])
        {
            // There is room, or it was not wanted.
            let _ = self.templates.try_push(template);
        }
        if is_cold && let Some(template) = self.templates.first_mut() {
            // Whether it could leave now says nothing of the next order.
            let _ = cx.tcp().warm(template);
        }
    }
}

/// Sends as many of `bytes` as the connection takes.
pub(super) fn send(connection: ConnectionId, bytes: &[u8], cx: &mut Cx<'_>) -> io::Result<usize> {
    match cx.tcp().send(connection, bytes) {
        Ok(0) | Err(SendError::Full | SendError::PoolEmpty | SendError::NoChunk | SendError::NotConnected) => {
            Err(ErrorKind::WouldBlock.into())
        }
        Ok(taken) => Ok(taken),
        Err(error) => Err(io::Error::other(error)),
    }
}
