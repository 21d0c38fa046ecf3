//! SBE schemas at run time: the XML as a flat list of tokens, messages read by it, and the
//! generator of the hot path's structures.
//!
//! ```
//! use market::sbe::schema::Schema;
//!
//! let xml = r#"<messageSchema package="p" id="1" version="0" byteOrder="littleEndian">
//!   <types>
//!     <composite name="messageHeader">
//!       <type name="blockLength" primitiveType="uint16"/>
//!       <type name="templateId" primitiveType="uint16"/>
//!       <type name="schemaId" primitiveType="uint16"/>
//!       <type name="version" primitiveType="uint16"/>
//!     </composite>
//!   </types>
//!   <message name="Beat" id="7"><field name="at" id="1" type="uint64"/></message>
//! </messageSchema>"#;
//! let schema = Schema::parse(xml).unwrap();
//! assert_eq!((schema.messages[0].id, schema.messages[0].block_len), (7, 8));
//! ```

mod composite;
mod generate;
mod parse;
mod primitive;
mod types;
mod walk;

use core::fmt;
use core::ops::Range;

pub use composite::{DataLayout, DimensionLayout, HeaderLayout, NumberAt};
pub use primitive::{ByteOrder, Primitive};

/// A schema: what its XML says, without its structure.
#[derive(Clone, Debug)]
pub struct Schema {
    /// Its package, the name that people use.
    pub package: String,
    /// Its number in message headers.
    pub id: u16,
    /// Its version.
    pub version: u16,
    /// The order of bytes in all its numbers.
    pub byte_order: ByteOrder,
    /// The header in front of each message.
    pub header: HeaderLayout,
    /// The composites in front of groups, each once.
    pub dimensions: Vec<DimensionLayout>,
    /// The messages in the order of the document.
    pub messages: Vec<Message>,
    /// The fields and groups of all messages.
    pub tokens: Vec<Token>,
}

/// A message of a schema.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its template number.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Bytes of its root block.
    pub block_len: usize,
    /// The first version that has it.
    pub since: u16,
    /// Its tokens in [`Schema::tokens`].
    pub tokens: Range<usize>,
}

/// A step of a message.
#[derive(Clone, Debug)]
pub enum Token {
    /// A field of the block.
    Field(Field),
    /// A group begins; its entry's tokens follow.
    Group(GroupToken),
    /// The group that began last ends.
    EndGroup,
    /// Data with a length in front.
    Data(DataToken),
}

/// A field, or a member of one where its type is a composite.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name. A member is `field.member`, except where it is the only one that is on the wire.
    pub name: String,
    /// The type of its bytes.
    pub primitive: Primitive,
    /// How many of them; more than one is text or an opaque array.
    pub count: usize,
    /// Its place in the block.
    pub offset: usize,
    /// Whether it may be absent.
    pub presence: Presence,
    /// The first version that has it.
    pub since: u16,
}

impl Field {
    /// Bytes on the wire.
    pub fn len(&self) -> usize {
        match self.presence {
            Presence::Constant(_) => 0,
            _ => self.primitive.len() * self.count,
        }
    }

    /// Whether it has no bytes on the wire.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whether a field may be absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is always there.
    Required,
    /// It is absent where it has this value, or where the block is from before its version.
    Optional(i128),
    /// It is not on the wire.
    Constant(Constant),
}

/// The value of a constant field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constant {
    /// A number.
    Number(i128),
    /// Text.
    Text(Vec<u8>),
}

/// A repeating group.
#[derive(Clone, Debug)]
pub struct GroupToken {
    /// Its name.
    pub name: String,
    /// Bytes of an entry by the schema; the wire's own number counts.
    pub block_len: usize,
    /// Its dimension in [`Schema::dimensions`].
    pub dimension: usize,
    /// The first version that has it.
    pub since: u16,
    /// Index of its [`Token::EndGroup`].
    pub end: usize,
}

/// Data of a variable length.
#[derive(Clone, Debug)]
pub struct DataToken {
    /// Its name.
    pub name: String,
    /// Its length in front of it.
    pub layout: DataLayout,
    /// The first version that has it.
    pub since: u16,
}

/// Why a text is no schema, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// What is wrong, as a sentence.
    pub reason: String,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.reason)
    }
}

impl core::error::Error for SchemaError {}

impl Schema {
    /// Reads a schema's XML. Elements and attributes that say nothing about the layout are
    /// ignored.
    pub fn parse(xml: &str) -> Result<Self, SchemaError> {
        parse::parse(xml)
    }

    /// The message of a template number.
    pub fn message(&self, template: u16) -> Option<&Message> {
        self.messages.iter().find(|message| message.id == template)
    }

    /// The Rust source of structures for all blocks, which the hot path's decoders use; see
    /// [`super::Block`]. An error is a sentence about what the generator does not know: nested
    /// groups, floating numbers.
    pub fn generate(&self, heading: &str) -> Result<String, String> {
        generate::generate(self, heading)
    }
}

#[cfg(test)]
mod tests;
