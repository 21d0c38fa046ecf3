//! A send WQE of an RDMA queue, from its segments to a message that is under way; mlx5.md 2.2, and
//! `wqe.h` of libmlx5. In front of the data stand, by opcode and service: a datagram's address
//! vector (48 bytes), a remote address (16 bytes), an atomic's operands (16 bytes).

use super::packet::Operation;
use crate::hca::control::{AccessFlags, AddressVector, Gid, Service};
use crate::hca::environment::{Dma, Unmapped};
use crate::hca::memory::{Binding, Memory, Purpose, WindowChange};
use crate::hca::send::{CompletionMode, Control, Fault, Pieces, Scratch, Source, opcode};

/// A message that was posted and is not complete.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Where its WQE lies, for its completion.
    pub(super) position: u16,
    pub(super) control: Control,
    pub(super) operation: Operation,
    pub(super) data: Data,
    /// READ, WRITE, atomics: the peer's memory.
    pub(super) address: u64,
    pub(super) rkey: u32,
    /// Atomics: the value to store or to add, and the one to compare with.
    pub(super) operand: u64,
    pub(super) compare: u64,
    pub(super) immediate: Option<u32>,
    pub(super) invalidate: Option<u32>,
    pub(super) datagram: Option<DatagramAddress>,
    /// What it does to a window of ours, in its turn, instead of sending anything.
    pub(super) window: Option<WindowChange>,
    /// It fails as soon as those before it are done.
    pub(super) fault: Option<Fault>,
    pub(super) psn_first: u32,
    /// Numbers that it uses: those of a READ are its responses'.
    pub(super) psn_count: u32,
    /// READ and atomics: bytes that came back.
    pub(super) received: u64,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DatagramAddress {
    pub(super) qkey: u32,
    pub(super) destination: u32,
    pub(super) address: AddressVector,
}

/// Bytes of a message in the driver's memory, or carried by its WQE.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    pieces: Vec<Piece>,
    pub(super) len: u64,
}

#[derive(Clone, Debug)]
enum Piece {
    Inline(Vec<u8>),
    Memory { address: u64, len: u64 },
}

/// Bytes of the control segment, and of those that may follow.
const CONTROL_LEN: usize = 16;
const REMOTE_LEN: usize = 16;
const ATOMIC_LEN: usize = 16;
const DATAGRAM_LEN: usize = 48;

/// Of a WQE that changes a window: where the key's fields are, and the region's bytes.
const KEY_AT: usize = 64;
const BYTES_AT: usize = 128;

/// `max_msg_sz` of the port.
pub(super) const MESSAGE_LEN_MAX: u32 = 1 << 30;

/// Bytes of an atomic's value.
pub(super) const VALUE_LEN: u64 = 8;

/// What a WQE of a queue may be, and where its memory is looked up.
pub(super) struct Rules<'a> {
    pub(super) service: Service,
    /// UD: of a message.
    pub(super) len_max: u32,
    /// READs and atomics that may be outstanding.
    pub(super) read_max: u8,
    pub(super) memory: &'a Memory,
    pub(super) pd: u32,
}

impl Request {
    /// A request that is nothing but a failure.
    pub(super) fn failed(position: u16, control: Control, fault: Fault) -> Self {
        Self {
            position,
            control,
            operation: Operation::Send,
            data: Data::default(),
            address: 0,
            rkey: 0,
            operand: 0,
            compare: 0,
            immediate: None,
            invalidate: None,
            datagram: None,
            window: None,
            fault: Some(fault),
            psn_first: 0,
            psn_count: 1,
            received: 0,
        }
    }

    /// Reads and checks the WQE in the scratch.
    pub(super) fn parse(position: u16, control: &Control, scratch: &Scratch, rules: &Rules<'_>) -> Result<Self, Fault> {
        let operation = operation(control.opcode, rules)?;
        let mut request = Self { fault: None, operation, ..Self::failed(position, *control, Fault::Opcode(0)) };
        let word = scratch.be32(12);
        match control.opcode {
            opcode::SEND_IMMEDIATE | opcode::WRITE_IMMEDIATE => request.immediate = Some(word),
            opcode::SEND_INVALIDATE => request.invalidate = Some(word),
            _ if word != 0 => return Err(Fault::Immediate(word)),
            _ => {}
        }
        let at = request.parse_segments(scratch, rules.service);
        if at > control.len {
            return Err(Fault::Size { ds: (control.len / CONTROL_LEN) as u8 });
        }
        let purpose = if request.is_answered() { Purpose::Write } else { Purpose::Read };
        let mut pieces = Pieces::new();
        scratch.pieces(at, control, purpose, (rules.memory, rules.pd), &mut pieces)?;
        request.data = Data::of(&pieces, scratch);
        request.check_len(rules.len_max)?;
        Ok(request)
    }

    /// Reads a WQE that changes a window, as libmlx5 writes it (`set_bind_wr`): behind the control
    /// segment one of 48 bytes, of which the masks are not looked at, the new fields of the key (64
    /// bytes), and to bind the region's bytes (64).
    pub(super) fn parse_window(
        position: u16,
        control: &Control,
        scratch: &Scratch,
        number: u32,
    ) -> Result<Self, Fault> {
        const FREE: u8 = 1 << 6;
        let is_free = scratch.bytes[KEY_AT] & FREE != 0;
        if control.len < if is_free { BYTES_AT } else { BYTES_AT + 64 } {
            return Err(Fault::Size { ds: (control.len / CONTROL_LEN) as u8 });
        }
        let (old, new) = (scratch.be32(12), scratch.be32(KEY_AT + 4));
        let change = if is_free {
            WindowChange::Invalidate(old)
        } else if new >> 8 != number {
            return Err(Fault::Window);
        } else {
            WindowChange::Bind(Binding {
                key: old & !0xff | new & 0xff,
                region: scratch.be32(BYTES_AT + 4),
                address: scratch.be64(KEY_AT + 16),
                len: scratch.be64(KEY_AT + 24),
                access: access(scratch.bytes[KEY_AT + 2]),
            })
        };
        let request = Self::failed(position, *control, Fault::Window);
        Ok(Self { fault: None, psn_count: 0, window: Some(change), ..request })
    }

    /// Segments in front of the data. Returns where the data begins.
    fn parse_segments(&mut self, scratch: &Scratch, service: Service) -> usize {
        let mut at = CONTROL_LEN;
        if service == Service::Ud {
            self.datagram = Some(datagram_address(scratch, at));
            at += DATAGRAM_LEN;
        }
        if self.operation != Operation::Send {
            (self.address, self.rkey) = (scratch.be64(at), scratch.be32(at + 8));
            at += REMOTE_LEN;
        }
        if self.is_atomic() {
            (self.operand, self.compare) = (scratch.be64(at), scratch.be64(at + 8));
            at += ATOMIC_LEN;
        }
        at
    }

    fn check_len(&self, max: u32) -> Result<(), Fault> {
        let len = self.data.len;
        match len {
            _ if self.is_atomic() && len != VALUE_LEN => Err(Fault::AtomicLength { len }),
            len if len > u64::from(max) => Err(Fault::MessageLong { len, max }),
            _ => Ok(()),
        }
    }

    pub(super) fn is_atomic(&self) -> bool {
        matches!(self.operation, Operation::CompareSwap | Operation::FetchAdd)
    }

    /// Whether the peer answers with data, not with an acknowledgment.
    pub(super) fn is_answered(&self) -> bool {
        self.operation == Operation::Read || self.is_atomic()
    }
}

/// `IBV_ACCESS_*` by the flags of a key: LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, ATOMIC from bit 3
/// on.
fn access(flags: u8) -> AccessFlags {
    let bit = |from: u8, to: u32| u32::from(flags >> from & 1) << to;
    AccessFlags(bit(3, 0) | bit(5, 1) | bit(4, 2) | bit(6, 3))
}

/// What a queue of this service executes (`ibv_post_send(3)`).
fn operation(code: u8, rules: &Rules<'_>) -> Result<Operation, Fault> {
    let is_connected = rules.service != Service::Ud;
    let may_read = rules.service == Service::Rc && rules.read_max > 0;
    match code {
        opcode::SEND | opcode::SEND_IMMEDIATE => Ok(Operation::Send),
        opcode::SEND_INVALIDATE if rules.service == Service::Rc => Ok(Operation::Send),
        opcode::WRITE | opcode::WRITE_IMMEDIATE if is_connected => Ok(Operation::Write),
        opcode::READ if may_read => Ok(Operation::Read),
        opcode::COMPARE_SWAP if may_read => Ok(Operation::CompareSwap),
        opcode::FETCH_ADD if may_read => Ok(Operation::FetchAdd),
        unknown => Err(Fault::Opcode(unknown)),
    }
}

/// The address vector of a datagram: Q_Key, number, rate and service level, LID or UDP port, MAC
/// address, traffic class, hop limit, index of the source and flow label, GID.
fn datagram_address(scratch: &Scratch, at: usize) -> DatagramAddress {
    let bytes = &scratch.bytes[at..at + DATAGRAM_LEN];
    let word = scratch.be32(at + 28);
    let mut address = AddressVector {
        traffic_class: bytes[26],
        hop_limit: bytes[27],
        source_index: (word >> 20) as u8,
        flow_label: word & 0xf_ffff,
        service_level: bytes[12] & 0x0f,
        ..AddressVector::default()
    };
    address.mac.copy_from_slice(&bytes[20..26]);
    let mut gid = [0; 16];
    gid.copy_from_slice(&bytes[32..48]);
    address.gid = Gid(gid);
    DatagramAddress { qkey: scratch.be32(at), destination: scratch.be32(at + 8) & 0xff_ffff, address }
}

impl Data {
    fn of(pieces: &Pieces, scratch: &Scratch) -> Self {
        let piece = |piece: &crate::hca::send::Piece| match piece.source {
            Source::Inline(at) => Piece::Inline(scratch.bytes[at..at + piece.len as usize].to_vec()),
            Source::Memory(address) => Piece::Memory { address, len: u64::from(piece.len) },
        };
        Self { pieces: pieces.list().iter().map(piece).collect(), len: pieces.len }
    }

    /// Appends `len` bytes from `offset` on.
    pub(super) fn read(&self, offset: u64, len: u64, dma: &dyn Dma, into: &mut Vec<u8>) -> Result<(), Fault> {
        self.each(offset, len, |piece, from, count| {
            match piece {
                Piece::Inline(bytes) => into.extend_from_slice(&bytes[from as usize..(from + count) as usize]),
                Piece::Memory { address, .. } => {
                    let at = into.len();
                    into.resize(at + count as usize, 0);
                    dma.read(address + from, &mut into[at..])?;
                }
            }
            Ok(())
        })
    }

    /// Stores bytes from `offset` on. Those beyond the end are left out.
    pub(super) fn write(&self, offset: u64, mut bytes: &[u8], dma: &dyn Dma) -> Result<(), Fault> {
        self.each(offset, bytes.len() as u64, |piece, from, count| {
            let (now, later) = bytes.split_at(count as usize);
            bytes = later;
            match piece {
                Piece::Inline(_) => Ok(()), // a READ into its own WQE: it has no place there
                Piece::Memory { address, .. } => dma.write(address + from, now),
            }
        })
    }

    fn each(
        &self,
        mut offset: u64,
        mut len: u64,
        mut act: impl FnMut(&Piece, u64, u64) -> Result<(), Unmapped>,
    ) -> Result<(), Fault> {
        for piece in &self.pieces {
            let (address, piece_len) = match piece {
                Piece::Inline(bytes) => (0, bytes.len() as u64),
                Piece::Memory { address, len } => (*address, *len),
            };
            if offset >= piece_len {
                offset -= piece_len;
                continue;
            }
            let count = len.min(piece_len - offset);
            act(piece, offset, count).map_err(|Unmapped| Fault::PointerUnmapped { address, len: piece_len as u32 })?;
            (offset, len) = (0, len - count);
            if len == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// The control segment of a WQE that could not be fetched.
pub(super) fn unread_control(code: u8) -> Control {
    Control { opcode: code, len: 0, wqebbs: 1, mode: CompletionMode::Always, solicited: false, fence: false }
}
