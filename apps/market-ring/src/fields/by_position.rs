//! Books by price and by position, and quotes.

use market::event::{Depth, DepthAction, Liquidity, PriceLevel, Quote, TradeSummary};
use market::{Price, Price9, Side};

use super::{Coded, FLAG, Fields, NINE_DECIMALS, NO_SIDE, bit, word};

impl Coded for Quote {
    #[inline]
    fn encode(&self) -> Fields {
        Fields {
            bits: bit(self.available, FLAG),
            price: self.bid_px.0,
            qty: self.bid_qty.into(),
            ask_px: self.ask_px.0,
            ask_qty: self.ask_qty.into(),
            symbol: word(self.symbol),
            ..Fields::at(self.at_ns)
        }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self {
            available: fields.has(FLAG),
            bid_qty: fields.qty as u32,
            at_ns: fields.at_ns,
            bid_px: Price(fields.price),
            ask_px: Price(fields.ask_px),
            symbol: fields.symbol(),
            ask_qty: fields.ask_qty as u32,
        })
    }
}

impl Coded for PriceLevel {
    #[inline]
    fn encode(&self) -> Fields {
        Fields {
            side: self.side.to_wire(),
            bits: bit(self.complete, FLAG),
            qty: self.qty.into(),
            price: self.price.0,
            symbol: word(self.symbol),
            ..Fields::at(self.at_ns)
        }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self {
            side: fields.side(),
            complete: fields.has(FLAG),
            qty: fields.qty as u32,
            at_ns: fields.at_ns,
            price: Price(fields.price),
            symbol: fields.symbol(),
        })
    }
}

impl Coded for Depth {
    #[inline]
    fn encode(&self) -> Fields {
        Fields {
            side: self.side.to_wire(),
            letter: letter_of(self.action),
            bits: NINE_DECIMALS | bit(self.liquidity == Liquidity::Implied, FLAG),
            other: self.level.into(),
            price: self.price.0,
            qty: self.qty,
            ask_qty: self.orders.into(),
            symbol: word(self.symbol),
            rpt_seq: self.rpt_seq,
            ..Fields::at(self.at_ns)
        }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self {
            side: fields.side(),
            liquidity: if fields.has(FLAG) { Liquidity::Implied } else { Liquidity::Direct },
            action: action_of(fields.letter)?,
            level: fields.other as u8,
            orders: fields.ask_qty as u32,
            at_ns: fields.at_ns,
            price: Price9(fields.price),
            symbol: fields.symbol(),
            qty: fields.qty,
            rpt_seq: fields.rpt_seq,
        })
    }
}

impl Coded for TradeSummary {
    #[inline]
    fn encode(&self) -> Fields {
        Fields {
            side: self.aggressor.map_or(NO_SIDE, Side::to_wire),
            letter: letter_of(self.action),
            bits: NINE_DECIMALS,
            other: self.trade.into(),
            price: self.price.0,
            qty: self.qty,
            ask_qty: self.orders.into(),
            symbol: word(self.symbol),
            rpt_seq: self.rpt_seq,
            ..Fields::at(self.at_ns)
        }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self {
            aggressor: fields.side_or_none(),
            action: action_of(fields.letter)?,
            orders: fields.ask_qty as u32,
            at_ns: fields.at_ns,
            price: Price9(fields.price),
            symbol: fields.symbol(),
            qty: fields.qty,
            trade: fields.other as u32,
            rpt_seq: fields.rpt_seq,
        })
    }
}

fn letter_of(action: DepthAction) -> u8 {
    match action {
        DepthAction::New => b'N',
        DepthAction::Change => b'C',
        DepthAction::Delete => b'D',
        DepthAction::DeleteThru => b'T',
        DepthAction::DeleteFrom => b'F',
        DepthAction::Overlay => b'O',
        DepthAction::Snapshot => b'S',
    }
}

fn action_of(letter: u8) -> Option<DepthAction> {
    Some(match letter {
        b'N' => DepthAction::New,
        b'C' => DepthAction::Change,
        b'D' => DepthAction::Delete,
        b'T' => DepthAction::DeleteThru,
        b'F' => DepthAction::DeleteFrom,
        b'O' => DepthAction::Overlay,
        b'S' => DepthAction::Snapshot,
        _ => return None,
    })
}
