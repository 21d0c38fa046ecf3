//! The structures of the hot path are those that the generator writes of the schemas, and both
//! readings of a message agree, whatever its bytes. Run alone they need `--features sbe-schema`.
#![cfg(feature = "sbe-schema")]
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use market::sbe::schema::{Schema, Token};
use market::sbe::{SbeError, Value, Visitor};
use proptest::prelude::*;

type Walk = fn(&[u8], &mut dyn Visitor) -> Result<(), SbeError>;

/// Each schema, the module that is generated of it, what stands on top of that, and its function.
const LAYOUTS: &[(&str, &str, &str, Walk)] = &[
    (
        "cme-mdp3",
        "src/mdp3/layout.rs",
        "The messages of CME MDP 3.0 that are decoded here.",
        market::mdp3::layout::walk,
    ),
    (
        "memx-memoir-depth",
        "src/memx/layout.rs",
        "The messages of MEMX's MEMOIR Depth feed for equities.",
        market::memx::layout::walk,
    ),
    (
        "b3-umdf",
        "src/b3_umdf/layout.rs",
        "The messages of B3's binary UMDF that are decoded here.",
        market::b3_umdf::layout::walk,
    ),
    (
        "eurex-eobi",
        "src/eobi/layout.rs",
        "The messages of T7's Enhanced Order Book Interface that are read here.",
        market::eobi::layout::walk,
    ),
];

fn schema(name: &str) -> Schema {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(name).with_extension("xml");
    let xml = fs::read_to_string(&path).unwrap();
    Schema::parse(&xml).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn checked_in_layouts_are_what_the_generator_writes() {
    for &(name, file, heading, _) in LAYOUTS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let written = schema(name).generate(heading).unwrap();
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &written).unwrap();
        }
        let checked_in = fs::read_to_string(&path).unwrap();
        assert!(written == checked_in, "{file} is not what its schema says: run this test with UPDATE=1");
    }
}

/// What a visitor was shown.
#[derive(Debug, Default, PartialEq)]
struct Story(String);

impl Visitor for Story {
    fn message(&mut self, name: &str, template: u16, version: u16) {
        write!(self.0, "{name}/{template}/{version}").unwrap();
    }

    fn field(&mut self, name: &str, value: Value<'_>) {
        write!(self.0, " {name}={value:?}").unwrap();
    }

    fn group(&mut self, name: &str, count: usize) {
        write!(self.0, " {name}*{count}(").unwrap();
    }

    fn entry(&mut self) {
        self.0.push('-');
    }

    fn end_group(&mut self) {
        self.0.push(')');
    }
}

static SCHEMAS: LazyLock<Vec<Schema>> = LazyLock::new(|| LAYOUTS.iter().map(|layout| schema(layout.0)).collect());

/// The story and its end. Where a message is refused, the generated reading has not begun to show
/// it, so only the end is compared.
fn told(walk: impl FnOnce(&mut dyn Visitor) -> Result<(), SbeError>) -> Result<Story, SbeError> {
    let mut story = Story::default();
    walk(&mut story).map(|()| story)
}

/// A message of a schema with random contents: its blocks as long as the schema says, or some
/// bytes shorter or longer, as other versions have them.
fn message(schema: &Schema, pick: usize, stretch: i8, version: u16, mut random: impl Iterator<Item = u8>) -> Vec<u8> {
    let message = &schema.messages[pick % schema.messages.len()];
    let stretched = |len: usize| len.saturating_add_signed(stretch.into());
    let mut bytes = vec![0; schema.header.len];
    let order = schema.byte_order;
    let put = |bytes: &mut [u8], at: market::sbe::schema::NumberAt, value: usize| {
        let len = at.primitive.len();
        let little = (value as u64).to_le_bytes();
        let mut number = little[..len].to_vec();
        if order == market::sbe::schema::ByteOrder::Big {
            number.reverse();
        }
        bytes[at.offset..at.offset + len].copy_from_slice(&number);
    };
    let root_len = stretched(message.block_len);
    put(&mut bytes, schema.header.template, message.id.into());
    for (at, value) in [
        (schema.header.block_len, root_len),
        (schema.header.schema, schema.id.into()),
        (schema.header.version, version.into()),
    ] {
        if let Some(at) = at {
            put(&mut bytes, at, value);
        }
    }
    bytes.extend(random.by_ref().take(root_len));
    for token in &schema.tokens[message.tokens.clone()] {
        let Token::Group(group) = token else { continue };
        if group.since > version {
            continue;
        }
        let dimension = &schema.dimensions[group.dimension];
        let (len, count) = (stretched(group.block_len), usize::from(random.next().unwrap_or(0) % 4));
        let mut head = vec![0; dimension.len];
        put(&mut head, dimension.block_len, len);
        put(&mut head, dimension.count, count);
        bytes.extend(head);
        bytes.extend(random.by_ref().take(len * count));
    }
    bytes
}

/// Bytes by Marsaglia's xorshift, in runs of those that nulls are made of.
fn random(mut seed: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        Some(match seed >> 40 & 0x30 {
            0 => 0xff,
            0x10 => 0x7f,
            _ => seed as u8,
        })
    })
}

proptest! {
    #[test]
    fn both_readings_of_a_message_agree(
        pick in any::<usize>(),
        stretch in prop_oneof![4 => Just(0_i8), 1 => -12_i8..12],
        version in 0_u16..20,
        seed in 1_u64..,
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        flip in prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>())),
    ) {
        for (schema, &(_, _, _, walk)) in SCHEMAS.iter().zip(LAYOUTS) {
            let mut bytes = message(schema, pick, stretch, version, random(seed));
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            if let Some((at, value)) = flip && !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let by_schema = told(|visitor| schema.walk(&bytes, visitor));
            let generated = told(|visitor| walk(&bytes, visitor));
            match (by_schema, generated) {
                (Ok(by_schema), Ok(generated)) => prop_assert_eq!(by_schema, generated),
                (by_schema, generated) => prop_assert_eq!(by_schema.is_err(), generated.is_err()),
            }
        }
    }
}
