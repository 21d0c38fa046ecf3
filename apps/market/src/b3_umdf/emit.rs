//! Messages written, each behind `out`: for exchanges that are simulated, and for tests.

use super::layout::{
    DeleteOrder, DeleteOrderRoot, GroupSize, MassDeleteOrders, MassDeleteOrdersRoot, Order, OrderRoot, Sequence,
    SequenceRoot, SnapshotHeader, SnapshotHeaderRoot, SnapshotOrders, SnapshotOrdersEntry, SnapshotOrdersRoot, Trade,
    TradeRoot, emit_head,
};
use crate::sbe::{Block, emit_block, emit_group};

fn root<T: Block>(template: u16, root: &T, block_len: usize, out: &mut Vec<u8>) {
    out.extend(emit_head(template, block_len as u16));
    emit_block(root, block_len, out);
}

/// An order comes, or is another.
pub fn order(order: &OrderRoot, out: &mut Vec<u8>) {
    root(Order::ID, order, OrderRoot::BLOCK_LEN, out);
}

/// An order goes.
pub fn delete_order(order: &DeleteOrderRoot, out: &mut Vec<u8>) {
    root(DeleteOrder::ID, order, DeleteOrderRoot::BLOCK_LEN, out);
}

/// The orders of a side go.
pub fn mass_delete_orders(orders: &MassDeleteOrdersRoot, out: &mut Vec<u8>) {
    root(MassDeleteOrders::ID, orders, MassDeleteOrdersRoot::BLOCK_LEN, out);
}

/// A trade.
pub fn trade(trade: &TradeRoot, out: &mut Vec<u8>) {
    root(Trade::ID, trade, TradeRoot::BLOCK_LEN, out);
}

/// The head of an instrument's snapshot.
pub fn snapshot_header(head: &SnapshotHeaderRoot, out: &mut Vec<u8>) {
    root(SnapshotHeader::ID, head, SnapshotHeaderRoot::BLOCK_LEN, out);
}

/// Orders of a snapshot, 255 at most.
pub fn snapshot_orders(security_id: u64, orders: &[SnapshotOrdersEntry], out: &mut Vec<u8>) {
    let head = SnapshotOrdersRoot { security_id: security_id.into() };
    root(SnapshotOrders::ID, &head, SnapshotOrdersRoot::BLOCK_LEN, out);
    emit_group::<GroupSize, _>(orders, SnapshotOrdersEntry::BLOCK_LEN, out);
}

/// The message of a packet that has nothing to say.
pub fn sequence(next_seq_no: u32, out: &mut Vec<u8>) {
    root(Sequence::ID, &SequenceRoot { next_seq_no: next_seq_no.into() }, SequenceRoot::BLOCK_LEN, out);
}
