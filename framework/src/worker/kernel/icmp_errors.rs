//! ICMP errors about our flows that the kernel receives: on an interface shared with the kernel, no
//! rule can distinguish an ICMP error about our flows from one about the kernel's, so all of them
//! go to the kernel. A raw socket gets a copy of each (raw(7)), and a thread forwards the relevant
//! part to the workers, which process it like a received frame.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use zerocopy::IntoBytes;

use super::follower::Follower;
use super::wakeup::Wakeup;
use crate::sys::helper;
use crate::sys::socket::wait_readable;
use crate::wire::checksum::checksum;
use crate::wire::{Ipv4Fields, Ipv4Header, Ipv4Packet, Protocol, ipv4};
use crate::worker::StopFlag;
use crate::worker::spsc::lossless::{self, Consumer, Producer};

/// Bytes kept of an ICMP message, behind the IPv4 header: as many as a router sends (RFC 1812
/// 4.3.2.3), because a socket with `IP_RECVERR` reads the quoted bytes.
const MESSAGE_LEN_MAX: usize = 576 - ipv4::HEADER_LEN;
/// Maximum length of a forwarded packet.
pub(crate) const ICMP_ERROR_LEN_MAX: usize = ipv4::HEADER_LEN + MESSAGE_LEN_MAX;
/// Ring length of a worker; in a burst of errors about a flow all are the same, so lost ones do not
/// matter.
const RING_LEN: usize = 64;
/// The upper half of an IPv4 packet's first byte.
const IPV4_VERSION: u8 = 4;
/// How long the thread sleeps after an error: a persistent one would make it spin beside the
/// workers.
const SLEEP_AFTER_ERROR: Duration = Duration::from_millis(100);

/// An IPv4 packet with an ICMP error that the kernel received, cut to 576 bytes, with lengths and
/// checksums adjusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelIcmpError {
    len: u16,
    bytes: [u8; ICMP_ERROR_LEN_MAX],
}

impl KernelIcmpError {
    /// Cuts a packet from the raw socket to the relevant part. None if it is not a whole IPv4
    /// packet, or not an ICMP error.
    fn cut(packet: &[u8]) -> Option<Self> {
        let packet = Ipv4Packet::parse(packet).ok().filter(|packet| packet.header.protocol() == Protocol::ICMP)?;
        // Cutting must not turn a wrong checksum into a right one.
        if packet.payload.len() < 8 || checksum(packet.payload) != 0 {
            return None;
        }
        let mut message = [0; MESSAGE_LEN_MAX];
        let message_len = packet.payload.len().min(MESSAGE_LEN_MAX);
        message[..message_len].copy_from_slice(&packet.payload[..message_len]);
        message[2..4].fill(0);
        let sum = checksum(&message[..message_len]);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let header = Ipv4Header::new(&Ipv4Fields {
            source: packet.header.source(),
            destination: packet.header.destination(),
            protocol: Protocol::ICMP,
            ttl: packet.header.ttl(),
            tos: packet.header.tos(),
            identification: 0,
            dont_fragment: true,
            payload_len: message_len,
        });
        let len = ipv4::HEADER_LEN + message_len;
        let mut bytes = [0; ICMP_ERROR_LEN_MAX];
        bytes[..ipv4::HEADER_LEN].copy_from_slice(header.ok()?.as_bytes());
        bytes[ipv4::HEADER_LEN..len].copy_from_slice(&message[..message_len]);
        Some(Self { len: len as u16, bytes })
    }

    /// The packet, from its IPv4 header on.
    pub(crate) fn packet(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A worker's end: part of its [`Follower`](super::Follower).
pub(crate) struct KernelIcmpErrors(Consumer<KernelIcmpError>);

impl KernelIcmpErrors {
    /// The next packet. About 1 ns if there is none.
    #[inline]
    pub(super) fn next(&mut self) -> Option<KernelIcmpError> {
        self.0.pop()
    }

    pub(super) fn is_empty(&mut self) -> bool {
        self.0.is_empty()
    }
}

/// The listening thread. Dropping this stops the thread and waits for it, at most 100 ms.
#[derive(Debug)]
pub(crate) struct IcmpErrorListener {
    stop: StopFlag,
    wakeup: Arc<Wakeup>,
    thread: Option<JoinHandle<()>>,
}

impl IcmpErrorListener {
    /// Listens on `socket`, a raw ICMP socket of the interface, for the workers of `followers`. A
    /// slow worker misses repetitions. `other` gets all messages that are no IPv4 packets, and says
    /// whether the workers are to wake for it.
    pub(crate) fn start<'a>(
        socket: UdpSocket,
        followers: impl Iterator<Item = &'a mut Follower>,
        mut other: impl FnMut(&[u8]) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let mut workers = Vec::new();
        for follower in followers {
            let (producer, consumer) = lossless::ring(RING_LEN).expect("a power of two");
            workers.push((producer, follower.wakeup()));
            follower.listen(KernelIcmpErrors(consumer));
        }
        let (stop, wakeup) = (StopFlag::new(), Arc::new(Wakeup::new()?));
        let (stopping, woken) = (stop.clone(), Arc::clone(&wakeup));
        let listen = move || {
            loop {
                woken.arm();
                if stopping.is_stopping() {
                    return;
                }
                let fds = [Some(socket.as_raw_fd()), Some(woken.fd())];
                match wait_readable(fds, None).and_then(|_| receive(&socket, &mut workers, &mut other)) {
                    Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                        thread::sleep(SLEEP_AFTER_ERROR);
                    }
                    _ => (),
                }
            }
        };
        let thread = helper::spawn(thread::Builder::new().name("wirepath-icmp".into()), listen)?;
        Ok(Self { stop, wakeup, thread: Some(thread) })
    }
}

/// A worker's ring, and what ends its sleep.
type Listening = (Producer<KernelIcmpError>, Option<Arc<Wakeup>>);

/// Forwards one packet, or another message.
fn receive(socket: &UdpSocket, workers: &mut [Listening], other: &mut impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    let mut bytes = [0; 2048];
    let len = socket.recv(&mut bytes)?;
    if bytes[..len].first().is_some_and(|byte| byte >> 4 != IPV4_VERSION) && other(&bytes[..len]) {
        workers.iter().filter_map(|(_, wakeup)| wakeup.as_ref()).for_each(|wakeup| wakeup.wake());
        return Ok(());
    }
    if let Some(error) = KernelIcmpError::cut(&bytes[..len]) {
        for (ring, wakeup) in workers {
            // Full: the worker has others of this burst to process.
            let _ = ring.push(error);
            wakeup.iter().for_each(|wakeup| wakeup.wake());
        }
    }
    Ok(())
}

impl Drop for IcmpErrorListener {
    fn drop(&mut self) {
        self.stop.stop();
        self.wakeup.wake();
        if let Some(thread) = self.thread.take() {
            // Its panic was printed when it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::wire::Icmpv4Message;
    use crate::wire::icmpv4::Unreachable;

    /// An error that quotes 700 bytes.
    fn error() -> Vec<u8> {
        let quoted = [0x45; 700];
        let mut message = [0; 800];
        let reported = Icmpv4Message::DestinationUnreachable { code: Unreachable::Port, quoted: &quoted };
        let len = reported.emit(&mut message).unwrap();
        let fields = Ipv4Fields {
            source: Ipv4Addr::new(10, 0, 0, 2),
            destination: Ipv4Addr::new(10, 0, 0, 1),
            protocol: Protocol::ICMP,
            ttl: 64,
            tos: 0,
            identification: 7,
            dont_fragment: false,
            payload_len: len,
        };
        [Ipv4Header::new(&fields).unwrap().as_bytes(), &message[..len]].concat()
    }

    #[test]
    fn long_error_is_cut_and_still_sound() {
        let cut = KernelIcmpError::cut(&error()).unwrap();
        let packet = Ipv4Packet::parse(cut.packet()).unwrap();
        packet.verify_checksum().unwrap();
        assert_eq!((packet.header.source(), packet.payload.len()), (Ipv4Addr::new(10, 0, 0, 2), MESSAGE_LEN_MAX));
        let message = Icmpv4Message::parse(packet.payload).unwrap();
        assert!(matches!(message, Icmpv4Message::DestinationUnreachable { code: Unreachable::Port, .. }));
    }

    #[test]
    fn error_with_a_wrong_checksum_is_not_made_right() {
        let mut wrong = error();
        wrong[200] ^= 1;
        assert_eq!(KernelIcmpError::cut(&wrong), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_cut_or_left(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(cut) = KernelIcmpError::cut(&bytes) {
                prop_assert!(Ipv4Packet::parse(cut.packet()).is_ok());
            }
        }
    }
}
