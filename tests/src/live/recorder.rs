//! The app of a live host: keeps its events, for the test to examine.

use std::net::SocketAddrV4;

use wirepath::pipeline::tcp::{ConnectionId, TcpData, TcpEvent};
use wirepath::pipeline::{App, Cx, Datagram, IcmpError};
use wirepath::proto::ConsumerId;

use super::traffic::Traffic;

/// A received datagram, as the app got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// For whom.
    pub consumer: ConsumerId,
    /// From whom.
    pub source: SocketAddrV4,
    /// To where.
    pub destination: SocketAddrV4,
    /// Hops left.
    pub ttl: u8,
    /// Tag control information of the innermost tag.
    pub vlan: Option<u16>,
    /// The payload.
    pub payload: Vec<u8>,
}

/// The app's handler for a datagram.
pub type Handler = Box<dyn FnMut(&Datagram<'_>, &mut Cx<'_>) + Send>;

/// The app: keeps copies of its events, or calls the test's handler.
#[derive(Default)]
pub struct Recorder {
    /// Datagrams, unless there is a handler.
    pub datagrams: Vec<Received>,
    /// Errors about sent packets.
    pub errors: Vec<IcmpError<'static>>,
    /// Datagrams that came, one for each consumer.
    pub deliveries: u64,
    /// Takes the datagrams instead.
    pub handler: Option<Handler>,
    /// Connections.
    pub traffic: Traffic,
}

impl App for Recorder {
    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.traffic.tick(cx);
    }

    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        self.deliveries += 1;
        match &mut self.handler {
            Some(handler) => handler(datagram, cx),
            None => self.datagrams.push(Received {
                consumer: datagram.consumer,
                source: datagram.source,
                destination: datagram.destination,
                ttl: datagram.ttl,
                vlan: datagram.vlan,
                payload: datagram.payload.to_vec(),
            }),
        }
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        self.traffic.on_tcp_event(connection, event, cx);
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        self.traffic.on_tcp_data(data, cx);
    }

    fn on_icmp_error(&mut self, error: &IcmpError<'_>, _cx: &mut Cx<'_>) {
        self.errors.push(error.without_quote());
    }
}
