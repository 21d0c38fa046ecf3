//! The app's calls of UDP, named after the socket calls.

use core::net::{Ipv4Addr, SocketAddrV4};

use super::flow::{UdpConnectError, UdpFlow, UdpOptions, UdpSendToError, UdpSent, send_to};
use crate::pipeline::node::Cx;
use crate::proto::{ConsumerId, Group, Sharing, SocketError};

/// UDP.
impl<'a> Cx<'a> {
    /// The app's calls of UDP.
    #[inline]
    pub fn udp(&mut self) -> UdpCalls<'_, 'a> {
        UdpCalls(self)
    }
}

/// The calls of an app, named after the socket calls. What arrives for a consumer comes to
/// [`App::on_datagram`](crate::pipeline::App::on_datagram). [`Cx::sockets`] has the rarer calls:
/// source filters, and datagrams of one flow alone.
pub struct UdpCalls<'b, 'a>(&'b mut Cx<'a>);

impl UdpCalls<'_, '_> {
    /// Prepares the headers of a flow: [`UdpFlow::connect`].
    ///
    /// # Errors
    /// There is no path to `remote`.
    pub fn connect(
        &mut self,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        options: &UdpOptions,
    ) -> Result<UdpFlow, UdpConnectError> {
        UdpFlow::connect(local, remote, options, self.0)
    }

    /// Sends one datagram without a prepared flow: [`send_to`].
    ///
    /// # Errors
    /// There is no path to `remote`, or the datagram was not sent.
    #[inline]
    pub fn send_to(
        &mut self,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        options: &UdpOptions,
        payload: &[u8],
    ) -> Result<UdpSent, UdpSendToError> {
        send_to(local, remote, options, payload, self.0)
    }

    /// Receives what is sent to a unicast address, or to [`Ipv4Addr::UNSPECIFIED`] for all of the
    /// host's. Port 0 requests an ephemeral one (RFC 6056); the result names it. Some microseconds.
    ///
    /// # Errors
    /// The address is in use or a group's, or there is no room.
    pub fn bind(
        &mut self,
        consumer: ConsumerId,
        local: SocketAddrV4,
        sharing: Sharing,
    ) -> Result<SocketAddrV4, SocketError> {
        self.0.sockets.bind(consumer, local, sharing)
    }

    /// Ends [`bind`](Self::bind). False if the consumer has not bound the address.
    pub fn unbind(&mut self, consumer: ConsumerId, local: SocketAddrV4) -> bool {
        self.0.sockets.unbind(consumer, local)
    }

    /// Joins a group from any source:
    /// [`UdpSockets::join`](crate::proto::UdpSockets::join). Some microseconds.
    ///
    /// # Errors
    /// The address is no group, the consumer accepts only certain sources of it, or there is no
    /// room.
    pub fn join(&mut self, consumer: ConsumerId, group: Group) -> Result<(), SocketError> {
        self.0.sockets.join(consumer, group)
    }

    /// Joins a group from one source:
    /// [`UdpSockets::join_source`](crate::proto::UdpSockets::join_source). Some microseconds.
    ///
    /// # Errors
    /// As [`join`](Self::join), where the consumer accepts any source.
    pub fn join_source(&mut self, consumer: ConsumerId, group: Group, source: Ipv4Addr) -> Result<(), SocketError> {
        self.0.sockets.join_source(consumer, group, source)
    }

    /// Leaves a group on one port and interface, with all its sources.
    ///
    /// # Errors
    /// The consumer is no member.
    pub fn leave(&mut self, consumer: ConsumerId, group: Group) -> Result<(), SocketError> {
        self.0.sockets.leave(consumer, group)
    }
}
