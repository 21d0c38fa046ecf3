//! Messages written: for simulators and tests, which may allocate.

use super::{Block, Dimension};

/// Writes a block behind `out`, padded with zeros to `block_len` bytes.
pub fn emit_block<T: Block>(block: &T, block_len: usize, out: &mut Vec<u8>) {
    let end = out.len() + block_len.max(size_of::<T>());
    out.extend_from_slice(block.as_bytes());
    out.resize(end, 0);
}

/// Writes a group behind `out`: its dimension, then its entries of `block_len` bytes each.
pub fn emit_group<D: Dimension, T: Block>(entries: &[T], block_len: usize, out: &mut Vec<u8>) {
    D::emit(block_len as u16, entries.len() as u16, out);
    for entry in entries {
        emit_block(entry, block_len, out);
    }
}
