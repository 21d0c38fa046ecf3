//! Operator mistakes: each example prints a sentence with the next step.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::error::Error;

use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, pair};
use wirepath::pipeline::tcp::{ConnectionId, ConnectionOptions, ListenOptions, ListenerId, TcpEvent};
use wirepath::pipeline::{App, Cx};
use wirepath::time::{Duration, Instant};

#[path = "../examples/live.rs"]
#[allow(dead_code, clippy::duplicate_mod)] // its `main`; and each example has its own `cli`
mod live;
#[path = "../examples/order.rs"]
#[allow(dead_code, clippy::duplicate_mod)]
mod order;
#[path = "../examples/tcp_echo.rs"]
#[allow(dead_code, clippy::duplicate_mod)]
mod tcp_echo;

/// An example as a function of its arguments.
type Run = fn(&[String]) -> Result<(), Box<dyn Error>>;

/// It ends, and its error is exactly this sentence.
fn check(run: Run, arguments: &[&str], sentence: &str) {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    assert_eq!(run(&arguments).unwrap_err().to_string(), sentence, "{arguments:?}");
}

#[test]
fn wrong_number_of_arguments_is_told_the_right_ones() {
    check(tcp_echo::run, &["eth1"], "usage: tcp_echo [INTERFACE ADDRESS/LEN]");
    check(order::run, &["eth1", "10.0.0.2/24"], "usage: order [INTERFACE ADDRESS/LEN GATEWAY:PORT]");
    check(live::run, &[], "usage: live INTERFACE GROUP PORT");
}

#[test]
fn argument_that_is_none_is_named_with_what_it_should_look_like() {
    let no_prefix = "`10.0.0.2` is not an address with its network's length, like 10.0.0.2/24";
    check(tcp_echo::run, &["nosuch", "10.0.0.2"], no_prefix);
    check(order::run, &["nosuch", "10.0.0.2", "10.0.0.1:9100"], no_prefix);
    let no_port = "`10.0.0.1` is not an address and a port, like 10.0.0.1:9100";
    check(order::run, &["nosuch", "10.0.0.2/24", "10.0.0.1"], no_port);
    check(live::run, &["nosuch", "239.1.1", "9000"], "`239.1.1` is not a group's address, like 239.1.1.1");
    check(live::run, &["nosuch", "239.1.1.1", "90000"], "`90000` is not a port, like 9000");
}

#[test]
fn interface_that_is_not_there_is_told_where_to_find_those_that_are() {
    let sentence = "there is no interface nosuch in this network namespace; `ip link` lists those there are";
    check(tcp_echo::run, &["nosuch", "10.0.0.2/24"], sentence);
    check(order::run, &["nosuch", "10.0.0.2/24", "10.0.0.1:9100"], sentence);
    check(live::run, &["nosuch", "239.1.1.1", "9000"], sentence);
}

/// A gateway that records the peer of its session.
#[derive(Default)]
struct Gateway(Option<ConnectionId>);

impl App for Gateway {
    fn on_tcp_event(&mut self, session: ConnectionId, event: TcpEvent, _: &mut Cx<'_>) {
        if let TcpEvent::Connected { .. } = event {
            self.0 = Some(session);
        }
    }
}

/// Both ends of the order's wire.
struct Market {
    trader: order::End<order::Trader>,
    exchange: order::End<Gateway>,
    now: Instant,
}

impl Market {
    fn new() -> Self {
        use order::{GATEWAY, Trader, worker};
        let ((near, far), block) = (pair("wire", MemoryConfig::default()), Block::heap());
        let trader =
            worker(near, "192.0.2.1/24".parse().unwrap(), Trader::new(GATEWAY), &block.scope("trader")).unwrap();
        let exchange =
            worker(far, "192.0.2.2/24".parse().unwrap(), Gateway::default(), &block.scope("exchange")).unwrap();
        let mut market = Self { trader, exchange, now: Instant::ZERO + Duration::from_secs(1) };
        market.trader.with_app(market.now, |trader, cx| trader.call(cx)).unwrap();
        market
    }

    fn listen(&mut self) -> ListenerId {
        self.listen_with(&ListenOptions::default())
    }

    fn listen_with(&mut self, options: &ListenOptions) -> ListenerId {
        self.exchange.with_app(self.now, |_, cx| cx.tcp().listen(order::GATEWAY, options)).unwrap()
    }

    /// Whether the trader has a gateway after this many seconds.
    fn has_gateway_after(&mut self, seconds: u64) -> bool {
        for _ in 0..seconds * 1_000 {
            self.now += Duration::from_millis(1);
            self.trader.poll_once(self.now);
            self.exchange.poll_once(self.now);
        }
        self.trader.app().order.is_some()
    }
}

#[test]
fn gateway_that_refuses_or_is_gone_is_called_again() {
    let mut market = Market::new();
    assert!(!market.has_gateway_after(4), "nobody listens");
    market.listen();
    assert!(!market.has_gateway_after(0) && market.has_gateway_after(3), "five seconds after it was refused");
    market.exchange.reset_connections(market.now);
    assert!(!market.has_gateway_after(1), "no order is fired at a gateway that is gone");
    assert!(market.has_gateway_after(5));
}

#[test]
fn gateway_that_ends_the_session_is_called_again() {
    let mut market = Market::new();
    market.listen();
    assert!(market.has_gateway_after(1));
    market.exchange.with_app(market.now, |gateway, cx| cx.tcp().shutdown(gateway.0.unwrap())).unwrap();
    assert!(!market.has_gateway_after(1), "no order is fired into a session that is over");
    assert!(market.has_gateway_after(5));
}

#[test]
fn gateway_that_has_no_room_for_an_order_is_called_again() {
    let mut market = Market::new();
    let connection = ConnectionOptions { receive_buffer: 20, ..ConnectionOptions::default() };
    let small = market.listen_with(&ListenOptions { connection, ..ListenOptions::default() });
    assert!(!market.has_gateway_after(1), "an order does not fit its window");
    market.exchange.with_app(market.now, |_, cx| cx.tcp().close_listener(small));
    market.listen();
    assert!(market.has_gateway_after(6));
}
