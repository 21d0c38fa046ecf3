//! Writes the structures of a schema as Rust: one for each block, and for each message one that
//! has its root and its groups.
//!
//! The text is written plainly, because people read it and a test compares it. It is not formatted
//! by rustfmt, so the module that includes it says `#[rustfmt::skip]`.

use core::fmt::Write as _;

use super::composite::NumberAt;
use super::primitive::{ByteOrder, Primitive};
use super::{Constant, Field, GroupToken, Message, Presence, Schema, Token};

pub(super) fn generate(schema: &Schema, heading: &str) -> Result<String, String> {
    let mut out = Writer { schema, text: String::new() };
    out.heading(heading);
    out.header();
    for dimension in 0..schema.dimensions.len() {
        out.dimension(dimension);
    }
    for message in &schema.messages {
        out.message(message)?;
    }
    out.walk();
    Ok(out.text)
}

/// A group of a message, with its entry's name.
struct GroupOf<'a> {
    token: &'a GroupToken,
    entry: String,
    fields: Vec<&'a Field>,
}

struct Writer<'a> {
    schema: &'a Schema,
    text: String,
}

macro_rules! line {
    ($out:expr, $($text:tt)*) => {{
        // A string takes everything that is written to it.
        let _ = writeln!($out.text, $($text)*);
    }};
}

impl<'a> Writer<'a> {
    fn heading(&mut self, heading: &str) {
        for text in heading.lines() {
            line!(self, "{}", format!("//! {text}").trim_end());
        }
        line!(self, "//!");
        line!(self, "//! Written by `market::sbe::schema`; change the schema and run its test with UPDATE=1.");
        line!(self, "");
        // Messages without groups need nothing of groups.
        let groups = if self.schema.dimensions.is_empty() { ["", ""] } else { ["Dimension, ", "Group, "] };
        let [dimension, group] = groups;
        line!(self, "use crate::sbe::{{Block, {dimension}Extent, {group}MessageHead, SbeError, Value, Visitor}};");
        let order = match self.schema.byte_order {
            ByteOrder::Little => "little_endian",
            ByteOrder::Big => "big_endian",
        };
        line!(self, "use zerocopy::{{{order} as wire, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned}};");
        line!(self, "");
        line!(self, "/// The schema's number in message headers.");
        line!(self, "pub const SCHEMA_ID: u16 = {};", self.schema.id);
        line!(self, "/// The version of the schema.");
        line!(self, "pub const SCHEMA_VERSION: u16 = {};", self.schema.version);
    }

    fn header(&mut self) {
        let header = &self.schema.header;
        line!(self, "/// Bytes of a message's header.");
        line!(self, "pub const HEADER_LEN: usize = {};", header.len);
        line!(self, "");
        line!(self, "/// Splits a message into its header's numbers and what follows them.");
        line!(self, "#[inline]");
        line!(self, "pub fn split_head(message: &[u8]) -> Result<(MessageHead, &[u8]), SbeError> {{");
        line!(self, "    let Some((head, body)) = message.split_first_chunk::<HEADER_LEN>() else {{");
        line!(self, "        return Err(SbeError::HeaderShort);");
        line!(self, "    }};");
        let number = |number: Option<NumberAt>, otherwise: &str| match number {
            Some(number) if number.primitive.len() == 1 => format!("{}.into()", self.number(number, "head")),
            Some(number) => self.number(number, "head"),
            None => otherwise.to_owned(),
        };
        let block_len = number(header.block_len, "body.len()");
        let template = number(Some(header.template), "");
        let (schema, version) = (number(header.schema, "SCHEMA_ID"), number(header.version, "SCHEMA_VERSION"));
        line!(self, "    let head = MessageHead {{");
        let wide = header.block_len.is_some_and(|number| number.primitive.len() > 1);
        line!(self, "        block_len: {block_len}{},", if wide { ".into()" } else { "" });
        line!(self, "        template: {template},");
        line!(self, "        schema: {schema},");
        line!(self, "        version: {version},");
        line!(self, "    }};");
        line!(self, "    Ok((head, body))");
        line!(self, "}}");
        line!(self, "");
        line!(self, "/// The header of a message of this version, for who writes messages.");
        line!(self, "pub fn emit_head(template: u16, block_len: u16) -> [u8; HEADER_LEN] {{");
        line!(self, "    let mut head = [0; HEADER_LEN];");
        let header = &self.schema.header;
        let (template, block_len) = (Some(header.template), header.block_len);
        let numbers = [(template, "template"), (header.schema, "SCHEMA_ID"), (header.version, "SCHEMA_VERSION")];
        for (number, value) in [(block_len, "block_len")].into_iter().chain(numbers) {
            if let Some(number) = number {
                self.put(number, "head", value);
            }
        }
        if header.block_len.is_none() {
            line!(self, "    let _ = block_len;");
        }
        line!(self, "    head");
        line!(self, "}}");
    }

    /// The statement that writes a number of 16 bits at most to the array `to`.
    fn put(&mut self, number: NumberAt, to: &str, value: &str) {
        let (order, at) = (if self.schema.byte_order == ByteOrder::Little { "le" } else { "be" }, number.offset);
        match number.primitive.len() {
            1 => line!(self, "    {to}[{at}] = {value} as u8;"),
            _ => {
                let (kind, end) = (rust(number.primitive), at + number.primitive.len());
                let cast = if kind == "u16" { String::new() } else { format!(" as {kind}") };
                let value = if cast.is_empty() { value.to_owned() } else { format!("({value}{cast})") };
                line!(self, "    {to}[{at}..{end}].copy_from_slice(&{value}.to_{order}_bytes());");
            }
        }
    }

    /// The expression that reads a number of a composite out of the array `from`.
    fn number(&self, number: NumberAt, from: &str) -> String {
        let NumberAt { offset, primitive } = number;
        let bytes: Vec<_> = (offset..offset + primitive.len()).map(|at| format!("{from}[{at}]")).collect();
        if let [byte] = &bytes[..] {
            return byte.clone();
        }
        let order = if self.schema.byte_order == ByteOrder::Little { "le" } else { "be" };
        format!("{}::from_{order}_bytes([{}])", rust(primitive), bytes.join(", "))
    }

    fn dimension(&mut self, idx: usize) {
        let layout = &self.schema.dimensions[idx];
        let name = pascal(&layout.name);
        let (block_len, count) = (self.number(layout.block_len, "head"), self.number(layout.count, "head"));
        line!(self, "");
        line!(self, "/// The dimension `{}` of groups.", layout.name);
        line!(self, "#[derive(Clone, Copy, Debug)]");
        line!(self, "pub enum {name} {{}}");
        line!(self, "");
        line!(self, "impl Dimension for {name} {{");
        line!(self, "    const LEN: usize = {};", layout.len);
        line!(self, "");
        line!(self, "    #[inline]");
        line!(self, "    fn read(bytes: &[u8]) -> Option<(usize, usize)> {{");
        line!(self, "        let head = bytes.first_chunk::<{}>()?;", layout.len);
        line!(self, "        Some(({block_len}.into(), {count}.into()))");
        line!(self, "    }}");
        line!(self, "");
        line!(self, "    fn emit(block_len: u16, count: u16, out: &mut Vec<u8>) {{");
        line!(self, "    let mut head = [0; {}];", layout.len);
        let (block_len, count) = (layout.block_len, layout.count);
        self.put(block_len, "head", "block_len");
        self.put(count, "head", "count");
        line!(self, "    out.extend(head);");
        line!(self, "    }}");
        line!(self, "}}");
    }

    fn message(&mut self, message: &'a Message) -> Result<(), String> {
        let name = pascal(&message.name);
        let (root, groups) = self.parts(message)?;
        self.block(&format!("{name}Root"), &format!("The root of `{}`.", message.name), message, &root)?;
        for group in &groups {
            let doc = format!("An entry of `{}` in `{}`.", group.token.name, message.name);
            let base = Message { since: message.since.max(group.token.since), ..message.clone() };
            let of = Message { block_len: group.token.block_len, ..base };
            self.block(&group.entry, &doc, &of, &group.fields)?;
        }
        line!(self, "");
        line!(self, "/// The message `{}`.", message.name);
        line!(self, "#[derive(Clone, Debug)]");
        let life = if groups.is_empty() { "" } else { "<'a>" };
        line!(self, "pub struct {name}{life} {{");
        line!(self, "    /// Its fields.");
        line!(self, "    pub root: {name}Root,");
        for GroupOf { token, entry, .. } in &groups {
            line!(self, "    /// Its group `{}`.", token.name);
            line!(self, "    pub {}: Group<'a, {entry}>,", snake(&token.name));
        }
        line!(self, "}}");
        line!(self, "");
        line!(self, "impl{life} {name}{life} {{");
        line!(self, "    /// The template's number.");
        line!(self, "    pub const ID: u16 = {};", message.id);
        line!(self, "    /// Its name in the schema.");
        line!(self, "    pub const NAME: &'static str = {:?};", message.name);
        line!(self, "");
        line!(self, "    /// Checks the message's extent and reads its root. `body` follows the header.");
        line!(self, "    #[inline]");
        let body = if groups.is_empty() { "&[u8]" } else { "&'a [u8]" };
        line!(self, "    pub fn parse(head: MessageHead, body: {body}) -> Result<Self, SbeError> {{");
        let rest = if groups.is_empty() { "_" } else { "rest" };
        line!(self, "        let (root, {rest}) = head.split_root(body)?;");
        line!(self, "        let root = {name}Root::read(root)?;");
        for (idx, GroupOf { token, .. }) in groups.iter().enumerate() {
            let (field, dimension) = (snake(&token.name), pascal(&self.schema.dimensions[token.dimension].name));
            let rest = if idx + 1 == groups.len() { "_" } else { "rest" };
            if token.since > message.since {
                line!(self, "        let ({field}, {rest}) = if head.version < {} {{", token.since);
                line!(self, "            (Group::empty(), rest)");
                line!(self, "        }} else {{");
                line!(self, "            Group::split::<{dimension}>(rest)?");
                line!(self, "        }};");
            } else {
                line!(self, "        let ({field}, {rest}) = Group::split::<{dimension}>(rest)?;");
            }
        }
        let fields: Vec<_> = groups.iter().map(|group| format!(", {}", snake(&group.token.name))).collect();
        line!(self, "        Ok(Self {{ root{} }})", fields.concat());
        line!(self, "    }}");
        line!(self, "}}");
        Ok(())
    }

    /// The fields of the root, and the groups.
    fn parts(&self, message: &'a Message) -> Result<(Vec<&'a Field>, Vec<GroupOf<'a>>), String> {
        let (mut root, mut groups): (Vec<&Field>, Vec<GroupOf<'_>>) = (Vec::new(), Vec::new());
        let mut is_open = false;
        for token in &self.schema.tokens[message.tokens.clone()] {
            match token {
                Token::Group(_) if is_open => return Err(format!("{} has a group in a group", message.name)),
                Token::Group(token) => {
                    is_open = true;
                    let entry = format!("{}{}", pascal(&message.name), pascal(&singular(&token.name)));
                    groups.push(GroupOf { token, entry, fields: Vec::new() });
                }
                Token::EndGroup => is_open = false,
                Token::Field(field) => match groups.last_mut() {
                    Some(group) if is_open => group.fields.push(field),
                    _ => root.push(field),
                },
                Token::Data(data) => {
                    return Err(format!("{} has data {} of a variable length", message.name, data.name));
                }
            }
        }
        Ok((root, groups))
    }

    fn block(&mut self, name: &str, doc: &str, of: &Message, fields: &[&Field]) -> Result<(), String> {
        if let Some(float) = fields.iter().find(|field| field.primitive.is_float()) {
            return Err(format!("{} is a floating number", float.name));
        }
        let on_wire: Vec<_> = fields.iter().copied().filter(|field| !field.is_empty()).collect();
        line!(self, "");
        line!(self, "/// {doc}");
        line!(
            self,
            "#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]"
        );
        line!(self, "#[repr(C)]");
        line!(self, "pub struct {name} {{");
        let (mut at, mut nulls) = (0, Vec::new());
        for field in &on_wire {
            if field.offset > at {
                line!(self, "    /// Not used.");
                line!(self, "    pub pad_{at}: [u8; {}],", field.offset - at);
                nulls.push(format!("pad_{at}: [0; {}]", field.offset - at));
            }
            line!(self, "    /// `{}`.", field.name);
            line!(self, "    pub {}: {},", snake(&field.name), stored(field));
            nulls.push(format!("{}: {}", snake(&field.name), null(field)));
            at = field.offset + field.len();
        }
        line!(self, "}}");
        line!(self, "");
        line!(self, "const _: () = assert!(size_of::<{name}>() == {at}, \"a field is out of its place\");");
        self.accessors(name, of, fields);
        self.block_impl(name, of, fields, &nulls);
        Ok(())
    }

    /// What a structure offers beside its bytes: its length, constants, and what may be null.
    fn accessors(&mut self, name: &str, of: &Message, fields: &[&Field]) {
        line!(self, "");
        line!(self, "impl {name} {{");
        line!(self, "    /// Bytes of the block by the schema.");
        line!(self, "    pub const BLOCK_LEN: usize = {};", of.block_len);
        for field in fields {
            let Presence::Constant(value) = &field.presence else { continue };
            let (shout, kind) = (snake(&field.name).to_uppercase(), rust(field.primitive));
            line!(self, "    /// `{}`.", field.name);
            match value {
                Constant::Number(value) => line!(self, "    pub const {shout}: {kind} = {value};"),
                Constant::Text(text) => {
                    line!(self, "    pub const {shout}: &'static [u8] = b\"{}\";", text.escape_ascii());
                }
            }
        }
        for field in fields.iter().filter(|field| field.count == 1) {
            let Presence::Optional(null) = field.presence else { continue };
            line!(self, "");
            line!(self, "    /// `{}`, where it is not null.", field.name);
            line!(self, "    #[inline]");
            line!(self, "    pub fn {}(&self) -> Option<{}> {{", snake(&field.name), rust(field.primitive));
            line!(self, "        let value = {};", read(field));
            line!(self, "        (value != {}).then_some(value)", literal(field.primitive, null));
            line!(self, "    }}");
        }
        line!(self, "}}");
    }

    fn block_impl(&mut self, name: &str, of: &Message, fields: &[&Field], nulls: &[String]) {
        let on_wire: Vec<_> = fields.iter().filter(|field| !field.is_empty()).collect();
        let first_version = on_wire.iter().filter(|field| field.since <= of.since);
        let len_min = first_version.map(|field| field.offset + field.len()).max().unwrap_or(0);
        line!(self, "");
        line!(self, "impl Block for {name} {{");
        line!(self, "    const LEN_MIN: usize = {len_min};");
        line!(self, "    const NULL: Self = Self {{");
        for null in nulls {
            line!(self, "        {null},");
        }
        line!(self, "    }};");
        line!(self, "    const FIELDS: &'static [Extent] = &[");
        for field in &on_wire {
            line!(self, "        Extent {{ offset: {}, end: {} }},", field.offset, field.offset + field.len());
        }
        line!(self, "    ];");
        line!(self, "");
        let visitor = if fields.is_empty() { "_visitor" } else { "visitor" };
        line!(self, "    fn fields(&self, {visitor}: &mut dyn Visitor) {{");
        for field in fields {
            line!(self, "        visitor.field({:?}, {});", field.name, shown(field));
        }
        line!(self, "    }}");
        line!(self, "}}");
    }

    /// The function that shows any message, as [`Schema::walk`] does.
    fn walk(&mut self) {
        line!(self, "");
        line!(self, "/// Shows a message to `visitor`, as the runtime reader of the schema does.");
        line!(self, "pub fn walk(message: &[u8], visitor: &mut dyn Visitor) -> Result<(), SbeError> {{");
        line!(self, "    let (head, body) = split_head(message)?;");
        line!(self, "    if head.schema != SCHEMA_ID {{");
        line!(self, "        return Err(SbeError::OtherSchema(head.schema));");
        line!(self, "    }}");
        line!(self, "    match head.template {{");
        for message in &self.schema.messages {
            let name = pascal(&message.name);
            line!(self, "        {} => {{", message.id);
            line!(self, "            let message = {name}::parse(head, body)?;");
            line!(self, "            visitor.message({:?}, head.template, head.version);", message.name);
            line!(self, "            message.root.fields(visitor);");
            for token in &self.schema.tokens[message.tokens.clone()] {
                if let Token::Group(group) = token {
                    let show = "crate::sbe::show_group";
                    let field = format!("message.{}", snake(&group.name));
                    if group.since > message.since {
                        line!(self, "            if head.version >= {} {{", group.since);
                        line!(self, "                {show}({:?}, {field}, visitor);", group.name);
                        line!(self, "            }}");
                    } else {
                        line!(self, "            {show}({:?}, {field}, visitor);", group.name);
                    }
                }
            }
            line!(self, "        }}");
        }
        line!(self, "        other => return Err(SbeError::UnknownTemplate(other)),");
        line!(self, "    }}");
        line!(self, "    Ok(())");
        line!(self, "}}");
    }
}

fn rust(primitive: Primitive) -> &'static str {
    match primitive {
        Primitive::Char | Primitive::Uint8 => "u8",
        Primitive::Int8 => "i8",
        Primitive::Int16 => "i16",
        Primitive::Int32 => "i32",
        Primitive::Int64 => "i64",
        Primitive::Uint16 => "u16",
        Primitive::Uint32 => "u32",
        Primitive::Uint64 => "u64",
        Primitive::Float => "f32",
        Primitive::Double => "f64",
    }
}

/// The field's type in the structure.
fn stored(field: &Field) -> String {
    match (field.count, field.primitive.len()) {
        (1, 1) => rust(field.primitive).to_owned(),
        (1, _) => format!("wire::{}", rust(field.primitive).to_uppercase()),
        (count, _) => format!("[u8; {count}]"),
    }
}

fn literal(primitive: Primitive, value: i128) -> String {
    let extreme = |name: &str| format!("{}::{name}", rust(primitive));
    let bits = 8 * primitive.len() as u32;
    match (primitive.is_signed(), value) {
        _ if primitive == Primitive::Char => value.to_string(),
        (true, value) if value == (1 << (bits - 1)) - 1 => extreme("MAX"),
        (true, value) if value == -(1 << (bits - 1)) => extreme("MIN"),
        (false, value) if value == (1 << bits) - 1 => extreme("MAX"),
        _ => value.to_string(),
    }
}

fn null(field: &Field) -> String {
    let null = match field.presence {
        Presence::Optional(null) => null,
        _ => field.primitive.null(),
    };
    match (field.count, field.primitive.len()) {
        (1, 1) => literal(field.primitive, null),
        (1, _) => format!("{}::new({})", stored(field), literal(field.primitive, null)),
        (count, _) => format!("[0; {count}]"),
    }
}

/// The expression of the field's value.
fn read(field: &Field) -> String {
    let ident = snake(&field.name);
    if field.primitive.len() == 1 { format!("self.{ident}") } else { format!("self.{ident}.get()") }
}

/// The expression of the field's value for a visitor.
fn shown(field: &Field) -> String {
    let ident = snake(&field.name);
    let kind = if field.primitive.is_signed() { "Int" } else { "Uint" };
    let into = if field.primitive.len() < 8 { ".into()" } else { "" };
    match &field.presence {
        Presence::Constant(Constant::Text(text)) => return format!("Value::Bytes(b\"{}\")", text.escape_ascii()),
        Presence::Constant(Constant::Number(value)) => return format!("Value::{kind}({value})"),
        _ => {}
    }
    if field.count > 1 {
        return format!("Value::Bytes(&self.{ident})");
    }
    let some = match field.primitive {
        Primitive::Char => format!("Value::Bytes(core::slice::from_ref(&self.{ident}))"),
        _ => format!("Value::{kind}({}{into})", read(field)),
    };
    match field.presence {
        Presence::Optional(_) if field.primitive == Primitive::Char => {
            format!("if self.{ident}().is_some() {{ {some} }} else {{ Value::Null }}")
        }
        Presence::Optional(_) => {
            let widened = format!("|value| Value::{kind}(value.into())");
            let shown = if into.is_empty() { format!("Value::{kind}") } else { widened };
            format!("self.{ident}().map_or(Value::Null, {shown})")
        }
        _ => some,
    }
}

/// `MDEntryPx`, `price.mantissa` and `group_size` as a type's name.
fn pascal(name: &str) -> String {
    let mut out = String::new();
    let mut is_start = true;
    for letter in name.chars() {
        match letter {
            '.' | '_' => is_start = true,
            _ if is_start => {
                out.push(letter.to_ascii_uppercase());
                is_start = false;
            }
            _ => out.push(letter),
        }
    }
    out
}

/// The same as a field's name.
fn snake(name: &str) -> String {
    let mut out = String::new();
    let mut was_low = false;
    for letter in name.chars() {
        if letter == '.' || letter == '_' {
            out.push('_');
            was_low = false;
            continue;
        }
        if letter.is_ascii_uppercase() && was_low {
            out.push('_');
        }
        was_low = !letter.is_ascii_uppercase();
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// The name of one entry of a group: `orders` and `entries` without their plural.
fn singular(name: &str) -> String {
    if let Some(stem) = name.strip_suffix("ies") {
        return format!("{stem}y");
    }
    name.strip_suffix('s').unwrap_or(name).to_owned()
}
