//! Options by their numbers, as `setsockopt` and `getsockopt` take them, for a library that passes
//! on the calls of unmodified programs. The numbers, lengths, ranges and errors are Linux's (the
//! generic ABI: x86-64, aarch64, riscv64).
//!
//! No option is accepted and then ignored: an option that we do not implement returns
//! `ENOPROTOOPT`, like one that Linux does not know, and the caller may use its kernel socket
//! instead.

use core::net::Ipv4Addr;

use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::{Congestion, ConnectionOptions, Keepalive, State as TcpState, TcpInfo};
use wirepath::proto::{FilterMode, InterfaceId};
use wirepath::time::Duration;

use crate::errno::Errno;
use crate::options::{Ancillary, Options, TimestampResolution};
use crate::socket::{Socket, State};
use crate::table::datagrams::{GroupRequest, SOURCES_MAX, SourceChange};
use crate::table::{Kind, SocketId, Sockets};
use crate::timestamping::Timestamping;

/// Levels, and the options of each by Linux's names.
mod number {
    pub(super) const SOL_SOCKET: i32 = 1;
    pub(super) const SO_REUSEADDR: i32 = 2;
    pub(super) const SO_TYPE: i32 = 3;
    pub(super) const SO_ERROR: i32 = 4;
    pub(super) const SO_BROADCAST: i32 = 6;
    pub(super) const SO_SNDBUF: i32 = 7;
    pub(super) const SO_RCVBUF: i32 = 8;
    pub(super) const SO_KEEPALIVE: i32 = 9;
    pub(super) const SO_LINGER: i32 = 13;
    pub(super) const SO_REUSEPORT: i32 = 15;
    pub(super) const SO_RCVLOWAT: i32 = 18;
    pub(super) const SO_SNDLOWAT: i32 = 19;
    pub(super) const SO_RCVTIMEO: i32 = 20;
    pub(super) const SO_SNDTIMEO: i32 = 21;
    pub(super) const SO_TIMESTAMP: i32 = 29;
    pub(super) const SO_ACCEPTCONN: i32 = 30;
    pub(super) const SO_SNDBUFFORCE: i32 = 32;
    pub(super) const SO_RCVBUFFORCE: i32 = 33;
    pub(super) const SO_TIMESTAMPNS: i32 = 35;
    pub(super) const SO_TIMESTAMPING: i32 = 37;
    pub(super) const SO_PROTOCOL: i32 = 38;
    pub(super) const SO_DOMAIN: i32 = 39;
    pub(super) const SO_RXQ_OVFL: i32 = 40;
    pub(super) const SO_SELECT_ERR_QUEUE: i32 = 45;
    pub(super) const SO_MAX_PACING_RATE: i32 = 47;
    pub(super) const SO_COOKIE: i32 = 57;
    pub(super) const SO_ZEROCOPY: i32 = 60;
    pub(super) const SO_TIMESTAMP_NEW: i32 = 63;
    pub(super) const SO_TIMESTAMPNS_NEW: i32 = 64;
    pub(super) const SO_TIMESTAMPING_NEW: i32 = 65;
    pub(super) const SO_RCVTIMEO_NEW: i32 = 66;
    pub(super) const SO_SNDTIMEO_NEW: i32 = 67;

    pub(super) const IPPROTO_IP: i32 = 0;
    pub(super) const IP_TOS: i32 = 1;
    pub(super) const IP_TTL: i32 = 2;
    pub(super) const IP_PKTINFO: i32 = 8;
    pub(super) const IP_MTU_DISCOVER: i32 = 10;
    pub(super) const IP_RECVERR: i32 = 11;
    pub(super) const IP_RECVTTL: i32 = 12;
    pub(super) const IP_RECVTOS: i32 = 13;
    pub(super) const IP_RECVORIGDSTADDR: i32 = 20;
    pub(super) const IP_MINTTL: i32 = 21;
    pub(super) const IP_BIND_ADDRESS_NO_PORT: i32 = 24;
    pub(super) const IP_MULTICAST_IF: i32 = 32;
    pub(super) const IP_MULTICAST_TTL: i32 = 33;
    pub(super) const IP_MULTICAST_LOOP: i32 = 34;
    pub(super) const IP_ADD_MEMBERSHIP: i32 = 35;
    pub(super) const IP_DROP_MEMBERSHIP: i32 = 36;
    pub(super) const IP_UNBLOCK_SOURCE: i32 = 37;
    pub(super) const IP_BLOCK_SOURCE: i32 = 38;
    pub(super) const IP_ADD_SOURCE_MEMBERSHIP: i32 = 39;
    pub(super) const IP_DROP_SOURCE_MEMBERSHIP: i32 = 40;
    pub(super) const IP_MSFILTER: i32 = 41;
    pub(super) const MCAST_JOIN_GROUP: i32 = 42;
    pub(super) const MCAST_BLOCK_SOURCE: i32 = 43;
    pub(super) const MCAST_UNBLOCK_SOURCE: i32 = 44;
    pub(super) const MCAST_LEAVE_GROUP: i32 = 45;
    pub(super) const MCAST_JOIN_SOURCE_GROUP: i32 = 46;
    pub(super) const MCAST_LEAVE_SOURCE_GROUP: i32 = 47;
    pub(super) const MCAST_MSFILTER: i32 = 48;
    pub(super) const IP_MULTICAST_ALL: i32 = 49;

    pub(super) const IPPROTO_TCP: i32 = 6;
    pub(super) const TCP_NODELAY: i32 = 1;
    pub(super) const TCP_MAXSEG: i32 = 2;
    pub(super) const TCP_CORK: i32 = 3;
    pub(super) const TCP_KEEPIDLE: i32 = 4;
    pub(super) const TCP_KEEPINTVL: i32 = 5;
    pub(super) const TCP_KEEPCNT: i32 = 6;
    pub(super) const TCP_SYNCNT: i32 = 7;
    pub(super) const TCP_LINGER2: i32 = 8;
    pub(super) const TCP_DEFER_ACCEPT: i32 = 9;
    pub(super) const TCP_WINDOW_CLAMP: i32 = 10;
    pub(super) const TCP_INFO: i32 = 11;
    pub(super) const TCP_QUICKACK: i32 = 12;
    pub(super) const TCP_CONGESTION: i32 = 13;
    pub(super) const TCP_USER_TIMEOUT: i32 = 18;
    pub(super) const TCP_NOTSENT_LOWAT: i32 = 25;

    pub(super) const IPPROTO_UDP: i32 = 17;
    pub(super) const UDP_CORK: i32 = 1;
}
use number::*;

/// `SOCK_MIN_SNDBUF` and `SOCK_MIN_RCVBUF`: room for two packets, and for one.
const SEND_BUFFER_MIN: u32 = 4_608;
const RECEIVE_BUFFER_MIN: u32 = 2_304;
/// The most that the machine accepts.
const BUFFER_MAX: u32 = 1 << 30;
/// `TCP_MIN_MSS` to `MAX_TCP_WINDOW`.
const MSS: core::ops::RangeInclusive<i32> = 88..=32_767;
/// The MSS before the handshake (`TCP_MSS_DEFAULT`).
const MSS_UNKNOWN: u16 = 536;
/// Seconds of `TCP_KEEPIDLE` and `TCP_KEEPINTVL`, and probes.
const KEEPALIVE_SECONDS: core::ops::RangeInclusive<i32> = 1..=32_767;
const KEEPALIVE_COUNT: core::ops::RangeInclusive<i32> = 1..=127;
/// `struct timeval`.
const TIMEVAL_LEN: usize = 16;
/// `struct group_req` and `struct group_source_req`: the interface, aligned to 8, then one or two
/// `struct sockaddr_storage`.
const GROUP_REQ_LEN: usize = 136;
const GROUP_SOURCE_REQ_LEN: usize = 264;
const AF_INET: u16 = 2;
/// `TCP_CA_NAME_MAX`
const CONGESTION_NAME_LEN: usize = 16;
/// `struct tcp_info` as of Linux 6.7.
const TCP_INFO_LEN: usize = 248;

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
    /// `IP_MTU_DISCOVER` minus one, so that the default is the kernel's.
    mtu_discover: MtuDiscover,
    /// `IP_BIND_ADDRESS_NO_PORT`, which is how streams are bound in any case.
    pub(crate) binds_no_port: bool,
    /// `TCP_DEFER_ACCEPT`, as the kernel counts it: retransmissions of the SYN-ACK.
    defer_accept: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MtuDiscover {
    Dont,
    #[default]
    Want,
    Do,
}

impl RawOptions {
    /// How long a connection without data waits before it can be accepted (`TCP_DEFER_ACCEPT`).
    pub(crate) fn defers_for(&self) -> Option<Duration> {
        (self.defer_accept > 0).then(|| Duration::from_secs(seconds_of(self.defer_accept).into()))
    }

    /// Whether the socket follows reports of the path MTU (not with `IP_PMTUDISC_DONT`).
    pub(crate) fn discovers_mtu(&self) -> bool {
        self.mtu_discover != MtuDiscover::Dont
    }
}

impl Sockets {
    /// `setsockopt`, with the numbers of Linux.
    ///
    /// # Errors
    /// The errors of Linux; `ENOPROTOOPT` also for options that we do not implement.
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
                if on { Ok(()) } else { self.push_pending(id, cx) }
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

    /// Linux `sk_setsockopt`.
    fn set_of_socket(
        &mut self,
        id: SocketId,
        name: i32,
        value: &[u8],
        is_stream: bool,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let number = int(value)?;
        let on = number != 0;
        let System { receive_buffer_max, send_buffer_max, .. } = self.system;
        match name {
            SO_REUSEADDR => self.change(id, cx, |options| options.reuse_address = on),
            SO_REUSEPORT => self.change(id, cx, |options| options.reuse_port = on),
            SO_BROADCAST => self.change(id, cx, |options| options.broadcast = on),
            SO_KEEPALIVE => self.change(id, cx, |options| options.keepalive = on),
            SO_RXQ_OVFL => self.change(id, cx, |options| options.ancillary.dropped = on),
            SO_SNDBUF | SO_SNDBUFFORCE => {
                let asked = if name == SO_SNDBUF { (number as u32).min(send_buffer_max) } else { number.max(0) as u32 };
                self.change(id, cx, |options| options.send_buffer = doubled(asked, SEND_BUFFER_MIN))
            }
            SO_RCVBUF | SO_RCVBUFFORCE => {
                let asked =
                    if name == SO_RCVBUF { (number as u32).min(receive_buffer_max) } else { number.max(0) as u32 };
                self.change(id, cx, |options| options.receive_buffer = doubled(asked, RECEIVE_BUFFER_MIN))?;
                self.find(id)?.raw.is_receive_buffer_set = true;
                Ok(())
            }
            SO_RCVLOWAT => self.set_low_water(id, number, is_stream, cx),
            SO_LINGER => {
                let [onoff, seconds] = words(value).ok_or(Errno::EINVAL)?;
                if onoff != 0 {
                    self.find(id)?.raw.linger_seconds = seconds;
                }
                let span = Duration::from_secs(seconds.into());
                self.change(id, cx, |options| options.linger = (onoff != 0).then_some(span))
            }
            SO_RCVTIMEO | SO_RCVTIMEO_NEW => {
                let timeout = timeout(value)?;
                self.change(id, cx, |options| options.receive_timeout = timeout)
            }
            SO_SNDTIMEO | SO_SNDTIMEO_NEW => {
                let timeout = timeout(value)?;
                self.change(id, cx, |options| options.send_timeout = timeout)
            }
            SO_TIMESTAMP | SO_TIMESTAMPNS | SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW => {
                let nanos = matches!(name, SO_TIMESTAMPNS | SO_TIMESTAMPNS_NEW);
                let unit = if nanos { TimestampResolution::Nanoseconds } else { TimestampResolution::Microseconds };
                let ancillary = &mut self.find(id)?.options.ancillary;
                ancillary.timestamp = on.then_some(unit);
                if on {
                    ancillary.has_new_times = matches!(name, SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW);
                }
                Ok(())
            }
            // With 8 bytes it is a `struct so_timestamping`, whose second word is for `BIND_PHC`.
            SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => {
                self.set_timestamping(id, Timestamping(number as u32), name == SO_TIMESTAMPING_NEW, cx)
            }
            SO_ZEROCOPY if !(0..=1).contains(&number) => Err(Errno::EINVAL),
            SO_ZEROCOPY => {
                self.find(id)?.options.zerocopy = on;
                Ok(())
            }
            SO_SELECT_ERR_QUEUE => {
                self.find(id)?.options.select_error_queue = on;
                Ok(())
            }
            SO_MAX_PACING_RATE if is_stream => {
                let rate = match <[u8; 8]>::try_from(value.get(..8).unwrap_or_default()) {
                    Ok(long) => u64::from_ne_bytes(long),
                    Err(_) if number == -1 => u64::MAX,
                    Err(_) => u64::from(number as u32),
                };
                self.change(id, cx, |options| options.pacing_rate = (rate != u64::MAX).then_some(rate))
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// As Linux `tcp_set_rcvlowat`, and as other sockets do.
    fn set_low_water(&mut self, id: SocketId, number: i32, is_stream: bool, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let socket = self.find(id)?;
        let asked = if number < 0 { i32::MAX } else { number } as u32;
        let (is_set, buffer) = (socket.raw.is_receive_buffer_set, socket.options.receive_buffer);
        let low_water = match is_stream {
            true if is_set => asked.min(buffer / 2),
            true => asked.min(BUFFER_MAX / 2),
            false => asked,
        };
        self.change(id, cx, |options| {
            options.receive_low_water = low_water.max(1);
            if is_stream && !is_set {
                options.receive_buffer = buffer.max(low_water.saturating_mul(2));
            }
        })?;
        self.wake(id);
        Ok(())
    }

    fn get_of_socket(&mut self, id: SocketId, name: i32, out: &mut [u8], is_stream: bool) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        let options = &socket.options;
        let flag = |on: bool| i32::from(on);
        let number = match name {
            SO_REUSEADDR => flag(options.reuse_address),
            SO_REUSEPORT => flag(options.reuse_port),
            SO_BROADCAST => flag(options.broadcast),
            SO_KEEPALIVE => flag(options.keepalive),
            SO_RXQ_OVFL => flag(options.ancillary.dropped),
            SO_SNDBUF => options.send_buffer as i32,
            SO_RCVBUF => options.receive_buffer as i32,
            SO_RCVLOWAT => options.receive_low_water as i32,
            SO_SNDLOWAT => 1,
            SO_TYPE => 2 - flag(is_stream),
            SO_DOMAIN => AF_INET.into(),
            SO_PROTOCOL if is_stream => IPPROTO_TCP,
            SO_PROTOCOL => IPPROTO_UDP,
            SO_ACCEPTCONN => flag(matches!(socket.state, State::Listener(_))),
            SO_ERROR => socket.error.take().map_or(0, |error| error.0),
            SO_TIMESTAMP | SO_TIMESTAMPNS | SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW => {
                let Ancillary { timestamp, has_new_times, .. } = options.ancillary;
                let is_unit = match name {
                    SO_TIMESTAMP => timestamp == Some(TimestampResolution::Microseconds),
                    // Also reads as set after `SO_TIMESTAMPNS_NEW`, as on Linux.
                    SO_TIMESTAMP_NEW => timestamp.is_some(),
                    _ => timestamp == Some(TimestampResolution::Nanoseconds),
                };
                let is_new = matches!(name, SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW);
                flag(is_unit && is_new == has_new_times)
            }
            SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => {
                let is_set = name == SO_TIMESTAMPING || options.ancillary.has_new_times;
                let flags = if is_set { options.timestamping.0 } else { 0 };
                return Ok(put(out, [flags, 0].map(u32::to_ne_bytes).as_flattened()));
            }
            SO_ZEROCOPY => flag(options.zerocopy),
            SO_SELECT_ERR_QUEUE => flag(options.select_error_queue),
            SO_LINGER => {
                let seconds = match options.linger {
                    Some(linger) => (linger.as_nanos() / 1_000_000_000) as u32,
                    None => socket.raw.linger_seconds,
                };
                let both = [u32::from(options.linger.is_some()), seconds];
                return Ok(put(out, both.map(u32::to_ne_bytes).as_flattened()));
            }
            SO_RCVTIMEO | SO_RCVTIMEO_NEW => return Ok(put_timeval(out, options.receive_timeout)),
            SO_SNDTIMEO | SO_SNDTIMEO_NEW => return Ok(put_timeval(out, options.send_timeout)),
            SO_MAX_PACING_RATE if is_stream => {
                let rate = options.pacing_rate.unwrap_or(u64::MAX);
                if out.len() >= 8 {
                    return Ok(put(out, &rate.to_ne_bytes()));
                }
                rate.min(u32::MAX.into()) as i32
            }
            SO_COOKIE if out.len() < 8 => return Err(Errno::EINVAL),
            SO_COOKIE => return Ok(put(out, &id.cookie().to_ne_bytes())),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(put_int(out, number))
    }

    /// Linux `do_ip_setsockopt`.
    fn set_of_ip(
        &mut self,
        id: SocketId,
        name: i32,
        value: &[u8],
        is_stream: bool,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let number = int_or_byte(value);
        let on = number != 0;
        match name {
            IP_PKTINFO => self.change(id, cx, |options| options.ancillary.packet_info = on),
            IP_RECVORIGDSTADDR => self.change(id, cx, |options| options.ancillary.original_destination = on),
            IP_MINTTL if value.is_empty() || !(0..=255).contains(&number) => Err(Errno::EINVAL),
            // The machine does not look at the TTL of segments.
            IP_MINTTL if is_stream && on => Err(Errno::ENOPROTOOPT),
            IP_MINTTL => self.change(id, cx, |options| options.ttl_min = number as u8),
            IP_RECVTTL => self.change(id, cx, |options| options.ancillary.ttl = on),
            IP_RECVTOS => self.change(id, cx, |options| options.ancillary.tos = on),
            IP_RECVERR => {
                let socket = self.find(id)?;
                socket.options.receive_errors = on;
                if let Some(error_queue) = socket.error_queue.as_mut().filter(|_| !on) {
                    error_queue.purge();
                }
                Ok(())
            }
            IP_TOS => self.change(id, cx, |options| {
                // The connection itself sets the ECN bits.
                options.tos = if is_stream { number as u8 & !3 } else { number as u8 };
            }),
            IP_TTL => match number {
                _ if value.is_empty() => Err(Errno::EINVAL),
                -1 => self.change(id, cx, |options| options.ttl = Options::default().ttl),
                1..=255 => self.change(id, cx, |options| options.ttl = number as u8),
                _ => Err(Errno::EINVAL),
            },
            IP_MTU_DISCOVER => {
                let discover = match number {
                    0 => MtuDiscover::Dont,
                    1 => MtuDiscover::Want,
                    2 => MtuDiscover::Do,
                    // These modes send datagrams above the path MTU or ignore routers' reports: not
                    // supported.
                    3..=5 => return Err(Errno::ENOPROTOOPT),
                    _ => return Err(Errno::EINVAL),
                };
                self.find(id)?.raw.mtu_discover = discover;
                self.change(id, cx, |options| options.dont_fragment = discover == MtuDiscover::Do)
            }
            IP_BIND_ADDRESS_NO_PORT => {
                self.find(id)?.raw.binds_no_port = on;
                Ok(())
            }
            IP_MULTICAST_LOOP if value.is_empty() => Err(Errno::EINVAL),
            IP_MULTICAST_LOOP => self.change(id, cx, |options| options.multicast_loop = on),
            IP_MULTICAST_ALL if value.is_empty() || !(0..=1).contains(&number) => Err(Errno::EINVAL),
            IP_MULTICAST_ALL => self.change(id, cx, |options| options.multicast_all = on),
            IP_MULTICAST_TTL if is_stream || value.is_empty() || !(-1..=255).contains(&number) => Err(Errno::EINVAL),
            IP_MULTICAST_TTL => {
                let ttl = if number == -1 { 1 } else { number as u8 };
                self.change(id, cx, |options| options.multicast_ttl = ttl)
            }
            IP_MULTICAST_IF if is_stream => Err(Errno::EINVAL),
            IP_MULTICAST_IF => self.set_multicast_source(id, value, cx),
            IP_ADD_MEMBERSHIP | IP_DROP_MEMBERSHIP if is_stream => Err(Errno::EPROTO),
            IP_ADD_MEMBERSHIP | IP_DROP_MEMBERSHIP => {
                let [group, address] = words(value).ok_or(Errno::EINVAL)?.map(address_of);
                let idx = word(value, 8).unwrap_or(0);
                self.set_member(id, group, idx, address, name == IP_ADD_MEMBERSHIP, cx)
            }
            MCAST_JOIN_GROUP | MCAST_LEAVE_GROUP => {
                let idx = word(value, 0).filter(|_| value.len() >= GROUP_REQ_LEN).ok_or(Errno::EINVAL)?;
                let group = address_in(value, 8).ok_or(Errno::EINVAL)?;
                self.set_member(id, group, idx, Ipv4Addr::UNSPECIFIED, name == MCAST_JOIN_GROUP, cx)
            }
            IP_ADD_SOURCE_MEMBERSHIP | IP_DROP_SOURCE_MEMBERSHIP | IP_BLOCK_SOURCE | IP_UNBLOCK_SOURCE => {
                let [group, address, source] =
                    words(value).filter(|_| value.len() == 12).ok_or(Errno::EINVAL)?.map(address_of);
                let of = self.group_of(group, 0, address, cx)?;
                self.change_source(id, of, source, change_of(name), cx)
            }
            MCAST_JOIN_SOURCE_GROUP | MCAST_LEAVE_SOURCE_GROUP | MCAST_BLOCK_SOURCE | MCAST_UNBLOCK_SOURCE => {
                let idx = word(value, 0).filter(|_| value.len() == GROUP_SOURCE_REQ_LEN).ok_or(Errno::EINVAL)?;
                let (group, source) = address_in(value, 8).zip(address_in(value, 136)).ok_or(Errno::EADDRNOTAVAIL)?;
                let of = self.group_of(group, idx, Ipv4Addr::UNSPECIFIED, cx)?;
                self.change_source(id, of, source, change_of(name), cx)
            }
            IP_MSFILTER | MCAST_MSFILTER => self.set_filter_of_group(id, name, value, cx),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// `struct ip_msfilter` and `struct group_filter` (Linux `ip_mc_msfilter`).
    fn set_filter_of_group(&mut self, id: SocketId, name: i32, value: &[u8], cx: &mut Cx<'_>) -> Result<(), Errno> {
        let head = if name == IP_MSFILTER { 8 } else { 136 };
        let (mode, count) = word(value, head).zip(word(value, head + 4)).ok_or(Errno::EINVAL)?;
        if count as usize > SOURCES_MAX {
            return Err(Errno::ENOBUFS);
        }
        let size = if name == IP_MSFILTER { 4 } else { 128 };
        let from = head + 8;
        if value.len() < from + size * count as usize {
            return Err(Errno::EINVAL);
        }
        let (group, idx, address) = if name == IP_MSFILTER {
            let [group, address] = words(value).ok_or(Errno::EINVAL)?.map(address_of);
            (group, 0, address)
        } else {
            let group = address_in(value, 8).ok_or(Errno::EADDRNOTAVAIL)?;
            (group, word(value, 0).ok_or(Errno::EINVAL)?, Ipv4Addr::UNSPECIFIED)
        };
        let sources = (0..count as usize).map(|place| match name {
            IP_MSFILTER => word(value, from + size * place).map(address_of),
            _ => address_in(value, from + size * place),
        });
        let sources = sources.collect::<Option<Vec<Ipv4Addr>>>().ok_or(Errno::EADDRNOTAVAIL)?;
        let mode = match mode {
            0 => FilterMode::Exclude,
            1 => FilterMode::Include,
            _ => return Err(Errno::EINVAL),
        };
        let of = self.group_of(group, idx, address, cx)?;
        self.replace_sources(id, of, mode, sources, cx)
    }

    fn set_member(
        &mut self,
        id: SocketId,
        group: Ipv4Addr,
        interface_idx: u32,
        address: Ipv4Addr,
        joins: bool,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        if joins {
            let of = self.group_of(group, interface_idx, address, cx)?;
            return self.join_group(id, of, FilterMode::Exclude, cx);
        }
        match self.group_of(group, interface_idx, address, cx) {
            // The interface alone identifies the membership.
            Ok(of) => self.leave_group(id, GroupRequest { address: Ipv4Addr::UNSPECIFIED, ..of }, cx),
            // The group may have been joined by an interface index, with a foreign address beside
            // it.
            Err(Errno::ENODEV) if interface_idx == 0 => {
                self.leave_group(id, GroupRequest { group, interface: InterfaceId::ANY, address }, cx)
            }
            Err(_) => Err(Errno::EADDRNOTAVAIL),
        }
    }

    /// Finds the interface (Linux `ip_mc_find_dev`): there is only ours.
    fn group_of(
        &self,
        group: Ipv4Addr,
        interface_idx: u32,
        address: Ipv4Addr,
        cx: &Cx<'_>,
    ) -> Result<GroupRequest, Errno> {
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        let is_ours = match interface_idx {
            0 => address.is_unspecified() || cx.host.is_own(address),
            idx => idx == self.system.interface_idx,
        };
        if !is_ours {
            return Err(Errno::ENODEV);
        }
        Ok(GroupRequest { group, interface: InterfaceId::ANY, address })
    }

    fn set_multicast_source(&mut self, id: SocketId, value: &[u8], cx: &mut Cx<'_>) -> Result<(), Errno> {
        // `struct in_addr`, or `ip_mreq`, or `ip_mreqn`.
        let at = if value.len() >= 8 { 4 } else { 0 };
        let address = word(value, at).map(address_of).ok_or(Errno::EINVAL)?;
        let is_ours = match word(value, 8).unwrap_or(0) {
            0 => address.is_unspecified() || cx.host.is_own(address),
            idx => idx == self.system.interface_idx,
        };
        if !is_ours {
            return Err(Errno::EADDRNOTAVAIL);
        }
        self.change(id, cx, |options| options.multicast_source = address)
    }

    fn get_of_ip(&mut self, id: SocketId, name: i32, out: &mut [u8]) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        let (options, raw) = (&socket.options, &socket.raw);
        let number = match name {
            IP_PKTINFO => options.ancillary.packet_info.into(),
            IP_RECVORIGDSTADDR => options.ancillary.original_destination.into(),
            IP_MINTTL => options.ttl_min.into(),
            IP_RECVTTL => options.ancillary.ttl.into(),
            IP_RECVTOS => options.ancillary.tos.into(),
            IP_RECVERR => options.receive_errors.into(),
            IP_TOS => options.tos.into(),
            IP_TTL => options.ttl.into(),
            IP_MTU_DISCOVER => raw.mtu_discover as i32,
            IP_BIND_ADDRESS_NO_PORT => raw.binds_no_port.into(),
            IP_MULTICAST_LOOP => options.multicast_loop.into(),
            IP_MULTICAST_ALL => options.multicast_all.into(),
            IP_MULTICAST_TTL => options.multicast_ttl.into(),
            IP_MULTICAST_IF => return Ok(put(out, &options.multicast_source.octets())),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        match u8::try_from(number) {
            Ok(byte) if (1..4).contains(&out.len()) => Ok(put(out, &[byte])),
            _ => Ok(put_int(out, number)),
        }
    }

    /// Linux `do_tcp_setsockopt`.
    fn set_of_tcp(&mut self, id: SocketId, name: i32, value: &[u8], cx: &mut Cx<'_>) -> Result<(), Errno> {
        if name == TCP_CONGESTION {
            let congestion = congestion_of(value)?;
            return self.change(id, cx, |options| options.congestion = congestion);
        }
        let number = int(value)?;
        let on = number != 0;
        match name {
            TCP_NODELAY => self.change(id, cx, |options| options.nodelay = on),
            TCP_CORK => {
                self.change(id, cx, |options| options.cork = on)?;
                if on { Ok(()) } else { self.push_pending(id, cx) }
            }
            TCP_QUICKACK => {
                self.find(id)?.raw.is_quickack_off = !on;
                self.change(id, cx, |options| options.quickack = on)
            }
            TCP_SYNCNT if (1..=127).contains(&number) => {
                self.change(id, cx, |options| options.syn_retries = number as u8)
            }
            TCP_SYNCNT => Err(Errno::EINVAL),
            TCP_LINGER2 => {
                let span = match number {
                    0 => Options::default().fin_wait,
                    _ if number < 0 => Duration::ZERO,
                    _ => Duration::from_secs(number as u64).min(ConnectionOptions::FIN_WAIT_MAX),
                };
                self.change(id, cx, |options| options.fin_wait = span)
            }
            TCP_DEFER_ACCEPT => {
                self.find(id)?.raw.defer_accept = retransmissions_in(number);
                Ok(())
            }
            TCP_WINDOW_CLAMP if number == 0 => match &self.find(id)?.state {
                State::Stream(stream) if stream.connection.is_none() => {
                    self.change(id, cx, |options| options.window_clamp = None)
                }
                _ => Err(Errno::EINVAL),
            },
            TCP_WINDOW_CLAMP => {
                let clamp = number.max(RECEIVE_BUFFER_MIN as i32 / 2) as u32;
                self.change(id, cx, |options| options.window_clamp = Some(clamp))
            }
            TCP_NOTSENT_LOWAT => {
                self.change(id, cx, |options| options.unsent_low_water = (number != 0).then_some(number as u32))
            }
            TCP_MAXSEG if number == 0 => self.change(id, cx, |options| options.mss_max = None),
            TCP_MAXSEG if MSS.contains(&number) => self.change(id, cx, |options| options.mss_max = Some(number as u16)),
            TCP_KEEPIDLE if KEEPALIVE_SECONDS.contains(&number) => {
                self.change_keepalive(id, cx, |times| times.idle = Duration::from_secs(number as u64))
            }
            TCP_KEEPINTVL if KEEPALIVE_SECONDS.contains(&number) => {
                self.change_keepalive(id, cx, |times| times.interval = Duration::from_secs(number as u64))
            }
            TCP_KEEPCNT if KEEPALIVE_COUNT.contains(&number) => {
                self.change_keepalive(id, cx, |times| times.count = number as u8)
            }
            TCP_USER_TIMEOUT if number >= 0 => {
                let timeout = (number > 0).then(|| Duration::from_millis(number as u64));
                self.change(id, cx, |options| options.user_timeout = timeout)
            }
            TCP_MAXSEG | TCP_KEEPIDLE | TCP_KEEPINTVL | TCP_KEEPCNT | TCP_USER_TIMEOUT => Err(Errno::EINVAL),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn change_keepalive(
        &mut self,
        id: SocketId,
        cx: &mut Cx<'_>,
        act: impl FnOnce(&mut Keepalive),
    ) -> Result<(), Errno> {
        self.change(id, cx, |options| act(&mut options.keepalive_times))
    }

    fn get_of_tcp(&mut self, id: SocketId, name: i32, out: &mut [u8], cx: &mut Cx<'_>) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        let (options, raw) = (socket.options, socket.raw);
        let info = match &socket.state {
            State::Stream(stream) => {
                let lives = stream.connection.and_then(|connection| cx.tcp().info(connection));
                lives.or(stream.last_info.as_deref().copied())
            }
            State::Listener(_) | State::Datagram(_) => None,
        };
        let number = match name {
            TCP_NODELAY => options.nodelay.into(),
            TCP_CORK => options.cork.into(),
            TCP_QUICKACK => (!raw.is_quickack_off).into(),
            TCP_MAXSEG => info.map_or(options.mss_max.unwrap_or(MSS_UNKNOWN), |info| info.snd_mss).into(),
            TCP_KEEPIDLE => seconds(options.keepalive_times.idle),
            TCP_KEEPINTVL => seconds(options.keepalive_times.interval),
            TCP_KEEPCNT => options.keepalive_times.count.into(),
            TCP_USER_TIMEOUT => options.user_timeout.map_or(0, |timeout| (timeout.as_nanos() / 1_000_000) as i32),
            TCP_SYNCNT => options.syn_retries.into(),
            TCP_LINGER2 if options.fin_wait == Duration::ZERO => -1,
            TCP_LINGER2 => seconds(options.fin_wait),
            TCP_DEFER_ACCEPT => seconds_of(raw.defer_accept) as i32,
            TCP_WINDOW_CLAMP => options.window_clamp.unwrap_or(0) as i32,
            TCP_NOTSENT_LOWAT => options.unsent_low_water.unwrap_or(0) as i32,
            TCP_CONGESTION => {
                let mut name = [0; CONGESTION_NAME_LEN];
                put(&mut name, name_of(options.congestion));
                return Ok(put(out, &name));
            }
            TCP_INFO => return Ok(put(out, &tcp_info(socket, info.as_ref(), &options))),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(put_int(out, number))
    }
}

/// The SYN-ACKs that are sent again within `seconds`, the first after one, each after twice the
/// time, 120 s at most (Linux `secs_to_retrans`).
fn retransmissions_in(seconds: i32) -> u8 {
    match u32::try_from(seconds) {
        Ok(0) | Err(_) => 0,
        Ok(seconds) => (1..u8::MAX).find(|count| seconds_of(*count) >= seconds).unwrap_or(u8::MAX),
    }
}

/// Seconds until this number of retransmissions is sent (Linux `retrans_to_secs`).
fn seconds_of(retransmissions: u8) -> u32 {
    (0..retransmissions).map(|count| 1_u32.checked_shl(count.into()).map_or(120, |wait| wait.min(120))).sum()
}

/// An `int`: all four bytes are required.
fn int(value: &[u8]) -> Result<i32, Errno> {
    word(value, 0).map(|word| word as i32).ok_or(Errno::EINVAL)
}

/// An `int`; a shorter value is read as one byte, an empty one as 0.
fn int_or_byte(value: &[u8]) -> i32 {
    int(value).unwrap_or_else(|_| value.first().map_or(0, |byte| i32::from(*byte)))
}

fn word(value: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(at..at + 4)?.try_into().ok()?))
}

fn words<const COUNT: usize>(value: &[u8]) -> Option<[u32; COUNT]> {
    let mut found = [0; COUNT];
    for (idx, found) in found.iter_mut().enumerate() {
        *found = word(value, idx * 4)?;
    }
    Some(found)
}

/// An address in the order of the network.
fn address_of(word: u32) -> Ipv4Addr {
    Ipv4Addr::from(word.to_ne_bytes())
}

/// The address in the `struct sockaddr_storage` at an offset, if it is IPv4.
fn address_in(value: &[u8], at: usize) -> Option<Ipv4Addr> {
    let family = u16::from_ne_bytes(value.get(at..at + 2)?.try_into().ok()?);
    word(value, at + 4).map(address_of).filter(|_| family == AF_INET)
}

fn doubled(asked: u32, min: u32) -> u32 {
    asked.saturating_mul(2).clamp(min, BUFFER_MAX)
}

/// Linux `sock_set_timeout`: zero means no timeout, a negative time means not to wait.
fn timeout(value: &[u8]) -> Result<Option<Duration>, Errno> {
    let long = |at: usize| value.get(at..at + 8).and_then(|long| Some(i64::from_ne_bytes(long.try_into().ok()?)));
    let (seconds, micros) = long(0).zip(long(8)).ok_or(Errno::EINVAL)?;
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::EDOM);
    }
    if seconds < 0 {
        return Ok(Some(Duration::ZERO));
    }
    let span = (seconds as u64).checked_mul(1_000_000_000).and_then(|nanos| nanos.checked_add(micros as u64 * 1_000));
    Ok(span.filter(|nanos| *nanos > 0).map(Duration::from_nanos))
}

fn change_of(name: i32) -> SourceChange {
    match name {
        IP_ADD_SOURCE_MEMBERSHIP | MCAST_JOIN_SOURCE_GROUP => SourceChange::Join,
        IP_DROP_SOURCE_MEMBERSHIP | MCAST_LEAVE_SOURCE_GROUP => SourceChange::Leave,
        IP_BLOCK_SOURCE | MCAST_BLOCK_SOURCE => SourceChange::Block,
        _ => SourceChange::Unblock,
    }
}

/// A name of a congestion control, up to its NUL.
fn congestion_of(value: &[u8]) -> Result<Congestion, Errno> {
    if value.is_empty() {
        return Err(Errno::EINVAL);
    }
    let value = &value[..value.len().min(CONGESTION_NAME_LEN - 1)];
    match value.split(|byte| *byte == 0).next() {
        Some(b"cubic") => Ok(Congestion::Cubic),
        Some(b"reno") => Ok(Congestion::Reno),
        _ => Err(Errno::ENOENT),
    }
}

fn name_of(congestion: Congestion) -> &'static [u8] {
    match congestion {
        Congestion::Reno => b"reno",
        Congestion::Cubic => b"cubic",
        _ => b"none",
    }
}

fn seconds(span: Duration) -> i32 {
    (span.as_nanos() / 1_000_000_000) as i32
}

/// Copies as many bytes as there is room for, and returns their number.
fn put(out: &mut [u8], value: &[u8]) -> usize {
    let len = value.len().min(out.len());
    out[..len].copy_from_slice(&value[..len]);
    len
}

fn put_int(out: &mut [u8], number: i32) -> usize {
    put(out, &number.to_ne_bytes())
}

fn put_timeval(out: &mut [u8], timeout: Option<Duration>) -> usize {
    let nanos = timeout.map_or(0, Duration::as_nanos);
    let mut value = [0; TIMEVAL_LEN];
    value[..8].copy_from_slice(&(nanos / 1_000_000_000).to_ne_bytes());
    value[8..].copy_from_slice(&(nanos % 1_000_000_000 / 1_000).to_ne_bytes());
    put(out, &value)
}

/// `struct tcp_info`, with 0 in unknown fields.
fn tcp_info(socket: &Socket, info: Option<&TcpInfo>, options: &Options) -> [u8; TCP_INFO_LEN] {
    const ESTABLISHED_BITS: [u8; 4] = [1, 2, 4, 8];
    let mut out = [0; TCP_INFO_LEN];
    out[0] = match (&socket.state, info) {
        (State::Listener(_), _) => 10,
        (_, Some(info)) => state_of(info.state),
        (_, None) => 7,
    };
    let mut put = |at: usize, number: u32| out[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    if let State::Listener(listener) = &socket.state {
        // The length of the queue, and its limit.
        put(24, listener.len() as u32);
        put(28, listener.backlog() as u32);
    }
    let Some(info) = info else { return out };
    let micros = |span: Duration| u32::try_from(span.as_nanos() / 1_000).unwrap_or(u32::MAX);
    let millis = |span: Duration| u32::try_from(span.as_nanos() / 1_000_000).unwrap_or(u32::MAX);
    let mss = u32::from(info.snd_mss).max(1);
    let segments = |bytes: u32| bytes.div_ceil(mss);
    let words = [
        (8, micros(info.rto)),
        (16, info.snd_mss.into()),
        (20, info.rcv_mss.into()),
        (24, segments(info.unacked_len)),
        (28, segments(info.sacked_len)),
        (32, segments(info.lost_len)),
        (36, segments(info.resent_len)),
        (52, millis(info.silence)),
        (56, millis(info.silence)),
        (68, micros(info.srtt)),
        (72, micros(info.rttvar)),
        (76, if info.ssthresh == u32::MAX { i32::MAX as u32 } else { segments(info.ssthresh) }),
        (80, segments(info.cwnd)),
        (84, info.rcv_mss.into()),
        (100, info.resent_segments),
        (136, info.segments_out as u32),
        (140, info.segments_in as u32),
        (144, info.unsent_len),
        (148, micros(info.rtt_min)),
        (216, info.dsacks),
        (220, info.reordering_seen.into()),
        (228, info.snd_wnd),
        (232, info.rcv_wnd),
    ];
    words.into_iter().for_each(|(at, number)| put(at, number));
    let longs = [
        (104, info.pacing_rate.unwrap_or(u64::MAX)),
        (112, options.pacing_rate.unwrap_or(u64::MAX)),
        (120, info.bytes_acked),
        (128, info.bytes_received),
        (200, info.bytes_sent),
    ];
    longs.into_iter().for_each(|(at, number)| out[at..at + 8].copy_from_slice(&number.to_ne_bytes()));
    // Open, or Recovery.
    out[1] = if info.recovering { 3 } else { 0 };
    (out[3], out[4]) = (info.probes, info.backoff);
    let has_scale = info.snd_wscale > 0 || info.rcv_wscale > 0;
    let negotiated = [info.timestamps, info.sack, has_scale, info.ecn];
    out[5] = negotiated.into_iter().zip(ESTABLISHED_BITS).filter(|(on, _)| *on).map(|(_, bit)| bit).sum();
    out[6] = info.snd_wscale | info.rcv_wscale << 4;
    out[240..242].copy_from_slice(&(info.timeouts as u16).to_ne_bytes());
    out
}

/// `TCP_ESTABLISHED` and the others.
fn state_of(state: TcpState) -> u8 {
    match state {
        TcpState::Established => 1,
        TcpState::SynSent => 2,
        TcpState::SynReceived => 3,
        TcpState::FinWait1 => 4,
        TcpState::FinWait2 => 5,
        TcpState::TimeWait => 6,
        TcpState::Closed => 7,
        TcpState::CloseWait => 8,
        TcpState::LastAck => 9,
        TcpState::Closing => 11,
    }
}
