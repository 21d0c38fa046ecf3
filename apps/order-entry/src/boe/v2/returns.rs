//! Which optional fields the venue's messages return, as a login asks for them.

use super::FieldId;
use super::tables::RETURN;
use crate::boe::{BoeError, LoginRequest};

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

    /// What a login asks for, at the venue.
    ///
    /// # Errors
    ///
    /// A bit that names no field: refuse the login with `F`.
    pub fn of_login(login: &LoginRequest<'_>) -> Result<Self, BoeError> {
        let (count, groups) = login.returns;
        let returns = Self { count, groups: groups.to_vec() };
        for (_, bits) in returns.each() {
            for (byte, &bits) in (0u8..).zip(bits) {
                let row = RETURN.get(usize::from(byte)).ok_or(BoeError::Bitfield { byte, bit: 0 })?;
                let unknown = (0u8..8).find(|&bit| bits & (1 << bit) != 0 && row[usize::from(bit)].is_none());
                unknown.map_or(Ok(()), |bit| Err(BoeError::Bitfield { byte, bit }))?;
            }
        }
        Ok(returns)
    }

    /// The fields that messages of type `kind` are to return.
    pub fn asked(&self, kind: u8) -> impl Iterator<Item = FieldId> {
        let bits = self.each().find(|&(of, _)| of == kind).map_or(&[][..], |(_, bits)| bits);
        RETURN.iter().zip(bits).flat_map(|(row, &bits)| {
            (0u8..8).zip(row).filter(move |&(bit, _)| bits & (1 << bit) != 0).filter_map(|(_, slot)| *slot)
        })
    }

    /// Type and bitfields of each group.
    fn each(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut rest = &self.groups[..];
        core::iter::from_fn(move || {
            let &[low, high, _, kind, _] = rest.first_chunk::<5>()?;
            let len = usize::from(u16::from_le_bytes([low, high]));
            let (group, after) = rest.split_at_checked(len)?;
            rest = after;
            Some((kind, group.get(5..)?))
        })
    }

    /// The number of groups, and the groups.
    pub(in crate::boe) fn into_groups(self) -> (u8, Box<[u8]>) {
        (self.count, self.groups.into_boxed_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boe::{Credentials, UnspecifiedUnits};

    #[test]
    fn venue_reads_which_fields_a_login_asks_for() {
        let fields = [FieldId::Side, FieldId::LeavesQuantity];
        let (count, groups) = ReturnFields::new().ask(0x25, &[]).unwrap().ask(0x2c, &fields).unwrap().into_groups();
        let credentials = Credentials::new("USER", "1", "SECRET").unwrap();
        let login = |groups| LoginRequest {
            credentials,
            unspecified: UnspecifiedUnits::Replay,
            units: &[],
            returns: (count, groups),
        };
        let returns = ReturnFields::of_login(&login(&groups)).unwrap();
        assert_eq!(returns.asked(0x2c).collect::<Vec<_>>(), fields);
        assert_eq!((returns.asked(0x25).count(), returns.asked(0x26).count()), (0, 0));
        // The highest bit of the first bitfield names nothing.
        let unknown = [6, 0, 0x81, 0x25, 1, 0x80];
        assert_eq!(ReturnFields::of_login(&login(&unknown)).unwrap_err(), BoeError::Bitfield { byte: 0, bit: 7 });
    }
}
