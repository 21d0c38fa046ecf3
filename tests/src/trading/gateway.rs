//! The gateway's parts that a firm chooses: a strategy that draws what it does, limits, the disk.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;

use market::{Price, Side};
use order_entry::ManagerConfig;
use order_entry::Text;
use order_entry::boe::{self, Boe2Client, Boe3Client, BoeFirm};
use order_entry::fix::session::SessionConfig;
use order_entry::fix::{FixClient, FixClientConfig};
use order_entry::ilink3::{self, Ilink3Client, IlinkFirm};
use order_entry::journal::{Journal, JournalMemory};
use order_entry::orders::{Display, Instructions, OrderCapacity, OrderType, TimeInForce};
use order_entry::ouch::{Capacity, Ouch42Client, OuchClient};
use order_entry::risk::{
    AccountLimits, InstrumentIdx, InstrumentLimits, KillSwitch, Limits, Rate, RateLimits, Route, SelfMatch,
};
use order_entry::session::VenueSession;
use order_entry::soupbin::{ClientConfig, Credentials};
use order_gateway::{BookEvent, Core, CoreConfig, Gateway, Instrument, KillLine, OrderRequest, Orders, Strategy};

use super::network::Shared;
use super::script::Protocol;
use super::venue::{EPOCH_NS, SYMBOLS};
use crate::mutate::Random;

/// The credit of each side: some hundred shares fewer than the greatest of the positions that
/// scripts allow.
pub(super) const CREDIT_MAX: i64 = 2_000 * 100_000;
/// Bytes of a journal.
pub(super) const JOURNAL_LEN: usize = 1 << 20;
const RESERVE: usize = 1 << 16;
/// What a disk writes whole.
const SECTOR: usize = 512;

/// A gateway of the simulation.
pub(super) type SimGateway<S> = Gateway<Trader, S, Disk>;

/// A disk on which each request is before it is sent. A sync may take its time, in which its
/// process does nothing else.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub bytes: Vec<u8>,
    synced: Cell<usize>,
    under_way: RefCell<Vec<SlowSync>>,
    slow: Option<Slow>,
}

/// A sync that takes its time.
#[derive(Clone, Copy, Debug)]
struct SlowSync {
    end: usize,
    from_ns: u64,
    until_ns: u64,
    /// Of a stop, whose cancels leave before it.
    is_of_stop: bool,
}

/// Where a disk is, and chance.
#[derive(Clone)]
struct Slow {
    network: Shared,
    machine: usize,
    random: Rc<RefCell<Random>>,
}

impl fmt::Debug for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the disk of machine {}", self.machine)
    }
}

impl Slow {
    /// How long a sync takes: mostly no time. Some are longer than a lease, and a few so long that
    /// the venue gives the session up.
    fn sync_ns(&self) -> u64 {
        const MS: u64 = 1_000_000;
        let (mut random, per_mille) = (self.random.borrow_mut(), self.network.borrow().slow_per_mille);
        if random.below(1_000) >= per_mille {
            return 0;
        }
        let ms = match random.below(20) {
            0 => 7_000,
            1..6 => random.below(1_500),
            _ => random.below(300),
        };
        ms as u64 * MS
    }
}

impl Disk {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { synced: Cell::new(0), under_way: RefCell::default(), slow: None, bytes }
    }

    /// The same in a machine, where a sync may take its time.
    pub(super) fn slow(self, network: &Shared, machine: usize, seed: u64) -> Self {
        let random = Rc::new(RefCell::new(Random::new(seed ^ 0xd15c)));
        Self { slow: Some(Slow { network: Rc::clone(network), machine, random }), ..self }
    }

    /// All that was synced so far has taken no time.
    pub(super) fn end_syncs(&self) {
        self.end_syncs_until(u64::MAX);
    }

    fn end_syncs_until(&self, now_ns: u64) {
        let mut under_way = self.under_way.borrow_mut();
        while under_way.first().is_some_and(|sync| sync.until_ns <= now_ns) {
            self.synced.set(under_way.remove(0).end);
        }
    }

    fn now_ns(&self) -> u64 {
        self.slow.as_ref().map_or(0, |slow| slow.network.borrow().now_ns())
    }

    fn sync_to(&self, end: usize, is_of_stop: bool) {
        let Some(slow) = &self.slow else { return self.synced.set(end) };
        let sync_ns = slow.sync_ns();
        let (from_ns, now_ns) = {
            let mut network = slow.network.borrow_mut();
            let (now_ns, ahead_ns) = (network.now_ns(), &mut network.ahead_ns[slow.machine]);
            let from_ns = now_ns + *ahead_ns;
            *ahead_ns += sync_ns;
            (from_ns, now_ns)
        };
        self.under_way.borrow_mut().push(SlowSync { end, from_ns, until_ns: from_ns + sync_ns, is_of_stop });
        self.end_syncs_until(now_ns);
    }

    /// Whether cancels of a stop have left and their sync is not over.
    pub(super) fn is_stop_under_way(&self) -> bool {
        let (now_ns, under_way) = (self.now_ns(), self.under_way.borrow());
        under_way.iter().any(|sync| sync.is_of_stop && (sync.from_ns..sync.until_ns).contains(&now_ns))
    }

    /// What a power cut leaves: all that was synced, and of each later sector all, nothing or a
    /// part.
    pub(super) fn cut(mut self, end: usize, random: &mut Random) -> Self {
        self.end_syncs_until(self.now_ns());
        self.under_way.take();
        let mut at = self.synced.get();
        while at < end {
            let next = (at / SECTOR + 1) * SECTOR;
            let kept = match random.below(3) {
                0 => at,
                1 => next,
                _ => at + random.below(next - at),
            };
            self.bytes[kept.min(end)..next.min(end)].fill(0);
            at = next;
        }
        self
    }
}

impl AsRef<[u8]> for Disk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Disk {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl JournalMemory for Disk {
    fn before_send(&self, from: usize, len: usize) -> io::Result<()> {
        self.sync_to(from + len, false);
        Ok(())
    }

    fn sync(&self, end: usize) -> io::Result<()> {
        self.sync_to(end, true);
        Ok(())
    }
}

/// Does with each book what chance says.
#[derive(Debug)]
pub(super) struct Trader {
    random: Random,
    /// What the limits let pass of the last book.
    pub passed: Option<Passed>,
}

/// A request that the limits let pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// An order, or its replacement.
    Order(InstrumentIdx),
    Cancel(InstrumentIdx),
}

impl Trader {
    pub(super) const fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), passed: None }
    }

    /// Those of an order of `qty` shares: of every kind, and plain ones most. A protocol refuses
    /// what it cannot say.
    fn instructions(&mut self, qty: u32) -> Instructions {
        let plain = Instructions::PLAIN;
        let of_type = |order_type| Instructions { order_type, ..plain };
        let in_force = |time_in_force| Instructions { time_in_force, ..plain };
        match self.random.below(24) {
            0..3 => Instructions::IMMEDIATE_OR_CANCEL,
            3 => Instructions { min_qty: 100, ..Instructions::IMMEDIATE_OR_CANCEL },
            4 => in_force(TimeInForce::FillOrKill),
            5 => in_force(TimeInForce::AtTheClose),
            6 => of_type(OrderType::Market),
            7 => of_type(OrderType::PrimaryPeg),
            8 => of_type(OrderType::MidpointPeg),
            9 => Instructions { is_post_only: true, ..plain },
            10 => Instructions { min_qty: qty, ..plain },
            11 => Instructions { display: Display::Hidden, ..plain },
            12 => Instructions { display: Display::Shares(100), ..plain },
            _ => plain,
        }
    }
}

impl Strategy for Trader {
    fn on_book(&mut self, book: &BookEvent, orders: &mut Orders<'_>) {
        let mut one = [(0, InstrumentIdx(0)); 16];
        let mut count = 0;
        orders.live().take(16).for_each(|order| {
            one[count] = (order.accepted_id(), order.instrument);
            count += 1;
        });
        self.passed = None;
        let (qty, side) = (100 * (1 + self.random.below(4) as u32), self.random.below(2));
        let away = 100 * self.random.below(6) as i64;
        let mid = book.reference().map_or(0, |price| price.0);
        // What is refused was too much: that is what the limits are for.
        match self.random.below(16) {
            0..7 => {
                let (side, price) = if side == 0 { (Side::Buy, mid - away) } else { (Side::Sell, mid + away) };
                let instructions = self.instructions(qty);
                let request =
                    OrderRequest { instructions, ..OrderRequest::limit(book.instrument, side, qty, Price(price)) };
                let is_passed = orders.send(&request).is_ok();
                self.passed = is_passed.then_some(Passed::Order(book.instrument));
            }
            7..11 if count > 0 => {
                let (id, instrument) = one[self.random.below(count)];
                let is_passed = orders.replace(id, qty, Price(mid - 300 + away)).is_ok();
                self.passed = is_passed.then_some(Passed::Order(instrument));
            }
            11..15 if count > 0 => {
                let (id, instrument) = one[self.random.below(count)];
                self.passed = orders.cancel(id).is_ok().then_some(Passed::Cancel(instrument));
            }
            15 if self.random.below(8) == 0 => orders.cancel_all(),
            _ => (),
        }
    }
}

/// So many messages a second, and so many at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace(pub u32, pub u32);

/// The rates of orders and of cancels: of each instrument, of the port, of the unit. Each is the
/// narrowest at times.
pub(super) const PACES: [[Pace; 2]; 3] =
    [[Pace(6, 5), Pace(4, 4)], [Pace(40, 3), Pace(30, 2)], [Pace(9, 9), Pace(6, 7)]];

fn rates([orders, cancels]: [Pace; 2], has_rates: bool) -> RateLimits {
    let rate = |Pace(per_second, burst)| if has_rates { Rate::new(per_second, burst) } else { Rate::new(100_000, 100) };
    RateLimits { orders: rate(orders), cancels: rate(cancels) }
}

/// Limits with this greatest position, and with the rates or without any that matter.
pub(super) fn limits(version: u64, position_max: i64, has_rates: bool) -> Box<Limits> {
    let [of_one, of_port, of_unit] = PACES.map(|paces| rates(paces, has_rates));
    let mut limits = Limits::zero(SYMBOLS.len(), 1, 1);
    limits.version = version;
    let of_instrument = InstrumentLimits {
        qty_max: 1_000,
        collar_bps: 500,
        spread_max_bps: 1_000,
        notional_max: i64::MAX,
        long_max: position_max,
        short_max: position_max,
        rates: of_one,
    };
    for idx in 0..SYMBOLS.len() {
        limits.instruments[idx] = of_instrument;
        limits.shortable.set(InstrumentIdx(idx as u32), true);
    }
    (limits.ports[0], limits.units[0]) = (of_port, of_unit);
    limits.account = AccountLimits {
        buy_credit_max: CREDIT_MAX,
        sell_credit_max: CREDIT_MAX,
        duplicate_window_ns: 1,
        silence_max_ns: 1_000_000_000,
        self_match: SelfMatch::Refuse,
    };
    Box::new(limits)
}

fn config(limits: Limits, kill: KillSwitch) -> CoreConfig {
    CoreConfig {
        instruments: SYMBOLS.map(|symbol| Instrument { symbol, route: Route::default() }).into(),
        manager: ManagerConfig {
            kill,
            orders: OrderCapacity { orders: 2_048, executions: 4_096, instruments: SYMBOLS.len() },
            recent: 64,
            ..ManagerConfig::new(limits)
        },
        answer_timeout_ns: CoreConfig::ANSWER_TIMEOUT_NS,
        kill_line: KillLine::default(),
    }
}

/// A session by one of the protocols.
pub(super) trait SimSession: VenueSession {
    const PROTOCOL: Protocol;

    /// One that has not been connected.
    fn start() -> Self;
}

/// The user of SoupBinTCP, and its firm.
fn trader() -> (ClientConfig, Text<4>) {
    let credentials = Credentials::new("TRADER", "SECRET").expect("6 and 10 letters at most");
    (ClientConfig::new(credentials), Text::new("FIRM").expect("four letters at most"))
}

impl SimSession for OuchClient {
    const PROTOCOL: Protocol = Protocol::Ouch;

    fn start() -> Self {
        let (config, firm) = trader();
        Self::new(config).of_firm(firm, Capacity::AGENCY)
    }
}

impl SimSession for Ouch42Client {
    const PROTOCOL: Protocol = Protocol::Ouch42;

    fn start() -> Self {
        let (config, firm) = trader();
        Self::new(config, firm, Capacity::AGENCY, EPOCH_NS)
    }
}

impl SimSession for FixClient {
    const PROTOCOL: Protocol = Protocol::Fix;

    fn start() -> Self {
        let session = SessionConfig {
            sender: "TRADER".to_owned(),
            target: "EXCHANGE".to_owned(),
            password: Some("SECRET".to_owned()),
            heartbeat_s: 2,
            ..SessionConfig::default()
        };
        Self::new(FixClientConfig {
            instruments: SYMBOLS.to_vec(),
            epoch_offset_ns: EPOCH_NS,
            ..FixClientConfig::new(session)
        })
    }
}

/// The port of BOE.
fn port() -> boe::ClientConfig {
    boe::ClientConfig::new(boe::Credentials::new("TRAD", "ER", "SECRET").expect("4, 4 and 10 letters at most"))
}

impl SimSession for Boe2Client {
    const PROTOCOL: Protocol = Protocol::Boe2;

    fn start() -> Self {
        Self::new(port(), BoeFirm::new(boe::Capacity::AGENCY))
    }
}

impl SimSession for Boe3Client {
    const PROTOCOL: Protocol = Protocol::Boe3;

    fn start() -> Self {
        Self::new(port(), BoeFirm::new(boe::Capacity::CUSTOMER))
    }
}

impl SimSession for Ilink3Client {
    const PROTOCOL: Protocol = Protocol::Ilink3;

    fn start() -> Self {
        let identity = ilink3::Identity {
            session: Text(*b"TRA"),
            firm: Text(*b"DER\0\0"),
            access_key: Text([0; 20]),
            key: ilink3::Key::from_bytes(b"SECRET"),
            system: Text([0; 30]),
            system_version: Text([0; 10]),
            system_vendor: Text([0; 10]),
        };
        let config = ilink3::ClientConfig { keep_alive_ms: 2_000, ..ilink3::ClientConfig::new(identity) };
        let (operator, location) = (Text([b'O'; 20]), Text(*b"US,IL"));
        Self::new(config, IlinkFirm { operator, location, party_details: 1, securities: [1, 2].into() }, EPOCH_NS)
    }
}

/// A gateway that begins a journal on an empty disk.
pub(super) fn begin<S: SimSession>(seed: u64, limits: Limits, disk: Disk, kill: KillSwitch) -> SimGateway<S> {
    let journal = Journal::create(disk, seed | 1, 0, RESERVE).expect("there is room for a header");
    journal.memory().sync(journal.end()).expect("the disk works");
    Gateway::new(Trader::new(seed), Core::new(config(limits, kill), S::start(), journal))
}

/// One that goes on where a journal ends, and the standby that it names.
pub(super) fn recover<S: SimSession>(
    seed: u64,
    limits: Limits,
    disk: Disk,
    kill: KillSwitch,
) -> Result<(SimGateway<S>, u64), String> {
    let recovered = Core::recover(config(limits, kill), S::start(), disk, RESERVE);
    let (core, rebuild) = recovered.map_err(|error| format!("the journal does not begin: {error}"))?;
    if rebuild.counts().refused > 0 {
        return Err(format!("the journal cannot be replayed whole: {:?}", rebuild.counts()));
    }
    Ok((Gateway::new(Trader::new(seed), core), rebuild.standby()))
}
