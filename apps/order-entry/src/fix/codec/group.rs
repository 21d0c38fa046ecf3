//! Repeating groups: a count, and as many entries that each begin with the same field.
//!
//! The caller names the group's fields, because only a dictionary knows where the last entry ends.

use super::index::{Field, Message};
use super::{Decimal, digits};

/// Why a group is not what its count and its fields say: values of SessionRejectReason (373).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupError {
    /// The count is no number (6).
    Format,
    /// An entry does not begin with the group's first field (15).
    Order,
    /// More or fewer entries than the count says (16).
    Count,
}

/// The entries of a group.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    message: Message<'a>,
    fields: &'a [Field],
    first_tag: u32,
}

/// One entry of a group.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    message: Message<'a>,
    fields: &'a [Field],
}

impl<'a> Message<'a> {
    /// The entries of the group whose count is the field `count_tag`. `members` are the tags of its
    /// entries, the first of each entry in front, those of groups within it too. No entries where
    /// the count is absent or zero.
    pub fn group(&self, count_tag: u32, members: &[u32]) -> Result<Entries<'a>, GroupError> {
        group(*self, self.fields(), count_tag, members)
    }
}

impl<'a> Entry<'a> {
    /// The fields of the entry, in their order.
    pub const fn fields(&self) -> &'a [Field] {
        self.fields
    }

    /// The value of the first field of the entry with this tag.
    pub fn get(&self, tag: u32) -> Option<&'a [u8]> {
        self.fields.iter().find(|field| field.tag() == tag).map(|field| self.message.value(*field))
    }

    /// That value as a price or quantity.
    pub fn decimal(&self, tag: u32) -> Option<Decimal> {
        Decimal::parse(self.get(tag)?)
    }

    /// A group within the entry, as [`Message::group`] has it.
    pub fn group(&self, count_tag: u32, members: &[u32]) -> Result<Entries<'a>, GroupError> {
        group(self.message, self.fields, count_tag, members)
    }
}

fn group<'a>(
    message: Message<'a>,
    fields: &'a [Field],
    count_tag: u32,
    members: &[u32],
) -> Result<Entries<'a>, GroupError> {
    let first_tag = members.first().copied().unwrap_or(0);
    let Some(at) = fields.iter().position(|field| field.tag() == count_tag) else {
        return Ok(Entries { message, fields: &[], first_tag });
    };
    let count = digits::parse(message.value(fields[at])).ok_or(GroupError::Format)?;
    let behind = &fields[at + 1..];
    let len = behind.iter().position(|field| !members.contains(&field.tag())).unwrap_or(behind.len());
    let fields = &behind[..len];
    if fields.first().is_some_and(|field| field.tag() != first_tag) {
        return Err(GroupError::Order);
    }
    if fields.iter().filter(|field| field.tag() == first_tag).count() as u64 != count {
        return Err(GroupError::Count);
    }
    Ok(Entries { message, fields, first_tag })
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let (_, behind) = self.fields.split_first()?;
        let next = behind.iter().position(|field| field.tag() == self.first_tag).unwrap_or(behind.len());
        let (fields, rest) = self.fields.split_at(next + 1);
        self.fields = rest;
        Some(Entry { message: self.message, fields })
    }
}
