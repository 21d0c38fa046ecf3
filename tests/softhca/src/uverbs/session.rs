//! One open uverbs descriptor.

use crate::hca::{Dma, Errno, Event, Hca};

/// Which of the kernel's two protocols a session speaks; mlx5.md 3.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// `write` alone, as kernels before 4.20 did: every `ioctl` is answered with ENOTTY.
    Write,
    /// `ioctl`, with commands that have no method of their own tunnelled through it. `write` works beside it.
    #[default]
    Ioctl,
}

/// Descriptors that a client gets in a response. Whoever interposes the system calls makes them, keeps their other ends, and
/// writes [`event_record`](super::event_record)s there.
pub trait Descriptors {
    /// A completion channel: the client's end.
    fn channel(&mut self) -> Result<i32, Errno>;

    /// The asynchronous descriptor of a context: the client's end.
    fn async_events(&mut self) -> Result<i32, Errno>;
}

/// What the kernel would have at hand during a system call.
pub struct Kernel<'a> {
    /// The NIC.
    pub hca: &'a mut Hca,
    /// The client's memory.
    pub dma: &'a dyn Dma,
    /// New descriptors.
    pub descriptors: &'a mut dyn Descriptors,
}

/// What an `mmap` of the uverbs descriptor maps: one page each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// A page of doorbell registers. Tell its address by [`Session::mapped_uar`].
    Uar(u32),
    /// The free-running counter, read only: big-endian high and low word at offset 0 (mlx5.md 2.9).
    CoreClock,
    /// How cycles become nanoseconds, read only: `struct mlx5_ib_clock_info` (mlx5.md 2.9).
    ClockInfo,
}

/// One open uverbs descriptor: its context and the objects that were made through it. Another session does not see them.
#[derive(Debug)]
pub struct Session {
    protocol: Protocol,
}

impl Session {
    /// A descriptor that has just been opened: nothing works on it before a context was made.
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol }
    }

    /// `write(fd, frame)`: one command. Gives the number of bytes taken, which is all of them.
    pub fn write(&mut self, frame: &[u8], kernel: &mut Kernel<'_>) -> Result<usize, Errno> {
        let _ = (frame, kernel);
        Err(Errno(libc::EOPNOTSUPP))
    }

    /// `ioctl(fd, request, argument)`: `argument` is an address in the client's memory.
    pub fn ioctl(&mut self, request: u64, argument: u64, kernel: &mut Kernel<'_>) -> Result<(), Errno> {
        let _ = (request, argument, kernel);
        match self.protocol {
            Protocol::Write => Err(Errno(libc::ENOTTY)),
            Protocol::Ioctl => Err(Errno(libc::EOPNOTSUPP)),
        }
    }

    /// `mmap(fd)`: what lies at `offset` (bytes). `writable` is whether PROT_WRITE was asked for, which clocks refuse.
    pub fn mmap(&mut self, offset: u64, len: usize, writable: bool, kernel: &mut Kernel<'_>) -> Result<Mapping, Errno> {
        let _ = (offset, len, writable, kernel);
        Err(Errno(libc::EINVAL))
    }

    /// A [`Mapping::Uar`] was mapped at `address` of the client's memory.
    pub fn mapped_uar(&mut self, index: u32, address: u64, hca: &mut Hca) {
        let _ = (index, address, hca);
    }

    /// The client's end of the asynchronous descriptor, once there is one.
    pub fn async_descriptor(&self) -> Option<i32> {
        None
    }

    /// Whether an event is for this session: of one of its objects, or of the port or the device, which all hear of.
    pub fn concerns(&self, event: &Event) -> bool {
        let _ = event;
        false
    }

    /// The client closed a completion channel or its asynchronous descriptor: nothing is to be written there any more.
    pub fn descriptor_closed(&mut self, descriptor: i32) {
        let _ = descriptor;
    }

    /// The client closed the uverbs descriptor, or ended: destroys all that is left, users before what they use.
    pub fn close(&mut self, hca: &mut Hca, dma: &dyn Dma) {
        let _ = (hca, dma);
    }
}
