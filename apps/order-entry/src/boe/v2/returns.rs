//! Which optional fields the venue's messages return, as a login asks for them.

use super::FieldId;
use super::tables::RETURN;

/// The groups of a login that ask for optional fields, one for each type of message. Built once, at
/// the start.
///
/// ```
/// use order_entry::boe::v2::{FieldId, OrderAcknowledgment, OrderExecution, ReturnFields};
///
/// let fields = ReturnFields::new()
///     .ask(OrderAcknowledgment::KIND, &[FieldId::LeavesQuantity, FieldId::WorkingPrice])
///     .and_then(|fields| fields.ask(OrderExecution::KIND, &[FieldId::FeeCode]));
/// assert!(fields.is_some());
/// ```
#[derive(Clone, Debug, Default)]
pub struct ReturnFields {
    count: u8,
    groups: Vec<u8>,
}

impl ReturnFields {
    /// No field of any message.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for `fields` in messages of type `kind`; `None` where the venue's messages cannot
    /// return one of them, or there are 254 groups already.
    #[must_use]
    pub fn ask(mut self, kind: u8, fields: &[FieldId]) -> Option<Self> {
        let mut bits = [0u8; RETURN.len()];
        let mut len = 0;
        for id in fields {
            let (byte, row) = RETURN.iter().enumerate().find(|(_, row)| row.contains(&Some(*id)))?;
            let bit = row.iter().position(|slot| *slot == Some(*id))?;
            bits[byte] |= 1 << bit;
            len = len.max(byte + 1);
        }
        self.count = self.count.checked_add(1).filter(|&count| count < u8::MAX)?;
        let group_len = u16::try_from(5 + len).ok()?;
        self.groups.extend(group_len.to_le_bytes());
        self.groups.extend([0x81, kind, u8::try_from(len).ok()?]);
        self.groups.extend(&bits[..len]);
        Some(self)
    }

    /// The number of groups, and the groups.
    pub(in crate::boe) fn into_groups(self) -> (u8, Box<[u8]>) {
        (self.count, self.groups.into_boxed_slice())
    }
}
