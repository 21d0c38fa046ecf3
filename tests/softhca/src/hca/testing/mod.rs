//! A world for the model without an operating system: plain memory, a clock that is turned by hand,
//! a cable with two ends; and a driver with a queue pair of RDMA ([`rdma`]).
//!
//! All of it is single-threaded, safe code, so a test or a simulation of two NICs is a loop that
//! calls [`Hca::step`](super::Hca::step). Threads or real packets need another [`Dma`] and another
//! [`Wire`].

pub mod rdma;

use super::{Clock, Dma, LinkState, Unmapped, Wire};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Memory of the driver and the NIC, from a base address on. Everything outside is [`Unmapped`].
pub struct PlainMemory {
    base: u64,
    bytes: RefCell<Vec<u8>>,
    reserved: Cell<u64>,
}

impl PlainMemory {
    /// `len` bytes of zeros that begin at `base`.
    pub fn new(base: u64, len: usize) -> Self {
        Self { base, bytes: RefCell::new(vec![0; len]), reserved: Cell::new(base) }
    }

    /// Reserves `len` bytes at an address that is a multiple of `align` (a power of two).
    ///
    /// # Panics
    /// When there is not enough left: make the memory larger.
    pub fn reserve(&self, len: u64, align: u64) -> u64 {
        let address = self.reserved.get().next_multiple_of(align);
        let end = self.base + self.bytes.borrow().len() as u64;
        assert!(address + len <= end, "{len} bytes do not fit behind {address:#x}: the memory ends at {end:#x}");
        self.reserved.set(address + len);
        address
    }

    /// Stores bytes, as a driver does.
    ///
    /// # Panics
    /// Outside the memory: the test is wrong.
    pub fn put(&self, address: u64, bytes: &[u8]) {
        assert_eq!(self.write(address, bytes), Ok(()), "a test stored at {address:#x}, outside its memory");
    }

    /// Stores a big-endian word: a doorbell record.
    pub fn put_be32(&self, address: u64, value: u32) {
        self.put(address, &value.to_be_bytes());
    }

    /// Stores a big-endian double word: a UAR register.
    pub fn put_be64(&self, address: u64, value: u64) {
        self.put(address, &value.to_be_bytes());
    }

    /// Loads bytes, as a driver does.
    ///
    /// # Panics
    /// Outside the memory: the test is wrong.
    pub fn get(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert_eq!(self.read(address, &mut bytes), Ok(()), "a test loaded from {address:#x}, outside its memory");
        bytes
    }

    /// Loads a big-endian word.
    pub fn get_be32(&self, address: u64) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.get(address, 4));
        u32::from_be_bytes(word)
    }

    /// Where `len` bytes at `address` lie in the vector.
    fn range(&self, address: u64, len: usize, total: usize) -> Result<std::ops::Range<usize>, Unmapped> {
        let start = address.checked_sub(self.base).ok_or(Unmapped)?;
        let start = usize::try_from(start).map_err(|_| Unmapped)?;
        let end = start.checked_add(len).ok_or(Unmapped)?;
        if end > total { Err(Unmapped) } else { Ok(start..end) }
    }
}

impl Dma for PlainMemory {
    #[inline]
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        let bytes = self.bytes.borrow();
        into.copy_from_slice(&bytes[self.range(address, into.len(), bytes.len())?]);
        Ok(())
    }

    #[inline]
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        let mut bytes = self.bytes.borrow_mut();
        let range = self.range(address, from.len(), bytes.len())?;
        bytes[range].copy_from_slice(from);
        Ok(())
    }
}

/// A clock that stands until it is turned.
#[derive(Default)]
pub struct ManualClock {
    cycles: Cell<u64>,
}

impl ManualClock {
    /// The wall clock's time at cycle 0.
    pub const UNIX_NS_AT_START: u64 = 1_700_000_000_000_000_000;

    /// Turns it on by so many nanoseconds.
    pub fn advance(&self, ns: u64) {
        self.cycles.set(self.cycles.get() + ns);
    }
}

impl Clock for ManualClock {
    fn cycles(&self) -> u64 {
        self.cycles.get()
    }

    fn unix_ns(&self) -> u64 {
        Self::UNIX_NS_AT_START + self.cycles.get()
    }
}

/// One end of a cable inside a thread. The other end receives the frames that this end sends, in
/// order.
pub struct CableEnd {
    outgoing: Rc<RefCell<VecDeque<Vec<u8>>>>,
    incoming: Rc<RefCell<VecDeque<Vec<u8>>>>,
    up: Rc<Cell<bool>>,
    /// Frames that may be under way in one direction; one more finds the wire busy.
    pub frames_max: usize,
    /// Frames that went to the kernel's side of the port.
    pub kernel: Vec<Vec<u8>>,
}

impl CableEnd {
    /// A cable: its two ends.
    pub fn pair() -> (Self, Self) {
        let (there, back) = (Rc::default(), Rc::default());
        let up = Rc::new(Cell::new(true));
        let end = |outgoing: &Rc<_>, incoming: &Rc<_>| Self {
            outgoing: Rc::clone(outgoing),
            incoming: Rc::clone(incoming),
            up: Rc::clone(&up),
            frames_max: usize::MAX,
            kernel: Vec::new(),
        };
        (end(&there, &back), end(&back, &there))
    }

    /// Plugs the cable in or out, for both ends. Frames in flight still arrive.
    pub fn set_link(&self, link: LinkState) {
        self.up.set(link == LinkState::Up);
    }

    /// The next frame, where there is one: for a test that holds this end itself.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.incoming.borrow_mut().pop_front()
    }
}

impl Wire for CableEnd {
    fn send(&mut self, frame: &[u8]) -> bool {
        let mut outgoing = self.outgoing.borrow_mut();
        if outgoing.len() >= self.frames_max {
            return false;
        }
        outgoing.push_back(frame.to_vec());
        true
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        frame.clear();
        match self.incoming.borrow_mut().pop_front() {
            None => false,
            Some(next) => {
                frame.extend_from_slice(&next);
                true
            }
        }
    }

    fn to_kernel(&mut self, frame: &[u8]) {
        self.kernel.push(frame.to_vec());
    }

    fn link(&self) -> LinkState {
        if self.up.get() { LinkState::Up } else { LinkState::Down }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report
    use super::*;

    #[test]
    fn outside_the_memory_nothing_is_read_or_written() {
        let memory = PlainMemory::new(0x1000, 16);
        assert_eq!(memory.read(0xfff, &mut [0; 2]), Err(Unmapped), "one byte before");
        assert_eq!(memory.read(0x100f, &mut [0; 2]), Err(Unmapped), "one byte behind");
        assert_eq!(memory.write(u64::MAX, &[1, 2]), Err(Unmapped), "around the end of all addresses");
        assert_eq!(memory.get(0x1000, 16), [0; 16]);
    }

    #[test]
    fn a_register_is_taken_once() {
        let memory = PlainMemory::new(0x1000, 16);
        memory.put_be64(0x1008, 0x0102_0304_0506_0708);
        assert_eq!(memory.swap_be64(0x1008, 0).unwrap(), 0x0102_0304_0506_0708);
        assert_eq!(memory.swap_be64(0x1008, 0).unwrap(), 0);
    }

    #[test]
    fn a_full_cable_takes_no_more_until_the_other_end_receives() {
        let (mut here, mut there) = CableEnd::pair();
        here.frames_max = 1;
        assert!(here.send(&[1]));
        assert!(!here.send(&[2]));
        let mut frame = vec![9, 9];
        assert!(there.receive(&mut frame));
        assert_eq!(frame, [1]);
        assert!(here.send(&[2]));
    }
}
