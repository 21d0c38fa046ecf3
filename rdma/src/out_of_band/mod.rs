//! The texts by which programs tell each other their queue pairs over TCP, before the first packet
//! of RoCE: those of rdma-core's examples and those of perftest. Texts only: whoever has the
//! connection reads and writes them.
//!
//! ```text
//!  client ── its address ──▶ server: leads its queue pair to RTS
//!  client: to RTS ◀── its address ── server
//!  client ── "done" ──▶ server
//! ```

pub mod perftest;
pub mod pingpong;

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

/// The TCP port that both kinds of programs listen on unless they are told otherwise.
pub const EXCHANGE_PORT: u16 = 18_515;
/// The end of an exchange, with its zero byte.
pub const DONE: [u8; 5] = *b"done\0";

/// A peer said something that is no text of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeError(&'static str);

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer speaks another exchange: its {} cannot be read", self.0)
    }
}

impl core::error::Error for ExchangeError {}

/// The GID that stands for an IPv4 address.
pub fn gid(address: Ipv4Addr) -> Ipv6Addr {
    address.to_ipv6_mapped()
}

/// Fields of hexadecimal digits behind each other, each with a colon behind it.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// The next field: at least one digit and at most `digits`.
    fn next(&mut self, name: &'static str, digits: usize) -> Result<u64, ExchangeError> {
        let end = self.0.iter().position(|byte| *byte == b':' || *byte == 0).unwrap_or(self.0.len());
        let (field, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        let text = core::str::from_utf8(field).map_err(|_| ExchangeError(name))?;
        // `from_str_radix` takes signs.
        if text.is_empty() || text.len() > digits || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(ExchangeError(name));
        }
        u64::from_str_radix(text, 16).map_err(|_| ExchangeError(name))
    }
}
