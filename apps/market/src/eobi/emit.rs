//! Messages written, each behind `out`, with their number among the product's: for exchanges that
//! are simulated, and for tests.

use super::layout::{
    FullOrderExecution, FullOrderExecutionRoot, HEADER_LEN, Heartbeat, HeartbeatRoot, InstrumentStateChange,
    InstrumentStateChangeRoot, InstrumentSummary, InstrumentSummaryRoot, OrderAdd, OrderAddRoot, OrderDelete,
    OrderDeleteRoot, OrderMassDelete, OrderMassDeleteRoot, OrderModify, OrderModifyRoot, OrderModifySamePrio,
    OrderModifySamePrioRoot, PartialOrderExecution, PartialOrderExecutionRoot, ProductSummary, ProductSummaryRoot,
    SnapshotOrder, SnapshotOrderRoot, TradeReport, TradeReportRoot, emit_head,
};
use crate::sbe::{Block, emit_block};

/// Any message: its head, and its block.
pub fn message<T: Block>(template: u16, seq: u32, root: &T, block_len: usize, out: &mut Vec<u8>) {
    let len = (HEADER_LEN + block_len) as u16;
    let mut head = emit_head(template, 0);
    head[..2].copy_from_slice(&len.to_le_bytes());
    head[4..].copy_from_slice(&seq.to_le_bytes());
    out.extend(head);
    emit_block(root, block_len, out);
}

macro_rules! messages {
    ($($(#[$doc:meta])* $function:ident $message:ident $root:ident;)*) => { $(
        $(#[$doc])*
        pub fn $function(seq: u32, root: &$root, out: &mut Vec<u8>) {
            message($message::ID, seq, root, $root::BLOCK_LEN, out);
        }
    )* };
}

messages! {
    /// An order comes.
    order_add OrderAdd OrderAddRoot;
    /// An order becomes another one.
    order_modify OrderModify OrderModifyRoot;
    /// An order has another quantity, and keeps its priority.
    order_modify_same_prio OrderModifySamePrio OrderModifySamePrioRoot;
    /// An order goes.
    order_delete OrderDelete OrderDeleteRoot;
    /// All orders of an instrument go.
    order_mass_delete OrderMassDelete OrderMassDeleteRoot;
    /// An order trades in part.
    partial_order_execution PartialOrderExecution PartialOrderExecutionRoot;
    /// What is left of an order trades.
    full_order_execution FullOrderExecution FullOrderExecutionRoot;
    /// A trade of an auction.
    trade_report TradeReport TradeReportRoot;
    /// The state of an instrument.
    instrument_state_change InstrumentStateChange InstrumentStateChangeRoot;
    /// The head of a product's part of a loop.
    product_summary ProductSummary ProductSummaryRoot;
    /// The head of an instrument's snapshot.
    instrument_summary InstrumentSummary InstrumentSummaryRoot;
    /// An order of a snapshot.
    snapshot_order SnapshotOrder SnapshotOrderRoot;
}

/// The message of a packet that has nothing to say: it has no number.
pub fn heartbeat(last_seq: u32, out: &mut Vec<u8>) {
    let root = HeartbeatRoot { last_msg_seq_num_processed: last_seq.into() };
    message(Heartbeat::ID, u32::MAX, &root, HeartbeatRoot::BLOCK_LEN, out);
}
