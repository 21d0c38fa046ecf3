//! Messages a second of a mixed flow, by the time that the thread has the processor, and
//! instructions a message by callgrind where valgrind is installed:
//! `cargo bench -p wirepath-matching-engine`.
//!
//! The flow: 100 instruments, 100,000 resting orders; of 100 messages 46 are displayed limit orders
//! near the best price, 2 hidden ones, 38 cancels and 4 reductions of orders that are live, 4
//! replacements, 6 orders that trade at once. It is drawn beforehand with an engine of its own, so
//! that each cancel finds its order. A message names an order by the engine's id, as a session does
//! that keeps the ids of its orders: the session's own table is not in the figure.

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use market::{Locate, Price, Side, Symbol};
use matching_engine::{
    CancelReason, Capacity, CrossKind, CrossTerms, Display, Engine, Event, ItchView, Life, NewOrder, OrderId, Owner,
    Sink, Terms, reports,
};

const SYMBOLS: u16 = 100;
const RESTING: usize = 100_000;
const MESSAGES: usize = 2_000_000;
/// Fewer under callgrind, which is some fifty times slower.
const COUNTED: usize = 200_000;
const MID: i64 = 10_000;

/// A message as a session would hand it over.
#[derive(Clone, Copy)]
struct Op {
    kind: Kind,
    side: Side,
    symbol: u16,
    cents: u32,
    qty: u32,
    /// The order that is meant.
    old: OrderId,
}

#[derive(Clone, Copy)]
enum Kind {
    Limit,
    Hidden,
    Take,
    Cancel,
    Reduce,
    Replace,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// Cents from the middle: most are near.
    fn distance(&mut self) -> u32 {
        1 + self.below(8).min(self.below(64)) as u32 + if self.below(10) == 0 { self.below(200) as u32 } else { 0 }
    }
}

/// Counts events: the cost of the engine alone.
#[derive(Default)]
struct Count(u64);

impl Sink for Count {
    fn take(&mut self, event: &Event) {
        self.0 += black_box(event).at_ns & 1;
    }
}

/// Makes the feed's messages and the owners' reports of each event.
struct Views {
    itch: ItchView,
    bytes: usize,
}

impl Sink for Views {
    fn take(&mut self, event: &Event) {
        let bytes = &mut self.bytes;
        self.itch.show(event, &mut |message: &[u8]| *bytes += black_box(message).len());
        for report in reports(event) {
            black_box(report);
        }
    }
}

/// No order.
const NO_ORDER: OrderId = OrderId(u64::MAX);

/// An engine, and the messages that it had.
struct Rig {
    engine: Engine,
    messages: u64,
}

impl Rig {
    fn open() -> Self {
        let mut engine = Engine::new(Capacity { symbols: SYMBOLS, orders: 1 << 20, owners: 64, ..Capacity::default() });
        let terms = CrossTerms { reference: Price::from_cents(MID), collar: None };
        for symbol in (1..=SYMBOLS).map(Locate) {
            let mut sink = Count::default();
            let opened = engine.quote(symbol, 0, &mut sink);
            opened.and_then(|()| engine.cross(symbol, CrossKind::Opening, &terms, 0, &mut sink)).expect("a symbol");
        }
        Self { engine, messages: 0 }
    }

    /// The id of the order that is new.
    #[inline]
    fn apply(&mut self, op: &Op, sink: &mut impl Sink) -> OrderId {
        self.messages += 1;
        let number = self.messages;
        let price = Price::from_cents(op.cents.into());
        let limit = Terms::limit(op.qty, price);
        match op.kind {
            Kind::Limit => return self.submit(op, limit, sink),
            Kind::Hidden => return self.submit(op, Terms { display: Display::Hidden, ..limit }, sink),
            Kind::Take => return self.submit(op, Terms { life: Life::ImmediateOrCancel, ..limit }, sink),
            Kind::Cancel => {
                let _ = self.engine.cancel(op.old, CancelReason::User, number, sink);
            }
            Kind::Reduce => {
                let _ = self.engine.reduce(op.old, op.qty, number, sink);
            }
            Kind::Replace => {
                return self.engine.replace(op.old, number, &limit, number, sink).unwrap_or(NO_ORDER);
            }
        }
        NO_ORDER
    }

    #[inline]
    fn submit(&mut self, op: &Op, terms: Terms, sink: &mut impl Sink) -> OrderId {
        let number = self.messages;
        let owner = Owner(number as u32 % 64);
        let new = NewOrder { terms, ..NewOrder::limit(owner, number, Locate(op.symbol), op.side, 0, Price(0)) };
        self.engine.submit(&new, number, sink).unwrap_or(NO_ORDER)
    }
}

/// Orders that rest first, then the mixed flow.
fn draw(messages: usize) -> (Vec<Op>, Vec<Op>) {
    let (mut random, mut rig, mut sink) = (Random(1), Rig::open(), Count::default());
    let (mut filling, mut flow, mut live) = (Vec::new(), Vec::new(), Vec::new());
    while filling.len() < RESTING {
        let op = draw_order(&mut random, Kind::Limit);
        live.push(rig.apply(&op, &mut sink));
        filling.push(op);
    }
    while flow.len() < messages {
        let kind = match random.below(100) {
            0..46 => Kind::Limit,
            46..48 => Kind::Hidden,
            48..86 => Kind::Cancel,
            86..90 => Kind::Reduce,
            90..94 => Kind::Replace,
            _ => Kind::Take,
        };
        let mut op = draw_order(&mut random, kind);
        if matches!(kind, Kind::Cancel | Kind::Reduce | Kind::Replace) {
            let Some(old) = draw_live(&mut random, &rig, &mut live) else { continue };
            let order = rig.engine.order(old).expect("it is live");
            op = Op { old, side: order.state.side, ..op };
            op.cents = draw_price(&mut random, op.side, false);
            op.qty = if matches!(kind, Kind::Reduce) { order.state.leaves / 2 + order.state.executed } else { op.qty };
        }
        let new = rig.apply(&op, &mut sink);
        if matches!(kind, Kind::Limit | Kind::Hidden | Kind::Replace) {
            live.push(new);
        }
        flow.push(op);
    }
    (filling, flow)
}

/// A live order: half of them are among the newest, which are changed the most.
fn draw_live(random: &mut Random, rig: &Rig, live: &mut Vec<OrderId>) -> Option<OrderId> {
    while !live.is_empty() {
        let span = if random.below(2) == 0 { live.len().min(2_000) } else { live.len() };
        let at = live.len() - 1 - random.below(span as u64) as usize;
        let old = live[at];
        if rig.engine.order(old).is_some() {
            return Some(old);
        }
        live.swap_remove(at);
    }
    None
}

fn draw_order(random: &mut Random, kind: Kind) -> Op {
    let side = if random.below(2) == 0 { Side::Buy } else { Side::Sell };
    // A few instruments have most of the flow.
    let symbol = 1 + random.below(SYMBOLS.into()).min(random.below(SYMBOLS.into())) as u16;
    let cents = draw_price(random, side, matches!(kind, Kind::Take));
    Op { kind, side, symbol, cents, qty: 100 * (1 + random.below(5) as u32), old: NO_ORDER }
}

fn draw_price(random: &mut Random, side: Side, takes: bool) -> u32 {
    let distance = if takes { 0_u32.wrapping_sub(3) } else { random.distance() };
    match side {
        Side::Buy => (MID as u32).wrapping_sub(distance),
        Side::Sell => (MID as u32).wrapping_add(distance),
    }
}

/// Never inlined, so that callgrind can count here.
#[inline(never)]
fn measured(rig: &mut Rig, flow: &[Op], sink: &mut impl Sink) {
    for op in flow {
        rig.apply(op, sink);
    }
}

fn filled(filling: &[Op]) -> Rig {
    let mut rig = Rig::open();
    for op in filling {
        rig.apply(op, &mut Count::default());
    }
    rig
}

fn views() -> Views {
    Views { itch: ItchView::new(vec![Symbol::NONE; SYMBOLS.into()]), bytes: 0 }
}

/// The time that this thread had the processor, where Linux tells it: others use the machine too.
fn on_cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Million messages a second of processor time, of five runs, the slowest first.
fn rates(filling: &[Op], flow: &[Op], mut run: impl FnMut(&mut Rig, &[Op])) -> [f64; 5] {
    let rate = |()| {
        let mut rig = filled(filling);
        let (started, on_cpu_before) = (Instant::now(), on_cpu());
        run(&mut rig, flow);
        let elapsed = on_cpu().zip(on_cpu_before).map_or(started.elapsed(), |(after, before)| after - before);
        flow.len() as f64 / elapsed.as_secs_f64() / 1e6
    };
    let mut rates = [(); 5].map(rate);
    rates.sort_by(f64::total_cmp);
    rates
}

/// Instructions a message, of this program run again under callgrind.
fn instructions(which: &str) -> Result<f64, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    valgrind.arg("--toggle-collect=*measured*").arg(own).arg(which);
    let output = valgrind.output().map_err(|_| "install valgrind".to_owned())?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split("Collected :").nth(1));
    let collected: Option<f64> = collected.and_then(|count| count.trim().parse().ok());
    collected.map(|count| count / COUNTED as f64).ok_or_else(|| "valgrind printed no count".to_owned())
}

fn main() -> ExitCode {
    let which = std::env::args().nth(1).unwrap_or_default();
    if which == "alone" || which == "views" {
        let (filling, flow) = draw(COUNTED);
        let mut rig = filled(&filling);
        if which == "alone" {
            measured(&mut rig, &flow, &mut Count::default());
        } else {
            measured(&mut rig, &flow, &mut views());
        }
        return ExitCode::SUCCESS;
    }
    let (filling, flow) = draw(MESSAGES);
    let alone = rates(&filling, &flow, |rig, flow| measured(rig, flow, &mut Count::default()));
    if which == "rows" {
        // For the report of wirepath-benches: the median, the least and the greatest.
        println!("row\tmixed-flow\tM/s\t{}\t{}\t{}", alone[2], alone[0], alone[4]);
        return ExitCode::SUCCESS;
    }
    let with_views = rates(&filling, &flow, |rig, flow| measured(rig, flow, &mut views()));
    for (name, which, [.., rate]) in [("engine", "alone", alone), ("with feed and reports", "views", with_views)] {
        let counted = match instructions(which) {
            Ok(count) => format!("{count:.0} instructions"),
            Err(why) => format!("SKIPPED: {why}"),
        };
        println!("mixed flow, {name:22} {rate:6.2} M messages/s  {:5.0} ns  {counted}", 1e3 / rate);
    }
    ExitCode::SUCCESS
}
