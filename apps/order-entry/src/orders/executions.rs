//! Executions of the day: each counts once, and a bust finds what it reverses.

use market::Price;

use super::id_map::{ExecId, IdMap};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Execution {
    key: (ExecId, u32),
    pub(super) qty: u32,
    pub(super) price: Price,
    pub(super) is_busted: bool,
}

/// A ring of the last executions, and an index of them.
#[derive(Clone, Debug)]
pub(super) struct Executions {
    ring: Box<[Execution]>,
    index: IdMap<(ExecId, u32)>,
    /// Executions ever; the next one's position modulo the ring's length.
    count: u64,
}

impl Executions {
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let ring = vec![Execution::default(); capacity].into_boxed_slice();
        Self { ring, index: IdMap::new(capacity), count: 0 }
    }

    pub(super) fn find(&mut self, serial: u32, exec: ExecId) -> Option<&mut Execution> {
        let position = self.index.find((exec, serial))?;
        Some(&mut self.ring[position as usize])
    }

    pub(super) fn known(&self, serial: u32, exec: ExecId) -> Option<&Execution> {
        let position = self.index.find((exec, serial))?;
        Some(&self.ring[position as usize])
    }

    /// Remembers an execution that [`Executions::find`] did not know, in place of the oldest.
    pub(super) fn insert(&mut self, serial: u32, exec: ExecId, (qty, price): (u32, Price)) {
        let len = self.ring.len() as u64;
        let position = (self.count % len) as usize;
        if self.count >= len {
            self.index.remove(self.ring[position].key);
        }
        self.ring[position] = Execution { key: (exec, serial), qty, price, is_busted: false };
        self.index.insert((exec, serial), position as u32);
        self.count += 1;
    }
}
