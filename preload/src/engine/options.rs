//! The options that the program has set on a socket before its owner was decided. The twin has
//! taken them; an offloaded socket gets them when it is made.

use core::ffi::c_int;

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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &OptionCall> {
        self.0.iter()
    }

    /// Whether the twin has taken an option that the engine cannot apply.
    pub(crate) fn change_what_is_sent(&self) -> bool {
        self.0.iter().any(|call| changes_what_is_sent(call.level, call.name))
    }
}

/// `IP_ADD_MEMBERSHIP` to `IP_DROP_SOURCE_MEMBERSHIP`, and `MCAST_JOIN_GROUP` to
/// `MCAST_LEAVE_SOURCE_GROUP`.
fn is_of_groups(level: c_int, name: c_int) -> bool {
    level == libc::IPPROTO_IP && matches!(name, 35..=40 | 42..=48)
}

/// Options that the engine cannot apply and that change the sent or received bytes: an offloaded
/// socket refuses them, and a socket that has them stays with the kernel.
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
