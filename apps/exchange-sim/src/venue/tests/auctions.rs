//! Auctions, halts and broken trades, as accounts, drop copies and the feed learn of them.

use matching_engine::OnHalt;

use super::*;

/// The feed since the last call, in short: the type of each message, and what counts.
fn feed(venue: &mut Venue) -> Vec<String> {
    venue.take_public().iter().filter_map(|(_, message)| published(message)).collect()
}

fn published(message: &[u8]) -> Option<String> {
    let number = |at: usize, len: usize| message[at..at + len].iter().fold(0_u64, |sum, &it| sum << 8 | u64::from(it));
    match message[0] {
        b'Q' => Some(format!("Q {} at {} {}", number(11, 8), number(27, 4), char::from(message[39]))),
        b'I' => Some(format!("I {} and {} {}", number(11, 8), number(19, 8), char::from(message[48]))),
        b'H' => Some(format!("H {}", char::from(message[19]))),
        b'B' => Some(format!("B {}", number(11, 8))),
        _ => None,
    }
}

fn operate(venue: &mut Venue, command: &str, now_ns: u64) -> Result<(), String> {
    venue.operate(command.parse().unwrap(), now_ns)
}

#[test]
fn orders_before_the_open_trade_in_the_opening_cross() {
    let mut venue = before(&[]);
    venue.begin(0);
    send!(venue, 0, enter(1, Side::SELL, 500, TEN - 200));
    send!(venue, 1, EnterOrder { cross_type: CrossType::OPENING, ..enter(1, Side::BUY, 300, TEN + 100) });
    venue.tick(999_999_999);
    venue.tick(1_000_000_000);
    assert_eq!(feed(&mut venue), ["H Q", "I 300 and 200 O"], "an imbalance each second");
    venue.open(2_000_000_000);
    // Most shares trade at each price of the two; the one that is nearest to the listing's is the
    // lowest.
    assert_eq!(feed(&mut venue), ["Q 300 at 100000 O", "H T"]);
    assert_eq!(story(&venue, 0), ["accepted 1 500", "executed 1 300 at 100000"]);
    assert_eq!(story(&venue, 1), ["accepted 1 300", "executed 1 300 at 100000"]);
    for account in [0, 1] {
        let copy = venue.accounts()[account].drop_copies().get(0).unwrap().unwrap();
        let Outbound::OrderExecuted(it) = Outbound::parse(&copy).unwrap().0 else {
            panic!("account {account} has no copy")
        };
        assert_eq!((it.liquidity.0, it.match_number.get()), (b'O', 1));
    }
}

#[test]
fn halt_keeps_or_cancels_orders_as_their_account_says_and_a_cross_ends_it() {
    let mut venue = venue(&[]);
    venue.accounts[1].set_on_halt(OnHalt::Cancel);
    send!(venue, 0, enter(1, Side::SELL, 100, TEN));
    send!(venue, 1, enter(1, Side::BUY, 100, TEN - 100));
    feed(&mut venue);
    operate(&mut venue, "halt ZTEST", 2_000).unwrap();
    send!(venue, 1, enter(2, Side::BUY, 100, TEN));
    operate(&mut venue, "quote ZTEST", 3_000).unwrap();
    send!(venue, 1, enter(3, Side::BUY, 40, TEN));
    operate(&mut venue, "imbalance all", 4_000).unwrap();
    operate(&mut venue, "cross ZTEST", 5_000).unwrap();
    assert_eq!(story(&venue, 0), ["accepted 1 100", "executed 1 40 at 100000"]);
    let halted = format!("rejected 2 {}", RejectReason::HALTED);
    let other = ["accepted 1 100", "canceled 1 100 H", &halted, "accepted 3 40", "executed 3 40 at 100000"];
    assert_eq!(story(&venue, 1), other);
    assert_eq!(feed(&mut venue), ["H H", "H Q", "I 40 and 60 H", "Q 40 at 100000 H", "H T"]);
}

#[test]
fn connection_that_is_gone_takes_the_orders_that_its_account_does_not_keep() {
    for (which, canceled) in [
        (CancelOnDisconnect::None, &[][..]),
        (CancelOnDisconnect::Continuous, &["canceled 1 100 S"]),
        (CancelOnDisconnect::All, &["canceled 1 100 S", "canceled 2 50 S"]),
    ] {
        let mut venue = venue(&[]);
        venue.accounts[0].set_cancel_on_disconnect(which);
        send!(venue, 0, enter(1, Side::SELL, 100, TEN));
        send!(venue, 0, EnterOrder { cross_type: CrossType::CLOSING, ..enter(2, Side::SELL, 50, TEN) });
        venue.disconnected(0, 2_000);
        assert_eq!(story(&venue, 0)[2..], *canceled, "{which:?}");
    }
}

#[test]
fn instrument_is_closed_by_command_after_its_cross() {
    let mut venue = venue(&[]);
    send!(venue, 0, EnterOrder { cross_type: CrossType::CLOSING, ..enter(1, Side::SELL, 100, MARKET_PRICE.into()) });
    send!(venue, 1, enter(1, Side::BUY, 100, TEN - 100));
    let accepted = venue.accounts()[0].messages().since(0).unwrap()[0].clone();
    let Outbound::OrderAccepted(accepted) = Outbound::parse(&accepted).unwrap().0 else { panic!("it is accepted") };
    assert_eq!(accepted.price.get(), u64::from(MARKET_PRICE), "a market order is told as it was entered");
    feed(&mut venue);
    operate(&mut venue, "cross all", 2_000).unwrap();
    operate(&mut venue, "close all", 3_000).unwrap();
    assert_eq!(feed(&mut venue), ["Q 100 at 99900 C"]);
    send!(venue, 0, enter(2, Side::SELL, 100, TEN));
    let closed = format!("rejected 2 {}", RejectReason::DESTINATION_CLOSED);
    assert_eq!(story(&venue, 0), ["accepted 1 100", "executed 1 100 at 99900", &closed]);
}

#[test]
fn instrument_that_is_quoted_behind_a_halt_closes_by_its_cross_and_one_that_is_halted_does_not() {
    for (is_quoted, told) in [(true, vec!["H H", "H Q", "Q 100 at 99900 C", "H T"]), (false, vec!["H H"])] {
        let mut venue = venue(&[]);
        let closing = CrossType::CLOSING;
        send!(venue, 0, EnterOrder { cross_type: closing, ..enter(1, Side::SELL, 100, MARKET_PRICE.into()) });
        send!(venue, 1, enter(1, Side::BUY, 100, TEN - 100));
        feed(&mut venue);
        operate(&mut venue, "halt ZTEST", 2_000).unwrap();
        if is_quoted {
            operate(&mut venue, "quote ZTEST", 3_000).unwrap();
        }
        venue.close(4_000);
        assert_eq!(feed(&mut venue), told);
        let end = if is_quoted { "executed 1 100 at 99900" } else { "canceled 1 100" };
        assert!(story(&venue, 0)[1].starts_with(end), "{:?}", story(&venue, 0));
    }
}

#[test]
fn instrument_that_never_opened_has_no_closing_cross() {
    let mut venue = before(&[]);
    venue.begin(0);
    send!(venue, 0, enter(1, Side::SELL, 100, TEN));
    send!(venue, 1, enter(1, Side::BUY, 100, TEN));
    feed(&mut venue);
    venue.close(1);
    assert_eq!(feed(&mut venue), [""; 0]);
}

#[test]
fn cross_is_broken_as_a_whole_and_told_once_on_the_feed() {
    let mut venue = before(&[]);
    venue.begin(0);
    send!(venue, 0, enter(1, Side::SELL, 100, TEN));
    send!(venue, 1, enter(1, Side::BUY, 60, TEN));
    send!(venue, 1, enter(2, Side::BUY, 40, TEN));
    venue.open(1);
    feed(&mut venue);
    operate(&mut venue, "break 1", 2).unwrap();
    assert_eq!(feed(&mut venue), ["B 1"]);
    assert_eq!(story(&venue, 0)[3..], ["broken 1", "broken 1"], "once for each execution");
    assert_eq!(story(&venue, 1)[4..], ["broken 1", "broken 2"]);
    for account in venue.accounts() {
        let trades = account.trades().to_string();
        assert_eq!((account.drop_copies().len(), &trades[..8]), (4, "0 fills,"));
    }
}

#[test]
fn commands_that_make_no_sense_are_refused_in_words_and_change_nothing() {
    let mut venue = venue(&[]);
    feed(&mut venue);
    let mut why = |command: &str| operate(&mut venue, command, 2_000).unwrap_err();
    assert_eq!(why("halt NOBODY"), "NOBODY is not listed");
    assert_eq!(why("break 7"), "no trade has the number 7, or it is too old");
    assert!(feed(&mut venue).is_empty());
    operate(&mut venue, "halt all", 2_000).unwrap();
    let mut why = |command: &str| operate(&mut venue, command, 2_000).unwrap_err();
    assert_eq!(why("cross ZTEST"), "ZTEST is halted: quote it first");
    assert_eq!(why("halt ZTEST"), "ZTEST is halted already");
    assert_eq!(why("halt all"), "no instrument is in a state for it");
    operate(&mut venue, "close all", 3_000).unwrap();
    assert_eq!(operate(&mut venue, "quote ZTEST", 4_000).unwrap_err(), "ZTEST is closed");
}

#[test]
fn commands_are_words() {
    for text in ["halt AAPL", "quote all", "imbalance AAPL", "cross all", "close AAPL", "break 17"] {
        assert_eq!(text.parse::<Command>().unwrap().to_string(), text);
    }
    for text in ["halt", "halt TOOLONGNAME", "halt \x1b[2J", "break x", "stop AAPL", ""] {
        let error = text.parse::<Command>().unwrap_err();
        assert!(!error.contains('\x1b'), "{error:?}");
    }
}
