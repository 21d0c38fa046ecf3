//! A packet from the BTH to the ICRC.

use core::fmt;

use zerocopy::FromBytes;
use zerocopy::big_endian::{U32, U64};

use super::aeth::{Aeth, Syndrome};
use super::bth::Bth;
use super::extended::{AtomicEth, Deth, Reth};
use super::icrc::{ICRC_LEN, Network, icrc};
use super::opcode::{Opcode, Operation, Transport};

/// A packet whose headers are there as its opcode says. Nothing is said of numbers, keys or the
/// ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The header that all have.
    pub bth: &'a Bth,
    /// What follows it.
    pub body: Body<'a>,
    transport: &'a [u8],
    icrc: [u8; ICRC_LEN],
}

/// What follows the BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A part of a message, or a request, or an answer.
    Message(Message<'a>),
    /// The receiver saw congestion.
    CongestionNotification,
}

/// A part of a message, a request or an answer, with the headers that its operation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The service.
    pub transport: Transport,
    /// What it does.
    pub operation: Operation,
    /// The sender of a datagram.
    pub deth: Option<&'a Deth>,
    /// Memory of the receiver.
    pub reth: Option<&'a Reth>,
    /// An atomic operation.
    pub atomic: Option<&'a AtomicEth>,
    /// An acknowledgment.
    pub aeth: Option<&'a Aeth>,
    /// The value before an atomic operation.
    pub original: Option<u64>,
    /// Immediate data, in the order in which it was sent.
    pub imm: Option<[u8; 4]>,
    /// The key of the receiver that ends with this message.
    pub invalidated_rkey: Option<u32>,
    /// The data, without the pad.
    pub payload: &'a [u8],
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketError {
    /// Fewer bytes than the headers of the opcode, the pad and the ICRC.
    Short,
    /// Another version of the transport than 0.
    Version,
    /// An opcode that no transport of ours has.
    Opcode(Opcode),
    /// Payload and pad are not a multiple of four bytes.
    Pad,
}

impl<'a> Packet<'a> {
    /// The packet in the payload of a UDP datagram, or behind a GRH.
    ///
    /// # Errors
    /// [`PacketError`]; nothing of it can be used then.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let (transport, icrc) = bytes.split_last_chunk::<ICRC_LEN>().ok_or(PacketError::Short)?;
        let (bth, rest) = Bth::ref_from_prefix(transport).map_err(|_| PacketError::Short)?;
        if bth.version() != 0 {
            return Err(PacketError::Version);
        }
        let body = if bth.opcode() == Opcode::CNP {
            Body::CongestionNotification
        } else {
            Body::Message(Message::parse(bth, rest)?)
        };
        Ok(Self { bth, body, transport, icrc: *icrc })
    }

    /// True if the ICRC is that of the packet behind this network header. The cost of [`icrc()`].
    #[inline]
    pub fn has_valid_icrc(&self, network: Network<'_>) -> bool {
        icrc(network, self.transport).to_le_bytes() == self.icrc
    }
}

impl<'a> Message<'a> {
    #[inline]
    fn parse(bth: &Bth, mut rest: &'a [u8]) -> Result<Self, PacketError> {
        let (transport, operation) = bth.opcode().operation().ok_or(PacketError::Opcode(bth.opcode()))?;
        // FLUSH has a word in front of its RETH, of which nobody here makes use.
        if operation == Operation::Flush {
            take::<U32>(&mut rest, true)?;
        }
        let is_atomic_ack = operation == Operation::AtomicAcknowledge;
        let deth = take(&mut rest, transport == Transport::Ud)?;
        let reth = take(&mut rest, operation.has_reth())?;
        let atomic = take(&mut rest, operation.has_atomic_eth())?;
        let aeth = take(&mut rest, operation.has_aeth())?;
        let original = take::<U64>(&mut rest, is_atomic_ack)?.map(|value| value.get());
        let imm = take(&mut rest, operation.has_imm())?.copied();
        let invalidated_rkey = take::<U32>(&mut rest, operation.has_ieth())?.map(|rkey| rkey.get());
        if !rest.len().is_multiple_of(4) {
            return Err(PacketError::Pad);
        }
        let len = rest.len().checked_sub(bth.pad()).ok_or(PacketError::Short)?;
        let payload = &rest[..len];
        Ok(Self { transport, operation, deth, reth, atomic, aeth, original, imm, invalidated_rkey, payload })
    }
}

/// Takes a header from the front of `rest` if it `is_there`.
#[inline]
fn take<'a, T>(rest: &mut &'a [u8], is_there: bool) -> Result<Option<&'a T>, PacketError>
where
    T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
{
    if !is_there {
        return Ok(None);
    }
    let (header, behind) = T::ref_from_prefix(rest).map_err(|_| PacketError::Short)?;
    *rest = behind;
    Ok(Some(header))
}

impl fmt::Display for Packet<'_> {
    /// `RC RDMA Write Only, QP 0x000012, PSN 5, ack wanted, address 0x7f00, key 0x1200, 64 bytes,
    /// length 64`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = self.bth;
        write!(f, "{}, QP {}", bth.opcode(), bth.destination())?;
        match &self.body {
            Body::CongestionNotification => Ok(()),
            Body::Message(message) => {
                write!(f, ", PSN {}", bth.psn())?;
                for (is_so, words) in [
                    (bth.ack_request(), ", ack wanted"),
                    (bth.is_solicited(), ", solicited"),
                    (bth.has_fecn(), ", FECN"),
                    (bth.has_becn(), ", BECN"),
                ] {
                    f.write_str(if is_so { words } else { "" })?;
                }
                message.fmt(f)
            }
        }
    }
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(deth) = self.deth {
            write!(f, ", from QP {}, Q_Key {:#x}", deth.source(), deth.qkey())?;
        }
        if let Some(reth) = self.reth {
            write!(f, ", address {:#x}, key {:#x}, {} bytes", reth.address(), reth.rkey(), reth.len())?;
        }
        if let Some(atomic) = self.atomic {
            write!(f, ", address {:#x}, key {:#x}", atomic.address(), atomic.rkey())?;
        }
        if let Some(aeth) = self.aeth {
            write!(f, ", {}, MSN {}", aeth.syndrome(), aeth.msn())?;
        }
        if let Some(imm) = self.imm {
            write!(f, ", immediate {:#010x}", u32::from_be_bytes(imm))?;
        }
        if let Some(rkey) = self.invalidated_rkey {
            write!(f, ", invalidates key {rkey:#x}")?;
        }
        match self.payload {
            [] => Ok(()),
            payload => write!(f, ", length {}", payload.len()),
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack(_) => f.write_str("ACK"),
            Self::RnrNak(_) => f.write_str("RNR NAK"),
            Self::Nak(nak) => f.write_str(nak.as_str()),
            Self::Reserved(byte) => write!(f, "syndrome {byte:#04x}"),
        }
    }
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("RoCE packet shorter than its headers"),
            Self::Version => f.write_str("RoCE packet of an unknown version"),
            Self::Opcode(opcode) => write!(f, "RoCE {opcode} unknown"),
            Self::Pad => f.write_str("RoCE payload no multiple of four bytes"),
        }
    }
}

impl core::error::Error for PacketError {}
