use super::*;

/// Open quantity and notional of buys, in shares and dollars.
fn held(gate: &RiskGate) -> (i64, i64) {
    (gate.open_qty(STOCK).unwrap().0, gate.open_notional().0 / Price::SCALE)
}

fn change(gate: &mut RiskGate, replace: &Replace) {
    assert_eq!(gate.check_replace(0, replace, &market(), SECOND), Ok(()));
}

#[test]
fn order_is_reserved_when_it_is_sent_and_released_at_its_end() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(99)));
    assert_eq!(held(&gate), (100, 9_900));
    gate.ended(0);
    assert_eq!(held(&gate), (0, 0));
}

#[test]
fn second_end_of_an_order_releases_nothing() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(99)));
    pass(&mut gate, 1, &buy(200, dollars(99)));
    gate.ended(0);
    gate.ended(0);
    assert_eq!(held(&gate), (200, 19_800));
}

#[test]
fn open_orders_count_against_the_position_limit() {
    let mut gate = gate_with(|limits| limits.instruments[1].long_max = 150);
    pass(&mut gate, 0, &buy(100, dollars(100)));
    assert_eq!(refused(&mut gate, &buy(51, dollars(100))), (Limit::LongPosition, 150, 151));
    pass(&mut gate, 1, &buy(50, dollars(100)));
}

#[test]
fn open_sell_gives_no_room_to_a_buy() {
    let mut gate = gate_with(|limits| limits.instruments[1].long_max = 100);
    pass(&mut gate, 0, &sell(100, dollars(101)));
    assert_eq!(refused(&mut gate, &buy(101, dollars(100))), (Limit::LongPosition, 100, 101));
}

#[test]
fn short_position_has_its_own_limit() {
    let mut gate = gate_with(|limits| limits.instruments[1].short_max = 100);
    assert_eq!(refused(&mut gate, &sell(101, dollars(100))), (Limit::ShortPosition, 100, 101));
    gate.book_trade(STOCK, Side::Buy, 50, dollars(100));
    pass(&mut gate, 0, &sell(150, dollars(100)));
}

#[test]
fn sale_beyond_the_position_needs_a_locate() {
    let mut gate = gate_with(|limits| limits.shortable.set(STOCK, false));
    gate.book_trade(STOCK, Side::Buy, 100, dollars(100));
    assert_eq!(refused(&mut gate, &sell(101, dollars(100))), (Limit::ShortSale, 0, 1));
    pass(&mut gate, 0, &sell(60, dollars(100)));
    assert_eq!(refused(&mut gate, &sell(41, dollars(100))), (Limit::ShortSale, 0, 1));
}

#[test]
fn replace_of_a_sale_that_is_marked_long_does_not_go_beyond_the_position() {
    let mut gate = gate(wide());
    gate.book_trade(STOCK, Side::Buy, 100, dollars(100));
    pass(&mut gate, 0, &sell(100, dollars(101)));
    let longer = replace(2, 300, 0, dollars(101));
    let reject = gate.check_replace(0, &longer, &market(), SECOND).unwrap_err();
    assert_eq!((reject.limit, reject.allowed, reject.value), (Limit::ShortSale, 0, 200));
    change(&mut gate, &replace(2, 100, 0, dollars(102)));
    change(&mut gate, &Replace { is_short: true, id: 3, ..longer });
}

#[test]
fn credit_is_used_by_open_orders_and_by_what_was_spent() {
    let mut gate = gate_with(|limits| limits.account.buy_credit_max = dollars(10_000).0);
    pass(&mut gate, 0, &buy(60, dollars(100)));
    gate.traded(0, STOCK, Side::Buy, (30, dollars(100)));
    assert_eq!(gate.cash(), dollars(3_000).0);
    let (limit, _, value) = refused(&mut gate, &buy(41, dollars(100)));
    assert_eq!((limit, Price(value)), (Limit::BuyCredit, dollars(10_100)));
    pass(&mut gate, 1, &buy(40, dollars(100)));
}

#[test]
fn sells_have_a_credit_of_their_own() {
    let mut gate = gate_with(|limits| limits.account.sell_credit_max = dollars(10_000).0);
    let (limit, _, value) = refused(&mut gate, &sell(101, dollars(100)));
    assert_eq!((limit, Price(value)), (Limit::SellCredit, dollars(10_100)));
}

#[test]
fn trade_moves_quantity_from_the_reservation_to_the_position() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(100)));
    gate.traded(0, STOCK, Side::Buy, (40, dollars(99)));
    assert_eq!((gate.position(STOCK), held(&gate)), (Some(40), (60, 6_000)));
    assert_eq!(gate.cash(), dollars(40 * 99).0);
}

#[test]
fn bust_reverses_position_and_cash() {
    let mut gate = gate(wide());
    gate.book_trade(STOCK, Side::Sell, 40, dollars(99));
    gate.reverse_trade(STOCK, Side::Sell, 40, dollars(99));
    assert_eq!((gate.position(STOCK), gate.cash()), (Some(0), 0));
}

#[test]
fn replace_holds_the_most_that_old_and_new_may_cost_until_it_is_answered() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(100)));
    change(&mut gate, &replace(2, 150, 0, dollars(98)));
    // The old order may trade first, and the new one then has 50 shares left.
    assert_eq!(held(&gate), (150, 14_900));
    change(&mut gate, &replace(3, 50, 0, dollars(101)));
    assert_eq!(held(&gate), (150, 50 * 101 + 50 * 100 + 50 * 98));
    gate.replaced(0, 2);
    assert_eq!(held(&gate), (150, 50 * 101 + 100 * 98));
    gate.replaced(0, 3);
    assert_eq!(held(&gate), (50, 5_050));
}

#[test]
fn refused_replace_releases_what_it_held_alone() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(100)));
    change(&mut gate, &replace(2, 150, 0, dollars(100)));
    gate.replace_refused(0, 2);
    assert_eq!(held(&gate), (100, 10_000));
}

#[test]
fn accepted_replace_voids_those_before_it() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(100)));
    change(&mut gate, &replace(2, 300, 0, dollars(99)));
    change(&mut gate, &replace(3, 200, 0, dollars(98)));
    gate.replaced(0, 3);
    assert_eq!(held(&gate), (200, 19_600));
    // Own levels as well: a sell meets the working price alone.
    pass(&mut gate, 1, &sell(1, dollars(99)));
}

#[test]
fn total_of_a_replace_counts_executions() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(100)));
    gate.traded(0, STOCK, Side::Buy, (40, dollars(100)));
    change(&mut gate, &replace(2, 150, 40, dollars(100)));
    assert_eq!(held(&gate), (110, 11_000));
    gate.traded(0, STOCK, Side::Buy, (60, dollars(100)));
    assert_eq!(held(&gate), (50, 5_000));
    gate.replaced(0, 2);
    assert_eq!(held(&gate), (50, 5_000));
}

#[test]
fn replace_that_takes_more_is_checked_for_the_difference() {
    let mut gate = gate_with(|limits| limits.instruments[1].long_max = 150);
    pass(&mut gate, 0, &buy(100, dollars(100)));
    let reject = gate.check_replace(0, &replace(2, 151, 0, dollars(100)), &market(), SECOND).unwrap_err();
    assert_eq!((reject.limit, reject.value), (Limit::LongPosition, 151));
    change(&mut gate, &replace(2, 150, 0, dollars(100)));
}

#[test]
fn both_prices_of_a_replace_are_own_until_it_is_answered() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(99)));
    change(&mut gate, &replace(2, 100, 0, dollars(101)));
    assert_eq!(refused(&mut gate, &sell(1, dollars(100))).0, Limit::SelfMatch);
    gate.replace_refused(0, 2);
    assert_eq!(refused(&mut gate, &sell(1, dollars(99))).0, Limit::SelfMatch);
    pass(&mut gate, 1, &sell(1, dollars(100)));
}

#[test]
fn fifth_unanswered_replace_is_refused() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(99)));
    (2..6).for_each(|id| change(&mut gate, &replace(id, 100 + id as u32, 0, dollars(99))));
    let reject = gate.check_replace(0, &replace(6, 100, 0, dollars(99)), &market(), SECOND).unwrap_err();
    assert_eq!((reject.limit, reject.allowed, reject.value), (Limit::PendingReplaces, 4, 5));
}

#[test]
fn replace_of_a_dead_order_is_refused() {
    let mut gate = gate(wide());
    let reject = gate.check_replace(0, &replace(2, 100, 0, dollars(99)), &market(), SECOND).unwrap_err();
    assert_eq!(reject.limit, Limit::OrderSlot);
}

#[test]
fn restated_order_holds_its_new_terms() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(99)));
    gate.restated(0, 60, dollars(98));
    assert_eq!(held(&gate), (60, 5_880));
    pass(&mut gate, 1, &sell(1, dollars(99)));
}

#[test]
fn restored_order_holds_what_is_open() {
    let mut gate = gate(wide());
    assert!(gate.restore_order(7, STOCK, Side::Buy, (60, dollars(99))));
    assert_eq!(held(&gate), (60, 5_940));
    assert!(!gate.restore_order(7, STOCK, Side::Buy, (60, dollars(99))), "the slot is taken");
    gate.ended(7);
    assert_eq!(held(&gate), (0, 0));
}

/// The dearer order may trade while its replace is under way.
#[test]
fn order_that_trades_before_its_cheaper_replace_takes_no_more_than_was_reserved() {
    let mut gate = gate_with(|limits| limits.account.buy_credit_max = dollars(10_000).0);
    pass(&mut gate, 0, &buy(37, dollars(102)));
    let cheaper = replace(2, 103, 0, dollars(97));
    let reject = gate.check_replace(0, &cheaper, &market(), SECOND).unwrap_err();
    assert_eq!((reject.limit, Price(reject.value)), (Limit::BuyCredit, dollars(37 * 102 + 66 * 97)));
    change(&mut gate, &replace(2, 100, 0, dollars(97)));
    gate.traded(0, STOCK, Side::Buy, (37, dollars(102)));
    assert_eq!(gate.cash() + gate.open_notional().0, dollars(37 * 102 + 63 * 97).0);
}

#[test]
fn replace_that_changes_nothing_is_a_duplicate() {
    let mut gate = gate(wide());
    pass(&mut gate, 0, &buy(100, dollars(100)));
    let mut asks = |id, qty, cum, price| {
        gate.check_replace(0, &replace(id, qty, cum, dollars(price)), &market(), SECOND).map_err(|reject| reject.limit)
    };
    assert_eq!(asks(2, 100, 0, 100), Err(Limit::Duplicate));
    // The same open shares of a greater total are the same order.
    assert_eq!(asks(2, 140, 40, 100), Err(Limit::Duplicate));
    assert_eq!(asks(2, 120, 0, 100), Ok(()));
    assert_eq!(asks(3, 120, 0, 100), Err(Limit::Duplicate), "the one without an answer asks for it");
    assert_eq!(asks(3, 100, 0, 100), Ok(()), "and this takes it back");
    gate.replace_refused(0, 3);
    let again = gate.check_replace(0, &replace(4, 100, 0, dollars(100)), &market(), SECOND);
    assert_eq!(again, Ok(()), "the venue has not taken it");
}
