//! Reads send WQEs as docs/mlx5.md (2.2 to 2.7) describes them, and refuses all others.
//! It shares nothing with the encoder: no constant, no type, no helper.

#![allow(clippy::unwrap_used)] // a panic here is the report

use super::plain_tx::PlainSq;

/// The limits of a device.
#[derive(Clone, Debug)]
pub(crate) struct Accepts {
    pub(crate) number: u32,
    pub(crate) lkey: u32,
    pub(crate) blocks: u32,
    pub(crate) inline_len_min: usize,
    pub(crate) frame_len_max: usize,
    pub(crate) multi_packet: bool,
    pub(crate) checksums: bool,
    pub(crate) vlan_insert: bool,
    pub(crate) segmentation_len_max: usize,
    pub(crate) wqe_units_max: usize,
}

/// A decoded WQE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wqe {
    /// Blocks that it fills.
    pub(crate) blocks: u16,
    /// Units, by the control segment.
    pub(crate) ds: usize,
    /// Whether it completes with a CQE.
    pub(crate) is_signaled: bool,
    /// Frames that leave, with their tags.
    pub(crate) sends: Vec<Send>,
}

/// A frame that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Send {
    /// IPv4 header checksum, UDP or TCP checksum.
    pub(crate) checksums: (bool, bool),
    /// The whole frame, or the header that all segments get.
    pub(crate) bytes: Vec<u8>,
    /// The payload to be segmented, and the segment length.
    pub(crate) cut: Option<(Vec<u8>, usize)>,
    /// Whether the device fetched some of the bytes.
    pub(crate) is_fetched: bool,
}

/// Resolves a pointer: the bytes at an address, if they are registered.
pub(crate) type Fetch<'a> = dyn Fn(u64, usize) -> Option<Vec<u8>> + 'a;

macro_rules! check {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err(format!($($why)+));
        }
    };
}

/// Decodes the WQE at block `idx` of the ring, or returns the error in it.
pub(crate) fn decode(sq: &PlainSq, idx: u16, accepts: &Accepts, fetch: &Fetch<'_>) -> Result<Wqe, String> {
    let ds = usize::from(sq.block(idx)[7] & 0x3f);
    check!(ds >= 1, "ds 0 means 64, which nobody writes");
    check!(ds <= accepts.wqe_units_max, "a WQE of {ds} units, where the device takes {}", accepts.wqe_units_max);
    let bytes: Vec<u8> = (0..ds.div_ceil(4)).flat_map(|block| sq.block(idx.wrapping_add(block as u16))).collect();
    let (bytes, blocks) = (&bytes[..ds * 16], ds.div_ceil(4) as u16);
    check!(u32::from(blocks) <= accepts.blocks, "longer than the ring: {blocks} blocks");
    let (control, rest) = bytes.split_at(16);
    let opcode = u32_at(control, 0);
    check!(opcode >> 24 == 0, "opmod {:#x}", opcode >> 24);
    check!((opcode >> 8) as u16 == idx, "index {} at {idx}", (opcode >> 8) as u16);
    check!(u32_at(control, 4) == accepts.number << 8 | ds as u32, "number or ds {:#x}", u32_at(control, 4));
    check!(control[8..11] == [0; 3], "signature or reserved bytes {:?}", &control[8..11]);
    check!(matches!(control[11], 0 | 8), "fm_ce_se {:#x}", control[11]);
    check!(control[12..] == [0; 4], "imm {:?}", &control[12..]);
    let sends = match opcode & 0xff {
        0x00 => {
            check!(ds == 1, "a NOP of {ds} units");
            vec![]
        }
        0x0a => vec![send(rest, accepts, fetch)?],
        0x0e => vec![segmented(rest, accepts, fetch)?],
        0x29 => multi(rest, accepts, fetch)?,
        other => return Err(format!("opcode {other:#x}")),
    };
    Ok(Wqe { blocks, ds, is_signaled: control[11] == 8, sends })
}

/// A decoded Ethernet segment.
struct Ethernet {
    checksums: (bool, bool),
    mss: usize,
    tag: Option<u16>,
    inline: Vec<u8>,
}

fn ethernet<'a>(bytes: &'a [u8], accepts: &Accepts) -> Result<(Ethernet, &'a [u8]), String> {
    check!(bytes.len() >= 16, "no Ethernet segment");
    check!(bytes[0..4] == [0; 4] && bytes[5] == 0, "SW-parser offsets or flags");
    let checksums = (bytes[4] & 0x40 != 0, bytes[4] & 0x80 != 0);
    check!(bytes[4] & 0x3f == 0, "inner checksums {:#x}", bytes[4]);
    check!(accepts.checksums || bytes[4] == 0, "checksums of a device that has none");
    let mss = usize::from(u16_at(bytes, 6));
    check!(bytes[8..12] == [0; 4], "flow metadata");
    let field = u16_at(bytes, 12);
    if field & 0x8000 != 0 {
        check!(field == 0x8000, "insert type {field:#x}");
        check!(accepts.vlan_insert && accepts.inline_len_min == 0, "a tag that the device does not insert");
        let tag = Some(u16_at(bytes, 14));
        return Ok((Ethernet { checksums, mss, tag, inline: vec![] }, &bytes[16..]));
    }
    let inline_len = usize::from(field);
    let segment_len = if inline_len <= 2 { 16 } else { (14 + inline_len).next_multiple_of(16) };
    check!(bytes.len() >= segment_len, "{inline_len} bytes inline do not fit {} bytes", bytes.len());
    let inline = bytes[14..14 + inline_len].to_vec();
    check!(bytes[14 + inline_len..segment_len].iter().all(|&byte| byte == 0), "padding of the inline bytes");
    Ok((Ethernet { checksums, mss, tag: None, inline }, &bytes[segment_len..]))
}

/// The bytes of each data segment, and whether they were fetched.
fn data(mut bytes: &[u8], accepts: &Accepts, fetch: &Fetch<'_>) -> Result<Vec<(Vec<u8>, bool)>, String> {
    let mut segments = Vec::new();
    while !bytes.is_empty() {
        let count = u32_at(bytes, 0);
        if count & 0x8000_0000 != 0 {
            let len = (count & 0x7fff_ffff) as usize;
            let padded = (4 + len).next_multiple_of(16);
            check!(len > 0 && padded <= bytes.len(), "an inline segment of {len} bytes");
            segments.push((bytes[4..4 + len].to_vec(), false));
            bytes = &bytes[padded..];
            continue;
        }
        check!(count > 0, "an empty pointer segment means 2 GiB");
        check!(u32_at(bytes, 4) == accepts.lkey, "lkey {:#x}", u32_at(bytes, 4));
        let addr = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
        let fetched = fetch(addr, count as usize);
        segments.push((fetched.ok_or_else(|| format!("{count} bytes at {addr:#x} are not registered"))?, true));
        bytes = &bytes[16..];
    }
    Ok(segments)
}

fn send(bytes: &[u8], accepts: &Accepts, fetch: &Fetch<'_>) -> Result<Send, String> {
    let (ethernet, rest) = ethernet(bytes, accepts)?;
    check!(ethernet.mss == 0, "mss {} without segmentation", ethernet.mss);
    check!(ethernet.inline.len() >= accepts.inline_len_min, "only {} bytes inline", ethernet.inline.len());
    let segments = data(rest, accepts, fetch)?;
    let is_fetched = segments.iter().any(|(_, is_fetched)| *is_fetched);
    let mut frame = ethernet.inline;
    segments.into_iter().for_each(|(bytes, _)| frame.extend(bytes));
    tag(&mut frame, ethernet.tag)?;
    check!((14..=accepts.frame_len_max).contains(&frame.len()), "a frame of {} bytes", frame.len());
    Ok(Send { checksums: ethernet.checksums, bytes: frame, cut: None, is_fetched })
}

fn segmented(bytes: &[u8], accepts: &Accepts, fetch: &Fetch<'_>) -> Result<Send, String> {
    let (ethernet, rest) = ethernet(bytes, accepts)?;
    check!(ethernet.mss > 0, "segmentation without mss");
    check!(ethernet.tag.is_none(), "segmentation and a tag to insert");
    let header_len = ethernet.inline.len();
    let header_lens = 14.max(accepts.inline_len_min)..=256;
    check!(header_lens.contains(&header_len), "a header of {header_len} bytes");
    check!(header_len + ethernet.mss <= accepts.frame_len_max, "segments of {} bytes", header_len + ethernet.mss);
    let payload: Vec<u8> = data(rest, accepts, fetch)?.into_iter().flat_map(|(bytes, _)| bytes).collect();
    let payload_lens = 1..=accepts.segmentation_len_max;
    check!(payload_lens.contains(&payload.len()), "a payload of {} bytes", payload.len());
    let cut = Some((payload, ethernet.mss));
    Ok(Send { checksums: ethernet.checksums, bytes: ethernet.inline, cut, is_fetched: true })
}

fn multi(bytes: &[u8], accepts: &Accepts, fetch: &Fetch<'_>) -> Result<Vec<Send>, String> {
    check!(accepts.multi_packet, "a multi-packet WQE for a device that has none");
    let (ethernet, rest) = ethernet(bytes, accepts)?;
    check!(ethernet.mss == 0 && ethernet.tag.is_none() && ethernet.inline.is_empty(), "not common to many frames");
    check!(accepts.inline_len_min == 0, "a multi-packet WQE has no inline header");
    let segments = data(rest, accepts, fetch)?;
    check!((1..=61).contains(&segments.len()), "{} frames", segments.len());
    let mut sends = Vec::new();
    for (bytes, is_fetched) in segments {
        check!((14..=accepts.frame_len_max).contains(&bytes.len()), "a frame of {} bytes", bytes.len());
        sends.push(Send { checksums: ethernet.checksums, bytes, cut: None, is_fetched });
    }
    Ok(sends)
}

/// Inserts a tag as the device does.
fn tag(frame: &mut Vec<u8>, tag: Option<u16>) -> Result<(), String> {
    if let Some(tci) = tag {
        check!(frame.len() >= 14, "a tag for {} bytes", frame.len());
        frame.splice(12..12, [[0x81, 0x00], tci.to_be_bytes()].concat());
    }
    Ok(())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}
