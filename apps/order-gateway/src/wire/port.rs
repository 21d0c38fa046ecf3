//! The port of a gateway: what it subscribes to, and the loop that polls it.

use std::fmt;
use std::net::SocketAddrV4;
use std::time::Instant;

use order_entry::journal::JournalMemory;
use order_entry::session::VenueSession;
use wirepath::port::{EmbeddedPort, Port, Subscription, multicast, tcp_from};

use super::app::{WireCounts, WireGateway, consumer, of_line};
use super::host::WireHandle;
use crate::error::Error;
use crate::feed_line::FeedLine;
use crate::host::Host;
use crate::run::{LEAVE, Run};
use crate::strategy::Strategy;

/// Turns that the end of the connection may take to leave.
const LAST_TURNS: usize = 1_000;

/// Where a gateway's feed and its venue are.
#[derive(Clone, Debug)]
pub struct WirePortConfig {
    /// The port's name, as `wirepath` takes it: `eth1`, `mlx5:0000:3b:00.0`.
    pub via: String,
    /// The venue is called from here, so that the kernel's connections to it stay the kernel's. The
    /// second is used while the last connection from the first is in TIME-WAIT.
    pub local_ports: [u16; 2],
    /// The venue's addresses.
    pub venue: Vec<SocketAddrV4>,
    /// The feed's lines.
    pub feed: Vec<FeedLine>,
}

/// A run on a port, polled by the thread that made it.
pub struct WirePort<T: Strategy, S: VenueSession, M: JournalMemory, H: Host> {
    port: EmbeddedPort<WireGateway<T, S, M, H>>,
}

impl<T: Strategy, S: VenueSession, M: JournalMemory, H: Host> WirePort<T, S, M, H> {
    /// Opens the port. `run` has the host of `machine`, a feed without sockets, and no connection.
    ///
    /// # Errors
    ///
    /// There is no such port, or it is not ours to have: what to do about it.
    pub fn open(
        config: &WirePortConfig,
        (run, machine): (Run<T, S, M>, WireHandle<H>),
        report: impl FnMut(&str) + 'static,
    ) -> Result<Self, Error> {
        let failed = |error: &dyn fmt::Display| Error::failed(format!("the port {}: {error}", config.via));
        let mut port = Port::open(&config.via).map_err(|error| failed(&error))?.named("order-gateway").tcp();
        for (idx, line) in (0..).zip(&config.feed) {
            port = port.subscribe(subscription(line).consumer(of_line(idx).0));
        }
        for (venue, local) in config.venue.iter().flat_map(|venue| config.local_ports.map(|local| (venue, local))) {
            let answers = tcp_from(*venue.ip(), venue.port()).local_port(local);
            port = port.subscribe(answers.consumer(consumer::VENUE.0));
        }
        let app = WireGateway::new(run, machine, config.local_ports, report);
        Ok(Self { port: port.embed(app).map_err(|error| failed(&error))? })
    }

    /// Spins until `stop` says so, or a standby takes over; then logs out, for a second at most
    /// where the venue does not close its side. Returns how requests left.
    pub fn run(&mut self, mut stop: impl FnMut() -> bool) -> WireCounts {
        while !stop() && !self.port.app().is_over() {
            self.port.poll();
        }
        self.port.with_app(WireGateway::log_out);
        let until = Instant::now() + LEAVE;
        while !self.port.app().is_closed() && Instant::now() < until {
            self.port.poll();
        }
        self.port.with_app(WireGateway::end_leaving);
        for _ in 0..LAST_TURNS {
            self.port.poll();
        }
        self.port.app_mut().settle();
        self.port.app().counts()
    }

    /// The run.
    pub fn gateway(&self) -> &Run<T, S, M> {
        &self.port.app().run
    }
}

/// Packets of another sender are dropped by the worker, which counts them as `source-filtered`.
fn subscription(line: &FeedLine) -> Subscription {
    let any = multicast(*line.group.ip(), line.group.port());
    line.sources.iter().copied().fold(any, Subscription::source)
}

impl<T: Strategy, S: VenueSession, M: JournalMemory, H: Host> fmt::Debug for WirePort<T, S, M, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WirePort").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn line_is_subscribed_from_its_sources_alone() {
        let line = |sources: &[[u8; 4]]| FeedLine {
            group: SocketAddrV4::new(Ipv4Addr::new(233, 252, 0, 1), 26_477),
            interface: Ipv4Addr::UNSPECIFIED,
            sources: sources.iter().copied().map(Ipv4Addr::from).collect(),
        };
        assert_eq!(subscription(&line(&[])).to_string(), "UDP to 233.252.0.1:26477");
        let of_two = subscription(&line(&[[198, 51, 100, 1], [198, 51, 100, 2]])).to_string();
        assert_eq!(of_two, "UDP to 233.252.0.1:26477 from 198.51.100.1 or 198.51.100.2");
    }
}
