//! Transmit timestamps: a sender requests them with a token that it chooses, and reads them when it
//! likes.
//!
//! ```text
//!  app ── cx.timestamped(token, |cx| send or fire) ──▶ frames marked ──▶ device: numbers them, stamps them
//!   └──── cx.take_timestamp() ◀── token and time ◀── numbers back to tokens ◀───────┘
//! ```
//!
//! A send without a request pays nothing: a queue that wraps the device's for the length of the
//! call sets the mark. Data that waits for a neighbor or a window is not posted by the call, and
//! gets no timestamp when it leaves later. Frames that the stack sends by itself within the call,
//! an ARP request or a bare acknowledgment, are not marked.

use core::fmt;

use super::node::Cx;
use super::pending_timestamps::PendingTimestamps;
use crate::device::{Offload, TxQueue};
use crate::forward;
use crate::mem::Mbuf;
use crate::time::UnixTime;

/// The time when a frame left, for the sender that requested it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxTime {
    /// The token given to [`Cx::timestamped`]. A call that posted several frames has as many times,
    /// in their order.
    pub token: u64,
    /// The time by the device's clock; [`Timeline`](crate::time::Timeline) converts it to others.
    pub at: UnixTime,
}

/// The device has no transmit timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTxTimestamps;

impl fmt::Display for NoTxTimestamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this device does not say when frames leave: `wirepath devices` names those that do; on a ConnectX set \
             Mlx5Config::timestamps, without raw_timestamps",
        )
    }
}

impl core::error::Error for NoTxTimestamps {}

/// The device, with a mark on each posted frame.
struct Marking<'a> {
    tx: &'a mut dyn TxQueue,
    pending: &'a mut PendingTimestamps,
    token: u64,
    frames: usize,
}

impl TxQueue for Marking<'_> {
    #[inline]
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        self.tx.post(mbuf, offload | Offload::TIMESTAMP)?;
        self.pending.push(self.token);
        self.frames += 1;
        Ok(())
    }

    fn dry_run(&mut self, mbuf: Mbuf, offload: Offload) {
        self.tx.dry_run(mbuf, offload | Offload::TIMESTAMP);
    }

    // What leaves without `post` has no mark, and the times are read when the call is over.
    forward!(
        tx: post_unmarked, ring_doorbell, reap, room, in_flight, has_timestamps, refresh_counters;
        by_default: post_urgent, post_burst, prepost, preposted, fire_preposted, take_timestamp
    );
}

/// Transmit timestamps.
impl Cx<'_> {
    /// Enables transmit timestamps at set-up, and allocates 16 KiB for them. From then on no other
    /// code may mark frames on this queue, because the device numbers the marks.
    ///
    /// # Errors
    /// The device has none.
    pub fn enable_timestamps(&mut self) -> Result<(), NoTxTimestamps> {
        if !self.tx.has_timestamps() {
            return Err(NoTxTimestamps);
        }
        if self.egress.pending_timestamps.is_none() {
            self.egress.pending_timestamps = Some(Box::new(PendingTimestamps::new()));
        }
        Ok(())
    }

    /// Runs `send`, and has the device stamp each frame that it posts: by a
    /// [`UdpFlow`](super::UdpFlow), or by any call of [`Cx::tcp`],
    /// [`fire`](super::tcp::TcpCalls::fire) included. Returns the result of `send` and the number
    /// of frames that will have a [`TxTime`] with `token`: zero where nothing left within the call,
    /// or timestamps are not [enabled](Self::enable_timestamps); more than this call's frames where
    /// older data of the connection left with them. ARP requests and bare acknowledgments do not
    /// count. Some 20 ns above the send; a stamped frame takes a WQE of its own.
    pub fn timestamped<T>(&mut self, token: u64, send: impl FnOnce(&mut Cx<'_>) -> T) -> (T, usize) {
        let Some(mut pending) = self.egress.pending_timestamps.take() else { return (send(self), 0) };
        let (tx, rest) = self.split_tx();
        let mut marking = Marking { tx, pending: &mut pending, token, frames: 0 };
        let result = rest.with_tx(&mut marking, send);
        let frames = marking.frames;
        self.egress.timestamps_lost.add(core::mem::take(&mut pending.lost));
        self.egress.pending_timestamps = Some(pending);
        (result, frames)
    }

    /// The oldest timestamp that has arrived. Read it every turn: a device keeps a few hundred, and
    /// counts those that it had no room for. A frame that failed has none; `egress/timestamps_lost`
    /// counts it once a later frame has reported its timestamp.
    pub fn take_timestamp(&mut self) -> Option<TxTime> {
        let pending = self.egress.pending_timestamps.as_mut()?;
        loop {
            let stamp = self.tx.take_timestamp()?;
            let token = pending.token(stamp.sequence);
            self.egress.timestamps_lost.add(core::mem::take(&mut pending.lost));
            if let Some(token) = token {
                return Some(TxTime { token, at: stamp.at });
            }
        }
    }
}
