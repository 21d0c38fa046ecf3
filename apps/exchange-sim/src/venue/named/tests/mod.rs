//! What FIX and BOE do to orders that their owners name.

use market::{Price, Symbol};
use matching_engine::{CrossKind, Display, Life, Peg, PegTo, PostOnly, Pricing, Terms};
use order_entry::boe::v2::{self, Field};
use order_entry::boe::{OrderType, Side as BoeSide, V2, V3, v3};
use order_entry::fix::codec::{Decimal, Writer};
use order_entry::fix::orders::{
    MassCancel, NewOrderSingle, OrdType, ReplaceRequest, Side as FixSide, TimeInForce, Utc,
};
use order_entry::fix::session::Version;
use zerocopy::{FromZeros, IntoBytes};

use super::super::boe::{BoeWords, Received, Times};
use super::super::*;
use super::*;

const STOCK: Symbol = Symbol(*b"ZTEST   ");

fn cents(cents: i64) -> Price {
    Price::from_cents(cents)
}

mod stories;

/// A venue that trades.
fn venue() -> Venue {
    let mut venue = before();
    venue.open(0);
    venue
}

/// A venue before its day.
fn before() -> Venue {
    let accounts = ["ALICE", "BOB"].map(|user| AccountSettings::new(user, "SECRET").unwrap());
    let listing = vec![(STOCK, cents(10_00))];
    Venue::new(VenueSettings::new(listing, accounts.to_vec()))
}

const fn at(now_ns: u64) -> Times {
    Times { now_ns, epoch_ns: 0 }
}

fn fix_order(cl_ord_id: &[u8], side: FixSide, qty: i64, price: Price) -> NewOrderSingle<'_> {
    NewOrderSingle {
        account: None,
        cl_ord_id,
        exec_inst: None,
        handl_inst: None,
        order_qty: Some(Decimal::whole(qty)),
        ord_type: OrdType::Limit,
        price: Some(Decimal::from_price(price)),
        side,
        symbol: b"ZTEST",
        time_in_force: None,
        transact_time: Utc(0),
        stop_px: None,
        min_qty: None,
        max_floor: None,
        expire_time: None,
        peg_offset: None,
    }
}

fn fix_replace<'a>(old: &'a [u8], cl_ord_id: &'a [u8], qty: i64, price: Price) -> ReplaceRequest<'a> {
    ReplaceRequest {
        account: None,
        cl_ord_id,
        exec_inst: None,
        handl_inst: None,
        order_id: None,
        order_qty: Some(Decimal::whole(qty)),
        ord_type: OrdType::Limit,
        orig_cl_ord_id: old,
        price: Some(Decimal::from_price(price)),
        side: FixSide::Buy,
        symbol: b"ZTEST",
        time_in_force: None,
        transact_time: Utc(0),
        stop_px: None,
        min_qty: None,
        max_floor: None,
        expire_time: None,
        peg_offset: None,
    }
}

/// Fields of the account's last message by FIX.
fn last_fix(venue: &Venue, account: usize, tags: &[u32]) -> Vec<String> {
    let answer = venue.accounts()[account].answers(Protocol::Fix).last().unwrap();
    let mut bytes = [0; 1_000];
    fix::write(answer, Version::Fix44, 0, &mut Writer::new(&mut bytes));
    let body = bytes.iter().filter(|byte| **byte != 0).map(|byte| char::from(*byte));
    let text: String = std::iter::once('\x01').chain(body).collect();
    tags.iter()
        .map(|tag| {
            let start = format!("\x01{tag}=");
            let value = text.split_once(&start).map(|(_, rest)| rest.split('\x01').next().unwrap().to_owned());
            value.unwrap_or_default()
        })
        .collect()
}

fn sell(venue: &mut Venue, cl_ord_id: &[u8], qty: i64, price: Price) {
    venue.fix_new(1, &fix_order(cl_ord_id, FixSide::Sell, qty, price), at(1));
}

/// CumQty, LeavesQty, AvgPx.
const SUMS: [u32; 3] = [14, 151, 6];

#[test]
fn average_price_has_the_decimals_of_fix() {
    let mut venue = venue();
    venue.fix_new(0, &fix_order(b"A", FixSide::Buy, 300, cents(10_01)), at(1));
    sell(&mut venue, b"S1", 100, Price(100_000));
    assert_eq!(last_fix(&venue, 0, &SUMS), ["100", "200", "10.01"]);
    let mut venue = self::venue();
    sell(&mut venue, b"S1", 100, Price(100_000));
    sell(&mut venue, b"S2", 200, Price(100_100));
    venue.fix_new(0, &fix_order(b"A", FixSide::Buy, 300, cents(10_01)), at(1));
    assert_eq!(last_fix(&venue, 0, &SUMS), ["300", "0", "10.00666667"]);
}

#[test]
fn replace_behind_fills_leaves_what_is_executed() {
    let mut venue = venue();
    venue.fix_new(0, &fix_order(b"A", FixSide::Buy, 300, cents(10_00)), at(1));
    sell(&mut venue, b"S", 200, cents(10_00));
    venue.fix_replace(0, &fix_replace(b"A", b"B", 100, cents(10_00)), at(2));
    assert_eq!(last_fix(&venue, 0, &[150, 14, 151, 6]), ["5", "200", "0", "10"]);
}

#[test]
fn bust_is_not_undone_by_the_next_fill_and_finds_the_replaced_order() {
    let mut venue = venue();
    venue.fix_new(0, &fix_order(b"A", FixSide::Buy, 300, cents(10_00)), at(1));
    sell(&mut venue, b"S1", 100, cents(10_00));
    let AnswerKind::Executed { match_number, .. } = venue.accounts()[0].answers(Protocol::Fix).last().unwrap().kind
    else {
        panic!("no fill")
    };
    venue.fix_replace(0, &fix_replace(b"A", b"B", 250, cents(10_00)), at(2));
    venue.operate(Command::Break(match_number), 3).unwrap();
    assert_eq!(last_fix(&venue, 0, &[150, 11, 39, 14, 151]), ["H", "B", "0", "0", "150"]);
    sell(&mut venue, b"S2", 100, cents(10_00));
    assert_eq!(last_fix(&venue, 0, &SUMS), ["100", "50", "10"]);
}

#[test]
fn replace_may_keep_its_order_from_taking() {
    let mut venue = venue();
    sell(&mut venue, b"S", 100, cents(10_02));
    let post_only = Some(&b"6"[..]);
    venue.fix_new(
        0,
        &NewOrderSingle { exec_inst: post_only, ..fix_order(b"A", FixSide::Buy, 100, cents(9_90)) },
        at(1),
    );
    venue.fix_replace(0, &ReplaceRequest { exec_inst: post_only, ..fix_replace(b"A", b"B", 100, cents(10_05)) }, at(2));
    assert_eq!(last_fix(&venue, 0, &[150, 11, 14]), ["5", "B", "0"]);
}

#[test]
fn replace_of_another_side_or_symbol_is_refused() {
    let mut venue = venue();
    venue.fix_new(0, &fix_order(b"A", FixSide::Buy, 100, cents(10_00)), at(1));
    let other_side = ReplaceRequest { side: FixSide::Sell, ..fix_replace(b"A", b"B", 200, cents(10_00)) };
    venue.fix_replace(0, &other_side, at(2));
    assert_eq!(last_fix(&venue, 0, &[11, 434, 102]), ["B", "2", "2"]);
    let other_symbol = ReplaceRequest { symbol: b"OTHER", ..fix_replace(b"A", b"C", 200, cents(10_00)) };
    venue.fix_replace(0, &other_symbol, at(3));
    assert_eq!(last_fix(&venue, 0, &[11, 434, 102]), ["C", "2", "2"]);
}

#[test]
fn mass_cancel_of_one_side_leaves_the_other() {
    let mut venue = venue();
    venue.fix_new(0, &fix_order(b"A", FixSide::Buy, 100, cents(9_90)), at(1));
    venue.fix_new(0, &fix_order(b"B", FixSide::Sell, 100, cents(10_10)), at(1));
    let request =
        MassCancel { cl_ord_id: b"Q", side: Some(FixSide::Buy), symbol: None, transact_time: Utc(0), request_type: 7 };
    venue.fix_mass_cancel(0, &request, 2);
    assert_eq!(last_fix(&venue, 0, &[531, 533]), ["7", "1"]);
    let status = |id: &[u8]| venue.accounts()[0].named_order(Protocol::Fix, Target::ClOrdId(id)).unwrap().status;
    assert_eq!((status(b"A"), status(b"B")), (OrderStatus::Canceled, OrderStatus::New));
}

#[test]
fn each_order_type_of_fix_is_the_engines() {
    let price = |cents: i64| Some(Decimal::from_price(self::cents(cents)));
    let buy = || NewOrderSingle { price: price(9_90), ..fix_order(b"A", FixSide::Buy, 100, cents(9_90)) };
    let shares = |count: i64| Some(Decimal::whole(count));
    let limit = Terms::limit(100, cents(9_90));
    let hidden = Terms { display: Display::Hidden, ..limit };
    let offset = Some(Decimal::from_price(Price(-200)));
    let peg = |to, offset, limit| Terms { pricing: Pricing::Peg(Peg { to, offset, limit }), ..hidden };
    let pegged = || NewOrderSingle { ord_type: OrdType::Pegged, price: None, ..buy() };
    let stop = Pricing::Stop { trigger: cents(11_00), limit: None };
    let stop_limit = Pricing::Stop { trigger: cents(11_00), limit: Some(cents(9_90)) };
    let cases = [
        (buy(), limit),
        (NewOrderSingle { max_floor: shares(10), ..buy() }, Terms { display: Display::Reserve(10), ..limit }),
        (NewOrderSingle { max_floor: shares(0), ..buy() }, hidden),
        (NewOrderSingle { min_qty: shares(50), ..buy() }, Terms { min_qty: 50, ..hidden }),
        (NewOrderSingle { exec_inst: Some(b"6"), ..buy() }, Terms { post_only: PostOnly::Slide, ..limit }),
        (NewOrderSingle { exec_inst: Some(b"R"), peg_offset: offset, ..pegged() }, peg(PegTo::Primary, -200, None)),
        (
            NewOrderSingle { exec_inst: Some(b"P"), price: price(9_95), ..pegged() },
            peg(PegTo::Market, 0, Some(cents(9_95))),
        ),
        (NewOrderSingle { exec_inst: Some(b"M"), ..pegged() }, peg(PegTo::Midpoint, 0, None)),
        (NewOrderSingle { ord_type: OrdType::Stop, stop_px: price(11_00), ..buy() }, Terms { pricing: stop, ..limit }),
        (
            NewOrderSingle { ord_type: OrdType::StopLimit, stop_px: price(11_00), ..buy() },
            Terms { pricing: stop_limit, ..limit },
        ),
        (
            NewOrderSingle { time_in_force: Some(TimeInForce::AtTheClose), ..buy() },
            Terms { life: Life::Cross(CrossKind::Closing), ..limit },
        ),
        (
            NewOrderSingle { time_in_force: Some(TimeInForce::GoodTillDate), expire_time: Some(Utc(900)), ..buy() },
            Terms { life: Life::Until(900), ..limit },
        ),
    ];
    for (order, expected) in cases {
        let mut venue = venue();
        venue.fix_new(0, &order, at(1));
        assert_eq!(terms(&venue, Protocol::Fix, "A"), Some(expected), "{order:?}");
        // A replacement takes the same words.
        let replace = ReplaceRequest {
            exec_inst: order.exec_inst,
            ord_type: order.ord_type,
            price: order.price,
            time_in_force: order.time_in_force,
            stop_px: order.stop_px,
            min_qty: order.min_qty,
            max_floor: order.max_floor,
            expire_time: order.expire_time,
            peg_offset: order.peg_offset,
            ..fix_replace(b"A", b"B", 200, cents(9_90))
        };
        venue.fix_replace(0, &replace, at(2));
        assert_eq!(terms(&venue, Protocol::Fix, "B"), Some(Terms { qty: 200, ..expected }), "{order:?}");
    }
}

#[test]
fn orders_of_fix_that_end_at_once_trade_what_they_may() {
    let immediate = [
        (OrdType::Market, TimeInForce::Day, "60"),
        (OrdType::Limit, TimeInForce::ImmediateOrCancel, "60"),
        (OrdType::Limit, TimeInForce::FillOrKill, "0"),
    ];
    for (ord_type, time_in_force, executed) in immediate {
        let mut venue = venue();
        sell(&mut venue, b"S", 60, cents(10_00));
        let order = fix_order(b"A", FixSide::Buy, 100, cents(10_00));
        venue.fix_new(0, &NewOrderSingle { ord_type, time_in_force: Some(time_in_force), ..order }, at(2));
        assert_eq!(last_fix(&venue, 0, &[150, 39, 14, 151]), ["4", "4", executed, "0"], "{ord_type:?}");
    }
}

#[test]
fn orders_of_fix_that_make_no_sense_are_refused_by_name() {
    let buy = || fix_order(b"A", FixSide::Buy, 100, cents(9_90));
    let pegged = || NewOrderSingle { ord_type: OrdType::Pegged, ..buy() };
    let cases = [
        (pegged(), "a pegged order needs ExecInst (18) M, P or R"),
        (NewOrderSingle { exec_inst: Some(b"R"), ..buy() }, "ExecInst (18) M, P and R are of pegged orders (40=P)"),
        (NewOrderSingle { exec_inst: Some(b"G"), ..buy() }, "ExecInst (18) must be 6, M, P or R"),
        (NewOrderSingle { ord_type: OrdType::Stop, ..buy() }, "a stop needs StopPx (99)"),
        (NewOrderSingle { price: None, ..buy() }, "a limit order needs Price (44)"),
        (NewOrderSingle { max_floor: Some(Decimal(1)), ..buy() }, "MaxFloor (111) must be whole shares"),
        (
            NewOrderSingle { time_in_force: Some(TimeInForce::GoodTillCancel), ..buy() },
            "TimeInForce (59) must be 0, 2, 3, 4, 6 or 7",
        ),
        (
            NewOrderSingle { time_in_force: Some(TimeInForce::GoodTillDate), ..buy() },
            "GoodTillDate (59=6) needs ExpireTime (126)",
        ),
        (NewOrderSingle { exec_inst: Some(b"M 6"), ..pegged() }, "terms"),
    ];
    for (order, why) in cases {
        let mut venue = venue();
        venue.fix_new(0, &order, at(1));
        assert_eq!(last_fix(&venue, 0, &[39, 103, 58]), ["8", "11", why], "{order:?}");
    }
}

#[test]
fn mass_cancel_counts_its_own_orders_alone() {
    let mut venue = venue();
    venue.fix_new(0, &fix_order(b"A", FixSide::Sell, 100, cents(10_05)), at(1));
    sell(&mut venue, b"S", 100, cents(10_20));
    let hidden = fix_order(b"H", FixSide::Sell, 100, cents(10_08));
    venue.fix_new(1, &NewOrderSingle { max_floor: Some(Decimal::whole(0)), ..hidden }, at(1));
    let (exec_inst, peg_offset) = (Some(&b"P"[..]), Some(Decimal::from_price(Price(-1_000))));
    let pegged = fix_order(b"P", FixSide::Buy, 100, cents(10_00));
    let pegged = NewOrderSingle { ord_type: OrdType::Pegged, exec_inst, peg_offset, price: None, ..pegged };
    venue.fix_new(1, &pegged, at(1));
    let all = MassCancel { cl_ord_id: b"Q", side: None, symbol: None, transact_time: Utc(0), request_type: 7 };
    // The offer is at 10.20 then, the peg at 10.10, and both it and the hidden order trade.
    venue.fix_mass_cancel(0, &all, 2);
    assert_eq!(last_fix(&venue, 1, &[39]), ["2"]);
    assert_eq!(last_fix(&venue, 0, &[531, 533]), ["7", "1"]);
}

fn id(text: &str) -> Text<20> {
    Text::zero_padded(text).unwrap()
}

fn take<W: BoeWords>(venue: &mut Venue, kind: u16, body: &[u8]) {
    let received = Received { kind, body, is_during_replay: false };
    W::take(venue, 0, received, Times { now_ns: 5, epoch_ns: 0 }).unwrap();
}

fn new_v2(venue: &mut Venue, name: &str, side: BoeSide, fields: &[Field]) {
    let order = v2::NewOrder { cl_ord_id: id(name), side, quantity: 100.into() };
    let fields = [&[Field::Symbol(Text::zero_padded("ZTEST").unwrap())][..], fields].concat();
    let mut body = [0; 200];
    let len = order.emit(&fields, &mut body).unwrap();
    take::<V2>(venue, v2::NewOrder::KIND.into(), &body[..len]);
}

fn modify_v2(venue: &mut Venue, old: &str, name: &str, fields: &[Field]) {
    let modify = v2::ModifyOrder { cl_ord_id: id(name), orig_cl_ord_id: id(old) };
    let mut body = [0; 200];
    let len = modify.emit(fields, &mut body).unwrap();
    take::<V2>(venue, v2::ModifyOrder::KIND.into(), &body[..len]);
}

fn last_kind(venue: &Venue, protocol: Protocol) -> AnswerKind {
    venue.accounts()[0].answers(protocol).last().unwrap().kind
}

fn terms(venue: &Venue, protocol: Protocol, name: &str) -> Option<Terms> {
    venue.terms_of_named(0, protocol, Target::ClOrdId(name.as_bytes()))
}

#[test]
fn boe_side_that_is_none_is_refused() {
    for side in [b'0', b'3', b'x'] {
        let mut venue = venue();
        new_v2(&mut venue, "A", BoeSide(side), &[Field::Price(100_000.into())]);
        assert!(matches!(last_kind(&venue, Protocol::Boe2), AnswerKind::Rejected(OrderRefusal::Terms(_))));
        take::<V3>(&mut venue, v3::NewOrder::KIND, new_v3("A", BoeSide(side)).as_bytes());
        assert!(matches!(last_kind(&venue, Protocol::Boe3), AnswerKind::Rejected(OrderRefusal::Terms(_))));
    }
}

#[test]
fn modify_by_boe_2_changes_what_it_names() {
    let price = |price: i64| Field::Price(price.into());
    let kinds: [(&[Field], Terms); 4] = [
        (
            &[Field::OrderType(OrderType::STOP_LIMIT), Field::StopPrice(120_000.into()), price(121_000)],
            Terms {
                pricing: Pricing::Stop { trigger: Price(120_000), limit: Some(Price(121_000)) },
                ..Terms::limit(200, Price(0))
            },
        ),
        (
            &[Field::MaxFloor(10.into()), price(90_000)],
            Terms { display: Display::Reserve(10), ..Terms::limit(200, Price(90_000)) },
        ),
        (
            &[Field::DisplayIndicator(b'I'), Field::MinQuantity(50.into()), price(90_000)],
            Terms { display: Display::Hidden, min_qty: 50, ..Terms::limit(200, Price(90_000)) },
        ),
        (
            &[Field::RoutingInst(Text(*b"P   ")), price(90_000)],
            Terms { post_only: PostOnly::Slide, ..Terms::limit(200, Price(90_000)) },
        ),
    ];
    for (fields, expected) in kinds {
        let mut venue = venue();
        new_v2(&mut venue, "A", BoeSide::BUY, fields);
        modify_v2(&mut venue, "A", "B", &[Field::OrderQuantity(200.into())]);
        assert_eq!(last_kind(&venue, Protocol::Boe2), AnswerKind::Replaced, "{fields:?}");
        assert_eq!(terms(&venue, Protocol::Boe2, "B"), Some(expected), "{fields:?}");
    }
}

#[test]
fn modify_that_is_refused_cancels_its_order_where_it_says_so() {
    for (cancels, status) in [(b'N', OrderStatus::New), (b'Y', OrderStatus::Canceled)] {
        let mut venue = venue();
        new_v2(&mut venue, "A", BoeSide::BUY, &[Field::Price(90_000.into())]);
        modify_v2(&mut venue, "A", "B", &[Field::OrderQuantity(0.into()), Field::CancelOrigOnReject(cancels)]);
        let order = venue.accounts()[0].named_order(Protocol::Boe2, Target::ClOrdId(b"A")).unwrap();
        assert_eq!(order.status, status);
    }
}

fn new_v3(name: &str, side: BoeSide) -> v3::NewOrder {
    let mut order = v3::NewOrder::new_zeroed();
    order.cl_ord_id = id(name);
    order.side = side;
    order.quantity = 100.into();
    order.price = 90_000.into();
    order.order_type = OrderType::LIMIT;
    order.time_in_force = order_entry::boe::TimeInForce::DAY;
    order.symbol = Text::zero_padded("ZTEST").unwrap();
    order
}

#[test]
fn modify_by_boe_3_keeps_what_it_cannot_name() {
    let mut venue = venue();
    let mut order = new_v3("A", BoeSide::BUY);
    order.time_in_force = order_entry::boe::TimeInForce::GOOD_TILL_DATE;
    order.expire_ns = 9_000.into();
    order.min_quantity = 50.into();
    take::<V3>(&mut venue, v3::NewOrder::KIND, order.as_bytes());
    let mut modify = v3::ModifyOrder::new_zeroed();
    (modify.cl_ord_id, modify.orig_cl_ord_id) = (id("B"), id("A"));
    (modify.quantity, modify.price, modify.order_type) = (200.into(), 91_000.into(), OrderType::LIMIT);
    take::<V3>(&mut venue, v3::ModifyOrder::KIND, modify.as_bytes());
    let (display, life, min_qty) = (Display::Hidden, Life::Until(9_000), 50);
    let expected = Terms { display, life, min_qty, ..Terms::limit(200, Price(91_000)) };
    assert_eq!(terms(&venue, Protocol::Boe3, "B"), Some(expected));
}

#[test]
fn boe_3_has_no_decrement() {
    let mut venue = venue();
    let mut order = new_v3("A", BoeSide::BUY);
    (order.prevent_match.modifier, order.prevent_match.level) = (b'D', b'F');
    take::<V3>(&mut venue, v3::NewOrder::KIND, order.as_bytes());
    assert!(matches!(last_kind(&venue, Protocol::Boe3), AnswerKind::Rejected(OrderRefusal::Terms(_))));
}

#[test]
fn purge_of_groups_or_with_a_lock_out_is_refused() {
    let inst = |text: &str| Field::MassCancelInst(Text::zero_padded(text).unwrap());
    let purges: [(&[Field], &[u16], bool); 4] =
        [(&[], &[], true), (&[], &[7], false), (&[inst("ASL")], &[], false), (&[inst("F")], &[], false)];
    for (fields, groups, is_done) in purges {
        let mut venue = venue();
        new_v2(&mut venue, "A", BoeSide::BUY, &[Field::Price(90_000.into())]);
        let mut body = [0; 200];
        let len = v2::PurgeOrders { reserved: 0 }.emit(fields, groups, &mut body).unwrap();
        take::<V2>(&mut venue, v2::PurgeOrders::KIND.into(), &body[..len]);
        assert_eq!(matches!(last_kind(&venue, Protocol::Boe2), AnswerKind::MassCanceled { count: 1 }), is_done);
        assert_eq!(terms(&venue, Protocol::Boe2, "A").is_none(), is_done);
    }
    let mut venue = venue();
    take::<V3>(&mut venue, v3::NewOrder::KIND, new_v3("A", BoeSide::BUY).as_bytes());
    let mut purge = v3::PurgeOrders::new_zeroed();
    purge.instruction.lockout = b'L';
    take::<V3>(&mut venue, v3::PurgeOrders::KIND, purge.as_bytes());
    assert!(matches!(last_kind(&venue, Protocol::Boe3), AnswerKind::Refused(Refused::MassCancel, _)));
    assert!(terms(&venue, Protocol::Boe3, "A").is_some());
}
