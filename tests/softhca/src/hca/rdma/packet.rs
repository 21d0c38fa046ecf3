//! A RoCE packet from its base transport header (BTH) to its pad: opcodes, extension headers,
//! payload. InfiniBand Architecture Specification, volume 1, chapter 9.

/// The headers of a packet. An extension header is there exactly where the opcode has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) opcode: u8,
    /// SE: the receiver's completion is solicited.
    pub(super) solicited: bool,
    /// AckReq.
    pub(super) ack_request: bool,
    /// DestQP.
    pub(super) destination: u32,
    pub(super) psn: u32,
    /// DETH.
    pub(super) datagram: Option<Datagram>,
    /// RETH.
    pub(super) remote: Option<Remote>,
    /// AtomicETH.
    pub(super) atomic: Option<Atomic>,
    /// AETH.
    pub(super) ack: Option<Ack>,
    /// AtomicAckETH: the value that was there before.
    pub(super) original: Option<u64>,
    /// ImmDt, as it lies in the WQE.
    pub(super) immediate: Option<u32>,
    /// IETH: the key to invalidate.
    pub(super) invalidate: Option<u32>,
}

/// DETH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) qkey: u32,
    pub(super) source: u32,
}

/// RETH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) address: u64,
    pub(super) rkey: u32,
    pub(super) len: u32,
}

/// AtomicETH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Atomic {
    pub(super) address: u64,
    pub(super) rkey: u32,
    /// The value to store, or to add.
    pub(super) operand: u64,
    pub(super) compare: u64,
}

/// AETH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) syndrome: u8,
    pub(super) msn: u32,
}

/// Bits 7 to 5 of an opcode.
pub(super) mod service {
    pub(crate) const RC: u8 = 0x00;
    pub(crate) const UC: u8 = 0x20;
    pub(crate) const UD: u8 = 0x60;
}

/// A congestion notification packet.
pub(super) const CNP: u8 = 0x81;

const SERVICE: u8 = 0xe0;

/// What a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Send,
    Write,
    Read,
    ReadResponse,
    Acknowledge,
    AtomicAcknowledge,
    CompareSwap,
    FetchAdd,
}

/// The extension headers of an opcode, in the order of the specification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extensions {
    datagram: bool,
    remote: bool,
    atomic: bool,
    ack: bool,
    original: bool,
    immediate: bool,
    invalidate: bool,
}

/// An opcode in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) operation: Operation,
    /// The first or only packet of its message.
    pub(super) first: bool,
    /// The last or only one.
    pub(super) last: bool,
    extensions: Extensions,
}

impl Form {
    /// `None` for an opcode that there is not, or that this NIC does not have.
    pub(super) fn of(opcode: u8) -> Option<Self> {
        use Operation::{Acknowledge, AtomicAcknowledge, CompareSwap, FetchAdd, Read, ReadResponse, Send, Write};
        let none = Extensions::default();
        let remote = Extensions { remote: true, ..none };
        let immediate = Extensions { immediate: true, ..none };
        let ack = Extensions { ack: true, ..none };
        let form = |operation, first, last, extensions| Self { operation, first, last, extensions };
        let form = match opcode & !SERVICE {
            0x00 => form(Send, true, false, none),
            0x01 => form(Send, false, false, none),
            0x02 => form(Send, false, true, none),
            0x03 => form(Send, false, true, immediate),
            0x04 => form(Send, true, true, none),
            0x05 => form(Send, true, true, immediate),
            0x06 => form(Write, true, false, remote),
            0x07 => form(Write, false, false, none),
            0x08 => form(Write, false, true, none),
            0x09 => form(Write, false, true, immediate),
            0x0a => form(Write, true, true, remote),
            0x0b => form(Write, true, true, Extensions { immediate: true, ..remote }),
            0x0c => form(Read, true, true, remote),
            0x0d => form(ReadResponse, true, false, ack),
            0x0e => form(ReadResponse, false, false, none),
            0x0f => form(ReadResponse, false, true, ack),
            0x10 => form(ReadResponse, true, true, ack),
            0x11 => form(Acknowledge, true, true, ack),
            0x12 => form(AtomicAcknowledge, true, true, Extensions { original: true, ..ack }),
            0x13 => form(CompareSwap, true, true, Extensions { atomic: true, ..none }),
            0x14 => form(FetchAdd, true, true, Extensions { atomic: true, ..none }),
            0x16 => form(Send, false, true, Extensions { invalidate: true, ..none }),
            0x17 => form(Send, true, true, Extensions { invalidate: true, ..none }),
            _ => return None,
        };
        match opcode & SERVICE {
            service::RC => Some(form),
            service::UC if opcode & !SERVICE <= 0x0b => Some(form),
            service::UD if matches!(opcode & !SERVICE, 0x04 | 0x05) => {
                Some(Self { extensions: Extensions { datagram: true, ..form.extensions }, ..form })
            }
            _ => None,
        }
    }

    /// The opcode of a packet of a SEND or WRITE.
    pub(super) fn opcode(operation: Operation, first: bool, last: bool, has: &Headers) -> u8 {
        let (immediate, invalidate) = (has.immediate.is_some(), has.invalidate.is_some());
        match operation {
            Operation::Send => match (first, last) {
                (true, false) => 0x00,
                (false, false) => 0x01,
                (false, true) if immediate => 0x03,
                (false, true) if invalidate => 0x16,
                (false, true) => 0x02,
                (true, true) if immediate => 0x05,
                (true, true) if invalidate => 0x17,
                (true, true) => 0x04,
            },
            Operation::Write => match (first, last) {
                (true, false) => 0x06,
                (false, false) => 0x07,
                (false, true) if immediate => 0x09,
                (false, true) => 0x08,
                (true, true) if immediate => 0x0b,
                (true, true) => 0x0a,
            },
            Operation::ReadResponse => match (first, last) {
                (true, false) => 0x0d,
                (false, false) => 0x0e,
                (false, true) => 0x0f,
                (true, true) => 0x10,
            },
            Operation::Read => 0x0c,
            Operation::Acknowledge => 0x11,
            Operation::AtomicAcknowledge => 0x12,
            Operation::CompareSwap => 0x13,
            Operation::FetchAdd => 0x14,
        }
    }
}

/// Bytes of the BTH.
const BTH_LEN: usize = 12;

/// MigReq, as NVIDIA's NICs send it.
const MIGRATED: u8 = 1 << 6;
const SOLICITED: u8 = 1 << 7;
const ACK_REQUEST: u8 = 1 << 7;

/// The default partition, as a full member.
const PARTITION: u16 = 0xffff;
/// The bit of membership.
const FULL_MEMBER: u16 = 1 << 15;

impl Headers {
    /// Parses a packet and splits off its payload; `None` where it cannot be one for this NIC.
    pub(super) fn parse(packet: &[u8]) -> Option<(Self, &[u8])> {
        let (bth, mut rest) = packet.split_at_checked(BTH_LEN)?;
        let partition = u16::from_be_bytes([bth[2], bth[3]]);
        if bth[1] & 0x0f != 0 || partition | FULL_MEMBER != PARTITION {
            return None;
        }
        let mut headers = Self {
            opcode: bth[0],
            solicited: bth[1] & SOLICITED != 0,
            ack_request: bth[8] & ACK_REQUEST != 0,
            destination: be24(&bth[5..8]),
            psn: be24(&bth[9..12]),
            ..Self::default()
        };
        if bth[0] == CNP {
            return Some((headers, &[]));
        }
        headers.parse_extensions(&mut rest)?;
        let pad = usize::from(bth[1] >> 4 & 3);
        let payload = rest.get(..rest.len().checked_sub(pad)?)?;
        Some((headers, payload))
    }

    fn parse_extensions(&mut self, rest: &mut &[u8]) -> Option<()> {
        let Extensions { datagram, remote, atomic, ack, original, immediate, invalidate } =
            Form::of(self.opcode)?.extensions;
        if datagram {
            self.datagram = Some(Datagram { qkey: take_u32(rest)?, source: take_u32(rest)? & 0xff_ffff });
        }
        if remote {
            self.remote = Some(Remote { address: take_u64(rest)?, rkey: take_u32(rest)?, len: take_u32(rest)? });
        }
        if atomic {
            self.atomic = Some(Atomic {
                address: take_u64(rest)?,
                rkey: take_u32(rest)?,
                operand: take_u64(rest)?,
                compare: take_u64(rest)?,
            });
        }
        if ack {
            let word = take_u32(rest)?;
            self.ack = Some(Ack { syndrome: (word >> 24) as u8, msn: word & 0xff_ffff });
        }
        if original {
            self.original = Some(take_u64(rest)?);
        }
        if immediate {
            self.immediate = Some(take_u32(rest)?);
        }
        if invalidate {
            self.invalidate = Some(take_u32(rest)?);
        }
        Some(())
    }

    /// Appends the packet, with its pad.
    pub(super) fn emit(&self, payload: &[u8], into: &mut Vec<u8>) {
        let pad = payload.len().next_multiple_of(4) - payload.len();
        let solicited = if self.solicited { SOLICITED } else { 0 };
        let ack_request = if self.ack_request { u32::from(ACK_REQUEST) << 24 } else { 0 };
        into.extend([self.opcode, solicited | MIGRATED | (pad as u8) << 4]);
        into.extend(PARTITION.to_be_bytes());
        into.extend(self.destination.to_be_bytes());
        into.extend((ack_request | self.psn).to_be_bytes());
        if let Some(Datagram { qkey, source }) = self.datagram {
            into.extend(qkey.to_be_bytes());
            into.extend(source.to_be_bytes());
        }
        if let Some(Remote { address, rkey, len }) = self.remote {
            into.extend(address.to_be_bytes());
            into.extend(rkey.to_be_bytes());
            into.extend(len.to_be_bytes());
        }
        if let Some(Atomic { address, rkey, operand, compare }) = self.atomic {
            into.extend(address.to_be_bytes());
            into.extend(rkey.to_be_bytes());
            into.extend(operand.to_be_bytes());
            into.extend(compare.to_be_bytes());
        }
        if let Some(Ack { syndrome, msn }) = self.ack {
            into.extend((u32::from(syndrome) << 24 | msn).to_be_bytes());
        }
        if let Some(original) = self.original {
            into.extend(original.to_be_bytes());
        }
        for word in [self.immediate, self.invalidate].into_iter().flatten() {
            into.extend(word.to_be_bytes());
        }
        into.extend_from_slice(payload);
        into.resize(into.len() + pad, 0);
    }
}

fn be24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u32::from_be_bytes(*first))
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u64::from_be_bytes(*first))
}

/// Packet sequence numbers: 24 bits, compared within half of their range.
pub(super) mod psn {
    const MASK: u32 = 0xff_ffff;

    /// Added, it leads to the number before.
    pub(crate) const BEFORE: u32 = MASK;

    pub(crate) fn add(psn: u32, count: u32) -> u32 {
        psn.wrapping_add(count) & MASK
    }

    /// How far `to` is after `from`; negative where it is before.
    pub(crate) fn distance(from: u32, to: u32) -> i32 {
        ((to.wrapping_sub(from) << 8) as i32) >> 8
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report
    use super::*;

    #[test]
    fn each_opcode_is_read_back_as_it_was_written() {
        for opcode in 0..=u8::MAX {
            let Some(Form { extensions, .. }) = Form::of(opcode) else { continue };
            let headers = Headers {
                opcode,
                solicited: opcode & 1 != 0,
                ack_request: opcode & 2 != 0,
                destination: 0x12_3456,
                psn: 0xff_fffe,
                datagram: extensions.datagram.then_some(Datagram { qkey: 0x1111_1111, source: 0x22_2222 }),
                remote: extensions.remote.then_some(Remote { address: 3, rkey: 4, len: 5 }),
                atomic: extensions.atomic.then_some(Atomic { address: 6, rkey: 7, operand: 8, compare: 9 }),
                ack: extensions.ack.then_some(Ack { syndrome: 0x1f, msn: 10 }),
                original: extensions.original.then_some(11),
                immediate: extensions.immediate.then_some(12),
                invalidate: extensions.invalidate.then_some(13),
            };
            for payload in [&b""[..], b"1", b"12", b"123", b"1234"] {
                let mut packet = Vec::new();
                headers.emit(payload, &mut packet);
                assert_eq!(packet.len() % 4, 0);
                assert_eq!(Headers::parse(&packet), Some((headers, payload)), "{opcode:#x}");
                for len in 0..packet.len() - payload.len().next_multiple_of(4) {
                    assert_eq!(Headers::parse(&packet[..len]), None, "{opcode:#x} cut to {len} bytes");
                }
            }
        }
    }

    #[test]
    fn packet_of_another_partition_or_version_is_none() {
        let mut packet = Vec::new();
        Headers { opcode: 0x04, ..Headers::default() }.emit(b"", &mut packet);
        for (at, byte) in [(1, 0x41), (2, 0x7e), (3, 0xfe)] {
            let mut wrong = packet.clone();
            wrong[at] = byte;
            assert_eq!(Headers::parse(&wrong), None);
        }
        packet[2] = 0x7f;
        assert!(Headers::parse(&packet).is_some(), "a limited member");
    }

    #[test]
    fn sequence_numbers_wrap() {
        assert_eq!(psn::add(0xff_ffff, 2), 1);
        assert_eq!(psn::distance(0xff_ffff, 1), 2);
        assert_eq!(psn::distance(1, 0xff_ffff), -2);
    }
}
