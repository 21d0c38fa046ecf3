//! Generates the XDP program: it reads a frame's headers like
//! [`Rule::matches`](crate::device::steering::Rule::matches), as far as any rule needs, finds the
//! rule that matches the frame (`rule_lookup.rs`), and redirects the frame to the socket of its
//! queue or passes it to the kernel.
//!
//! ```text
//!  Ethernet ─▶ tags ─▶ IPv4 ─▶ ports ─▶ [rules with ports] ─▶ [with addresses] ─▶ [with link fields] ─▶ [any] ─▶ kernel
//!     └───────────┴──────┴──── does not parse: enters further right ──┴───────────────────┘
//!                                                    a hit anywhere ─▶ socket of the queue, or kernel if none is open
//! ```
//!
//! Values from the packet are loaded where they are used and not kept, so the verifier tracks few
//! states.

use super::assembler::{Alu, Assembler, Cmp, Helper, Insn, Label, Reg, Size};
use super::kfuncs::{HintSource, Kfuncs, RxHint};
use super::metadata::{self, RX_HINTS_LEN, TAG_LEN as TAG_ROOM};
use super::steering::{Constant, Depth, Shape, UNTAGGED};
use crate::device::steering::Fields;
use crate::wire::{EtherType, Protocol};

/// The input of the generator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// The shapes in use, in the order of the lookups.
    pub(crate) shapes: &'a [Shape],
    /// The place of the rules.
    pub(crate) rules: Rules<'a>,
    /// File descriptor of the map from queue to socket (XSKMAP).
    pub(crate) sockets_fd: i32,
    /// Whether some rule has a flow tag, which is then written before the frame.
    pub(crate) tags: bool,
    /// The RX metadata to request from the driver.
    pub(crate) kfuncs: Kfuncs,
    /// Whether a frame may span several buffers.
    pub(crate) frags: bool,
    /// The action for a frame that matches a rule while no socket is open.
    pub(crate) unclaimed: XdpAction,
}

/// The place of the rules: any number in a map, or a few in the program's instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rules<'a> {
    /// In a hash map of [`Key`](super::steering::Key)s, by its file descriptor: one
    /// lookup per shape.
    Table(i32),
    /// In the program: a few comparisons per rule, in this order.
    Constants(&'a [Constant]),
}

impl Source<'_> {
    /// Whether metadata may be written before a frame.
    pub(crate) fn has_metadata(&self) -> bool {
        self.tags || self.kfuncs != [None; 3]
    }
}

/// The verdict of a program: the numbers of linux/bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XdpAction {
    /// Tests use it to detect that a rule matched.
    #[cfg_attr(not(test), allow(dead_code))]
    Drop = 1,
    /// Passes the frame to the kernel.
    Pass = 2,
}

/// Offsets in `struct xdp_md`.
const CTX_DATA: i16 = 0;
const CTX_DATA_END: i16 = 4;
const CTX_DATA_META: i16 = 8;
pub(crate) const CTX_RX_QUEUE: i16 = 16;

/// The stack, downward from R10: the key, the outer VLAN, the offset of the Ethernet payload in the
/// frame, and the driver's metadata: the word of [`metadata`], timestamp, hash and its type,
/// EtherType and TCI of the VLAN tag.
pub(crate) const STACK_KEY: i16 = -32;
pub(crate) const STACK_VLAN: i16 = -40;
const STACK_L3_OFFSET: i16 = -48;
const STACK_WORD: i16 = -56;
const STACK_ARRIVAL: i16 = -64;
const STACK_HASH: i16 = -72;
const STACK_HASH_KIND: i16 = -68;
const STACK_TPID: i16 = -80;
const STACK_TCI: i16 = -76;

const ETHERNET_LEN: i32 = 14;
const TAG_LEN: i32 = 4;
const IPV4_LEN_MIN: i32 = 20;
/// The flag and the offset of a fragment, in their 16 bits of the header (RFC 791 3.1).
const MORE_FRAGMENTS: i32 = 0x2000;
const OFFSET_MASK: i32 = 0x1fff;

/// Registers with a fixed meaning throughout the program.
pub(crate) const CTX: Reg = Reg::R6;
pub(crate) const FRAME: Reg = Reg::R7;
/// The end of the (first buffer of the) frame, until the headers are parsed.
const END: Reg = Reg::R8;
/// The UDP or TCP header, from then on.
pub(crate) const L4: Reg = Reg::R8;
/// The metadata word of the frame, once a rule matches.
pub(crate) const WORD: Reg = Reg::R7;
pub(crate) const L3: Reg = Reg::R9;

/// Generates the program: up to 60 instructions, and about 20 for each shape that is looked up or
/// for each rule that is compared.
pub(crate) fn generate(source: &Source<'_>) -> Vec<Insn> {
    let mut assembler = Assembler::default();
    let labels = Labels { entries: [(); 4].map(|()| assembler.label()), hit: assembler.label() };
    let mut program = Program { asm: assembler, source, labels };
    if source.shapes.is_empty() {
        // Without rules no frame is ours, and the verifier refuses unreachable code.
        program.miss();
        return program.asm.finish();
    }
    program.asm.mov(CTX, Reg::R1);
    if program.any_shape(|shape| shape.depth() > Depth::Any) {
        program.ethernet();
    }
    if program.match_rules() == Rest::Missed {
        program.miss();
    }
    program.hit();
    program.asm.finish()
}

pub(crate) struct Labels {
    /// The start of the rule search for frames of each [`Depth`].
    entries: [Label; 4],
    pub(crate) hit: Label,
}

/// The frames that no earlier rule matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// They go to the kernel.
    Missed,
    /// There are none: the last rule matches every frame. The verifier refuses unreachable code.
    None,
}

pub(crate) struct Program<'a> {
    pub(crate) asm: Assembler,
    pub(crate) source: &'a Source<'a>,
    pub(crate) labels: Labels,
}

impl Program<'_> {
    pub(crate) fn entry(&self, depth: Depth) -> Label {
        self.labels.entries[depth as usize]
    }

    fn any_shape(&self, wanted: impl Fn(Shape) -> bool) -> bool {
        self.source.shapes.iter().any(|&shape| wanted(shape))
    }

    /// Parses the header and up to two tags, and continues if some rule needs the headers behind.
    fn ethernet(&mut self) {
        let malformed = self.entry(Depth::Any);
        let (typed, tagged, tagged_twice) = (self.asm.label(), self.asm.label(), self.asm.label());
        if self.vlan_matters() {
            self.asm.store(Size::B2, Reg::R10, STACK_VLAN, i32::from(UNTAGGED));
        }
        if self.vlan_decides() {
            self.ask_vlan();
        }
        let asm = &mut self.asm;
        asm.load(Size::B4, FRAME, CTX, CTX_DATA);
        asm.load(Size::B4, END, CTX, CTX_DATA_END);
        asm.mov(L3, FRAME);
        asm.alu(Alu::Add, L3, ETHERNET_LEN);
        asm.jump_if(L3, Cmp::Above, END, malformed);
        self.note_l3_offset(ETHERNET_LEN);
        jump_if_tag(&mut self.asm, tagged);
        self.asm.jump(typed);

        self.asm.place(tagged);
        self.step_over_tag();
        if self.vlan_matters() {
            self.note_vlan();
        }
        self.note_l3_offset(ETHERNET_LEN + TAG_LEN);
        jump_if_tag(&mut self.asm, tagged_twice);
        self.asm.jump(typed);

        self.asm.place(tagged_twice);
        self.step_over_tag();
        self.note_l3_offset(ETHERNET_LEN + 2 * TAG_LEN);
        // `wire` parses at most two tags.
        jump_if_tag(&mut self.asm, malformed);

        self.asm.place(typed);
        self.typed();
    }

    fn step_over_tag(&mut self) {
        let malformed = self.entry(Depth::Any);
        self.asm.alu(Alu::Add, L3, TAG_LEN);
        self.asm.jump_if(L3, Cmp::Above, END, malformed);
    }

    /// Stores the VLAN of the tag before L3, unless the NIC has stripped a tag that was in front of
    /// it.
    fn note_vlan(&mut self) {
        let asm = &mut self.asm;
        let inner = asm.label();
        asm.load(Size::B2, Reg::R3, Reg::R10, STACK_VLAN);
        asm.jump_if(Reg::R3, Cmp::NotEqual, i32::from(UNTAGGED), inner);
        asm.load(Size::B2, Reg::R3, L3, -4);
        asm.swap_big_endian16(Reg::R3);
        asm.alu(Alu::And, Reg::R3, 0x0fff);
        asm.store(Size::B2, Reg::R10, STACK_VLAN, Reg::R3);
        asm.place(inner);
    }

    /// Stores the offset of L3, for [`Self::whole_packet`].
    fn note_l3_offset(&mut self, offset: i32) {
        if self.source.frags && self.any_shape(|shape| shape.depth() >= Depth::Ipv4) {
            self.asm.store(Size::B8, Reg::R10, STACK_L3_OFFSET, offset);
        }
    }

    /// The EtherType is in R2, in network order: parses IPv4, and rejects a length.
    fn typed(&mut self) {
        let (malformed, ethernet, ipv4) = (self.entry(Depth::Any), self.entry(Depth::Ethernet), self.asm.label());
        let wants_ipv4 = self.any_shape(|shape| shape.depth() >= Depth::Ipv4);
        if wants_ipv4 {
            self.asm.jump_if(Reg::R2, Cmp::Equal, network_order(EtherType::IPV4), ipv4);
        }
        if self.any_shape(|shape| shape.depth() == Depth::Ethernet) {
            // A length of IEEE 802.3 3.2.6, not an EtherType.
            self.asm.swap_big_endian16(Reg::R2);
            self.asm.jump_if(Reg::R2, Cmp::Below, 0x0600, malformed);
        }
        self.asm.jump(ethernet);
        if wants_ipv4 {
            self.asm.place(ipv4);
            self.ipv4();
        }
    }

    /// Checks the IPv4 header as `Ipv4Packet::parse` does, and locates the ports.
    fn ipv4(&mut self) {
        let ethernet = self.entry(Depth::Ethernet);
        let asm = &mut self.asm;
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
        // R3: total length of the packet.
        asm.load(Size::B2, Reg::R3, L3, 2);
        asm.swap_big_endian16(Reg::R3);
        asm.jump_if(Reg::R3, Cmp::Below, Reg::R2, ethernet);
        self.whole_packet();
        self.ports();
    }

    /// Continues if the frame holds the packet's total length (R3). Preserves R2 and R3.
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
        // The rest of the frame may be in other buffers: a call returns the length of all of them.
        // The call clobbers R1 to R5.
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

    /// Locates the ports after the options; continues without ports if no rule needs them.
    fn ports(&mut self) {
        let ipv4 = self.entry(Depth::Ipv4);
        if !self.any_shape(|shape| shape.depth() == Depth::Ports) {
            self.asm.jump(ipv4);
            return;
        }
        let asm = &mut self.asm;
        // The payload has at least four bytes; padding behind the packet does not count.
        asm.alu(Alu::Sub, Reg::R3, Reg::R2);
        asm.jump_if(Reg::R3, Cmp::Below, 4, ipv4);
        let whole = asm.label();
        asm.load(Size::B2, Reg::R3, L3, 6);
        asm.swap_big_endian16(Reg::R3);
        asm.alu(Alu::And, Reg::R3, MORE_FRAGMENTS | OFFSET_MASK);
        asm.jump_if(Reg::R3, Cmp::Equal, 0, whole);
        // Later fragments carry no ports (RFC 791 3.1), so the kernel has those of a datagram. It
        // gets the first one as well, because whoever has all of them can reassemble it.
        asm.load(Size::B1, Reg::R4, L3, 9);
        asm.jump_if(Reg::R4, Cmp::Equal, i32::from(Protocol::UDP.0), ipv4);
        asm.alu(Alu::And, Reg::R3, OFFSET_MASK);
        asm.jump_if(Reg::R3, Cmp::NotEqual, 0, ipv4);
        asm.place(whole);
        asm.mov(Reg::R4, L3);
        asm.alu(Alu::Add, Reg::R4, Reg::R2);
        asm.mov(Reg::R5, Reg::R4);
        asm.alu(Alu::Add, Reg::R5, 4);
        asm.jump_if(Reg::R5, Cmp::Above, END, ipv4);
        asm.mov(L4, Reg::R4);
    }

    fn miss(&mut self) {
        self.asm.mov(Reg::R0, XdpAction::Pass as i32);
        self.asm.exit();
    }

    /// Redirects to the socket of the receiving queue, with the metadata before the frame.
    fn hit(&mut self) {
        self.asm.place(self.labels.hit);
        if self.source.has_metadata() {
            if let Rules::Table(_) = self.source.rules {
                self.asm.load(Size::B4, WORD, Reg::R0, 0);
            }
            self.write_metadata();
        }
        let asm = &mut self.asm;
        asm.load_map(Reg::R1, self.source.sockets_fd);
        asm.load(Size::B4, Reg::R2, CTX, CTX_RX_QUEUE);
        asm.mov(Reg::R3, self.source.unclaimed as i32);
        asm.call(Helper::RedirectMap);
        asm.exit();
    }

    /// Whether the rules need the VLAN tag that the NIC stripped, or only the frames that match.
    fn vlan_decides(&self) -> bool {
        self.hint_source(RxHint::Vlan).is_some() && self.vlan_matters()
    }

    fn vlan_matters(&self) -> bool {
        self.any_shape(|shape| shape.has(Fields::VLAN))
    }

    fn hint_source(&self, hint: RxHint) -> Option<HintSource> {
        self.source.kfuncs[hint as usize]
    }

    /// Requests the driver's metadata and writes it before the frame, as [`metadata`] defines. The
    /// rule's word is in `WORD`.
    fn write_metadata(&mut self) {
        if self.hint_source(RxHint::Vlan).is_some() {
            if !self.vlan_decides() {
                self.ask_vlan();
            }
            self.asm.load(Size::B4, Reg::R1, Reg::R10, STACK_WORD);
            self.asm.alu(Alu::Or, WORD, Reg::R1);
        }
        self.ask_timestamp();
        self.ask_hash();
        self.write();
    }

    /// If the NIC stripped a tag, stores it as the outermost tag of the frame.
    fn ask_vlan(&mut self) {
        let Some(source) = self.hint_source(RxHint::Vlan) else { return };
        let none = self.asm.label();
        self.asm.store(Size::B8, Reg::R10, STACK_WORD, 0);
        self.call(source, (STACK_TPID, Size::B2), Some((STACK_TCI, Size::B2)));
        let asm = &mut self.asm;
        asm.jump_if(Reg::R0, Cmp::NotEqual, 0, none);
        asm.store(Size::B4, Reg::R10, STACK_WORD, metadata::HAS_VLAN as i32);
        asm.load(Size::B2, Reg::R1, Reg::R10, STACK_TCI);
        asm.alu(Alu::And, Reg::R1, 0x0fff);
        asm.store(Size::B2, Reg::R10, STACK_VLAN, Reg::R1);
        asm.place(none);
    }

    /// Drivers return the epoch itself for a frame without a timestamp (veth, and those whose
    /// stamping is off).
    fn ask_timestamp(&mut self) {
        let Some(source) = self.hint_source(RxHint::Timestamp) else { return };
        let none = self.asm.label();
        self.call(source, (STACK_ARRIVAL, Size::B8), None);
        let asm = &mut self.asm;
        asm.jump_if(Reg::R0, Cmp::NotEqual, 0, none);
        asm.load(Size::B8, Reg::R1, Reg::R10, STACK_ARRIVAL);
        asm.jump_if(Reg::R1, Cmp::Equal, 0, none);
        asm.alu(Alu::Or, WORD, metadata::HAS_TIMESTAMP as i32);
        asm.place(none);
    }

    /// A hash of type 0 is invalid (enum xdp_rss_hash_type in net/xdp.h).
    fn ask_hash(&mut self) {
        let Some(source) = self.hint_source(RxHint::Hash) else { return };
        let none = self.asm.label();
        self.call(source, (STACK_HASH, Size::B4), Some((STACK_HASH_KIND, Size::B4)));
        let asm = &mut self.asm;
        asm.jump_if(Reg::R0, Cmp::NotEqual, 0, none);
        asm.load(Size::B4, Reg::R1, Reg::R10, STACK_HASH_KIND);
        asm.jump_if(Reg::R1, Cmp::Equal, 0, none);
        asm.alu(Alu::Or, WORD, metadata::HAS_HASH as i32);
        asm.place(none);
    }

    /// A call of the form `int hint(ctx, *first, *second)`, with pointers to the stack. The
    /// verifier requires the eight bytes to be initialized. R0 holds the result; R1 to R5 are
    /// clobbered.
    fn call(&mut self, source: HintSource, first: (i16, Size), second: Option<(i16, Size)>) {
        let asm = &mut self.asm;
        asm.store(Size::B8, Reg::R10, first.0, 0);
        asm.mov(Reg::R1, CTX);
        for (reg, (at, _)) in [Reg::R2, Reg::R3].into_iter().zip([Some(first), second].into_iter().flatten()) {
            asm.mov(reg, Reg::R10);
            asm.alu(Alu::Add, reg, i32::from(at));
        }
        match source {
            HintSource::Kernel(function) => asm.call_kernel(function),
            #[cfg(test)]
            HintSource::AsIf { result, values } => {
                for (value, (at, size)) in values.into_iter().zip([Some(first), second].into_iter().flatten()) {
                    asm.store(size, Reg::R10, at, value);
                }
                asm.mov(Reg::R0, result);
            }
        }
    }

    /// Makes room before the frame and writes the metadata. Writes it even if it is empty, because
    /// the buffer may still hold the metadata of a frame that found the ring full. If the driver
    /// has no room, the frame is delivered without metadata.
    fn write(&mut self) {
        let done = self.asm.label();
        let has_hints = self.source.kfuncs != [None; 3];
        let len = if has_hints { RX_HINTS_LEN } else { TAG_ROOM } as i32;
        let asm = &mut self.asm;
        asm.mov(Reg::R1, CTX);
        asm.mov(Reg::R2, -len);
        asm.call(Helper::XdpAdjustMeta);
        asm.jump_if(Reg::R0, Cmp::NotEqual, 0, done);
        asm.load(Size::B4, Reg::R1, CTX, CTX_DATA_META);
        asm.load(Size::B4, Reg::R2, CTX, CTX_DATA);
        asm.mov(Reg::R3, Reg::R1);
        asm.alu(Alu::Add, Reg::R3, len);
        asm.jump_if(Reg::R3, Cmp::Above, Reg::R2, done);
        if has_hints {
            self.write_hints();
        }
        let asm = &mut self.asm;
        let near = len as usize - TAG_ROOM;
        asm.store(Size::B4, Reg::R1, (near + metadata::AT_MAGIC) as i16, metadata::MAGIC as i32);
        asm.store(Size::B4, Reg::R1, (near + metadata::AT_WORD) as i16, WORD);
        asm.place(done);
    }

    /// Writes the driver's values, and zeros for those not requested. R1 is the destination.
    fn write_hints(&mut self) {
        let from = |hint, at| self.hint_source(hint).map(|_| at);
        for (size, to, from) in [
            (Size::B8, metadata::AT_TIMESTAMP, from(RxHint::Timestamp, STACK_ARRIVAL)),
            (Size::B4, metadata::AT_HASH, from(RxHint::Hash, STACK_HASH)),
            (Size::B2, metadata::AT_VLAN, from(RxHint::Vlan, STACK_TCI)),
            (Size::B2, metadata::AT_VLAN + 2, None),
        ] {
            let asm = &mut self.asm;
            match from {
                Some(from) => {
                    asm.load(size, Reg::R2, Reg::R10, from);
                    asm.store(size, Reg::R1, to as i16, Reg::R2);
                }
                None => asm.store(size, Reg::R1, to as i16, 0),
            }
        }
    }
}

/// Loads the two bytes before [`L3`] into R2 and jumps if they announce a VLAN tag.
fn jump_if_tag(asm: &mut Assembler, label: Label) {
    asm.load(Size::B2, Reg::R2, L3, -2);
    asm.jump_if(Reg::R2, Cmp::Equal, network_order(EtherType::VLAN), label);
    asm.jump_if(Reg::R2, Cmp::Equal, network_order(EtherType::QINQ), label);
}

/// An EtherType as a two-byte load in the program reads it.
fn network_order(ethertype: EtherType) -> i32 {
    u16::from_ne_bytes(ethertype.0.to_be_bytes()).into()
}

#[cfg(test)]
mod tests;
