//! The times of messages: which are asked for (`SO_TIMESTAMP`, `SO_TIMESTAMPING`), and the control
//! messages that report them (Linux `net/core/sock.c`, `net/ipv4/tcp.c`).

use core::ops::BitOr;

use wirepath::time::UnixTime;

use crate::options::{Options, TimestampResolution};
use crate::sockopt::number::{
    SO_TIMESTAMP, SO_TIMESTAMP_NEW, SO_TIMESTAMPING, SO_TIMESTAMPING_NEW, SO_TIMESTAMPNS, SO_TIMESTAMPNS_NEW,
    SOL_SOCKET,
};

/// Flags of `SO_TIMESTAMPING`, by the bits of Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamping(pub u32);

impl Timestamping {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Have the NIC stamp sent messages, where it can.
    pub const TX_HARDWARE: Self = Self(1);
    /// Stamp sent messages when they are given to the device.
    pub const TX_SOFTWARE: Self = Self(1 << 1);
    /// Report stamps of received frames by the NIC.
    pub const RX_HARDWARE: Self = Self(1 << 2);
    /// Stamp received messages in the turn that received them.
    pub const RX_SOFTWARE: Self = Self(1 << 3);
    /// Report software stamps.
    pub const SOFTWARE: Self = Self(1 << 4);
    /// Has no effect, as on Linux.
    pub const SYS_HARDWARE: Self = Self(1 << 5);
    /// Report stamps of the NIC, by its own clock.
    pub const RAW_HARDWARE: Self = Self(1 << 6);
    /// Number the stamps of sent messages: datagrams from 0 on, of a stream the last byte.
    pub const OPT_ID: Self = Self(1 << 7);
    /// Stamp sent messages when they enter the queue of the device.
    pub const TX_SCHED: Self = Self(1 << 8);
    /// Stamp the acknowledgment of a stream's bytes.
    pub const TX_ACK: Self = Self(1 << 9);
    /// Report `IP_PKTINFO` with stamps of sent datagrams.
    pub const OPT_CMSG: Self = Self(1 << 10);
    /// Report stamps of sent messages without the messages.
    pub const OPT_TSONLY: Self = Self(1 << 11);
    /// Report interface and length with stamps of received frames by the NIC.
    pub const OPT_PKTINFO: Self = Self(1 << 13);
    /// Report the software stamp of a sent message also where the NIC stamps it.
    pub const OPT_TX_SWHW: Self = Self(1 << 14);
    /// Number the bytes of a stream from the first one that is not written yet.
    pub const OPT_ID_TCP: Self = Self(1 << 16);
    /// Report stamps of received messages only to a socket that asked for their kind.
    pub const OPT_RX_FILTER: Self = Self(1 << 17);
    /// Stamp the completion of a sent message: no device does, as on Linux for UDP and TCP.
    pub const TX_COMPLETION: Self = Self(1 << 18);

    /// The flags that a call may set for its own message.
    pub const TX_RECORD: Self =
        Self(Self::TX_HARDWARE.0 | Self::TX_SOFTWARE.0 | Self::TX_SCHED.0 | Self::TX_ACK.0 | Self::TX_COMPLETION.0);
    /// All flags but those that we do not have: `OPT_STATS` (bit 12) and `BIND_PHC` (bit 15).
    pub const SUPPORTED: Self = Self((1 << 19) - 1 - (1 << 12) - (1 << 15));

    /// Whether any flag of `other` is set.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether sent messages are stamped.
    #[inline]
    pub(crate) const fn stamps_sent(self) -> bool {
        self.has(Self::TX_RECORD)
    }
}

impl BitOr for Timestamping {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The times of a message (`struct scm_timestamping`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageTimestamps {
    /// By the wall clock: when it was received, or given to the device, or acknowledged.
    pub software: Option<UnixTime>,
    /// By the NIC's clock.
    pub hardware: Option<UnixTime>,
}

/// A control message: level, type, value.
pub type ControlMessage = (i32, i32, Vec<u8>);

const SCM_TIMESTAMPING_PKTINFO: i32 = 58;

/// The message that the times are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageOf {
    /// A received datagram: the interface's number, and the bytes of its frame.
    Datagram { interface_idx: u32, frame_len: u32 },
    /// Received bytes of a stream.
    Stream,
    /// An entry of the error queue.
    ErrorQueue,
}

/// The control messages that report the times of a message (Linux `__sock_recv_timestamp`,
/// `tcp_recv_timestamp`).
pub(crate) fn control_messages(
    times: &MessageTimestamps,
    of: MessageOf,
    options: &Options,
    into: &mut Vec<ControlMessage>,
) {
    let flags = options.timestamping;
    let is_new = options.ancillary.has_new_times;
    let is_sent = of == MessageOf::ErrorQueue;
    // The kernel stamps an arrival only if a socket asks for it.
    let is_stamped = is_sent || options.ancillary.timestamp.is_some() || flags.has(Timestamping::RX_SOFTWARE);
    let software = times.software.filter(|_| is_stamped);
    if let (Some(unit), Some(at)) = (options.ancillary.timestamp, software) {
        let kind = match (unit, is_new) {
            (TimestampResolution::Microseconds, false) => SO_TIMESTAMP,
            (TimestampResolution::Microseconds, true) => SO_TIMESTAMP_NEW,
            (TimestampResolution::Nanoseconds, false) => SO_TIMESTAMPNS,
            (TimestampResolution::Nanoseconds, true) => SO_TIMESTAMPNS_NEW,
        };
        let [seconds, nanos] = split(at);
        let rest = if unit == TimestampResolution::Microseconds { nanos / 1_000 } else { nanos };
        into.push((SOL_SOCKET, kind, [seconds, rest].map(u64::to_ne_bytes).concat()));
    }
    let reports = |reported: Timestamping, asked: Timestamping| {
        flags.has(reported) && (flags.has(asked) || is_sent || !flags.has(Timestamping::OPT_RX_FILTER))
    };
    let software = software.filter(|_| reports(Timestamping::SOFTWARE, Timestamping::RX_SOFTWARE));
    let hardware = times.hardware.filter(|_| reports(Timestamping::RAW_HARDWARE, Timestamping::RX_HARDWARE));
    if let (Some(_), MessageOf::Datagram { interface_idx, frame_len }) = (hardware, of)
        && flags.has(Timestamping::OPT_PKTINFO)
    {
        let value = [interface_idx, frame_len, 0, 0].map(u32::to_ne_bytes).concat();
        into.push((SOL_SOCKET, SCM_TIMESTAMPING_PKTINFO, value));
    }
    if software.is_some() || hardware.is_some() {
        let kind = if is_new { SO_TIMESTAMPING_NEW } else { SO_TIMESTAMPING };
        // The middle one, of the NIC by the wall clock, is always 0 (`SYS_HARDWARE`).
        let value =
            [software, None, hardware].map(|at| at.map_or([0; 2], split)).map(|pair| pair.map(u64::to_ne_bytes));
        into.push((SOL_SOCKET, kind, value.as_flattened().concat()));
    }
}

/// Seconds, and nanoseconds of the next one.
fn split(at: UnixTime) -> [u64; 2] {
    [at.as_nanos() / 1_000_000_000, at.as_nanos() % 1_000_000_000]
}
