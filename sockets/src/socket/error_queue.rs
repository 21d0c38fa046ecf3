//! The error queue of a socket (`MSG_ERRQUEUE`): ICMP errors about its flows, stamps of sent
//! messages, and completions of `MSG_ZEROCOPY`. A socket without these options has none.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::VecDeque;

use wirepath::time::Instant;

use crate::errno::Errno;
use crate::timestamping::{MessageTimestamps, Timestamping};

/// Bytes that an entry counts as in `SO_RCVBUF`, beside its own: the kernel's `truesize` of an
/// empty packet.
const ENTRY_CHARGE: usize = 768;
/// Sent messages of a socket that wait for a stamp.
const AWAITED_MAX: usize = 1_024;
/// `SO_EE_CODE_ZEROCOPY_COPIED`
const COPIED: u8 = 1;

/// Where an entry comes from: `SO_EE_ORIGIN_LOCAL` and so on, by the numbers of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// 1: this host refused to send a datagram.
    Local = 1,
    /// 2: an ICMP error.
    Icmp = 2,
    /// 4: the stamp of a sent message.
    Timestamping = 4,
    /// 5: the completion of `MSG_ZEROCOPY`.
    Zerocopy = 5,
}

/// The packet that an entry is about: that of the ICMP error, or the one that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedPacket {
    /// Its source. The preferred source (`ipi_spec_dst`) of a sent packet.
    pub source: Ipv4Addr,
    /// Its destination (`ipi_addr`).
    pub destination: Ipv4Addr,
    /// `IP_RECVTTL`.
    pub ttl: u8,
    /// `IP_RECVTOS`.
    pub tos: u8,
}

/// An entry of the error queue: `struct sock_extended_err`, and what `recvmsg` returns beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedError {
    /// `ee_errno`; `Errno(0)` for the completion of `MSG_ZEROCOPY`, `ENOMSG` for a stamp.
    pub errno: Errno,
    /// `ee_origin`.
    pub origin: ErrorOrigin,
    /// `ee_type`: that of the ICMP message.
    pub kind: u8,
    /// `ee_code`: that of the ICMP message; 1 where `MSG_ZEROCOPY` has copied.
    pub code: u8,
    /// `ee_info`: the path MTU; the kind of a stamp (0 sent, 1 queued, 2 acknowledged); the first
    /// call that is completed.
    pub info: u32,
    /// `ee_data`: the number of a stamp; the last call that is completed.
    pub data: u32,
    /// `SO_EE_OFFENDER`: the sender of the ICMP error.
    pub offender: Option<Ipv4Addr>,
    /// The destination of the datagram, which `recvmsg` returns as the address.
    pub destination: Option<SocketAddrV4>,
    /// The bytes: of the datagram as the ICMP error quotes it, or the frame that was stamped.
    pub payload: Box<[u8]>,
    /// The packet for control messages; `None` where Linux returns none.
    pub packet: Option<QueuedPacket>,
    /// The stamp.
    pub times: MessageTimestamps,
}

impl QueuedError {
    fn new(errno: Errno, origin: ErrorOrigin) -> Self {
        let payload = Box::default();
        let (offender, destination, packet, times) = (None, None, None, MessageTimestamps::default());
        Self { errno, origin, kind: 0, code: 0, info: 0, data: 0, offender, destination, payload, packet, times }
    }

    /// An ICMP error, of this type and code, about a datagram.
    pub(crate) fn icmp(errno: Errno, (kind, code): (u8, u8), offender: Ipv4Addr, destination: SocketAddrV4) -> Self {
        let (offender, destination) = (Some(offender), Some(destination));
        Self { kind, code, offender, destination, ..Self::new(errno, ErrorOrigin::Icmp) }
    }

    /// A datagram that is longer than the path allows (Linux `ip_local_error`).
    pub(crate) fn too_long(mtu: u32, destination: SocketAddrV4) -> Self {
        Self { info: mtu, destination: Some(destination), ..Self::new(Errno::EMSGSIZE, ErrorOrigin::Local) }
    }

    /// A stamp of a sent message.
    pub(crate) fn stamp(of: TimestampKind, number: u32, times: MessageTimestamps) -> Self {
        Self { info: of as u32, data: number, times, ..Self::new(Errno::ENOMSG, ErrorOrigin::Timestamping) }
    }

    fn charge(&self) -> usize {
        ENTRY_CHARGE + self.payload.len()
    }

    fn is_icmp(&self) -> bool {
        self.origin == ErrorOrigin::Icmp
    }
}

/// The event that a timestamp is of (`SCM_TSTAMP_SND` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimestampKind {
    Sent = 0,
    Queued = 1,
    Acknowledged = 2,
}

/// A sent message whose stamps are not all known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingStamps {
    pub(crate) until: AwaitedEvent,
    /// The number by which `OPT_ID` reports it.
    pub(crate) number: u32,
    /// The stamps that are missing.
    pub(crate) flags: Timestamping,
}

/// The event that a timestamp waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AwaitedEvent {
    /// The bytes of the stream up to this one are sent, or acknowledged.
    Byte(u64),
    /// The next hop of a datagram replies, by this time.
    Neighbor(Ipv4Addr, Instant),
}

/// The error queue of a socket (`MSG_ERRQUEUE`): errors and timestamps that it has asked for.
#[derive(Debug, Default)]
pub(crate) struct ErrorQueue {
    queue: VecDeque<QueuedError>,
    charge: usize,
    /// Stamps that are not there yet, the oldest first.
    pub(crate) awaited: VecDeque<PendingStamps>,
    /// The socket is in the table's list of those that await stamps.
    pub(crate) is_listed: bool,
    /// The number of the next stamped datagram.
    pub(crate) next_datagram: u32,
    /// The byte of the stream that has number 0.
    pub(crate) first_byte: i64,
    /// The number of the next call with `MSG_ZEROCOPY`.
    next_zerocopy: u32,
}

impl ErrorQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds an entry, unless the entries fill the receive buffer (Linux `sock_queue_err_skb`).
    pub(crate) fn push(&mut self, entry: QueuedError, receive_buffer: usize) -> bool {
        if self.charge + entry.charge() >= receive_buffer {
            return false;
        }
        self.charge += entry.charge();
        self.queue.push_back(entry);
        true
    }

    /// Completes a call with `MSG_ZEROCOPY`, in one entry with the completion before it (Linux
    /// `skb_zerocopy_notify_extend`).
    pub(crate) fn complete(&mut self, receive_buffer: usize) -> bool {
        let number = self.next_zerocopy;
        self.next_zerocopy = number.wrapping_add(1);
        if let Some(last) = self.queue.back_mut()
            && last.origin == ErrorOrigin::Zerocopy
            && last.data.wrapping_add(1) == number
            && number > last.info
        {
            last.data = number;
            return true;
        }
        let entry = QueuedError::new(Errno(0), ErrorOrigin::Zerocopy);
        self.push(QueuedError { code: COPIED, info: number, data: number, ..entry }, receive_buffer)
    }

    /// Takes the oldest entry. Also returns the new `SO_ERROR` if it changes: that of the next ICMP
    /// error, or none after the last one (Linux `sock_dequeue_err_skb`).
    pub(crate) fn pop(&mut self) -> Option<(QueuedError, Option<Option<Errno>>)> {
        let entry = self.queue.pop_front()?;
        self.charge -= entry.charge();
        let next = self.queue.front().filter(|next| next.is_icmp()).map(|next| next.errno);
        let error = if next.is_some() || entry.is_icmp() { Some(next) } else { None };
        Some((entry, error))
    }

    /// Forgets all entries (`IP_RECVERR` is turned off).
    pub(crate) fn purge(&mut self) {
        self.queue.clear();
        self.charge = 0;
    }

    /// Remembers a sent message until its stamps are known.
    pub(crate) fn await_stamps(&mut self, awaited: PendingStamps) {
        if self.awaited.len() == AWAITED_MAX {
            self.awaited.pop_front();
        }
        self.awaited.push_back(awaited);
    }
}
