//! Segments as the machine sees them: received ones, parsed from header and options once, and those
//! to be sent.

use super::seq::Seq;
use crate::proto::Flow;
use crate::wire::tcp::{TcpFlags, TcpOption, TcpSegment, Timestamps};

/// The most blocks that fit the options of a segment (RFC 2018 3); with timestamps three.
pub const SACK_BLOCKS_MAX: usize = 4;

/// A range of sequence numbers: from `left` up to `right`, which is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First number.
    pub left: Seq,
    /// The number behind the last.
    pub right: Seq,
}

impl Range {
    /// Numbers in the range.
    #[inline]
    pub fn len(self) -> u32 {
        self.right - self.left
    }

    /// Whether no number is in it.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.right.is_at_most(self.left)
    }
}

/// The fields of a received segment; its payload travels beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK; counts only with [`TcpFlags::ACK`].
    pub ack: Seq,
    /// SEG.WND as it was sent: not yet scaled.
    pub wnd: u16,
    /// Control bits.
    pub flags: TcpFlags,
    /// Bytes of the payload.
    pub len: u32,
    /// Options of every segment.
    pub timestamps: Option<Timestamps>,
    /// The SACK option: the number of valid `sacks`.
    pub sack_count: u8,
    /// Blocks as they arrived: untrusted until compared with sent data.
    pub sacks: [Range; SACK_BLOCKS_MAX],
    /// Options that count in a SYN only.
    pub syn: SynOptions,
    /// The ECN field of the IPv4 header marks congestion experienced (RFC 3168 5).
    pub ce: bool,
}

/// The fields of every segment of a connection; nearly all have no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictedFields {
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK.
    pub ack: Seq,
    /// SEG.WND as it was sent: not yet scaled.
    pub wnd: u16,
    /// Bytes of the payload.
    pub len: u32,
    /// Options of every segment.
    pub timestamps: Option<Timestamps>,
}

impl PredictedFields {
    /// The fields of a segment without others: no flag but ACK, and PSH, which is ignored; no
    /// option but timestamps in their usual position. `None` for all others.
    #[inline(always)]
    pub fn of(parsed: &TcpSegment<'_>) -> Option<Self> {
        let header = parsed.header;
        // First, because a SYN of a flood has the options of a SYN as well.
        if !is_plain(header.flags()) {
            return None;
        }
        let timestamps = match parsed.options {
            [] => None,
            _ => Some(parsed.aligned_timestamps()?),
        };
        Some(Self {
            seq: Seq(header.seq()),
            ack: Seq(header.ack()),
            wnd: header.window(),
            len: parsed.payload.len() as u32,
            timestamps,
        })
    }
}

/// Whether the flags mean an acknowledgment and have no other effect.
#[inline]
fn is_plain(flags: TcpFlags) -> bool {
    flags.0 | TcpFlags::PSH.0 == (TcpFlags::ACK | TcpFlags::PSH).0
}

/// Options of a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynOptions {
    /// Largest payload that the sender accepts.
    pub mss: Option<u16>,
    /// Shift of the sender's windows, 14 at most (RFC 7323 2.3).
    pub window_scale: Option<u8>,
    /// The sender understands SACK.
    pub sack_permitted: bool,
}

impl Segment {
    /// The relevant fields of a parsed segment. A broken option list counts up to the break.
    #[inline]
    pub fn new(parsed: &TcpSegment<'_>, ce: bool) -> Self {
        let header = parsed.header;
        let mut segment = Self {
            seq: Seq(header.seq()),
            ack: Seq(header.ack()),
            wnd: header.window(),
            flags: header.flags(),
            len: parsed.payload.len() as u32,
            timestamps: None,
            sack_count: 0,
            sacks: [Range::default(); SACK_BLOCKS_MAX],
            syn: SynOptions::default(),
            ce,
        };
        if !parsed.options.is_empty() {
            segment.timestamps = parsed.aligned_timestamps();
            if segment.timestamps.is_none() {
                segment.read_options(parsed);
            }
        }
        segment
    }

    #[inline(never)]
    fn read_options(&mut self, parsed: &TcpSegment<'_>) {
        for option in parsed.options().map_while(Result::ok) {
            match option {
                TcpOption::MaximumSegmentSize(mss) => self.syn.mss = Some(mss),
                TcpOption::WindowScale(shift) => self.syn.window_scale = Some(shift.min(14)),
                TcpOption::SackPermitted => self.syn.sack_permitted = true,
                TcpOption::Timestamps(timestamps) => self.timestamps = Some(timestamps),
                TcpOption::Sack(blocks) => {
                    for (range, block) in self.sacks.iter_mut().zip(blocks) {
                        *range = Range { left: Seq(block.left()), right: Seq(block.right()) };
                    }
                    self.sack_count = blocks.len().min(SACK_BLOCKS_MAX) as u8;
                }
                TcpOption::Unknown { .. } => (),
            }
        }
    }

    /// The fields that every segment has.
    #[inline]
    pub fn predicted_fields(&self) -> PredictedFields {
        let Self { seq, ack, wnd, len, timestamps, .. } = *self;
        PredictedFields { seq, ack, wnd, len, timestamps }
    }

    /// Whether it has no others. The congestion mark of the IPv4 header counts only where ECN was
    /// negotiated.
    #[inline]
    pub fn is_plain(&self) -> bool {
        is_plain(self.flags) && self.sack_count == 0
    }

    /// SEG.LEN: the sequence numbers that the segment takes, SYN and FIN included.
    #[inline]
    pub fn seq_len(&self) -> u32 {
        self.len + u32::from(self.has(TcpFlags::SYN)) + u32::from(self.has(TcpFlags::FIN))
    }

    /// The number behind the segment.
    #[inline]
    pub fn end(&self) -> Seq {
        self.seq + self.seq_len()
    }

    /// The segment without its SYN: its data, one number on.
    pub(super) fn without_syn(&self) -> Self {
        Self { seq: self.seq + 1, flags: TcpFlags(self.flags.0 & !TcpFlags::SYN.0), ..*self }
    }

    /// Whether all of `flags` are set.
    #[inline]
    pub fn has(&self, flags: TcpFlags) -> bool {
        self.flags.contains(flags)
    }

    /// The SACK blocks.
    #[inline]
    pub fn sacks(&self) -> &[Range] {
        &self.sacks[..usize::from(self.sack_count)]
    }
}

/// A segment that is to leave; its payload travels beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Its flow: `local` sends to `remote`.
    pub flow: Flow,
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK.
    pub ack: Seq,
    /// Control bits.
    pub flags: TcpFlags,
    /// SEG.WND as it is sent: scaled.
    pub wnd: u16,
    /// The timestamps option.
    pub timestamps: Option<Timestamps>,
    /// The number of `sacks` to send.
    pub sack_count: u8,
    /// The SACK option.
    pub sacks: [Range; SACK_BLOCKS_MAX],
    /// Options of a SYN.
    pub syn: Option<SynOptions>,
    /// Mark the packet as one of a transport that understands ECN: ECT(0) (RFC 3168 6.1).
    pub ect: bool,
    /// TTL.
    pub ttl: u8,
    /// Type of service; the ECN bits are ours.
    pub tos: u8,
    /// Bytes of a segment where the payload is longer than one, for the device to cut it.
    pub segment_len: u16,
}

impl Outgoing {
    /// A segment without payload or options.
    #[inline]
    pub fn bare(flow: Flow, seq: Seq, ack: Seq, flags: TcpFlags) -> Self {
        Self {
            flow,
            seq,
            ack,
            flags,
            wnd: 0,
            timestamps: None,
            sack_count: 0,
            sacks: [Range::default(); SACK_BLOCKS_MAX],
            syn: None,
            ect: false,
            ttl: 64,
            tos: 0,
            segment_len: 0,
        }
    }

    /// The SACK blocks.
    #[inline]
    pub fn sacks(&self) -> &[Range] {
        &self.sacks[..usize::from(self.sack_count)]
    }
}
