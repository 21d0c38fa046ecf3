//! A gateway whose feed loses packets on both lines, against an exchange that has what was lost.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

#[allow(unreachable_pub, reason = "other tests have it in a module of theirs")]
#[path = "common/limits.rs"]
mod limits;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use exchange_sim::{
    AccountSettings, CancelOnDisconnect, Exchange, FaultPlan, GlimpseSettings, RerequestSettings, SendSockets, Serving,
    Settings,
};
use feed_handler::recovery::{ImagePlan, ImageSource, RecoveryPlan, RequestPlan};
use market::image::ImagePolicy;
use market::{Capacity as BookCapacity, RetryPolicy, Side, Symbol};
use order_entry::journal::Journal;
use order_entry::orders::{Effect, Instructions, OrderCapacity, OrderEvent};
use order_entry::ouch::{Capacity, OuchClient};
use order_entry::risk::{KillSwitch, Route};
use order_entry::soupbin::{ClientConfig, Credentials};
use order_entry::{ManagerConfig, Text};
use order_gateway::host::Host;
use order_gateway::kernel::{Kernel, join};
use order_gateway::{
    BookEvent, Core, CoreConfig, Feed, FeedConfig, FeedLine, FeedRecovery, Gateway, Instrument, KillLine, LineConfig,
    OrderRequest, Orders, Run, Strategy,
};
use wirepath::worker::StopFlag;

const LOST: &str = "10%";
const BOOKS: BookCapacity = BookCapacity { books: 4, orders: 4_096, levels: 1_024 };

/// Buys at the offer and sells at the bid, in turn, while the book is sure.
#[derive(Debug, Default)]
struct Taker {
    id: Option<u64>,
    owned: u32,
    fills: u64,
    /// Fills when the book was last stale.
    fills_when_stale: Option<u64>,
}

impl Strategy for Taker {
    fn on_book(&mut self, book: &BookEvent, orders: &mut Orders<'_>) {
        if book.is_stale {
            self.fills_when_stale = Some(self.fills);
            return;
        }
        if self.id.is_some_and(|id| orders.get(id).is_some_and(|order| order.is_live())) {
            return;
        }
        let (side, best) = if self.owned > 0 { (Side::Sell, book.bid) } else { (Side::Buy, book.offer) };
        let Some((price, _)) = best else { return };
        let qty = if self.owned > 0 { self.owned } else { 100 };
        let instructions = Instructions::IMMEDIATE_OR_CANCEL;
        let request = OrderRequest { instructions, ..OrderRequest::limit(book.instrument, side, qty, price) };
        self.id = orders.send(&request).ok().or(self.id);
    }

    fn on_order(&mut self, event: &OrderEvent, _orders: &mut Orders<'_>) {
        if let Effect::Traded { qty, .. } = event.outcome.effect {
            self.fills += 1;
            match event.outcome.side {
                Side::Buy => self.owned += qty,
                Side::Sell => self.owned -= qty,
            }
        }
    }
}

type TestRun = Run<Taker, OuchClient, Vec<u8>>;

fn gateway(symbol: Symbol, orders: SocketAddr, lines: [SocketAddrV4; 2], plan: &RecoveryPlan) -> TestRun {
    let kernel = Kernel::start();
    let manager = ManagerConfig {
        kill: KillSwitch::new(),
        orders: OrderCapacity { orders: 1 << 14, executions: 1 << 14, instruments: 1 },
        epoch_offset_ns: kernel.epoch_offset_ns(),
        ..ManagerConfig::new(*limits::limits())
    };
    let config = CoreConfig {
        instruments: [Instrument { symbol, route: Route::default() }].into(),
        manager,
        answer_timeout_ns: CoreConfig::ANSWER_TIMEOUT_NS,
        kill_line: KillLine::default(),
    };
    let session = OuchClient::new(ClientConfig::new(Credentials::new("ALICE", "SECRET").unwrap()));
    let session = session.of_firm(Text::new("FIRM").unwrap(), Capacity::AGENCY);
    let journal = Journal::create(vec![0; 64 << 20], 7, kernel.epoch_offset_ns(), 1 << 20).unwrap();
    let SocketAddr::V4(primary) = orders else { panic!("an address of IPv4") };
    let gateway = Gateway::new(Taker::default(), Core::new(config, session, journal));
    let mut run = Run::new(gateway, LineConfig::new(primary), Box::new(kernel));
    let sizes = FeedConfig { books: BOOKS, ..FeedConfig::default() };
    let feed = match FeedRecovery::start(plan, BOOKS).unwrap() {
        Some(recovery) => Feed::with_recovery(&[symbol], &sizes, recovery),
        None => Feed::new(&[symbol], &sizes),
    };
    let line = |group| FeedLine { group, interface: Ipv4Addr::LOCALHOST, sources: Vec::new() };
    run.feed = Some((feed, join(lines.map(line)).unwrap()));
    run
}

/// Trades until `is_enough`, and returns the run behind its end: both ends have the same sums, and
/// the feed's messages are accounted for.
fn trade(port: u16, plan: &RecoveryPlan, is_enough: impl Fn(&TestRun) -> bool) -> TestRun {
    let local = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let mut settings = Settings { symbols: 1, port, ..Settings::default() };
    settings.lines.iter_mut().for_each(|line| line.loss = LOST.parse().unwrap());
    let mut account = AccountSettings::new("ALICE", "SECRET").unwrap();
    account.cancel_on_disconnect = CancelOnDisconnect::None;
    let serving = Serving {
        send_sockets: SendSockets { interface: "lo".parse().unwrap(), loopback: true },
        orders: local(0),
        drop_copy: None,
        rerequest: Some(RerequestSettings { address: local(port + 1), messages: 1 << 20 }),
        start_after: Duration::from_millis(200),
        accounts: vec![account],
        rate_max: None,
        house_shares: 900_000,
        faults: FaultPlan { seed: 1, rules: Vec::new() },
    };
    let mut exchange = Exchange::open(&settings, &serving).unwrap();
    let credentials = Credentials::new("user", "password").unwrap();
    exchange.open_glimpse(&GlimpseSettings { address: local(port + 2), credentials }).unwrap();
    exchange.set_flow(1_000, 1);
    let (orders, symbol) = (exchange.addresses()[0], exchange.listing()[0].0);
    let lines = settings.lines.each_ref().map(|line| SocketAddrV4::new(line.group.address(), port));
    let mut run = gateway(symbol, orders, lines, plan);
    let (stop, flag) = (StopFlag::new(), StopFlag::new());
    let thread = thread::spawn({
        let stop = stop.clone();
        move || exchange.run(&stop).unwrap()
    });
    run.gateway.core_mut().arm(0);
    let given_up = Instant::now() + Duration::from_secs(120);
    let turn = |run: &mut TestRun| {
        assert!(Instant::now() < given_up && !flag.is_stopping(), "{}\n{:?}", run.gateway.core().counts(), {
            let feed = &run.feed.as_ref().unwrap().0;
            (feed.counts(), feed.recovery_counts())
        });
        run.turn(&mut |_: &str| ());
    };
    while !is_enough(&run) {
        turn(&mut run);
    }
    run.gateway.core_mut().disarm(0);
    while run.gateway.core().orders().live().next().is_some() {
        turn(&mut run);
    }
    stop.stop();
    while !thread.is_finished() {
        turn(&mut run);
    }
    let served = thread.join().unwrap();
    assert_eq!(served.trades[0], run.gateway.core().counts().trades);
    assert!(run.gateway.core().counts().trades.fills > 0);
    run
}

fn feed(run: &TestRun) -> &Feed {
    &run.feed.as_ref().unwrap().0
}

#[test]
fn messages_that_both_lines_lose_are_requested_again_and_none_is_missing() {
    let local = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let requests = RequestPlan {
        server: local(26_652),
        bind: local(0),
        retry: RetryPolicy { attempts: 100, ..RetryPolicy::default() },
        hole_max: RequestPlan::HOLE_MAX,
        proxy: None,
        replays: None,
    };
    let plan = RecoveryPlan { requests: Some(requests), ..RecoveryPlan::default() };
    let is_enough = |run: &TestRun| {
        let requested = feed(run).recovery_counts().map_or(0, |counts| counts.requests.requested);
        let strategy = run.gateway.strategy();
        requested >= 10 && strategy.fills_when_stale.is_some_and(|then| strategy.fills > then + 1)
    };
    let run = trade(26_651, &plan, is_enough);
    assert_eq!(feed(&run).counts().missing, 0);
    assert!(run.gateway.strategy().fills_when_stale.is_some(), "books are late while requests are answered");
}

#[test]
fn gateway_trades_again_behind_an_image_of_the_books_when_both_lines_have_lost_messages() {
    let server = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 26_656);
    let credentials = Credentials::new("user", "password").unwrap();
    let image = ImagePlan {
        server,
        source: ImageSource::Glimpse { credentials, any_session: false },
        policy: ImagePolicy {
            queue_len_max: 1 << 20,
            messages_max: 1 << 14,
            interval_ns: 1_000_000,
            ..Default::default()
        },
    };
    let plan = RecoveryPlan { image: Some(image), ..RecoveryPlan::default() };
    let is_enough = |run: &TestRun| {
        let completed = feed(run).recovery_counts().map_or(0, |counts| counts.images.completed);
        let strategy = run.gateway.strategy();
        completed >= 3 && strategy.fills_when_stale.is_some_and(|then| strategy.fills > then + 1)
    };
    let run = trade(26_654, &plan, is_enough);
    assert!(feed(&run).counts().missing > 0);
}
