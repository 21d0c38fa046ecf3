//! Executions of the day: each counts once, and a bust finds what it reverses.

use market::Price;

use super::id_map::{ExecId, IdMap};

/// What an execution is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// Shares and price.
    Counts(u32, Price),
    /// What it had, which counts no more.
    Busted(u32, Price),
    /// That of the execution at this place of the ring, a later one: its correction.
    Corrected(u32),
}

#[derive(Clone, Copy, Debug)]
struct Execution {
    key: (ExecId, u32),
    worth: Worth,
}

/// A ring of the last executions, and an index of them. A correction is an execution of its own, to
/// which those before it lead: later messages may name any of them.
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
        let empty = Execution { key: (ExecId::default(), 0), worth: Worth::Counts(0, Price(0)) };
        Self { ring: vec![empty; capacity].into_boxed_slice(), index: IdMap::new(capacity), count: 0 }
    }

    /// The worth of an execution, or of its last correction: never [`Worth::Corrected`]. Costs a
    /// step for each correction.
    pub(super) fn find(&self, serial: u32, exec: ExecId) -> Option<Worth> {
        self.place(serial, exec).map(|place| self.ring[place].worth)
    }

    /// Whether the order has had an execution, or a correction, of this id.
    pub(super) fn is_known(&self, serial: u32, exec: ExecId) -> bool {
        self.index.find((exec, serial)).is_some()
    }

    /// Whether the execution leads to a correction of it.
    pub(super) fn is_corrected(&self, serial: u32, exec: ExecId) -> bool {
        let place = self.index.find((exec, serial));
        place.is_some_and(|place| matches!(self.ring[place as usize].worth, Worth::Corrected(_)))
    }

    /// Changes what [`Executions::find`] has found.
    pub(super) fn set(&mut self, serial: u32, exec: ExecId, worth: Worth) {
        if let Some(place) = self.place(serial, exec) {
            self.ring[place].worth = worth;
        }
    }

    /// Remembers an execution that is not [known](Executions::is_known), in place of the oldest.
    pub(super) fn insert(&mut self, serial: u32, exec: ExecId, (qty, price): (u32, Price)) {
        let place = self.next();
        if self.count >= self.ring.len() as u64 {
            self.index.remove(self.ring[place].key);
        }
        self.ring[place] = Execution { key: (exec, serial), worth: Worth::Counts(qty, price) };
        self.index.insert((exec, serial), place as u32);
        self.count += 1;
    }

    /// Remembers that the execution `old`, which was found, is the one called `new` by now. The
    /// newer one outlives the older in the ring, so no step leads to another order's.
    pub(super) fn correct(&mut self, serial: u32, (old, new): (ExecId, ExecId), terms: (u32, Price)) {
        if self.is_known(serial, new) {
            return self.set(serial, old, Worth::Counts(terms.0, terms.1));
        }
        self.set(serial, old, Worth::Corrected(self.next() as u32));
        self.insert(serial, new, terms);
    }

    /// Whether the ring has lost one: an execution that is not found may be an old one.
    pub(super) const fn has_forgotten(&self) -> bool {
        self.count > self.ring.len() as u64
    }

    fn next(&self) -> usize {
        (self.count % self.ring.len() as u64) as usize
    }

    fn place(&self, serial: u32, exec: ExecId) -> Option<usize> {
        let mut place = self.index.find((exec, serial))? as usize;
        while let Worth::Corrected(by) = self.ring[place].worth {
            place = by as usize;
        }
        Some(place)
    }
}
