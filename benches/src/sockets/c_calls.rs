//! The calls of C beside the same calls of Rust, over wires of plain memory: what the C ABI adds.
//! `c/examples/calls.rs` counts the instructions of the same paths.

use core::hint::black_box;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ptr;
use std::ffi::{CStr, CString};

use wirepath::pipeline::{App, Cx, Datagram, UdpFlow, UdpOptions};
use wirepath::port::{EmbeddedPort, Port, udp};
use wirepath_c::abi::{Event, Handle, StackOptions, WP_MORE};
use wirepath_c::entry;

use super::time_each;
use crate::frames::PAYLOAD_LEN;

/// Datagrams of a turn.
const TURN: usize = 32;
/// Turns of a sample.
const TURNS: usize = 64;
const NEAR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 5_000);
const FAR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 5_000);
const PAYLOAD: [u8; PAYLOAD_LEN] = [7; PAYLOAD_LEN];

/// Nanoseconds a datagram: of the calls that send it, and of those that receive it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// A call that sends, without a doorbell.
    pub(super) send: f64,
    /// A turn that receives, by datagrams.
    pub(super) receive: f64,
}

/// Counts bytes.
#[derive(Default)]
struct Counted(usize);

impl App for Counted {
    #[inline]
    fn on_datagram(&mut self, datagram: &Datagram<'_>, _: &mut Cx<'_>) {
        self.0 += datagram.payload.len();
    }
}

/// Two ports of Rust.
pub(super) struct Own {
    near: EmbeddedPort<Counted>,
    far: EmbeddedPort<Counted>,
    flow: UdpFlow,
}

impl Own {
    /// They know each other.
    pub(super) fn new() -> Self {
        let [mut near, mut far] = [NEAR, FAR].map(|address| {
            let port =
                Port::open("memory:rust-calls").expect("a wire").address(*address.ip(), 24).unpinned().log(|_| ());
            let mut port = port.embed(Counted::default()).expect("some MB");
            port.subscribe(udp(*address.ip(), address.port())).expect("it is ours");
            port
        });
        let connect = |_: &mut Counted, cx: &mut Cx<'_>| UdpFlow::connect(NEAR, FAR, &UdpOptions::default(), cx);
        let mut flow = near.with_app(connect).expect("a route");
        // The first one waits for ARP.
        near.with_app(|_, cx| flow.send(&PAYLOAD, cx)).expect("room");
        while far.app().0 == 0 {
            near.poll();
            far.poll();
        }
        Self { near, far, flow }
    }

    /// Sends and receives in turns.
    pub(super) fn times(&mut self) -> Times {
        let Self { near, far, flow } = self;
        alternate(|| {
            let send = time_each(TURN, || {
                for _ in 0..TURN {
                    near.with_app_batched(|_, cx| flow.send(black_box(&PAYLOAD[..]), cx)).expect("room");
                }
            });
            near.poll();
            let until = far.app().0 + TURN * PAYLOAD.len();
            let receive = time_each(TURN, || {
                while far.app().0 < until {
                    far.poll();
                }
            });
            Times { send, receive }
        })
    }
}

/// Two stacks of C.
pub(super) struct Foreign {
    near: Handle,
    far: Handle,
    flow: Handle,
    events: [Event; TURN],
}

impl Foreign {
    /// They know each other.
    pub(super) fn new() -> Self {
        let [near, far] = [NEAR, FAR].map(stack);
        let (mut flow, mut events) = (Handle::default(), [Event::EMPTY; TURN]);
        let (from, to) = (address(NEAR), address(FAR));
        done(entry::wp_udp_connect(near, &raw const from, &raw const to, ptr::null(), &raw mut flow));
        done(entry::wp_udp_send(near, flow, PAYLOAD.as_ptr().cast(), PAYLOAD.len(), 0));
        while entry::wp_poll(far, events.as_mut_ptr(), TURN as i32) == 0 {
            done(entry::wp_poll(near, ptr::null_mut(), 0));
        }
        Self { near, far, flow, events }
    }

    /// Sends and receives in turns.
    pub(super) fn times(&mut self) -> Times {
        let Self { near, far, flow, events } = self;
        alternate(|| {
            let send = time_each(TURN, || {
                for _ in 0..TURN {
                    let payload = black_box(&PAYLOAD[..]);
                    done(entry::wp_udp_send(*near, *flow, payload.as_ptr().cast(), payload.len(), WP_MORE));
                }
            });
            done(entry::wp_poll(*near, ptr::null_mut(), 0));
            let receive = time_each(TURN, || {
                let mut len = 0;
                while len < TURN * PAYLOAD.len() {
                    let count = entry::wp_poll(*far, events.as_mut_ptr(), TURN as i32);
                    done(count);
                    len += events[..count as usize].iter().map(|event| event.len).sum::<usize>();
                }
            });
            Times { send, receive }
        })
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        entry::wp_close(self.near);
        entry::wp_close(self.far);
    }
}

/// The mean of many turns.
fn alternate(mut turn: impl FnMut() -> Times) -> Times {
    let mut sum = Times { send: 0.0, receive: 0.0 };
    for _ in 0..TURNS {
        let Times { send, receive } = turn();
        sum = Times { send: sum.send + send, receive: sum.receive + receive };
    }
    Times { send: sum.send / TURNS as f64, receive: sum.receive / TURNS as f64 }
}

fn stack(local: SocketAddrV4) -> Handle {
    let (stack, mut sub) = (open(c"memory:c-calls", local, 0), Handle::default());
    let local = address(local);
    done(entry::wp_udp_bind(stack, &raw const local, 0, &raw mut sub));
    stack
}

/// A stack at an end of a wire, with room for so many connections.
pub(super) fn open(wire: &CStr, local: SocketAddrV4, connections: u32) -> Handle {
    let own = CString::new(format!("{}/24", local.ip())).expect("no zero in it");
    let options = StackOptions {
        size: size_of::<StackOptions>() as u32,
        flags: 0,
        name: ptr::null(),
        address: own.as_ptr(),
        gateway: ptr::null(),
        connections,
        held: 64,
    };
    let mut stack = Handle::default();
    done(entry::wp_open(wire.as_ptr(), &raw const options, &raw mut stack));
    stack
}

pub(super) fn address(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

pub(super) fn done(result: i32) {
    assert!(result >= 0, "a call was refused: {result}");
}
