//! A random day of orders that their owners name, of each type, with auctions and a halt: nothing
//! is lost, and all streams tell one story. What is between the protocols' words and the engine is
//! the same for FIX, BOE and iLink 3, so that a day by FIX is one of all of them.

use std::collections::BTreeSet;

use market::Codec;
use market::event::Event as Public;
use market::itch50::Itch50;

use super::*;
use crate::random::Random;

/// Prices of the day, around the listing's.
fn price(random: &mut Random) -> Price {
    cents(9_90 + random.below(21) as i64)
}

/// An order of some type.
fn order<'a>(random: &mut Random, cl_ord_id: &'a [u8]) -> NewOrderSingle<'a> {
    let side = if random.chance(0.5) { FixSide::Buy } else { FixSide::Sell };
    let (limit, qty) = (price(random), 1 + random.below(500) as i64);
    let plain = fix_order(cl_ord_id, side, qty, limit);
    let some = |count: u64| Some(Decimal::whole(count as i64));
    let in_force = |time_in_force| NewOrderSingle { time_in_force: Some(time_in_force), ..plain };
    let stop_px = Some(Decimal::from_price(price(random)));
    let pegged = |code| NewOrderSingle { ord_type: OrdType::Pegged, exec_inst: Some(code), ..plain };
    match random.below(20) {
        0 => in_force(TimeInForce::ImmediateOrCancel),
        1 => in_force(TimeInForce::FillOrKill),
        2 => in_force(TimeInForce::AtTheOpening),
        3 => in_force(TimeInForce::AtTheClose),
        4 => NewOrderSingle {
            expire_time: Some(Utc(1_000 + random.below(1_000))),
            ..in_force(TimeInForce::GoodTillDate)
        },
        5 => NewOrderSingle { ord_type: OrdType::Market, price: None, ..plain },
        6 => NewOrderSingle { ord_type: OrdType::Stop, stop_px, price: None, ..plain },
        7 => NewOrderSingle { ord_type: OrdType::StopLimit, stop_px, ..plain },
        8 => pegged(b"R"),
        9 => pegged(b"M"),
        10 => NewOrderSingle { price: None, ..pegged(b"P") },
        11 => NewOrderSingle { max_floor: some(0), ..plain },
        12 => NewOrderSingle { max_floor: some(1 + random.below(100)), ..plain },
        13 => NewOrderSingle { min_qty: some(1 + random.below(qty as u64)), ..plain },
        14 => NewOrderSingle { exec_inst: Some(b"6"), ..plain },
        _ => plain,
    }
}

/// The day of a seed, and the feed.
fn day(seed: u64) -> (Venue, Vec<(u64, Vec<u8>)>) {
    let (mut venue, mut random) = (before(), Random::new(seed, 0));
    venue.begin(0);
    for number in 1..800_u64 {
        match number {
            80 => venue.open(number),
            400 => venue.operate(Command::Halt(Which::All), number).unwrap(),
            410 => venue.operate(Command::Quote(Which::All), number).unwrap(),
            480 => venue.operate(Command::Cross(Which::All), number).unwrap(),
            _ => {}
        }
        let (account, name) = (random.below(2) as usize, number.to_string());
        let old = number.saturating_sub(1 + random.below(12)).to_string();
        let order = order(&mut random, name.as_bytes());
        match random.below(10) {
            0 => {
                let target = Target::ClOrdId(old.as_bytes());
                let change =
                    ChangeRequest { cl_ord_id: Some(name.as_bytes()), target, cancels_on_refusal: false, echo: &[] };
                venue.cancel_named(account, Protocol::Fix, &change, number);
            }
            1 => {
                let side = venue.accounts()[account].named_order(Protocol::Fix, Target::ClOrdId(old.as_bytes()));
                let side = side.map_or(Side::Buy, |order| order.side);
                let side = if side == Side::Buy { FixSide::Buy } else { FixSide::Sell };
                let qty = 1 + random.below(500) as i64;
                let replace = fix_replace(old.as_bytes(), name.as_bytes(), qty, price(&mut random));
                venue.fix_replace(account, &ReplaceRequest { side, ..replace }, at(number));
            }
            _ => _ = venue.fix_new(account, &order, at(number)),
        }
        venue.tick(number);
    }
    venue.close(2_000);
    let public = venue.take_public();
    (venue, public)
}

#[test]
fn accepted_order_ends_exactly_once() {
    for seed in 0..8 {
        let (venue, _) = day(seed);
        for account in venue.accounts() {
            let (mut accepted, mut ends) = (BTreeSet::new(), BTreeMap::<_, u32>::new());
            for answer in account.answers(Protocol::Fix) {
                let Some(order) = &answer.order else { continue };
                let is_new = matches!(answer.kind, AnswerKind::Accepted | AnswerKind::Replaced);
                assert!(!is_new || accepted.insert(order.cl_ord_id.clone()), "it is accepted once");
                if answer.kind == AnswerKind::Replaced {
                    *ends.entry(answer.orig_cl_ord_id.clone().unwrap()).or_default() += 1;
                }
                let may_end =
                    is_new || matches!(answer.kind, AnswerKind::Executed { .. } | AnswerKind::Canceled { .. });
                if may_end && order.leaves == 0 {
                    *ends.entry(order.cl_ord_id.clone()).or_default() += 1;
                }
            }
            assert!(accepted.len() > 100 && ends.values().all(|&count| count == 1), "seed {seed}");
            assert!(accepted.iter().eq(ends.keys()), "seed {seed}");
        }
        assert_eq!(venue.engine().orders_count(), 0);
    }
}

#[test]
fn fills_of_both_accounts_are_the_volume_of_the_feed_and_money_is_conserved() {
    for seed in 0..8 {
        let (venue, public) = day(seed);
        let mut printed = BTreeMap::<u64, u64>::new();
        for (_, message) in &public {
            match Itch50.decode(message).unwrap() {
                Public::Execute(it) if it.printable => *printed.entry(it.trade).or_default() += u64::from(it.qty),
                Public::Trade(it) if it.qty > 0 => *printed.entry(it.trade).or_default() += it.qty,
                _ => {}
            }
        }
        // By match number shares bought and sold; of all money paid and got.
        let (mut filled, mut paid) = (BTreeMap::<u64, [u64; 2]>::new(), [0_i64; 2]);
        for answer in venue.accounts().iter().flat_map(|account| account.answers(Protocol::Fix)) {
            if let (AnswerKind::Executed { qty, price, match_number, .. }, Some(order)) = (answer.kind, &answer.order) {
                filled.entry(match_number).or_default()[order.side as usize] += u64::from(qty);
                paid[order.side as usize] += i64::from(qty) * price.0;
            }
        }
        assert!(filled.len() > 50, "{} trades", filled.len());
        assert_eq!(paid[0], paid[1], "seed {seed}");
        assert!(printed.iter().map(|(number, &shares)| (*number, [shares; 2])).eq(filled), "seed {seed}");
    }
}

#[test]
fn same_seed_gives_the_same_answers_and_feed() {
    let [(first, feed), (second, again)] = [(); 2].map(|()| day(3));
    assert_eq!(feed, again);
    let told = |venue: &Venue| -> Vec<String> {
        let answers = venue.accounts().iter().flat_map(|account| account.answers(Protocol::Fix));
        answers.map(|answer| format!("{answer:?}")).collect()
    };
    assert_eq!(told(&first), told(&second));
}
