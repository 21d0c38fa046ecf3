//! Queue pair 1, the general services interface: datagrams of the connection manager
//! (InfiniBand 13.5). It has no work requests: what arrives waits to be taken, and what is sent is
//! copied.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::VecDeque;

use super::Device;
use crate::roce::builder::Builder;
use crate::roce::path::{Addresses, Path, Template};
use crate::wire::bth::{Bth, BthFields};
use crate::wire::extended::Deth;
use crate::wire::icrc::Network;
use crate::wire::opcode::{Opcode, Operation, Transport};
use crate::wire::packet::{Body, Packet};
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// Bytes of a management datagram.
pub const MAD_LEN: usize = 256;
/// The key of queue pair 1 (InfiniBand 3.5.3): no other queue pair has it.
const GSI_QKEY: u32 = 0x8001_0000;
/// Datagrams that wait in each direction: those of more connections come again, because each
/// message of a connection is repeated until it is answered.
const WAITING_MAX: usize = 64;

/// A management datagram that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMad {
    /// From ours to the sender's address: the way of an answer.
    pub addresses: Addresses,
    /// The datagram.
    pub mad: [u8; MAD_LEN],
}

/// Why a management datagram was not sent: as many as can wait do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GsiFull;

pub(super) struct Gsi {
    received: VecDeque<ReceivedMad>,
    waiting: VecDeque<(Template, [u8; MAD_LEN])>,
    psn: Psn,
    /// It stands in the queue of those that have a packet to send.
    is_queued: bool,
}

impl Gsi {
    pub(super) fn new() -> Self {
        let (received, waiting) = (VecDeque::with_capacity(WAITING_MAX), VecDeque::with_capacity(WAITING_MAX));
        Self { received, waiting, psn: Psn::default(), is_queued: false }
    }
}

impl Device {
    /// Sends a management datagram to queue pair 1 of a port, in the default partition.
    ///
    /// # Errors
    /// [`GsiFull`]; try again when [`Device::transmit`] has sent some.
    pub fn send_mad(&mut self, path: &Path, mad: &[u8; MAD_LEN]) -> Result<(), GsiFull> {
        if self.gsi.waiting.len() == WAITING_MAX {
            return Err(GsiFull);
        }
        // As of other datagrams: nothing slows them, so no switch is to mark them.
        let template = Template::new(path, Qpn::CM, Qpn::CM).with_class(path.traffic_class & !0b11);
        self.gsi.waiting.push_back((template, *mad));
        if !core::mem::replace(&mut self.gsi.is_queued, true) {
            self.due.push(self.config.qps);
        }
        Ok(())
    }

    /// Takes the oldest management datagram that arrived.
    pub fn next_mad(&mut self) -> Option<ReceivedMad> {
        self.gsi.received.pop_front()
    }

    /// Writes the next management datagram; queue pair 1 stands behind the last of the others.
    #[cold]
    pub(super) fn transmit_mad(&mut self, idx: u32, frame: &mut [u8]) -> Option<usize> {
        if idx != self.config.qps {
            return None;
        }
        self.gsi.is_queued = false;
        let (template, mad) = self.gsi.waiting.pop_front()?;
        if !self.gsi.waiting.is_empty() {
            self.gsi.is_queued = true;
            self.due.push(idx);
        }
        let bth = Bth::new(&BthFields {
            opcode: Opcode::new(Transport::Ud, Operation::SendOnly),
            solicited: false,
            pad: 0,
            pkey: Bth::DEFAULT_PKEY,
            destination: Qpn::CM,
            ack_request: false,
            psn: self.gsi.psn,
        });
        self.gsi.psn = self.gsi.psn.plus(1);
        let mut builder = Builder::new(frame, &template, &bth);
        builder.push(&Deth::new(GSI_QKEY, Qpn::CM));
        builder.push(&mad);
        self.tables.counters.mads_tx += 1;
        Some(builder.finish(&template))
    }

    /// Takes a packet that is for no queue pair of the tables: a management datagram for queue
    /// pair 1, or it is dropped.
    #[cold]
    pub(super) fn take_mad(&mut self, packet: &Packet<'_>, network: Network<'_>) {
        let counters = &mut self.tables.counters;
        if packet.bth.destination() != Qpn::CM {
            counters.unknown_qp += 1;
            return;
        }
        let Body::Message(message) = &packet.body else {
            counters.cnps_rx += 1;
            return;
        };
        let drop = if (packet.bth.pkey() ^ Bth::DEFAULT_PKEY) & 0x7fff != 0 {
            &mut counters.pkey_violations
        } else if message.transport != Transport::Ud {
            &mut counters.wrong_transport
        } else if message.deth.is_none_or(|deth| deth.qkey() != GSI_QKEY) {
            &mut counters.qkey_violations
        } else if super::datagrams::is_for_many(network) {
            &mut counters.wrong_address
        } else {
            match message.payload.first_chunk() {
                Some(mad) if message.payload.len() == MAD_LEN && self.gsi.received.len() < WAITING_MAX => {
                    counters.mads_rx += 1;
                    return self.gsi.received.push_back(ReceivedMad { addresses: answer(network), mad: *mad });
                }
                _ => &mut counters.mads_dropped,
            }
        };
        *drop += 1;
    }
}

/// The way of an answer to a packet.
fn answer(network: Network<'_>) -> Addresses {
    let six = |bytes: &[u8]| Ipv6Addr::from_bits(bytes.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte)));
    match network {
        Network::Ipv4(ip, _) => Addresses::Ipv4 {
            source: Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]),
            destination: Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]),
        },
        Network::Ipv6(ip, _) => Addresses::Ipv6 { source: six(&ip[24..40]), destination: six(&ip[8..24]) },
        Network::Grh(ip) => Addresses::Grh { source: six(&ip[24..40]), destination: six(&ip[8..24]) },
    }
}

impl core::fmt::Display for GsiFull {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{WAITING_MAX} management datagrams wait to be sent: transmit first")
    }
}

impl core::error::Error for GsiFull {}
