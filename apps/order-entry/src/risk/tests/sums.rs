//! Random histories: sums are never negative, never above their limits, and zero when no order
//! lives.

use proptest::prelude::*;

use super::*;

const LONG_MAX: i64 = 700;
const CREDIT_MAX: i64 = 60_000;

#[derive(Clone, Debug)]
enum Step {
    New { slot: usize, is_buy: bool, qty: u32, price: i64 },
    Replace { slot: usize, qty: u32, price: i64 },
    Replaced { slot: usize, back: u64 },
    Refused { slot: usize, back: u64 },
    Traded { slot: usize, qty: u32 },
    Restated { slot: usize, leaves: u32, price: i64 },
    Ended { slot: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..6_usize;
    prop_oneof![
        3 => (slot.clone(), any::<bool>(), 1..300_u32, 97..103_i64)
            .prop_map(|(slot, is_buy, qty, price)| Step::New { slot, is_buy, qty, price }),
        3 => (slot.clone(), 1..300_u32, 97..103_i64).prop_map(|(slot, qty, price)| Step::Replace { slot, qty, price }),
        2 => (slot.clone(), 0..4_u64).prop_map(|(slot, back)| Step::Replaced { slot, back }),
        1 => (slot.clone(), 0..4_u64).prop_map(|(slot, back)| Step::Refused { slot, back }),
        2 => (slot.clone(), 1..50_u32).prop_map(|(slot, qty)| Step::Traded { slot, qty }),
        1 => (slot.clone(), 0..100_u32, 97..103_i64)
            .prop_map(|(slot, leaves, price)| Step::Restated { slot, leaves, price }),
        2 => slot.prop_map(|slot| Step::Ended { slot }),
    ]
}

/// A gate that trades at limit prices only as far as its limits allow.
fn play(gate: &mut RiskGate, steps: &[Step]) {
    let mut now_ns = SECOND;
    let mut id = 0;
    for step in steps {
        now_ns += SECOND;
        let market = Market { heard_ns: now_ns, ..market() };
        match *step {
            Step::New { slot, is_buy, qty, price } => {
                let side = if is_buy { Side::Buy } else { Side::Sell };
                let _ = gate.check_new(slot, &NewOrder { side, ..buy(qty, dollars(price)) }, &market, now_ns);
            }
            Step::Replace { slot, qty, price } => {
                id += 1;
                let replace = Replace { is_short: true, ..replace(id, qty, 0, dollars(price)) };
                let _ = gate.check_replace(slot, &replace, &market, now_ns);
            }
            Step::Replaced { slot, back } => gate.replaced(slot, id.saturating_sub(back)),
            Step::Refused { slot, back } => gate.replace_refused(slot, id.saturating_sub(back)),
            // No venue fills more than is open.
            Step::Traded { slot, qty } => {
                let reservation::Reservation { side, working, .. } = gate.reservations[slot];
                gate.traded(slot, STOCK, side, (qty.min(working.leaves), working.price));
            }
            Step::Restated { slot, leaves, price } => {
                let leaves = leaves.min(gate.reservations[slot].working.leaves);
                let price = gate.reservations[slot].working.price.min(dollars(price));
                gate.restated(slot, leaves, price);
            }
            Step::Ended { slot } => gate.ended(slot),
        }
        check(gate);
    }
}

fn check(gate: &RiskGate) {
    let (buys, sells) = gate.open_qty(STOCK).unwrap();
    let (buy_notional, sell_notional) = gate.open_notional();
    let position = gate.position(STOCK).unwrap();
    assert!(buys >= 0 && sells >= 0 && buy_notional >= 0 && sell_notional >= 0);
    assert!(position + buys <= LONG_MAX, "{position} and {buys} open");
    assert!(sells - position <= LONG_MAX, "{position} and {sells} open");
    assert!(gate.cash().max(0) + buy_notional <= dollars(CREDIT_MAX).0);
}

proptest! {
    #[test]
    fn no_history_exceeds_position_or_credit(steps in prop::collection::vec(step(), 1..200)) {
        let mut gate = gate_with(|limits| {
            limits.instruments[1].long_max = LONG_MAX;
            limits.instruments[1].short_max = LONG_MAX;
            limits.account.buy_credit_max = dollars(CREDIT_MAX).0;
        });
        play(&mut gate, &steps);
        (0..6).for_each(|slot| gate.ended(slot));
        prop_assert_eq!((gate.open_qty(STOCK), gate.open_notional()), (Some((0, 0)), (0, 0)));
        for side in [Side::Buy, Side::Sell] {
            prop_assert_eq!(gate.exposures.instruments[1].levels.of(side).best(side), None);
        }
    }
}
