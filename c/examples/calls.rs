//! Measures the additional cost of a C call over the same call in Rust: both receive and send
//! datagrams over a wire of plain memory, and a tool counts the instructions within `measured_…`.
//!
//! ```console
//! $ cargo build --release -p wirepath-c --example calls
//! $ valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*measured_c_receive*' \
//!       target/release/examples/calls c-receive 100
//! ```
//!
//! The instructions over those of `rust-receive`, by the rounds times 32 datagrams. An event is
//! written down and read back, so it costs more than a callback; `c-send` is the call alone.

use core::hint::black_box;
use core::net::SocketAddrV4;
use core::ptr;
use std::ffi::{CStr, CString};
use std::process::ExitCode;

use wirepath::pipeline::{App, Cx, Datagram, UdpFlow, UdpOptions};
use wirepath::port::{EmbeddedPort, Port, udp};
use wirepath_c::abi::{Event, Handle, StackOptions, WP_MORE};
use wirepath_c::entry;

/// Datagrams of a round: the burst of one turn.
const ROUND: usize = 32;
const NEAR: SocketAddrV4 = SocketAddrV4::new(core::net::Ipv4Addr::new(192, 0, 2, 1), 5_000);
const FAR: SocketAddrV4 = SocketAddrV4::new(core::net::Ipv4Addr::new(192, 0, 2, 2), 5_000);
const PAYLOAD: [u8; 64] = [7; 64];

/// Counts bytes.
#[derive(Default)]
struct Heard(usize);

impl App for Heard {
    #[inline]
    fn on_datagram(&mut self, datagram: &Datagram<'_>, _: &mut Cx<'_>) {
        self.0 += datagram.payload.len();
    }
}

fn port(address: SocketAddrV4) -> EmbeddedPort<Heard> {
    let port = Port::open("memory:calls").expect("a wire").address(*address.ip(), 24).unpinned().log(|_| ());
    let mut port = port.embed(Heard::default()).expect("some MB");
    port.subscribe(udp(*address.ip(), address.port())).expect("it is ours");
    port
}

fn flow(port: &mut EmbeddedPort<Heard>, from: SocketAddrV4, to: SocketAddrV4) -> UdpFlow {
    port.with_app(|_, cx| UdpFlow::connect(from, to, &UdpOptions::default(), cx)).expect("a route")
}

fn address(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

/// A stack of the C API.
fn stack(local: SocketAddrV4) -> Handle {
    let own = CString::new(format!("{}/24", local.ip())).expect("no zero in it");
    let options = StackOptions {
        size: size_of::<StackOptions>() as u32,
        flags: 0,
        name: ptr::null(),
        address: own.as_ptr(),
        gateway: ptr::null(),
        connections: 0,
        held: 64,
    };
    let (mut stack, mut sub) = (Handle::default(), Handle::default());
    done(entry::wp_open(c"memory:calls".as_ptr(), &raw const options, &raw mut stack));
    done(entry::wp_udp_bind(stack, &raw const *Box::new(address(local)), 0, &raw mut sub));
    stack
}

fn done(result: i32) {
    let why: &CStr = c"a call was refused";
    assert!(result >= 0, "{why:?}: {result}");
}

#[inline(never)]
fn measured_rust_receive(port: &mut EmbeddedPort<Heard>) {
    let until = port.app().0 + ROUND * PAYLOAD.len();
    while port.app().0 < until {
        port.poll();
    }
}

#[inline(never)]
fn measured_c_receive(stack: Handle, events: &mut [Event; ROUND]) -> usize {
    let mut bytes = 0;
    while bytes < ROUND * PAYLOAD.len() {
        let count = entry::wp_poll(stack, events.as_mut_ptr(), ROUND as i32);
        bytes += events[..count as usize].iter().map(|event| event.len).sum::<usize>();
    }
    bytes
}

#[inline(never)]
fn measured_rust_send(port: &mut EmbeddedPort<Heard>, flow: &mut UdpFlow) {
    for _ in 0..ROUND {
        port.with_app_batched(|_, cx| flow.send(black_box(&PAYLOAD[..]), cx)).expect("room");
    }
}

#[inline(never)]
fn measured_c_send(stack: Handle, flow: Handle) {
    for _ in 0..ROUND {
        let payload = black_box(&PAYLOAD[..]);
        done(entry::wp_udp_send(stack, flow, payload.as_ptr().cast(), payload.len(), WP_MORE));
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_default();
    let rounds: usize = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(100);
    let mut events = [Event::EMPTY; ROUND];
    match path.as_str() {
        "rust-receive" | "rust-send" => {
            let (mut near, mut far) = (port(NEAR), port(FAR));
            let mut flow = flow(&mut near, NEAR, FAR);
            // The first one waits for ARP.
            near.with_app(|_, cx| flow.send(&PAYLOAD, cx)).expect("room");
            while far.app().0 == 0 {
                near.poll();
                far.poll();
            }
            for _ in 0..rounds {
                measured_rust_send(&mut near, &mut flow);
                near.poll();
                measured_rust_receive(&mut far);
            }
        }
        "c-receive" | "c-send" => {
            let (near, far) = (stack(NEAR), stack(FAR));
            let mut flow = Handle::default();
            let (from, to) = (address(NEAR), address(FAR));
            done(entry::wp_udp_connect(near, &raw const from, &raw const to, ptr::null(), &raw mut flow));
            done(entry::wp_udp_send(near, flow, PAYLOAD.as_ptr().cast(), PAYLOAD.len(), 0));
            while entry::wp_poll(far, events.as_mut_ptr(), 32) == 0 {
                done(entry::wp_poll(near, ptr::null_mut(), 0));
            }
            for _ in 0..rounds {
                measured_c_send(near, flow);
                done(entry::wp_poll(near, ptr::null_mut(), 0));
                measured_c_receive(far, &mut events);
            }
        }
        _ => {
            eprintln!("which? rust-receive, c-receive, rust-send, c-send");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
