use super::super::{SbeError, Value, Visitor};
use super::*;

const SCHEMA: &str = r#"<s:messageSchema xmlns:s="http://fixprotocol.io/2016/sbe" package="test" id="9" version="2"
    byteOrder="BYTEORDER"><types>
  <composite name="messageHeader"><type name="blockLength" primitiveType="uint16"/>
    <type name="templateId" primitiveType="uint16"/><type name="schemaId" primitiveType="uint16"/>
    <type name="version" primitiveType="uint16"/></composite>
  <composite name="groupSizeEncoding"><type name="blockLength" primitiveType="uint16"/>
    <type name="numInGroup" primitiveType="uint8"/></composite>
  <composite name="wide"><type name="blockLength" primitiveType="uint16"/>
    <type name="numInGroup" primitiveType="uint8" offset="7"/></composite>
  <composite name="price"><type name="mantissa" primitiveType="int32" presence="optional" nullValue="-1"/>
    <type name="exponent" primitiveType="int8" presence="constant">-4</type></composite>
  <composite name="text"><type name="length" primitiveType="uint8"/><type name="varData" primitiveType="uint8"/>
  </composite>
  <enum name="Side" encodingType="char"><validValue name="Buy">B</validValue></enum>
  <type name="Name" primitiveType="char" length="3"/>
</types>
<s:message name="Nested" id="1">
  <field name="px" id="1" type="price"/>
  <field name="side" id="2" type="Side" presence="constant" valueRef="Side.Buy"/>
  <field name="name" id="3" type="Name"/>
  <field name="late" id="4" type="uint16" sinceVersion="2"/>
  <group name="legs" id="5"><field name="id" id="6" type="uint16"/>
    <group name="fills" id="7" dimensionType="wide"><field name="qty" id="8" type="int8" presence="optional"/></group>
  </group>
  <data name="note" id="9" type="text"/>
</s:message></s:messageSchema>"#;

fn schema(order: &str) -> Schema {
    Schema::parse(&SCHEMA.replace("BYTEORDER", order)).unwrap()
}

/// What a visitor was shown, as text.
#[derive(Default)]
pub(crate) struct Story(pub(crate) String);

impl Visitor for Story {
    fn message(&mut self, name: &str, template: u16, version: u16) {
        self.0 += &format!("{name}/{template}/{version}");
    }

    fn field(&mut self, name: &str, value: Value<'_>) {
        self.0 += &format!(" {name}={value}");
    }

    fn group(&mut self, name: &str, count: usize) {
        self.0 += &format!(" {name}*{count}(");
    }

    fn entry(&mut self) {
        self.0 += " -";
    }

    fn end_group(&mut self) {
        self.0 += " )";
    }
}

fn told(schema: &Schema, message: &[u8]) -> Result<String, SbeError> {
    let mut story = Story::default();
    schema.walk(message, &mut story).map(|()| story.0)
}

const BIG: &[u8] = &[
    0, 9, 0, 1, 0, 9, 0, 2, // header: block of 9, template 1, schema 9, version 2
    0, 0, 0, 5, b'A', b'B', b' ', 1, 2, // px, name, late
    0, 2, 2, // two legs of two bytes
    0, 7, 0, 1, 0, 0, 0, 0, 0, 1, 3, // a leg, and one fill in its wide dimension
    0, 8, 0, 1, 0, 0, 0, 0, 0, 1, 0x80, // a fill that is null
    2, b'h', 0x1b, // a note with an escape
];

#[test]
fn nested_groups_constants_nulls_and_data_are_shown_in_order() {
    assert_eq!(
        told(&schema("bigEndian"), BIG).unwrap(),
        "Nested/1/2 px=5 px.exponent=-4 side=\"B\" name=\"AB\" late=258 legs*2( - id=7 fills*1( - qty=3 ) \
         - id=8 fills*1( - qty=null ) ) note=\"h\\x1b\""
    );
}

#[test]
fn little_endian_numbers_are_turned() {
    let message = [9, 0, 1, 0, 9, 0, 2, 0, 0xff, 0xff, 0xff, 0xff, b'A', b'B', b'C', 1, 2, 2, 0, 0, 0];
    assert_eq!(
        told(&schema("littleEndian"), &message).unwrap(),
        "Nested/1/2 px=null px.exponent=-4 side=\"B\" name=\"ABC\" late=513 legs*0( ) note=\"\""
    );
}

#[test]
fn block_of_an_earlier_version_has_null_for_what_came_later() {
    let message = [7, 0, 1, 0, 9, 0, 1, 0, 1, 0, 0, 0, b'A', b'B', b'C', 2, 0, 0, 0];
    assert!(told(&schema("littleEndian"), &message).unwrap().contains("late=null"));
    let half = [8, 0, 1, 0, 9, 0, 1, 0, 1, 0, 0, 0, b'A', b'B', b'C', 1, 2, 0, 0, 0];
    assert!(told(&schema("littleEndian"), &half).unwrap().contains("late=null"), "half of a field is none of it");
}

#[test]
fn block_of_a_later_version_is_stepped_by_its_own_length() {
    let message =
        [11, 0, 1, 0, 9, 0, 3, 0, 1, 0, 0, 0, b'A', b'B', b'C', 1, 0, 77, 77, 3, 0, 1, 5, 0, 88, 1, 0, 0, 0, 0];
    let message = [&message[..], &[0, 0, 0, 0]].concat();
    assert!(told(&schema("littleEndian"), &message).unwrap().contains("late=1 legs*1( - id=5 fills*0( ) )"));
}

#[test]
fn block_without_the_fields_of_the_first_version_is_refused() {
    let message = [6, 0, 1, 0, 9, 0, 0, 0, 1, 0, 0, 0, b'A', b'B'];
    assert_eq!(told(&schema("littleEndian"), &message), Err(SbeError::BlockShort { needed: 7, found: 6 }));
}

#[test]
fn each_truncation_is_refused_or_shown_shorter() {
    let schema = schema("bigEndian");
    for len in 0..BIG.len() {
        assert!(told(&schema, &BIG[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn unknown_template_and_other_schema_are_named() {
    let schema = schema("littleEndian");
    assert_eq!(told(&schema, &[0, 0, 5, 0, 9, 0, 0, 0]), Err(SbeError::UnknownTemplate(5)));
    assert_eq!(told(&schema, &[0, 0, 1, 0, 8, 0, 0, 0]), Err(SbeError::OtherSchema(8)));
}

#[test]
fn error_of_a_schema_has_its_line_and_column() {
    let wrong = SCHEMA.replace("BYTEORDER", "littleEndian").replace("type=\"Name\"", "type=\"Nome\"");
    let error = Schema::parse(&wrong).unwrap_err();
    assert_eq!(error.to_string(), "line 20, column 3: there is no type Nome");
    assert_eq!(Schema::parse("<a/>").unwrap_err().line, 1);
    assert!(Schema::parse("<a>").is_err());
}

#[test]
fn overlapping_fields_are_refused() {
    let wrong = SCHEMA.replace("BYTEORDER", "bigEndian").replace("id=\"3\" type", "id=\"3\" offset=\"3\" type");
    assert!(Schema::parse(&wrong).unwrap_err().reason.contains("within another"));
}

#[test]
fn generator_says_what_it_does_not_know() {
    assert!(schema("bigEndian").generate("x").unwrap_err().contains("group in a group"));
}
