//! Requests over UDP: MoldUDP64's and IEX's servers, which answer with packets of the feed to the
//! socket that asked.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, UdpSocket};

use arrayvec::ArrayVec;
use market::RerequestRange;
use market::framing::Session;
use market::framing::iex_tp::{GapRequest, IexHeader};
use market::framing::mold_udp64::{Request, session_name};

use super::link::PACKET_LEN_MAX;
use super::plan::RequestPlan;
use crate::format::Format;

/// The client of one server.
pub(super) struct UdpRequests {
    socket: UdpSocket,
    format: Format,
}

/// What came of a look into a socket.
#[expect(clippy::large_enum_variant, reason = "it is passed on at once, and a box would be an allocation a packet")]
pub(super) enum Received {
    Packet(ArrayVec<u8, PACKET_LEN_MAX>),
    /// Longer than any packet of the feed.
    TooLong,
    /// From a sender that is none of the group's.
    Foreign,
    Nothing,
}

impl UdpRequests {
    /// The socket hears its server alone: the kernel drops what others send to it.
    pub(super) fn open(plan: &RequestPlan, format: Format) -> io::Result<Self> {
        let socket = UdpSocket::bind(plan.bind)?;
        socket.connect(plan.server)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, format })
    }

    /// Sends a request. Where the kernel does not, the request is made again after its timeout.
    pub(super) fn send(&self, number: u32, session: Session, range: RerequestRange) -> io::Result<()> {
        let RerequestRange { seq, count } = range;
        let protocol = match self.format {
            Format::IexTops => IexHeader::TOPS_1_6,
            Format::IexDeep => IexHeader::DEEP_1_0,
            _ => {
                let request = Request { session: session_name(session), seq, count };
                return self.socket.send(&request.emit()).map(drop);
            }
        };
        let last = seq.saturating_add(u64::from(count) - 1);
        let request = GapRequest { protocol, channel: number, session: session.0 as u32, first: seq, last };
        self.socket.send(&request.emit()).map(drop)
    }

    pub(super) fn receive(&self) -> Received {
        receive(&self.socket, |_| true)
    }
}

/// The next datagram of a socket that does not block. One whose sender is none that `takes` accepts
/// is [`Received::Foreign`].
pub(super) fn receive(socket: &UdpSocket, takes: impl Fn(IpAddr) -> bool) -> Received {
    // One byte more than a packet shows that one is too long.
    let mut bytes = [0; PACKET_LEN_MAX + 1];
    match socket.recv_from(&mut bytes) {
        Ok((_, sender)) if !takes(sender.ip()) => Received::Foreign,
        Ok((len, _)) => match bytes[..len].try_into() {
            Ok(packet) => Received::Packet(packet),
            Err(_) => Received::TooLong,
        },
        // A server that is not there makes the kernel report its ICMP error here, once.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Received::Nothing,
        Err(_) => Received::Nothing,
    }
}
