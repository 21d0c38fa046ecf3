//! A stack: a port's worker, and the tables of its caller's objects. All calls of the C API in safe
//! Rust; those of TCP are in `connections`.

mod answers;
mod connections;
mod options;

use core::ffi::c_char;
use core::net::SocketAddrV4;
use std::io::Write as _;
use std::rc::Rc;
use std::time::Duration as StdDuration;

use wirepath::counters::Reading;
use wirepath::pipeline::tcp::{ConnectionOptions, ListenError, ListenOptions, PreparedOrder, TcpConfig};
use wirepath::pipeline::{ChecksumPolicy, Cx, UdpFlow, UdpOptions, UdpSendError, UdpSendToError, UdpSent, send_to};
use wirepath::port::{EmbeddedPort, Port, Subscription, SubscriptionError, listen, multicast};
use wirepath::proto::{DemuxError, Ipv4Prefix, SocketError, TimerId};
use wirepath::time::Duration;
use wirepath::worker::live::sleep_on;

use crate::abi::{self, Event, Handle};
use crate::collector::{Bytes, Collector, Shared};
use crate::error::{Code, Fault, Result};
use crate::foreign::Output;
use crate::handles::{Handles, StackNumber};
use crate::returned::Returned;

use answers::Answers;
pub(crate) use options::{ANY, check_flags, tcp_options, udp_options};

/// How long `wait` sleeps between two looks at a device without a descriptor.
const NAP: StdDuration = StdDuration::from_micros(50);

pub(crate) struct Stack {
    // Dropped in this order: the holders of buffers before the pool.
    held: Handles<Bytes>,
    flows: Handles<UdpFlow>,
    orders: Handles<PreparedOrder>,
    subscriptions: Handles<Subscribed>,
    /// What is steered here for each connection that this side opened, on an interface that is
    /// shared with the kernel.
    answers: Answers,
    number: StackNumber,
    /// Buffers that other threads have released; opened with the stack's handle.
    returned: Option<Returned>,
    /// The token for the times of the next call's frames, if `wp_stamp` requested them.
    stamp: Option<u64>,
    /// Where the collector writes during a poll.
    output: Rc<Output<Event>>,
    port: EmbeddedPort<Collector>,
}

/// A subscription, and where a listener of it listens.
struct Subscribed {
    subscription: Subscription,
    listens_at: Option<SocketAddrV4>,
}

/// The parsed `wp_options`.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) flags: u32,
    pub(crate) name: Option<String>,
    pub(crate) address: Option<String>,
    pub(crate) gateway: Option<String>,
    pub(crate) connections: u32,
    pub(crate) held: u32,
}

impl Stack {
    pub(crate) fn open(name: &str, settings: &Settings) -> Result<Self> {
        let refused = |why: &dyn std::fmt::Display| Fault::because(Code::Open, why);
        let mut port = Port::open(name).map_err(|error| refused(&error))?.held(settings.held as usize);
        port = match settings.flags & abi::WP_LOG {
            0 => port.log(|_| ()),
            // Nothing can be done where the line finds no room, and the stack is sound.
            _ => port.log(|line| _ = writeln!(std::io::stderr(), "{line}")),
        };
        if settings.flags & abi::WP_TIMESTAMPS != 0 {
            port = port.timestamps();
        }
        if settings.flags & abi::WP_ACCEPT_CHECKSUMS != 0 {
            port = port.checksum(ChecksumPolicy::AcceptPartial);
        }
        if let Some(name) = &settings.name {
            port = port.named(name);
        }
        if let Some(address) = &settings.address {
            let wrong = |_| {
                Fault::because(Code::Argument, format!("`{address}` is no address with its network, like 10.0.0.2/24"))
            };
            let prefix: Ipv4Prefix = address.parse().map_err(wrong)?;
            port = port.address(prefix.address(), prefix.len());
        }
        if let Some(gateway) = &settings.gateway {
            let wrong =
                |_| Fault::because(Code::Argument, format!("`{gateway}` is no address of a gateway, like 10.0.0.1"));
            port = port.route(Ipv4Prefix::ALL, gateway.parse().map_err(wrong)?);
        }
        if settings.connections > 0 {
            let connections_max = settings.connections as usize;
            port = port.tcp_with(TcpConfig { connections_max, ..TcpConfig::default() });
        }
        let (output, number) = (Rc::new(Output::new()), StackNumber::next());
        let mut port = port.embed(Collector::new(Rc::clone(&output), number)).map_err(|error| refused(&error))?;
        if port.is_shared() {
            port.app_mut().shared = Some(Shared::with_capacity(settings.connections as usize));
        }
        if settings.flags & abi::WP_TIMESTAMPS != 0 {
            // A device without transmit timestamps may still stamp received frames.
            port.with_app(|app, cx| cx.enable_timestamps().map_or((), |()| app.take_tx_timestamps()));
        }
        Ok(Self {
            held: Handles::new(number),
            flows: Handles::new(number),
            orders: Handles::new(number),
            subscriptions: Handles::new(number),
            answers: Answers::default(),
            number,
            returned: None,
            stamp: None,
            output,
            port,
        })
    }

    /// The stack has got its handle: from now on other threads may release its buffers.
    pub(crate) fn named(&mut self, handle: Handle) {
        self.returned = Some(Returned::open(handle));
    }

    /// Makes a turn unless events of the last one are left, and writes at most `room` events from
    /// `events` on.
    #[inline]
    pub(crate) fn poll(&mut self, events: *mut Event, room: usize) -> Result<i32> {
        if !self.held.is_empty() {
            self.take_returned();
        }
        let Self { output, port, .. } = self;
        let (has_waited, count) = output.during(events, room, || {
            let has_waited = port.app_mut().begin_poll();
            if !has_waited {
                port.poll();
            }
            has_waited
        })?;
        if port.app().shared.as_ref().is_some_and(|shared| !shared.ended.is_empty()) {
            self.forget_answers();
        }
        if count == 0 {
            return self.without_events(has_waited);
        }
        Ok(count as i32)
    }

    /// Releases the buffers that other threads have returned.
    fn take_returned(&mut self) {
        while let Some(buffer) = self.returned.as_ref().and_then(Returned::take) {
            // A stale handle names nothing to release.
            let _ = self.held.remove(buffer);
        }
    }

    /// The result of a poll that wrote no event.
    #[inline]
    fn without_events(&self, has_waited: bool) -> Result<i32> {
        if has_waited {
            let why = "many events wait, and the array has no place for one: poll with an array";
            return Err(Fault::because(Code::Again, why));
        }
        if self.port.has_ended() && self.port.app().is_empty() {
            return Err(Code::Ended.into());
        }
        Ok(0)
    }

    /// Calls the worker; its frames leave before this returns, except with `WP_MORE`.
    #[inline]
    fn call<T>(&mut self, flags: u32, act: impl FnOnce(&mut Cx<'_>) -> T) -> T {
        if flags & abi::WP_MORE == 0 {
            self.port.with_app(|_, cx| act(cx))
        } else {
            self.port.with_app_batched(|_, cx| act(cx))
        }
    }

    pub(crate) fn flush(&mut self) {
        self.port.with_app(|_, _| ());
    }

    pub(crate) fn now(&self) -> i64 {
        self.port.now().as_nanos() as i64
    }

    pub(crate) fn wait_fd(&mut self) -> Result<i32> {
        let none = "the device of this stack has no descriptor to sleep on: poll it, or call wp_wait";
        self.port.wait_fd().ok_or_else(|| Fault::because(Code::Unsupported, none))
    }

    /// Nanoseconds until the next poll has work; `i64::MAX` for never.
    pub(crate) fn time_to_next(&mut self) -> i64 {
        if self.port.app().has_tx_timestamps() {
            // Timestamps that have arrived neither wake the descriptor nor have a deadline.
            self.port.with_app_batched(|app, cx| app.write_tx_timestamps(cx));
        }
        if !self.port.app().is_empty() {
            return 0;
        }
        self.port.time_to_next().map_or(i64::MAX, |time| time.as_nanos().min(i64::MAX as u64) as i64)
    }

    pub(crate) fn wait(&mut self, timeout_ns: i64) {
        let fd = self.port.wait_fd();
        let next = self.time_to_next();
        let next = if timeout_ns < 0 { next } else { next.min(timeout_ns) };
        let timeout = (next != i64::MAX).then(|| StdDuration::from_nanos(next.max(0) as u64));
        match fd {
            fd @ Some(_) => sleep_on([fd], timeout),
            None => std::thread::sleep(timeout.map_or(NAP, |timeout| timeout.min(NAP))),
        }
    }

    // Bytes.

    pub(crate) fn hold(&mut self, chunk: u64) -> Result<Handle> {
        let bytes = self.port.app().keep(chunk)?;
        self.held.insert(bytes)
    }

    pub(crate) fn release(&mut self, held: Handle) -> Result<()> {
        self.held.remove(held).map(drop)
    }

    // Subscriptions.

    fn subscribe(&mut self, subscription: Subscription, listens_at: Option<SocketAddrV4>) -> Result<Handle> {
        self.port.subscribe(subscription.clone()).map_err(subscription_fault)?;
        self.subscriptions.insert(Subscribed { subscription, listens_at })
    }

    pub(crate) fn unsubscribe(&mut self, handle: Handle) -> Result<()> {
        if let Some(listener) = self.subscriptions.get_mut(handle)?.listens_at {
            self.keep_accepted(listener)?;
        }
        let Subscribed { subscription, .. } = self.subscriptions.remove(handle)?;
        self.port.unsubscribe(&subscription).map_err(|error| Fault::because(Code::Refused, error))
    }

    pub(crate) fn bind(&mut self, local: SocketAddrV4, tag: u32) -> Result<Handle> {
        if local.ip().is_multicast() {
            return Err(Fault::because(Code::Argument, "a group is joined and not bound: call wp_udp_join"));
        }
        self.subscribe(wirepath::port::udp(*local.ip(), local.port()).consumer(tag), None)
    }

    pub(crate) fn join(
        &mut self,
        group: SocketAddrV4,
        sources: impl Iterator<Item = Result<SocketAddrV4>>,
        tag: u32,
    ) -> Result<Handle> {
        if !group.ip().is_multicast() {
            return Err(Fault::because(Code::Argument, format!("{} is no group: call wp_udp_bind", group.ip())));
        }
        let mut subscription = multicast(*group.ip(), group.port()).consumer(tag);
        for source in sources {
            subscription = subscription.source(*source?.ip());
        }
        self.subscribe(subscription, None)
    }

    pub(crate) fn listen(
        &mut self,
        local: SocketAddrV4,
        options: Option<ConnectionOptions>,
        tag: u32,
    ) -> Result<Handle> {
        let fresh = ListenOptions::default();
        let connection = options.unwrap_or(fresh.connection);
        let subscription = listen(*local.ip(), local.port()).options(ListenOptions { connection, ..fresh });
        self.subscribe(subscription.consumer(tag), Some(local))
    }

    // Datagrams.

    pub(crate) fn flow(&mut self, local: SocketAddrV4, remote: SocketAddrV4, options: &UdpOptions) -> Result<Handle> {
        let flow = self.call(0, |cx| UdpFlow::connect(local, remote, options, cx));
        self.flows.insert(flow.map_err(|error| Fault::because(Code::Unreachable, error))?)
    }

    pub(crate) fn close_flow(&mut self, flow: Handle) -> Result<()> {
        self.flows.remove(flow).map(drop)
    }

    #[inline]
    pub(crate) fn udp_send(&mut self, flow: Handle, payload: &[u8], flags: u32) -> Result<i32> {
        let Self { flows, port, stamp, .. } = self;
        let flow = flows.get_mut(flow)?;
        match send(port, stamp, flags, |cx| flow.send(payload, cx)) {
            Ok(sent) => Ok(udp_sent(sent)),
            Err(error) => Err(udp_fault(error)),
        }
    }

    pub(crate) fn udp_send_to(
        &mut self,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        payload: &[u8],
        flags: u32,
    ) -> Result<i32> {
        let Self { port, stamp, .. } = self;
        let sent = send(port, stamp, flags, |cx| send_to(local, remote, &UdpOptions::default(), payload, cx));
        sent.map(udp_sent).map_err(|error| match error {
            UdpSendToError::Send(error) => udp_fault(error),
            error => Fault::because(Code::Unreachable, error),
        })
    }

    // Timers and counters.

    pub(crate) fn after(&mut self, delay_ns: u64, token: u64) -> Result<Handle> {
        // Of the last turn's time, the timer would expire early by all that the caller has done
        // since.
        self.port.read_clock();
        let timer = self.port.with_app_batched(|_, cx| cx.after(Duration::from_nanos(delay_ns), token));
        timer
            .map(|timer| Handle { id: timer.to_bits() ^ self.number.mark() })
            .map_err(|error| Fault::because(Code::Limit, error))
    }

    pub(crate) fn cancel(&mut self, timer: Handle) -> Result<()> {
        let timer = TimerId::from_bits(timer.id ^ self.number.mark());
        match self.port.with_app_batched(|_, cx| cx.cancel(timer)) {
            true => Ok(()),
            false => Err(Code::Stale.into()),
        }
    }

    /// Requests the times at which the frames of the next call that sends leave.
    pub(crate) fn stamp(&mut self, token: u64) -> Result<()> {
        if !self.port.app().has_tx_timestamps() {
            let why = "frames that are sent are not stamped: open the stack with WP_TIMESTAMPS, on a device that can";
            return Err(Fault::because(Code::Unsupported, why));
        }
        self.stamp = Some(token);
        Ok(())
    }

    /// All counters and gauges, in the order of `wirepath stats`.
    pub(crate) fn stats(&self) -> impl Iterator<Item = abi::Stat> {
        self.port.counters().samples.into_iter().filter_map(|sample| {
            let (kind, value) = match sample.reading {
                Reading::Counter(count) => (abi::WP_STAT_COUNTER, count),
                Reading::Gauge(count) => (abi::WP_STAT_GAUGE, count),
                _ => return None,
            };
            let mut name = [0; abi::STAT_NAME_LEN];
            // The last byte stays zero.
            let letters = name[..abi::STAT_NAME_LEN - 1].iter_mut().zip(sample.name.bytes());
            letters.for_each(|(place, letter)| *place = letter as c_char);
            Some(abi::Stat { name, kind, value })
        })
    }

    pub(crate) fn counter(&self, name: &str) -> Result<u64> {
        let unknown =
            || Fault::because(Code::Name, format!("there is no counter `{name}`: `wirepath stats` lists them"));
        match &self.port.counters().sample(name).ok_or_else(unknown)?.reading {
            Reading::Counter(count) | Reading::Gauge(count) => Ok(*count),
            _ => Err(unknown()),
        }
    }
}

/// Calls the worker to send. The frames leave before this returns, except with `WP_MORE`, and are
/// stamped if `wp_stamp` requested that. A refused call leaves the request for the next one.
#[inline(always)]
fn send<T, E>(
    port: &mut EmbeddedPort<Collector>,
    stamp: &mut Option<u64>,
    flags: u32,
    act: impl FnOnce(&mut Cx<'_>) -> core::result::Result<T, E>,
) -> core::result::Result<T, E> {
    let act = |cx: &mut Cx<'_>| match *stamp {
        None => act(cx),
        Some(token) => {
            let sent = cx.timestamped(token, act).0;
            *stamp = sent.is_err().then_some(token);
            sent
        }
    };
    if flags & abi::WP_MORE == 0 { port.with_app(|_, cx| act(cx)) } else { port.with_app_batched(|_, cx| act(cx)) }
}

fn udp_sent(sent: UdpSent) -> i32 {
    match sent {
        UdpSent::Posted => abi::WP_SENT,
        // Or a later way to wait.
        _ => abi::WP_QUEUED,
    }
}

#[cold]
fn subscription_fault(error: wirepath::Error) -> Fault {
    let code = match &error {
        wirepath::Error::Subscription { why: SubscriptionError::Listen(ListenError::Option(_)), .. } => Code::Argument,
        wirepath::Error::Subscription {
            why: SubscriptionError::Socket(SocketError::Demux(DemuxError::NoPort)),
            ..
        } => Code::Argument,
        _ => Code::Refused,
    };
    Fault::because(code, error)
}

#[cold]
fn udp_fault(error: UdpSendError) -> Fault {
    match error {
        UdpSendError::PoolEmpty | UdpSendError::RingFull => Code::Again.into(),
        UdpSendError::TooLong | UdpSendError::DontFragment { .. } => Fault::because(Code::TooLong, error),
        error => Fault::because(Code::Unreachable, error),
    }
}
