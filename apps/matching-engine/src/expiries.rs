//! When orders with an end of their own end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::arena::Arena;
use crate::order::OrderId;

/// A heap by time. An entry stays when its order ends early; such entries are swept when the heap
/// is full, so that it never has to grow.
#[derive(Debug)]
pub(crate) struct Expiries {
    heap: BinaryHeap<Reverse<(u64, OrderId)>>,
    capacity: usize,
}

impl Expiries {
    /// Room for the orders of an arena of `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        // Twice, so that a sweep leaves half of it free and its cost is spread over as many pushes.
        Self { heap: BinaryHeap::with_capacity(capacity * 2), capacity: capacity * 2 }
    }

    pub(crate) fn push(&mut self, at_ns: u64, id: OrderId, orders: &Arena) {
        if self.heap.len() == self.capacity {
            self.heap.retain(|Reverse((_, id))| orders.find(*id).is_some());
        }
        self.heap.push(Reverse((at_ns, id)));
    }

    /// The time of one is over.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.next_ns().is_some_and(|at_ns| at_ns <= now_ns)
    }

    /// The next order whose time is over; it may have ended before.
    #[inline]
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<OrderId> {
        let Reverse((at_ns, id)) = *self.heap.peek()?;
        if at_ns > now_ns {
            return None;
        }
        self.heap.pop();
        Some(id)
    }

    /// The earliest time at which one may end.
    #[inline]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, _))| *at_ns)
    }
}
