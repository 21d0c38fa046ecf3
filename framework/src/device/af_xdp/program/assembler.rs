//! A small assembler for eBPF (RFC 9669): instructions, labels, and jumps that are resolved at the
//! end. It encodes instructions and is independent of packets.

use zerocopy::{Immutable, IntoBytes};

/// One instruction in the kernel's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Insn {
    code: u8,
    /// Destination in the low four bits, source in the high four (little endian).
    registers: u8,
    offset: i16,
    imm: i32,
}

/// A register. `R0` holds results, `R1` to `R5` arguments (clobbered by calls), `R6` to `R9`
/// survive calls, `R10` is the frame pointer, at the top of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// The width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    B1 = 0x10,
    B2 = 0x08,
    B4 = 0x00,
    B8 = 0x18,
}

/// 64-bit arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Move = 0xb0,
}

/// Unsigned comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cmp {
    Equal = 0x10,
    Above = 0x20,
    NotEqual = 0x50,
    Below = 0xa0,
}

/// Helper functions of the kernel, by their number in linux/bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Helper {
    MapLookup = 1,
    #[cfg(test)]
    VlanPush = 18,
    RedirectMap = 51,
    XdpAdjustMeta = 54,
    XdpBuffLen = 188,
}

/// The second operand: a register or an immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Reg(Reg),
    Imm(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(imm: i32) -> Self {
        Self::Imm(imm)
    }
}

/// The target of a jump, perhaps not placed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

const CLASS_LOAD: u8 = 0x00;
const CLASS_LOAD_REG: u8 = 0x01;
const CLASS_STORE_IMM: u8 = 0x02;
const CLASS_STORE_REG: u8 = 0x03;
const CLASS_ALU32: u8 = 0x04;
const CLASS_JUMP: u8 = 0x05;
const CLASS_JUMP32: u8 = 0x06;
const CLASS_ALU64: u8 = 0x07;
const MODE_MEM: u8 = 0x60;
const SOURCE_REG: u8 = 0x08;
const OP_JUMP_ALWAYS: u8 = 0x00;
const OP_CALL: u8 = 0x80;
const OP_EXIT: u8 = 0x90;
const OP_SWAP: u8 = 0xd0;
const TO_BIG_ENDIAN: u8 = 0x08;
/// Source register value of a 64-bit load that marks a map's file descriptor.
const PSEUDO_MAP_FD: u8 = 1;
/// Source register value of a call that marks the BTF id of a kernel function.
const PSEUDO_KFUNC_CALL: u8 = 2;

/// Collects instructions.
#[derive(Default)]
pub(crate) struct Assembler {
    insns: Vec<Insn>,
    /// The position of each label, once placed.
    places: Vec<Option<usize>>,
    /// Positions of jumps, and their labels.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// A label, to be placed later.
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Places `label` before the next instruction.
    pub(crate) fn place(&mut self, label: Label) {
        assert!(self.places[label.0].is_none(), "a label stands in one place");
        self.places[label.0] = Some(self.insns.len());
    }

    pub(crate) fn alu(&mut self, op: Alu, to: Reg, operand: impl Into<Operand>) {
        self.with_operand(CLASS_ALU64 | op as u8, to, operand.into(), 0);
    }

    pub(crate) fn mov(&mut self, to: Reg, operand: impl Into<Operand>) {
        self.alu(Alu::Move, to, operand);
    }

    /// Converts 16 bits from network order to host order.
    pub(crate) fn swap_big_endian16(&mut self, reg: Reg) {
        self.push(CLASS_ALU32 | OP_SWAP | TO_BIG_ENDIAN, reg, Reg::R0, 0, 16);
    }

    /// `to = *(from + offset)`
    pub(crate) fn load(&mut self, size: Size, to: Reg, from: Reg, offset: i16) {
        self.push(CLASS_LOAD_REG | MODE_MEM | size as u8, to, from, offset, 0);
    }

    /// `*(to + offset) = value`
    pub(crate) fn store(&mut self, size: Size, to: Reg, offset: i16, value: impl Into<Operand>) {
        match value.into() {
            Operand::Reg(from) => self.push(CLASS_STORE_REG | MODE_MEM | size as u8, to, from, offset, 0),
            Operand::Imm(imm) => self.push(CLASS_STORE_IMM | MODE_MEM | size as u8, to, Reg::R0, offset, imm),
        }
    }

    /// Loads a map's address, from its file descriptor. Two instructions long.
    pub(crate) fn load_map(&mut self, to: Reg, map_fd: i32) {
        let registers = to as u8 | PSEUDO_MAP_FD << 4;
        self.insns.push(Insn { code: CLASS_LOAD | Size::B8 as u8, registers, offset: 0, imm: map_fd });
        self.insns.push(Insn { code: 0, registers: 0, offset: 0, imm: 0 });
    }

    pub(crate) fn jump(&mut self, label: Label) {
        self.jumps.push((self.insns.len(), label));
        self.push(CLASS_JUMP | OP_JUMP_ALWAYS, Reg::R0, Reg::R0, 0, 0);
    }

    /// Jumps if `left cmp right`.
    pub(crate) fn jump_if(&mut self, left: Reg, cmp: Cmp, right: impl Into<Operand>, label: Label) {
        self.jumps.push((self.insns.len(), label));
        self.with_operand(CLASS_JUMP | cmp as u8, left, right.into(), 0);
    }

    /// Compares only the low 32 bits of `left`: a 64-bit comparison would sign-extend the
    /// immediate.
    pub(crate) fn jump_if32(&mut self, left: Reg, cmp: Cmp, right: i32, label: Label) {
        self.jumps.push((self.insns.len(), label));
        self.with_operand(CLASS_JUMP32 | cmp as u8, left, right.into(), 0);
    }

    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(CLASS_JUMP | OP_CALL, Reg::R0, Reg::R0, 0, helper as i32);
    }

    /// Calls a kernel function (kfunc), by its id in the kernel's BTF.
    pub(crate) fn call_kernel(&mut self, function: u32) {
        let registers = PSEUDO_KFUNC_CALL << 4;
        self.insns.push(Insn { code: CLASS_JUMP | OP_CALL, registers, offset: 0, imm: function as i32 });
    }

    pub(crate) fn exit(&mut self) {
        self.push(CLASS_JUMP | OP_EXIT, Reg::R0, Reg::R0, 0, 0);
    }

    /// The program, with its jumps resolved.
    pub(crate) fn finish(mut self) -> Vec<Insn> {
        for (at, label) in self.jumps {
            let place = self.places[label.0].expect("each label that is jumped to has a place");
            // Relative to the instruction behind the jump.
            let distance = place as isize - at as isize - 1;
            self.insns[at].offset =
                i16::try_from(distance).expect("a steering program is shorter than 32 Ki instructions");
        }
        self.insns
    }

    fn with_operand(&mut self, code: u8, to: Reg, operand: Operand, offset: i16) {
        match operand {
            Operand::Reg(from) => self.push(code | SOURCE_REG, to, from, offset, 0),
            Operand::Imm(imm) => self.push(code, to, Reg::R0, offset, imm),
        }
    }

    fn push(&mut self, code: u8, to: Reg, from: Reg, offset: i16, imm: i32) {
        self.insns.push(Insn { code, registers: to as u8 | (from as u8) << 4, offset, imm });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(build: impl FnOnce(&mut Assembler)) -> Vec<u8> {
        let mut assembler = Assembler::default();
        build(&mut assembler);
        assembler.finish().as_bytes().to_vec()
    }

    #[test]
    fn instructions_are_encoded_as_rfc_9669_says() {
        assert_eq!(bytes(|a| a.mov(Reg::R6, Reg::R1)), [0xbf, 0x16, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes(|a| a.mov(Reg::R0, 2)), [0xb7, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes(|a| a.load(Size::B2, Reg::R2, Reg::R9, -2)), [0x69, 0x92, 0xfe, 0xff, 0, 0, 0, 0]);
        assert_eq!(bytes(|a| a.store(Size::B4, Reg::R10, -8, Reg::R3)), [0x63, 0x3a, 0xf8, 0xff, 0, 0, 0, 0]);
        assert_eq!(bytes(|a| a.store(Size::B8, Reg::R10, -8, 0)), [0x7a, 0x0a, 0xf8, 0xff, 0, 0, 0, 0]);
        assert_eq!(bytes(|a| a.swap_big_endian16(Reg::R2)), [0xdc, 0x02, 0, 0, 16, 0, 0, 0]);
        assert_eq!(bytes(|a| a.call(Helper::RedirectMap)), [0x85, 0, 0, 0, 51, 0, 0, 0]);
        assert_eq!(bytes(|a| a.call_kernel(66_152)), [0x85, 0x20, 0, 0, 0x68, 0x02, 0x01, 0]);
        assert_eq!(bytes(|a| a.exit()), [0x95, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes(|a| a.load_map(Reg::R1, 7))[..8], [0x18, 0x11, 0, 0, 7, 0, 0, 0]);
    }

    #[test]
    fn jumps_reach_forward_and_back() {
        let code = bytes(|a| {
            let (start, end) = (a.label(), a.label());
            a.place(start);
            a.jump_if(Reg::R2, Cmp::Above, Reg::R8, end);
            a.jump(start);
            a.place(end);
            a.exit();
        });
        assert_eq!(code[..8], [0x2d, 0x82, 1, 0, 0, 0, 0, 0]);
        assert_eq!(code[8..16], [0x05, 0, 0xfe, 0xff, 0, 0, 0, 0]);
    }

    #[test]
    fn comparison_of_32_bits_has_its_own_class() {
        let code = bytes(|a| {
            let end = a.label();
            a.jump_if32(Reg::R2, Cmp::NotEqual, -1, end);
            a.place(end);
            a.exit();
        });
        assert_eq!(code[..8], [0x56, 0x02, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    }
}
