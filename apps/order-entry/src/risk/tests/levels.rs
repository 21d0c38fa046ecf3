//! Limits of a strategy, of the account and of the firm.

use super::*;

/// Two strategies within a firm, all with limits that a few orders reach.
fn levels(change: impl FnOnce(&mut Limits)) -> RiskGate {
    gate_with(|limits| {
        let of = |credit| LevelLimits {
            qty_max: 500,
            notional_max: dollars(40_000).0,
            buy_credit_max: dollars(credit).0,
            sell_credit_max: dollars(credit).0,
            orders: Rate::new(1_000, 100),
        };
        (limits.strategies, limits.firm) = ([of(20_000), of(30_000)].into(), Some(of(44_000)));
        change(limits);
    })
}

fn of(strategy: u16, order: NewOrder) -> NewOrder {
    NewOrder { strategy: StrategyIdx(strategy), ..order }
}

fn refusal(gate: &mut RiskGate, order: &NewOrder) -> String {
    gate.check_new(63, order, &market(), SECOND).unwrap_err().to_string()
}

#[test]
fn order_keeps_the_credit_of_its_strategy_and_of_the_firm() {
    let mut gate = levels(|_| ());
    pass(&mut gate, 0, &of(0, buy(150, dollars(100))));
    let text = refusal(&mut gate, &of(0, buy(51, dollars(100))));
    assert_eq!(text, "strategy 0: buy credit: the limit is 20000.0000, the order's value 20100.0000");
    pass(&mut gate, 1, &of(1, buy(280, dollars(100))));
    let text = refusal(&mut gate, &of(1, buy(15, dollars(101))));
    assert_eq!(text, "firm: buy credit: the limit is 44000.0000, the order's value 44515.0000");
    gate.ended(0);
    pass(&mut gate, 2, &of(0, buy(160, dollars(100))));
}

#[test]
fn level_of_the_account_is_named_too() {
    let mut gate = levels(|limits| limits.account.buy_credit_max = dollars(10_000).0);
    assert!(refusal(&mut gate, &of(0, buy(150, dollars(100)))).starts_with("account: buy credit"));
}

#[test]
fn each_limit_of_a_level_that_is_left_out_is_zero_and_refuses() {
    for (change, text) in [
        (|it: &mut LevelLimits| it.qty_max = 0, "quantity: the limit is 0, the order's value 10"),
        (|it| it.notional_max = 0, "notional: the limit is 0.0000, the order's value 1000.0000"),
        (|it| it.buy_credit_max = 0, "buy credit: the limit is 0.0000, the order's value 1000.0000"),
    ] as [(fn(&mut LevelLimits), &str); 3]
    {
        let mut gate = levels(|limits| change(&mut limits.strategies[1]));
        assert_eq!(refusal(&mut gate, &of(1, buy(10, dollars(100)))), format!("strategy 1: {text}"));
        let mut gate = levels(|limits| limits.firm.iter_mut().for_each(change));
        assert_eq!(refusal(&mut gate, &of(1, buy(10, dollars(100)))), format!("firm: {text}"));
    }
    let mut gate = levels(|limits| limits.strategies[0].orders = Rate::ZERO);
    assert!(refusal(&mut gate, &buy(10, dollars(100))).starts_with("rate of the strategy"));
    let mut gate = levels(|limits| limits.firm.iter_mut().for_each(|firm| firm.orders = Rate::ZERO));
    assert!(refusal(&mut gate, &buy(10, dollars(100))).starts_with("rate of the firm"));
}

#[test]
fn strategy_without_limits_is_refused_and_one_alone_needs_none() {
    let mut gate = levels(|_| ());
    assert_eq!(refused(&mut gate, &of(2, buy(10, dollars(100)))), (Limit::UnknownStrategy, 2, 2));
    let mut gate = levels(|limits| (limits.strategies, limits.firm) = (Box::default(), None));
    pass(&mut gate, 0, &buy(10, dollars(100)));
    assert_eq!(refused(&mut gate, &of(1, buy(10, dollars(100)))), (Limit::UnknownStrategy, 0, 1));
}

#[test]
fn rate_of_one_strategy_is_not_the_others() {
    let mut gate = levels(|limits| limits.strategies.iter_mut().for_each(|it| it.orders = Rate::new(10, 2)));
    pass(&mut gate, 0, &of(0, buy(10, dollars(100))));
    pass(&mut gate, 1, &of(0, buy(11, dollars(100))));
    assert_eq!(refused(&mut gate, &of(0, buy(12, dollars(100)))), (Limit::StrategyRate, 2, 3));
    pass(&mut gate, 2, &of(1, buy(12, dollars(100))));
}

#[test]
fn replace_is_measured_by_its_orders_strategy() {
    let mut gate = levels(|_| ());
    pass(&mut gate, 0, &of(1, buy(280, dollars(100))));
    let reject = gate.check_replace(0, &replace(2, 310, 0, dollars(100)), &market(), SECOND).unwrap_err();
    assert_eq!((reject.limit, reject.level), (Limit::BuyCredit, Some(Level::Strategy(StrategyIdx(1)))));
    assert_eq!(gate.check_replace(0, &replace(2, 300, 0, dollars(100)), &market(), SECOND), Ok(()));
    gate.replaced(0, 2);
    let text = refusal(&mut gate, &of(1, buy(1, dollars(100))));
    assert!(text.starts_with("strategy 1: buy credit"), "{text}");
}

#[test]
fn other_number_of_strategies_is_a_stale_block() {
    let mut gate = levels(|_| ());
    let (why, mut other) = gate.swap_limits(Box::new(Limits { version: 9, ..*wide() })).unwrap_err();
    assert_eq!(why, StaleLimits::Shape);
    other.strategies = gate.limits().strategies.clone();
    assert!(gate.swap_limits(other).is_ok(), "a firm's limits may be lifted");
}
