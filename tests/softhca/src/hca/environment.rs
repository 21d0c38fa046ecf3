//! The model's environment: memory to read and write, a wire, a clock. Each step gets all of them.

/// The memory that the NIC reaches: rings, doorbell records, UAR pages, packet buffers. Addresses
/// are those that the driver wrote. A read or write outside of mapped memory returns an error and
/// does nothing.
///
/// The default methods are for memory that no other thread uses meanwhile: they are reads and
/// writes in two steps. Memory that is shared with a driver has methods of its own.
pub trait Dma {
    /// Copies `into.len()` bytes from `address`.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped>;

    /// Copies `from` to `address`.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped>;

    /// One aligned 32-bit big-endian word: a doorbell record. Stores of the driver before it are
    /// visible to reads after it.
    fn load_be32(&self, address: u64) -> Result<u32, Unmapped> {
        let mut word = [0; 4];
        self.read(address, &mut word)?;
        Ok(u32::from_be_bytes(word))
    }

    /// Stores an aligned 32-bit big-endian word.
    fn store_be32(&self, address: u64, value: u32) -> Result<(), Unmapped> {
        self.write(address, &value.to_be_bytes())
    }

    /// Replaces an aligned 32-bit big-endian word by `value`, and returns the old word: so that no
    /// arm word is lost when it is taken.
    fn swap_be32(&self, address: u64, value: u32) -> Result<u32, Unmapped> {
        let before = self.load_be32(address)?;
        self.store_be32(address, value)?;
        Ok(before)
    }

    /// Stores one byte after everything that was written before it: the byte that gives a CQE to
    /// the driver.
    fn publish(&self, address: u64, value: u8) -> Result<(), Unmapped> {
        self.write(address, &[value])
    }

    /// Puts `value` where the aligned 64-bit big-endian word was, and returns it: a UAR register,
    /// taken and cleared.
    fn swap_be64(&self, address: u64, value: u64) -> Result<u64, Unmapped> {
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        self.write(address, &value.to_be_bytes())?;
        Ok(u64::from_be_bytes(word))
    }
}

/// No memory there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmapped;

/// The cable. Frames are without frame check sequence.
pub trait Wire {
    /// Sends a frame; `false` where the wire takes no more at the moment, and the NIC keeps it.
    fn send(&mut self, frame: &[u8]) -> bool;

    /// Takes the next frame that came in into `frame` (cleared first); `false` where there is none.
    fn receive(&mut self, frame: &mut Vec<u8>) -> bool;

    /// Gives a frame that no flow rule named to the kernel's side of the port, where there is one.
    fn to_kernel(&mut self, frame: &[u8]) {
        let _ = frame;
    }

    /// Whether the kernel's side of the port wants this frame for itself (its address, broadcast,
    /// its groups): a frame that no rule of [`FlowKind::Normal`](super::FlowKind::Normal) named
    /// goes there before a default rule sees it.
    fn kernel_wants(&self, frame: &[u8]) -> bool {
        let _ = frame;
        false
    }

    /// Whether the port is up.
    fn link(&self) -> LinkState;
}

/// The state of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Frames pass.
    Up,
    /// Nothing passes.
    Down,
}

/// The NIC's clock.
pub trait Clock {
    /// Cycles of the NIC's free-running counter; one a nanosecond.
    fn cycles(&self) -> u64;

    /// Nanoseconds since 1970: the time in a CQE where real-time stamps were requested.
    fn unix_ns(&self) -> u64;
}

/// Memory, wire and clock, for one step.
pub struct Environment<'a> {
    /// Memory.
    pub dma: &'a dyn Dma,
    /// The cable.
    pub wire: &'a mut dyn Wire,
    /// The clock.
    pub clock: &'a dyn Clock,
}
