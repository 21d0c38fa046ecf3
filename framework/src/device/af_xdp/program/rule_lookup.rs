//! Finds the rule that matches a frame by lookups in a hash map, one per shape, for any number of
//! rules. If the rules are few, it uses a chain of comparisons with constants in the program
//! instead. A lookup costs about as much as a dozen comparisons, and most frames differ from a rule
//! in the first value compared.
//!
//! Input: a frame with parsed headers. Output: a jump to the hit, or fall-through.

use super::assembler::{Alu, Cmp, Helper, Reg, Size};
use super::generate::{CTX, CTX_RX_QUEUE, FRAME, L3, L4, Program, Rest, Rules, STACK_KEY, STACK_VLAN, WORD};
use super::steering::{Constant, Depth, Key, Shape};
use crate::device::steering::Fields;
use crate::wire::EtherType;

impl Program<'_> {
    /// Tries the rules, the most specific first. At a hit R0 points to the rule's word in the
    /// table, or `WORD` is that word.
    pub(crate) fn match_rules(&mut self) -> Rest {
        let mut rest = Rest::Missed;
        for depth in [Depth::Ports, Depth::Ipv4, Depth::Ethernet, Depth::Any] {
            let entry = self.entry(depth);
            self.asm.place(entry);
            match self.source.rules {
                Rules::Table(fd) => {
                    for &shape in self.source.shapes.iter().filter(|shape| shape.depth() == depth) {
                        self.look_up(shape, fd);
                    }
                }
                Rules::Constants(rules) => {
                    for rule in rules.iter().filter(|rule| rule.shape.depth() == depth) {
                        rest = self.compare(rule);
                    }
                }
            }
        }
        rest
    }

    fn look_up(&mut self, shape: Shape, table_fd: i32) {
        let asm = &mut self.asm;
        for (size, offset) in [(Size::B8, 0), (Size::B8, 8), (Size::B8, 16), (Size::B4, 24)] {
            asm.store(size, Reg::R10, STACK_KEY + offset, 0);
        }
        let mut copy = |field, size, from, offset, to| {
            if shape.has(field) {
                asm.load(size, Reg::R2, from, offset);
                asm.store(size, Reg::R10, STACK_KEY + to, Reg::R2);
            }
        };
        copy(Fields::DESTINATION_MAC, Size::B4, FRAME, 0, KEY_MAC);
        copy(Fields::DESTINATION_MAC, Size::B2, FRAME, 4, KEY_MAC + 4);
        copy(Fields::VLAN, Size::B2, Reg::R10, STACK_VLAN, KEY_VLAN);
        copy(Fields::ETHERTYPE, Size::B2, L3, -2, KEY_ETHERTYPE);
        copy(Fields::SOURCE, Size::B4, L3, 12, KEY_SOURCE);
        copy(Fields::DESTINATION, Size::B4, L3, 16, KEY_DESTINATION);
        copy(Fields::PROTOCOL, Size::B1, L3, 9, KEY_PROTOCOL);
        copy(Fields::SOURCE_PORT, Size::B2, L4, 0, KEY_SOURCE_PORT);
        copy(Fields::DESTINATION_PORT, Size::B2, L4, 2, KEY_DESTINATION_PORT);
        asm.store(Size::B1, Reg::R10, STACK_KEY + KEY_SHAPE, i32::from(shape.byte()));
        asm.load(Size::B4, Reg::R2, CTX, CTX_RX_QUEUE);
        asm.store(Size::B4, Reg::R10, STACK_KEY + KEY_QUEUE, Reg::R2);
        asm.load_map(Reg::R1, table_fd);
        asm.mov(Reg::R2, Reg::R10);
        asm.alu(Alu::Add, Reg::R2, i32::from(STACK_KEY));
        asm.call(Helper::MapLookup);
        asm.jump_if(Reg::R0, Cmp::NotEqual, 0, self.labels.hit);
    }

    /// Hits if every field of the rule has its value, and the frame arrived on the rule's queue.
    /// The fields that distinguish flows are compared first.
    fn compare(&mut self, rule: &Constant) -> Rest {
        let Constant { key, shape, queue, word } = *rule;
        let (asm, hit) = (&mut self.asm, self.labels.hit);
        let differs = asm.label();
        let mut rest = Rest::None;
        let mut must_be = |size, from, offset, value| {
            rest = Rest::Missed;
            asm.load(size, Reg::R2, from, offset);
            asm.jump_if32(Reg::R2, Cmp::NotEqual, value, differs);
        };
        let two = |bytes| i32::from(u16::from_ne_bytes(bytes));
        if shape.has(Fields::DESTINATION_PORT) {
            must_be(Size::B2, L4, 2, two(key.destination_port));
        }
        if shape.has(Fields::DESTINATION) {
            must_be(Size::B4, L3, 16, i32::from_ne_bytes(key.destination));
        }
        if shape.has(Fields::SOURCE_PORT) {
            must_be(Size::B2, L4, 0, two(key.source_port));
        }
        if shape.has(Fields::SOURCE) {
            must_be(Size::B4, L3, 12, i32::from_ne_bytes(key.source));
        }
        if shape.has(Fields::DESTINATION_MAC) {
            let [a, b, c, d, e, f] = key.destination_mac;
            must_be(Size::B4, FRAME, 0, i32::from_ne_bytes([a, b, c, d]));
            must_be(Size::B2, FRAME, 4, two([e, f]));
        }
        if shape.has(Fields::VLAN) {
            must_be(Size::B2, Reg::R10, STACK_VLAN, i32::from(key.vlan));
        }
        if shape.has(Fields::PROTOCOL) {
            must_be(Size::B1, L3, 9, i32::from(key.protocol));
        }
        // Frames at these depths are IPv4.
        let known = shape.depth() >= Depth::Ipv4 && key.ethertype == EtherType::IPV4.0.to_be_bytes();
        if shape.has(Fields::ETHERTYPE) && !known {
            must_be(Size::B2, L3, -2, two(key.ethertype));
        }
        if let Some(queue) = queue {
            must_be(Size::B4, CTX, CTX_RX_QUEUE, i32::from(queue));
        }
        if self.source.has_metadata() {
            asm.mov(WORD, word as i32);
        }
        asm.jump(hit);
        if rest == Rest::Missed {
            asm.place(differs);
        }
        rest
    }
}

const KEY_MAC: i16 = core::mem::offset_of!(Key, destination_mac) as i16;
const KEY_VLAN: i16 = core::mem::offset_of!(Key, vlan) as i16;
const KEY_SOURCE: i16 = core::mem::offset_of!(Key, source) as i16;
const KEY_DESTINATION: i16 = core::mem::offset_of!(Key, destination) as i16;
const KEY_SOURCE_PORT: i16 = core::mem::offset_of!(Key, source_port) as i16;
const KEY_DESTINATION_PORT: i16 = core::mem::offset_of!(Key, destination_port) as i16;
const KEY_ETHERTYPE: i16 = core::mem::offset_of!(Key, ethertype) as i16;
const KEY_PROTOCOL: i16 = core::mem::offset_of!(Key, protocol) as i16;
const KEY_SHAPE: i16 = core::mem::offset_of!(Key, shape) as i16;
const KEY_QUEUE: i16 = core::mem::offset_of!(Key, queue) as i16;

// The four stores that clear the key cover it.
const _: () = assert!(size_of::<Key>() == 28 && STACK_KEY as isize <= -(size_of::<Key>() as isize));
