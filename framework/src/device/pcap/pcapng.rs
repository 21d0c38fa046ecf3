//! pcapng: a chain of blocks that carry their length at both ends (draft-ietf-opsawg-pcapng).
//!
//! ```text
//! type | length | body, padded to 4 | length again
//! ```
//! A section header block sets the byte order and clears the interfaces; an interface description
//! block adds one with its link type and clock; packet blocks name their interface. Blocks of other
//! types are skipped, whatever their length, without being held in memory. Each iteration consumes
//! at least 12 bytes, so no file causes an endless loop.

use std::io::Read;

use super::input::{ByteOrder, Input, WINDOW_LEN};
use super::reader::{ETHERNET, Found, Stop};
use super::{Cut, Problem, RECORD_LEN_MAX};

/// A palindrome, so that it reads the same before the byte order is known.
pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const OPTION_END: u16 = 0;
const OPTION_IF_TSRESOL: u16 = 9;
const OPTION_IF_TSOFFSET: u16 = 14;

/// The length at both ends and the type.
const BLOCK_LEN_MIN: u32 = 12;
const TRAILER_LEN: usize = 4;
/// Section header: block header 8, magic 4, version 4, section length 8, trailer 4.
const SECTION_LEN_MIN: u32 = 28;

/// A recorder on "every interface of the machine" has some dozens; a file with more than this aims
/// at our memory.
const INTERFACE_COUNT_MAX: usize = 4096;

pub(super) struct PcapNg {
    order: ByteOrder,
    interfaces: Vec<Interface>,
    /// The timestamp of the last packet that had one.
    last_ns: u64,
}

#[derive(Clone, Copy)]
struct Interface {
    link_type: u16,
    /// Maximum bytes recorded of a packet; 0 for all of them.
    snaplen: u32,
    ticks: Ticks,
    /// if_tsoffset in nanoseconds.
    offset_ns: i64,
}

/// The unit of an interface's clock: the two encodings of if_tsresol.
#[derive(Clone, Copy)]
enum Ticks {
    /// A power of ten up to 10^-9: nanoseconds per tick.
    Longer(u64),
    /// A power of ten below 10^-9: ticks per nanosecond.
    Shorter(u64),
    /// A power of two: fraction bits of a second.
    Binary(u32),
}

impl PcapNg {
    pub(super) fn new() -> Self {
        Self { order: ByteOrder::Little, interfaces: Vec::new(), last_ns: 0 }
    }

    /// Checks the section header at the start of the file and skips it.
    pub(super) fn start<R: Read>(&mut self, input: &mut Input<R>) -> Result<(), Stop> {
        match self.open_section(input) {
            Err(Stop::Cut(_)) => Err(Stop::Cut(Cut::FileHeader)),
            other => other,
        }
    }

    /// Finds the next packet; `None` at the end of the file.
    #[inline]
    pub(super) fn next<R: Read>(&mut self, input: &mut Input<R>) -> Result<Option<Found>, Stop> {
        loop {
            input.mark();
            if !input.want(8)? {
                return if input.is_empty() { Ok(None) } else { Err(Stop::Cut(Cut::BlockHeader)) };
            }
            let header = input.window();
            let (kind, len) = (self.order.u32(header, 0), self.order.u32(header, 4));
            match kind {
                SECTION_HEADER => self.open_section(input)?,
                INTERFACE_DESCRIPTION => self.add_interface(input, len)?,
                ENHANCED_PACKET | OBSOLETE_PACKET => return self.packet(input, kind, len).map(Some),
                SIMPLE_PACKET => return self.simple_packet(input, len).map(Some),
                _ => self.skip_block(input, len, 0)?,
            }
        }
    }

    /// An enhanced packet block, or the packet block that it replaced: they differ in the width of
    /// the interface id.
    ///
    /// ```text
    /// type | length | interface | time high | time low | captured | original | packet … options | length
    /// ```
    #[inline]
    fn packet<R: Read>(&mut self, input: &mut Input<R>, kind: u32, len: u32) -> Result<Found, Stop> {
        const HEADER_LEN: usize = 28;
        self.want_block(input, len, (HEADER_LEN + TRAILER_LEN) as u32)?;
        let (order, block) = (self.order, &input.window()[..len as usize]);
        let id = match kind {
            OBSOLETE_PACKET => u32::from(order.u16(block, 8)),
            _ => order.u32(block, 8),
        };
        let interface = self.ethernet_interface(id)?;
        let ticks = u64::from(order.u32(block, 12)) << 32 | u64::from(order.u32(block, 16));
        let (captured, original_len) = (order.u32(block, 20), order.u32(block, 24));
        check_packet_len(captured, len - (HEADER_LEN + TRAILER_LEN) as u32)?;
        self.last_ns = interface.nanoseconds(ticks);
        let rest = len as usize - HEADER_LEN - captured as usize;
        Ok(Found { timestamp_ns: self.last_ns, original_len, range: input.take(HEADER_LEN, captured as usize, rest) })
    }

    /// A simple packet block: a packet of interface 0, truncated to its snaplen, without a
    /// timestamp.
    fn simple_packet<R: Read>(&mut self, input: &mut Input<R>, len: u32) -> Result<Found, Stop> {
        const HEADER_LEN: usize = 12;
        self.want_block(input, len, (HEADER_LEN + TRAILER_LEN) as u32)?;
        let interface = self.ethernet_interface(0)?;
        let original_len = self.order.u32(input.window(), 8);
        let captured = match interface.snaplen {
            0 => original_len,
            snaplen => original_len.min(snaplen),
        };
        check_packet_len(captured, len - (HEADER_LEN + TRAILER_LEN) as u32)?;
        let rest = len as usize - HEADER_LEN - captured as usize;
        Ok(Found { timestamp_ns: self.last_ns, original_len, range: input.take(HEADER_LEN, captured as usize, rest) })
    }

    /// A section header: from here on the byte order may differ, and interfaces count from 0 again.
    #[cold]
    fn open_section<R: Read>(&mut self, input: &mut Input<R>) -> Result<(), Stop> {
        if !input.want(16)? {
            return Err(Stop::Cut(Cut::Block));
        }
        let header = input.window();
        self.order = match ByteOrder::Little.u32(header, 8) {
            BYTE_ORDER_MAGIC => ByteOrder::Little,
            magic if magic.swap_bytes() == BYTE_ORDER_MAGIC => ByteOrder::Big,
            magic => return Err(Stop::Bad(Problem::ByteOrder(magic))),
        };
        let len = self.order.u32(header, 4);
        let (major, minor) = (self.order.u16(header, 12), self.order.u16(header, 14));
        // The section length that follows is not needed: each block gives its own length.
        if major != 1 {
            return Err(Stop::Bad(Problem::Version(major, minor)));
        }
        self.interfaces.clear();
        self.skip_block(input, len, SECTION_LEN_MIN)
    }

    /// An interface description: link type, snaplen, and two options about its clock.
    #[cold]
    fn add_interface<R: Read>(&mut self, input: &mut Input<R>, len: u32) -> Result<(), Stop> {
        const HEADER_LEN: usize = 16;
        self.want_block(input, len, (HEADER_LEN + TRAILER_LEN) as u32)?;
        if self.interfaces.len() == INTERFACE_COUNT_MAX {
            return Err(Stop::Bad(Problem::TooManyInterfaces));
        }
        let block = &input.window()[..len as usize];
        let mut interface = Interface {
            link_type: self.order.u16(block, 8),
            snaplen: self.order.u32(block, 12),
            ticks: Ticks::Longer(1_000),
            offset_ns: 0,
        };
        interface.read_options(&block[HEADER_LEN..block.len() - TRAILER_LEN], self.order)?;
        self.interfaces.push(interface);
        input.advance(len as usize);
        Ok(())
    }

    /// Brings a whole block into the window and checks both its lengths.
    #[inline]
    fn want_block<R: Read>(&self, input: &mut Input<R>, len: u32, len_min: u32) -> Result<(), Stop> {
        if len < len_min || !len.is_multiple_of(4) || len as usize > WINDOW_LEN {
            return Err(Stop::Bad(Problem::BlockLength(len)));
        }
        if !input.want(len as usize)? {
            return Err(Stop::Cut(Cut::Block));
        }
        let last = self.order.u32(input.window(), len as usize - TRAILER_LEN);
        if last != len {
            return Err(Stop::Bad(Problem::BlockLengthsDiffer(len, last)));
        }
        Ok(())
    }

    /// Skips a block of any length without holding it.
    #[cold]
    fn skip_block<R: Read>(&self, input: &mut Input<R>, len: u32, len_min: u32) -> Result<(), Stop> {
        if len < len_min.max(BLOCK_LEN_MIN) || !len.is_multiple_of(4) {
            return Err(Stop::Bad(Problem::BlockLength(len)));
        }
        if !input.skip(u64::from(len) - TRAILER_LEN as u64)? || !input.want(TRAILER_LEN)? {
            return Err(Stop::Cut(Cut::Block));
        }
        let last = self.order.u32(input.window(), 0);
        if last != len {
            return Err(Stop::Bad(Problem::BlockLengthsDiffer(len, last)));
        }
        input.advance(TRAILER_LEN);
        Ok(())
    }

    /// The interface of a packet. An interface that is not Ethernet is an error only once it has a
    /// packet, because recorders describe all interfaces of the machine, even unused ones.
    #[inline]
    fn ethernet_interface(&self, id: u32) -> Result<Interface, Stop> {
        let Some(interface) = self.interfaces.get(id as usize) else {
            return Err(Stop::Bad(Problem::UnknownInterface(id)));
        };
        if u32::from(interface.link_type) != ETHERNET {
            return Err(Stop::Bad(Problem::LinkType(u32::from(interface.link_type))));
        }
        Ok(*interface)
    }
}

impl Interface {
    /// Reads the options of an interface description; options other than those of the clock are
    /// skipped.
    fn read_options(&mut self, mut options: &[u8], order: ByteOrder) -> Result<(), Stop> {
        while options.len() >= 4 {
            let (code, len) = (order.u16(options, 0), usize::from(order.u16(options, 2)));
            if code == OPTION_END {
                break;
            }
            let Some(value) = options.get(4..4 + len) else {
                return Err(Stop::Bad(Problem::OptionLength(code)));
            };
            match (code, len) {
                (OPTION_IF_TSRESOL, 1) => self.ticks = Ticks::from_tsresol(value[0]),
                (OPTION_IF_TSOFFSET, 8) => {
                    self.offset_ns = (order.u64(value, 0) as i64).saturating_mul(1_000_000_000);
                }
                (OPTION_IF_TSRESOL | OPTION_IF_TSOFFSET, _) => return Err(Stop::Bad(Problem::OptionLength(code))),
                _ => {}
            }
            // The padding of the last option may be missing in faulty files.
            options = &options[(4 + len.next_multiple_of(4)).min(options.len())..];
        }
        Ok(())
    }

    /// Converts this interface's clock to nanoseconds since 1970, saturating at both ends.
    #[inline]
    fn nanoseconds(&self, ticks: u64) -> u64 {
        let ns = match self.ticks {
            Ticks::Longer(ns) => ticks.saturating_mul(ns),
            Ticks::Shorter(count) => ticks / count,
            // The value is below 2^94, so the product fits, but the result may not.
            Ticks::Binary(bits) => u64::try_from((u128::from(ticks) * 1_000_000_000) >> bits).unwrap_or(u64::MAX),
        };
        ns.saturating_add_signed(self.offset_ns)
    }
}

impl Ticks {
    /// if_tsresol: the upper bit chooses the base, the others are the negative exponent.
    fn from_tsresol(value: u8) -> Self {
        let exponent = u32::from(value & 0x7f);
        if value & 0x80 != 0 {
            return Self::Binary(exponent);
        }
        match exponent {
            0..=9 => Self::Longer(10_u64.pow(9 - exponent)),
            // Finer than 10^-28 s, the whole range of 64 bits is about a nanosecond: saturation is
            // accurate enough.
            _ => Self::Shorter(10_u64.saturating_pow(exponent - 9)),
        }
    }
}

/// Checks that a packet fits its block and is not longer than the maximum.
#[inline]
fn check_packet_len(captured: u32, available: u32) -> Result<(), Stop> {
    if captured as usize > RECORD_LEN_MAX {
        return Err(Stop::Bad(Problem::RecordLength(captured)));
    }
    if captured > available {
        return Err(Stop::Bad(Problem::PacketOverBlock(captured, available)));
    }
    Ok(())
}
