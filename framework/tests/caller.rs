//! A client's connection that is called again, over a wire of plain memory in virtual time.
#![allow(clippy::unwrap_used)] // a panic here is the report

use core::net::{Ipv4Addr, SocketAddrV4};

use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, MemoryDevice, MemoryRx, MemoryTx, pair};
use wirepath::pipeline::HostStack;
use wirepath::prelude::*;
use wirepath::worker::Worker;

const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 80);

struct Client {
    caller: Caller,
    events: Vec<CallerEvent>,
}

impl App for Client {
    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.caller.tick(cx).unwrap();
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        match self.caller.take(connection, event, cx) {
            CallerEvent::None => (),
            event => self.events.push(event),
        }
    }
}

/// Remembers its connections.
#[derive(Default)]
struct Server(Vec<ConnectionId>);

impl App for Server {
    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, _: &mut Cx<'_>) {
        if let TcpEvent::Connected { .. } = event {
            self.0.push(connection);
        }
    }
}

type End<A> = Worker<MemoryRx, MemoryTx, HostStack, A>;

struct Wire {
    client: End<Client>,
    server: End<Server>,
    now: Instant,
}

impl Wire {
    fn new() -> Self {
        let (near, far) = pair("wire", MemoryConfig::default());
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let client = Client { caller: Caller::new(any, SERVER, ConsumerId(0)), events: Vec::new() };
        let now = Instant::from_nanos(1_000_000_000);
        Self { client: end(near, "192.0.2.1/24", client), server: end(far, "192.0.2.2/24", Server::default()), now }
    }

    fn listen(&mut self) {
        self.server.with_app(self.now, |_, cx| cx.tcp().listen(SERVER, &ListenOptions::default())).unwrap();
    }

    /// Ten milliseconds a turn.
    fn run(&mut self, turns: usize) {
        for _ in 0..turns {
            self.now += Duration::from_millis(10);
            self.client.poll_once(self.now);
            self.server.poll_once(self.now);
        }
    }

    fn events(&mut self) -> Vec<CallerEvent> {
        self.client.with_app(self.now, |client, _| core::mem::take(&mut client.events))
    }
}

fn end<A: App>(mut port: MemoryDevice, address: &str, app: A) -> End<A> {
    let builder = Worker::builder(&mut port).unwrap().address(address.parse().unwrap()).tcp(TcpConfig::default());
    builder.build(app, &Block::heap().scope("end")).unwrap()
}

#[test]
fn server_that_closes_is_called_again_after_the_pause() {
    let mut wire = Wire::new();
    wire.listen();
    wire.run(3);
    assert_eq!(wire.events(), [CallerEvent::Up]);
    wire.server.with_app(wire.now, |server, cx| cx.tcp().close(server.0[0])).unwrap();
    wire.run(50);
    assert_eq!(wire.events(), [CallerEvent::Down(CloseReason::Finished)]);
    wire.run(60);
    assert_eq!(wire.events(), [CallerEvent::Up]);
    assert_eq!(wire.server.app().0.len(), 2);
}

#[test]
fn server_that_is_not_there_is_called_once_a_pause() {
    let mut wire = Wire::new();
    wire.run(250);
    assert_eq!(wire.events(), [CallerEvent::Down(CloseReason::Refused); 3]);
}
