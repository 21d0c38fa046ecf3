//! XML to tokens.

use roxmltree::{Document, Node};

use super::composite::{DataLayout, DimensionLayout, HeaderLayout, NumberAt};
use super::primitive::{ByteOrder, Primitive};
use super::types::Types;
use super::{DataToken, Field, GroupToken, Message, Schema, SchemaError, Token};

/// An error at an element.
pub(super) struct Fault<'a, 'input> {
    node: Node<'a, 'input>,
    reason: String,
}

impl<'a, 'input> Fault<'a, 'input> {
    pub(super) fn new(node: Node<'a, 'input>, reason: String) -> Self {
        Self { node, reason }
    }
}

pub(super) fn parse(xml: &str) -> Result<Schema, SchemaError> {
    let document = Document::parse(xml).map_err(|error| SchemaError {
        line: error.pos().row,
        column: error.pos().col,
        reason: error.to_string(),
    })?;
    let mut reader = Reader { types: Types::new(document.root_element()), dimensions: Vec::new() };
    let result = reader.read(document.root_element());
    result.map_err(|Fault { node, reason }| {
        let at = document.text_pos_at(node.range().start);
        SchemaError { line: at.row, column: at.col, reason }
    })
}

/// An attribute that must be there.
pub(super) fn attribute<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Result<&'a str, Fault<'a, 'input>> {
    let missing = || Fault::new(node, format!("{} has no attribute {name}", node.tag_name().name()));
    node.attribute(name).ok_or_else(missing)
}

/// An attribute that is a number, or `otherwise`.
pub(super) fn number_or<'a, 'input>(
    node: Node<'a, 'input>,
    name: &str,
    otherwise: i128,
) -> Result<i128, Fault<'a, 'input>> {
    let Some(text) = node.attribute(name) else { return Ok(otherwise) };
    number(text).ok_or_else(|| Fault::new(node, format!("{name} is {text:?} and not a number")))
}

/// A number, or the code of a single character.
pub(super) fn number(text: &str) -> Option<i128> {
    match text.as_bytes() {
        &[byte] if !byte.is_ascii_digit() => Some(byte.into()),
        _ => text.parse().ok(),
    }
}

struct Reader<'a, 'input> {
    types: Types<'a, 'input>,
    dimensions: Vec<DimensionLayout>,
}

impl<'a, 'input> Reader<'a, 'input> {
    fn read(&mut self, root: Node<'a, 'input>) -> Result<Schema, Fault<'a, 'input>> {
        if root.tag_name().name() != "messageSchema" {
            return Err(Fault::new(root, "the root of a schema is messageSchema".to_owned()));
        }
        let header = root.attribute("headerType").unwrap_or("messageHeader");
        let byte_order = match root.attribute("byteOrder") {
            None | Some("littleEndian") => ByteOrder::Little,
            Some("bigEndian") => ByteOrder::Big,
            Some(other) => return Err(Fault::new(root, format!("there is no byte order {other}"))),
        };
        let (mut messages, mut tokens) = (Vec::new(), Vec::new());
        for node in root.children().filter(|node| node.tag_name().name() == "message") {
            messages.push(self.message(node, &mut tokens)?);
        }
        Ok(Schema {
            package: root.attribute("package").unwrap_or_default().to_owned(),
            id: number_or(root, "id", 0)? as u16,
            version: number_or(root, "version", 0)? as u16,
            byte_order,
            header: self.header(root, header)?,
            dimensions: core::mem::take(&mut self.dimensions),
            messages,
            tokens,
        })
    }

    fn message(&mut self, node: Node<'a, 'input>, tokens: &mut Vec<Token>) -> Result<Message, Fault<'a, 'input>> {
        let begin = tokens.len();
        let since = number_or(node, "sinceVersion", 0)? as u16;
        let block_len = self.block(node, since, tokens)?;
        Ok(Message {
            id: number_or(node, "id", 0)? as u16,
            name: attribute(node, "name")?.to_owned(),
            block_len,
            since,
            tokens: begin..tokens.len(),
        })
    }

    /// The fields, groups and data of a message or a group; returns the block's length.
    fn block(
        &mut self,
        node: Node<'a, 'input>,
        base: u16,
        tokens: &mut Vec<Token>,
    ) -> Result<usize, Fault<'a, 'input>> {
        let mut end = 0;
        for child in node.children().filter(Node::is_element) {
            match child.tag_name().name() {
                "field" => {
                    let offset = number_or(child, "offset", end as i128)? as usize;
                    if offset < end && child.attribute("offset").is_some() && self.is_on_wire(child, base)? {
                        return Err(Fault::new(child, format!("the field begins at {offset}, within another")));
                    }
                    let (fields, field_end) = self.types.fields(child, offset, base)?;
                    end = end.max(field_end);
                    tokens.extend(fields.into_iter().map(Token::Field));
                }
                "group" => self.group(child, base, tokens)?,
                "data" => tokens.push(Token::Data(self.data(child)?)),
                _ => {}
            }
        }
        let declared = number_or(node, "blockLength", end as i128)? as usize;
        if declared < end {
            return Err(Fault::new(node, format!("blockLength is {declared} and the fields have {end} bytes")));
        }
        Ok(declared)
    }

    fn is_on_wire(&self, node: Node<'a, 'input>, base: u16) -> Result<bool, Fault<'a, 'input>> {
        Ok(self.types.fields(node, 0, base)?.0.iter().any(|field| !field.is_empty()))
    }

    fn group(&mut self, node: Node<'a, 'input>, base: u16, tokens: &mut Vec<Token>) -> Result<(), Fault<'a, 'input>> {
        let named = node.attribute("dimensionType").unwrap_or("groupSizeEncoding");
        let at = tokens.len();
        let since = number_or(node, "sinceVersion", 0)? as u16;
        let dimension = self.dimension(node, named)?;
        let name = attribute(node, "name")?.to_owned();
        tokens.push(Token::Group(GroupToken { name, block_len: 0, dimension, since, end: 0 }));
        let len = self.block(node, base.max(since), tokens)?;
        let last = tokens.len();
        tokens.push(Token::EndGroup);
        if let Token::Group(group) = &mut tokens[at] {
            (group.block_len, group.end) = (len, last);
        }
        Ok(())
    }

    fn dimension(&mut self, at: Node<'a, 'input>, name: &str) -> Result<usize, Fault<'a, 'input>> {
        if let Some(known) = self.dimensions.iter().position(|dimension| dimension.name == name) {
            return Ok(known);
        }
        let members = self.composite(at, name)?;
        let layout = DimensionLayout {
            name: name.to_owned(),
            len: length(&members),
            block_len: find(at, name, &members, "blockLength")?,
            count: find(at, name, &members, "numInGroup")?,
        };
        self.dimensions.push(layout);
        Ok(self.dimensions.len() - 1)
    }

    fn data(&self, node: Node<'a, 'input>) -> Result<DataToken, Fault<'a, 'input>> {
        let kind = attribute(node, "type")?;
        let composite = self.types.find(kind);
        let Some(composite) = composite else { return Err(Fault::new(node, format!("there is no type {kind}"))) };
        // Its data has no length of its own: everything before it is the composite's front.
        let lengths = composite.children().filter(|child| child.attribute("name") == Some("length"));
        let mut lengths = lengths.filter_map(|child| Primitive::named(child.attribute("primitiveType")?));
        let Some(primitive) = lengths.next() else {
            return Err(Fault::new(composite, format!("{kind} has no length")));
        };
        Ok(DataToken {
            name: attribute(node, "name")?.to_owned(),
            layout: DataLayout { length: NumberAt { offset: 0, primitive }, offset: primitive.len() },
            since: number_or(node, "sinceVersion", 0)? as u16,
        })
    }

    fn header(&self, root: Node<'a, 'input>, name: &str) -> Result<HeaderLayout, Fault<'a, 'input>> {
        let members = self.composite(root, name)?;
        let optional = |field: &str| find(root, name, &members, field).ok();
        Ok(HeaderLayout {
            len: length(&members),
            block_len: optional("blockLength"),
            template: find(root, name, &members, "templateId")?,
            schema: optional("schemaId"),
            version: optional("version"),
        })
    }

    fn composite(&self, at: Node<'a, 'input>, name: &str) -> Result<Vec<Field>, Fault<'a, 'input>> {
        let Some(node) = self.types.find(name) else {
            return Err(Fault::new(at, format!("there is no composite {name}")));
        };
        self.types.composite_fields(node)
    }
}

/// Bytes of a composite.
fn length(members: &[Field]) -> usize {
    members.iter().map(|member| member.offset + member.len()).max().unwrap_or(0)
}

fn find<'a, 'input>(
    at: Node<'a, 'input>,
    composite: &str,
    members: &[Field],
    name: &str,
) -> Result<NumberAt, Fault<'a, 'input>> {
    let member = members.iter().find(|member| member.name == name);
    let missing = || Fault::new(at, format!("{composite} has no {name}"));
    member.map(|member| NumberAt { offset: member.offset, primitive: member.primitive }).ok_or_else(missing)
}
