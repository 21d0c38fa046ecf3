//! An echo over TCP, and a client that finds out whether it is one: both ends in one process, over
//! a wire of plain memory.
//!
//! `cargo run --release -p wirepath --example tcp_echo`
//!
//! The same echo on a NIC, as root, at an address that the kernel does not have:
//! `… --example tcp_echo -- eth1 10.0.0.2/24`, and `nc 10.0.0.2 7` on another host.

mod cli;
mod link;

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;

use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, pair};
use wirepath::pipeline::tcp::{
    CloseReason, ConnectionId, ConnectionOptions, ListenOptions, TcpConfig, TcpData, TcpEvent,
};
use wirepath::pipeline::{App, Cx};
use wirepath::port::{Port, listen};
use wirepath::proto::{ConsumerId, Ipv4Prefix};
use wirepath::time::{Clock, MonotonicClock};
use wirepath::worker::Worker;

const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 7);
/// Bytes that go there and back.
const LEN: usize = 1 << 20;

/// Sends back the received data. While the peer does not read, this app does not read from it
/// either, so the peer's window closes.
#[derive(Default)]
struct Echo {
    link: link::Link,
    debts: HashMap<ConnectionId, Debt>,
}

/// Data of a connection that could not be sent back yet.
#[derive(Default)]
struct Debt {
    owed: Vec<u8>,
    peer_closed: bool,
}

impl Debt {
    /// Sends the waiting data; true where none is left. Otherwise `Writable` follows.
    fn pay(&mut self, id: ConnectionId, cx: &mut Cx<'_>) -> bool {
        let sent = cx.tcp().send(id, &self.owed).unwrap_or(0);
        self.owed.drain(..sent);
        self.owed.is_empty()
    }
}

impl App for Echo {
    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.link.look(cx.host);
    }

    fn on_tcp_event(&mut self, id: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        if let TcpEvent::Closed(_) = event {
            self.debts.remove(&id);
            return;
        }
        let debt = self.debts.entry(id).or_default();
        debt.peer_closed |= event == TcpEvent::PeerClosed;
        if !matches!(event, TcpEvent::Writable | TcpEvent::PeerClosed) || !debt.pay(id, cx) {
            return;
        }
        // A connection that is gone refuses calls, and its `Closed` event reports the end.
        let _ = if debt.peer_closed { cx.tcp().shutdown(id) } else { cx.tcp().resume(id) };
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        let debt = self.debts.entry(data.connection).or_default();
        debt.owed.extend_from_slice(data.payload);
        if !debt.pay(data.connection, cx) {
            let _ = cx.tcp().pause(data.connection);
        }
    }
}

/// Sends numbers and counts those that come back.
#[derive(Default)]
struct Client {
    id: Option<ConnectionId>,
    sent: usize,
    received: usize,
    closed: Option<CloseReason>,
}

fn byte(idx: usize) -> u8 {
    (idx % 251) as u8
}

impl App for Client {
    fn tick(&mut self, cx: &mut Cx<'_>) {
        let Some(id) = self.id.filter(|_| self.sent < LEN) else { return };
        let mut bytes = [0; 4096];
        let len = bytes.len().min(LEN - self.sent);
        bytes[..len].iter_mut().zip(self.sent..).for_each(|(to, idx)| *to = byte(idx));
        self.sent += cx.tcp().send(id, &bytes[..len]).unwrap_or(0);
        if self.sent == LEN {
            // Shuts our direction only: the peer may still receive the data that is on its way
            // back.
            let _ = cx.tcp().shutdown(id);
        }
    }

    fn on_tcp_event(&mut self, id: ConnectionId, event: TcpEvent, _: &mut Cx<'_>) {
        match event {
            TcpEvent::Connected { .. } => self.id = Some(id),
            TcpEvent::Closed(reason) => self.closed = Some(reason),
            _ => (),
        }
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, _: &mut Cx<'_>) {
        for &came in data.payload {
            assert_eq!(came, byte(self.received), "byte {}", self.received);
            self.received += 1;
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    cli::exit_code(run(&arguments))
}

pub(crate) fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    match arguments {
        [] => over_memory(),
        [interface, address] => on_a_port(interface, address),
        _ => Err("usage: tcp_echo [INTERFACE ADDRESS/LEN]".into()),
    }
}

/// An interface that is ours. Beside the kernel it would have no `address`.
fn on_a_port(interface: &str, address: &str) -> Result<(), Box<dyn Error>> {
    let prefix: Ipv4Prefix = cli::parse(address, "an address with its network's length, like 10.0.0.2/24")?;
    let echo = listen(Ipv4Addr::UNSPECIFIED, SERVER.port());
    Ok(Port::open(interface)?
        .named("tcp_echo")
        .address(prefix.address(), prefix.len())
        .tcp()
        .subscribe(echo)
        .run_app(Echo::default())?)
}

fn over_memory() -> Result<(), Box<dyn Error>> {
    let (mut near, mut far) = pair("wire", MemoryConfig::default());
    let block = Block::heap();
    let client = Worker::builder(&mut near)?.address("192.0.2.1/24".parse()?).tcp(TcpConfig::default());
    let mut client = client.build(Client::default(), &block.scope("client"))?;
    let server = Worker::builder(&mut far)?.address("192.0.2.2/24".parse()?).tcp(TcpConfig::default());
    let mut server = server.build(Echo::default(), &block.scope("server"))?;
    let mut clock = MonotonicClock::start();
    server.with_app(clock.now(), |_, cx| cx.tcp().listen(SERVER, &ListenOptions::default()))?;
    let (any, options) = (SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), ConnectionOptions::default());
    client.with_app(clock.now(), |_, cx| cx.tcp().connect(any, SERVER, &options, ConsumerId(1)))?;
    let start = clock.now();
    while client.app().received < LEN && client.app().closed.is_none() {
        client.poll_once(clock.now());
        server.poll_once(clock.now());
    }
    let spent = clock.now().since(start).as_nanos().max(1);
    println!("{} bytes came back, {} Mbit/s", client.app().received, 16_000 * LEN as u64 / spent);
    assert_eq!(client.app().received, LEN, "closed: {:?}", client.app().closed);
    Ok(())
}
