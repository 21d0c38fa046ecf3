//! Segments as the machine sees them: what came, taken out of its header and options once, and what
//! is to leave.

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

/// What a received segment says; its payload travels beside it.
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
    /// The SACK option: so many of `sacks` count.
    pub sack_count: u8,
    /// Blocks as they came: hostile until compared with what was sent.
    pub sacks: [Range; SACK_BLOCKS_MAX],
    /// Options that count in a SYN only.
    pub syn: SynOptions,
    /// The ECN field of the IPv4 header says that congestion was experienced (RFC 3168 5).
    pub ce: bool,
}

/// What every segment of a connection says, and nearly all of them nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
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

impl Plain {
    /// What a segment says that says nothing else: no flag but ACK, and PSH, which means nothing to
    /// us; no option but timestamps where they usually stand. `None` for all others.
    #[inline(always)]
    pub fn of(parsed: &TcpSegment<'_>) -> Option<Self> {
        let header = parsed.header;
        // First, as a SYN of a flood has the options of a SYN as well.
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

/// Whether the flags say that a segment acknowledges, and nothing else that counts.
#[inline]
fn is_plain(flags: TcpFlags) -> bool {
    flags.0 | TcpFlags::PSH.0 == (TcpFlags::ACK | TcpFlags::PSH).0
}

/// Options of a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynOptions {
    /// Largest payload that the sender takes.
    pub mss: Option<u16>,
    /// Shift of the sender's windows, 14 at most (RFC 7323 2.3).
    pub window_scale: Option<u8>,
    /// The sender understands SACK.
    pub sack_permitted: bool,
}

impl Segment {
    /// Takes what counts out of a parsed segment. An option list that is broken counts up to where
    /// it breaks.
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

    /// What it says as every segment does.
    #[inline]
    pub fn plain(&self) -> Plain {
        let Self { seq, ack, wnd, len, timestamps, .. } = *self;
        Plain { seq, ack, wnd, len, timestamps }
    }

    /// Whether it says nothing else. What the IPv4 header says of congestion counts only for who
    /// has agreed on ECN.
    #[inline]
    pub fn is_plain(&self) -> bool {
        is_plain(self.flags) && self.sack_count == 0
    }

    /// SEG.LEN: the numbers that the segment takes, SYN and FIN included.
    #[inline]
    pub fn seq_len(&self) -> u32 {
        self.len + u32::from(self.has(TcpFlags::SYN)) + u32::from(self.has(TcpFlags::FIN))
    }

    /// The number behind the segment.
    #[inline]
    pub fn end(&self) -> Seq {
        self.seq + self.seq_len()
    }

    /// The segment without its SYN: what comes behind it, one number on.
    pub(super) fn behind_syn(&self) -> Self {
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
    /// Whose it is: `local` sends to `remote`.
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
    /// So many of `sacks` are sent.
    pub sack_count: u8,
    /// The SACK option.
    pub sacks: [Range; SACK_BLOCKS_MAX],
    /// Options of a SYN.
    pub syn: Option<SynOptions>,
    /// Mark the packet as one of a transport that understands ECN: ECT(0) (RFC 3168 6.1).
    pub ect: bool,
    /// Hops.
    pub ttl: u8,
    /// Type of service; the ECN bits are ours.
    pub tos: u8,
    /// Bytes of a segment where the payload is longer than one, and the device is to cut it.
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
