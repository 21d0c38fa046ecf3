//! Frames between a primary and its standby: a length of four bytes, a kind, and the content.

use std::net::Ipv4Addr;

/// The longest content: a chunk of records.
pub(super) const CONTENT_MAX: usize = 64 * 1_024;
const HEAD: usize = 5;

/// What a frame says. Numbers are little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// To the primary: who follows, and what it has: the journal's id and its end. Without a
    /// journal the id is 0, and `end` the room for one, which an older primary ignores and an older
    /// standby leaves at 0.
    Follow { standby: u64, journal: u64, end: u64 },
    /// To a standby that said its room: the primary's journal has so many bytes, which are more.
    TooSmall { needed: u64 },
    /// To the standby: the journal's file header.
    Header(&'a [u8]),
    /// To the standby: records.
    Records(&'a [u8]),
    /// To the standby: do not take over for `lease_ns`.
    Renew { asked_ns: u64, lease_ns: u64 },
    /// To the primary: promised, with the end of the copy.
    Grant { asked_ns: u64, end: u64 },
    /// To the primary: the end of the copy.
    End { end: u64 },
    /// To the standby: take over now.
    HandOver,
    /// To either: the sender ends, and nobody takes over.
    Leave,
    /// To a primary that writes into the copy itself: where, and the queue pair to do it by.
    Memory { address: u64, rkey: u32, len: u64, end: RdmaEnd, last: LastRecord },
    /// To the standby: the queue pair that writes.
    Queue(RdmaEnd),
    /// To the primary: the standby's queue pair answers.
    Ready,
    /// To the standby: the primary lives, and asks for nothing.
    Alive,
}

/// The last record of a copy: its sum tells one history of a journal from another. Zeros where
/// there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LastRecord {
    /// Its position.
    pub(super) start: u64,
    pub(super) sum: u32,
}

/// A queue pair of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RdmaEnd {
    pub(super) qpn: u32,
    pub(super) psn: u32,
    /// The largest payload of a packet, as its code.
    pub(super) mtu: u8,
    pub(super) ip: Ipv4Addr,
}

impl RdmaEnd {
    fn words(self) -> [u64; 2] {
        let Self { qpn, psn, mtu, ip } = self;
        [u64::from(qpn) << 32 | u64::from(psn), u64::from(mtu) << 32 | u64::from(ip.to_bits())]
    }

    fn of([numbers, place]: [u64; 2]) -> Self {
        let (psn, ip) = (numbers as u32, Ipv4Addr::from_bits(place as u32));
        Self { qpn: (numbers >> 32) as u32, psn, mtu: (place >> 32) as u8, ip }
    }
}

impl<'a> Frame<'a> {
    /// Appends the frame to `out`.
    pub(super) fn emit(self, out: &mut Vec<u8>) {
        let mut end_words = [0; 7];
        let (kind, numbers, bytes): (u8, &[u64], &[u8]) = match self {
            Self::Follow { standby, journal, end } => (b'F', &[standby, journal, end], &[]),
            Self::TooSmall { needed } => (b'S', &[needed], &[]),
            Self::Header(bytes) => (b'H', &[], bytes),
            Self::Records(bytes) => (b'J', &[], bytes),
            Self::Renew { asked_ns, lease_ns } => (b'R', &[asked_ns, lease_ns], &[]),
            Self::Grant { asked_ns, end } => (b'G', &[asked_ns, end], &[]),
            Self::End { end } => (b'A', &[end], &[]),
            Self::HandOver => (b'T', &[], &[]),
            Self::Leave => (b'L', &[], &[]),
            Self::Memory { address, rkey, len, end, last } => {
                let [numbers, place] = end.words();
                end_words = [address, rkey.into(), len, numbers, place, last.start, last.sum.into()];
                (b'M', &end_words, &[])
            }
            Self::Queue(end) => {
                end_words[..2].copy_from_slice(&end.words());
                (b'Q', &end_words[..2], &[])
            }
            Self::Ready => (b'K', &[], &[]),
            Self::Alive => (b'V', &[], &[]),
        };
        let len = numbers.len() * 8 + bytes.len();
        out.extend_from_slice(&(len as u32).to_le_bytes());
        out.push(kind);
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        out.extend_from_slice(bytes);
    }

    /// The first frame of `bytes` and its length; `None` where it is not whole.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, String> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
        let [len @ .., kind] = *head;
        let len = u32::from_le_bytes(len) as usize;
        if len > CONTENT_MAX {
            return Err(format!("the peer of the standby link sent a frame of {len} bytes: is it order-gateway?"));
        }
        let Some(content) = rest.get(..len) else { return Ok(None) };
        let number = |idx: usize| {
            let bytes = content.get(idx * 8..).and_then(|rest| rest.first_chunk());
            bytes.map(|bytes| u64::from_le_bytes(*bytes))
        };
        let numbers = (number(0), number(1), number(2));
        let frame = match (kind, len, numbers) {
            (b'F', 24, (Some(standby), Some(journal), Some(end))) => Self::Follow { standby, journal, end },
            (b'S', 8, (Some(needed), ..)) => Self::TooSmall { needed },
            (b'H', ..) => Self::Header(content),
            (b'J', ..) => Self::Records(content),
            (b'R', 16, (Some(asked_ns), Some(lease_ns), _)) => Self::Renew { asked_ns, lease_ns },
            (b'G', 16, (Some(asked_ns), Some(end), _)) => Self::Grant { asked_ns, end },
            (b'A', 8, (Some(end), ..)) => Self::End { end },
            (b'T', 0, _) => Self::HandOver,
            (b'L', 0, _) => Self::Leave,
            (b'M', 56, (Some(address), Some(rkey), Some(len))) => {
                let end = RdmaEnd::of([number(3).unwrap_or(0), number(4).unwrap_or(0)]);
                let last = LastRecord { start: number(5).unwrap_or(0), sum: number(6).unwrap_or(0) as u32 };
                Self::Memory { address, rkey: rkey as u32, len, end, last }
            }
            (b'Q', 16, (Some(numbers), Some(place), _)) => Self::Queue(RdmaEnd::of([numbers, place])),
            (b'K', 0, _) => Self::Ready,
            (b'V', 0, _) => Self::Alive,
            (b'C' | b'P', 32, _) => {
                return Err("it asks for a secret: give both ends the same `secret_file`".to_owned());
            }
            _ => return Err(format!("the standby link has no frame {kind:#04x} of {len} bytes")),
        };
        Ok(Some((frame, HEAD + len)))
    }
}

/// Why a copy of `room` bytes cannot follow a journal of `needed` bytes: it would be full when that
/// one is not.
pub(super) fn too_small(room: u64, needed: u64) -> String {
    format!(
        "the standby's journal has room for {room} bytes, and the primary's has {needed}: give the standby an empty file \
         of the same `megabytes`"
    )
}

/// Takes each whole frame from the front of `pending`.
pub(super) fn take_frames(
    pending: &mut Vec<u8>,
    mut take: impl FnMut(Frame<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let mut at = 0;
    while let Some((frame, len)) = Frame::parse(&pending[at..])? {
        take(frame)?;
        at += len;
    }
    pending.drain(..at);
    Ok(())
}
