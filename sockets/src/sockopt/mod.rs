//! Options by their numbers, as `setsockopt` and `getsockopt` take them, for a library that passes
//! on the calls of unmodified programs. The numbers, lengths, ranges and errors are Linux's (the
//! generic ABI: x86-64, aarch64, riscv64).
//!
//! No option is accepted and then ignored: an option that we do not implement returns
//! `ENOPROTOOPT`, like one that Linux does not know, and the caller may use its kernel socket
//! instead.

mod groups;
mod ip;
pub(crate) mod number;
mod socket;
mod tcp;
mod tcp_info;
mod value;

use wirepath::pipeline::Cx;
use wirepath::time::Duration;

use crate::errno::Errno;
use crate::options::Options;
use crate::socket::State;
use crate::table::{Kind, SocketId, Sockets};
use number::*;
use value::{int, put_int};

/// The system's settings for options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System {
    /// `net.core.rmem_max`: more of `SO_RCVBUF` is cut. By default 212,992.
    pub receive_buffer_max: u32,
    /// `net.core.wmem_max`. By default 212,992.
    pub send_buffer_max: u32,
    /// The interface's number in the kernel, by which options may name it. By default 0: no number
    /// names it.
    pub interface_idx: u32,
}

impl Default for System {
    fn default() -> Self {
        Self { receive_buffer_max: 212_992, send_buffer_max: 212_992, interface_idx: 0 }
    }
}

/// Values that were set by number and that the [`Options`] cannot express.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawOptions {
    /// `l_linger`, which is kept while lingering is off.
    linger_seconds: u32,
    /// `TCP_QUICKACK` was turned off; unset it reads as on.
    is_quickack_off: bool,
    /// `SO_RCVBUF` was set: `SO_RCVLOWAT` does not grow it.
    is_receive_buffer_set: bool,
    /// `IP_BIND_ADDRESS_NO_PORT`, which is how streams are bound in any case.
    pub(crate) binds_no_port: bool,
    /// `TCP_DEFER_ACCEPT`, as the kernel counts it: retransmissions of the SYN-ACK.
    defer_accept: u8,
}

impl RawOptions {
    /// How long a connection without data waits before it can be accepted (`TCP_DEFER_ACCEPT`).
    pub(crate) fn defers_for(&self) -> Option<Duration> {
        (self.defer_accept > 0).then(|| Duration::from_secs(tcp::seconds_of(self.defer_accept).into()))
    }
}

impl Sockets {
    /// `setsockopt`, with the numbers of Linux.
    ///
    /// # Errors
    /// The errors of Linux; `ENOPROTOOPT` also for options that we do not implement; `EAGAIN`: the
    /// datagram that `UDP_CORK` kept finds no room, and the next call tries again.
    pub fn setsockopt(
        &mut self,
        id: SocketId,
        level: i32,
        name: i32,
        value: &[u8],
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let is_stream = !matches!(self.find(id)?.state, State::Datagram(_));
        match level {
            SOL_SOCKET => self.set_of_socket(id, name, value, is_stream, cx),
            IPPROTO_IP => self.set_of_ip(id, name, value, is_stream, cx),
            IPPROTO_TCP if is_stream => self.set_of_tcp(id, name, value, cx),
            IPPROTO_UDP if !is_stream && name == UDP_CORK => {
                let on = int(value)? != 0;
                self.change(id, cx, |options| options.cork = on)?;
                if on { Ok(()) } else { self.uncork_datagram(id, cx) }
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// `getsockopt`: returns the number of bytes stored in `out`.
    ///
    /// # Errors
    /// As [`setsockopt`](Self::setsockopt); `EOPNOTSUPP` for a level that the socket does not have.
    pub fn getsockopt(
        &mut self,
        id: SocketId,
        level: i32,
        name: i32,
        out: &mut [u8],
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        let is_stream = !matches!(self.find(id)?.state, State::Datagram(_));
        match level {
            SOL_SOCKET => self.get_of_socket(id, name, out, is_stream),
            IPPROTO_IP => self.get_of_ip(id, name, out),
            IPPROTO_TCP if is_stream => self.get_of_tcp(id, name, out, cx),
            IPPROTO_UDP if !is_stream && name == UDP_CORK => Ok(put_int(out, self.find(id)?.options.cork.into())),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Whether a kind of socket has an option of this number, with which value it be: those of
    /// which [`setsockopt`](Self::setsockopt) does not say `ENOPROTOOPT`, and those that can only
    /// be read.
    pub fn has_option(kind: Kind, level: i32, name: i32) -> bool {
        let is_stream = kind == Kind::Stream;
        match level {
            SOL_SOCKET => match name {
                SO_REUSEADDR..=SO_ERROR | SO_BROADCAST..=SO_KEEPALIVE | SO_LINGER | SO_REUSEPORT => true,
                SO_RCVLOWAT..=SO_SNDTIMEO | SO_TIMESTAMP..=SO_ACCEPTCONN | SO_SNDBUFFORCE..=SO_RCVBUFFORCE => true,
                SO_TIMESTAMPNS | SO_TIMESTAMPING..=SO_RXQ_OVFL | SO_SELECT_ERR_QUEUE | SO_COOKIE | SO_ZEROCOPY => true,
                SO_TIMESTAMP_NEW..=SO_SNDTIMEO_NEW => true,
                SO_MAX_PACING_RATE => is_stream,
                _ => false,
            },
            IPPROTO_IP => matches!(
                name,
                IP_TOS..=IP_TTL
                    | IP_PKTINFO
                    | IP_MTU_DISCOVER..=IP_RECVTOS
                    | IP_RECVORIGDSTADDR..=IP_MINTTL
                    | IP_BIND_ADDRESS_NO_PORT
                    | IP_MULTICAST_IF..=IP_MULTICAST_ALL
            ),
            IPPROTO_TCP if is_stream => {
                matches!(name, TCP_NODELAY..=TCP_CONGESTION | TCP_USER_TIMEOUT | TCP_NOTSENT_LOWAT)
            }
            IPPROTO_UDP => !is_stream && name == UDP_CORK,
            _ => false,
        }
    }

    fn change(&mut self, id: SocketId, cx: &mut Cx<'_>, act: impl FnOnce(&mut Options)) -> Result<(), Errno> {
        let mut options = self.find(id)?.options;
        act(&mut options);
        self.set_options(id, &options, cx)
    }
}
