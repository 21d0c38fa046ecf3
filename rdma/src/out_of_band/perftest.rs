//! The exchange of perftest 5.70 and later: `ib_write_bw` and its kin. At each step the client
//! writes first, and the server answers in the same form:
//!
//! | step | bytes |
//! |---|---|
//! | version | 16, a text |
//! | cycle buffer, cache line | 4 and 4 |
//! | MTU, as its code in verbs | 2, a text |
//! | addresses, and each time that both wait for each other | 108, a text |
//! | figures, of tools that measure a rate | 8, five times |
//! | "done" | 5 |

use core::net::Ipv6Addr;

use super::{ExchangeError, Fields};
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// The version that we name first. perftest compares versions and refuses those before 5.70; a
/// server answers with the version of its client.
pub const VERSION: [u8; VERSION_LEN] = *b"6.06\0\0\0\0\0\0\0\0\0\0\0\0";
/// Bytes of a version.
pub const VERSION_LEN: usize = 16;
/// Bytes of buffer that a tool cycles through: a page, as it has it from the system.
pub const CYCLE_BUFFER: u32 = 4096;
/// Bytes of a cache line.
pub const CACHE_LINE: u32 = 64;
/// Bytes of the MTU's text.
pub const MTU_LEN: usize = 2;
/// Bytes of a figure.
pub const FIGURE_LEN: usize = 8;
/// Figures that tools tell each other after a test of bandwidth: length, count, peak, average and
/// rate.
pub const FIGURES: usize = 5;

/// A queue pair and its memory as perftest names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerftestAddress {
    /// The local identifier, which RoCE has not: 0.
    pub lid: u16,
    /// READs and atomic operations that it has under way.
    pub rd_atomics: u16,
    /// The queue pair.
    pub qpn: Qpn,
    /// The number of the first packet that it sends.
    pub psn: Psn,
    /// The key of its memory.
    pub rkey: u32,
    /// The first byte of its memory.
    pub address: u64,
    /// Its port's address ([`gid`](super::gid)).
    pub gid: Ipv6Addr,
    /// Its shared receive queue; 0 without one.
    pub srqn: u32,
}

impl PerftestAddress {
    /// Bytes of the text, with its zero byte.
    pub const LEN: usize = 108;

    /// The text. Allocates.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let Self { lid, rd_atomics, qpn, psn, rkey, address, gid, srqn } = self;
        let (qpn, psn) = (qpn.get(), psn.get());
        let gid = gid.octets().map(|byte| format!("{byte:02x}:")).concat();
        let text =
            format!("{lid:04x}:{rd_atomics:04x}:{qpn:06x}:{psn:06x}:{rkey:08x}:{address:016x}:{gid}{srqn:08x}:\0");
        text.as_bytes().try_into().expect("fields of fixed length")
    }

    /// Reads the text.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(text: &[u8; Self::LEN]) -> Result<Self, ExchangeError> {
        let mut fields = Fields(text);
        let (lid, rd_atomics) = (fields.next("LID", 4)?, fields.next("count of READs", 4)?);
        let (qpn, psn) = (fields.next("QPN", 6)?, fields.next("PSN", 6)?);
        let (rkey, address) = (fields.next("key", 8)?, fields.next("address", 16)?);
        let mut gid = [0; 16];
        for byte in &mut gid {
            *byte = fields.next("GID", 2)? as u8;
        }
        Ok(Self {
            lid: lid as u16,
            rd_atomics: rd_atomics as u16,
            qpn: Qpn::new(qpn as u32),
            psn: Psn::new(psn as u32),
            rkey: rkey as u32,
            address,
            gid: gid.into(),
            srqn: fields.next("SRQN", 8)? as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What ib_write_bw of perftest 4.5-0.17 said to another.
    const TEXT: [u8; PerftestAddress::LEN] = *b"0000:0001:000011:d8e0c4:00000307:00005562a17b0000:\
        00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:02:00000000:\0";

    #[test]
    fn text_is_that_of_perftest() {
        let address = PerftestAddress::parse(&TEXT).unwrap();
        let expected = PerftestAddress {
            lid: 0,
            rd_atomics: 1,
            qpn: Qpn::new(0x11),
            psn: Psn::new(0xd8_e0c4),
            rkey: 0x307,
            address: 0x5562_a17b_0000,
            gid: super::super::gid([10, 9, 0, 2].into()),
            srqn: 0,
        };
        assert_eq!(address, expected);
        assert_eq!(address.encode(), TEXT);
    }

    #[test]
    fn text_with_a_damaged_byte_is_refused_or_other_digits() {
        for at in 0..TEXT.len() - 2 {
            let mut text = TEXT;
            text[at] = b'x';
            assert!(PerftestAddress::parse(&text).is_err(), "{}", text.escape_ascii());
        }
    }
}
