//! The exchange of `ibv_rc_pingpong` and its kin: 52 bytes each way, then "done" by the client.
//! `ibv_srq_pingpong` exchanges [`SRQ_ADDRESSES`] of them.

use core::net::Ipv6Addr;

use super::{ExchangeError, Fields};
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// Addresses that each end of `ibv_srq_pingpong` names, however few queue pairs it has: those
/// behind its last one are zeros.
pub const SRQ_ADDRESSES: usize = 256;

/// A queue pair as these programs name it: `0000:000011:021b19:00000000000000000000ffff0a090002`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingpongAddress {
    /// The local identifier, which RoCE has not: 0.
    pub lid: u16,
    /// The queue pair.
    pub qpn: Qpn,
    /// The number of the first packet that it sends.
    pub psn: Psn,
    /// Its port's address ([`gid`](super::gid)).
    pub gid: Ipv6Addr,
}

impl PingpongAddress {
    /// Bytes of the text, with its zero byte.
    pub const LEN: usize = 52;

    /// The text. Allocates.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let Self { lid, qpn, psn, gid } = self;
        let text = format!("{lid:04x}:{:06x}:{:06x}:{:032x}\0", qpn.get(), psn.get(), gid.to_bits());
        text.as_bytes().try_into().expect("fields of fixed length")
    }

    /// Reads the text.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(text: &[u8; Self::LEN]) -> Result<Self, ExchangeError> {
        let mut fields = Fields(text);
        let (lid, qpn, psn) = (fields.next("LID", 4)?, fields.next("QPN", 6)?, fields.next("PSN", 6)?);
        let digits = fields.0.strip_suffix(&[0]).and_then(|digits| core::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let gid = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok()).ok_or(ExchangeError("GID"))?;
        Ok(Self {
            lid: lid as u16,
            qpn: Qpn::new(qpn as u32),
            psn: Psn::new(psn as u32),
            gid: Ipv6Addr::from_bits(gid),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_that_of_ibv_rc_pingpong() {
        let text = *b"0000:000011:021b19:00000000000000000000ffff0a090002\0";
        let address = PingpongAddress::parse(&text).unwrap();
        let gid = super::super::gid([10, 9, 0, 2].into());
        assert_eq!(address, PingpongAddress { lid: 0, qpn: Qpn::new(17), psn: Psn::new(0x2_1b19), gid });
        assert_eq!(address.encode(), text);
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            *b"0000:000011:021b19:00000000000000000000ffff0a09000g\0",
            *b"0000:000011:-21b19:00000000000000000000ffff0a090002\0",
            *b"0000-000011-021b19-00000000000000000000ffff0a090002\0",
            *b"0000:000011:021b19:+0000000000000000000ffff0a090002\0",
            *b"0000:000011:021b19:00000000000000000000ffff0a0900022",
            [0; 52],
            [0xff; 52],
        ] {
            assert!(PingpongAddress::parse(&text).is_err(), "{}", text.escape_ascii());
        }
    }
}
