//! The UDP sockets that send the lines: one for each, all on one interface.
//!
//! Linux uses the interface of a socket's bound address for multicast (`ip_route_output_key`, the
//! saddr case), so no socket option is needed that the standard library lacks.

use std::fmt;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::str::FromStr;

use wirepath::counters::Block;
use wirepath::worker::kernel::Mirror;

use crate::error::Error;
use crate::settings::Settings;

/// Where the sockets send.
#[derive(Clone, Debug)]
pub struct SendSockets {
    /// The interface.
    pub interface: Interface,
    /// Receivers on this host get the packets as well.
    pub loopback: bool,
}

/// An interface of this host, by its name or by one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// The one that has this address.
    Address(Ipv4Addr),
    /// The one of this name; the first of its addresses is the source.
    Name(String),
}

/// The sockets of all lines.
#[derive(Debug)]
pub(crate) struct Sockets(Vec<UdpSocket>);

impl Sockets {
    /// Opens them, in the order of [`crate::Delivery::line_idx`].
    pub(crate) fn open(settings: &Settings, send_sockets: &SendSockets) -> Result<Self, Error> {
        let source = send_sockets.interface.address()?;
        let open = |destination| open(settings, send_sockets, source, destination);
        settings.destinations().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Sends on one line. Waits where the socket's buffer is full.
    pub(crate) fn send(&self, line_idx: usize, payload: &[u8]) -> Result<(), Error> {
        loop {
            match self.0[line_idx].send(payload) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let line = ['A', 'B'][line_idx % 2];
                    let what =
                        format!("the kernel refused a packet of line {line} (is its interface up? see `ip link`)");
                    return Err(Error::Socket { what, error });
                }
            }
        }
    }
}

fn open(
    settings: &Settings,
    send_sockets: &SendSockets,
    source: Ipv4Addr,
    destination: SocketAddrV4,
) -> Result<UdpSocket, Error> {
    let failed = |what: String| move |error| Error::Socket { what, error };
    let hint = "name an interface of this host or its IPv4 address, see `ip -4 address`";
    let socket = UdpSocket::bind((source, 0)).map_err(failed(format!("cannot send from {source} ({hint})")))?;
    socket.set_multicast_ttl_v4(settings.ttl.into()).map_err(failed("cannot set the multicast TTL".into()))?;
    socket.set_multicast_loop_v4(send_sockets.loopback).map_err(failed("cannot set multicast loopback".into()))?;
    let to = format!("cannot send to {destination} from {source}");
    socket.connect(destination).map_err(failed(to))?;
    Ok(socket)
}

impl Interface {
    /// The address to send from.
    fn address(&self) -> Result<Ipv4Addr, Error> {
        let name = match self {
            Self::Address(address) => return Ok(*address),
            Self::Name(name) => name,
        };
        let failed = |why: String| Error::Interface { name: name.clone(), why };
        let mirror = Mirror::open(&Block::heap().scope("send_sockets")).map_err(|error| failed(error.to_string()))?;
        let link =
            mirror.link(name).ok_or_else(|| failed("there is no such interface; `ip link` lists them".into()))?;
        let first = mirror.addresses(link).next();
        let hint = || failed(format!("it has no IPv4 address; give it one: `ip address add A.B.C.D/LEN dev {name}`"));
        first.map(|prefix| prefix.address()).ok_or_else(hint)
    }
}

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str =
            "name one interface of this host, for example lo, or its IPv4 address, for example 127.0.0.1";
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
                return Err(format!("not the address of an interface; {FORM}"));
            }
            return Ok(Self::Address(address));
        }
        // The kernel's rule for names (dev_valid_name); digits and dots alone are a mistyped
        // address.
        let is_name = (1..=15).contains(&text.len())
            && !text.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
            && text.contains(|c: char| !c.is_ascii_digit() && c != '.');
        if !is_name {
            return Err(format!("neither a name nor an IPv4 address; {FORM}"));
        }
        Ok(Self::Name(text.into()))
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_interface_is_taken_by_name_or_address() {
        for text in ["0.0.0.0", "239.1.1.1", "255.255.255.255", "10.0.0.300", "::1", "", "a name", "sixteen-letters-"] {
            assert!(text.parse::<Interface>().is_err(), "{text}");
        }
        assert_eq!("127.0.0.1".parse(), Ok(Interface::Address(Ipv4Addr::LOCALHOST)));
        assert_eq!("eth0".parse(), Ok(Interface::Name("eth0".into())));
    }

    #[test]
    fn address_of_another_host_is_a_socket_error() {
        // TEST-NET-1 (RFC 5737) is never ours.
        let send_sockets = SendSockets { interface: "192.0.2.1".parse().unwrap(), loopback: true };
        let error = Sockets::open(&Settings::default(), &send_sockets).unwrap_err();
        assert!(error.to_string().contains("192.0.2.1"), "{error}");
    }

    #[test]
    fn name_is_looked_up_and_a_wrong_one_is_told() {
        assert_eq!("lo".parse::<Interface>().unwrap().address().unwrap(), Ipv4Addr::LOCALHOST);
        let error = "no-such-nic".parse::<Interface>().unwrap().address().unwrap_err().to_string();
        assert!(error.contains("no-such-nic") && error.contains("ip link"), "{error}");
    }
}
