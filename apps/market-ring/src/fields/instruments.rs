//! Instruments, the market as a whole, and images.

use market::event::{
    BookReset, Clear, Clock, Directory, EndOfEvent, GroupStatus, Instrument, Numbered, Other, Snapshot, SnapshotEnd,
    Status, System,
};
use market::{Locate, Price9, Symbol};

use super::{APART, Coded, FLAG, FOLLOWS_GROUP, Fields, HALTED, NINE_DECIMALS, TRADED, bit, either, word};

impl Coded for Directory {
    #[inline]
    fn encode(&self) -> Fields {
        let (locate, qty) = (self.locate.0.into(), self.round_lot.into());
        Fields { locate, qty, symbol: word(self.symbol), ..Fields::at(self.at_ns) }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        let (locate, symbol) = (Locate(fields.locate as u16), fields.symbol());
        Some(Self { locate, round_lot: fields.qty as u32, at_ns: fields.at_ns, symbol })
    }
}

impl Coded for Status {
    #[inline]
    fn encode(&self) -> Fields {
        let (halt, group) = (either(self.is_halted, HALTED, TRADED), either(self.follows_group, FOLLOWS_GROUP, APART));
        Fields {
            locate: self.locate.0.into(),
            letter: self.state,
            bits: bit(self.operational, FLAG) | halt | group,
            symbol: word(self.symbol),
            ..Fields::at(self.at_ns)
        }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self {
            locate: Locate(fields.locate as u16),
            state: fields.letter,
            is_halted: fields.has_either(HALTED, TRADED),
            operational: fields.has(FLAG),
            follows_group: fields.has_either(FOLLOWS_GROUP, APART),
            at_ns: fields.at_ns,
            symbol: fields.symbol(),
        })
    }
}

impl Coded for GroupStatus {
    #[inline]
    fn encode(&self) -> Fields {
        Fields {
            letter: self.state,
            bits: either(self.is_halted, HALTED, TRADED),
            order: word(self.group),
            symbol: word(self.symbol),
            ..Fields::at(self.at_ns)
        }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self {
            state: fields.letter,
            is_halted: fields.has_either(HALTED, TRADED),
            at_ns: fields.at_ns,
            group: Symbol(fields.order.to_le_bytes()),
            symbol: fields.symbol(),
        })
    }
}

impl Coded for Instrument {
    #[inline]
    fn encode(&self) -> Fields {
        Fields {
            letter: self.action,
            bits: NINE_DECIMALS,
            order: word(self.name),
            other: u64::from(self.depth) | u64::from(self.implied_depth) << 8,
            price: self.tick.0,
            qty: self.total.into(),
            ask_qty: word(self.group),
            symbol: word(self.symbol),
            ..Fields::at(self.at_ns)
        }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self {
            depth: fields.other as u8,
            implied_depth: (fields.other >> 8) as u8,
            action: fields.letter,
            total: fields.qty as u32,
            at_ns: fields.at_ns,
            symbol: fields.symbol(),
            tick: Price9(fields.price),
            name: Symbol(fields.order.to_le_bytes()),
            group: Symbol(fields.ask_qty.to_le_bytes()),
        })
    }
}

impl Coded for Snapshot {
    #[inline]
    fn encode(&self) -> Fields {
        Fields {
            other: self.last_seq,
            qty: self.total.into(),
            ask_qty: u64::from(self.part) | u64::from(self.parts) << 32,
            symbol: word(self.symbol),
            rpt_seq: self.rpt_seq,
            ..Fields::at(self.at_ns)
        }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self {
            rpt_seq: fields.rpt_seq,
            at_ns: fields.at_ns,
            symbol: fields.symbol(),
            last_seq: fields.other,
            total: fields.qty as u32,
            part: fields.ask_qty as u32,
            parts: (fields.ask_qty >> 32) as u32,
        })
    }
}

impl Coded for Numbered {
    #[inline]
    fn encode(&self) -> Fields {
        let (letter, rpt_seq) = (self.kind, self.rpt_seq);
        Fields { letter, rpt_seq, symbol: word(self.symbol), ..Fields::at(self.at_ns) }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        let (kind, rpt_seq) = (fields.letter, fields.rpt_seq);
        Some(Self { kind, rpt_seq, at_ns: fields.at_ns, symbol: fields.symbol() })
    }
}

impl Coded for BookReset {
    #[inline]
    fn encode(&self) -> Fields {
        Fields { rpt_seq: self.rpt_seq, symbol: word(self.symbol), ..Fields::at(self.at_ns) }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self { rpt_seq: fields.rpt_seq, at_ns: fields.at_ns, symbol: fields.symbol() })
    }
}

impl Coded for SnapshotEnd {
    #[inline]
    fn encode(&self) -> Fields {
        Fields { symbol: word(self.symbol), ..Fields::at(self.at_ns) }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self { at_ns: fields.at_ns, symbol: fields.symbol() })
    }
}

impl Coded for System {
    #[inline]
    fn encode(&self) -> Fields {
        Fields { letter: self.code, ..Fields::at(self.at_ns) }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self { code: fields.letter, at_ns: fields.at_ns })
    }
}

impl Coded for Other {
    #[inline]
    fn encode(&self) -> Fields {
        Fields { letter: self.kind, ..Fields::at(self.at_ns) }
    }

    #[inline]
    fn decode(fields: &Fields) -> Option<Self> {
        Some(Self { kind: fields.letter, at_ns: fields.at_ns })
    }
}

/// Events that are no more than their time.
macro_rules! only_times {
    ($($name:ident)*) => {$(
        impl Coded for $name {
            #[inline]
            fn encode(&self) -> Fields {
                Fields::at(self.at_ns)
            }

            #[inline]
            fn decode(fields: &Fields) -> Option<Self> {
                Some(Self { at_ns: fields.at_ns })
            }
        }
    )*};
}

only_times!(Clear Clock EndOfEvent);
