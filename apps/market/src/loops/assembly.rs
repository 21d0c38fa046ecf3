//! A snapshot that comes in several messages, until it is whole.

use super::SnapshotHead;
use crate::units::Symbol;

/// Bytes in front of a kept message: its length.
const LEN_LEN: usize = 4;

/// The messages of one snapshot, which follow each other in the loop. A loss among their packets
/// ends it: the next loop brings it again.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    head: Option<SnapshotHead>,
    /// Orders that are still to come.
    left: u32,
    /// The number of the last message's packet in the loop.
    packet: u64,
    /// Each message behind its length.
    bytes: Vec<u8>,
}

/// What a message has made of the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There are more to come.
    Begun,
    /// It was the last one.
    Whole(SnapshotHead),
    /// It can never be whole: packets are missing, or it is longer than the memory for it.
    Broken,
    /// The message is of none that has begun.
    Stray,
}

impl Assembly {
    /// Memory for the messages of one snapshot; allocates.
    pub(super) fn new(len_max: usize) -> Self {
        Self { bytes: Vec::with_capacity(len_max), ..Self::default() }
    }

    /// A snapshot begins with a message of the loop's packet `packet`. One that was not whole is
    /// given up for it.
    pub(super) fn begin(&mut self, head: SnapshotHead, packet: u64, message: &[u8]) {
        self.give_up();
        if self.keep(message) {
            (self.head, self.left, self.packet) = (Some(head), head.orders, packet);
        }
    }

    /// Orders of the snapshot. Packets of a loop are numbered without a hole.
    pub(super) fn add(&mut self, symbol: Symbol, count: u32, packet: u64, message: &[u8]) -> Step {
        let Some(head) = self.head.filter(|head| head.symbol == symbol) else { return Step::Stray };
        let follows = packet == self.packet || packet == self.packet + 1;
        if !follows || count > self.left || !self.keep(message) {
            self.give_up();
            return Step::Broken;
        }
        (self.left, self.packet) = (self.left - count, packet);
        if self.left > 0 {
            return Step::Begun;
        }
        self.head = None;
        Step::Whole(head)
    }

    /// The snapshot is of no use any more. Returns whether there was one.
    pub(super) fn give_up(&mut self) -> bool {
        self.bytes.clear();
        self.head.take().is_some()
    }

    /// The messages that were kept, in order.
    pub(super) fn messages(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        core::iter::from_fn(move || {
            let (len, behind) = rest.split_first_chunk::<LEN_LEN>()?;
            let (message, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            rest = behind;
            Some(message)
        })
    }

    /// False where there is no room: the memory never grows.
    fn keep(&mut self, message: &[u8]) -> bool {
        if self.bytes.capacity() - self.bytes.len() < LEN_LEN + message.len() {
            return false;
        }
        self.bytes.extend_from_slice(&(message.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(message);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(orders: u32) -> SnapshotHead {
        let symbol = Symbol::from_number(7);
        SnapshotHead { symbol, last_seq: 1, session: None, total: Some(1), orders, is_last_part: true }
    }

    /// An assembly of a snapshot of four orders, whose head was in packet 5.
    fn begun() -> Assembly {
        let mut assembly = Assembly::new(64);
        assembly.begin(head(4), 5, b"head");
        assembly
    }

    fn add(assembly: &mut Assembly, count: u32, packet: u64) -> Step {
        assembly.add(Symbol::from_number(7), count, packet, b"orders")
    }

    #[test]
    fn snapshot_is_whole_with_its_last_order_and_has_its_messages_in_order() {
        let mut assembly = begun();
        assert_eq!(add(&mut assembly, 2, 5), Step::Begun);
        assert_eq!(add(&mut assembly, 2, 6), Step::Whole(head(4)));
        assert!(assembly.messages().eq([&b"head"[..], b"orders", b"orders"]));
        assert_eq!(add(&mut assembly, 1, 6), Step::Stray);
    }

    #[test]
    fn packet_that_is_missing_or_more_orders_than_announced_break_it() {
        for (count, packet) in [(2, 7), (2, 4), (5, 5)] {
            let mut assembly = begun();
            assert_eq!(add(&mut assembly, count, packet), Step::Broken);
            assert_eq!(add(&mut assembly, 2, packet), Step::Stray);
        }
    }

    #[test]
    fn snapshot_that_is_longer_than_its_memory_is_broken_and_the_memory_does_not_grow() {
        let mut assembly = begun();
        let step = assembly.add(Symbol::from_number(7), 1, 5, &[0; 1_000]);
        assert_eq!((step, assembly.bytes.capacity()), (Step::Broken, 64));
        assembly.begin(head(1), 6, &[0; 1_000]);
        assert_eq!(add(&mut assembly, 1, 6), Step::Stray);
    }

    #[test]
    fn orders_of_another_instrument_are_none_of_it() {
        let mut assembly = begun();
        assert_eq!(assembly.add(Symbol::from_number(8), 1, 5, b"orders"), Step::Stray);
        assert_eq!(add(&mut assembly, 4, 5), Step::Whole(head(4)));
        assert!(!begun().messages().eq(assembly.messages()));
    }
}
