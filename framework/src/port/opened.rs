//! The subscriptions that are open in one worker's sockets: joined groups, bound addresses,
//! listeners. Several subscriptions may share one of these: the first opens it and the last closes
//! it.

use core::fmt;
use core::net::Ipv4Addr;

use super::error::Error;
use super::subscription::Subscription;
use crate::pipeline::Cx;
use crate::pipeline::tcp::{ListenOptions, ListenerId};
use crate::proto::{Group, Sharing};
use crate::wire::Protocol;

/// The subscriptions of one worker, in the order in which they were opened.
#[derive(Default)]
pub(super) struct Opened(Vec<(Subscription, Option<ListenerId>)>);

impl Opened {
    /// Opens it at the worker's sockets, for the app.
    ///
    /// # Errors
    /// The sockets refuse it. Nothing has changed then.
    pub(super) fn open(&mut self, subscription: &Subscription, cx: &mut Cx<'_>) -> Result<(), Error> {
        let listener = match subscription.listens {
            Some(options) => Some(listen(subscription, options, cx)?),
            None if subscription.flow.protocol == Protocol::TCP => None,
            None if subscription.flow.is_group() => self.join(subscription, cx).map(|()| None)?,
            None => self.bind(subscription, cx).map(|()| None)?,
        };
        self.0.push((subscription.clone(), listener));
        Ok(())
    }

    /// Closes it. What another subscription shares remains open.
    pub(super) fn close(&mut self, subscription: &Subscription, cx: &mut Cx<'_>) {
        let Some(place) = self.0.iter().position(|(opened, _)| opened.is_same(subscription)) else { return };
        let (closed, listener) = self.0.remove(place);
        match listener {
            Some(listener) => _ = cx.tcp().close_listener(listener),
            None if closed.flow.protocol == Protocol::TCP => (),
            None if closed.flow.is_group() => self.leave_sources(&closed, &closed.flow.sources, cx),
            None if self.at_the_same_end(&closed).next().is_some() => (),
            None => _ = cx.sockets.unbind(closed.consumer, closed.flow.destination),
        }
    }

    fn bind(&self, subscription: &Subscription, cx: &mut Cx<'_>) -> Result<(), Error> {
        if self.at_the_same_end(subscription).next().is_some() {
            return Ok(());
        }
        let bound = cx.sockets.bind(subscription.consumer, subscription.flow.destination, Sharing::Exclusive);
        bound.map(drop).map_err(|error| refused(subscription, &error))
    }

    /// Joins the group for each of its sources, or for any source. If a join is refused, leaves
    /// those made before.
    fn join(&self, subscription: &Subscription, cx: &mut Cx<'_>) -> Result<(), Error> {
        let (consumer, group) = (subscription.consumer, group(subscription));
        let same_end = || self.at_the_same_end(subscription);
        if subscription.flow.sources.is_empty() {
            if same_end().any(|other| other.flow.sources.is_empty()) {
                return Ok(());
            }
            return cx.sockets.join(consumer, group).map_err(|error| refused(subscription, &error));
        }
        for (idx, &source) in subscription.flow.sources.iter().enumerate() {
            if same_end().any(|other| other.flow.sources.contains(&source)) {
                continue;
            }
            if let Err(error) = cx.sockets.join_source(consumer, group, source) {
                if idx > 0 {
                    self.leave_sources(subscription, &subscription.flow.sources[..idx], cx);
                }
                return Err(refused(subscription, &error));
            }
        }
        Ok(())
    }

    /// Leaves the group for these sources, and as a whole unless another subscription has it on
    /// this port. A consumer's sources of a group count for all its ports, so a source that another
    /// port names remains.
    fn leave_sources(&self, closed: &Subscription, sources: &[Ipv4Addr], cx: &mut Cx<'_>) {
        let (consumer, group) = (closed.consumer, group(closed));
        if self.at_the_same_end(closed).next().is_none() {
            // It refuses only a group that is not joined.
            let _ = cx.sockets.leave(consumer, group);
        }
        let same_group = |source: &&Ipv4Addr| {
            let ours = self.0.iter().map(|(other, _)| other).filter(|other| other.consumer == consumer);
            let mut ours = ours.filter(|other| other.flow.destination.ip() == &group.group);
            !ours.any(|other| other.flow.sources.contains(source))
        };
        for &source in sources.iter().filter(same_group) {
            let _ = cx.sockets.leave_source(consumer, group, source);
        }
    }

    /// Other subscriptions of the same consumer to the same address or group, and port.
    fn at_the_same_end(&self, subscription: &Subscription) -> impl Iterator<Item = &Subscription> {
        let (consumer, end) = (subscription.consumer, subscription.flow.destination);
        let others = self.0.iter().filter(|(_, listener)| listener.is_none()).map(|(other, _)| other);
        let udp = others.filter(|other| other.flow.protocol == Protocol::UDP);
        udp.filter(move |other| other.consumer == consumer && other.flow.destination == end)
    }
}

fn listen(subscription: &Subscription, options: ListenOptions, cx: &mut Cx<'_>) -> Result<ListenerId, Error> {
    let options = ListenOptions { consumer: subscription.consumer, ..options };
    cx.tcp().listen(subscription.flow.destination, &options).map_err(|error| refused(subscription, &error))
}

fn group(subscription: &Subscription) -> Group {
    Group::new(*subscription.flow.destination.ip(), subscription.flow.destination.port())
}

fn refused(subscription: &Subscription, why: &dyn fmt::Display) -> Error {
    Error::Subscription { what: subscription.to_string(), why: why.to_string() }
}
