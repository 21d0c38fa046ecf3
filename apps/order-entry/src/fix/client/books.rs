//! What the client writes from, and what it remembers of requests that are no orders.

use market::Symbol;

use super::words::Common;
use crate::fix::orders::{HandlInst, OrderCapacity, OrderSpec, OrderTemplates, TimeInForce};
use crate::fix::session::{SessionConfig, Version};
use crate::fix::tag::tags;
use crate::orders::Instructions;

/// Changes that are remembered: more than wait for an answer at once.
const CHANGES: usize = 1 << 12;

/// The templates of one instrument.
#[derive(Debug)]
pub(super) struct InstrumentTemplates {
    /// D, F and G of orders that live a day.
    pub(super) day: OrderTemplates,
    /// D of orders that trade at once or never.
    pub(super) ioc: OrderTemplates,
}

impl InstrumentTemplates {
    /// Those of orders that say no more than these; `None` where there are none.
    #[inline]
    pub(super) fn of(&mut self, instructions: &Instructions) -> Option<&mut OrderTemplates> {
        match *instructions {
            Instructions::PLAIN => Some(&mut self.day),
            Instructions::IMMEDIATE_OR_CANCEL => Some(&mut self.ioc),
            _ => None,
        }
    }
}

/// Those of all instruments, by their position in the configuration, and what has none.
#[derive(Debug)]
pub(super) struct Templates {
    of_instruments: Box<[InstrumentTemplates]>,
    pub(super) common: Common,
}

impl Templates {
    /// Builds them. Allocates.
    pub(super) fn new(
        config: &SessionConfig,
        (account, capacity): (Option<String>, Option<OrderCapacity>),
        instruments: &[Symbol],
    ) -> Self {
        let is_42 = config.version == Version::Fix42;
        let capacity = capacity.map(|capacity| {
            let tag = if is_42 { tags::RULE_80A } else { tags::ORDER_CAPACITY };
            (tag, char::from(capacity.to_wire()).to_string())
        });
        let common = Common {
            account: account.clone(),
            capacity: capacity.clone(),
            handl_inst: is_42.then_some(HandlInst::Private),
            precision: config.precision,
        };
        let spec = OrderSpec {
            begin_string: config.version.begin_string().to_owned(),
            sender: config.sender.clone(),
            target: config.target.clone(),
            precision: config.precision,
            account,
            handl_inst: common.handl_inst,
            extra: capacity.into_iter().collect(),
            ..OrderSpec::default()
        };
        let templates = instruments.iter().map(|symbol| {
            let day = OrderSpec { symbol: symbol.as_str().to_owned(), ..spec.clone() };
            let ioc = OrderSpec { time_in_force: TimeInForce::ImmediateOrCancel, ..day.clone() };
            InstrumentTemplates { day: OrderTemplates::new(&day), ioc: OrderTemplates::new(&ioc) }
        });
        Self { of_instruments: templates.collect(), common }
    }

    pub(super) fn get(&mut self, instrument: usize) -> Option<&mut InstrumentTemplates> {
        self.of_instruments.get_mut(instrument)
    }
}

/// A request whose id is no order's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A cancel of the order with this id.
    Cancel(u64),
    /// A question about an order.
    Question,
}

/// The last such requests, by their ids: a session's Reject (3) names a number alone.
#[derive(Debug)]
pub(super) struct Changes(Box<[(u64, Change)]>);

impl Changes {
    pub(super) fn new() -> Self {
        Self(vec![(0, Change::Question); CHANGES].into_boxed_slice())
    }

    pub(super) fn note(&mut self, id: u64, change: Change) {
        self.0[id as usize % CHANGES] = (id, change);
    }

    pub(super) fn get(&self, id: u64) -> Option<Change> {
        let (of, change) = self.0[id as usize % CHANGES];
        (of == id && id > 0).then_some(change)
    }
}
