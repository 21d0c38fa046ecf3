//! The day onto the network, through two ordinary kernel UDP sockets, each departure at its time.
//!
//! Lines A and B leave one interface: loopback, or the one whose address was named. Binding to that address is what
//! makes Linux choose the interface for multicast (`ip_route_output_key`, the saddr case), without a socket option
//! that the standard library does not have.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::feed::Feed;
use crate::session::START_NS;
use crate::settings::Settings;
use crate::truth::Truth;

/// Sleep ends up to some 100 us late (timer slack and scheduling), so the last piece of a wait is spun.
const SPIN: Duration = Duration::from_micros(200);

/// Where the sockets send.
#[derive(Clone, Copy, Debug)]
pub struct Outlet {
    /// The interface that has this address.
    pub interface: Interface,
    /// Receivers on this host hear it as well.
    pub loopback: bool,
}

/// The address of an interface of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface(Ipv4Addr);

/// What was sent, and how well the pace was kept.
#[derive(Clone, Debug)]
pub struct Published {
    /// The account of the day.
    pub truth: Truth,
    /// From the first packet to the last.
    pub elapsed: Duration,
    /// The packet that left latest after its time.
    pub late_max: Duration,
}

/// Sends the day. Takes `messages / rate` seconds and some ten for the quiet ones around the open market.
pub fn publish(settings: &Settings, outlet: &Outlet) -> Result<Published, Error> {
    let mut feed = Feed::new(settings)?;
    let sockets = [open(settings, outlet, 0)?, open(settings, outlet, 1)?];
    let started = Instant::now();
    let mut late_max = Duration::ZERO;
    for departure in &mut feed {
        let due = Duration::from_nanos(departure.time_ns - START_NS);
        let late = wait_until(started, due);
        late_max = late_max.max(late);
        send(&sockets[departure.line_idx], &departure.packet.payload)?;
    }
    let elapsed = started.elapsed();
    Ok(Published { truth: feed.finish(), elapsed, late_max })
}

fn open(settings: &Settings, outlet: &Outlet, line_idx: usize) -> Result<UdpSocket, Error> {
    let Interface(interface) = outlet.interface;
    let group = settings.lines[line_idx].group.address();
    let failed = |what: String| move |error| Error::Socket { what, error };
    let hint = "name the IPv4 address of an interface of this host, see `ip -4 address`";
    let socket = UdpSocket::bind((interface, 0)).map_err(failed(format!("cannot send from {interface} ({hint})")))?;
    socket.set_multicast_ttl_v4(settings.ttl.into()).map_err(failed("cannot set the multicast TTL".into()))?;
    socket.set_multicast_loop_v4(outlet.loopback).map_err(failed("cannot set multicast loopback".into()))?;
    let to = format!("cannot send to {group}:{} from {interface}", settings.port);
    socket.connect((group, settings.port)).map_err(failed(to))?;
    Ok(socket)
}

/// Waits until `due` after `started` and says how late it is then.
fn wait_until(started: Instant, due: Duration) -> Duration {
    loop {
        let passed = started.elapsed();
        let Some(left) = due.checked_sub(passed) else { return passed - due };
        match left.checked_sub(SPIN) {
            Some(sleep) => thread::sleep(sleep),
            None => std::hint::spin_loop(),
        }
    }
}

fn send(socket: &UdpSocket, payload: &[u8]) -> Result<(), Error> {
    loop {
        match socket.send(payload) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Socket { what: "the kernel refused to send a packet".into(), error }),
        }
    }
}

impl Interface {
    /// The host itself: nothing leaves it.
    pub const LOOPBACK: Self = Self(Ipv4Addr::LOCALHOST);
}

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "name the IPv4 address of one interface of this host, for example 127.0.0.1";
        let address: Ipv4Addr = text.parse().map_err(|_| format!("not an IPv4 address; {FORM}"))?;
        if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
            return Err(format!("not the address of an interface; {FORM}"));
        }
        Ok(Self(address))
    }
}

impl std::fmt::Display for Interface {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_address_of_one_interface_is_taken() {
        for text in ["0.0.0.0", "239.1.1.1", "255.255.255.255", "eth0", "::1"] {
            assert!(text.parse::<Interface>().is_err(), "{text}");
        }
        assert_eq!("127.0.0.1".parse(), Ok(Interface::LOOPBACK));
    }

    #[test]
    fn address_of_another_host_is_a_socket_error() {
        // TEST-NET-1 (RFC 5737) is never ours.
        let outlet = Outlet { interface: "192.0.2.1".parse().unwrap(), loopback: true };
        let error = publish(&Settings::default(), &outlet).unwrap_err();
        assert!(error.to_string().contains("192.0.2.1"), "{error}");
    }

    #[test]
    fn wait_ends_at_its_time_or_says_how_late_it_is() {
        let started = Instant::now();
        wait_until(started, Duration::from_millis(2));
        assert!(started.elapsed() >= Duration::from_millis(2));
        assert!(wait_until(started, Duration::from_millis(1)) >= Duration::from_millis(1));
    }
}
