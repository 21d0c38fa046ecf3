//! The machine's interface to the output, which is the caller's: the machine never sees a header or
//! a device.

use core::net::Ipv4Addr;

use super::run::Run;
use crate::proto::Flow;
use crate::proto::tcp::segment::Outgoing;
use crate::proto::tcp::seq::Seq;

/// The output of segments.
pub trait Output<P> {
    /// Sends a segment. `slot` is the connection's slot, below `TcpConfig::connections_max`, or
    /// `None` for a segment without a connection. The machine keeps the payload until it is
    /// acknowledged, so the output needs a second handle of the bytes while the NIC reads them.
    /// Where the segment cannot be sent now, the output must not change anything, and the machine
    /// tries again.
    fn send(&mut self, slot: Option<u32>, segment: &Outgoing, payload: Option<&mut P>) -> Result<(), Unsent>;

    /// Bytes of the longest IPv4 packet to `remote`, as far as known: it determines the MSS that we
    /// announce and the one that we send with.
    fn mtu(&self, remote: Ipv4Addr) -> usize;

    /// Bytes of the longest payload that the device cuts into segments; 0 where it cuts none.
    fn segmentation_len_max(&self) -> usize {
        0
    }

    /// Bytes that a data buffer holds, where the device cuts payloads longer than a segment.
    fn buffer_len_max(&self) -> usize {
        0
    }

    /// Segments to `remote` were retransmitted so often that the path may be dead: the resolver may
    /// check the neighbor (RFC 9293 3.8.3, negative advice).
    fn negative_advice(&mut self, remote: Ipv4Addr) {
        let _ = remote;
    }

    /// Whether a data buffer is available.
    fn has_buffer(&self) -> bool {
        true
    }

    /// Payloads that [`send_run`](Self::send_run) takes as one segment of the connection at `slot`
    /// now: 1 where each goes alone.
    fn pieces_max(&self, slot: u32) -> usize {
        let _ = slot;
        1
    }

    /// Like [`send`](Self::send), for several payloads in one segment, which the device cuts into
    /// segments of `segment_len` at the borders of the payloads. Only called where
    /// [`pieces_max`](Self::pieces_max) allows it. The machine keeps each of them.
    fn send_run(&mut self, slot: u32, segment: &Outgoing, run: &mut Run<'_, P>) -> Result<(), Unsent> {
        let _ = (slot, segment, run);
        debug_assert!(false, "this way out takes each payload alone");
        Err(Unsent::Busy)
    }

    /// The handshake of the connection at `slot` is done: from now on the peer has it open.
    fn opened(&mut self, slot: u32, flow: Flow, snd_nxt: Seq, rcv_nxt: Seq) {
        let _ = (slot, flow, snd_nxt, rcv_nxt);
    }

    /// Both ends know that the connection at `slot` has ended, or one end does and cannot notify
    /// the other. Also called where no connection was open.
    fn closed(&mut self, slot: u32) {
        let _ = slot;
    }
}

/// Why a segment cannot be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The ring is full, or no buffer is free: try again soon.
    Busy,
    /// No route, the link is down, the neighbor is not known: try again when
    /// [`Tcp::follow_routes`](crate::proto::tcp::Tcp::follow_routes) reports changed paths, and now
    /// and then before.
    NoRoute,
}

/// The output of a call that sends nothing.
pub(crate) struct NoOutput;

impl<P> Output<P> for NoOutput {
    fn send(&mut self, _: Option<u32>, _: &Outgoing, _: Option<&mut P>) -> Result<(), Unsent> {
        debug_assert!(false, "a call that sends nothing has sent something");
        Err(Unsent::Busy)
    }

    fn mtu(&self, _: Ipv4Addr) -> usize {
        usize::MAX
    }
}
