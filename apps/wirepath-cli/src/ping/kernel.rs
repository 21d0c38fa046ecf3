//! Echoes by kernel sockets, for comparison.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use wirepath::time::Instant;
use wirepath::wire::icmpv4::{Echo, Icmpv4Message};
use wirepath::wire::ipv4::Ipv4Packet;

use super::path::{DATA_LEN_MAX, EchoPayload, Path, Received, Refusal, Target};
use super::sys::{self, IcmpKind};

/// Bytes before the data: the headers of IPv4, 60 bytes at most, and of ICMP.
const HEADERS_LEN_MAX: usize = 60 + 8;

/// A connected socket.
pub(super) struct KernelPath {
    socket: UdpSocket,
    remote: Ipv4Addr,
    protocol: Protocol,
    payload: EchoPayload,
    /// Whether to poll the socket instead of sleeping until something arrives.
    spins: bool,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Udp,
    Icmp { kind: IcmpKind, identifier: u16 },
}

impl KernelPath {
    /// A socket of the target's kind.
    pub(super) fn open(target: &Target) -> Result<Self, String> {
        let (socket, protocol) = match target.udp {
            Some(_) => {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
                (socket.map_err(|error| format!("the kernel gives no UDP socket: {error}"))?, Protocol::Udp)
            }
            None => icmp()?,
        };
        let remote = SocketAddrV4::new(target.address, target.udp.unwrap_or(0));
        let ready = socket.connect(remote).and_then(|()| socket.set_nonblocking(true));
        ready.map_err(|error| no_way(target.address, &error))?;
        let buffer = vec![0; HEADERS_LEN_MAX + DATA_LEN_MAX];
        let (payload, spins) = (target.payload.clone(), target.spins);
        Ok(Self { socket, remote: target.address, protocol, payload, spins, buffer })
    }

    /// The message in the first `len` bytes of the buffer; `None` where it is not for us.
    fn read(&self, len: usize) -> Option<Received> {
        let bytes = &self.buffer[..len];
        let Protocol::Icmp { kind, identifier } = self.protocol else { return Some(self.payload.read(bytes, None)) };
        let (message, ttl) = match kind {
            IcmpKind::Datagram => (bytes, None),
            IcmpKind::Raw => {
                let packet = Ipv4Packet::parse(bytes).ok()?;
                (packet.payload, Some(packet.header.ttl()))
            }
        };
        match Icmpv4Message::parse(message) {
            Ok(Icmpv4Message::EchoReply(echo)) if kind == IcmpKind::Datagram || echo.identifier == identifier => {
                Some(self.payload.read(echo.data, ttl))
            }
            _ => None,
        }
    }
}

impl Path for KernelPath {
    fn name(&self) -> &str {
        "kernel"
    }

    fn describe(&self) -> String {
        let socket = match self.protocol {
            Protocol::Udp => "UDP socket",
            Protocol::Icmp { kind: IcmpKind::Datagram, .. } => "ICMP socket",
            Protocol::Icmp { kind: IcmpKind::Raw, .. } => "raw socket",
        };
        let waits = if self.spins { "polled" } else { "ppoll(2)" };
        format!("a {socket} of the kernel, {waits}")
    }

    fn send_request(&mut self, sequence: u64, data: &[u8], _now: Instant) -> Result<(), String> {
        let message_len = match self.protocol {
            Protocol::Udp => {
                self.buffer[..data.len()].copy_from_slice(data);
                data.len()
            }
            Protocol::Icmp { identifier, .. } => {
                let echo = Echo { identifier, sequence: sequence as u16, data };
                let emitted = Icmpv4Message::EchoRequest(echo).emit(&mut self.buffer);
                emitted.expect("the buffer holds the longest message")
            }
        };
        match self.socket.send(&self.buffer[..message_len]) {
            Ok(_) => Ok(()),
            // An error about an earlier echo: the kernel reports it to the next send, which has not
            // left.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                self.socket.send(&self.buffer[..message_len]).map(drop).map_err(|error| error.to_string())
            }
            Err(error) => Err(no_way(self.remote, &error)),
        }
    }

    fn listen(&mut self, now: Instant, until: Instant, received: &mut Vec<Received>) {
        if !self.spins {
            sys::wait(&self.socket, Duration::from_nanos(until.since(now).as_nanos()));
        }
        // One at a time, so that each has its own arrival time.
        match self.socket.recv(&mut self.buffer) {
            Ok(len) => received.extend(self.read(len)),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                received
                    .push(Received::Refused(Refusal { reporter: self.remote, why: "no program listens on the port" }));
            }
            Err(error) if error.kind() == ErrorKind::HostUnreachable => {
                received.push(Received::Refused(Refusal { reporter: self.remote, why: "the host does not answer" }));
            }
            // No reply yet; any other error shows as a lost echo.
            Err(_) => {}
        }
    }
}

/// The kind of socket that the kernel permits.
fn icmp() -> Result<(UdpSocket, Protocol), String> {
    // The low bits of the process id, as in ping; where the kernel chooses the identifier, it
    // ignores these.
    let identifier = std::process::id() as u16;
    let open = |kind| sys::icmp_socket(kind).map(|socket| (socket, Protocol::Icmp { kind, identifier }));
    open(IcmpKind::Datagram).or_else(|_| open(IcmpKind::Raw)).map_err(|error| {
        format!(
            "the kernel gives no ICMP socket ({error}): run it as root, or permit it with \
             `sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"`"
        )
    })
}

fn no_way(remote: Ipv4Addr, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NetworkUnreachable => {
            format!(
                "the kernel has no route to {remote}: `ip route get {remote}` says so too; add one, or --via an interface"
            )
        }
        ErrorKind::PermissionDenied => {
            format!("the kernel may not send to {remote} ({error}): is it a broadcast address, or a firewall's matter?")
        }
        _ => format!("the kernel does not send to {remote}: {error}"),
    }
}
