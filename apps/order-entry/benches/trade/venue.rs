//! The other end of the wire: the exchange as an app.

use core::net::{Ipv4Addr, SocketAddrV4};

use order_entry::session::Output;
use wirepath::pipeline::{UdpOptions, send_to};
use wirepath::prelude::*;

use super::exchange::{Exchange, LINE_A, Packet};

pub(crate) const VENUE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 9_100);

/// The app of that end.
pub(crate) struct Venue {
    exchange: Exchange,
    connection: Option<ConnectionId>,
}

impl Venue {
    pub(crate) fn new() -> Self {
        Self { exchange: Exchange::new(), connection: None }
    }

    /// Fills the books, as many orders as `send` takes in a turn.
    pub(crate) fn fill(&mut self, from: u64, count: u64, cx: &mut Cx<'_>) {
        for order in from..(from + count).min(Exchange::RESTING_ORDERS + 1) {
            publish(&self.exchange.fill(order), cx);
        }
    }

    /// An offer of WIRE that is worth buying.
    pub(crate) fn offer(&mut self, cx: &mut Cx<'_>) {
        publish(&self.exchange.offer(), cx);
    }

    /// The offer is gone, if there was one.
    pub(crate) fn withdraw(&mut self, cx: &mut Cx<'_>) {
        if let Some(packet) = self.exchange.withdraw() {
            publish(&packet, cx);
        }
    }

    /// An order of another book comes and goes.
    pub(crate) fn others(&mut self, cx: &mut Cx<'_>) {
        self.exchange.other().iter().for_each(|packet| publish(packet, cx));
    }

    /// Answers the order that has come: accepted, and dead at once.
    pub(crate) fn answer(&mut self, cx: &mut Cx<'_>) {
        self.say(cx, Exchange::answer);
    }

    /// A heartbeat of the session, where one is due.
    pub(crate) fn beat(&mut self, cx: &mut Cx<'_>) {
        self.say(cx, Exchange::beat);
    }

    /// Sends what the exchange says now.
    fn say(&mut self, cx: &mut Cx<'_>, speak: impl FnOnce(&mut Exchange, u64, &mut Output<'_>)) {
        let mut buffer = [0; 256];
        let mut output = Output::new(&mut buffer);
        speak(&mut self.exchange, cx.now.as_nanos(), &mut output);
        if let Some(connection) = self.connection.filter(|_| !output.is_empty()) {
            cx.tcp().send(connection, output.written()).unwrap();
        }
    }
}

fn publish(packet: &Packet, cx: &mut Cx<'_>) {
    let from = SocketAddrV4::new(*VENUE.ip(), 5_000);
    send_to(from, LINE_A, &UdpOptions::default(), packet.bytes(), cx).unwrap();
}

impl App for Venue {
    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        if let TcpEvent::Connected { .. } = event {
            self.connection = Some(connection);
            self.exchange.connected(cx.now.as_nanos());
        }
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        let payload = data.payload;
        self.say(cx, |exchange, now_ns, output| exchange.receive(payload, now_ns, output));
    }
}
