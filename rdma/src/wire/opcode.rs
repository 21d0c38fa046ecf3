//! The opcode of a packet: three bits of transport, five of operation (InfiniBand 9.2.1).

use core::fmt;

/// The opcode as it stands in the header. Any byte is one; [`Opcode::operation`] says whether it
/// means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// The service that a queue pair gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection: each message is acknowledged, or named as failed.
    Rc,
    /// Unreliable connection: a message with a hole is dropped.
    Uc,
    /// Unreliable datagram: one packet a message, to any queue pair.
    Ud,
}

/// What a packet does, with the numbers of the opcode's low five bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// The first of several packets of a SEND.
    SendFirst = 0x00,
    /// One between the first and the last.
    SendMiddle = 0x01,
    /// The last of several.
    SendLast = 0x02,
    /// The last, with immediate data.
    SendLastImm = 0x03,
    /// A SEND of one packet.
    SendOnly = 0x04,
    /// A SEND of one packet, with immediate data.
    SendOnlyImm = 0x05,
    /// The first of several packets of a WRITE.
    WriteFirst = 0x06,
    /// One between the first and the last.
    WriteMiddle = 0x07,
    /// The last of several.
    WriteLast = 0x08,
    /// The last, with immediate data, which takes a receive from the queue.
    WriteLastImm = 0x09,
    /// A WRITE of one packet.
    WriteOnly = 0x0a,
    /// A WRITE of one packet, with immediate data.
    WriteOnlyImm = 0x0b,
    /// Asks for memory of the other end.
    ReadRequest = 0x0c,
    /// The first of several packets of an answer to a READ.
    ReadResponseFirst = 0x0d,
    /// One between the first and the last; it has no AETH.
    ReadResponseMiddle = 0x0e,
    /// The last of several.
    ReadResponseLast = 0x0f,
    /// An answer of one packet.
    ReadResponseOnly = 0x10,
    /// An acknowledgment, or one that says no.
    Acknowledge = 0x11,
    /// The answer to an atomic operation: the value before it.
    AtomicAcknowledge = 0x12,
    /// Writes 8 bytes if they have the expected value.
    CompareSwap = 0x13,
    /// Adds to 8 bytes.
    FetchAdd = 0x14,
    /// The last packet of a SEND that invalidates a key of the other end.
    SendLastInvalidate = 0x16,
    /// A SEND of one packet that invalidates a key of the other end.
    SendOnlyInvalidate = 0x17,
    /// Makes earlier WRITEs durable, or visible.
    Flush = 0x1c,
    /// Writes 8 bytes at once.
    AtomicWrite = 0x1d,
}

use Operation as Op;

impl Operation {
    const ALL: [Self; 25] = [
        Op::SendFirst,
        Op::SendMiddle,
        Op::SendLast,
        Op::SendLastImm,
        Op::SendOnly,
        Op::SendOnlyImm,
        Op::WriteFirst,
        Op::WriteMiddle,
        Op::WriteLast,
        Op::WriteLastImm,
        Op::WriteOnly,
        Op::WriteOnlyImm,
        Op::ReadRequest,
        Op::ReadResponseFirst,
        Op::ReadResponseMiddle,
        Op::ReadResponseLast,
        Op::ReadResponseOnly,
        Op::Acknowledge,
        Op::AtomicAcknowledge,
        Op::CompareSwap,
        Op::FetchAdd,
        Op::SendLastInvalidate,
        Op::SendOnlyInvalidate,
        Op::Flush,
        Op::AtomicWrite,
    ];

    /// True for the packet that begins a message.
    #[inline]
    pub const fn is_first(self) -> bool {
        matches!(self, Op::SendFirst | Op::WriteFirst | Op::ReadResponseFirst) || self.is_single()
    }

    /// True for the packet that ends a message.
    #[inline]
    pub const fn is_last(self) -> bool {
        let ends = matches!(
            self,
            Op::SendLast
                | Op::SendLastImm
                | Op::SendLastInvalidate
                | Op::WriteLast
                | Op::WriteLastImm
                | Op::ReadResponseLast
        );
        ends || self.is_single()
    }

    /// True for a message of one packet.
    #[inline]
    const fn is_single(self) -> bool {
        !matches!(
            self,
            Op::SendFirst
                | Op::SendMiddle
                | Op::SendLast
                | Op::SendLastImm
                | Op::SendLastInvalidate
                | Op::WriteFirst
                | Op::WriteMiddle
                | Op::WriteLast
                | Op::WriteLastImm
                | Op::ReadResponseFirst
                | Op::ReadResponseMiddle
                | Op::ReadResponseLast
        )
    }

    /// True for what a responder sends to a requester.
    #[inline]
    pub const fn is_response(self) -> bool {
        matches!(
            self,
            Op::ReadResponseFirst
                | Op::ReadResponseMiddle
                | Op::ReadResponseLast
                | Op::ReadResponseOnly
                | Op::Acknowledge
                | Op::AtomicAcknowledge
        )
    }

    /// True if an RETH is there: an address, a key and a length of the other end's memory.
    #[inline]
    pub const fn has_reth(self) -> bool {
        matches!(
            self,
            Op::WriteFirst | Op::WriteOnly | Op::WriteOnlyImm | Op::ReadRequest | Op::Flush | Op::AtomicWrite
        )
    }

    /// True if an AETH is there.
    #[inline]
    pub const fn has_aeth(self) -> bool {
        self.is_response() && !matches!(self, Op::ReadResponseMiddle)
    }

    /// True if an AtomicETH is there.
    #[inline]
    pub const fn has_atomic_eth(self) -> bool {
        matches!(self, Op::CompareSwap | Op::FetchAdd)
    }

    /// True if immediate data is there.
    #[inline]
    pub const fn has_imm(self) -> bool {
        matches!(self, Op::SendLastImm | Op::SendOnlyImm | Op::WriteLastImm | Op::WriteOnlyImm)
    }

    /// True if an IETH is there: the key to invalidate.
    #[inline]
    pub const fn has_ieth(self) -> bool {
        matches!(self, Op::SendLastInvalidate | Op::SendOnlyInvalidate)
    }

    /// True if the transport has the operation.
    #[inline]
    pub const fn is_of(self, transport: Transport) -> bool {
        match transport {
            Transport::Rc => true,
            Transport::Uc => (self as u8) <= Op::WriteOnlyImm as u8,
            Transport::Ud => matches!(self, Op::SendOnly | Op::SendOnlyImm),
        }
    }

    /// The operation in the words of Wireshark.
    pub const fn as_str(self) -> &'static str {
        match self {
            Op::SendFirst => "Send First",
            Op::SendMiddle => "Send Middle",
            Op::SendLast => "Send Last",
            Op::SendLastImm => "Send Last Immediate",
            Op::SendOnly => "Send Only",
            Op::SendOnlyImm => "Send Only Immediate",
            Op::WriteFirst => "RDMA Write First",
            Op::WriteMiddle => "RDMA Write Middle",
            Op::WriteLast => "RDMA Write Last",
            Op::WriteLastImm => "RDMA Write Last Immediate",
            Op::WriteOnly => "RDMA Write Only",
            Op::WriteOnlyImm => "RDMA Write Only Immediate",
            Op::ReadRequest => "RDMA Read Request",
            Op::ReadResponseFirst => "RDMA Read Response First",
            Op::ReadResponseMiddle => "RDMA Read Response Middle",
            Op::ReadResponseLast => "RDMA Read Response Last",
            Op::ReadResponseOnly => "RDMA Read Response Only",
            Op::Acknowledge => "Acknowledge",
            Op::AtomicAcknowledge => "ATOMIC Acknowledge",
            Op::CompareSwap => "Compare Swap",
            Op::FetchAdd => "Fetch Add",
            Op::SendLastInvalidate => "Send Last Invalidate",
            Op::SendOnlyInvalidate => "Send Only Invalidate",
            Op::Flush => "FLUSH",
            Op::AtomicWrite => "ATOMIC WRITE",
        }
    }
}

impl Opcode {
    /// A congestion notification packet (Annex A17.9.3).
    pub const CNP: Self = Self(0x81);

    /// The opcode of an operation; one that the transport does not have is a number all the same.
    #[inline]
    pub const fn new(transport: Transport, operation: Operation) -> Self {
        let class = match transport {
            Transport::Rc => 0x00,
            Transport::Uc => 0x20,
            Transport::Ud => 0x60,
        };
        Self(class | operation as u8)
    }

    /// The transport and the operation; `None` for a CNP, for reliable datagrams, which no NIC has,
    /// for XRC, and for what no table names.
    #[inline]
    pub const fn operation(self) -> Option<(Transport, Operation)> {
        Self::OPERATIONS[self.0 as usize]
    }

    /// What each byte means.
    const OPERATIONS: [Option<(Transport, Operation)>; 256] = {
        let mut table = [None; 256];
        let transports = [Transport::Rc, Transport::Uc, Transport::Ud];
        let mut idx = 0;
        while idx < transports.len() * Op::ALL.len() {
            let (transport, operation) = (transports[idx / Op::ALL.len()], Op::ALL[idx % Op::ALL.len()]);
            if operation.is_of(transport) {
                table[Self::new(transport, operation).0 as usize] = Some((transport, operation));
            }
            idx += 1;
        }
        table
    };
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        })
    }
}

impl fmt::Display for Opcode {
    /// `RC RDMA Write Only`, `CNP`, or the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation() {
            Some((transport, operation)) => write!(f, "{transport} {}", operation.as_str()),
            None if *self == Self::CNP => f.write_str("CNP"),
            None => write!(f, "opcode {:#04x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_an_operation_that_gives_the_byte_again_or_none() {
        let known = (0..=255).map(Opcode).filter(|opcode| {
            let Some((transport, operation)) = opcode.operation() else { return false };
            assert_eq!(Opcode::new(transport, operation), *opcode);
            true
        });
        assert_eq!(known.count(), 25 + 12 + 2, "RC, UC, UD");
    }

    #[test]
    fn reliable_datagrams_and_xrc_and_gaps_are_none() {
        for byte in [0x15, 0x18, 0x1b, 0x1e, 0x1f, 0x2c, 0x36, 0x40, 0x44, 0x60, 0x6a, 0x80, 0x81, 0xa4, 0xff] {
            assert_eq!(Opcode(byte).operation(), None, "{byte:#04x}");
        }
    }

    #[test]
    fn opcodes_read_as_in_wireshark() {
        let texts = [0x04, 0x2a, 0x64, 0x81, 0x55].map(|byte| Opcode(byte).to_string());
        assert_eq!(texts, ["RC Send Only", "UC RDMA Write Only", "UD Send Only", "CNP", "opcode 0x55"]);
    }
}
