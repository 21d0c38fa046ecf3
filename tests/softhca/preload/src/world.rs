//! All state of the library: NICs, their cables, and the clients that have them open. It is behind
//! one mutex, which every call of the program and every turn of the engine takes, so nothing here
//! runs concurrently.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use softhca::hca::{Dma, Environment, Errno, Event, EventKind};
use softhca::settings::{Engine, Settings, WireSettings};
use softhca::uverbs::{Kernel, Mapping, Session, event_record};
use softhca::wire::{PairEnd, Port};

use crate::channels::{Channels, Neighbors};
use crate::clock::{HostClock, Now};
use crate::device::{self, Device};
use crate::memory::HostMemory;
use crate::pages::{Page, Wish};
use crate::refusal::Refusal;
use crate::{engine, sys};

/// See the module.
pub(crate) struct World {
    settings: Settings,
    /// Devices by number; `None` where no client has the device open.
    devices: Vec<Option<Device>>,
    /// By descriptor.
    open: HashMap<i32, Open>,
    memory: HostMemory,
    core_clock: Page,
    clock_info: Page,
    /// Sentences about the program's mistakes, until the program reads them.
    diagnoses: VecDeque<String>,
    /// The pending refusal.
    refusal: Option<Refusal>,
    shown: Now,
    /// When mappings were tried last.
    tried_ns: u64,
    /// Whether the engine's thread is there.
    pub(crate) has_engine: bool,
}

/// One open descriptor.
struct Open {
    device: usize,
    session: Session,
    channels: Channels,
    /// By their index.
    registers: HashMap<u32, Page>,
    /// Has them, at the offsets at which they are mapped.
    file: OwnedFd,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);
/// The number of calls of the program that wait for the mutex. The engine waits for them, because
/// otherwise it would be the first to lock the mutex again.
static WAITING: AtomicU32 = AtomicU32::new(0);
/// The process whose world it is.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Sentences that are kept.
const DIAGNOSES_MAX: usize = 64;
/// The interval at which clocks and counters are updated. A reader of the clock computes forward
/// from the last update.
const SHOWN_NS: u64 = 20_000_000;

/// The time for which a mapping is assumed to exist. A program that unmaps registered memory is
/// wrong, and must learn of it.
const BELIEVED_NS: u64 = 1_000_000;

/// The world, once there is one.
pub(crate) type Guard = MutexGuard<'static, Option<World>>;

/// Takes the mutex for a call of the program.
pub(crate) fn lock() -> Guard {
    WAITING.fetch_add(1, Ordering::Relaxed);
    // A panic ended the process.
    let guard = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    WAITING.fetch_sub(1, Ordering::Relaxed);
    guard
}

/// Takes it for the engine.
pub(crate) fn lock_for_engine() -> Guard {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the mutex if it is free.
pub(crate) fn try_lock() -> Option<Guard> {
    WORLD.try_lock().ok()
}

/// Whether somebody waits for it.
pub(crate) fn is_wanted() -> bool {
    WAITING.load(Ordering::Relaxed) > 0
}

/// Whether the calling process owns this world. The child of `vfork` runs in its parent's memory,
/// and closes its own descriptors.
pub(crate) fn is_ours() -> bool {
    OWNER.load(Ordering::Relaxed) == sys::process()
}

/// Makes a world from the settings of `softhca run`, and runs `act` with it.
pub(crate) fn with<T>(act: impl FnOnce(&mut World) -> Result<T, Errno>) -> Result<T, Errno> {
    let mut guard = lock();
    if guard.is_none() {
        *guard = Some(World::new()?);
        OWNER.store(sys::process(), Ordering::Relaxed);
        engine::watch_process();
    }
    guard.as_mut().map_or(Err(Errno(libc::ENODEV)), act)
}

impl World {
    fn new() -> Result<Self, Errno> {
        let settings = Settings::read(|name| std::env::var(name).ok()).map_err(|why| {
            sys::tell_operator(&why);
            Errno(libc::ENODEV)
        })?;
        let page = || Page::new().map_err(|_| Errno(libc::ENOMEM));
        let (core_clock, clock_info) = (page()?, page()?);
        let shown = HostClock.now();
        core_clock.show_core_clock(shown);
        clock_info.show_clock_info(shown);
        Ok(Self {
            devices: settings.devices.iter().map(|_| None).collect(),
            settings,
            open: HashMap::new(),
            memory: HostMemory::new(),
            core_clock,
            clock_info,
            diagnoses: VecDeque::new(),
            refusal: None,
            shown,
            tried_ns: 0,
            has_engine: false,
        })
    }

    /// A command by `write`.
    pub(crate) fn write(&mut self, fd: i32, frame: &[u8]) -> Result<usize, Errno> {
        let number = frame.first_chunk().map_or(0, |number| u32::from_ne_bytes(*number));
        let answer = match Refusal::of(&mut self.refusal, number) {
            Some(errno) => Err(errno),
            None => self.call(fd, |session, kernel| session.write(frame, kernel)),
        };
        self.tell_refusal(&answer, || format!("command {number:#x} of {} bytes", frame.len()));
        answer
    }

    /// A command by `ioctl`.
    pub(crate) fn ioctl(&mut self, fd: i32, request: u64, argument: u64) -> Result<(), Errno> {
        let answer = self.call(fd, |session, kernel| session.ioctl(request, argument, kernel));
        self.tell_refusal(&answer, || {
            // The header: length, object, method; the first attribute behind it: id, length, flags,
            // data. mlx5.md 3.2.
            let mut header = [0; 40];
            let _ = self.memory.read(argument, &mut header);
            let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
            format!("ioctl on object {:#x}, method {:#x}, data {:#x}", half(2), half(4), half(32))
        });
        answer
    }

    /// Maps a page: its address.
    pub(crate) fn mmap(&mut self, fd: i32, offset: u64, len: usize, wish: Wish) -> Result<usize, Errno> {
        let is_writable = wish.protection & libc::PROT_WRITE != 0;
        let mapping = self.call(fd, |session, kernel| session.mmap(offset, len, is_writable, kernel.hca))?;
        let (core_clock, clock_info) = (self.core_clock, self.clock_info);
        let page = match mapping {
            Mapping::CoreClock => core_clock,
            Mapping::ClockInfo => clock_info,
            Mapping::Uar(index) => self.registers(fd, index, offset)?,
        };
        page.share(wish).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::ENOMEM)))
    }

    /// The page of a UAR, which is one however often it is mapped, and at its offset in the file
    /// that another process may have.
    fn registers(&mut self, fd: i32, index: u32, offset: u64) -> Result<Page, Errno> {
        let open = self.open.get_mut(&fd).ok_or(Errno(libc::EBADF))?;
        let page = match open.registers.get(&index) {
            Some(page) => *page,
            None => Page::within(open.file.as_raw_fd(), offset).map_err(|_| Errno(libc::ENOMEM))?,
        };
        open.registers.insert(index, page);
        // Also one that is mapped again: between, its index may have been given back and out.
        if let Some(device) = &mut self.devices[open.device] {
            device.hca.map_uar(index, page.address())?;
        }
        Ok(page)
    }

    /// The program closed a descriptor of ours.
    pub(crate) fn close(&mut self, fd: i32) {
        sys::know(fd, sys::Known::No);
        for open in self.open.values_mut() {
            if open.channels.close(fd) {
                open.session.descriptor_closed(fd);
            }
        }
        let Some(mut open) = self.open.remove(&fd) else { return };
        open.channels.clients().for_each(|client| sys::know(client, sys::Known::No));
        if let Some(device) = &mut self.devices[open.device] {
            open.session.close(&mut device.hca);
        }
        self.memory.forget();
        self.show_counters();
        self.switch_off();
    }

    fn tell_refusal<T>(&self, answer: &Result<T, Errno>, what: impl FnOnce() -> String) {
        if let Err(errno) = answer
            && self.settings.verbose
        {
            sys::tell_operator(&format!("{} was refused with errno {}", what(), errno.0));
        }
    }

    fn call<T>(
        &mut self,
        fd: i32,
        act: impl FnOnce(&mut Session, &mut Kernel<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.open(fd)?;
        // Mappings may have changed since the last command, and memory that this command frees may
        // be unmapped next.
        self.memory.forget();
        let open = self.open.get_mut(&fd).ok_or(Errno(libc::EBADF))?;
        let device = self.devices[open.device].as_mut().filter(|device| !device.is_gone).ok_or(Errno(libc::EIO))?;
        let mut kernel = Kernel { hca: &mut device.hca, dma: &self.memory, process: &mut open.channels };
        let answer = act(&mut open.session, &mut kernel);
        self.deliver();
        answer
    }

    /// Makes a session for a descriptor that is seen for the first time, and switches its device
    /// on.
    fn open(&mut self, fd: i32) -> Result<(), Errno> {
        if self.open.contains_key(&fd) {
            return Ok(());
        }
        let device = sys::uverbs_number(fd).filter(|number| *number < self.devices.len()).ok_or(Errno(libc::ENODEV))?;
        self.switch_on(device).map_err(|why| {
            sys::tell_operator(&format!("{}: {why}", self.settings.devices[device].config.name));
            Errno(libc::EIO)
        })?;
        let file = sys::place_registers(fd, device).map_err(|_| Errno(libc::ENOMEM))?;
        let session = Session::new(self.settings.protocol);
        let open =
            Open { device, session, channels: Channels::new(self.neighbors(device)), registers: HashMap::new(), file };
        self.open.insert(fd, open);
        sys::know(fd, sys::Known::Device);
        if self.settings.engine == Engine::Thread && !self.has_engine {
            self.has_engine = engine::start();
        }
        Ok(())
    }

    /// Where clients of a device find their peers.
    fn neighbors(&self, device: usize) -> Neighbors {
        let devices = &self.settings.devices;
        let known = devices.iter().filter_map(|device| Some((device.config.address?, device.config.mac)));
        Neighbors { interface: devices[device].netdev.clone(), known: known.collect() }
    }

    fn switch_on(&mut self, number: usize) -> Result<(), String> {
        if self.devices[number].is_some() {
            return Ok(());
        }
        let Settings { devices, counters, .. } = &self.settings;
        let counters = counters.as_deref();
        if devices[number].wire == WireSettings::Pair {
            let partner =
                device::partner(devices, number).ok_or("its wire is `pair`, and there is no other such device")?;
            let (here, there) = PairEnd::pair();
            let here = Device::new(&devices[number], Port::new(Box::new(here)), counters)?;
            let there = Device::new(&devices[partner], Port::new(Box::new(there)), counters)?;
            (self.devices[number], self.devices[partner]) = (Some(here), Some(there));
        } else {
            let port = device::port(&devices[number])?;
            self.devices[number] = Some(Device::new(&devices[number], port, counters)?);
        }
        Ok(())
    }

    /// Closes devices that no client has open; both ends of a pair stay as long as one is in use.
    fn switch_off(&mut self) {
        let partner = |number| device::partner(&self.settings.devices, number);
        let in_use: Vec<_> = self.open.values().flat_map(|open| [Some(open.device), partner(open.device)]).collect();
        for number in 0..self.devices.len() {
            if !in_use.contains(&Some(number)) {
                self.devices[number] = None;
            }
        }
    }

    /// Lets every NIC do its due work, and returns how much that was.
    pub(crate) fn step(&mut self, budget: usize) -> usize {
        let mut done = 0;
        let now = HostClock.now();
        if now.cycles.saturating_sub(self.tried_ns) >= BELIEVED_NS {
            self.tried_ns = now.cycles;
            self.memory.forget();
        }
        for device in self.devices.iter_mut().flatten().filter(|device| !device.is_gone) {
            let Device { hca, port, hw_counters, .. } = device;
            if port.awaits_start() && hca.listens(&self.memory) {
                port.start();
            }
            done += hca.step(budget, &mut Environment { dma: &self.memory, wire: port, clock: &HostClock });
            port.tend(now.cycles);
            if let Some(shown) = hw_counters {
                shown.show(hca.counters().rx_out_of_buffer);
            }
        }
        self.deliver();
        if now.cycles.saturating_sub(self.shown.cycles) >= SHOWN_NS {
            self.shown = now;
            self.clock_info.show_clock_info(now);
            self.show_counters();
        }
        self.core_clock.show_core_clock(now);
        done
    }

    /// Pulls the device of this name out: whether somebody had it open.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let is_meant = |device: &Option<Device>| device.as_ref().is_some_and(|device| device.hca.config().name == name);
        let Some(number) = self.devices.iter().position(is_meant) else { return false };
        if let Some(device) = &mut self.devices[number] {
            device.is_gone = true;
        }
        self.tell(number, &Event { channel: None, element: 0, kind: EventKind::DeviceFatal });
        true
    }

    /// Whether any descriptor is open.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.open.is_empty()
    }

    /// Delivers events to the clients that they concern, and prints mistakes.
    fn deliver(&mut self) {
        let mut events = Vec::new();
        for (number, device) in self.devices.iter_mut().enumerate() {
            let Some(device) = device else { continue };
            while let Some(sentence) = device.hca.take_diagnosis() {
                let sentence = format!("{}: {sentence}", device.hca.config().name);
                // A program that steps itself also asks itself.
                if self.settings.engine == Engine::Thread {
                    sys::tell_operator(&sentence);
                }
                if self.diagnoses.len() < DIAGNOSES_MAX {
                    self.diagnoses.push_back(sentence);
                }
            }
            while let Some(event) = device.hca.take_event() {
                events.push((number, event));
            }
        }
        for (number, event) in events {
            self.tell(number, &event);
        }
        self.open.values_mut().for_each(|open| open.channels.flush());
    }

    fn tell(&mut self, device: usize, event: &Event) {
        for open in self.open.values_mut().filter(|open| open.device == device) {
            let to = event.channel.or_else(|| open.session.async_descriptor());
            if let Some(to) = to.filter(|_| open.session.concerns(event)) {
                open.channels.tell(to, event_record(event));
            }
        }
    }

    /// Writes the counters where `softhca run` finds them.
    pub(crate) fn show_counters(&mut self) {
        for Device { hca, port, counter_file, .. } in self.devices.iter_mut().flatten() {
            if let Some(counter_file) = counter_file {
                counter_file.show(hca.counters().snapshot().into_iter().chain(port.counters()));
            }
        }
    }

    /// The process ends.
    pub(crate) fn finish(&mut self) {
        let now = HostClock.now();
        for device in self.devices.iter_mut().flatten() {
            device.port.tend(now.cycles);
        }
        self.show_counters();
    }

    /// Refuses a command that comes, once; `None`: none any more. Whether one was still waiting.
    pub(crate) fn refuse(&mut self, refusal: Option<Refusal>) -> bool {
        std::mem::replace(&mut self.refusal, refusal).is_some()
    }

    /// Objects that the program made in its devices and has not destroyed, and descriptors that it
    /// has open.
    pub(crate) fn objects(&self) -> usize {
        self.open.values().map(|open| 1 + open.session.objects()).sum()
    }

    /// The value of a counter: of `mlx5_1.NAME` one device's, of `NAME` the sum over all.
    pub(crate) fn counter(&self, name: &str) -> Option<u64> {
        let (of, name) = name.split_once('.').map_or((None, name), |(device, name)| (Some(device), name));
        let devices = self.devices.iter().flatten();
        let asked = devices.filter(|device| of.is_none_or(|of| device.hca.config().name == of));
        let counters =
            asked.flat_map(|device| device.hca.counters().snapshot().into_iter().chain(device.port.counters()));
        counters.filter(|counter| counter.0 == name).map(|counter| counter.1).reduce(|sum, value| sum + value)
    }

    /// The oldest sentence about a mistake of the program's that was not taken yet.
    pub(crate) fn take_diagnosis(&mut self) -> Option<String> {
        self.diagnoses.pop_front()
    }
}
