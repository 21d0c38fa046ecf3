//! The steps of a queue pair from RESET to RTS.

use crate::provider::Provider;
use crate::roce::{Access, ModifyError, Mtu, Path, QpAttributes, QpHandle, QpState};
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// The values of `ibv_rc_pingpong`: 0.64 ms for a peer without a receive, 67 ms for an
/// acknowledgment, and as many retries as there can be. A peer that is gone is a failure after half
/// a second.
const MIN_RNR_TIMER: u8 = 12;
const TIMEOUT: u8 = 14;
const RETRIES: u8 = 7;

/// What a reliable connection is made of.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// The number of the peer's first packet.
    pub psn: Psn,
    /// The number of our first packet.
    pub own_psn: Psn,
    /// The way to the peer.
    pub path: Path,
    /// The largest payload of a packet, at both ends.
    pub mtu: Mtu,
    /// What the peer may do with our memory.
    pub access: Access,
    /// READs at once, in each direction.
    pub reads: u8,
}

/// Leads a new queue pair of a reliable connection to RTS.
///
/// # Errors
/// [`ModifyError`]: the queue pair is not in RESET, or a value is none of the device's.
pub fn connect<P: Provider>(provider: &mut P, qp: QpHandle, peer: &Peer) -> Result<(), ModifyError> {
    let init = QpAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(peer.access),
        ..QpAttributes::to(QpState::Init)
    };
    let rtr = QpAttributes {
        path: Some(peer.path),
        mtu: Some(peer.mtu),
        destination: Some(peer.qpn),
        rq_psn: Some(peer.psn),
        max_dest_rd_atomic: Some(peer.reads),
        min_rnr_timer: Some(MIN_RNR_TIMER),
        ..QpAttributes::to(QpState::Rtr)
    };
    let rts = QpAttributes {
        sq_psn: Some(peer.own_psn),
        max_rd_atomic: Some(peer.reads),
        retry_cnt: Some(RETRIES),
        rnr_retry: Some(RETRIES),
        timeout: Some(TIMEOUT),
        ..QpAttributes::to(QpState::Rts)
    };
    [init, rtr, rts].iter().try_for_each(|step| provider.modify_qp(qp, step))
}
