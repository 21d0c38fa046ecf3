//! Random histories, in any order and with any repetition, and the gate that follows them.

use proptest::prelude::*;

use super::*;
use crate::risk::{
    InstrumentLimits, KillSwitch, Limits, Market, NewOrder, Rate, RateLimits, Replace, RiskCapacity, RiskGate, Route,
    SelfMatch,
};

/// No limit stands in the way of the histories.
fn limits() -> Box<Limits> {
    let rate = Rate::new(u32::MAX, u32::MAX);
    let rates = RateLimits { orders: rate, cancels: rate };
    let instrument = InstrumentLimits {
        qty_max: u32::MAX,
        collar_bps: u16::MAX,
        spread_max_bps: 1_000,
        notional_max: i64::MAX,
        long_max: i64::MAX,
        short_max: i64::MAX,
        rates,
    };
    let mut limits = Limits::zero(8, 1, 1);
    limits.instruments.fill(instrument);
    (limits.ports[0], limits.units[0]) = (rates, rates);
    limits.shortable.set(STOCK, true);
    limits.account.buy_credit_max = i64::MAX;
    limits.account.sell_credit_max = i64::MAX;
    limits.account.duplicate_window_ns = 1;
    limits.account.silence_max_ns = u64::MAX;
    limits.account.self_match = SelfMatch::Venue;
    Box::new(limits)
}

const MARKET: Market =
    Market { reference: Some(PRICE), spread: Price(0), is_stale: false, is_halted: false, heard_ns: 0 };

#[derive(Clone, Debug)]
enum Step {
    Open { id: u64, is_buy: bool, qty: u32 },
    Replace { slot: usize, id: u64, qty: u32, price: i64 },
    Cancel { slot: usize },
    Venue { key: OrderKey, event: VenueEvent },
    Restart,
}

fn venue_event() -> impl Strategy<Value = VenueEvent> {
    let exec = (0..12_u64).prop_map(ExecId::from_number);
    prop_oneof![
        2 => (0..20_u64).prop_map(|venue_id| VenueEvent::Accepted { venue_id }),
        1 => Just(VenueEvent::Rejected { reason: 0 }),
        4 => (exec.clone(), 1..80_u32).prop_map(|(exec, qty)| VenueEvent::Filled { exec, qty, price: PRICE }),
        1 => (0..80_u32).prop_map(|by| VenueEvent::Reduced { by, reason: 0 }),
        1 => Just(VenueEvent::Canceled { reason: 0 }),
        1 => Just(VenueEvent::CancelRefused { reason: 0 }),
        3 => (0..20_u64, 0..20_u64).prop_map(|(id, venue_id)| VenueEvent::Replaced { id, venue_id }),
        2 => (0..20_u64).prop_map(|id| VenueEvent::ReplaceRefused { id, reason: 0 }),
        1 => (0..150_u32).prop_map(|qty| VenueEvent::Restated { qty, price: PRICE, reason: 0 }),
        1 => exec.clone().prop_map(|exec| VenueEvent::Busted { exec }),
        1 => (exec.clone(), exec, 1..80_u32)
            .prop_map(|(exec, new_exec, qty)| VenueEvent::Corrected { exec, new_exec, qty, price: PRICE }),
        1 => (any::<bool>(), 0..100_u32, 0..100_u32)
            .prop_map(|(is_live, cum, leaves)| VenueEvent::Status(VenueStatus { is_live, cum, leaves })),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![(0..20_u64).prop_map(OrderKey::Client), (0..20_u64).prop_map(OrderKey::Venue)];
    prop_oneof![
        2 => (0..20_u64, any::<bool>(), 1..150_u32).prop_map(|(id, is_buy, qty)| Step::Open { id, is_buy, qty }),
        2 => (0..4_usize, 0..20_u64, 0..150_u32, 1..5_i64)
            .prop_map(|(slot, id, qty, price)| Step::Replace { slot, id, qty, price }),
        1 => (0..4_usize).prop_map(|slot| Step::Cancel { slot }),
        8 => (key, venue_event()).prop_map(|(key, event)| Step::Venue { key, event }),
        1 => Just(Step::Restart),
    ]
}

struct World {
    table: OrderTable,
    gate: RiskGate,
    /// Executed less busted, and bought less sold, by what the outcomes said.
    position: i64,
    now_ns: u64,
}

impl World {
    fn new(rules: OrderRules) -> Self {
        let capacity = OrderCapacity { orders: 4, executions: 64, instruments: 8 };
        let mut gate = RiskGate::new(limits(), KillSwitch::new(), RiskCapacity { orders: 4, recent: 4 });
        gate.arm();
        Self { table: OrderTable::new(capacity, rules), gate, position: 0, now_ns: 0 }
    }

    fn play(&mut self, step: &Step) {
        self.now_ns += 10;
        match *step {
            Step::Open { id, is_buy, qty } => self.open(id, if is_buy { Side::Buy } else { Side::Sell }, qty),
            Step::Replace { slot, id, qty, price } => self.replace(slot, id, qty, Price(price)),
            Step::Cancel { slot } => {
                let _ = self.table.request_cancel(slot, 1);
            }
            Step::Venue { key, event } => self.hear(key, event),
            Step::Restart => self.table.restart(),
        }
        self.check();
    }

    /// As a gateway does: the gate first, then the table, which may still refuse.
    fn open(&mut self, id: u64, side: Side, qty: u32) {
        let Some(slot) = self.table.next_slot() else { return };
        let order = NewOrder::limit(STOCK, side, qty, PRICE);
        assert_eq!(self.gate.check_new(slot, &order, &MARKET, self.now_ns), Ok(()));
        if self.table.open(id, (STOCK, side), (qty, PRICE), self.now_ns).is_err() {
            self.gate.ended(slot);
        }
    }

    fn replace(&mut self, slot: usize, id: u64, qty: u32, price: Price) {
        let cum = self.seen(slot).1;
        let replace = Replace { id, qty, cum, price, is_short: true, route: Route::default() };
        if self.table.may_replace(slot, id).is_ok()
            && self.gate.check_replace(slot, &replace, &MARKET, self.now_ns).is_ok()
        {
            self.table.request_replace(slot, id, (qty, price), self.now_ns).unwrap();
        }
    }

    fn hear(&mut self, key: OrderKey, event: VenueEvent) {
        let before: Vec<(bool, u32)> = (0..4).map(|slot| self.seen(slot)).collect();
        let outcome = self.table.apply(key, &event);
        assert!(self.gate.follow(&outcome, &self.table), "there is room for all prices");
        let sign = if outcome.side == Side::Buy { 1 } else { -1 };
        self.position += sign
            * match outcome.effect {
                Effect::Traded { qty, .. } => i64::from(qty),
                Effect::Reversed { qty, .. } => -i64::from(qty),
                Effect::Corrected { old, new } => i64::from(new.0) - i64::from(old.0),
                _ => 0,
            };
        for (slot, (was_live, cum)) in before.into_iter().enumerate() {
            let (is_live, cum_now) = self.seen(slot);
            assert!(cum_now >= cum, "cum fell");
            let is_this = outcome.slot == Some(slot);
            assert_eq!(was_live && !is_live, is_this && outcome.ended.is_some(), "an end is told once");
            let is_revived = matches!(outcome.effect, Effect::Revived { .. });
            assert_eq!(!was_live && is_live, is_this && is_revived, "a dead order lives only when it is told");
        }
    }

    fn seen(&self, slot: usize) -> (bool, u32) {
        self.table.get(slot).map_or((false, 0), |order| (order.is_live(), order.cum()))
    }

    fn check(&self) {
        let mut open = [0, 0];
        for (_, order) in self.table.live() {
            assert_eq!(order.qty(), order.cum() + order.leaves());
            open[usize::from(order.side == Side::Sell)] += i64::from(order.leaves());
        }
        assert_eq!(self.table.live().count(), self.table.live_count());
        let unanswered = |order: &Order| usize::from(order.is_unacknowledged()) + order.pending_replaces().len();
        let counted: usize = self.table.live().map(|(_, order)| unanswered(order)).sum();
        assert_eq!(self.table.unanswered_count(), counted, "what the venue has not answered");
        let held = self.gate.open_qty(STOCK).unwrap();
        assert!(held.0 >= open[0] && held.1 >= open[1], "the gate holds {held:?}, open are {open:?}");
        assert_eq!(self.gate.position(STOCK), Some(self.position));
    }
}

fn all_rules() -> impl Strategy<Value = OrderRules> {
    any::<bool>().prop_map(|full_fill_voids_replaces| OrderRules { full_fill_voids_replaces, has_status: true })
}

proptest! {
    #[test]
    fn totals_hold_and_cum_never_falls(rules in all_rules(), steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new(rules);
        steps.iter().for_each(|step| world.play(step));
        for slot in 0..4 {
            if let Some(id) = world.table.get(slot).map(Order::accepted_id) {
                world.hear(OrderKey::Client(id), VenueEvent::Canceled { reason: 0 });
            }
        }
        prop_assert_eq!(world.table.live_count(), 0);
        prop_assert_eq!(world.gate.open_qty(STOCK), Some((0, 0)));
    }
}

#[test]
fn order_that_lives_again_holds_its_unanswered_replace_behind_a_restatement() {
    let mut world = World::new(OrderRules { full_fill_voids_replaces: false, has_status: true });
    for id in [8, 0] {
        world.play(&Step::Open { id, is_buy: false, qty: 1 });
    }
    world.play(&Step::Open { id: 4, is_buy: false, qty: 31 });
    world.play(&Step::Replace { slot: 2, id: 6, qty: 53, price: 1 });
    let venue = |id, event| Step::Venue { key: OrderKey::Client(id), event };
    world.play(&venue(4, VenueEvent::Rejected { reason: 0 }));
    world.play(&Step::Cancel { slot: 0 });
    world.play(&venue(6, VenueEvent::Accepted { venue_id: 0 }));
    world.play(&venue(6, VenueEvent::Reduced { by: 0, reason: 0 }));
    world.play(&venue(6, VenueEvent::Filled { exec: ExecId::from_number(0), qty: 1, price: PRICE }));
}
