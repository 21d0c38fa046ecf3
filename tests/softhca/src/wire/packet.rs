//! A packet socket on an interface as a cable: one end of a veth, or a real NIC.
//!
//! Does the work that the kernel left to a NIC: puts the VLAN tag back, and completes the checksum.
//! Counts frames that came while the socket was full, and frames that are too long for the
//! interface.

use std::io;
use std::os::fd::OwnedFd;

use super::gate::{self, Gate};
use super::port::Cable;
use super::sys::{self, BATCH, Batch, InterfaceRequest, Received};
use crate::hca::LinkState;

/// The bytes that the kernel may buffer for us; it doubles this number. A frame of 64 bytes counts
/// as some 800, so half a million of them can wait while the model gets no processor time, if the
/// machine has the memory. Memory is used only when frames wait.
const WAITING_LEN_MAX: libc::c_int = 256 << 20;
/// The interval at which the state of the link is read: a driver learns of a change late, as with
/// hardware.
const LINK_NS: u64 = 10_000_000;

/// The cable.
pub struct PacketSocket {
    interface: String,
    /// `None` where another process has the interface: then only the link is looked at.
    sockets: Option<Sockets>,
    outgoing: Vec<Vec<u8>>,
    /// How many of them are waiting to be sent, from the first.
    waiting: usize,
    incoming: Batch,
    link: LinkState,
    link_ns: u64,
    counters: WireCounters,
}

/// How often a name that is taken is tried again, and how soon: 100 ms in all.
const CLAIM_TRIES: u32 = 20;
const CLAIM_PERIOD: std::time::Duration = std::time::Duration::from_millis(5);

struct Sockets {
    incoming: OwnedFd,
    outgoing: OwnedFd,
    to_kernel: OwnedFd,
    /// `None` where the kernel cannot have one, and sees everything.
    gate: Option<Gate>,
    _claim: OwnedFd,
}

#[derive(Default)]
struct WireCounters {
    full: u64,
    too_long: u64,
    refused: u64,
    uncut: u64,
}

/// Claims a name, after a process that has just ended has released it. Whoever waits for such a
/// process sees its standard output close before its other sockets do.
fn claim(name: &str) -> io::Result<OwnedFd> {
    for _ in 0..CLAIM_TRIES {
        match sys::claim(name) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => std::thread::sleep(CLAIM_PERIOD),
            done => return done,
        }
    }
    sys::claim(name)
}

impl PacketSocket {
    /// On an interface of this network namespace.
    ///
    /// # Errors
    /// No such interface, or no CAP_NET_RAW.
    pub fn open(interface: &str) -> io::Result<Self> {
        let ifindex = sys::interface_index(interface)?;
        let sockets = match claim(&format!("softhca-{interface}")) {
            Ok(claim) => Some(Sockets::open(ifindex, claim)?),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
            Err(error) => return Err(error),
        };
        let mut cable = Self {
            interface: interface.into(),
            sockets,
            outgoing: vec![Vec::new(); BATCH],
            waiting: 0,
            incoming: Batch::new(),
            link: LinkState::Down,
            link_ns: 0,
            counters: WireCounters::default(),
        };
        cable.look_at_link();
        Ok(cable)
    }

    /// Whether another process has the cable: nothing is sent or received here then.
    pub fn is_mute(&self) -> bool {
        self.sockets.is_none()
    }

    /// Whether the kernel gets only the frames that the model hands to it.
    pub fn is_gated(&self) -> bool {
        self.sockets.as_ref().is_none_or(|sockets| sockets.gate.is_some())
    }

    /// Sends waiting frames. Frames that the interface does not take now keep waiting.
    fn flush(&mut self) {
        let Some(sockets) = &self.sockets else { return };
        let mut at = 0;
        while at < self.waiting {
            match sys::send_batch(&sockets.outgoing, &self.outgoing[at..self.waiting]) {
                Ok(sent) => at += sent,
                Err(error) if is_busy(&error) => break,
                // A frame that is too long for the interface, or the link has gone: it is lost as
                // on any cable.
                Err(error) => {
                    let is_too_long = error.raw_os_error() == Some(libc::EMSGSIZE);
                    *(if is_too_long { &mut self.counters.too_long } else { &mut self.counters.refused }) += 1;
                    at += 1;
                }
            }
        }
        self.outgoing[..self.waiting].rotate_left(at);
        self.waiting -= at;
    }

    fn look_at_link(&mut self) {
        let Some(sockets) = &self.sockets else {
            self.link = LinkState::Up;
            return;
        };
        let flags = InterfaceRequest::new(&self.interface).make(&sockets.outgoing, libc::SIOCGIFFLAGS).unwrap_or(0);
        let is_up = flags & (libc::IFF_UP | libc::IFF_RUNNING) == libc::IFF_UP | libc::IFF_RUNNING;
        self.link = if is_up { LinkState::Up } else { LinkState::Down };
    }
}

impl Sockets {
    fn open(ifindex: u32, claim: OwnedFd) -> io::Result<Self> {
        let (incoming, outgoing, to_kernel) = (sys::packet_socket()?, sys::packet_socket()?, sys::packet_socket()?);
        let gate = Gate::close(ifindex).ok();
        for option in [libc::PACKET_VNET_HDR, libc::PACKET_AUXDATA, libc::PACKET_IGNORE_OUTGOING] {
            sys::set_option(&incoming, libc::SOL_PACKET, option, 1)?;
        }
        sys::set_option(&incoming, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, WAITING_LEN_MAX)?;
        sys::attach_filter(&incoming, &gate::unmarked())?;
        sys::hear_everything(&incoming, ifindex)?;
        sys::bind_to_interface(&incoming, ifindex, libc::ETH_P_ALL)?;

        sys::set_option(&outgoing, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        sys::bind_to_interface(&outgoing, ifindex, 0)?;

        sys::set_option(&to_kernel, libc::SOL_SOCKET, libc::SO_MARK, gate::MARK)?;
        sys::bind_to_interface(&to_kernel, ifindex, 0)?;
        Ok(Self { incoming, outgoing, to_kernel, gate, _claim: claim })
    }
}

impl Cable for PacketSocket {
    fn send(&mut self, frame: &[u8]) -> bool {
        if self.sockets.is_none() {
            return true;
        }
        if self.waiting == BATCH {
            self.flush();
        }
        let Some(buffer) = self.outgoing.get_mut(self.waiting) else { return false };
        buffer.clear();
        buffer.extend_from_slice(frame);
        self.waiting += 1;
        true
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        frame.clear();
        let Some(sockets) = &self.sockets else { return false };
        loop {
            while let Some(received) = self.incoming.next() {
                if received.is_uncut {
                    self.counters.uncut += 1;
                } else {
                    complete(received, frame);
                    return true;
                }
            }
            // An error (the interface is gone or down) is nothing to receive.
            if self.incoming.fill(&sockets.incoming).unwrap_or(0) == 0 {
                return false;
            }
        }
    }

    fn link(&self) -> LinkState {
        self.link
    }

    fn to_kernel(&mut self, frame: &[u8]) -> bool {
        // Without a gate it has seen the frame already.
        let sockets = self.sockets.as_ref().filter(|sockets| sockets.gate.is_some());
        sockets.is_some_and(|sockets| matches!(sys::write(&sockets.to_kernel, frame), Ok(Some(_))))
    }

    fn tend(&mut self, now_ns: u64) {
        self.flush();
        if now_ns.saturating_sub(self.link_ns) >= LINK_NS {
            self.link_ns = now_ns;
            self.look_at_link();
            if let Some(sockets) = &self.sockets {
                self.counters.full += sys::dropped(&sockets.incoming);
            }
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let WireCounters { full, too_long, refused, uncut } = self.counters;
        vec![("wire_full", full), ("wire_too_long", too_long), ("wire_refused", refused), ("wire_uncut", uncut)]
    }
}

/// Whether the same frame may be taken later.
fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR))
}

/// Writes a received frame into `frame` in the form that it had on the cable.
fn complete(received: Received<'_>, frame: &mut Vec<u8>) {
    if let Some((start, offset)) = received.checksum {
        complete_checksum(received.frame, start, offset);
    }
    match (received.tag, received.frame.split_at_checked(12)) {
        (Some((ethertype, tag)), Some((addresses, rest))) => {
            frame.extend_from_slice(addresses);
            frame.extend_from_slice(&ethertype.to_be_bytes());
            frame.extend_from_slice(&tag.to_be_bytes());
            frame.extend_from_slice(rest);
        }
        _ => frame.extend_from_slice(received.frame),
    }
}

/// Writes the ones-complement sum from `start` to the end at `offset` after `start`, where the sum
/// of the pseudo header is, as skb_checksum_help() of the kernel does. For UDP a sum of zero is
/// sent as its complement.
fn complete_checksum(frame: &mut [u8], start: usize, offset: usize) {
    let Some(covered) = frame.get_mut(start..).filter(|covered| covered.len() >= offset + 2) else { return };
    let mut sum: u32 = 0;
    for pair in covered.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = match !(sum as u16) {
        0 => 0xffff,
        other => other,
    };
    covered[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_that_was_left_to_the_nic_is_completed() {
        // The UDP datagram of RFC 768's layout: ports 1 and 2, 10 bytes, payload "ab"; the field
        // holds the pseudo header's sum.
        let check = |pseudo: u16, expected: u16| {
            let mut frame = vec![0xff; 14];
            frame.extend_from_slice(&[0, 1, 0, 2, 0, 10, (pseudo >> 8) as u8, pseudo as u8, b'a', b'b']);
            complete_checksum(&mut frame, 14, 6);
            assert_eq!(u16::from_be_bytes([frame[20], frame[21]]), expected);
        };
        check(0x1234, !(0x0001 + 0x0002 + 0x000a + 0x1234 + 0x6162));
        // A sum of zero is sent as ones.
        check(!(0x0001 + 0x0002 + 0x000a + 0x6162), 0xffff);
    }

    #[test]
    fn checksum_outside_the_frame_is_left_alone() {
        for (start, offset) in [(61, 0), (59, 6), (60, 0)] {
            let mut frame = vec![7; 60];
            complete_checksum(&mut frame, start, offset);
            assert_eq!(frame, [7; 60]);
        }
    }

    #[test]
    fn tag_that_the_kernel_took_off_is_put_back() {
        let mut bytes: Vec<u8> = (0..60).collect();
        let mut frame = Vec::new();
        complete(
            Received { frame: &mut bytes, tag: Some((0x8100, 0x2007)), checksum: None, is_uncut: false },
            &mut frame,
        );
        assert_eq!(frame[..12], (0..12).collect::<Vec<u8>>());
        assert_eq!(frame[12..16], [0x81, 0, 0x20, 7]);
        assert_eq!(frame[16..], (12..60).collect::<Vec<u8>>());
    }
}
