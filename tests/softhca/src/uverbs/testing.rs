//! A client without libibverbs: builds the bytes that libibverbs would hand to the kernel, in
//! [`PlainMemory`], and reads the answers. For tests, for a fuzzer's plans, and for a simulation
//! that wants queues.

use super::abi::verbs::{CmdHdr, ExCmdHdr, IoctlHdr};
use super::abi::{Layout, read_at};
use super::{Kernel, Mapping, Process, Protocol, Session};
use crate::hca::testing::PlainMemory;
use crate::hca::{Config, Dma, Errno, Hca};

/// Where the client's memory begins.
pub const MEMORY: u64 = 0x10_0000;

/// Bytes of it: room for responses, then the [reserved](PlainMemory::reserve) memory.
pub const MEMORY_LEN: usize = 1 << 20;

/// The address of responses; calls of `ioctl` and the data that they point to follow it.
const RESPONSE: u64 = MEMORY;
/// Where calls of `ioctl` begin.
pub const CALL: u64 = MEMORY + 0x2_0000;
const SCRATCH_LEN: u64 = 0x4_0000;

/// RDMA_VERBS_IOCTL.
pub const VERBS: u64 = 0xc018_1b01;

/// A number of an extended command.
pub const fn extended(number: u32) -> u32 {
    number | 1 << 31
}

/// Descriptors that are only numbers.
#[derive(Debug)]
pub struct Numbers {
    /// The next one.
    pub next: i32,
    /// Whether raw packets are allowed.
    pub raw: bool,
    /// The limit of locked memory.
    pub locked_len_max: Option<u64>,
}

impl Process for Numbers {
    fn channel(&mut self) -> Result<i32, Errno> {
        self.next += 1;
        Ok(self.next)
    }

    fn async_events(&mut self) -> Result<i32, Errno> {
        self.channel()
    }

    fn may_use_raw_packets(&self) -> bool {
        self.raw
    }

    fn locked_len_max(&self) -> Option<u64> {
        self.locked_len_max
    }
}

/// A recorded system call of the client, to be repeated with the same memory at the same addresses.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// `write` of a frame.
    Write(Vec<u8>),
    /// `ioctl`: these bytes stood at [`CALL`].
    Ioctl(Vec<u8>),
}

/// A process with one uverbs descriptor open.
pub struct Client {
    /// The calls of its commands and methods.
    pub recorded: Vec<Recorded>,
    /// All the memory that it has.
    pub memory: PlainMemory,
    /// The NIC.
    pub hca: Hca,
    /// The descriptor.
    pub session: Session,
    /// Its other descriptors.
    pub process: Numbers,
}

/// A command of `write`.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// Its number, [`extended`] or not.
    pub number: u32,
    /// The core request. Of plain commands with a response, without the response's address.
    pub core: Vec<u8>,
    /// The driver's request.
    pub driver: Vec<u8>,
    /// Bytes of room for the core response.
    pub core_room: usize,
    /// Bytes of room for the driver's.
    pub driver_room: usize,
}

impl Command {
    /// The frame as `write` takes it, answered at `response`. Lengths are cut down to whole words.
    pub fn frame(&self, response: u64) -> Vec<u8> {
        let mut frame = Vec::new();
        if self.number >> 31 == 0 {
            let core = self.plain_core(response);
            let in_words = ((8 + core.len() + self.driver.len()) / 4) as u16;
            let out_words = ((self.core_room + self.driver_room) / 4) as u16;
            CmdHdr { command: self.number, in_words, out_words }.write(&mut frame);
            frame.extend(core);
        } else {
            let words = |len: usize| (len / 8) as u16;
            let (in_words, out_words) = (words(self.core.len()), words(self.core_room));
            let answered = self.core_room + self.driver_room > 0;
            CmdHdr { command: self.number, in_words, out_words }.write(&mut frame);
            let more = ExCmdHdr {
                response: if answered { response } else { 0 },
                provider_in_words: words(self.driver.len()),
                provider_out_words: words(self.driver_room),
                cmd_hdr_reserved: 0,
            };
            more.write(&mut frame);
            frame.extend(&self.core);
        }
        frame.extend(&self.driver);
        frame
    }

    fn plain_core(&self, response: u64) -> Vec<u8> {
        let address = if self.core_room > 0 { response.bytes() } else { Vec::new() };
        [address, self.core.clone()].concat()
    }
}

/// An attribute of a call.
#[derive(Clone, Debug)]
pub enum Attribute {
    /// Bytes that the method reads.
    In(u16, Vec<u8>),
    /// Room for so many bytes.
    Out(u16, usize),
    /// A handle or a descriptor that exists.
    Number(u16, i64),
    /// Gets a handle or a descriptor.
    New(u16),
}

/// The outputs by attribute, in their order; nothing for `In` and `Number`.
pub type Answer = Vec<Vec<u8>>;

impl Client {
    /// A process that has just opened the descriptor.
    pub fn new(protocol: Protocol, config: Config) -> Self {
        let memory = PlainMemory::new(MEMORY, MEMORY_LEN);
        memory.reserve(SCRATCH_LEN, 4096);
        let process = Numbers { next: 100, raw: true, locked_len_max: None };
        Self { recorded: Vec::new(), memory, hca: Hca::new(config), session: Session::new(protocol), process }
    }

    /// Writes a frame unchanged.
    pub fn write(&mut self, frame: &[u8]) -> Result<usize, Errno> {
        let mut kernel = Kernel { hca: &mut self.hca, dma: &self.memory, process: &mut self.process };
        self.session.write(frame, &mut kernel)
    }

    /// Calls `ioctl` with an argument that is in memory.
    pub fn raw_ioctl(&mut self, request: u64, argument: u64) -> Result<(), Errno> {
        let mut kernel = Kernel { hca: &mut self.hca, dma: &self.memory, process: &mut self.process };
        self.session.ioctl(request, argument, &mut kernel)
    }

    /// Maps a page of the descriptor, without memory behind it.
    pub fn mmap(&mut self, page: u64, writable: bool) -> Result<Mapping, Errno> {
        self.session.mmap(page * 4096, 4096, writable, &mut self.hca)
    }

    /// Sends a command by `write`. Returns the core response and the driver's.
    pub fn command(&mut self, command: &Command) -> Result<(Vec<u8>, Vec<u8>), Errno> {
        let frame = command.frame(RESPONSE);
        self.memory.put(RESPONSE, &vec![0xee; command.core_room + command.driver_room]);
        self.recorded.push(Recorded::Write(frame.clone()));
        assert_eq!(self.write(&frame)?, frame.len(), "a frame is taken in whole");
        let core = self.memory.get(RESPONSE, command.core_room);
        Ok((core, self.memory.get(RESPONSE + command.core_room as u64, command.driver_room)))
    }

    /// Gives a command through the tunnel of `ioctl`.
    pub fn tunnel(&mut self, command: &Command) -> Result<(Vec<u8>, Vec<u8>), Errno> {
        let is_plain = command.number >> 31 == 0;
        let core = if is_plain { command.plain_core(0) } else { command.core.clone() };
        let answer = self.ioctl(
            0,
            0,
            &[
                Attribute::In(0, core),
                Attribute::Out(1, command.core_room),
                Attribute::In(2, u64::from(command.number).bytes()),
                Attribute::In(0x1000, command.driver.clone()),
                Attribute::Out(0x1001, command.driver_room),
            ],
        )?;
        Ok((answer[1].clone(), answer[4].clone()))
    }

    /// Calls a method.
    pub fn ioctl(&mut self, object: u16, method: u16, attributes: &[Attribute]) -> Result<Answer, Errno> {
        let (outputs, end) = self.lay_out(object, method, attributes);
        self.recorded.push(Recorded::Ioctl(self.memory.get(CALL, (end - CALL) as usize)));
        self.raw_ioctl(VERBS, CALL)?;
        Ok(outputs.iter().map(|(address, len)| self.memory.get(*address, *len)).collect())
    }

    /// Writes a call to memory and returns the addresses of its outputs, and the end of all of it.
    fn lay_out(&self, object: u16, method: u16, attributes: &[Attribute]) -> (Vec<(u64, usize)>, u64) {
        let header = IoctlHdr {
            length: (IoctlHdr::LEN + attributes.len() * 16) as u16,
            object_id: object,
            method_id: method,
            num_attrs: attributes.len() as u16,
            driver_id: 1,
            ..IoctlHdr::default()
        };
        let mut call = header.bytes();
        let mut at = CALL + u64::from(header.length).next_multiple_of(64);
        let mut outputs = Vec::new();
        for attribute in attributes {
            let place = CALL + call.len() as u64 + 8;
            let (id, len, data, output) = match attribute {
                Attribute::In(id, bytes) if bytes.len() <= 8 => (*id, bytes.len(), u64::read(bytes), (place, 0)),
                Attribute::In(id, bytes) => {
                    self.memory.put(at, bytes);
                    (*id, bytes.len(), at, (at, 0))
                }
                Attribute::Out(id, len) => {
                    self.memory.put(at, &vec![0xee; *len]);
                    (*id, *len, at, (at, *len))
                }
                Attribute::Number(id, number) => (*id, 0, *number as u64, (place, 0)),
                Attribute::New(id) => (*id, 0, 0, (place, 8)),
            };
            at += (len as u64).next_multiple_of(8);
            outputs.push(output);
            id.write(&mut call);
            (len as u16).write(&mut call);
            1_u16.write(&mut call);
            0_u16.write(&mut call);
            data.write(&mut call);
        }
        self.memory.put(CALL, &call);
        (outputs, at)
    }

    /// Makes the context as libmlx5 does: 16 doorbell registers, 4 of them for those in a hurry.
    pub fn open(&mut self) -> Result<(), Errno> {
        const REQUEST: [u32; 8] = [16, 4, 0, 0, 1, 0, 3, 0];
        let driver = REQUEST.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.command(&Command { number: 0, core: Vec::new(), driver, core_room: 8, driver_room: 72 }).map(drop)
    }

    /// Makes a protection domain: its handle.
    pub fn pd(&mut self) -> Result<u32, Errno> {
        let (core, _) = self.command(&Command { number: 3, core_room: 4, driver_room: 4, ..Command::default() })?;
        Ok(u32::read(&core))
    }

    /// Makes a CQ with `entries` entries, a power of two: its handle.
    pub fn cq(&mut self, entries: u32, channel: Option<i32>, user_handle: u64) -> Result<u32, Errno> {
        let ring = self.memory.reserve(u64::from(entries) * 64, 4096);
        let doorbell = self.memory.reserve(64, 64);
        let channel = channel.unwrap_or(-1);
        let core = [user_handle.bytes(), (entries - 1).bytes(), 0_u32.bytes(), channel.bytes(), 0_u32.bytes()].concat();
        let driver = [ring.bytes(), doorbell.bytes(), 64_u32.bytes(), vec![0; 12]].concat();
        let (core, _) = self.command(&Command { number: 18, core, driver, core_room: 8, driver_room: 8 })?;
        Ok(u32::read(&core))
    }

    /// Makes a QP with a sending and a receiving ring of `count` WQEs of 64 bytes each: its handle.
    pub fn qp(&mut self, pd: u32, cq: u32, count: u32) -> Result<u32, Errno> {
        let (core, _) = self.command(&self.qp_command(pd, cq, count))?;
        Ok(u32::read(&core))
    }

    /// The command for [`Self::qp`].
    pub fn qp_command(&self, pd: u32, cq: u32, count: u32) -> Command {
        let [receive, send] = [(); 2].map(|()| self.memory.reserve(u64::from(count) * 64, 4096));
        let doorbell = self.memory.reserve(64, 64);
        let limits = [count, count, 4, 4, 0];
        let words: Vec<u8> = [pd, cq, cq, 0].iter().chain(&limits).flat_map(|word| word.to_ne_bytes()).collect();
        let core = [0x7000_u64.bytes(), words, vec![0, 8, 0, 0]].concat();
        let geometry = [count, count, 6, 0, 77, 0];
        let words: Vec<u8> = geometry.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let driver = [receive.bytes(), doorbell.bytes(), words, send.bytes(), 0_u64.bytes()].concat();
        Command { number: 24, core, driver, core_room: 32, driver_room: 40 }
    }

    /// Destroys by a plain command whose request is the handle alone.
    pub fn destroy(&mut self, number: u32, handle: u32) -> Result<(), Errno> {
        self.command(&Command { number, core: handle.bytes(), ..Command::default() }).map(drop)
    }

    /// The word at `at` of a response.
    pub fn word(answer: &[u8], at: usize) -> u32 {
        read_at(answer, at)
    }

    /// The memory as the kernel sees it.
    pub fn dma(&self) -> &dyn Dma {
        &self.memory
    }
}
