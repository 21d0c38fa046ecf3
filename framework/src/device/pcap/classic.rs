//! Classic pcap: a header of 24 bytes, then records of 16 bytes and the packet
//! (draft-ietf-opsawg-pcap).
//!
//! ```text
//! magic | major minor | zone | sigfigs | snaplen | link type        24 bytes, once
//! seconds | µs or ns | captured length | original length | bytes    16 bytes and the packet, each time
//! ```
//! The magic gives both the byte order and the unit of time. `snaplen` is ignored: recorders write
//! 0, 65535 or 4 GiB there and then records of any length; the limit is our own.

use std::io::Read;

use super::input::{ByteOrder, Input};
use super::reader::{ETHERNET, Found, Stop};
use super::{Cut, Problem, RECORD_LEN_MAX};

const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;

/// The upper bits of the link type field say whether frames end with a checksum (libpcap,
/// pcap-common.c).
const LINK_TYPE_MASK: u32 = 0x03ff_ffff;

pub(super) struct Classic {
    order: ByteOrder,
    /// Nanoseconds in a unit of the fraction field: 1000 or 1.
    fraction_ns: u64,
}

impl Classic {
    /// Recognises the four magics; `None` for a file of another format.
    pub(super) fn detect(magic: [u8; 4]) -> Option<Self> {
        let (order, fraction_ns) = match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] => (ByteOrder::Little, 1_000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (ByteOrder::Little, 1),
            [0xa1, 0xb2, 0xc3, 0xd4] => (ByteOrder::Big, 1_000),
            [0xa1, 0xb2, 0x3c, 0x4d] => (ByteOrder::Big, 1),
            _ => return None,
        };
        Some(Self { order, fraction_ns })
    }

    /// Checks the file header and skips it.
    pub(super) fn start<R: Read>(&self, input: &mut Input<R>) -> Result<(), Stop> {
        if !input.want(FILE_HEADER_LEN)? {
            return Err(Stop::Cut(Cut::FileHeader));
        }
        let header = input.window();
        let (major, minor) = (self.order.u16(header, 4), self.order.u16(header, 6));
        let link_type = self.order.u32(header, 20) & LINK_TYPE_MASK;
        // Before 2.3 the two lengths of a record stood in the other order; 2.4 is from 1998.
        if major != 2 || minor < 4 {
            return Err(Stop::Bad(Problem::Version(major, minor)));
        }
        if link_type != ETHERNET {
            return Err(Stop::Bad(Problem::LinkType(link_type)));
        }
        input.advance(FILE_HEADER_LEN);
        Ok(())
    }

    /// Finds the next record; `None` at the end of the file.
    #[inline]
    pub(super) fn next<R: Read>(&self, input: &mut Input<R>) -> Result<Option<Found>, Stop> {
        input.mark();
        if !input.want(RECORD_HEADER_LEN)? {
            return if input.is_empty() { Ok(None) } else { Err(Stop::Cut(Cut::RecordHeader)) };
        }
        let header = &input.window()[..RECORD_HEADER_LEN];
        let seconds = u64::from(self.order.u32(header, 0));
        let fraction = u64::from(self.order.u32(header, 4));
        let captured = self.order.u32(header, 8);
        let original_len = self.order.u32(header, 12);
        let len = captured as usize;
        if len > RECORD_LEN_MAX {
            return Err(Stop::Bad(Problem::RecordLength(captured)));
        }
        if !input.want(RECORD_HEADER_LEN + len)? {
            return Err(Stop::Cut(Cut::Packet));
        }
        // 2^32 seconds and 2^32 microseconds are 4.3e18 ns and fit; the fraction may exceed 1 s in
        // a faulty recording.
        let timestamp_ns = seconds * 1_000_000_000 + fraction * self.fraction_ns;
        Ok(Some(Found { timestamp_ns, original_len, range: input.take(RECORD_HEADER_LEN, len, 0) }))
    }
}
