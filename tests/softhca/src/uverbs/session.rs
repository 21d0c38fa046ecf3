//! One open uverbs descriptor.

use super::abi::{Layout, verbs};
use super::calls::method::{open, tunnel};
use super::calls::{Bundle, Call, DRIVER_IN, DRIVER_OUT, Entry, Frame, Outputs, Reply, Request, command, method};
use super::context::{COMPLETION_VECTORS, Context, Opening};
use super::objects::Objects;
use super::{errno, refuse};
use crate::hca::{Dma, Errno, Event, Hca};

/// Which of the kernel's two protocols a session speaks; mlx5.md 3.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// `write` alone, as kernels before 4.20 did: every `ioctl` is answered with ENOTTY.
    Write,
    /// `ioctl`, which also tunnels commands that have no separate method. `write` works too.
    #[default]
    Ioctl,
}

/// The client's process, as far as the kernel needs it. The code that interposes the system calls
/// makes the descriptors, keeps their other ends, and writes [`event_record`](super::event_record)s
/// there.
pub trait Process {
    /// Makes a completion channel: the client's end.
    fn channel(&mut self) -> Result<i32, Errno>;

    /// Makes the asynchronous descriptor of a context: the client's end.
    fn async_events(&mut self) -> Result<i32, Errno>;

    /// Whether it may send and steer raw packets: CAP_NET_RAW.
    fn may_use_raw_packets(&self) -> bool {
        true
    }

    /// The MAC address of an IPv4 neighbor on the port's interface. EINPROGRESS while it is being
    /// asked for: the same command is to be given again.
    fn neighbor(&mut self, address: [u8; 4]) -> Result<[u8; 6], Errno> {
        let _ = address;
        refuse(libc::EHOSTUNREACH)
    }

    /// Takes back the events about the object with this user handle that the client has not read.
    fn take_back_events(&mut self, element: u64) -> Unread {
        let _ = element;
        Unread::default()
    }

    /// Bytes that may be kept in place by registering: RLIMIT_MEMLOCK, `None` without a limit.
    fn locked_len_max(&self) -> Option<u64> {
        None
    }
}

/// Events that a client has not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// On its completion channels.
    pub completion: u32,
    /// On its asynchronous descriptor.
    pub asynchronous: u32,
}

/// The state that the kernel can access during a system call.
pub struct Kernel<'a> {
    /// The NIC.
    pub hca: &'a mut Hca,
    /// The client's memory.
    pub dma: &'a dyn Dma,
    /// The client's process.
    pub process: &'a mut dyn Process,
}

/// The pages that an `mmap` of the uverbs descriptor maps, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// A page of doorbell registers. Pass its address to `Hca::map_uar`.
    Uar(u32),
    /// The free-running counter, read only: big-endian high and low word at offset 0 (mlx5.md 2.9).
    CoreClock,
    /// How cycles become nanoseconds, read only: `struct mlx5_ib_clock_info` (mlx5.md 2.9).
    ClockInfo,
}

/// One open uverbs descriptor: its context and the objects made through it. Other sessions do not
/// see them.
#[derive(Debug)]
pub struct Session {
    protocol: Protocol,
    context: Option<Context>,
}

/// RDMA_VERBS_IOCTL: _IOWR(0x1b, 1, 24 bytes).
const VERBS: u64 = 0xc018_1b01;

/// IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS: rights that are not known are ignored where the
/// client allows it.
const CORE_SUPPORT: u64 = 1;

impl Session {
    /// A descriptor that has just been opened: nothing works on it before a context was made.
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, context: None }
    }

    /// `write(fd, frame)`: one command. Gives the number of bytes taken, which is all of them.
    pub fn write(&mut self, frame: &[u8], kernel: &mut Kernel<'_>) -> Result<usize, Errno> {
        let parsed = Frame::parse(frame)?;
        let call = parsed.call(kernel.dma)?;
        let reply = self.run(parsed.entry, kernel, &call, Opener::Write)?;
        parsed.answer(kernel.dma, &reply)?;
        Ok(frame.len())
    }

    /// `ioctl(fd, request, argument)`: `argument` is an address in the client's memory.
    pub fn ioctl(&mut self, request: u64, argument: u64, kernel: &mut Kernel<'_>) -> Result<(), Errno> {
        if self.protocol == Protocol::Write || request != VERBS {
            return refuse(libc::ENOTTY);
        }
        let request = Request::read(kernel.dma, argument)?;
        let method = method::find(request.object, request.method)?;
        let nothing = Objects::default();
        let objects = self.context.as_ref().map_or(&nothing, |context| &context.objects);
        let bundle = request.bundle(kernel.dma, method.attributes, objects)?;
        let outputs = match method.run {
            method::Run::Tunnel => self.tunnel(kernel, &bundle)?,
            method::Run::Open => self.open_method(kernel, &bundle)?,
            method::Run::Within(run) => run(self.within()?, kernel, &bundle)?,
            method::Run::Destroy(kind) => {
                self.within()?.destroy(kind, bundle.wanted_handle(method.attributes[0].id)?, kernel)?;
                Outputs::default()
            }
        };
        bundle.answer(kernel.dma, &outputs)
    }

    /// The context, once there is one.
    fn within(&mut self) -> Result<&mut Context, Errno> {
        self.context.as_mut().ok_or(errno(libc::EINVAL))
    }

    /// `mmap(fd)` at `offset` (bytes). `writable` is whether PROT_WRITE was requested, which is
    /// refused for clocks.
    pub fn mmap(&mut self, offset: u64, len: usize, writable: bool, hca: &mut Hca) -> Result<Mapping, Errno> {
        self.within()?.mmap(offset, len, writable, hca)
    }

    /// The client's end of the asynchronous descriptor, once there is one.
    pub fn async_descriptor(&self) -> Option<i32> {
        self.context.as_ref()?.async_events
    }

    /// Objects that were made and not destroyed.
    pub fn objects(&self) -> usize {
        self.context.as_ref().map_or(0, |context| context.objects.iter().count())
    }

    /// Whether an event is for this session: about one of its objects, or about the port or the
    /// device, for all sessions.
    pub fn concerns(&self, event: &Event) -> bool {
        self.context.as_ref().is_some_and(|context| context.concerns(event))
    }

    /// The client closed a completion channel or its asynchronous descriptor: nothing is to be
    /// written there any more, and a new descriptor of that number is another.
    pub fn descriptor_closed(&mut self, descriptor: i32) {
        if let Some(context) = &mut self.context {
            context.channels.retain(|channel| *channel != descriptor);
            context.async_events = context.async_events.filter(|events| *events != descriptor);
        }
    }

    /// The client closed the uverbs descriptor, or ended: destroys all remaining objects, users
    /// before the objects that they use.
    pub fn close(&mut self, hca: &mut Hca) {
        if let Some(mut context) = self.context.take() {
            context.close(hca);
        }
    }

    fn run(&mut self, entry: &Entry, kernel: &mut Kernel<'_>, call: &Call<'_>, opener: Opener) -> Result<Reply, Errno> {
        match (entry.run, &mut self.context) {
            (command::Run::Open, _) => self.open(kernel, call, opener),
            (command::Run::Within(run), Some(context)) => run(context, kernel, call),
            (command::Run::Within(_), None) => refuse(libc::EINVAL),
        }
    }

    /// Makes the context. By `write` the asynchronous descriptor comes with it.
    fn open(&mut self, kernel: &mut Kernel<'_>, call: &Call<'_>, opener: Opener) -> Result<Reply, Errno> {
        if self.context.is_some() {
            return refuse(libc::EINVAL);
        }
        let opening = Opening::read(self.protocol, call.driver)?;
        let (mut context, driver) = opening.context(kernel.hca, call)?;
        let mut async_fd = 0;
        if opener == Opener::Write {
            match kernel.process.async_events() {
                Ok(descriptor) => {
                    context.async_events = Some(descriptor);
                    async_fd = descriptor as u32;
                }
                Err(refused) => {
                    context.close(kernel.hca);
                    return Err(refused);
                }
            }
        }
        self.context = Some(context);
        let response = verbs::GetContextResp { async_fd, num_comp_vectors: COMPLETION_VECTORS };
        Ok(Reply { core: response.bytes(), driver })
    }

    fn open_method(&mut self, kernel: &mut Kernel<'_>, bundle: &Bundle) -> Result<Outputs, Errno> {
        let call = Call { driver: bundle.bytes(DRIVER_IN), driver_room: bundle.room(DRIVER_OUT), ..Call::default() };
        let reply = self.open(kernel, &call, Opener::Ioctl)?;
        Ok(Outputs::new()
            .value(open::NUM_COMP_VECTORS, &COMPLETION_VECTORS)
            .value(open::CORE_SUPPORT, &CORE_SUPPORT)
            .bytes(DRIVER_OUT, reply.driver))
    }

    /// A command of `write` that came by `ioctl`.
    fn tunnel(&mut self, kernel: &mut Kernel<'_>, bundle: &Bundle) -> Result<Outputs, Errno> {
        let number: u64 = bundle.input(tunnel::WRITE_CMD);
        let Ok(number) = u32::try_from(number) else { return refuse(libc::EINVAL) };
        let entry = command::find(number)?;
        let call = Call {
            core: bundle.bytes(tunnel::CORE_IN),
            driver: bundle.bytes(DRIVER_IN),
            core_room: bundle.room(tunnel::CORE_OUT),
            driver_room: bundle.room(DRIVER_OUT),
        };
        if call.core.len() < entry.request_len || call.core_room < entry.response_len {
            return refuse(libc::ENOSPC);
        }
        let reply = self.run(entry, kernel, &call, Opener::Write)?;
        Ok(Outputs::new().bytes(tunnel::CORE_OUT, reply.core).bytes(DRIVER_OUT, reply.driver))
    }
}

/// By which call a context is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opener {
    /// The command, also where it was tunnelled.
    Write,
    /// The method of its own.
    Ioctl,
}
