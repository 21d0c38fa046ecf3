//! The scripts of `tests/scripts/ouch`: what a venue of OUCH 5.0 answers, a rule a file, in virtual
//! time. One instrument trades, from 10.00 on; account 0 and account 1 trade with each other.
//!
//! ```text
//! venue FAULT …                            a venue, its first line; a later one begins anew
//! at 2.5                                   the clock moves there, in seconds
//! in 0 enter 1 B 100 10.0000 KEY=VALUE …   an order of account 0: number, side, shares, limit
//! in 0 replace 1 2 200 10.0100 …           order 1 by order 2
//! in 0 cancel 1 50                         the intended shares
//! in 0 modify 1 T 300
//! in 0 mass 3, disable 4, enable 5, query
//! disconnect 0                             the account's connection is gone
//! halt, quote, cross, close                an operator's commands
//! out 0 accepted 1 B 100 10.0000           the next answer to account 0
//! effect Break                             what the message did to the connection
//! ```
//!
//! Keys are `tif`, `display`, `cross` (letters of the fields), `symbol`, `min`, `floor`, `peg` (a
//! letter of PriceType), `offset`, `post` (P or N), `expire` (seconds), `group`, `strategy` and
//! `idx` (UserRefIdx). Before each line that does something, and at the end, all answers must have
//! been expected.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::fmt::Write as _;
use std::path::Path;

use exchange_sim::{AccountSettings, Command, Effect, FaultPlan, Venue, VenueSettings, Which};
use market::{Price, Symbol};
use order_entry::Text;
use order_entry::ouch::v50::{
    AccountQuery, CancelOrder, DisableOrderEntry, EnableOrderEntry, EnterOrder, Field, MassCancel, ModifyOrder,
    Outbound, ReplaceOrder,
};
use order_entry::ouch::{
    AiqStrategy, Capacity, CrossType, Display, MARKET_PRICE, OrderState, PostOnly, PriceType, Side, TimeInForce, YesNo,
};

const STOCK: Symbol = Symbol(*b"ZTEST   ");

#[test]
fn ouch_scripts_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/ouch");
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no scripts in {}", folder.display());
    let mut failures = String::new();
    for path in paths {
        if let Err(failure) = play(&std::fs::read_to_string(&path).unwrap()) {
            writeln!(failures, "{}: {failure}", path.display()).unwrap();
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

fn play(text: &str) -> Result<(), String> {
    let mut player: Option<Player> = None;
    for (idx, line) in text.lines().enumerate() {
        let words: Vec<_> = line.split_whitespace().collect();
        let at_line = |failure| format!("line {}: {line}: {failure}", idx + 1);
        match (&mut player, &words[..]) {
            (_, [] | ["#", ..]) => (),
            (before, ["venue", faults @ ..]) => {
                before.as_ref().map_or(Ok(()), Player::expect_nothing).map_err(at_line)?;
                player = Some(Player::new(faults));
            }
            (None, _) => return Err("a script begins with venue".into()),
            (Some(player), words) => player.play(words).map_err(at_line)?,
        }
    }
    player.ok_or("an empty script")?.expect_nothing().map_err(|failure| format!("at the end: {failure}"))
}

struct Player {
    venue: Venue,
    now_ns: u64,
    /// Answers to each account that were expected.
    seen: [usize; 2],
    effect: Effect,
}

impl Player {
    fn new(faults: &[&str]) -> Self {
        let accounts = ["ALICE", "BOB"].map(|user| AccountSettings::new(user, "SECRET").unwrap());
        let faults = FaultPlan { seed: 1, rules: faults.iter().map(|rule| rule.parse().unwrap()).collect() };
        let listing = vec![(STOCK, Price::from_cents(10_00))];
        let mut venue = Venue::new(VenueSettings { faults, ..VenueSettings::new(listing, accounts.to_vec()) });
        venue.open(0);
        Self { venue, now_ns: 1_000, seen: [0; 2], effect: Effect::None }
    }

    fn play(&mut self, words: &[&str]) -> Result<(), String> {
        match *words {
            ["out", account, ref expected @ ..] => return self.expect_out(number(account), &expected.join(" ")),
            ["effect", expected] => {
                let found = format!("{:?}", std::mem::replace(&mut self.effect, Effect::None));
                return if found == expected { Ok(()) } else { Err(found) };
            }
            _ => self.expect_nothing()?,
        }
        match *words {
            ["at", seconds] => {
                self.now_ns = (seconds.parse::<f64>().unwrap() * 1e9) as u64;
                self.venue.tick(self.now_ns);
            }
            ["in", account, ref message @ ..] => {
                let bytes = request(message);
                self.effect = self.venue.receive(number(account), &bytes, self.now_ns).map_err(|it| it.to_string())?;
            }
            ["disconnect", account] => self.venue.disconnected(number(account), self.now_ns),
            ["halt"] => self.operate(Command::Halt(Which::One(STOCK))),
            ["quote"] => self.operate(Command::Quote(Which::One(STOCK))),
            ["cross"] => self.operate(Command::Cross(Which::One(STOCK))),
            ["close"] => self.operate(Command::Close(Which::One(STOCK))),
            _ => return Err("no such line".into()),
        }
        Ok(())
    }

    fn operate(&mut self, command: Command) {
        self.venue.operate(command, self.now_ns).unwrap();
    }

    fn expect_out(&mut self, account: usize, expected: &str) -> Result<(), String> {
        let message = self.venue.accounts()[account].messages().get(self.seen[account]).unwrap();
        let found = show(&message.ok_or("nothing was answered")?);
        self.seen[account] += 1;
        if found == expected { Ok(()) } else { Err(format!("answered was {found}")) }
    }

    fn expect_nothing(&self) -> Result<(), String> {
        for (account, &seen) in self.seen.iter().enumerate() {
            if let Some(message) = self.venue.accounts()[account].messages().get(seen).unwrap() {
                return Err(format!("before it account {account} was told {}", show(&message)));
            }
        }
        match self.effect {
            Effect::None => Ok(()),
            effect => Err(format!("before it the effect was {effect:?}")),
        }
    }
}

fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

fn letter(word: &str) -> u8 {
    word.as_bytes()[0]
}

/// Four decimals, or `market`.
fn price(word: &str) -> u64 {
    if word == "market" {
        return u64::from(MARKET_PRICE);
    }
    let (whole, decimals) = word.split_once('.').unwrap();
    assert_eq!(decimals.len(), 4, "{word}");
    number::<u64>(whole) * 10_000 + number::<u64>(decimals)
}

/// What the words after a message's own say.
struct Options<'a>(&'a [&'a str]);

impl<'a> Options<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().filter_map(|word| word.split_once('=')).find(|(own, _)| *own == key).map(|(_, value)| value)
    }

    fn letter(&self, key: &str, default: u8) -> u8 {
        self.get(key).map_or(default, letter)
    }

    fn fields(&self) -> Vec<Field<'_>> {
        let shares = |key| self.get(key).map(|word| number::<u32>(word).into());
        [
            shares("min").map(Field::MinQuantity),
            shares("floor").map(Field::MaxFloor),
            self.get("peg").map(|word| Field::PriceType(PriceType(letter(word)))),
            self.get("offset").map(|word| Field::PegOffset(number::<i32>(word).into())),
            self.get("post").map(|word| Field::PostOnly(PostOnly(letter(word)))),
            shares("expire").map(Field::ExpireSeconds),
            self.get("group").map(|word| Field::AiqGroup(number::<u16>(word).into())),
            self.get("strategy").map(|word| Field::AiqStrategy(AiqStrategy(letter(word)))),
            self.get("idx").map(|word| Field::UserRefIdx(number(word))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = [0; 128];
    let len = match *words {
        ["enter", user_ref, side, quantity, limit, ref options @ ..] => {
            let options = Options(options);
            let order = EnterOrder {
                user_ref: number::<u32>(user_ref).into(),
                side: Side(letter(side)),
                quantity: number::<u32>(quantity).into(),
                symbol: options.get("symbol").map_or(STOCK, |word| Symbol::new(word).unwrap()),
                price: price(limit).into(),
                time_in_force: TimeInForce(options.letter("tif", TimeInForce::DAY.0)),
                display: Display(options.letter("display", Display::VISIBLE.0)),
                capacity: Capacity::PRINCIPAL,
                intermarket_sweep: YesNo::NO,
                cross_type: CrossType(options.letter("cross", CrossType::CONTINUOUS.0)),
                cl_ord_id: Text::BLANK,
            };
            order.emit(&options.fields(), &mut bytes)
        }
        ["replace", old, new, quantity, limit, ref options @ ..] => {
            let options = Options(options);
            let replace = ReplaceOrder {
                orig_user_ref: number::<u32>(old).into(),
                user_ref: number::<u32>(new).into(),
                quantity: number::<u32>(quantity).into(),
                price: price(limit).into(),
                time_in_force: TimeInForce(options.letter("tif", TimeInForce::DAY.0)),
                display: Display(options.letter("display", Display::VISIBLE.0)),
                intermarket_sweep: YesNo::NO,
                cl_ord_id: Text::BLANK,
            };
            replace.emit(&options.fields(), &mut bytes)
        }
        ["cancel", user_ref, quantity, ref options @ ..] => {
            let cancel =
                CancelOrder { user_ref: number::<u32>(user_ref).into(), quantity: number::<u32>(quantity).into() };
            cancel.emit(&Options(options).fields(), &mut bytes)
        }
        ["modify", user_ref, side, quantity] => {
            let (user_ref, quantity) = (number::<u32>(user_ref).into(), number::<u32>(quantity).into());
            ModifyOrder { user_ref, side: Side(letter(side)), quantity }.emit(&[], &mut bytes)
        }
        ["mass", user_ref] => {
            let user_ref = number::<u32>(user_ref).into();
            MassCancel { user_ref, firm: Text::BLANK, symbol: Symbol::NONE }.emit(&[], &mut bytes)
        }
        ["disable", user_ref] => {
            let user_ref = number::<u32>(user_ref).into();
            DisableOrderEntry { user_ref, firm: Text::BLANK }.emit(&[], &mut bytes)
        }
        ["enable", user_ref] => {
            let user_ref = number::<u32>(user_ref).into();
            EnableOrderEntry { user_ref, firm: Text::BLANK }.emit(&[], &mut bytes)
        }
        ["query", ref options @ ..] => AccountQuery {}.emit(&Options(options).fields(), &mut bytes),
        _ => panic!("{words:?} is no message"),
    };
    bytes[..len.unwrap()].to_vec()
}

/// An answer as a script has it; an index other than 0 behind it.
fn show(message: &[u8]) -> String {
    let (said, options) = Outbound::parse(message).unwrap();
    let at = |price: u64| format!("{}.{:04}", price / 10_000, price % 10_000);
    let dead = |state| if state == OrderState::DEAD { " dead" } else { "" };
    let side = |side: Side| char::from(side.0);
    let text = match said {
        Outbound::OrderAccepted(it) => {
            let state = dead(it.state);
            format!("accepted {} {} {} {}{state}", it.user_ref, side(it.side), it.quantity, at(it.price.get()))
        }
        Outbound::OrderReplaced(it) => {
            let (old, new, state) = (it.orig_user_ref, it.user_ref, dead(it.state));
            format!("replaced {old} {new} {} {}{state}", it.quantity, at(it.price.get()))
        }
        Outbound::OrderExecuted(it) => format!("executed {} {} {}", it.user_ref, it.quantity, at(it.price.get())),
        Outbound::OrderCanceled(it) => format!("canceled {} {} {}", it.user_ref, it.quantity, char::from(it.reason.0)),
        Outbound::AiqCanceled(it) => {
            format!("prevented {} {} {} {}", it.user_ref, it.decrement, it.prevented, at(it.price.get()))
        }
        Outbound::OrderRejected(it) => format!("rejected {} {}", it.user_ref, it.reason()),
        Outbound::OrderModified(it) => format!("modified {} {} {}", it.user_ref, side(it.side), it.quantity),
        Outbound::OrderPriorityUpdate(it) => format!("priority {} {}", it.user_ref, at(it.price.get())),
        Outbound::MassCancelResponse(it) => format!("mass {}", it.user_ref),
        Outbound::DisableOrderEntryResponse(it) => format!("disabled {}", it.user_ref),
        Outbound::EnableOrderEntryResponse(it) => format!("enabled {}", it.user_ref),
        Outbound::AccountQueryResponse(it) => format!("next {}", it.next_user_ref),
        other => format!("{other:?}"),
    };
    match options.user_ref_idx() {
        0 => text,
        idx => format!("{text} idx={idx}"),
    }
}
