//! Requests with a right ICRC that are wrong: what fails a check of the responder (InfiniBand
//! 9.7.4) is refused as an invalid request, and changes nothing.

use super::pair::{MEMORY, Pair, seal};
use crate::roce::*;
use crate::wire::psn::Psn;

/// Bytes of a packet over IPv4, from the beginning of its frame.
const OPCODE: usize = 42;
const PSN: core::ops::Range<usize> = 51..54;
const RETH_LEN: core::ops::Range<usize> = 66..70;

/// Opcodes of RC.
const SEND_FIRST: u8 = 0x00;
const SEND_MIDDLE: u8 = 0x01;
const SEND_LAST: u8 = 0x02;
const SEND_ONLY: u8 = 0x04;
const WRITE_FIRST: u8 = 0x06;
const WRITE_MIDDLE: u8 = 0x07;
const WRITE_LAST: u8 = 0x08;
const FLUSH: u8 = 0x1c;
const ATOMIC_WRITE: u8 = 0x1d;

/// What is posted, of how many bytes.
#[derive(Clone, Copy)]
enum Posted {
    Send(u32),
    Write(u32),
    Read(u32),
}
use Posted::{Read, Send, Write};

/// What becomes of its last packet, of all that arrive.
#[derive(Clone, Copy)]
enum Change {
    Opcode(u8),
    RethLen(u32),
    /// The length that the first packet says of the whole message.
    FirstRethLen(u32),
}
use Change::{FirstRethLen, Opcode, RethLen};

/// The packets that `a` sends of a request.
fn packets(pair: &mut Pair, posted: Posted) -> Vec<Vec<u8>> {
    let remote = pair.b.remote(0);
    let (operation, len) = match posted {
        Send(len) => (SendOperation::Send, len),
        Write(len) => (SendOperation::Write(remote), len),
        Read(len) => (SendOperation::Read(remote), len),
    };
    let sge = pair.a.sge(0, len);
    pair.a.post(1, operation, sge);
    core::iter::from_fn(|| pair.a.frame(pair.now)).collect()
}

/// A pair of which `b` has a receive, and `a` bytes that are not zero.
fn pair(change: impl Fn(&mut QpAttributes)) -> Pair {
    let mut pair = Pair::with(change);
    pair.a.memory.write(0, &[7; 8192]);
    pair.b.post_recv(9, MEMORY / 2, 4096);
    pair
}

/// `b` refuses the last of these packets, fails, and `a` hears of it.
fn expect_refusal(pair: &mut Pair, frames: &[Vec<u8>], why: &str) {
    frames.iter().for_each(|frame| pair.b.receive(pair.now, frame));
    assert_eq!((pair.b.counters().naks_tx, pair.b.state()), ([0, 1, 0, 0], QpState::Err), "{why}");
    assert_eq!(pair.b.device.next_event(), Some(Event::QpRequestError(pair.b.qp)), "{why}");
    pair.run();
    assert_eq!(pair.a.completions()[0], (1, Status::RemoteInvalidRequest), "{why}");
}

fn check(posted: Posted, count: usize, change: Change, why: &str) -> Pair {
    let mut pair = pair(|_| ());
    let mut frames = packets(&mut pair, posted);
    frames.truncate(count);
    let set_len = |frame: &mut Vec<u8>, len: u32| {
        seal(frame, |frame| frame[RETH_LEN].copy_from_slice(&len.to_be_bytes()));
    };
    match change {
        Opcode(opcode) => seal(frames.last_mut().unwrap(), |frame| frame[OPCODE] = opcode),
        RethLen(len) => set_len(frames.last_mut().unwrap(), len),
        FirstRethLen(len) => set_len(&mut frames[0], len),
    }
    expect_refusal(&mut pair, &frames, why);
    pair
}

#[test]
fn packet_that_does_not_follow_the_one_before_is_an_invalid_request() {
    for (posted, count, opcode, why) in [
        (Send(1024), 1, SEND_MIDDLE, "a middle of nothing"),
        (Send(1024), 1, SEND_LAST, "a last of nothing"),
        (Send(1024), 1, WRITE_MIDDLE, "a middle of no WRITE"),
        (Send(1024), 1, WRITE_LAST, "a last of no WRITE"),
        (Send(2048), 2, SEND_FIRST, "a first within a SEND"),
        (Send(2048), 2, SEND_ONLY, "an only within a SEND"),
        (Send(2048), 2, WRITE_MIDDLE, "a middle of a WRITE within a SEND"),
        (Send(2048), 2, WRITE_LAST, "a last of a WRITE within a SEND"),
        (Send(2048), 2, WRITE_FIRST, "a WRITE within a SEND"),
        (Write(2048), 2, SEND_LAST, "a last of a SEND within a WRITE"),
        (Write(2048), 2, SEND_MIDDLE, "a middle of a SEND within a WRITE"),
        (Write(2048), 2, SEND_ONLY, "a SEND within a WRITE"),
        (Write(2048), 2, WRITE_FIRST, "a first within a WRITE"),
        (Write(4), 1, FLUSH, "FLUSH, which is not there"),
        (Write(8), 1, ATOMIC_WRITE, "ATOMIC WRITE, which is not there"),
    ] {
        let mut pair = check(posted, count, Opcode(opcode), why);
        // The receive that the SEND has ends with it; others are flushed.
        let has_begun = matches!(posted, Send(2048));
        let is_new_send = matches!(opcode, SEND_FIRST | SEND_ONLY);
        let status = if has_begun || is_new_send { Status::LocalQpOperation } else { Status::Flushed };
        assert_eq!(pair.b.completions(), [(9, status)], "{why}");
    }
}

#[test]
fn payload_that_is_too_short_or_too_long_for_its_place_is_an_invalid_request() {
    for (posted, count, opcode, why) in [
        (Send(1000), 1, SEND_FIRST, "a first that is short"),
        (Send(2024), 2, SEND_MIDDLE, "a middle that is short"),
        (Write(1000), 1, WRITE_FIRST, "a first of a WRITE that is short"),
        (Write(2024), 2, WRITE_MIDDLE, "a middle of a WRITE that is short"),
    ] {
        check(posted, count, Opcode(opcode), why);
    }
    for posted in [Send(2048), Write(2048)] {
        let mut pair = pair(|_| ());
        let mut frames = packets(&mut pair, posted);
        let (psn, opcode) = (frames[1][PSN].to_vec(), frames[1][OPCODE]);
        frames[1] = packets(&mut pair, Send(0)).remove(0);
        seal(&mut frames[1], |frame| {
            frame[PSN].copy_from_slice(&psn);
            frame[OPCODE] = opcode;
        });
        expect_refusal(&mut pair, &frames, "a last without a byte");
    }
    // The sender believes in longer packets.
    let mut longer = pair(|attributes| {
        let is_b = attributes.sq_psn == Some(Psn::new(0xff_fff2));
        attributes.mtu = Some(if is_b { Mtu::B512 } else { Mtu::B1024 });
    });
    let frames = packets(&mut longer, Send(1000));
    expect_refusal(&mut longer, &frames, "an only that is too long");
}

#[test]
fn length_that_is_not_that_of_its_packets_or_of_any_message_is_an_invalid_request() {
    const TOO_LONG: u32 = (1 << 31) + 1;
    for (posted, count, change, why) in [
        (Write(8), 1, RethLen(12), "fewer bytes than it says"),
        (Write(8), 1, RethLen(4), "more bytes than it says"),
        (Write(2048), 2, FirstRethLen(2052), "fewer in two packets"),
        (Write(2048), 2, FirstRethLen(2044), "more in two packets"),
        (Write(2048), 1, RethLen(1024), "a first that is all"),
        (Write(2048), 1, RethLen(TOO_LONG), "a WRITE longer than any"),
        (Write(8), 1, RethLen(u32::MAX), "an only WRITE longer than any"),
        (Read(8), 1, RethLen(TOO_LONG), "a READ longer than any"),
    ] {
        let pair = check(posted, count, change, why);
        let written = if count == 2 { 1024 } else { 0 };
        assert!(pair.b.bytes(written, 4096).iter().all(|byte| *byte == 0), "{why}");
    }
}

#[test]
fn request_whose_timeout_is_none_waits_for_ever() {
    let mut pair = pair(|attributes| attributes.timeout = Some(0));
    assert_eq!(packets(&mut pair, Write(8)).len(), 1);
    assert!(!pair.tick(), "no timer runs");
    assert_eq!((pair.a.completions(), pair.a.state()), (vec![], QpState::Rts));
}
