//! The trader of `apps/order-entry/examples/trader.rs`, for the figure from a tick to its order.
//! Its port is in generic mode, which is the faster one on a veth (docs/tuning.md): else as the
//! example. With the word `bare` it fires at the tick without feed, books, checks or journal: the
//! floor.

use std::net::SocketAddrV4;

use market::Capacity;
use order_entry::ouch::OrderTemplate;
use trader::Trader;
use wirepath::device::af_xdp::{AfXdpConfig, Mode};
use wirepath::prelude::*;
use wirepath::worker::live::{LiveConfig, PortConfig};

#[path = "../../../apps/order-entry/examples/trader.rs"]
#[allow(dead_code)] // its `main`
mod trader;

fn main() -> wirepath::Result<()> {
    let argument = |nth| std::env::args().nth(nth).unwrap_or_default();
    let venue: SocketAddrV4 = argument(2).parse().expect("a venue, like 10.0.0.1:9100");
    let is_bare = argument(3) == "bare";
    let device = AfXdpConfig { mode: Mode::Generic, ..AfXdpConfig::new(&argument(1)) };
    let line = |last, consumer| multicast([233, 252, 0, last], 26_477).consumer(consumer);
    let answers = tcp_from(*venue.ip(), venue.port()).local_port(trader::LOCAL.port()).consumer(2);
    let port = Port::from_config(LiveConfig::over(PortConfig::AfXdp(device))).tcp();
    let port = port.subscribe(line(1, 0)).subscribe(line(2, 1)).subscribe(answers);
    let trader = move || Trader::new(venue, Capacity::default(), vec![0; 64 << 20]);
    if is_bare {
        return port.run(move |_worker| Bare { trader: trader(), next: 1 });
    }
    port.run(move |_worker| trader())
}

/// A session, and orders without a reason.
struct Bare {
    trader: Trader,
    /// The number of the next order.
    next: u32,
}

impl App for Bare {
    fn on_datagram(&mut self, packet: &Datagram<'_>, cx: &mut Cx<'_>) {
        let Some(order) = self.trader.order.as_mut().filter(|_| is_tick(packet.payload)) else { return };
        let is_patched = order.patch(OrderTemplate::USER_REF_AT, &self.next.to_be_bytes()).is_ok();
        // A failure shows as a missing order.
        let _ = is_patched && cx.tcp().try_fire(order) == Ok(true);
        self.next += 1;
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        self.trader.on_tcp_event(connection, event, cx);
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        // Answers to orders of which the session knows nothing would end it.
        if self.next == 1 {
            self.trader.on_tcp_data(data, cx);
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.trader.tick(cx);
    }
}

/// Whether the only message of a packet adds an offer of the first book below 10.00.
fn is_tick(payload: &[u8]) -> bool {
    let Some(message) = payload.get(22..58) else { return false };
    message.starts_with(b"A\0\x01") && message[32..] < 100_000_u32.to_be_bytes()[..]
}
