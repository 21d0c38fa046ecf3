//! What the program has set on a socket before it was decided whose it is. The twin has taken it; a
//! socket of ours gets it when it is made.

use core::ffi::c_int;

/// The calls, in their order, each option once.
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
    /// One call more. It takes the place of an earlier one of the same option, but for those of
    /// groups, which a socket has several of.
    pub(crate) fn push(&mut self, level: c_int, name: c_int, value: &[u8]) {
        self.0.retain(|call| {
            (call.level, call.name) != (level, name) || (is_of_groups(level, name) && call.value != value)
        });
        self.0.push(OptionCall { level, name, value: value.to_vec() });
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &OptionCall> {
        self.0.iter()
    }

    /// Whether the twin has taken one that ours could not.
    pub(crate) fn change_what_is_sent(&self) -> bool {
        self.0.iter().any(|call| changes_what_is_sent(call.level, call.name))
    }
}

/// `IP_ADD_MEMBERSHIP` to `IP_DROP_SOURCE_MEMBERSHIP`, and `MCAST_JOIN_GROUP` and its kin.
fn is_of_groups(level: c_int, name: c_int) -> bool {
    level == libc::IPPROTO_IP && matches!(name, 35..=40 | 42..=48)
}

/// Options that the kernel's twin would take, and that change what is sent or received: a socket of
/// ours refuses them, and one that has them stays the kernel's.
pub(crate) fn changes_what_is_sent(level: c_int, name: c_int) -> bool {
    const TCP_MD5SIG_EXT: c_int = 32;
    const TCP_AO: [c_int; 3] = [38, 39, 40];
    match level {
        libc::SOL_SOCKET => {
            matches!(name, libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF | libc::SO_ATTACH_REUSEPORT_CBPF)
                || name == libc::SO_ATTACH_REUSEPORT_EBPF
        }
        libc::IPPROTO_TCP => {
            matches!(name, libc::TCP_MD5SIG | TCP_MD5SIG_EXT | libc::TCP_ULP | libc::TCP_REPAIR)
                || TCP_AO.contains(&name)
        }
        libc::IPPROTO_UDP => name != libc::UDP_CORK,
        libc::IPPROTO_IP => matches!(name, libc::IP_OPTIONS | libc::IP_HDRINCL | libc::IP_TRANSPARENT),
        _ => false,
    }
}
