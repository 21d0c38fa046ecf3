//! The control messages of `sendmsg`: what a single datagram has otherwise than its socket's
//! options say. Which are taken, and the errors of the others, are Linux's (`ip_cmsg_send`,
//! `udp_cmsg_send`, `__sock_cmsg_send`).

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::errno::Errno;
use crate::sockopt::number::{IP_PKTINFO, IP_TOS, IP_TTL, SOL_SOCKET};
use crate::table::Kind;

/// The content of a send's control messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendControl {
    /// `IP_PKTINFO`: the source address. By default that of the socket, or of the route.
    pub source: Option<Ipv4Addr>,
    /// `IP_PKTINFO`: the number of the interface in the kernel; 0 for any.
    pub interface_idx: u32,
    /// `IP_TTL`. By default the socket's.
    pub ttl: Option<u8>,
    /// `IP_TOS`. By default the socket's.
    pub tos: Option<u8>,
    /// `UDP_SEGMENT`: the bytes are cut into datagrams of this length. By default one datagram.
    pub segment_len: Option<u16>,
}

const SOL_IP: i32 = 0;
const SOL_UDP: i32 = 17;
const SOL_IPV6: i32 = 41;
const IPV6_PKTINFO: i32 = 50;
const UDP_SEGMENT: i32 = 103;
const SCM_RIGHTS: i32 = 1;
const SCM_CREDENTIALS: i32 = 2;
/// Bytes of a `struct cmsghdr`.
const HEADER_LEN: usize = 16;

impl SendControl {
    /// Reads `msg_control`. `is_v6`: the socket is one of `AF_INET6`, whose messages name IPv4
    /// addresses in mapped form.
    ///
    /// # Errors
    /// `EINVAL`: a message that is malformed, unknown, or of which we have no part.
    pub fn parse(kind: Kind, is_v6: bool, mut left: &[u8]) -> Result<Self, Errno> {
        let mut control = Self::default();
        while let Some(header) = left.first_chunk::<HEADER_LEN>() {
            let (len, rest) = header.split_first_chunk::<8>().ok_or(Errno::EINVAL)?;
            let len = usize::from_ne_bytes(*len);
            let level = word(rest, 0)? as i32;
            let name = word(rest, 4)? as i32;
            let value = left.get(HEADER_LEN..len).ok_or(Errno::EINVAL)?;
            control.read(kind, is_v6, (level, name), value)?;
            left = len.checked_next_multiple_of(8).and_then(|next| left.get(next..)).unwrap_or_default();
        }
        Ok(control)
    }

    /// Whether it says nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    fn read(&mut self, kind: Kind, is_v6: bool, what: (i32, i32), value: &[u8]) -> Result<(), Errno> {
        match what {
            // They are for Unix sockets, and Linux takes and ignores them on others.
            (SOL_SOCKET, SCM_RIGHTS | SCM_CREDENTIALS) => Ok(()),
            (SOL_SOCKET, _) => Err(Errno::EINVAL),
            // A stream looks at no other level.
            _ if kind == Kind::Stream => Ok(()),
            (SOL_UDP, UDP_SEGMENT) => {
                let len = <[u8; 2]>::try_from(value).map_err(|_| Errno::EINVAL)?;
                self.segment_len = Some(u16::from_ne_bytes(len)).filter(|len| *len > 0);
                Ok(())
            }
            (SOL_UDP, _) => Err(Errno::EINVAL),
            (SOL_IPV6, IPV6_PKTINFO) if is_v6 => {
                let address = value.first_chunk::<16>().ok_or(Errno::EINVAL)?;
                let idx = word(value, 16)?;
                let source = Ipv6Addr::from(*address).to_ipv4_mapped().ok_or(Errno::EINVAL)?;
                self.name(idx, source);
                Ok(())
            }
            (SOL_IP, IP_PKTINFO) if value.len() == 12 => {
                self.name(word(value, 0)?, Ipv4Addr::from(word(value, 4)?.to_ne_bytes()));
                Ok(())
            }
            (SOL_IP, IP_TTL) if value.len() == 4 => {
                self.ttl = Some(byte(word(value, 0)?)?).filter(|ttl| *ttl > 0);
                if self.ttl.is_none() {
                    return Err(Errno::EINVAL);
                }
                Ok(())
            }
            (SOL_IP, IP_TOS) => {
                self.tos = Some(match value {
                    [tos] => *tos,
                    _ if value.len() == 4 => byte(word(value, 0)?)?,
                    _ => return Err(Errno::EINVAL),
                });
                Ok(())
            }
            (SOL_IP, _) => Err(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    fn name(&mut self, idx: u32, source: Ipv4Addr) {
        if idx != 0 {
            self.interface_idx = idx;
        }
        self.source = Some(source).filter(|source| !source.is_unspecified());
    }
}

fn word(value: &[u8], at: usize) -> Result<u32, Errno> {
    let word = value.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map(u32::from_ne_bytes).ok_or(Errno::EINVAL)
}

fn byte(number: u32) -> Result<u8, Errno> {
    u8::try_from(number).map_err(|_| Errno::EINVAL)
}
