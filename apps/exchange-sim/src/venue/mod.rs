//! The exchange that answers, as a pure machine: OUCH 5.0 messages of accounts in, or orders by
//! other protocols (see `named`); numbered messages for each account, copies for drop copy and the
//! public feed out.
//!
//! ```text
//!   OUCH message ─ entry ─> matching engine ─ event ─┬─ answers ─> an account's messages
//!                    ^                               │              └─ its trades: the drop copy
//!                 faults                             └─ ItchView ─> the public feed
//! ```
//!
//! Without sockets and clock, so that a test plays a day in a moment: the same messages at the same
//! times, with the same seed of faults, give the same bytes. What accounts were told long ago is in
//! files, and of orders by OUCH that have ended those alone are known whose trades can be broken.

mod account;
mod answers;
pub(crate) mod boe;
mod copies;
mod day;
mod entry;
mod faults;
pub(crate) mod fix;
mod flow;
pub(crate) mod ilink3;
mod message_log;
mod named;
mod operator;
mod ouch42;
mod terms;

use std::collections::BTreeMap;

use market::{Locate, Price, Side, Symbol};
use matching_engine::{CancelReason, Capacity, Engine, Event, ItchView, Life, Owner, Sink, reports};

pub use account::{Account, AccountSettings, CancelOnDisconnect, VenueCounts};
pub use copies::CopiesOf;
pub use faults::{Fault, FaultPlan, FaultRule};
pub use message_log::MessageLog;
pub use named::{
    Answer, AnswerKind, ChangeRequest, MassCancelRequest, NamedOrder, OrderRefusal, OrderRequest, OrderStatus,
    Protocol, Refused, Target,
};
pub use operator::{Command, Which};

use day::Day;
use faults::Faults;
use flow::Flow;

/// The engine's group for self-trade prevention within a group of an account: accounts are apart,
/// and orders by OUCH, whose groups have 16 bits, from named ones.
const fn self_trade_group(owner: Owner, is_named: bool, group: u32) -> u32 {
    owner.0 << 17 | (is_named as u32) << 16 | group
}

/// Account 0 of the engine: the other side of crossing fills, and of liquidity that the venue
/// shows.
const HOUSE: Owner = Owner(0);

/// What an exchange is made of.
#[derive(Clone, Debug)]
pub struct VenueSettings {
    /// The instruments and the price that each opens at.
    pub listing: Vec<(Symbol, Price)>,
    /// Who may log in.
    pub accounts: Vec<AccountSettings>,
    /// Live orders at once, over all accounts. By default 65,536.
    pub orders: usize,
    /// The newest trades, which can still be broken. By default 65,536.
    pub trades: usize,
    /// Messages a second of one account that enter or change orders; those beyond are refused,
    /// cancels are not counted. By default none are.
    pub rate_max: Option<u32>,
    /// Shares that the venue bids and offers itself at each of three prices around the opening
    /// price; 0 for none. By default 0.
    pub house_shares: u32,
    /// What goes wrong. By default nothing.
    pub faults: FaultPlan,
}

impl VenueSettings {
    /// The defaults, for these instruments and accounts.
    pub fn new(listing: Vec<(Symbol, Price)>, accounts: Vec<AccountSettings>) -> Self {
        let faults = FaultPlan::default();
        Self { listing, accounts, orders: 1 << 16, trades: 1 << 16, rate_max: None, house_shares: 0, faults }
    }
}

/// What became of a message, for the connection that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Go on.
    None,
    /// The answers are recorded, and the connection breaks before they leave.
    Break,
    /// The connection stays open, and nothing is sent or read on it any more.
    GoSilent,
}

/// The exchange.
#[derive(Debug)]
pub struct Venue {
    engine: Engine,
    view: ItchView,
    locates: BTreeMap<Symbol, Locate>,
    listing: Vec<(Symbol, Price)>,
    accounts: Vec<Account>,
    rate_max: Option<u32>,
    house_shares: u32,
    faults: Faults,
    day: Day,
    flow: Option<Flow>,
    public: Vec<(u64, Vec<u8>)>,
    counts: VenueCounts,
}

/// Where the engine's events go.
struct Streams<'a> {
    view: &'a ItchView,
    accounts: &'a mut [Account],
    public: &'a mut Vec<(u64, Vec<u8>)>,
}

impl Sink for Streams<'_> {
    fn take(&mut self, event: &Event) {
        let Self { view, accounts, public } = self;
        view.show(event, &mut |message: &[u8]| public.push((event.at_ns, message.to_vec())));
        for (owner, report) in reports(event) {
            // The house keeps no account.
            if let Some(account) = owner.0.checked_sub(1).and_then(|idx| accounts.get_mut(idx as usize)) {
                account.answer(event, &report, view.symbol(event.symbol));
            }
        }
    }
}

impl Venue {
    /// An exchange before its day; [`Venue::open`] begins it.
    pub fn new(settings: VenueSettings) -> Self {
        let VenueSettings { listing, accounts, orders, trades, rate_max, house_shares, faults } = settings;
        let names: Vec<Symbol> = listing.iter().map(|&(symbol, _)| symbol).collect();
        let symbols = names.len() as u16;
        let capacity = Capacity { symbols, orders, owners: accounts.len() + 1, trades, ..Capacity::default() };
        Self {
            engine: Engine::new(capacity),
            locates: names.iter().copied().zip((1..).map(Locate)).collect(),
            view: ItchView::new(names),
            listing,
            accounts: accounts.into_iter().map(|account| Account::new(account, trades)).collect(),
            rate_max,
            house_shares,
            faults: Faults::new(faults),
            day: Day::before(symbols),
            flow: None,
            public: Vec::new(),
            counts: VenueCounts::default(),
        }
    }

    /// The engine, and where its events go.
    fn split(&mut self) -> (&mut Engine, Streams<'_>) {
        let Self { engine, view, accounts, public, .. } = self;
        (engine, Streams { view, accounts, public })
    }

    /// The best displayed price that an order of `side` meets.
    fn best_contra(&self, symbol: Symbol, side: Side) -> Option<Price> {
        let contra = if side == Side::Buy { Side::Sell } else { Side::Buy };
        self.engine.displayed(*self.locates.get(&symbol)?, contra).next().map(|(price, _)| price)
    }

    /// An account's connection is gone: its orders are canceled, but those that it keeps.
    pub fn disconnected(&mut self, account: usize, now_ns: u64) {
        let reason = CancelReason::Supervisory;
        match self.accounts[account].settings().cancel_on_disconnect {
            CancelOnDisconnect::None => {}
            CancelOnDisconnect::Continuous => {
                self.cancel_if(account, reason, now_ns, |order| !matches!(order.life, Life::Cross(_)));
            }
            CancelOnDisconnect::All => {
                let Self { engine, view, accounts, public, .. } = self;
                let (owner, mut sink) = (Owner(account as u32 + 1), Streams { view, accounts, public });
                engine.cancel_all(owner, None, reason, now_ns, &mut sink);
            }
        }
    }

    /// By how many numbers the answer to a login is wrong, where a fault wants it.
    pub fn login_surprise(&mut self) -> i64 {
        if self.faults.draw(Fault::SequenceSurprise) { self.faults.surprise() } else { 0 }
    }

    /// Whether a login that goes on with a session finds another one.
    pub fn has_new_session(&mut self) -> bool {
        self.faults.draw(Fault::NewSession)
    }

    /// The accounts, in the order of the settings.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// The listed symbols with their reference prices.
    pub fn listing(&self) -> &[(Symbol, Price)] {
        &self.listing
    }

    /// Takes the public messages since the last call, with their times.
    pub fn take_public(&mut self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut self.public)
    }

    /// What happened so far.
    pub fn counts(&self) -> VenueCounts {
        self.counts
    }

    /// The engine, to look at.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

#[cfg(test)]
mod tests;
