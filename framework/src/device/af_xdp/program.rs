//! The XDP program: it walks over a frame's headers as [`Rule::matches`](crate::device::steering::Rule::matches) does,
//! looks the frame up once for each shape of rule in use, and hands it to the socket of its queue or on to the kernel.
//!
//! ```text
//!  Ethernet ─▶ tags ─▶ IPv4 ─▶ ports ─▶ [shapes with ports] ─▶ [with addresses] ─▶ [with link fields] ─▶ [any] ─▶ kernel
//!     └───────────┴──────┴──── does not parse: enters further right ──┴───────────────────┘
//!                                                    a hit anywhere ─▶ socket of the queue, or kernel where none is open
//! ```
//!
//! Values from the packet are loaded where they are used and never compared with the values of single rules, so the
//! verifier sees few states, however many rules there are.

use super::assembler::{Alu, Assembler, Cmp, Helper, Insn, Label, Reg, Size};
use super::steering::{Depth, Key, Shape, UNTAGGED};
use crate::device::steering::Fields;
use crate::wire::EtherType;

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    /// The shapes in use, in the order of the lookups.
    pub(super) shapes: &'a [Shape],
    /// File descriptor of the hash map of [`Key`]s.
    pub(super) rules_fd: i32,
    /// File descriptor of the map from queue to socket.
    pub(super) sockets_fd: i32,
    /// Whether some rule has a flow tag, which then travels before the frame.
    pub(super) tags: bool,
    /// Whether a frame may lie in several buffers.
    pub(super) frags: bool,
    /// What happens to a frame that a rule names while no socket is open.
    pub(super) unclaimed: Verdict,
}

/// What a program says of a frame: the numbers of linux/bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Tests tell by it that a rule named the frame.
    #[cfg_attr(not(test), allow(dead_code))]
    Drop = 1,
    /// On to the kernel.
    Pass = 2,
}

/// Before a frame of which the program tells something lie these eight bytes: this number and the flow tag's word.
/// A number that headers do not begin with: bytes left in a headroom are not taken for it.
pub(super) const META_MAGIC: u32 = 0x57e1_9a7f;
/// Bytes before the frame.
pub(super) const META_LEN: usize = 8;

/// Offsets in `struct xdp_md`.
const CTX_DATA: i16 = 0;
const CTX_DATA_END: i16 = 4;
const CTX_DATA_META: i16 = 8;
const CTX_RX_QUEUE: i16 = 16;

/// The stack, downward from R10: the key, the outer VLAN, and how far the payload of the Ethernet frame is from its start.
const STACK_KEY: i16 = -32;
const STACK_VLAN: i16 = -40;
const STACK_L3_OFFSET: i16 = -48;

const ETHERNET_LEN: i32 = 14;
const TAG_LEN: i32 = 4;
const IPV4_LEN_MIN: i32 = 20;

/// Registers that keep their meaning through the program.
const CTX: Reg = Reg::R6;
const FRAME: Reg = Reg::R7;
/// The end of the (first buffer of the) frame, until the headers are walked over.
const END: Reg = Reg::R8;
/// The UDP or TCP header, from then on.
const L4: Reg = Reg::R8;
const L3: Reg = Reg::R9;

/// Generates the program: about 60 instructions and 20 for each shape.
pub(super) fn generate(source: &Source<'_>) -> Vec<Insn> {
    let mut assembler = Assembler::default();
    let labels = Labels { entries: [(); 4].map(|()| assembler.label()), hit: assembler.label() };
    let mut program = Program { asm: assembler, source, labels };
    if source.shapes.is_empty() {
        // Without rules nothing is ours, and the verifier refuses code that no frame reaches.
        program.miss();
        return program.asm.finish();
    }
    program.ethernet();
    program.ipv4();
    program.lookups();
    program.miss();
    program.hit();
    program.asm.finish()
}

struct Labels {
    /// Where the lookups begin for frames of each [`Depth`].
    entries: [Label; 4],
    hit: Label,
}

struct Program<'a> {
    asm: Assembler,
    source: &'a Source<'a>,
    labels: Labels,
}

impl Program<'_> {
    fn entry(&self, depth: Depth) -> Label {
        self.labels.entries[depth as usize]
    }

    fn any_shape(&self, wanted: impl Fn(Shape) -> bool) -> bool {
        self.source.shapes.iter().any(|&shape| wanted(shape))
    }

    /// Walks over the header and up to two tags. Leaves the EtherType, in network order, in R2.
    fn ethernet(&mut self) {
        let malformed = self.entry(Depth::Any);
        let (typed, tagged, tagged_twice) = (self.asm.label(), self.asm.label(), self.asm.label());
        let asm = &mut self.asm;
        asm.mov(CTX, Reg::R1);
        asm.load(Size::B4, FRAME, CTX, CTX_DATA);
        asm.load(Size::B4, END, CTX, CTX_DATA_END);
        asm.mov(L3, FRAME);
        asm.alu(Alu::Add, L3, ETHERNET_LEN);
        asm.jump_if(L3, Cmp::Above, END, malformed);
        asm.store(Size::B2, Reg::R10, STACK_VLAN, i32::from(UNTAGGED));
        asm.store(Size::B8, Reg::R10, STACK_L3_OFFSET, ETHERNET_LEN);
        jump_if_tag(asm, tagged);
        asm.jump(typed);

        asm.place(tagged);
        asm.alu(Alu::Add, L3, TAG_LEN);
        asm.jump_if(L3, Cmp::Above, END, malformed);
        asm.load(Size::B2, Reg::R3, L3, -4);
        asm.swap_big_endian16(Reg::R3);
        asm.alu(Alu::And, Reg::R3, 0x0fff);
        asm.store(Size::B2, Reg::R10, STACK_VLAN, Reg::R3);
        asm.store(Size::B8, Reg::R10, STACK_L3_OFFSET, ETHERNET_LEN + TAG_LEN);
        jump_if_tag(asm, tagged_twice);
        asm.jump(typed);

        asm.place(tagged_twice);
        asm.alu(Alu::Add, L3, TAG_LEN);
        asm.jump_if(L3, Cmp::Above, END, malformed);
        asm.store(Size::B8, Reg::R10, STACK_L3_OFFSET, ETHERNET_LEN + 2 * TAG_LEN);
        // A third tag is more than `wire` walks over.
        jump_if_tag(asm, malformed);

        asm.place(typed);
        asm.mov(Reg::R3, Reg::R2);
        asm.swap_big_endian16(Reg::R3);
        // A length of IEEE 802.3 3.2.6, not an EtherType.
        asm.jump_if(Reg::R3, Cmp::Below, 0x0600, malformed);
    }

    /// Checks the IPv4 header as `Ipv4Packet::parse` does, and finds the ports.
    fn ipv4(&mut self) {
        let ethernet = self.entry(Depth::Ethernet);
        if !self.any_shape(|shape| shape.depth() >= Depth::Ipv4) {
            self.asm.jump(ethernet);
            return;
        }
        let asm = &mut self.asm;
        asm.jump_if(Reg::R2, Cmp::NotEqual, network_order(EtherType::IPV4), ethernet);
        asm.mov(Reg::R2, L3);
        asm.alu(Alu::Add, Reg::R2, IPV4_LEN_MIN);
        asm.jump_if(Reg::R2, Cmp::Above, END, ethernet);
        asm.load(Size::B1, Reg::R2, L3, 0);
        asm.mov(Reg::R3, Reg::R2);
        asm.alu(Alu::ShiftRight, Reg::R3, 4);
        asm.jump_if(Reg::R3, Cmp::NotEqual, 4, ethernet);
        // R2: bytes of the header with its options.
        asm.alu(Alu::And, Reg::R2, 15);
        asm.alu(Alu::ShiftLeft, Reg::R2, 2);
        asm.jump_if(Reg::R2, Cmp::Below, IPV4_LEN_MIN, ethernet);
        // R3: bytes of the packet as it states them.
        asm.load(Size::B2, Reg::R3, L3, 2);
        asm.swap_big_endian16(Reg::R3);
        asm.jump_if(Reg::R3, Cmp::Below, Reg::R2, ethernet);
        self.whole_packet();
        self.ports();
    }

    /// Goes on where all bytes that the packet states (R3) have arrived. Keeps R2 and R3.
    fn whole_packet(&mut self) {
        let (ethernet, frags) = (self.entry(Depth::Ethernet), self.source.frags);
        let asm = &mut self.asm;
        let whole = asm.label();
        asm.mov(Reg::R4, L3);
        asm.alu(Alu::Add, Reg::R4, Reg::R3);
        if !frags {
            asm.jump_if(Reg::R4, Cmp::Above, END, ethernet);
            return;
        }
        // The rest may be in other buffers: ask for the length of all of them. The call costs R1 to R5.
        let ask = asm.label();
        asm.jump_if(Reg::R4, Cmp::Above, END, ask);
        asm.jump(whole);
        asm.place(ask);
        asm.mov(Reg::R1, CTX);
        asm.call(Helper::XdpBuffLen);
        asm.load(Size::B2, Reg::R3, L3, 2);
        asm.swap_big_endian16(Reg::R3);
        asm.load(Size::B8, Reg::R4, Reg::R10, STACK_L3_OFFSET);
        asm.alu(Alu::Add, Reg::R4, Reg::R3);
        asm.jump_if(Reg::R4, Cmp::Above, Reg::R0, ethernet);
        asm.load(Size::B1, Reg::R2, L3, 0);
        asm.alu(Alu::And, Reg::R2, 15);
        asm.alu(Alu::ShiftLeft, Reg::R2, 2);
        asm.place(whole);
    }

    /// Finds the ports behind the options, or enters where none are needed.
    fn ports(&mut self) {
        let ipv4 = self.entry(Depth::Ipv4);
        if !self.any_shape(|shape| shape.depth() == Depth::Ports) {
            self.asm.jump(ipv4);
            return;
        }
        let asm = &mut self.asm;
        // The payload has four bytes; padding behind the packet is no payload.
        asm.alu(Alu::Sub, Reg::R3, Reg::R2);
        asm.jump_if(Reg::R3, Cmp::Below, 4, ipv4);
        // Later fragments carry no ports (RFC 791 3.1).
        asm.load(Size::B2, Reg::R3, L3, 6);
        asm.swap_big_endian16(Reg::R3);
        asm.alu(Alu::And, Reg::R3, 0x1fff);
        asm.jump_if(Reg::R3, Cmp::NotEqual, 0, ipv4);
        asm.mov(Reg::R4, L3);
        asm.alu(Alu::Add, Reg::R4, Reg::R2);
        asm.mov(Reg::R5, Reg::R4);
        asm.alu(Alu::Add, Reg::R5, 4);
        asm.jump_if(Reg::R5, Cmp::Above, END, ipv4);
        asm.mov(L4, Reg::R4);
    }

    /// One lookup for each shape; falls through where no rule names the frame.
    fn lookups(&mut self) {
        for depth in [Depth::Ports, Depth::Ipv4, Depth::Ethernet, Depth::Any] {
            let entry = self.entry(depth);
            self.asm.place(entry);
            for &shape in self.source.shapes.iter().filter(|shape| shape.depth() == depth) {
                self.lookup(shape);
            }
        }
    }

    fn lookup(&mut self, shape: Shape) {
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
        asm.load_map(Reg::R1, self.source.rules_fd);
        asm.mov(Reg::R2, Reg::R10);
        asm.alu(Alu::Add, Reg::R2, i32::from(STACK_KEY));
        asm.call(Helper::MapLookup);
        asm.jump_if(Reg::R0, Cmp::NotEqual, 0, self.labels.hit);
    }

    fn miss(&mut self) {
        self.asm.mov(Reg::R0, Verdict::Pass as i32);
        self.asm.exit();
    }

    /// To the socket of the queue on which the frame came, with the tag before it. R0 points to the map's value.
    fn hit(&mut self) {
        self.asm.place(self.labels.hit);
        if self.source.tags {
            self.tag();
        }
        let asm = &mut self.asm;
        asm.load_map(Reg::R1, self.source.sockets_fd);
        asm.load(Size::B4, Reg::R2, CTX, CTX_RX_QUEUE);
        asm.mov(Reg::R3, self.source.unclaimed as i32);
        asm.call(Helper::RedirectMap);
        asm.exit();
    }

    /// Writes the tag's word before the frame. A driver without room for it delivers the frame without a tag.
    fn tag(&mut self) {
        let asm = &mut self.asm;
        let done = asm.label();
        asm.load(Size::B4, Reg::R7, Reg::R0, 0);
        asm.mov(Reg::R1, CTX);
        asm.mov(Reg::R2, -(META_LEN as i32));
        asm.call(Helper::XdpAdjustMeta);
        asm.jump_if(Reg::R0, Cmp::NotEqual, 0, done);
        asm.load(Size::B4, Reg::R1, CTX, CTX_DATA_META);
        asm.load(Size::B4, Reg::R2, CTX, CTX_DATA);
        asm.mov(Reg::R3, Reg::R1);
        asm.alu(Alu::Add, Reg::R3, META_LEN as i32);
        asm.jump_if(Reg::R3, Cmp::Above, Reg::R2, done);
        asm.store(Size::B4, Reg::R1, 0, META_MAGIC as i32);
        asm.store(Size::B4, Reg::R1, 4, Reg::R7);
        asm.place(done);
    }
}

/// Loads the two bytes before [`L3`] into R2 and jumps where they announce a VLAN tag.
fn jump_if_tag(asm: &mut Assembler, label: Label) {
    asm.load(Size::B2, Reg::R2, L3, -2);
    asm.jump_if(Reg::R2, Cmp::Equal, network_order(EtherType::VLAN), label);
    asm.jump_if(Reg::R2, Cmp::Equal, network_order(EtherType::QINQ), label);
}

/// An EtherType as a load of two bytes reads it.
fn network_order(ethertype: EtherType) -> i32 {
    u16::from_ne_bytes(ethertype.0.to_be_bytes()).into()
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
