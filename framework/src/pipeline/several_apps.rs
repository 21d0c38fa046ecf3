//! Several apps on one worker: a tuple of apps is an app, which calls each of them in order;
//! [`for_consumers`] passes an app only the events of its own consumers. Choosing the app costs one
//! compare; a worker with one app pays nothing.

use core::fmt;
use core::ops::Range;

use super::app::{App, AppError};
use super::icmp::node::{EchoReply, IcmpError};
use super::node::Cx;
use super::tcp::{AcceptDecision, ConnectionId, ListenerId, TcpData, TcpEvent};
use super::udp::datagram::Datagram;
use crate::mem::Mbuf;
use crate::proto::{ConsumerId, Flow};
use crate::time::Instant;
use crate::wire::EtherType;

/// An app that gets only the events of its consumers: see [`for_consumers`].
#[derive(Clone, Debug)]
pub struct ForConsumers<A> {
    consumers: Range<u32>,
    app: A,
}

/// Passes `app` only the events of these consumers, so that several apps share a worker without
/// knowing of each other: datagrams, ICMP errors and TCP by the consumer of the subscription,
/// socket, connection or listener; timers by the app that set them. Echo replies, frames of other
/// protocols, `on_start`, `on_stop` and `tick` come to all apps. Costs one compare for each call.
///
/// No consumer is of two apps: [`on_start`](App::on_start) of a tuple fails where ranges overlap or
/// begin together, so a [`Port`](crate::port::Port) with such apps does not start. Code that polls
/// a [`Worker`](crate::worker::Worker) itself learns of it if it calls `on_start`. An app that sees
/// the events of all consumers stands in the tuple by itself.
///
/// ```no_run
/// use wirepath::prelude::*;
///
/// #[derive(Default)]
/// struct Quotes(u64);
/// impl App for Quotes {
///     fn on_datagram(&mut self, _: &Datagram<'_>, _: &mut Cx<'_>) {
///         self.0 += 1;
///     }
/// }
///
/// #[derive(Default)]
/// struct Alarm(u64);
/// impl App for Alarm {
///     fn on_datagram(&mut self, datagram: &Datagram<'_>, _: &mut Cx<'_>) {
///         self.0 += u64::from(datagram.payload.starts_with(b"HALT"));
///     }
/// }
///
/// fn main() -> wirepath::Result<()> {
///     let quotes = || for_consumers(0..1, Quotes::default());
///     let alarm = || for_consumers(1..2, Alarm::default());
///     Port::open("eth1")?
///         .subscribe(multicast([239, 1, 1, 1], 9000).consumer(0))
///         .subscribe(multicast([239, 1, 1, 2], 9000).consumer(1))
///         .run(move |_worker| (quotes(), alarm()))
/// }
/// ```
pub fn for_consumers<A: App>(consumers: Range<u32>, app: A) -> ForConsumers<A> {
    ForConsumers { consumers, app }
}

impl<A> ForConsumers<A> {
    /// The app.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// Unwraps the app.
    pub fn into_app(self) -> A {
        self.app
    }

    #[inline(always)]
    fn has(&self, consumer: ConsumerId) -> bool {
        self.consumers.contains(&consumer.0)
    }

    /// The owner of its timers; 0 is an app by itself.
    fn owner(&self) -> u32 {
        self.consumers.start.wrapping_add(1)
    }

    /// Calls the app; timers that it sets are its own.
    #[inline(always)]
    fn call<T>(&mut self, cx: &mut Cx<'_>, call: impl FnOnce(&mut A, &mut Cx<'_>) -> T) -> T {
        let before = cx.timers.set_owner(self.owner());
        let result = call(&mut self.app, cx);
        cx.timers.set_owner(before);
        result
    }
}

impl<A: App> App for ForConsumers<A> {
    #[inline]
    fn prefetch(&mut self, frames: &[Mbuf]) {
        self.app.prefetch(frames);
    }

    #[inline]
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        if self.has(datagram.consumer) {
            self.call(cx, |app, cx| app.on_datagram(datagram, cx));
        }
    }

    fn on_tcp_accept(&mut self, listener: ListenerId, consumer: ConsumerId, flow: Flow) -> AcceptDecision {
        // A connection that no app hears of would never end.
        if self.has(consumer) { self.app.on_tcp_accept(listener, consumer, flow) } else { AcceptDecision::Refuse }
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        let consumer = cx.tcp().consumer(connection);
        if self.has(consumer) {
            self.call(cx, |app, cx| app.on_tcp_event(connection, event, cx));
        }
    }

    #[inline]
    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        if self.has(data.consumer) {
            self.call(cx, |app, cx| app.on_tcp_data(data, cx));
        }
    }

    fn on_icmp_error(&mut self, error: &IcmpError<'_>, cx: &mut Cx<'_>) {
        if self.has(error.consumer) {
            self.call(cx, |app, cx| app.on_icmp_error(error, cx));
        }
    }

    fn on_tcp_icmp_error(&mut self, connection: ConnectionId, error: &IcmpError<'_>, cx: &mut Cx<'_>) {
        if self.has(error.consumer) {
            self.call(cx, |app, cx| app.on_tcp_icmp_error(connection, error, cx));
        }
    }

    fn on_echo_reply(&mut self, reply: &EchoReply<'_>, cx: &mut Cx<'_>) -> bool {
        self.call(cx, |app, cx| app.on_echo_reply(reply, cx))
    }

    fn on_frame(&mut self, ethertype: EtherType, frame: &Mbuf, cx: &mut Cx<'_>) -> bool {
        self.call(cx, |app, cx| app.on_frame(ethertype, frame, cx))
    }

    fn is_for(&self, consumer: ConsumerId) -> bool {
        self.has(consumer)
    }

    fn list_consumers(&self, ranges: &mut Vec<Range<u32>>) {
        ranges.push(self.consumers.clone());
    }

    fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
        self.call(cx, |app, cx| app.on_start(cx))
    }

    fn on_stop(&mut self, cx: &mut Cx<'_>) {
        self.call(cx, |app, cx| app.on_stop(cx));
    }

    fn on_timer(&mut self, token: u64, cx: &mut Cx<'_>) {
        if cx.timers.due_owner() == self.owner() {
            self.call(cx, |app, cx| app.on_timer(token, cx));
        }
    }

    #[inline]
    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.call(cx, |app, cx| app.tick(cx));
    }

    fn next_deadline(&self, cx: &Cx<'_>) -> Instant {
        self.app.next_deadline(cx)
    }
}

/// The ranges of two apps of a tuple overlap, or begin together.
#[derive(Debug)]
struct SharedConsumers {
    one: Range<u32>,
    other: Range<u32>,
}

impl fmt::Display for SharedConsumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { one, other } = self;
        write!(
            f,
            "two apps of the worker have the consumers {one:?} and {other:?}: give each app of `for_consumers` a range \
             of its own"
        )
    }
}

impl core::error::Error for SharedConsumers {}

/// Refuses apps that would both get a consumer's events, or each other's timers, which are known by
/// the begin of the range.
fn refuse_overlap(apps: &impl App) -> Result<(), SharedConsumers> {
    let mut ranges = Vec::new();
    apps.list_consumers(&mut ranges);
    ranges.sort_by_key(|range| (range.start, range.end));
    refuse_pair(&ranges, |one, other| one.start == other.start)?;
    ranges.retain(|range| !range.is_empty());
    refuse_pair(&ranges, |one, other| one.end > other.start)
}

fn refuse_pair(
    ranges: &[Range<u32>],
    is_shared: impl Fn(&Range<u32>, &Range<u32>) -> bool,
) -> Result<(), SharedConsumers> {
    match ranges.windows(2).find(|pair| is_shared(&pair[0], &pair[1])) {
        Some(pair) => Err(SharedConsumers { one: pair[0].clone(), other: pair[1].clone() }),
        None => Ok(()),
    }
}

macro_rules! tuples {
    ($(($($app:ident $place:tt),+))+) => {$(
        /// Calls each app for everything, in order. A peer is accepted where all apps
        /// [for](App::is_for) the listener's consumer accept it, and refused where there is none;
        /// the first app that recognizes an echo reply takes it, and so does the first that takes a
        /// frame of another protocol; the first that fails to start ends the port.
        impl<$($app: App),+> App for ($($app,)+) {
            #[inline]
            fn prefetch(&mut self, frames: &[Mbuf]) {
                $(self.$place.prefetch(frames);)+
            }

            #[inline]
            fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
                $(self.$place.on_datagram(datagram, cx);)+
            }

            fn on_tcp_accept(&mut self, listener: ListenerId, consumer: ConsumerId, flow: Flow) -> AcceptDecision {
                let mut decision = AcceptDecision::Refuse;
                $(if self.$place.is_for(consumer) {
                    decision = self.$place.on_tcp_accept(listener, consumer, flow);
                    if decision != AcceptDecision::Yes {
                        return decision;
                    }
                })+
                decision
            }

            fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
                $(self.$place.on_tcp_event(connection, event, cx);)+
            }

            #[inline]
            fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
                $(self.$place.on_tcp_data(data, cx);)+
            }

            fn on_icmp_error(&mut self, error: &IcmpError<'_>, cx: &mut Cx<'_>) {
                $(self.$place.on_icmp_error(error, cx);)+
            }

            fn on_tcp_icmp_error(&mut self, connection: ConnectionId, error: &IcmpError<'_>, cx: &mut Cx<'_>) {
                $(self.$place.on_tcp_icmp_error(connection, error, cx);)+
            }

            fn on_echo_reply(&mut self, reply: &EchoReply<'_>, cx: &mut Cx<'_>) -> bool {
                $(self.$place.on_echo_reply(reply, cx))||+
            }

            fn on_frame(&mut self, ethertype: EtherType, frame: &Mbuf, cx: &mut Cx<'_>) -> bool {
                $(self.$place.on_frame(ethertype, frame, cx))||+
            }

            fn is_for(&self, consumer: ConsumerId) -> bool {
                $(self.$place.is_for(consumer))||+
            }

            fn list_consumers(&self, ranges: &mut Vec<Range<u32>>) {
                $(self.$place.list_consumers(ranges);)+
            }

            fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
                refuse_overlap(self)?;
                $(self.$place.on_start(cx)?;)+
                Ok(())
            }

            fn on_stop(&mut self, cx: &mut Cx<'_>) {
                $(self.$place.on_stop(cx);)+
            }

            fn on_timer(&mut self, token: u64, cx: &mut Cx<'_>) {
                $(self.$place.on_timer(token, cx);)+
            }

            #[inline]
            fn tick(&mut self, cx: &mut Cx<'_>) {
                $(self.$place.tick(cx);)+
            }

            fn next_deadline(&self, cx: &Cx<'_>) -> Instant {
                [$(self.$place.next_deadline(cx)),+].into_iter().fold(Instant::MAX, Instant::min)
            }
        }
    )+};
}

tuples! {
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
}
