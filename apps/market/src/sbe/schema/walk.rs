//! Any message of a schema, read by its tokens. For tools and tests: a field costs a match and a
//! call, and nothing is known at compile time.

use core::ops::Range;

use super::super::{MessageHead, SbeError, Value, Visitor};
use super::primitive::Primitive;
use super::{Constant, Field, GroupToken, Presence, Schema, Token};

impl Schema {
    /// The header's numbers, and what follows it.
    pub fn head<'a>(&self, message: &'a [u8]) -> Result<(MessageHead, &'a [u8]), SbeError> {
        let layout = &self.header;
        let Some((head, body)) = message.split_at_checked(layout.len) else { return Err(SbeError::HeaderShort) };
        let read = |number: Option<super::NumberAt>, otherwise: usize| {
            number.and_then(|number| number.read(head, self.byte_order)).unwrap_or(otherwise)
        };
        let head = MessageHead {
            block_len: read(layout.block_len, body.len()),
            template: read(Some(layout.template), 0) as u16,
            schema: read(layout.schema, self.id.into()) as u16,
            version: read(layout.version, self.version.into()) as u16,
        };
        Ok((head, body))
    }

    /// Shows a message to `visitor`: its name, fields, groups. The message may have been shown in
    /// part where an error is returned.
    pub fn walk(&self, message: &[u8], visitor: &mut dyn Visitor) -> Result<(), SbeError> {
        let (head, body) = self.head(message)?;
        if head.schema != self.id {
            return Err(SbeError::OtherSchema(head.schema));
        }
        let layout = self.message(head.template).ok_or(SbeError::UnknownTemplate(head.template))?;
        visitor.message(&layout.name, head.template, head.version);
        let (root, rest) = head.split_root(body)?;
        self.block(root, layout.tokens.clone(), layout.since, visitor)?;
        self.behind_block(rest, layout.tokens.clone(), (layout.since, head.version), visitor)?;
        Ok(())
    }

    /// The fields of one block.
    fn block(&self, block: &[u8], tokens: Range<usize>, base: u16, visitor: &mut dyn Visitor) -> Result<(), SbeError> {
        let fields = || {
            self.tokens[tokens.clone()].iter().map_while(|token| match token {
                Token::Field(field) => Some(field),
                _ => None,
            })
        };
        let first_version = fields().filter(|field| field.since <= base);
        let needed = first_version.map(|field| field.offset + field.len()).max().unwrap_or(0);
        if block.len() < needed {
            return Err(SbeError::BlockShort { needed, found: block.len() });
        }
        for field in fields() {
            visitor.field(&field.name, self.value(block, field));
        }
        Ok(())
    }

    /// The groups and data after a block; returns the bytes that are left.
    fn behind_block<'a>(
        &self,
        mut rest: &'a [u8],
        tokens: Range<usize>,
        (base, version): (u16, u16),
        visitor: &mut dyn Visitor,
    ) -> Result<&'a [u8], SbeError> {
        let mut at = tokens.start;
        while at < tokens.end {
            match &self.tokens[at] {
                Token::Field(_) | Token::EndGroup => at += 1,
                Token::Group(group) => {
                    if group.since <= version {
                        rest = self.group(rest, at + 1, group, (base.max(group.since), version), visitor)?;
                    }
                    at = group.end + 1;
                }
                Token::Data(data) => {
                    if data.since <= version {
                        let len = data.layout.length.read(rest, self.byte_order).ok_or(SbeError::DataOverrun)?;
                        let (bytes, behind) =
                            rest[data.layout.offset..].split_at_checked(len).ok_or(SbeError::DataOverrun)?;
                        visitor.field(&data.name, Value::Bytes(bytes));
                        rest = behind;
                    }
                    at += 1;
                }
            }
        }
        Ok(rest)
    }

    fn group<'a>(
        &self,
        bytes: &'a [u8],
        first: usize,
        group: &GroupToken,
        versions: (u16, u16),
        visitor: &mut dyn Visitor,
    ) -> Result<&'a [u8], SbeError> {
        let layout = &self.dimensions[group.dimension];
        let Some((head, mut rest)) = bytes.split_at_checked(layout.len) else {
            return Err(SbeError::BlockShort { needed: layout.len, found: bytes.len() });
        };
        let read = |number: super::NumberAt| number.read(head, self.byte_order).unwrap_or(0);
        let (block_len, count) = (read(layout.block_len), read(layout.count));
        if block_len * count > rest.len() {
            return Err(SbeError::GroupOverrun { needed: block_len * count, found: rest.len() });
        }
        visitor.group(&group.name, count);
        for _ in 0..count {
            visitor.entry();
            let short = SbeError::BlockShort { needed: block_len, found: rest.len() };
            let (block, behind) = rest.split_at_checked(block_len).ok_or(short)?;
            self.block(block, first..group.end, versions.0, visitor)?;
            rest = self.behind_block(behind, first..group.end, versions, visitor)?;
        }
        visitor.end_group();
        Ok(rest)
    }

    fn value<'a>(&self, block: &'a [u8], field: &'a Field) -> Value<'a> {
        match &field.presence {
            Presence::Constant(Constant::Text(text)) => return Value::Bytes(text),
            Presence::Constant(Constant::Number(value)) => return number(field.primitive, *value),
            _ => {}
        }
        let Some(bytes) = block.get(field.offset..field.offset + field.len()) else { return Value::Null };
        if field.count > 1 {
            return Value::Bytes(bytes);
        }
        let value = field.primitive.read(bytes, self.byte_order);
        match field.presence {
            Presence::Optional(null) if !field.primitive.is_float() && value == null => Value::Null,
            _ if field.primitive == Primitive::Char => Value::Bytes(bytes),
            _ => number(field.primitive, value),
        }
    }
}

fn number<'a>(primitive: Primitive, value: i128) -> Value<'a> {
    match primitive {
        Primitive::Float => Value::Float(f32::from_bits(value as u32).into()),
        Primitive::Double => Value::Float(f64::from_bits(value as u64)),
        _ if primitive.is_signed() => Value::Int(value as i64),
        _ => Value::Uint(value as u64),
    }
}
