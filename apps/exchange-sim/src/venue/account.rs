//! An account: what it may, its orders by the numbers that its owner gave them, and the numbered
//! messages to it.

use std::collections::{BTreeMap, VecDeque};

use market::Symbol;
use matching_engine::{Event, OnHalt, OrderId, OrderState, Report};
use order_entry::Text;
use order_entry::orders::TradeTotals;
use order_entry::ouch::{AiqStrategy, Capacity, CrossType, Display, Side, TimeInForce, YesNo};
use order_entry::soupbin::Credentials;

use super::copies::{CopiesOf, TradeCopy};
use super::message_log::MessageLog;
use super::named::{Answer, NamedOrder, NamedOrders, Protocol, Target, drop_copy};
use super::ouch42::{self, Orders42};

/// Who may log in, and how it is treated.
#[derive(Clone, Copy, Debug)]
pub struct AccountSettings {
    /// User and password, for orders and for the drop copy.
    pub credentials: Credentials,
    /// Which of its orders are canceled when its connection is gone. By default all.
    pub cancel_on_disconnect: CancelOnDisconnect,
    /// What a halt does with its orders. By default they are kept, for the cross that ends it.
    pub on_halt: OnHalt,
}

impl AccountSettings {
    /// The defaults, for a user and its password; none where one of them is too long.
    pub fn new(user: &str, password: &str) -> Option<Self> {
        let (credentials, on_halt) = (Credentials::new(user, password)?, OnHalt::Keep);
        Some(Self { credentials, cancel_on_disconnect: CancelOnDisconnect::All, on_halt })
    }
}

/// Which orders a venue cancels when their connection is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CancelOnDisconnect {
    /// None.
    None,
    /// Those that may trade at any time; orders for an auction stay.
    Continuous,
    /// All.
    #[default]
    All,
}

/// What happened to messages that were not simply answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VenueCounts {
    /// Messages that entered or changed orders, or asked.
    pub messages: u64,
    /// Of those, questions of OUCH 5.0 for the next number of the account.
    pub queries: u64,
    /// Ignored, because their number had been used, or their order was not live.
    pub ignored: u64,
    /// No OUCH message: another length, another type.
    pub malformed: u64,
    /// Orders refused by the rate limit or its fault.
    pub throttled: u64,
    /// Injected lost acknowledgments.
    pub lost_acks: u64,
    /// Injected half-open connections.
    pub half_opens: u64,
    /// Injected fills that crossed with a cancel.
    pub crossing_fills: u64,
}

/// An order's number: UserRefIdx and UserRefNum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) idx: u8,
    pub(super) number: u32,
}

impl Key {
    /// As the engine carries it.
    pub(super) const fn token(self) -> u64 {
        (self.idx as u64) << 32 | self.number as u64
    }

    pub(super) const fn of(token: u64) -> Self {
        Self { idx: (token >> 32) as u8, number: token as u32 }
    }
}

/// What the answers to an order repeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) id: Option<OrderId>,
    pub(super) side: Side,
    pub(super) time_in_force: TimeInForce,
    pub(super) display: Display,
    pub(super) capacity: Capacity,
    pub(super) intermarket_sweep: YesNo,
    pub(super) cross_type: CrossType,
    pub(super) cl_ord_id: Text<14>,
    pub(super) aiq_strategy: AiqStrategy,
}

/// Orders that have ended, of which a trade may still be broken, in the order of their ends.
#[derive(Debug, Default)]
struct Ended {
    /// With the number of the account's last trade then.
    orders: VecDeque<(Key, u64)>,
    /// Of the account's last trade.
    match_number: u64,
    /// So many trades of the venue can be broken.
    trades: u64,
}

impl Ended {
    fn push(&mut self, key: Key) {
        self.orders.push_back((key, self.match_number));
    }

    /// The next order that no break can concern. A number may be one of no trade, that of a cross
    /// without shares, so twice as many have to have passed.
    fn pop_unbreakable(&mut self) -> Option<Key> {
        let &(key, match_number) = self.orders.front()?;
        if self.match_number.saturating_sub(match_number) <= 2 * self.trades {
            return None;
        }
        self.orders.pop_front();
        Some(key)
    }
}

/// An account and its day.
#[derive(Debug)]
pub struct Account {
    settings: AccountSettings,
    /// Those that are live, and those whose trades can still be broken.
    pub(super) orders: BTreeMap<Key, Entry>,
    ended: Ended,
    /// The highest number used, for each index.
    pub(super) last_number: BTreeMap<u8, u32>,
    pub(super) may_enter: bool,
    /// The order that a modify makes smaller: its answer is another message.
    pub(super) modifying: Option<Key>,
    /// Messages that entered or changed orders in the second that began then.
    pub(super) rate: (u64, u32),
    messages: MessageLog,
    drop_copies: MessageLog,
    trade_copies: [Vec<TradeCopy>; CopiesOf::ALL.len()],
    trades: TradeTotals,
    /// Orders by each of the protocols whose clients name them.
    pub(super) named: [NamedOrders; Protocol::ALL.len()],
    pub(super) ouch42: Orders42,
}

impl Account {
    /// `trades` of the venue, the newest, can be broken.
    pub(super) fn new(settings: AccountSettings, trades: usize) -> Self {
        Self {
            settings,
            orders: BTreeMap::new(),
            ended: Ended { trades: trades as u64, ..Ended::default() },
            last_number: BTreeMap::new(),
            may_enter: true,
            modifying: None,
            rate: (0, 0),
            messages: MessageLog::default(),
            drop_copies: MessageLog::default(),
            trade_copies: Default::default(),
            trades: TradeTotals::default(),
            named: Default::default(),
            ouch42: Orders42::default(),
        }
    }

    #[cfg(test)]
    pub(super) const fn set_cancel_on_disconnect(&mut self, which: CancelOnDisconnect) {
        self.settings.cancel_on_disconnect = which;
    }

    #[cfg(test)]
    pub(super) fn set_on_halt(&mut self, on_halt: OnHalt) {
        self.settings.on_halt = on_halt;
    }

    /// As configured.
    pub fn settings(&self) -> &AccountSettings {
        &self.settings
    }

    /// All numbered messages of the day so far: the first has number 1.
    pub fn messages(&self) -> &MessageLog {
        &self.messages
    }

    /// Copies of those of them that are trades and broken trades, numbered on their own.
    pub fn drop_copies(&self) -> &MessageLog {
        &self.drop_copies
    }

    /// All that is kept in files.
    pub(crate) fn logs(&self) -> [&MessageLog; 3] {
        [&self.messages, &self.drop_copies, self.ouch42.messages()]
    }

    /// Copies of its trades by one protocol, and of those of them that were broken.
    pub(crate) fn trade_copies(&self, of: CopiesOf) -> &[TradeCopy] {
        &self.trade_copies[of.idx()]
    }

    /// What it bought and sold.
    pub fn trades(&self) -> &TradeTotals {
        &self.trades
    }

    /// The number that an index takes next, as the account query tells.
    pub(super) fn next_number(&self, idx: u8) -> u32 {
        self.last_number.get(&idx).map_or(1, |last| last.saturating_add(1))
    }

    /// Uses up a number. False where it or a higher one was used.
    pub(super) fn use_number(&mut self, key: Key) -> bool {
        let is_new = key.number >= self.next_number(key.idx) && key.number > 0;
        if is_new {
            self.last_number.insert(key.idx, key.number);
        }
        is_new
    }

    /// Its numbered messages of OUCH 4.2.
    pub fn messages_42(&self) -> &MessageLog {
        self.ouch42.messages()
    }

    pub(super) fn push(&mut self, message: &[u8]) {
        match ouch42::own(message) {
            Some(own) => self.ouch42.push(&own),
            None => self.messages.push(message),
        }
    }

    /// All that it was told about orders that it entered by a protocol whose clients name them.
    pub fn answers(&self, protocol: Protocol) -> &[Answer] {
        self.named[protocol as usize].answers()
    }

    /// An order that it entered by such a protocol, as it is now.
    pub fn named_order(&self, protocol: Protocol, target: Target<'_>) -> Option<&NamedOrder> {
        self.named[protocol as usize].get(target)
    }

    pub(super) fn answer(&mut self, event: &Event, report: &Report, symbol: Symbol) {
        if let Some(protocol) = Protocol::of(report.token()) {
            if let Some(side) = self.named[protocol as usize].report(event.at_ns, report) {
                self.total(report, side);
                drop_copy(event.at_ns, protocol, report).iter().for_each(|copy| self.drop_copies.push(copy));
                let answer = self.named[protocol as usize].answers().last();
                let copy = answer.and_then(|answer| TradeCopy::of_answer(protocol, answer));
                self.trade_copies[CopiesOf::Named(protocol).idx()].extend(copy);
            }
            return;
        }
        let Some(message) = self.message_of(event.at_ns, report, symbol) else { return };
        let key = Key::of(report.token());
        let side = self.orders.get(&key).map(|entry| entry.side.is_sale());
        let side = side.map(|is_sale| if is_sale { market::Side::Sell } else { market::Side::Buy });
        if let Some(side) = side {
            self.total(report, side);
            let token = self.ouch42.token_of(key);
            let copies = &mut self.trade_copies[CopiesOf::Ouch42.idx()];
            let of = (symbol, side);
            let copy = token.and_then(|token| TradeCopy::of_token(event.at_ns, token, of, report, copies));
            copies.extend(copy);
        }
        if matches!(report, Report::Executed { .. } | Report::Broken { .. }) {
            self.drop_copies.push(&message);
        }
        self.push(&message);
        self.forget_ended(report);
    }

    /// Forgets orders that have ended, once none of their trades can be broken any more.
    fn forget_ended(&mut self, report: &Report) {
        if let Report::Executed { match_number, .. } = *report {
            self.ended.match_number = match_number;
        }
        match *report {
            Report::Rejected { token, .. } => drop(self.orders.remove(&Key::of(token))),
            Report::Replaced { old, new, .. } => {
                self.end(&old);
                if new.leaves == 0 {
                    self.end(&new);
                }
            }
            Report::Accepted { order, .. } | Report::Executed { order, .. } | Report::Canceled { order, .. }
                if order.leaves == 0 =>
            {
                self.end(&order);
            }
            _ => {}
        }
        while let Some(key) = self.ended.pop_unbreakable() {
            self.orders.remove(&key);
        }
    }

    /// An order ends. One without a trade is forgotten at once.
    fn end(&mut self, order: &OrderState) {
        let key = Key::of(order.token);
        if order.executed == 0 {
            self.orders.remove(&key);
        } else {
            self.ended.push(key);
        }
    }

    fn total(&mut self, report: &Report, side: market::Side) {
        match *report {
            Report::Executed { qty, price, .. } => self.trades.add(side, qty, price),
            Report::Broken { qty, price, .. } => self.trades.reverse(side, qty, price),
            _ => {}
        }
    }
}
