//! The venue as a client sees it: OUCH in, OUCH and ITCH out.

use market::event::Event;
use market::itch50::Itch50;
use market::{Books, Codec, OrderBooks, Price, Symbol};
use order_entry::Text;
use order_entry::ouch::v50::{
    AccountQuery, CancelOrder, EnterOrder, Field, MassCancel, ModifyOrder, Outbound, ReplaceOrder,
};
use order_entry::ouch::{Capacity, CrossType, Display, MARKET_PRICE, PostOnly, RejectReason, Side, TimeInForce, YesNo};

use super::*;
use crate::random::Random;

const STOCK: Symbol = Symbol(*b"ZTEST   ");
const TEN: u64 = 100_000;

/// A venue whose day has begun, and whose instrument trades.
fn venue(faults: &[&str]) -> Venue {
    let mut venue = before(faults);
    venue.open(0);
    venue
}

/// A venue before its day.
fn before(faults: &[&str]) -> Venue {
    let accounts = ["ALICE", "BOB"].map(|user| AccountSettings::new(user, "SECRET").unwrap());
    let rules = faults.iter().map(|rule| rule.parse().unwrap()).collect();
    let faults = FaultPlan { seed: 1, rules };
    let listing = vec![(STOCK, Price::from_cents(10_00))];
    Venue::new(VenueSettings { faults, ..VenueSettings::new(listing, accounts.to_vec()) })
}

fn enter(number: u32, side: Side, quantity: u32, price: u64) -> EnterOrder {
    EnterOrder {
        user_ref: number.into(),
        side,
        quantity: quantity.into(),
        symbol: STOCK,
        price: price.into(),
        time_in_force: TimeInForce::DAY,
        display: Display::VISIBLE,
        capacity: Capacity::PRINCIPAL,
        intermarket_sweep: YesNo::NO,
        cross_type: CrossType::CONTINUOUS,
        cl_ord_id: Text::new("CLIENT").unwrap(),
    }
}

fn replace(old: u32, number: u32, quantity: u32, price: u64) -> ReplaceOrder {
    ReplaceOrder {
        orig_user_ref: old.into(),
        user_ref: number.into(),
        quantity: quantity.into(),
        price: price.into(),
        time_in_force: TimeInForce::DAY,
        display: Display::VISIBLE,
        intermarket_sweep: YesNo::NO,
        cl_ord_id: Text::BLANK,
    }
}

/// Sends a message with options; the effect.
macro_rules! send {
    ($venue:expr, $account:expr, $message:expr $(, $field:expr)*) => {{
        let mut bytes = [0; 128];
        let len = $message.emit(&[$($field),*], &mut bytes).unwrap();
        $venue.receive($account, &bytes[..len], 1_000).unwrap()
    }};
}

mod auctions;
mod flow;

/// An account's answers in short: the type, the number, and what counts.
fn story(venue: &Venue, account: usize) -> Vec<String> {
    venue.accounts()[account].messages().since(0).unwrap().iter().map(|message| short(message)).collect()
}

fn short(message: &[u8]) -> String {
    match Outbound::parse(message).unwrap().0 {
        Outbound::OrderAccepted(it) => format!("accepted {} {}", it.user_ref, it.quantity),
        Outbound::OrderReplaced(it) => format!("replaced {} by {} {}", it.orig_user_ref, it.user_ref, it.quantity),
        Outbound::OrderExecuted(it) => format!("executed {} {} at {}", it.user_ref, it.quantity, it.price),
        Outbound::OrderCanceled(it) => format!("canceled {} {} {}", it.user_ref, it.quantity, char::from(it.reason.0)),
        Outbound::OrderRejected(it) => format!("rejected {} {}", it.user_ref, it.reason()),
        Outbound::OrderModified(it) => format!("modified {} {}", it.user_ref, it.quantity),
        Outbound::AccountQueryResponse(it) => format!("next {}", it.next_user_ref),
        Outbound::BrokenTrade(it) => format!("broken {}", it.user_ref),
        Outbound::MassCancelResponse(_) => "mass canceled".into(),
        Outbound::OrderPriorityUpdate(it) => format!("priority {}", it.user_ref),
        Outbound::AiqCanceled(it) => format!("prevented {} {}", it.user_ref, it.decrement),
        other => format!("{other:?}"),
    }
}

#[test]
fn orders_of_two_accounts_trade_and_both_learn_the_same_match() {
    let mut venue = venue(&[]);
    send!(venue, 0, enter(1, Side::SELL, 100, TEN));
    send!(venue, 1, enter(1, Side::BUY, 60, TEN));
    assert_eq!(story(&venue, 0), ["accepted 1 100", "executed 1 60 at 100000"]);
    assert_eq!(story(&venue, 1), ["accepted 1 60", "executed 1 60 at 100000"]);
    let numbers = [0, 1].map(|account| {
        match Outbound::parse(&venue.accounts()[account].messages().since(1).unwrap()[0]).unwrap().0 {
            Outbound::OrderExecuted(it) => it.match_number.get(),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(numbers[0], numbers[1]);
    let account = &venue.accounts()[0];
    assert_eq!(account.drop_copies().since(0).unwrap(), account.messages().since(1).unwrap());
}

#[test]
fn replace_beyond_the_rate_or_of_a_disabled_account_is_refused_and_leaves_the_order() {
    let mut venue = venue(&[]);
    venue.rate_max = Some(2);
    send!(venue, 0, enter(1, Side::SELL, 100, TEN));
    send!(venue, 0, replace(1, 2, 200, TEN));
    send!(venue, 0, replace(2, 3, 300, TEN));
    send!(venue, 0, CancelOrder { user_ref: 2.into(), quantity: 150.into() });
    let rate = RejectReason::RISK_PORT_RATE;
    let told = ["accepted 1 100".to_owned(), "replaced 1 by 2 200".into(), format!("rejected 3 {rate}")];
    assert_eq!(story(&venue, 0)[..3], told);
    assert_eq!(story(&venue, 0)[3..], ["canceled 2 50 U"]);
    venue.rate_max = None;
    venue.accounts[0].may_enter = false;
    send!(venue, 0, replace(2, 4, 100, TEN));
    assert_eq!(story(&venue, 0)[4], format!("rejected 4 {}", RejectReason::FIRM_NOT_AUTHORIZED));
}

#[test]
fn number_that_was_used_is_ignored_in_silence() {
    let mut venue = venue(&[]);
    send!(venue, 0, enter(5, Side::SELL, 100, TEN));
    send!(venue, 0, enter(5, Side::SELL, 100, TEN));
    send!(venue, 0, enter(3, Side::SELL, 100, TEN));
    send!(venue, 0, AccountQuery {});
    assert_eq!(story(&venue, 0), ["accepted 5 100", "next 6"]);
    assert_eq!(venue.counts().ignored, 2);
}

#[test]
fn quantity_of_a_cancel_is_the_intended_total() {
    let mut venue = venue(&[]);
    send!(venue, 0, enter(1, Side::SELL, 500, TEN));
    send!(venue, 1, enter(1, Side::BUY, 200, TEN));
    send!(venue, 0, CancelOrder { user_ref: 1.into(), quantity: 300.into() });
    send!(venue, 0, CancelOrder { user_ref: 1.into(), quantity: 100.into() });
    send!(venue, 0, CancelOrder { user_ref: 1.into(), quantity: 0.into() });
    let expected = ["accepted 1 500", "executed 1 200 at 100000", "canceled 1 200 U", "canceled 1 100 U"];
    assert_eq!(story(&venue, 0), expected);
}

#[test]
fn replace_has_its_outcomes() {
    let mut venue = venue(&[]);
    send!(venue, 0, enter(1, Side::SELL, 500, TEN));
    send!(venue, 0, replace(1, 2, 400, TEN + 100));
    // Dead, or the number used: silence.
    send!(venue, 0, replace(1, 3, 400, TEN));
    send!(venue, 0, replace(2, 2, 400, TEN));
    // Live but invalid: canceled, and the number stays free.
    send!(venue, 0, replace(2, 3, 400, TEN + 1));
    send!(venue, 0, AccountQuery {});
    assert_eq!(story(&venue, 0), ["accepted 1 500", "replaced 1 by 2 400", "canceled 2 400 U", "next 3"]);
}

#[test]
fn modify_keeps_priority_and_says_the_open_shares() {
    let mut venue = venue(&[]);
    send!(venue, 0, enter(1, Side::SELL, 500, TEN));
    send!(venue, 0, ModifyOrder { user_ref: 1.into(), side: Side::SELL_SHORT, quantity: 300.into() });
    send!(venue, 1, enter(1, Side::BUY, 100, TEN));
    // The intended total: of 250 shares 150 are left.
    send!(venue, 0, ModifyOrder { user_ref: 1.into(), side: Side::SELL_SHORT, quantity: 250.into() });
    let expected = ["accepted 1 500", "modified 1 300", "executed 1 100 at 100000", "modified 1 150"];
    assert_eq!(story(&venue, 0), expected);
}

#[test]
fn modify_of_the_side_alone_is_answered_and_that_of_a_dead_order_changes_nothing() {
    let mut venue = venue(&[]);
    send!(venue, 0, enter(1, Side::SELL, 500, TEN));
    send!(venue, 0, ModifyOrder { user_ref: 1.into(), side: Side::SELL_SHORT, quantity: 500.into() });
    // Its trade can be broken, so that it is known behind its end.
    send!(venue, 1, enter(1, Side::BUY, 100, TEN));
    send!(venue, 0, CancelOrder { user_ref: 1.into(), quantity: 0.into() });
    send!(venue, 0, ModifyOrder { user_ref: 1.into(), side: Side::SELL, quantity: 500.into() });
    let expected = ["accepted 1 500", "modified 1 500", "executed 1 100 at 100000", "canceled 1 400 U"];
    assert_eq!(story(&venue, 0), expected);
    let key = account::Key { idx: 0, number: 1 };
    assert_eq!((venue.accounts[0].orders[&key].side, venue.counts().ignored), (Side::SELL_SHORT, 1));
}

#[test]
fn groups_for_self_trade_prevention_are_an_accounts_own() {
    let mut venue = venue(&[]);
    send!(venue, 0, enter(1, Side::SELL, 100, TEN), Field::AiqGroup(5.into()));
    send!(venue, 1, enter(1, Side::BUY, 60, TEN), Field::AiqGroup(5.into()));
    send!(venue, 0, enter(2, Side::BUY, 40, TEN), Field::AiqGroup(5.into()));
    assert_eq!(story(&venue, 1), ["accepted 1 60", "executed 1 60 at 100000"]);
    let own = ["accepted 1 100", "executed 1 60 at 100000", "accepted 2 40", "prevented 2 40"];
    assert_eq!(story(&venue, 0), own);
}

#[test]
fn options_are_obeyed() {
    let mut venue = venue(&[]);
    send!(venue, 0, enter(1, Side::SELL, 500, TEN), Field::MaxFloor(100.into()));
    // A minimum that is not there: an immediate order is canceled.
    let immediate = EnterOrder { time_in_force: TimeInForce::IMMEDIATE_OR_CANCEL, ..enter(1, Side::BUY, 600, TEN) };
    send!(venue, 1, immediate, Field::MinQuantity(600.into()));
    send!(venue, 1, enter(2, Side::BUY, 100, TEN));
    assert_eq!(story(&venue, 1), ["accepted 1 600", "canceled 1 600 I", "accepted 2 100", "executed 2 100 at 100000"]);
    assert_eq!(story(&venue, 0), ["accepted 1 500", "executed 1 100 at 100000", "priority 1"]);
}

#[test]
fn orders_are_rejected_by_reason() {
    let mut venue = venue(&["throttle@5"]);
    send!(venue, 0, EnterOrder { symbol: Symbol(*b"NOBODY  "), ..enter(1, Side::BUY, 100, TEN) });
    send!(venue, 0, enter(2, Side::BUY, 100, TEN + 1));
    send!(venue, 0, enter(3, Side::BUY, 0, TEN));
    send!(venue, 0, EnterOrder { cross_type: CrossType::RETAIL, ..enter(4, Side::BUY, 100, TEN) });
    send!(venue, 0, enter(5, Side::BUY, 100, TEN));
    venue.operate(Command::Halt(Which::One(STOCK)), 2_000).unwrap();
    send!(venue, 0, enter(6, Side::BUY, 100, TEN));
    let reasons = [
        RejectReason::INVALID_SYMBOL,
        RejectReason::INVALID_PRICE,
        RejectReason::INVALID_QUANTITY,
        RejectReason::INVALID_CROSS_ORDER,
        RejectReason::RISK_PORT_RATE,
        RejectReason::HALTED,
    ];
    let expected: Vec<String> = (1..).zip(reasons).map(|(number, it)| format!("rejected {number} {it}")).collect();
    assert_eq!(story(&venue, 0), expected);
}

#[test]
fn disconnect_cancels_and_mass_cancel_answers_last() {
    let mut venue = venue(&[]);
    send!(venue, 0, enter(1, Side::SELL, 100, TEN));
    send!(venue, 0, MassCancel { user_ref: 2.into(), firm: Text::BLANK, symbol: Symbol::NONE });
    send!(venue, 0, enter(3, Side::SELL, 100, TEN));
    venue.disconnected(0, 2_000);
    let expected = ["accepted 1 100", "canceled 1 100 U", "mass canceled", "accepted 3 100", "canceled 3 100 S"];
    assert_eq!(story(&venue, 0), expected);
}

#[test]
fn broken_trade_reaches_both_sides_and_the_drop_copy() {
    let mut venue = venue(&[]);
    send!(venue, 0, enter(1, Side::SELL, 100, TEN));
    send!(venue, 1, enter(1, Side::BUY, 100, TEN));
    // The opening cross had number 1.
    assert_eq!([2, 2, 9].map(|number| venue.operate(Command::Break(number), 2_000).is_ok()), [true, false, false]);
    for account in [0, 1] {
        assert_eq!(story(&venue, account).last().unwrap(), "broken 1");
        assert_eq!(venue.accounts()[account].drop_copies().len(), 2);
    }
}

#[test]
fn scripted_faults_happen_where_the_script_says() {
    let mut venue = venue(&["lost-ack@2", "half-open@3", "crossing-fill@1"]);
    assert_eq!(send!(venue, 0, enter(1, Side::SELL, 500, TEN)), Effect::None);
    assert_eq!(send!(venue, 0, enter(2, Side::SELL, 500, TEN)), Effect::Break);
    // Its half-open occasions are those that did not break: one and three.
    assert_eq!(send!(venue, 0, CancelOrder { user_ref: 1.into(), quantity: 0.into() }), Effect::None);
    assert_eq!(send!(venue, 0, CancelOrder { user_ref: 2.into(), quantity: 0.into() }), Effect::GoSilent);
    // The answer to the lost one is recorded, for the next login to ask for.
    let expected =
        ["accepted 1 500", "accepted 2 500", "executed 1 100 at 100000", "canceled 1 400 U", "canceled 2 500 U"];
    assert_eq!(story(&venue, 0), expected);
}

#[test]
fn bytes_that_are_no_message_are_refused_and_change_nothing() {
    let mut venue = venue(&[]);
    assert!(venue.receive(0, b"", 1).is_err() && venue.receive(0, b"O123", 1).is_err());
    assert_eq!((venue.counts().malformed, venue.accounts()[0].messages().len()), (2, 0));
}

/// A random day of both accounts, with auctions and a halt: all messages of both, and the feed.
fn random_day(seed: u64) -> (Venue, Vec<(u64, Vec<u8>)>) {
    let mut venue = before(&["crossing-fill=10%", "throttle=2%", "lost-ack=1%"]);
    let mut random = Random::new(seed, 0);
    venue.begin(0);
    for number in 1..800 {
        match number {
            100 => venue.open(900),
            400 => venue.operate(Command::Halt(Which::All), 1_000).unwrap(),
            420 => venue.operate(Command::Quote(Which::All), 1_000).unwrap(),
            500 => venue.operate(Command::Cross(Which::All), 1_000).unwrap(),
            _ => {}
        }
        random_message(&mut venue, &mut random, number);
    }
    venue.close(5_000);
    let public = venue.take_public();
    (venue, public)
}

fn random_message(venue: &mut Venue, random: &mut Random, number: u32) {
    let account = random.below(2) as usize;
    let (side, price) = (if random.chance(0.5) { Side::BUY } else { Side::SELL }, TEN + 100 * random.below(9) - 400);
    let quantity = 1 + random.below(500) as u32;
    let old = number - random.below(20).min(u64::from(number) - 1) as u32;
    let order = enter(number, side, quantity, price);
    match random.below(16) {
        0..6 => send!(venue, account, order),
        6 | 7 => send!(venue, account, CancelOrder { user_ref: old.into(), quantity: (quantity / 2).into() }),
        8 => send!(venue, account, replace(old, number, quantity, price)),
        9 => send!(venue, account, order, Field::MaxFloor(50.into())),
        10 => send!(venue, account, EnterOrder { cross_type: CrossType::OPENING, ..order }),
        11 => send!(venue, account, EnterOrder { cross_type: CrossType::HALT, ..order }),
        12 => send!(
            venue,
            account,
            EnterOrder { cross_type: CrossType::CLOSING, price: u64::from(MARKET_PRICE).into(), ..order }
        ),
        13 => send!(venue, account, EnterOrder { display: Display::HIDDEN, ..order }),
        14 => send!(venue, account, EnterOrder { time_in_force: TimeInForce::IMMEDIATE_OR_CANCEL, ..order }),
        _ => send!(venue, account, order, Field::PostOnly(PostOnly::POST_ONLY)),
    };
}

#[test]
fn orders_that_ended_are_known_while_a_trade_of_theirs_can_be_broken_and_no_longer() {
    let trades = 4;
    let accounts = ["ALICE", "BOB"].map(|user| AccountSettings::new(user, "SECRET").unwrap());
    let settings = VenueSettings::new(vec![(STOCK, Price::from_cents(10_00))], accounts.to_vec());
    let mut venue = Venue::new(VenueSettings { trades, ..settings });
    venue.open(0);
    for number in (1..80).step_by(2) {
        send!(venue, 0, enter(number, Side::SELL, 100, TEN));
        send!(venue, 1, enter(number, Side::BUY, 100, TEN));
        // One that ends without a trade is known no longer than it lives.
        let none = enter(number + 1, Side::BUY, 100, TEN);
        send!(venue, 0, EnterOrder { time_in_force: TimeInForce::IMMEDIATE_OR_CANCEL, ..none });
    }
    let known = [0, 1].map(|account| venue.accounts()[account].orders.len());
    assert!(known.iter().all(|&known| (trades..4 * trades).contains(&known)), "{known:?}");
    for message in venue.accounts()[0].drop_copies().since(36).unwrap() {
        let Outbound::OrderExecuted(it) = Outbound::parse(&message).unwrap().0 else { panic!("a trade") };
        venue.operate(Command::Break(it.match_number.get()), 2_000).unwrap();
        let broken = format!("broken {}", it.user_ref);
        assert!([0, 1].iter().all(|&account| story(&venue, account).last() == Some(&broken)), "{broken}");
    }
}

#[test]
fn replaced_order_without_a_trade_is_known_no_longer() {
    let mut venue = venue(&[]);
    send!(venue, 0, enter(1, Side::BUY, 100, TEN));
    for number in 2..50 {
        send!(venue, 0, replace(number - 1, number, 100, TEN - 100 * u64::from(number % 2)));
    }
    assert_eq!(story(&venue, 0).last().map(String::as_str), Some("replaced 48 by 49 100"));
    assert_eq!(venue.accounts()[0].orders.len(), 1);
}

#[test]
fn same_seed_gives_the_same_bytes_to_all() {
    for seed in 0..5 {
        let [(first, feed), (second, again)] = [(); 2].map(|()| random_day(seed));
        assert_eq!(feed, again);
        for account in [0, 1] {
            let [first, second] = [&first, &second].map(|it| it.accounts()[account].messages().since(0).unwrap());
            assert_eq!(first, second);
        }
    }
}

#[test]
fn fills_of_accounts_and_house_are_the_volume_of_the_feed() {
    for seed in 0..10 {
        let (venue, public) = random_day(seed);
        let mut books = OrderBooks::new(market::Capacity { books: 2, orders: 4096, levels: 4096 });
        let mut printed = BTreeMap::<u64, u64>::new();
        let mut crosses = BTreeMap::new();
        for (_, message) in &public {
            let event = Itch50.decode(message).unwrap();
            match event {
                Event::Execute(it) if it.printable => *printed.entry(it.trade).or_default() += u64::from(it.qty),
                Event::Trade(it) if it.qty > 0 => *printed.entry(it.trade).or_default() += it.qty,
                _ => {}
            }
            if message[0] == b'Q' {
                crosses.insert(u64::from_be_bytes(message[31..39].try_into().unwrap()), char::from(message[39]));
            }
            books.apply(&event);
        }
        let mut filled = BTreeMap::<u64, Vec<u64>>::new();
        for account in venue.accounts() {
            for message in account.drop_copies().since(0).unwrap() {
                let Outbound::OrderExecuted(it) = Outbound::parse(&message).unwrap().0 else { continue };
                filled.entry(it.match_number.get()).or_default().push(it.quantity.get().into());
            }
        }
        assert_eq!(crosses.values().collect::<String>(), "OHC");
        assert!(filled.len() > 50 && crosses.keys().all(|number| filled.contains_key(number)), "seed {seed}");
        for (number, shares) in &filled {
            if crosses.contains_key(number) {
                // Both sides of a cross are accounts'.
                assert_eq!(shares.iter().sum::<u64>(), 2 * printed[number], "seed {seed}, cross {number}");
            } else {
                // The house's side of a crossing fill has no account, so there one report is
                // enough.
                assert!(shares.iter().all(|&it| printed[number] == it), "seed {seed}, match {number}");
            }
        }
        assert_eq!(filled.keys().collect::<Vec<_>>(), printed.keys().collect::<Vec<_>>());
        let counts = books.counts();
        assert_eq!((counts.unknown_orders, counts.beyond_size, books.orders_count()), (0, 0, 0));
        assert_eq!(venue.engine().orders_count(), 0);
    }
}
