//! Books by order, and trades.

use market::event::{Add, Cancel, Delete, Execute, Modify, Order, OrderAction, Replace, Trade, TradeBreak};
use market::{Locate, OrderRef, Price, Price9, Side};

use super::{Coded, FLAG, Fields, HAS_PRICE, HAS_REMAINING, NINE_DECIMALS, NO_SIDE, bit, word};

impl Coded for Add {
    #[inline]
    fn encode(&self) -> Fields {
        Fields {
            locate: self.locate.0.into(),
            side: self.side.to_wire(),
            qty: self.qty.into(),
            order: self.order.0,
            price: self.price.0,
            symbol: word(self.symbol),
            ..Fields::at(self.at_ns)
        }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self {
            locate: Locate(fields.locate as u16),
            side: fields.side(),
            qty: fields.qty as u32,
            at_ns: fields.at_ns,
            order: OrderRef(fields.order),
            price: Price(fields.price),
            symbol: fields.symbol(),
        })
    }
}

impl Coded for Execute {
    #[inline]
    fn encode(&self) -> Fields {
        Fields {
            locate: self.locate.0.into(),
            bits: bit(self.printable, FLAG)
                | bit(self.price.is_some(), HAS_PRICE)
                | bit(self.remaining.is_some(), HAS_REMAINING),
            qty: self.qty.into(),
            order: self.order.0,
            other: self.trade,
            price: self.price.unwrap_or_default().0,
            ask_qty: self.remaining.unwrap_or_default().into(),
            ..Fields::at(self.at_ns)
        }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self {
            locate: Locate(fields.locate as u16),
            printable: fields.has(FLAG),
            qty: fields.qty as u32,
            at_ns: fields.at_ns,
            order: OrderRef(fields.order),
            trade: fields.other,
            price: fields.has(HAS_PRICE).then_some(Price(fields.price)),
            remaining: fields.has(HAS_REMAINING).then_some(fields.ask_qty as u32),
        })
    }
}

impl Coded for Cancel {
    #[inline]
    fn encode(&self) -> Fields {
        let (locate, qty) = (self.locate.0.into(), self.qty.into());
        Fields { locate, qty, order: self.order.0, ..Fields::at(self.at_ns) }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        let (locate, order) = (Locate(fields.locate as u16), OrderRef(fields.order));
        Some(Self { locate, qty: fields.qty as u32, at_ns: fields.at_ns, order })
    }
}

impl Coded for Delete {
    #[inline]
    fn encode(&self) -> Fields {
        Fields { locate: self.locate.0.into(), order: self.order.0, ..Fields::at(self.at_ns) }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        let (locate, order) = (Locate(fields.locate as u16), OrderRef(fields.order));
        Some(Self { locate, at_ns: fields.at_ns, order })
    }
}

impl Coded for Replace {
    #[inline]
    fn encode(&self) -> Fields {
        Fields {
            locate: self.locate.0.into(),
            qty: self.qty.into(),
            order: self.old.0,
            other: self.new.0,
            price: self.price.0,
            ..Fields::at(self.at_ns)
        }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self {
            locate: Locate(fields.locate as u16),
            qty: fields.qty as u32,
            at_ns: fields.at_ns,
            old: OrderRef(fields.order),
            new: OrderRef(fields.other),
            price: Price(fields.price),
        })
    }
}

impl Coded for Modify {
    #[inline]
    fn encode(&self) -> Fields {
        Fields { qty: self.qty.into(), order: self.order.0, price: self.price.0, ..Fields::at(self.at_ns) }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        let (order, price) = (OrderRef(fields.order), Price(fields.price));
        Some(Self { qty: fields.qty as u32, at_ns: fields.at_ns, order, price })
    }
}

impl Coded for Trade {
    #[inline]
    fn encode(&self) -> Fields {
        Fields {
            locate: self.locate.0.into(),
            side: self.side.map_or(NO_SIDE, Side::to_wire),
            other: self.trade,
            price: self.price.0,
            qty: self.qty,
            symbol: word(self.symbol),
            ..Fields::at(self.at_ns)
        }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self {
            locate: Locate(fields.locate as u16),
            side: fields.side_or_none(),
            at_ns: fields.at_ns,
            price: Price(fields.price),
            trade: fields.other,
            symbol: fields.symbol(),
            qty: fields.qty,
        })
    }
}

impl Coded for TradeBreak {
    #[inline]
    fn encode(&self) -> Fields {
        Fields { other: self.trade, ..Fields::at(self.at_ns) }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self { at_ns: fields.at_ns, trade: fields.other })
    }
}

impl Coded for Order {
    #[inline]
    fn encode(&self) -> Fields {
        let letter = match self.action {
            OrderAction::New => b'N',
            OrderAction::Change => b'C',
            OrderAction::Delete => b'D',
            OrderAction::Snapshot => b'S',
        };
        Fields {
            side: self.side.to_wire(),
            letter,
            bits: NINE_DECIMALS,
            qty: self.qty.into(),
            order: self.order.0,
            other: self.priority,
            price: self.price.0,
            symbol: word(self.symbol),
            ..Fields::at(self.at_ns)
        }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        let action = match fields.letter {
            b'N' => OrderAction::New,
            b'C' => OrderAction::Change,
            b'D' => OrderAction::Delete,
            b'S' => OrderAction::Snapshot,
            _ => return None,
        };
        Some(Self {
            side: fields.side(),
            action,
            qty: fields.qty as u32,
            at_ns: fields.at_ns,
            order: OrderRef(fields.order),
            priority: fields.other,
            price: Price9(fields.price),
            symbol: fields.symbol(),
        })
    }
}
