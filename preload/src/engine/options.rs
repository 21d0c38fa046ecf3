//! The options that the program has set on a socket before its owner was decided. The twin has
//! taken them; an offloaded socket gets them when it is made.

use core::ffi::c_int;

use sockets::{Errno, Kind, Sockets};

use crate::sys;

/// The calls in their order, one for each option.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options(Vec<OptionCall>);

/// A `setsockopt`.
#[derive(Clone, Debug)]
pub(crate) struct OptionCall {
    pub(crate) level: c_int,
    pub(crate) name: c_int,
    pub(crate) value: Vec<u8>,
}

impl Options {
    /// Adds a call. It replaces an earlier one of the same option, except those of groups, because
    /// a socket has several groups.
    pub(crate) fn push(&mut self, level: c_int, name: c_int, value: &[u8]) {
        self.0.retain(|call| {
            (call.level, call.name) != (level, name) || (is_of_groups(level, name) && call.value != value)
        });
        self.0.push(OptionCall { level, name, value: value.to_vec() });
    }

    /// Forgets the last one, whose call fails after all.
    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }

    /// Those by which a socket that another program has made differs from a new one of its kind.
    /// The kernel does not say which groups it is in, nor whether a filter is attached to it.
    pub(crate) fn of_another_program(fd: c_int, new: c_int) -> Self {
        let mut options = Self::default();
        for (level, name) in READABLE.iter().flat_map(|(level, names)| names.iter().map(|name| (*level, *name))) {
            let [set, default] = [fd, new].map(|fd| value_of(fd, level, name));
            if let Some(value) = set.filter(|set| default.as_ref() != Some(set)) {
                options.push(level, name, &value);
            }
        }
        options
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &OptionCall> {
        self.0.iter()
    }

    /// Why the options keep a socket with the kernel, if they do.
    pub(crate) fn keep_on_kernel(&self, kind: Kind, interface: Interface<'_>) -> Option<&'static str> {
        self.0.iter().find_map(|call| match handled_by(kind, call.level, call.name, &call.value) {
            HandledBy::Kernel => Some("an option that only the kernel has"),
            HandledBy::Device if !interface.is_named_by(call.name, &call.value) => {
                Some("bound to another interface (SO_BINDTODEVICE)")
            }
            HandledBy::Engine | HandledBy::Twin | HandledBy::Device => None,
        })
    }
}

/// Options that a program sets before it gives a socket to another one.
const READABLE: [(c_int, &[c_int]); 5] = [
    (
        libc::SOL_SOCKET,
        &[
            libc::SO_REUSEADDR,
            libc::SO_REUSEPORT,
            libc::SO_KEEPALIVE,
            libc::SO_BROADCAST,
            libc::SO_LINGER,
            libc::SO_RCVBUF,
            libc::SO_SNDBUF,
            libc::SO_RCVTIMEO,
            libc::SO_SNDTIMEO,
            libc::SO_RCVLOWAT,
            libc::SO_BINDTODEVICE,
            libc::SO_MARK,
            libc::SO_DONTROUTE,
            libc::SO_NO_CHECK,
            libc::SO_PEEK_OFF,
            libc::SO_RXQ_OVFL,
            libc::SO_TIMESTAMP,
            libc::SO_TIMESTAMPNS,
            libc::SO_TIMESTAMPING,
            libc::SO_MAX_PACING_RATE,
        ],
    ),
    (
        libc::IPPROTO_IP,
        &[
            libc::IP_TOS,
            libc::IP_TTL,
            libc::IP_MINTTL,
            libc::IP_PKTINFO,
            libc::IP_RECVTOS,
            libc::IP_RECVTTL,
            libc::IP_RECVERR,
            libc::IP_MTU_DISCOVER,
            libc::IP_TRANSPARENT,
            libc::IP_MULTICAST_IF,
            libc::IP_MULTICAST_TTL,
            libc::IP_MULTICAST_LOOP,
        ],
    ),
    (libc::IPPROTO_IPV6, &[libc::IPV6_RECVPKTINFO]),
    (
        libc::IPPROTO_TCP,
        &[
            libc::TCP_NODELAY,
            libc::TCP_MAXSEG,
            libc::TCP_CORK,
            libc::TCP_KEEPIDLE,
            libc::TCP_KEEPINTVL,
            libc::TCP_KEEPCNT,
            libc::TCP_SYNCNT,
            libc::TCP_LINGER2,
            libc::TCP_DEFER_ACCEPT,
            libc::TCP_USER_TIMEOUT,
            libc::TCP_CONGESTION,
            libc::TCP_FASTOPEN,
            libc::TCP_SAVE_SYN,
        ],
    ),
    (libc::IPPROTO_UDP, &[libc::UDP_CORK, UDP_GRO]),
];

/// The value of an option, as it is to be set.
fn value_of(fd: c_int, level: c_int, name: c_int) -> Option<Vec<u8>> {
    let mut bytes = [0; 16];
    let len = sys::getsockopt(fd, level, name, &mut bytes).ok()?;
    let value = &bytes[..len];
    match (level, name, number(value)) {
        // Linux doubles what is set (`sock_set_rcvbuf`).
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_SNDBUF, Some(doubled)) => {
            Some((doubled / 2).to_ne_bytes().to_vec())
        }
        _ => Some(value.to_vec()),
    }
}

/// `IP_ADD_MEMBERSHIP` to `IP_DROP_SOURCE_MEMBERSHIP`, and `MCAST_JOIN_GROUP` to
/// `MCAST_LEAVE_SOURCE_GROUP`.
fn is_of_groups(level: c_int, name: c_int) -> bool {
    level == libc::IPPROTO_IP && matches!(name, 35..=40 | 42..=48)
}

/// The side that carries out an option of an offloaded socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandledBy {
    /// The engine.
    Engine,
    /// The twin alone: our packets cannot differ by it.
    Twin,
    /// The option names an interface: ours, or the socket is the kernel's.
    Device,
    /// The kernel alone: set before the socket is offloaded, the option keeps it there; set later,
    /// it is refused with `ENOPROTOOPT`, as on a kernel without it.
    Kernel,
}

/// Numbers that the crate `libc` does not have.
pub(crate) const SO_BINDTOIFINDEX: c_int = 62;
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;
const SO_TIMESTAMPING_NEW: c_int = 65;
const SO_RCVMARK: c_int = 75;
const SO_RCVPRIORITY: c_int = 82;
const IP_LOCAL_PORT_RANGE: c_int = 51;
const TCP_TX_DELAY: c_int = 37;
const UDP_GRO: c_int = 104;
const IPV6_ADDRFORM: c_int = 1;
const IPV6_TRANSPARENT: c_int = 75;

/// Which side carries out an option of an offloaded socket. No option is accepted without effect
/// where it should have one.
pub(crate) fn handled_by(kind: Kind, level: c_int, name: c_int, value: &[u8]) -> HandledBy {
    const IP_PMTUDISC_WANT: u32 = 1;
    const IP_PMTUDISC_DO: u32 = 2;
    const OPT_STATS: u32 = 1 << 12;
    const BIND_PHC: u32 = 1 << 15;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_BINDTODEVICE | SO_BINDTOIFINDEX) => HandledBy::Device,
        // A stream of ours always discovers the path's MTU.
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)
            if kind == Kind::Stream && !matches!(number(value), Some(IP_PMTUDISC_WANT | IP_PMTUDISC_DO)) =>
        {
            HandledBy::Kernel
        }
        (libc::IPPROTO_IP, libc::IP_MINTTL) if kind == Kind::Stream && !is_default(level, name, value) => {
            // The TCP machine does not look at the TTL of segments.
            HandledBy::Kernel
        }
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) if kind == Kind::Stream && !is_congestion_of_ours(value) => {
            HandledBy::Kernel
        }
        // The twin takes these flags, and the engine refuses them.
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPING | SO_TIMESTAMPING_NEW)
            if number(value).is_some_and(|flags| flags & (OPT_STATS | BIND_PHC) != 0) =>
        {
            HandledBy::Kernel
        }
        (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) if number(value) == Some(0) => HandledBy::Kernel,
        _ if Sockets::has_option(kind, level, name) => HandledBy::Engine,
        _ if is_without_effect(level, name) || is_default(level, name, value) => HandledBy::Twin,
        _ => HandledBy::Kernel,
    }
}

/// Whether an option that the engine carries out is for privileged programs alone.
pub(crate) fn needs_a_right(level: c_int, name: c_int) -> bool {
    level == libc::SOL_SOCKET && matches!(name, libc::SO_SNDBUFFORCE | libc::SO_RCVBUFFORCE)
}

/// The error of an option that only the kernel has, with a value of so many bytes.
pub(crate) fn refusal(kind: Kind, level: c_int, name: c_int, len: usize) -> Errno {
    let is_short = len < size_of::<c_int>();
    match (level, name) {
        // A congestion control that is not loaded.
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) if kind == Kind::Stream => Errno::ENOENT,
        // The kernel looks at the length before it looks for the option.
        (libc::SOL_SOCKET, _) if is_short => Errno::EINVAL,
        (libc::IPPROTO_TCP, _) if is_short && kind == Kind::Stream => Errno::EINVAL,
        // Values of options that we have otherwise.
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPING | SO_TIMESTAMPING_NEW | libc::SO_MAX_PACING_RATE) => Errno::EINVAL,
        _ => Errno::ENOPROTOOPT,
    }
}

/// Whether `getsockopt` asks about a connection: `TCP_CC_INFO`, `TCP_ZEROCOPY_RECEIVE`,
/// `TCP_SAVED_SYN`, `TCP_ULP`.
pub(crate) fn is_about_connection(level: c_int, name: c_int) -> bool {
    level == libc::IPPROTO_TCP && matches!(name, 26 | 28 | 31 | 35)
}

/// Options that our packets cannot differ by, each for its reason.
fn is_without_effect(level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => matches!(
            name,
            // Traces in the kernel's log.
            libc::SO_DEBUG
            // Orders packets in the kernel's queues, which ours do not pass.
            | libc::SO_PRIORITY
            // Urgent bytes stay among the others in any case.
            | libc::SO_OOBINLINE
            // Credentials come by Unix sockets alone.
            | libc::SO_PASSCRED | libc::SO_PASSSEC
            // There is none: a filter keeps the socket on the kernel.
            | libc::SO_DETACH_FILTER
            // Our calls poll in any case, for as long as `--spin` says.
            | libc::SO_BUSY_POLL | SO_PREFER_BUSY_POLL | SO_BUSY_POLL_BUDGET
        ),
        // The kernel's `bind` on the twin has judged the address and chosen the port.
        libc::IPPROTO_IP => matches!(name, libc::IP_FREEBIND | IP_LOCAL_PORT_RANGE),
        // Allows that datagrams come joined, and says where they do: ours never do.
        libc::IPPROTO_UDP => name == UDP_GRO,
        // They are about IPv6 packets, which are the twin's; an IPv4 peer is not concerned (Linux
        // `ipv6_mapped`). `IPV6_RECVPKTINFO` is: its messages are made where they are received.
        libc::IPPROTO_IPV6 => !matches!(name, IPV6_ADDRFORM | IPV6_TRANSPARENT),
        _ => false,
    }
}

/// Whether an option that only the kernel has is set to what our sockets do: mostly off.
fn is_default(level: c_int, name: c_int, value: &[u8]) -> bool {
    let is_off = value.len() <= 8 && value.iter().all(|byte| *byte == 0);
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF | libc::SO_INCOMING_CPU) => number(value) == Some(u32::MAX),
        // No rate is a limit of none.
        (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) => value.len() >= 4 && value.iter().all(|byte| *byte == 0xff),
        (libc::SOL_SOCKET, libc::SO_DONTROUTE | libc::SO_NO_CHECK | libc::SO_MARK | SO_RCVMARK | SO_RCVPRIORITY) => {
            is_off
        }
        (libc::IPPROTO_IP, libc::IP_RECVOPTS | libc::IP_RETOPTS | libc::IP_PASSSEC | libc::IP_TRANSPARENT) => is_off,
        (libc::IPPROTO_IP, libc::IP_MINTTL | libc::IP_UNICAST_IF | 23 | 25 | 26) => is_off,
        (libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS | libc::TCP_THIN_DUPACK | libc::TCP_REPAIR) => is_off,
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN | libc::TCP_FASTOPEN_CONNECT | libc::TCP_SAVE_SYN) => is_off,
        (libc::IPPROTO_TCP, libc::TCP_INQ | TCP_TX_DELAY) => is_off,
        // `UDP_ENCAP`, `UDP_NO_CHECK6_TX` and `_RX`, `UDP_SEGMENT`.
        (libc::IPPROTO_UDP, 100..=103) => is_off,
        _ => false,
    }
}

/// Our interface, by its name and number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interface<'a> {
    pub(crate) name: &'a str,
    pub(crate) idx: u32,
}

impl Interface<'_> {
    /// Whether `SO_BINDTODEVICE` or `SO_BINDTOIFINDEX` names this interface, or none.
    pub(crate) fn is_named_by(self, name: c_int, value: &[u8]) -> bool {
        if name == SO_BINDTOIFINDEX {
            return number(value).is_some_and(|idx| idx == 0 || idx == self.idx);
        }
        let named = value.split(|byte| *byte == 0).next().unwrap_or_default();
        named.is_empty() || named == self.name.as_bytes()
    }
}

fn is_congestion_of_ours(value: &[u8]) -> bool {
    matches!(value.split(|byte| *byte == 0).next(), Some(b"cubic" | b"reno"))
}

fn number(value: &[u8]) -> Option<u32> {
    match value {
        [byte] => Some((*byte).into()),
        _ => Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: [u8; 4] = 1_i32.to_ne_bytes();

    #[test]
    fn option_of_no_room_keeps_the_socket_on_the_kernel() {
        for (level, name) in [
            (libc::SOL_SOCKET, libc::SO_MARK),
            (libc::SOL_SOCKET, libc::SO_PEEK_OFF),
            (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
            (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
            (libc::IPPROTO_IP, libc::IP_MINTTL),
            (libc::IPPROTO_TCP, libc::TCP_FASTOPEN),
            (libc::IPPROTO_TCP, libc::TCP_MD5SIG),
            (libc::IPPROTO_TCP, 9_999),
        ] {
            assert_eq!(handled_by(Kind::Stream, level, name, &ONE), HandledBy::Kernel, "{level} {name}");
        }
        assert_eq!(handled_by(Kind::Datagram, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &ONE), HandledBy::Kernel);
        assert_eq!(handled_by(Kind::Stream, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &ONE), HandledBy::Engine);
    }

    #[test]
    fn value_that_only_the_twin_takes_keeps_a_socket_on_the_kernel() {
        let stamps = |bit: u32| (8_u32 | 1 << bit).to_ne_bytes();
        for (name, value) in
            [(libc::SO_TIMESTAMPING, stamps(12)), (SO_TIMESTAMPING_NEW, stamps(15)), (libc::SO_MAX_PACING_RATE, [0; 4])]
        {
            assert_eq!(handled_by(Kind::Stream, libc::SOL_SOCKET, name, &value), HandledBy::Kernel, "{name}");
        }
        assert_eq!(handled_by(Kind::Stream, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &stamps(4)), HandledBy::Engine);
    }

    #[test]
    fn option_that_is_set_to_what_is_so_anyway_does_not() {
        for (name, value) in [
            (libc::SO_MARK, [0; 4]),
            (libc::SO_PEEK_OFF, [0xff; 4]),
            (libc::SO_MAX_PACING_RATE, [0xff; 4]),
            (libc::SO_PRIORITY, ONE),
        ] {
            assert_eq!(handled_by(Kind::Datagram, libc::SOL_SOCKET, name, &value), HandledBy::Twin, "{name}");
        }
    }

    #[test]
    fn socket_that_is_bound_to_another_interface_is_the_kernels() {
        let (ours, mut options) = (Interface { name: "eth1", idx: 7 }, Options::default());
        options.push(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"eth1\0");
        assert_eq!(options.keep_on_kernel(Kind::Datagram, ours), None);
        options.push(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"lo");
        assert!(options.keep_on_kernel(Kind::Datagram, ours).is_some());
        options.push(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"");
        assert_eq!(options.keep_on_kernel(Kind::Datagram, ours), None);
        assert!(ours.is_named_by(SO_BINDTOIFINDEX, &7_u32.to_ne_bytes()));
        assert!(!ours.is_named_by(SO_BINDTOIFINDEX, &1_u32.to_ne_bytes()));
    }
}
