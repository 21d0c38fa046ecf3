//! Requests that stand in a journal. Each was permitted when it was sent, and the venue may have
//! it: what is not known here must not lose it.

use market::{Price, Side};

use super::table::{OrderTable, RequestError};
use crate::risk::InstrumentIdx;

impl OrderTable {
    /// [`OrderTable::open`] of an order that was sent, also of a blocked instrument: a block stops
    /// what comes behind the journal.
    pub(crate) fn restore_order(
        &mut self,
        id: u64,
        of: (InstrumentIdx, Side),
        terms: (u32, Price),
        now_ns: u64,
    ) -> Result<usize, RequestError> {
        let slot = self.slot_for(id)?;
        self.open_in(slot, id, of, terms, now_ns);
        Ok(slot)
    }

    /// [`OrderTable::request_replace`] of one that was sent, past a block in the same way. It shows
    /// that a cancel before it was over: the status that ended the wait for an answer ends none
    /// here, because times of questions are not in the journal.
    pub(crate) fn restore_replace(
        &mut self,
        slot: usize,
        id: u64,
        terms: (u32, Price),
        now_ns: u64,
    ) -> Result<(), RequestError> {
        self.replaceable(slot, id)?;
        self.orders[slot].cancel_sent_ns = None;
        self.push_replace(slot, id, terms, now_ns);
        Ok(())
    }
}
