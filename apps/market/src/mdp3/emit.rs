//! Messages written, each behind `out`: for exchanges that are simulated, and for tests.

use super::layout::{
    AdminHeartbeat, Book, BookEntry, BookOrder, BookRoot, FutureDefinition, FutureDefinitionEvent,
    FutureDefinitionFeed, FutureDefinitionRoot, GroupSize, GroupSize8Byte, SecurityStatus, SecurityStatusRoot,
    Snapshot, SnapshotEntry, SnapshotRoot, TradeSummary, TradeSummaryEntry, TradeSummaryOrder, TradeSummaryRoot,
    emit_head,
};
use crate::sbe::{Block, Dimension, emit_block, emit_group};

/// Blocks of the groups of a definition that is not decoded: attributes, and rules of lots.
const ATTRIBUTE_LEN: u16 = 4;
const LOT_RULE_LEN: u16 = 5;

fn root<T: Block>(template: u16, root: &T, block_len: usize, out: &mut Vec<u8>) {
    out.extend(emit_head(template, block_len as u16));
    emit_block(root, block_len, out);
}

/// Updates of levels.
pub fn book(head: &BookRoot, entries: &[BookEntry], out: &mut Vec<u8>) {
    root(Book::ID, head, BookRoot::BLOCK_LEN, out);
    emit_group::<GroupSize, _>(entries, BookEntry::BLOCK_LEN, out);
    emit_group::<GroupSize8Byte, BookOrder>(&[], BookOrder::BLOCK_LEN, out);
}

/// Trades.
pub fn trade_summary(head: &TradeSummaryRoot, entries: &[TradeSummaryEntry], out: &mut Vec<u8>) {
    root(TradeSummary::ID, head, TradeSummaryRoot::BLOCK_LEN, out);
    emit_group::<GroupSize, _>(entries, TradeSummaryEntry::BLOCK_LEN, out);
    emit_group::<GroupSize8Byte, TradeSummaryOrder>(&[], TradeSummaryOrder::BLOCK_LEN, out);
}

/// The trading state of an instrument.
pub fn security_status(head: &SecurityStatusRoot, out: &mut Vec<u8>) {
    root(SecurityStatus::ID, head, SecurityStatusRoot::BLOCK_LEN, out);
}

/// The whole book of an instrument.
pub fn snapshot(head: &SnapshotRoot, entries: &[SnapshotEntry], out: &mut Vec<u8>) {
    root(Snapshot::ID, head, SnapshotRoot::BLOCK_LEN, out);
    emit_group::<GroupSize, _>(entries, SnapshotEntry::BLOCK_LEN, out);
}

/// An instrument, and how many levels of it are published.
pub fn future_definition(head: &FutureDefinitionRoot, feeds: &[FutureDefinitionFeed], out: &mut Vec<u8>) {
    root(FutureDefinition::ID, head, FutureDefinitionRoot::BLOCK_LEN, out);
    emit_group::<GroupSize, FutureDefinitionEvent>(&[], FutureDefinitionEvent::BLOCK_LEN, out);
    emit_group::<GroupSize, _>(feeds, FutureDefinitionFeed::BLOCK_LEN, out);
    GroupSize::emit(ATTRIBUTE_LEN, 0, out);
    GroupSize::emit(LOT_RULE_LEN, 0, out);
}

/// The message of a packet that has nothing to say.
pub fn heartbeat(out: &mut Vec<u8>) {
    out.extend(emit_head(AdminHeartbeat::ID, 0));
}
