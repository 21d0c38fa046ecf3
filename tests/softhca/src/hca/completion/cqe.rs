//! The layout of a completion queue entry; mlx5.md 2.9. Input: a queue's result. Output: 64 bytes,
//! of which the last makes the entry valid. This file knows neither rings nor sessions.

use crate::hca::{Completion, CompletionKind, RxHeaders, RxMessage, RxMessageKind, Syndrome};

/// One entry, without the padding of a 128-byte ring.
pub(in crate::hca) type Cqe = [u8; 64];

/// Where the byte lies that gives an entry to the driver: everything before it is written first.
pub(in crate::hca) const OP_OWN: usize = 63;

/// The bit of a receive CQE's byte count in a striding queue that says: the strides are consumed,
/// and hold no frame.
pub(in crate::hca) const FILLER: u32 = 1 << 31;

/// Strides that a frame consumed, from the byte count of a striding queue. 0 in a cyclic one.
pub(in crate::hca) fn strides_consumed(byte_count: u32) -> u16 {
    (byte_count >> 16) as u16 & 0x7fff
}

const OPCODE_SENT: u8 = 0;
const OPCODE_WRITTEN_IMMEDIATE: u8 = 1;
const OPCODE_RECEIVED: u8 = 2;
const OPCODE_RECEIVED_IMMEDIATE: u8 = 3;
const OPCODE_RECEIVED_INVALIDATE: u8 = 4;
const OPCODE_SEND_ERROR: u8 = 13;
const OPCODE_RECEIVE_ERROR: u8 = 14;

const SOLICITED: u8 = 1 << 1;
const FORMAT_COMPRESSED: u8 = 3 << 2;

/// The entry for `completion`.
pub(in crate::hca) fn encode(completion: &Completion, timestamp: u64, owner: bool) -> Cqe {
    let mut cqe = [0; 64];
    put_u32(&mut cqe, 32, completion.user_index & 0xff_ffff);
    put_u16(&mut cqe, 60, completion.wqe_counter);
    let queue = completion.queue_number & 0xff_ffff;
    let op = match completion.kind {
        CompletionKind::Sent { opcode, byte_count, solicited } => {
            put_u32(&mut cqe, 44, byte_count);
            put_u64(&mut cqe, 48, timestamp);
            put_u32(&mut cqe, 56, u32::from(opcode) << 24 | queue);
            OPCODE_SENT << 4 | if solicited { SOLICITED } else { 0 }
        }
        CompletionKind::Received(headers) => {
            put_headers(&mut cqe, &headers);
            put_u64(&mut cqe, 48, timestamp);
            OPCODE_RECEIVED << 4
        }
        CompletionKind::ReceivedMessage(message) => {
            put_u64(&mut cqe, 48, timestamp);
            put_u32(&mut cqe, 56, queue);
            put_message(&mut cqe, &message) << 4 | if message.solicited { SOLICITED } else { 0 }
        }
        CompletionKind::SendError { syndrome, vendor, opcode } => {
            put_error(&mut cqe, syndrome, vendor);
            put_u32(&mut cqe, 56, u32::from(opcode) << 24 | queue);
            OPCODE_SEND_ERROR << 4
        }
        CompletionKind::ReceiveError { syndrome, vendor } => {
            put_error(&mut cqe, syndrome, vendor);
            put_u32(&mut cqe, 56, queue);
            OPCODE_RECEIVE_ERROR << 4
        }
    };
    cqe[OP_OWN] = op | u8::from(owner);
    cqe
}

/// The title of a compressed session: the entry of its first frame, with the number of frames for
/// its byte count.
pub(in crate::hca) fn encode_title(first: &Completion, timestamp: u64, owner: bool, count: u32) -> Cqe {
    let mut cqe = encode(first, timestamp, owner);
    put_u32(&mut cqe, 44, count);
    cqe[OP_OWN] |= FORMAT_COMPRESSED;
    cqe
}

fn put_headers(cqe: &mut Cqe, headers: &RxHeaders) {
    cqe[0] = headers.outer;
    put_u16(cqe, 2, headers.wqe_id);
    put_u32(cqe, 12, headers.hash);
    cqe[16] = headers.hash_type;
    put_u16(cqe, 20, headers.checksum);
    cqe[28] = headers.verdicts;
    cqe[29] = headers.types;
    put_u16(cqe, 30, headers.vlan);
    put_u32(cqe, 44, headers.byte_count);
    put_u32(cqe, 56, headers.flow_tag & 0xff_ffff);
}

/// Returns the CQE's opcode.
fn put_message(cqe: &mut Cqe, message: &RxMessage) -> u8 {
    put_u32(cqe, 24, u32::from(message.grh) << 28 | message.source_qp & 0xff_ffff);
    put_u32(cqe, 44, message.byte_count);
    let (opcode, word) = match message.kind {
        RxMessageKind::Send => (OPCODE_RECEIVED, 0),
        RxMessageKind::SendImmediate(word) => (OPCODE_RECEIVED_IMMEDIATE, word),
        RxMessageKind::SendInvalidate(word) => (OPCODE_RECEIVED_INVALIDATE, word),
        RxMessageKind::WriteImmediate(word) => (OPCODE_WRITTEN_IMMEDIATE, word),
    };
    put_u32(cqe, 36, word);
    opcode
}

fn put_error(cqe: &mut Cqe, syndrome: Syndrome, vendor: u8) {
    cqe[54] = vendor;
    cqe[55] = syndrome as u8;
}

fn put_u16(cqe: &mut Cqe, at: usize, value: u16) {
    cqe[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn put_u32(cqe: &mut Cqe, at: usize, value: u32) {
    cqe[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn put_u64(cqe: &mut Cqe, at: usize, value: u64) {
    cqe[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of an entry that are not 0, in words of the ring as a debugger would show them.
    #[track_caller]
    fn check(kind: CompletionKind, owner: bool, expected: &[(usize, &[u8])]) {
        let completion = Completion { user_index: 0x0a_bcde, queue_number: 0x01_2345, wqe_counter: 0xfffe, kind };
        let mut bytes = [0; 64];
        for (at, piece) in expected.iter().chain(&[(33, &[0x0a, 0xbc, 0xde][..]), (60, &[0xff, 0xfe])]) {
            bytes[*at..at + piece.len()].copy_from_slice(piece);
        }
        assert_eq!(encode(&completion, 0x1122_3344_5566_7788, owner), bytes);
    }

    const STAMP: (usize, &[u8]) = (48, &[0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);

    #[test]
    fn a_flushed_receive_says_so_at_55() {
        let kind = CompletionKind::ReceiveError { syndrome: Syndrome::Flushed, vendor: 0xf9 };
        check(kind, true, &[(54, &[0xf9, 0x05]), (56, &[0, 0x01, 0x23, 0x45]), (63, &[0xe1])]);
    }

    #[test]
    fn a_failed_send_keeps_its_opcode() {
        let kind = CompletionKind::SendError { syndrome: Syndrome::LocalProtection, vendor: 0x51, opcode: 0x29 };
        check(kind, false, &[(54, &[0x51, 0x04]), (56, &[0x29, 0x01, 0x23, 0x45]), (63, &[0xd0])]);
    }

    #[test]
    fn a_send_is_done_with_its_opcode_length_and_solicited_bit() {
        let kind = CompletionKind::Sent { opcode: 0x0e, byte_count: 20_054, solicited: true };
        check(kind, true, &[(46, &[0x4e, 0x56]), STAMP, (56, &[0x0e, 0x01, 0x23, 0x45]), (63, &[0x03])]);
    }

    #[test]
    fn a_received_frame_carries_what_was_found_out() {
        let headers = RxHeaders {
            byte_count: FILLER | 3 << 16 | 1500,
            wqe_id: 0x0102,
            hash: 0xdead_beef,
            hash_type: 0x48,
            checksum: 0xc0de,
            outer: 1,
            verdicts: 7,
            types: 0x29,
            vlan: 0x6064,
            flow_tag: 0xff_ba5e,
        };
        let expected: &[(usize, &[u8])] = &[
            (0, &[1, 0, 1, 2]),
            (12, &[0xde, 0xad, 0xbe, 0xef, 0x48]),
            (20, &[0xc0, 0xde]),
            (28, &[7, 0x29, 0x60, 0x64]),
            (44, &[0x80, 0x03, 0x05, 0xdc]),
            STAMP,
            (56, &[0, 0xff, 0xba, 0x5e]),
            (63, &[0x20]),
        ];
        check(CompletionKind::Received(headers), false, expected);
        assert_eq!(strides_consumed(headers.byte_count), 3);
    }

    #[test]
    fn a_datagram_with_an_immediate_names_its_sender() {
        let message = RxMessage {
            byte_count: 1064,
            kind: RxMessageKind::SendImmediate(0x0102_0304),
            solicited: true,
            source_qp: 0x77_8899,
            grh: 2,
        };
        let expected: &[(usize, &[u8])] = &[
            (24, &[0x20, 0x77, 0x88, 0x99]),
            (36, &[1, 2, 3, 4]),
            (44, &[0, 0, 4, 0x28]),
            STAMP,
            (56, &[0, 0x01, 0x23, 0x45]),
            (63, &[0x32]),
        ];
        check(CompletionKind::ReceivedMessage(message), false, expected);
    }

    #[test]
    fn a_title_has_the_count_and_its_format() {
        let kind = CompletionKind::Received(RxHeaders { byte_count: 60, ..RxHeaders::default() });
        let first = Completion { user_index: 1, queue_number: 2, wqe_counter: 3, kind };
        let title = encode_title(&first, 0, true, 17);
        assert_eq!((&title[44..48], title[OP_OWN]), (&[0, 0, 0, 17][..], 0x2d));
    }
}
