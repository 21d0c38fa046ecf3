//! A strategy and its core: what the line and the feed call.

use order_entry::journal::JournalMemory;
use order_entry::risk::Market;
use order_entry::session::{SessionError, VenueSession};

use crate::core::{Core, StrategyEvent};
use crate::drop_copy::Difference;
use crate::feed::Depth;
use crate::latency::Latency;
use crate::orders::Orders;
use crate::strategy::{BookEvent, Strategy};

/// A strategy with its orders. One thread owns it; every call costs what the strategy costs and
/// some hundred nanoseconds.
#[derive(Debug)]
pub struct Gateway<T, S, M> {
    strategy: T,
    core: Core<S, M>,
    pub(crate) latency: Option<Box<Latency>>,
}

impl<T: Strategy, S: VenueSession, M: JournalMemory> Gateway<T, S, M> {
    /// A gateway that is not connected.
    pub const fn new(strategy: T, core: Core<S, M>) -> Self {
        Self { strategy, core, latency: None }
    }

    /// Measures each request that a packet causes, from now on.
    pub fn measure(&mut self, latency: Latency) {
        self.latency = Some(Box::new(latency));
    }

    /// What was measured.
    pub fn latency(&self) -> Option<&Latency> {
        self.latency.as_deref()
    }

    /// A book changed: risk has its reference price, and the strategy decides. What it sends stands
    /// in [`Core::to_send`] when the call returns.
    pub fn on_book(&mut self, book: &BookEvent) {
        self.on_book_of(book, None);
    }

    /// As [`Gateway::on_book`], with the whole book.
    pub(crate) fn on_book_of(&mut self, book: &BookEvent, depth: Option<Depth<'_>>) {
        let Some(market) = self.core.markets.get_mut(book.instrument.0 as usize) else { return };
        let (reference, spread) = (book.reference(), book.spread());
        *market =
            Market { reference, spread, is_stale: book.is_stale, is_halted: book.is_halted, heard_ns: book.at_ns };
        let Self { strategy, core, latency } = self;
        let mut latency = latency.as_deref_mut();
        if let Some(latency) = &mut latency {
            latency.decoded();
        }
        strategy.on_book(book, &mut Orders { core, now_ns: book.at_ns, latency, depth });
    }

    /// As [`Gateway::on_book`], of a quote that the market-gateway had at this time since 1970,
    /// where that is known.
    #[inline]
    pub(crate) fn on_quote(&mut self, book: &BookEvent, arrived_ns: Option<u64>) {
        if let Some(latency) = &mut self.latency {
            latency.packet_read(arrived_ns);
        }
        self.on_book(book);
        if let Some(latency) = &mut self.latency {
            latency.packet_over();
        }
    }

    /// The packets of another poll follow.
    #[inline]
    pub(crate) fn begin_poll(&mut self) {
        if let Some(latency) = &mut self.latency {
            latency.begin_poll();
        }
    }

    /// Bytes arrived on the connection.
    ///
    /// # Errors
    ///
    /// The venue broke a rule, which the text names: close the connection, and call
    /// [`Gateway::disconnected`].
    pub fn received(&mut self, bytes: &[u8], now_ns: u64) -> Result<(), SessionError> {
        let mut input = bytes;
        while let Some(told) = self.core.receive(now_ns, &mut input)? {
            let orders = &mut Orders { core: &mut self.core, now_ns, latency: None, depth: None };
            match told {
                StrategyEvent::Order(events) => events.iter().for_each(|event| self.strategy.on_order(event, orders)),
                StrategyEvent::SessionOpen => self.strategy.on_session_open(orders),
                StrategyEvent::None => (),
            }
        }
        Ok(())
    }

    /// A connection was made: the login stands in [`Core::to_send`].
    ///
    /// # Errors
    ///
    /// As [`Gateway::received`].
    pub fn connected(&mut self, now_ns: u64) -> Result<(), SessionError> {
        self.core.connected(now_ns)
    }

    /// The connection is gone.
    pub fn disconnected(&mut self, now_ns: u64) {
        self.core.disconnected();
        if let Some(latency) = &mut self.latency {
            latency.line_opened(false);
        }
        self.strategy.on_session_closed(&mut Orders { core: &mut self.core, now_ns, latency: None, depth: None });
    }

    /// The kill switch, the session's heartbeats and the strategy's timer. Call it in each turn.
    ///
    /// # Errors
    ///
    /// As [`Gateway::received`].
    pub fn tick(&mut self, now_ns: u64) -> Result<(), SessionError> {
        self.core.poll(now_ns);
        self.core.tick_session(now_ns)?;
        if self.core.timer_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.core.timer_ns = None;
            self.strategy.on_timer(&mut Orders { core: &mut self.core, now_ns, latency: None, depth: None });
        }
        Ok(())
    }

    /// What the drop copy and the session do not agree on; call it in each turn. New orders stop
    /// until a person has compared, and arms. A trade that the session has missed is booked, and
    /// the strategy is told of it.
    pub fn reconcile(&mut self, now_ns: u64) -> Option<Difference> {
        let (difference, events) = self.core.poll_reconciler(now_ns)?;
        let orders = &mut Orders { core: &mut self.core, now_ns, latency: None, depth: None };
        events.iter().for_each(|event| self.strategy.on_order(event, orders));
        Some(difference)
    }

    /// The core.
    pub const fn core(&self) -> &Core<S, M> {
        &self.core
    }

    /// The core, for commands of people and for the line.
    pub const fn core_mut(&mut self) -> &mut Core<S, M> {
        &mut self.core
    }

    /// The strategy.
    pub const fn strategy(&self) -> &T {
        &self.strategy
    }

    /// The strategy, for what people tell it.
    pub const fn strategy_mut(&mut self) -> &mut T {
        &mut self.strategy
    }
}
