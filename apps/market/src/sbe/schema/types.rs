//! A schema's types by name, and fields made of them: composites become one field for each member
//! that is on the wire.

use roxmltree::Node;

use super::parse::{Fault, attribute, number, number_or};
use super::primitive::Primitive;
use super::{Constant, Field, Presence};

/// The types of one schema, as elements.
pub(super) struct Types<'a, 'input> {
    elements: Vec<Node<'a, 'input>>,
}

/// A member of a type, relative to it.
struct Member {
    /// Its path below the field; empty for the field itself.
    path: String,
    primitive: Primitive,
    count: usize,
    offset: usize,
    presence: Presence,
}

impl Member {
    fn len(&self) -> usize {
        if matches!(self.presence, Presence::Constant(_)) { 0 } else { self.primitive.len() * self.count }
    }
}

impl<'a, 'input> Types<'a, 'input> {
    /// All elements below `types` elements.
    pub(super) fn new(root: Node<'a, 'input>) -> Self {
        let tables = root.children().filter(|node| node.tag_name().name() == "types");
        Self { elements: tables.flat_map(|table| table.children()).filter(Node::is_element).collect() }
    }

    pub(super) fn find(&self, name: &str) -> Option<Node<'a, 'input>> {
        self.elements.iter().copied().find(|node| node.attribute("name") == Some(name))
    }

    /// The fields that the element `node` of a block means, placed at `offset`, and one past their
    /// last byte.
    pub(super) fn fields(
        &self,
        node: Node<'a, 'input>,
        offset: usize,
        base: u16,
    ) -> Result<(Vec<Field>, usize), Fault<'a, 'input>> {
        let (name, kind) = (attribute(node, "name")?, attribute(node, "type")?);
        let mut members = self.members(kind, node)?;
        if node.attribute("presence") == Some("optional") {
            for member in members.iter_mut().filter(|member| member.presence == Presence::Required) {
                member.presence = Presence::Optional(member.primitive.null());
            }
        }
        if node.attribute("presence") == Some("constant") {
            self.make_constant(node, &mut members)?;
        }
        let since = number_or(node, "sinceVersion", 0)? as u16;
        let on_wire = members.iter().filter(|member| member.len() > 0).count();
        let end = offset + members.iter().map(|member| member.offset + member.len()).max().unwrap_or(0);
        let field = |member: Member| {
            let is_only = member.path.is_empty() || on_wire == 1 && member.len() > 0;
            let later = since > base && member.presence == Presence::Required;
            Field {
                name: if is_only { name.to_owned() } else { format!("{name}.{}", member.path) },
                primitive: member.primitive,
                count: member.count,
                offset: offset + member.offset,
                presence: if later { Presence::Optional(member.primitive.null()) } else { member.presence },
                since,
            }
        };
        Ok((members.into_iter().map(field).collect(), end))
    }

    /// A field that is constant itself: its value is that of an enum, or its text.
    fn make_constant(&self, node: Node<'a, 'input>, members: &mut [Member]) -> Result<(), Fault<'a, 'input>> {
        for member in members.iter_mut().filter(|member| !matches!(member.presence, Presence::Constant(_))) {
            member.presence = Presence::Constant(self.constant(node, member.primitive)?);
        }
        Ok(())
    }

    fn members(&self, kind: &str, at: Node<'a, 'input>) -> Result<Vec<Member>, Fault<'a, 'input>> {
        if let Some(primitive) = Primitive::named(kind) {
            let presence = Presence::Required;
            return Ok(vec![Member { path: String::new(), primitive, count: 1, offset: 0, presence }]);
        }
        let Some(node) = self.find(kind) else { return Err(Fault::new(at, format!("there is no type {kind}"))) };
        self.members_of(node)
    }

    fn members_of(&self, node: Node<'a, 'input>) -> Result<Vec<Member>, Fault<'a, 'input>> {
        match node.tag_name().name() {
            "type" => Ok(vec![self.simple(node)?]),
            "enum" | "set" => self.members(attribute(node, "encodingType")?, node),
            "ref" => self.members(attribute(node, "type")?, node),
            "composite" => self.composite(node),
            other => Err(Fault::new(node, format!("{other} is no type of a schema"))),
        }
    }

    /// The members of a composite, as fields of their own names.
    pub(super) fn composite_fields(&self, node: Node<'a, 'input>) -> Result<Vec<Field>, Fault<'a, 'input>> {
        let field = |member: Member| Field {
            name: member.path,
            primitive: member.primitive,
            count: member.count,
            offset: member.offset,
            presence: member.presence,
            since: 0,
        };
        Ok(self.composite(node)?.into_iter().map(field).collect())
    }

    fn composite(&self, node: Node<'a, 'input>) -> Result<Vec<Member>, Fault<'a, 'input>> {
        let (mut members, mut end) = (Vec::new(), 0);
        for child in node.children().filter(Node::is_element) {
            let name = attribute(child, "name")?;
            let offset = number_or(child, "offset", end as i128)? as usize;
            for mut member in self.members_of(child)? {
                member.offset += offset;
                member.path = if member.path.is_empty() { name.to_owned() } else { format!("{name}.{}", member.path) };
                end = end.max(member.offset + member.len());
                members.push(member);
            }
        }
        Ok(members)
    }

    fn simple(&self, node: Node<'a, 'input>) -> Result<Member, Fault<'a, 'input>> {
        let named = attribute(node, "primitiveType")?;
        let Some(primitive) = Primitive::named(named) else {
            return Err(Fault::new(node, format!("there is no primitive type {named}")));
        };
        let count = number_or(node, "length", 1)? as usize;
        let presence = match node.attribute("presence") {
            Some("constant") => Presence::Constant(self.constant(node, primitive)?),
            Some("optional") => Presence::Optional(number_or(node, "nullValue", primitive.null())?),
            _ => Presence::Required,
        };
        if count > 1 && primitive.len() > 1 && !matches!(presence, Presence::Constant(_)) {
            return Err(Fault::new(node, "an array of numbers is not read: only arrays of bytes are".to_owned()));
        }
        Ok(Member { path: String::new(), primitive, count, offset: 0, presence })
    }

    /// The value of a constant: an enum's, where `valueRef` names it, or the element's text.
    fn constant(&self, node: Node<'a, 'input>, primitive: Primitive) -> Result<Constant, Fault<'a, 'input>> {
        let text = match node.attribute("valueRef") {
            Some(reference) => self.referred(node, reference)?,
            None => node.text().unwrap_or_default(),
        };
        if primitive == Primitive::Char {
            return Ok(Constant::Text(text.trim().as_bytes().to_vec()));
        }
        let value = number(text.trim()).ok_or_else(|| Fault::new(node, format!("{text:?} is no number")))?;
        Ok(Constant::Number(value))
    }

    fn referred(&self, node: Node<'a, 'input>, reference: &str) -> Result<&'a str, Fault<'a, 'input>> {
        let found = reference.split_once('.').and_then(|(kind, value)| {
            let mut values = self.find(kind)?.children();
            values.find(|child| child.attribute("name") == Some(value))?.text()
        });
        found.ok_or_else(|| Fault::new(node, format!("there is no value {reference}")))
    }
}
