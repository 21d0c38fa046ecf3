//! The calls of C that send on a connection beside the same calls of Rust, over wires of plain
//! memory: what the C ABI adds to a send and to a prepared order.

use core::hint::black_box;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ptr;

use wirepath::pipeline::tcp::{ConnectionId, ConnectionOptions, PreparedOrder, TcpData, TcpEvent};
use wirepath::pipeline::{App, Cx};
use wirepath::port::{EmbeddedPort, Port, listen};
use wirepath::proto::ConsumerId;
use wirepath_c::abi::{Event, Handle, WP_EVENT_CONNECTED, WP_EVENT_DATA, WP_MORE};
use wirepath_c::entry;

use super::c_calls::{address, done, open};
use super::time_each;
use crate::frames::PAYLOAD_LEN;

/// Segments of a turn: of sends, and of orders.
const TURN: usize = 16;
/// Turns of a sample.
const TURNS: usize = 64;
const NEAR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 5_000);
const FAR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 5_000);
const PAYLOAD: [u8; PAYLOAD_LEN] = [7; PAYLOAD_LEN];

/// Nanoseconds of a call that sends [`PAYLOAD`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Of a copy, without a doorbell.
    pub(super) send: f64,
    /// Of a prepared order, whose device has no doorbell to ring.
    pub(super) fire: f64,
}

/// Both in turns: the mean of many.
fn alternate(mut turn: impl FnMut() -> Times) -> Times {
    let mut sum = Times { send: 0.0, fire: 0.0 };
    for _ in 0..TURNS {
        let Times { send, fire } = turn();
        sum = Times { send: sum.send + send, fire: sum.fire + fire };
    }
    Times { send: sum.send / TURNS as f64, fire: sum.fire / TURNS as f64 }
}

/// Counts bytes, and notes that its connection is there.
#[derive(Default)]
struct Counted {
    len: usize,
    is_connected: bool,
}

impl App for Counted {
    fn on_tcp_data(&mut self, data: &TcpData<'_>, _: &mut Cx<'_>) {
        self.len += data.payload.len();
    }

    fn on_tcp_event(&mut self, _: ConnectionId, event: TcpEvent, _: &mut Cx<'_>) {
        self.is_connected |= matches!(event, TcpEvent::Connected { .. });
    }
}

/// A connection between two ports of Rust.
pub(super) struct Own {
    near: EmbeddedPort<Counted>,
    far: EmbeddedPort<Counted>,
    connection: ConnectionId,
    order: PreparedOrder,
}

impl Own {
    /// The order stands ready.
    pub(super) fn new() -> Self {
        let [mut near, mut far] = [NEAR, FAR].map(|local| {
            let port = Port::open("memory:rust-streams").expect("a wire").address(*local.ip(), 24);
            port.tcp().unpinned().log(|_| ()).embed(Counted::default()).expect("some MB")
        });
        far.subscribe(listen(*FAR.ip(), FAR.port())).expect("it is ours");
        let options = ConnectionOptions::default();
        let connection = near.with_app(|_, cx| cx.tcp().connect(NEAR, FAR, &options, ConsumerId(0))).expect("a route");
        while !near.app().is_connected {
            near.poll();
            far.poll();
        }
        let order = near.with_app(|_, cx| cx.tcp().prepare(connection, &PAYLOAD)).expect("it is open");
        Self { near, far, connection, order }
    }

    /// Sends, and fires orders, in turns.
    pub(super) fn times(&mut self) -> Times {
        let Self { near, far, connection, order } = self;
        let settle = |near: &mut EmbeddedPort<Counted>, far: &mut EmbeddedPort<Counted>, until: usize| {
            while far.app().len < until {
                near.poll();
                far.poll();
            }
            // Their acknowledgments.
            near.poll();
        };
        alternate(|| {
            let until = far.app().len + TURN * PAYLOAD.len();
            let send = time_each(TURN, || {
                for _ in 0..TURN {
                    let payload = black_box(&PAYLOAD[..]);
                    near.with_app_batched(|_, cx| cx.tcp().send(*connection, payload)).expect("room");
                }
            });
            settle(near, far, until);
            let fire = time_each(TURN, || {
                for _ in 0..TURN {
                    near.with_app_batched(|_, cx| cx.tcp().fire(black_box(order))).expect("room");
                }
            });
            settle(near, far, until + TURN * PAYLOAD.len());
            Times { send, fire }
        })
    }
}

/// A connection between two stacks of C.
pub(super) struct Foreign {
    near: Handle,
    far: Handle,
    connection: Handle,
    order: Handle,
    events: [Event; TURN],
}

impl Foreign {
    /// The order stands ready.
    pub(super) fn new() -> Self {
        let [near, far] = [NEAR, FAR].map(|local| open(c"memory:c-streams", local, 16));
        let [mut sub, mut connection, mut order] = [Handle::default(); 3];
        let (from, to) = (address(NEAR), address(FAR));
        done(entry::wp_tcp_listen(far, &raw const to, ptr::null(), 0, &raw mut sub));
        let connected =
            entry::wp_tcp_connect(near, &raw const from, &raw const to, ptr::null(), 0, &raw mut connection);
        done(connected);
        let mut events = [Event::EMPTY; TURN];
        while poll(near, &mut events).iter().all(|event| event.kind != WP_EVENT_CONNECTED) {
            done(entry::wp_poll(far, ptr::null_mut(), 0));
        }
        done(entry::wp_order_prepare(near, connection, PAYLOAD.as_ptr().cast(), PAYLOAD.len(), &raw mut order));
        Self { near, far, connection, order, events }
    }

    /// Sends, and fires orders, in turns.
    pub(super) fn times(&mut self) -> Times {
        let Self { near, far, connection, order, events } = self;
        let (near, far) = (*near, *far);
        let mut settle = || {
            let mut len = 0;
            while len < TURN * PAYLOAD.len() {
                done(entry::wp_poll(near, ptr::null_mut(), 0));
                let data = poll(far, events).iter().filter(|event| event.kind == WP_EVENT_DATA);
                len += data.map(|event| event.len).sum::<usize>();
            }
            // Their acknowledgments.
            done(entry::wp_poll(near, ptr::null_mut(), 0));
        };
        alternate(|| {
            let send = time_each(TURN, || {
                for _ in 0..TURN {
                    let payload = black_box(&PAYLOAD[..]);
                    let sent = entry::wp_tcp_send(near, *connection, payload.as_ptr().cast(), payload.len(), WP_MORE);
                    assert_eq!(sent, PAYLOAD.len() as i64, "there is room");
                }
            });
            settle();
            let fire = time_each(TURN, || {
                for _ in 0..TURN {
                    done(entry::wp_order_fire(near, black_box(*order), 0));
                }
            });
            settle();
            Times { send, fire }
        })
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        entry::wp_close(self.near);
        entry::wp_close(self.far);
    }
}

fn poll(stack: Handle, events: &mut [Event; TURN]) -> &[Event] {
    let count = entry::wp_poll(stack, events.as_mut_ptr(), TURN as i32);
    done(count);
    &events[..count as usize]
}
