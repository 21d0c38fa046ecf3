//! Sent data: the send sequence space (RFC 9293 3.3.1).
//!
//! [`SendVariables`] is in the second cache line, [`RareSend`] after all fields that every segment
//! needs. Written by `input`, which records the peer's acknowledgments and windows, and by
//! `output`, which moves `nxt` and `small` (also by `state`, where changed options end the use of
//! `small`). `calls` lowers `mss` by a verb of `input`, `limit_mss`, where the app asks for it.
//! Waiting chunks are in [`SendQueue`](super::SendQueue).

use crate::proto::tcp::seq::Seq;

/// The fields that each segment uses.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SendVariables {
    /// SND.UNA.
    pub(crate) una: Seq,
    /// SND.NXT: the end of sent data; never moves back.
    pub(crate) nxt: Seq,
    /// SND.WND, scaled.
    pub(crate) wnd: u32,
    /// SND.WL1.
    pub(crate) wl1: Seq,
    /// SND.WL2.
    pub(crate) wl2: Seq,
    /// The end of the last segment sent that was not full (Minshall's variant of Nagle's
    /// algorithm).
    pub(crate) small: Seq,
    /// Largest payload of a segment, less the options of every segment only (RFC 6691).
    pub(crate) mss: u16,
    /// The shift of the peer's windows (RFC 7323 2.3: Snd.Wind.Shift).
    pub(crate) wscale: u8,
    /// The shift of our windows (Rcv.Wind.Shift).
    pub(crate) rcv_wscale: u8,
}

impl SendVariables {
    pub(super) const NEW: Self = Self {
        una: Seq(0),
        nxt: Seq(0),
        wnd: 0,
        wl1: Seq(0),
        wl2: Seq(0),
        small: Seq(0),
        mss: 536,
        wscale: 0,
        rcv_wscale: 0,
    };

    /// FlightSize: numbers sent and not acknowledged (RFC 5681 2).
    #[inline]
    pub(crate) fn flight(&self) -> u32 {
        self.nxt - self.una
    }
}

/// Rare fields.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RareSend {
    pub(crate) iss: Seq,
    /// The largest window that the peer has shown (RFC 9293 3.8.6.2.1).
    pub(crate) wnd_max: u32,
}
