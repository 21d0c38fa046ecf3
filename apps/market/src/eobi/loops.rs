//! The loop of EOBI: for each product of a group its head, and each instrument's head with its
//! orders, one message each. An order does not name its instrument, and an instrument's head does
//! not say of when it is; so what they say holds only where no packet is missing behind those that
//! do.

use super::decode::{COMPLETE, Eobi, symbol};
use super::layout::{
    AddComplexInstrument, AddFlexibleInstrument, AddScaledSimpleInstrument, AuctionBbo, AuctionClearingPrice,
    CrossRequest, FullOrderExecution, InstrumentStateChange, InstrumentSummary, OrderAdd, OrderDelete, OrderMassDelete,
    OrderModify, OrderModifySamePrio, PacketHeader, PartialOrderExecution, ProductSummary, QuoteRequest, SnapshotOrder,
    TesTradeReport, TopOfBook, TradeReport, TradeReversal, split_head,
};
use crate::loops::{Definition, LoopFeed, SnapshotHead, SnapshotPart};
use crate::sbe::SbeError;
use crate::units::Symbol;

/// Where the loop of a product is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoopPlace {
    /// The packet of the last message.
    packet: u64,
    /// Whose orders come.
    instrument: Option<Symbol>,
    /// Instruments since the product's head.
    instruments: u32,
    /// The last packet says that the product's part of the loop is over.
    is_complete: bool,
}

impl LoopFeed for Eobi {
    /// 65,535 orders of one instrument, 44 bytes each.
    const SNAPSHOT_LEN_MAX: usize = 3 << 20;
    /// It is the service that publishes which has restarted, and not the books.
    const RESTARTS_EMPTY: bool = false;

    fn part(&mut self, packet: u64, message: &[u8], by_order: bool) -> SnapshotPart {
        let part = self.place_of(packet, message).unwrap_or(SnapshotPart::Other);
        if by_order { part } else { SnapshotPart::Other }
    }

    /// Each instrument is emptied by itself.
    fn empties_books(_: &[u8]) -> bool {
        false
    }

    fn is_about(message: &[u8], of: Symbol) -> bool {
        instrument(message).unwrap_or(None).is_none_or(|instrument| instrument == of)
    }

    /// Reference data come as files.
    fn definition(_: &[u8]) -> Option<Definition> {
        None
    }
}

impl Eobi {
    fn place_of(&mut self, packet: u64, message: &[u8]) -> Result<SnapshotPart, SbeError> {
        let (head, body) = split_head(message)?;
        let follows = packet == self.place.packet || packet == self.place.packet + 1;
        if !follows && head.template != ProductSummary::ID {
            // What is missing may have been another head of the product, or of an instrument.
            (self.last_seq, self.place) = (None, LoopPlace::default());
        }
        self.place.packet = packet;
        let was_complete = core::mem::replace(&mut self.place.is_complete, false);
        match head.template {
            ProductSummary::ID => {
                let before = (self.last_seq.is_some() && was_complete).then_some(self.place.instruments);
                self.begin_product(&ProductSummary::parse(head, body)?.root);
                (self.place.instruments, self.place.instrument) = (0, None);
                return Ok(SnapshotPart::LoopStart { before });
            }
            InstrumentSummary::ID if let Some(last_seq) = self.last_seq => {
                let m = InstrumentSummary::parse(head, body)?.root;
                let symbol = symbol(m.security_id);
                self.place.instruments += 1;
                self.place.instrument = Some(symbol);
                return Ok(SnapshotPart::Head(SnapshotHead {
                    symbol,
                    last_seq: last_seq.into(),
                    session: None,
                    total: None,
                    orders: m.tot_no_orders.get().into(),
                    is_last_part: true,
                }));
            }
            SnapshotOrder::ID if let Some(symbol) = self.place.instrument => {
                return Ok(SnapshotPart::Orders { symbol, count: 1 });
            }
            PacketHeader::ID => {
                self.place.is_complete = PacketHeader::parse(head, body)?.root.completion_indicator == COMPLETE;
            }
            _ => {}
        }
        Ok(SnapshotPart::Other)
    }
}

/// The instrument that a live message is about; `None` where it is about the product, or says the
/// time of a match, which may have executions of several instruments.
fn instrument(message: &[u8]) -> Result<Option<Symbol>, SbeError> {
    let (head, body) = split_head(message)?;
    macro_rules! instrument {
        ($($message:ident)*) => {
            match head.template {
                $($message::ID => Some($message::parse(head, body)?.root.security_id),)*
                _ => None,
            }
        };
    }
    let security_id = instrument!(
        OrderAdd OrderModify OrderDelete OrderMassDelete FullOrderExecution PartialOrderExecution OrderModifySamePrio
        TradeReversal TradeReport TesTradeReport InstrumentStateChange AddComplexInstrument
        AddFlexibleInstrument AddScaledSimpleInstrument AuctionBbo AuctionClearingPrice CrossRequest QuoteRequest
        TopOfBook
    );
    Ok(security_id.map(symbol))
}
