use super::*;

#[test]
fn order_within_all_limits_passes() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(100)));
    assert_eq!(gate.counts().passed, 1);
}

#[test]
fn limits_that_nobody_set_refuse_each_order() {
    let mut gate = gate(Box::new(Limits::zero(2, 1, 1)));
    assert!(gate.check_new(0, &buy(1, dollars(100)), &market(), SECOND).is_err());
}

/// Each limit alone at zero refuses the order that passes otherwise.
#[test]
fn each_limit_that_is_zero_refuses_each_order() {
    type Change = fn(&mut Limits);
    let changes: [(Change, Limit); 10] = [
        (|limits| limits.instruments[1].qty_max = 0, Limit::Quantity),
        (|limits| limits.instruments[1].notional_max = 0, Limit::Notional),
        (|limits| limits.instruments[1].long_max = 0, Limit::LongPosition),
        (|limits| limits.instruments[1].rates.orders = Rate::ZERO, Limit::InstrumentRate),
        (|limits| limits.ports[0].orders = Rate::ZERO, Limit::PortRate),
        (|limits| limits.units[0].orders = Rate::ZERO, Limit::UnitRate),
        (|limits| limits.account.buy_credit_max = 0, Limit::BuyCredit),
        (|limits| limits.account.duplicate_window_ns = 0, Limit::Duplicate),
        (|limits| limits.account.silence_max_ns = 0, Limit::SilentFeed),
        (|limits| limits.instruments[1].collar_bps = 0, Limit::Collar),
    ];
    for (change, limit) in changes {
        let mut gate = gate_with(change);
        assert_eq!(refused(&mut gate, &buy(100, Price(1_000_001))).0, limit);
    }
}

#[test]
fn gate_is_disarmed_at_start() {
    let mut gate = RiskGate::new(wide(), KillSwitch::new(), RiskCapacity { orders: 64, recent: 64 });
    assert_eq!(refused(&mut gate, &buy(100, dollars(100))).0, Limit::Disarmed);
}

#[test]
fn thrown_switch_stops_orders_until_the_gate_is_armed_by_hand() {
    let kill = KillSwitch::new();
    let mut gate = RiskGate::new(wide(), kill.clone(), RiskCapacity { orders: 64, recent: 64 });
    gate.arm();
    kill.throw();
    assert_eq!(refused(&mut gate, &buy(100, dollars(100))).0, Limit::KillSwitch);
    gate.arm();
    pass(&mut gate, 0, &buy(100, dollars(100)));
}

#[test]
fn cancel_passes_a_disarmed_gate() {
    let mut gate = gate(wide());
    gate.disarm();
    assert_eq!(gate.check_cancel(STOCK, Route::default(), SECOND), Ok(()));
}

#[test]
fn instrument_port_or_unit_without_limits_is_refused() {
    let mut gate = gate(wide());
    let order = buy(100, dollars(100));
    let instrument = NewOrder { instrument: InstrumentIdx(2), ..order };
    assert_eq!(refused(&mut gate, &instrument), (Limit::UnknownInstrument, 2, 2));
    let port = NewOrder { route: Route { port: 1, unit: 0 }, ..order };
    assert_eq!(refused(&mut gate, &port), (Limit::UnknownPort, 1, 1));
    let unit = NewOrder { route: Route { port: 0, unit: 3 }, ..order };
    assert_eq!(refused(&mut gate, &unit), (Limit::UnknownUnit, 1, 3));
}

#[test]
fn slot_of_a_live_order_is_refused() {
    let mut gate = gate(wide());
    pass(&mut gate, 63, &buy(100, dollars(100)));
    assert_eq!(refused(&mut gate, &buy(100, dollars(99))), (Limit::OrderSlot, 64, 63));
}

#[test]
fn restricted_instrument_is_refused() {
    let mut gate = gate_with(|limits| limits.restricted.set(STOCK, true));
    assert_eq!(refused(&mut gate, &buy(100, dollars(100))).0, Limit::Restricted);
}

#[test]
fn halted_instrument_is_refused() {
    let mut gate = gate(wide());
    let market = Market { is_halted: true, ..market() };
    let reject = gate.check_new(0, &buy(100, dollars(100)), &market, SECOND).unwrap_err();
    assert_eq!(reject.to_string(), "halted instrument");
}

#[test]
fn stale_book_is_refused() {
    let mut gate = gate(wide());
    let market = Market { is_stale: true, ..market() };
    let reject = gate.check_new(0, &buy(100, dollars(100)), &market, SECOND).unwrap_err();
    assert_eq!(reject.limit, Limit::StaleBook);
}

#[test]
fn silent_feed_is_refused_from_the_limit_on() {
    let mut gate = gate(wide());
    let order = buy(100, dollars(100));
    let reject = gate.check_new(0, &order, &market(), 2 * SECOND).unwrap_err();
    assert_eq!((reject.limit, reject.allowed, reject.value), (Limit::SilentFeed, 1_000_000_000, 1_000_000_000));
    assert_eq!(gate.check_new(0, &order, &market(), 2 * SECOND - 1), Ok(()));
}

#[test]
fn quantity_above_its_limit_is_refused() {
    let mut gate = gate(wide());
    assert_eq!(refused(&mut gate, &buy(1_001, dollars(100))), (Limit::Quantity, 1_000, 1_001));
    pass(&mut gate, 0, &buy(1_000, dollars(100)));
}

#[test]
fn quantity_of_zero_is_refused() {
    let mut gate = gate(wide());
    assert_eq!(refused(&mut gate, &buy(0, dollars(100))).0, Limit::Quantity);
}

#[test]
fn notional_above_its_limit_is_refused() {
    let mut gate = gate_with(|limits| limits.instruments[1].notional_max = dollars(10_000).0);
    let (limit, allowed, value) = refused(&mut gate, &buy(101, dollars(100)));
    assert_eq!((limit, Price(allowed), Price(value)), (Limit::Notional, dollars(10_000), dollars(10_100)));
    pass(&mut gate, 0, &buy(100, dollars(100)));
}

/// A contract of an index is worth 50 times its price: 6000 dollars a point are 300,000.
#[test]
fn limits_in_money_count_what_contracts_are_worth() {
    let fifty = Multiplier::from_ten_thousandths(50_0000).unwrap();
    let with = |change: fn(&mut Limits)| {
        gate_with(|limits| {
            limits.multipliers[1] = fifty;
            change(limits);
        })
    };
    let mut gate = with(|limits| limits.instruments[1].notional_max = dollars(10_000).0);
    let (limit, _, value) = refused(&mut gate, &buy(3, dollars(100)));
    assert_eq!((limit, Price(value)), (Limit::Notional, dollars(15_000)));
    pass(&mut gate, 0, &buy(2, dollars(100)));
    assert_eq!(gate.open_notional().0, dollars(10_000).0);
    gate.traded(0, STOCK, Side::Buy, (2, dollars(100)));
    assert_eq!((gate.cash(), gate.open_notional().0), (dollars(10_000).0, 0));
    let mut gate = with(|limits| limits.account.buy_credit_max = dollars(10_000).0);
    let (limit, _, value) = refused(&mut gate, &buy(3, dollars(100)));
    assert_eq!((limit, Price(value)), (Limit::BuyCredit, dollars(15_000)));
}

#[test]
fn multiplier_stays_for_a_run() {
    let mut gate = gate(wide());
    let mut other = wide();
    (other.version, other.multipliers[1]) = (2, Multiplier::from_ten_thousandths(50_0000).unwrap());
    let (why, _) = gate.swap_limits(other).unwrap_err();
    assert_eq!(why.to_string(), "the multiplier of instrument 1 is 1 and stays so for a run: restart with 50");
    let mut same = wide();
    same.version = 2;
    assert!(gate.swap_limits(same).is_ok());
}

#[test]
fn notional_beyond_64_bits_is_refused() {
    let mut gate = gate_with(|limits| limits.instruments[1].qty_max = u32::MAX);
    let market = Market { reference: Some(Price(i64::MAX)), ..market() };
    let reject = gate.check_new(0, &buy(u32::MAX, Price(i64::MAX)), &market, SECOND).unwrap_err();
    assert_eq!((reject.limit, reject.value), (Limit::Notional, i64::MAX));
}

#[test]
fn order_without_a_reference_is_refused() {
    let mut gate = gate(wide());
    let market = Market { reference: None, ..market() };
    let reject = gate.check_new(0, &buy(100, dollars(100)), &market, SECOND).unwrap_err();
    assert_eq!(reject.limit, Limit::NoReference);
}

#[test]
fn price_beyond_the_collar_is_refused_on_both_sides_of_the_reference() {
    let mut gate = gate(wide());
    assert_eq!(refused(&mut gate, &buy(1, Price(1_050_001))), (Limit::Collar, 1_050_000, 1_050_001));
    assert_eq!(refused(&mut gate, &buy(1, Price(949_999))), (Limit::Collar, 950_000, 949_999));
    pass(&mut gate, 0, &buy(1, Price(1_050_000)));
    pass(&mut gate, 1, &buy(1, Price(950_000)));
}

/// Its middle of 12.50 would let an order pass at 25 percent from either side.
#[test]
fn book_that_is_too_wide_gives_no_reference_and_its_order_is_refused_by_the_limits_name() {
    let mut gate = gate_with(|limits| {
        (limits.instruments[1].collar_bps, limits.instruments[1].spread_max_bps) = (500, 1_000);
    });
    let wide = |spread| Market { reference: Some(dollars(100)), spread, ..market() };
    let order = buy(100, dollars(100));
    let refusal = gate.check_new(0, &order, &wide(Price(dollars(10).0 + 1)), SECOND).unwrap_err();
    assert_eq!((refusal.limit, refusal.allowed, refusal.value), (Limit::Spread, dollars(10).0, dollars(10).0 + 1));
    assert!(refusal.to_string().starts_with("spread of the book: the limit is 10"), "{refusal}");
    assert_eq!(gate.check_new(0, &order, &wide(dollars(10)), SECOND), Ok(()));
}

#[test]
fn collar_surrounds_a_negative_reference() {
    let mut gate = gate(wide());
    let market = Market { reference: Some(dollars(-100)), ..market() };
    assert_eq!(gate.check_new(0, &buy(1, dollars(-105)), &market, SECOND), Ok(()));
    let reject = gate.check_new(1, &buy(1, dollars(-106)), &market, SECOND).unwrap_err();
    assert_eq!(reject.limit, Limit::Collar);
}

#[test]
fn market_order_is_valued_at_the_edge_of_the_collar() {
    let mut gate = gate_with(|limits| limits.instruments[1].notional_max = dollars(10_499).0);
    let order = NewOrder { instructions: MARKET, ..buy(100, dollars(0)) };
    let (limit, _, value) = refused(&mut gate, &order);
    assert_eq!((limit, Price(value)), (Limit::Notional, dollars(10_500)));
}

/// A sale earns the more the higher it trades, and a negative price costs the more the lower it is.
#[test]
fn market_order_is_valued_at_the_edge_that_is_worth_more_on_both_sides() {
    for (reference, worth) in [(dollars(100), dollars(10_500)), (dollars(-100), dollars(10_500))] {
        for side in [Side::Buy, Side::Sell] {
            let mut gate = gate_with(|limits| limits.instruments[1].notional_max = worth.0 - 1);
            let order = NewOrder { side, instructions: MARKET, ..buy(100, dollars(0)) };
            let market = Market { reference: Some(reference), ..market() };
            let reject = gate.check_new(0, &order, &market, SECOND).unwrap_err();
            assert_eq!((reject.limit, Price(reject.value)), (Limit::Notional, worth), "{side:?} at {reference}");
        }
    }
}

/// The venue trades it at any price, also beyond the collar.
#[test]
fn market_order_meets_each_own_order_of_the_other_side() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(96)));
    let sale = NewOrder { side: Side::Sell, instructions: MARKET, ..buy(100, dollars(0)) };
    let higher = Market { reference: Some(dollars(110)), ..market() };
    assert_eq!(gate.check_new(63, &sale, &higher, SECOND).unwrap_err().limit, Limit::SelfMatch);
    gate.ended(0);
    pass(&mut gate, 1, &sale);
    assert_eq!(refused(&mut gate, &buy(50, dollars(96))).0, Limit::SelfMatch);
    gate.ended(1);
    pass(&mut gate, 2, &buy(50, dollars(96)));
}

#[test]
fn second_equal_order_inside_the_window_is_refused() {
    let mut gate = gate(wide());
    let order = buy(100, dollars(100));
    pass(&mut gate, 0, &order);
    let market = Market { heard_ns: 2 * SECOND, ..market() };
    let reject = gate.check_new(1, &order, &market, 2 * SECOND - 1).unwrap_err();
    assert_eq!((reject.limit, reject.allowed, reject.value), (Limit::Duplicate, 1_000_000_000, 999_999_999));
    assert_eq!(gate.check_new(1, &order, &market, 2 * SECOND), Ok(()));
}

#[test]
fn order_that_differs_in_one_term_is_no_duplicate() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(100)));
    pass(&mut gate, 1, &buy(101, dollars(100)));
    pass(&mut gate, 2, &buy(100, Price(999_999)));
    pass(&mut gate, 3, &NewOrder { instrument: InstrumentIdx(0), ..buy(100, dollars(100)) });
}

#[test]
fn duplicates_that_do_not_fit_the_table_are_counted() {
    let mut gate = RiskGate::new(wide(), KillSwitch::new(), RiskCapacity { orders: 64, recent: 1 });
    gate.arm();
    (0..5).for_each(|slot| pass(&mut gate, slot, &buy(slot as u32 + 1, dollars(100))));
    assert_eq!(gate.counts().duplicates_evicted, 1);
}

#[test]
fn order_that_could_meet_an_own_one_is_refused() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &sell(100, dollars(101)));
    pass(&mut gate, 1, &sell(100, dollars(102)));
    let (limit, own, price) = refused(&mut gate, &buy(100, dollars(101)));
    assert_eq!((limit, Price(own), Price(price)), (Limit::SelfMatch, dollars(101), dollars(101)));
    pass(&mut gate, 2, &buy(100, dollars(100)));
}

#[test]
fn venue_may_prevent_self_matches_instead() {
    let mut gate = gate_with(|limits| limits.account.self_match = SelfMatch::Venue);
    pass(&mut gate, 0, &sell(100, dollars(101)));
    pass(&mut gate, 1, &buy(100, dollars(101)));
}

#[test]
fn orders_at_more_prices_than_are_tracked_are_refused() {
    let mut gate = gate(wide());
    (0..16).for_each(|slot| pass(&mut gate, slot, &buy(1, Price(1_000_000 - slot as i64))));
    assert_eq!(refused(&mut gate, &buy(1, Price(990_000))), (Limit::OwnLevels, 16, 17));
    pass(&mut gate, 16, &buy(2, Price(999_990)));
}

#[test]
fn reject_names_the_limit_its_value_and_the_orders() {
    let reject = RiskReject { limit: Limit::Notional, allowed: 100_000_000, value: 101_000_000, level: None };
    assert_eq!(reject.to_string(), "notional: the limit is 10000.0000, the order's value 10100.0000");
}

#[test]
fn refused_order_changes_nothing_but_a_counter() {
    let mut gate = gate_with(|limits| limits.units[0].orders = Rate::ZERO);
    assert_eq!(refused(&mut gate, &buy(100, dollars(100))).0, Limit::UnitRate);
    assert_eq!((gate.open_notional(), gate.open_qty(STOCK)), ((0, 0), Some((0, 0))));
    assert_eq!(gate.counts().refused[Limit::UnitRate as usize], 1);
    // Neither the duplicates nor the own levels know the order.
    let mut limits = wide();
    limits.version = 2;
    gate.swap_limits(limits).unwrap();
    pass(&mut gate, 0, &sell(100, dollars(100)));
    gate.ended(0);
    pass(&mut gate, 0, &buy(100, dollars(100)));
}

#[test]
fn block_of_limits_is_taken_whole_and_the_old_one_returned() {
    let mut gate = gate(wide());
    let mut limits = wide();
    limits.version = 2;
    limits.instruments[1].qty_max = 10;
    assert_eq!(gate.swap_limits(limits).unwrap().version, 1);
    assert_eq!(refused(&mut gate, &buy(11, dollars(100))), (Limit::Quantity, 10, 11));
}

#[test]
fn block_that_is_not_newer_is_refused() {
    let mut gate = gate(wide());
    let (why, _) = gate.swap_limits(wide()).unwrap_err();
    assert_eq!(why, StaleLimits::Version { current: 1, offered: 1 });
}

#[test]
fn block_of_another_shape_is_refused() {
    let mut gate = gate(wide());
    let mut limits = Limits::zero(3, 1, 1);
    limits.version = 2;
    assert_eq!(gate.swap_limits(Box::new(limits)).unwrap_err().0, StaleLimits::Shape);
}

#[test]
fn market_order_without_a_collar_is_refused() {
    let mut gate = gate_with(|limits| limits.instruments[1].collar_bps = 0);
    let order = NewOrder { instructions: MARKET, ..buy(100, dollars(0)) };
    assert_eq!(refused(&mut gate, &order), (Limit::Collar, 0, dollars(100).0));
}

#[test]
fn market_order_without_a_reference_price_is_refused() {
    let market = Market { reference: None, ..market() };
    let order = NewOrder { instructions: MARKET, ..buy(100, dollars(0)) };
    let refused = gate(wide()).check_new(0, &order, &market, SECOND).unwrap_err();
    assert_eq!(refused.limit, Limit::NoReference);
}
