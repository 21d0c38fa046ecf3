//! The subscriptions that are open in one worker's sockets: joined groups, bound addresses,
//! listeners. Several subscriptions may share one of these: the first opens it and the last closes
//! it.

use core::net::Ipv4Addr;

use super::error::{Error, SubscriptionError};
use super::subscription::Subscription;
use crate::pipeline::Cx;
use crate::pipeline::tcp::{ListenOptions, ListenerId};
use crate::proto::{DemuxError, Flow, Group, Sharing, SocketError};
use crate::wire::Protocol;
use crate::worker::live::FlowSpec;

/// The subscriptions of one worker, in the order in which they were opened.
pub(super) struct Opened {
    subscriptions: Vec<(Subscription, Option<ListenerId>)>,
    /// On an interface that is shared with the kernel: the flows that come here beside those of the
    /// subscriptions. The kernel gets all others.
    shared: Option<Vec<FlowSpec>>,
}

impl Opened {
    /// None yet. From now on, on an interface that is shared with the kernel, TCP connects only
    /// where a subscription, or one of the flows in `shared`, brings the answers to this worker.
    pub(super) fn new(shared: Option<Vec<FlowSpec>>, cx: &mut Cx<'_>) -> Self {
        let opened = Self { subscriptions: Vec::new(), shared };
        opened.steer_tcp(cx);
        opened
    }

    /// Opens it at the worker's sockets, for the app.
    ///
    /// # Errors
    /// The sockets refuse the subscription. Then nothing has changed.
    pub(super) fn open(&mut self, subscription: &Subscription, cx: &mut Cx<'_>) -> Result<(), Error> {
        let listener = match subscription.listens {
            Some(options) => listen(subscription, options, cx).map(Some),
            None if subscription.flow.protocol == Protocol::TCP => Ok(None),
            None if subscription.flow.is_group() => self.join(subscription, cx).map(|()| None),
            None => self.bind(subscription, cx).map(|()| None),
        };
        let listener = listener.map_err(|error| error.of(subscription))?;
        self.subscriptions.push((subscription.clone(), listener));
        self.steer_tcp(cx);
        Ok(())
    }

    /// Closes a subscription. Addresses and groups that another subscription shares stay open.
    pub(super) fn close(&mut self, subscription: &Subscription, cx: &mut Cx<'_>) {
        let Some(place) = self.subscriptions.iter().position(|(opened, _)| opened.is_same(subscription)) else {
            return;
        };
        let (closed, listener) = self.subscriptions.remove(place);
        self.steer_tcp(cx);
        match listener {
            Some(listener) => _ = cx.tcp().close_listener(listener),
            None if closed.flow.protocol == Protocol::TCP => (),
            None if closed.flow.is_group() => self.leave_sources(&closed, &closed.flow.sources, cx),
            None if self.at_the_same_end(&closed).next().is_some() => (),
            None => _ = cx.sockets.unbind(closed.consumer, closed.flow.destination),
        }
    }

    /// Closes those of groups, at the end.
    pub(super) fn leave_groups(&mut self, cx: &mut Cx<'_>) {
        let ours = self.subscriptions.iter().map(|(subscription, _)| subscription);
        let groups: Vec<_> = ours.filter(|subscription| subscription.flow.is_group()).cloned().collect();
        groups.iter().for_each(|subscription| self.close(subscription, cx));
    }

    /// Registers with TCP the segments that are steered here.
    fn steer_tcp(&self, cx: &mut Cx<'_>) {
        if let Some(shared) = &self.shared {
            let flows = self.subscriptions.iter().map(|(subscription, _)| &subscription.flow).chain(shared);
            let flows: Vec<_> = flows.filter(|flow| flow.protocol == Protocol::TCP).cloned().collect();
            cx.tcp.set_steering(move |connection| flows.iter().any(|flow| covers(flow, connection)));
        }
    }

    fn bind(&self, subscription: &Subscription, cx: &mut Cx<'_>) -> Result<(), SubscriptionError> {
        if subscription.flow.destination.port() == 0 {
            // A rule without a port would take all UDP of the address from the kernel.
            return Err(SocketError::Demux(DemuxError::NoPort).into());
        }
        if self.at_the_same_end(subscription).next().is_some() {
            return Ok(());
        }
        let bound = cx.sockets.bind(subscription.consumer, subscription.flow.destination, Sharing::Exclusive);
        bound.map(drop).map_err(Into::into)
    }

    /// Joins the group for each of its sources, or for any source. If a join is refused, leaves
    /// those made before.
    fn join(&self, subscription: &Subscription, cx: &mut Cx<'_>) -> Result<(), SubscriptionError> {
        let (consumer, group) = (subscription.consumer, group(subscription));
        let same_end = || self.at_the_same_end(subscription);
        if subscription.flow.sources.is_empty() {
            if same_end().any(|other| other.flow.sources.is_empty()) {
                return Ok(());
            }
            return cx.sockets.join(consumer, group).map_err(Into::into);
        }
        for (idx, &source) in subscription.flow.sources.iter().enumerate() {
            if same_end().any(|other| other.flow.sources.contains(&source)) {
                continue;
            }
            if let Err(error) = cx.sockets.join_source(consumer, group, source) {
                if idx > 0 {
                    self.leave_sources(subscription, &subscription.flow.sources[..idx], cx);
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Leaves the group for these sources; leaves the whole group unless another subscription has
    /// it on this port. A consumer's sources of a group count for all its ports, so a source that
    /// another port names remains.
    fn leave_sources(&self, closed: &Subscription, sources: &[Ipv4Addr], cx: &mut Cx<'_>) {
        let (consumer, group) = (closed.consumer, group(closed));
        if self.at_the_same_end(closed).next().is_none() {
            // The call refuses only a group that is not joined.
            let _ = cx.sockets.leave(consumer, group);
        }
        let same_group = |source: &&Ipv4Addr| {
            let ours = self.subscriptions.iter().map(|(other, _)| other).filter(|other| other.consumer == consumer);
            let mut ours = ours.filter(|other| other.flow.destination.ip() == &group.group);
            !ours.any(|other| other.flow.sources.contains(source))
        };
        for &source in sources.iter().filter(same_group) {
            let _ = cx.sockets.leave_source(consumer, group, source);
        }
    }

    /// Other subscriptions of the same consumer to the same port and the same address or group.
    fn at_the_same_end(&self, subscription: &Subscription) -> impl Iterator<Item = &Subscription> {
        let (consumer, end) = (subscription.consumer, subscription.flow.destination);
        let others = self.subscriptions.iter().filter(|(_, listener)| listener.is_none()).map(|(other, _)| other);
        let udp = others.filter(|other| other.flow.protocol == Protocol::UDP);
        udp.filter(move |other| other.consumer == consumer && other.flow.destination == end)
    }
}

fn listen(
    subscription: &Subscription,
    options: ListenOptions,
    cx: &mut Cx<'_>,
) -> Result<ListenerId, SubscriptionError> {
    let options = ListenOptions { consumer: subscription.consumer, ..options };
    cx.tcp().listen(subscription.flow.destination, &options).map_err(Into::into)
}

/// Whether the answers of a connection are in this flow. Port 0 means that the connection's port is
/// not chosen yet; no flow to a single local port covers it.
fn covers(flow: &FlowSpec, connection: Flow) -> bool {
    let Flow { local, remote } = connection;
    let (address, port) = (*flow.destination.ip(), flow.destination.port());
    (address.is_unspecified() || address == *local.ip())
        && (port == 0 || port == local.port())
        && (flow.sources.is_empty() || flow.sources.contains(remote.ip()))
        && flow.source_port.is_none_or(|port| port == remote.port())
}

fn group(subscription: &Subscription) -> Group {
    Group::new(*subscription.flow.destination.ip(), subscription.flow.destination.port())
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddrV4;

    use super::*;
    use crate::counters::Block;
    use crate::device::memory::{MemoryConfig, pair};
    use crate::pipeline::tcp::{ConnectError, ConnectionOptions, TcpConfig};
    use crate::port::{listen, tcp_from};
    use crate::proto::ConsumerId;
    use crate::time::Instant;
    use crate::worker::Worker;

    const PEER: [u8; 4] = [192, 0, 2, 2];

    /// Whether each of these local ports connects to port 9100 of the peer where these are
    /// subscribed to.
    fn check(is_shared: bool, subscriptions: &[Subscription], expected: &[(u16, bool)]) {
        let (mut near, _far) = pair("wire", MemoryConfig::default());
        let block = Block::heap();
        let worker = Worker::builder(&mut near).unwrap().address("192.0.2.1/24".parse().unwrap());
        let mut worker = worker.tcp(TcpConfig::default()).build((), &block.scope("worker0")).unwrap();
        worker.with_app(Instant::ZERO, |_, cx| {
            let mut opened = Opened::new(is_shared.then(Vec::new), cx);
            subscriptions.iter().for_each(|subscription| opened.open(subscription, cx).unwrap());
            for &(port, is_heard) in expected {
                let (local, remote) =
                    (SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port), SocketAddrV4::new(PEER.into(), 9_100));
                let begun = cx.tcp().connect(local, remote, &ConnectionOptions::default(), ConsumerId(0));
                match begun {
                    Ok(_) => assert!(is_heard, "from port {port}"),
                    Err(ConnectError::NotSubscribed { .. }) => assert!(!is_heard, "from port {port}"),
                    Err(error) => panic!("from port {port}: {error}"),
                }
            }
            subscriptions.iter().for_each(|subscription| opened.close(subscription, cx));
        });
    }

    #[test]
    fn connection_whose_answers_the_kernel_would_get_is_refused() {
        check(true, &[], &[(0, false), (40_000, false)]);
        check(true, &[tcp_from(PEER, 9_100)], &[(0, true), (40_000, true)]);
        check(true, &[tcp_from(PEER, 9_100).local_port(40_000)], &[(40_000, true), (40_001, false), (0, false)]);
        check(true, &[tcp_from(PEER, 9_101), tcp_from([192, 0, 2, 3], 9_100)], &[(40_000, false)]);
        check(true, &[listen(Ipv4Addr::UNSPECIFIED, 40_000)], &[(40_000, true), (40_001, false)]);
    }

    #[test]
    fn host_of_its_own_connects_as_it_likes() {
        check(false, &[], &[(0, true), (40_000, true)]);
    }

    #[test]
    fn refusal_names_the_subscription() {
        let local = SocketAddrV4::new([192, 0, 2, 1].into(), 40_000);
        let refused = ConnectError::NotSubscribed { local, remote: SocketAddrV4::new(PEER.into(), 9_100) };
        let refused = refused.to_string();
        assert!(refused.contains("subscribe(tcp_from([192, 0, 2, 2], 9100).local_port(40000))"), "{refused}");
    }
}
