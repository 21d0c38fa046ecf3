//! An input read as numbers: how bytes become the plan of a scenario. An exhausted input gives
//! zeros, so every input is a whole plan, and a prefix of an input is a prefix of its plan.

/// The bytes that have not been read.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of `data`.
    pub const fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// Nothing is left: the plan is over.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }

    /// A number below `end`, from one byte.
    pub fn below(&mut self, end: u8) -> u8 {
        self.u8() % end
    }

    /// One of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[usize::from(self.u8()) % items.len()]
    }

    /// Up to `len` bytes.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.take(self.0.len())
    }

    /// Bytes with their length in front, two bytes of it: a frame in a stream of frames.
    pub fn block(&mut self) -> &'a [u8] {
        let len = self.u16();
        self.take(len.into())
    }
}
