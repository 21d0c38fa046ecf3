//! The program on the interface, its maps, and the rules in them: what all queues of a device share.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zerocopy::IntoBytes;

use super::bpf::{Link, LoadError, Map, MapKind, Program};
use super::error::SetupError;
use super::holder;
use super::interface::Interface;
use super::program::{Source, Verdict, generate};
use super::socket::kernel_version;
use super::steering::{Key, Shape, shapes, tag_word};
use crate::device::steering::{Rule, RuleId, SteerError};

/// Where in the kernel the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver where it can, else behind it.
    #[default]
    Auto,
    /// In the driver, before the kernel makes an skb of the frame.
    Native,
    /// Behind the driver (skb mode): any driver can, at the cost of an skb a frame.
    Generic,
}

/// linux/if_link.h
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;
/// The first Linux with XDP links, which is what takes the program away with the process.
const LINKS_SINCE: (u32, u32) = (5, 9);

/// A program on an interface.
pub(super) struct Port {
    pub(super) interface: Interface,
    /// Where it runs: never [`Mode::Auto`].
    pub(super) mode: Mode,
    /// Why it does not run in the driver, where it was to.
    pub(super) fallback: Option<String>,
    /// Whether the program sees frames in several buffers.
    frags: bool,
    rules_max: usize,
    sockets: Map,
    rules: Map,
    installed: Mutex<Installed>,
    /// Whether frames may have a tag before them. Once they may, they may forever: some could still be in a ring.
    tags: AtomicBool,
}

/// What the program does now.
struct Installed {
    entries: Vec<Entry>,
    next_id: u32,
    shapes: Vec<Shape>,
    tags: bool,
    program: Program,
    link: Link,
}

struct Entry {
    id: RuleId,
    rule: Rule,
    queue: u16,
}

impl Port {
    /// Puts a program without rules on `interface`: the kernel gets every frame.
    pub(super) fn attach(interface: Interface, mode: Mode, rules_max: usize) -> Result<Self, SetupError> {
        if kernel_version().is_some_and(|version| version < LINKS_SINCE) {
            return Err(SetupError::KernelTooOld { missing: "XDP links", since: "5.9" });
        }
        let map = |kind, key_len, value_len, entries| {
            Map::create(kind, key_len, value_len, entries)
                .map_err(|error| SetupError::system("making a BPF map", error))
        };
        let rules = map(MapKind::Hash, size_of::<Key>(), size_of::<u32>(), rules_max.max(1) as u32)?;
        let sockets = map(MapKind::Sockets, 4, 4, interface.queues.into())?;
        let attached = attach(&interface, mode, &rules, &sockets)?;
        Ok(Self {
            interface,
            mode: attached.mode,
            fallback: attached.fallback,
            frags: attached.frags,
            rules_max,
            sockets,
            rules,
            installed: Mutex::new(Installed {
                entries: Vec::new(),
                next_id: 0,
                shapes: Vec::new(),
                tags: false,
                program: attached.program,
                link: attached.link,
            }),
            tags: AtomicBool::new(false),
        })
    }

    /// Whether frames may have a tag before them.
    #[inline]
    pub(super) fn tags(&self) -> bool {
        self.tags.load(Ordering::Relaxed)
    }

    /// Lets frames of `queue` come to `socket`.
    pub(super) fn connect(&self, queue: u16, socket: &OwnedFd) -> io::Result<()> {
        self.sockets.update(u32::from(queue).as_bytes(), socket.as_raw_fd().as_bytes())
    }

    /// From now on the kernel gets the frames of `queue`.
    pub(super) fn disconnect(&self, queue: u16) {
        // Where it is not in the map it is not connected.
        let _ = self.sockets.remove(u32::from(queue).as_bytes());
    }

    /// Puts a rule in place.
    pub(super) fn add(&self, rule: &Rule, queue: u16) -> Result<RuleId, SteerError> {
        let mut installed = self.installed();
        if installed.entries.len() >= self.rules_max {
            return Err(SteerError::TableFull { rules_max: self.rules_max });
        }
        let key = Key::new(rule, queue);
        if !installed.has(&key) {
            self.rules.update(key.as_bytes(), tag_word(rule).as_bytes()).map_err(|error| refused(&error))?;
        }
        let id = RuleId(installed.next_id);
        installed.next_id += 1;
        installed.entries.push(Entry { id, rule: *rule, queue });
        if let Err(error) = self.adapt(&mut installed) {
            installed.entries.pop();
            self.forget(&installed, &key);
            return Err(error);
        }
        Ok(id)
    }

    /// Takes a rule out.
    pub(super) fn remove(&self, id: RuleId) -> Result<(), SteerError> {
        let mut installed = self.installed();
        let place = installed.entries.iter().position(|entry| entry.id == id).ok_or(SteerError::NoRule { id })?;
        let entry = installed.entries.remove(place);
        let key = Key::new(&entry.rule, entry.queue);
        self.forget(&installed, &key);
        // A program that makes a lookup too many is slower, not wrong.
        let _ = self.adapt(&mut installed);
        Ok(())
    }

    /// Takes `key` out of the map, or gives it the tag of the oldest rule that is left with it.
    fn forget(&self, installed: &Installed, key: &Key) {
        let heir = installed.entries.iter().find(|entry| Key::new(&entry.rule, entry.queue) == *key);
        // Neither fails for a key that is in the map.
        let _ = match heir {
            Some(entry) => self.rules.update(key.as_bytes(), tag_word(&entry.rule).as_bytes()),
            None => self.rules.remove(key.as_bytes()),
        };
    }

    /// Exchanges the program where the shapes of the rules, or whether there are tags, have changed.
    fn adapt(&self, installed: &mut Installed) -> Result<(), SteerError> {
        let shapes = shapes(installed.entries.iter().map(|entry| &entry.rule));
        let tags = installed.entries.iter().any(|entry| entry.rule.flow_tag.is_some());
        if shapes == installed.shapes && tags == installed.tags {
            return Ok(());
        }
        let program =
            load(&shapes, &self.rules, &self.sockets, tags, self.frags).map_err(|refusal| refused(&refusal.error))?;
        if tags {
            self.tags.store(true, Ordering::Relaxed);
        }
        match installed.link.replace(&installed.program, &program) {
            Ok(()) => {}
            // The interface is gone and took the program along; the queues say so.
            Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => {}
            Err(error) => return Err(refused(&error)),
        }
        (installed.program, installed.shapes, installed.tags) = (program, shapes, tags);
        Ok(())
    }

    fn installed(&self) -> MutexGuard<'_, Installed> {
        // Rules and maps agree after every statement that can panic.
        self.installed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Installed {
    fn has(&self, key: &Key) -> bool {
        self.entries.iter().any(|entry| Key::new(&entry.rule, entry.queue) == *key)
    }
}

fn refused(error: &io::Error) -> SteerError {
    SteerError::Refused { errno: error.raw_os_error().unwrap_or(0) }
}

fn load(shapes: &[Shape], rules: &Map, sockets: &Map, tags: bool, frags: bool) -> Result<Program, LoadError> {
    let source = Source {
        shapes,
        rules_fd: rules.raw_fd(),
        sockets_fd: sockets.raw_fd(),
        tags,
        frags,
        unclaimed: Verdict::Pass,
    };
    Program::load(&generate(&source), frags)
}

struct Attached {
    program: Program,
    link: Link,
    mode: Mode,
    fallback: Option<String>,
    frags: bool,
}

/// Native first where `mode` lets it, a program for one buffer before one for several, as not all drivers have those.
fn attach(interface: &Interface, mode: Mode, rules: &Map, sockets: &Map) -> Result<Attached, SetupError> {
    let mut native_error = None;
    if mode != Mode::Generic {
        for frags in [false, true] {
            let Some(program) = loaded(rules, sockets, frags)? else { continue };
            match Link::create(&program, interface.index, FLAG_NATIVE) {
                Ok(link) => return Ok(Attached { program, link, mode: Mode::Native, fallback: None, frags }),
                Err(error) if is_final(&error) => return Err(not_attached(interface, error)),
                Err(error) => native_error = Some(error),
            }
        }
    }
    if let (Mode::Native, Some(error)) = (mode, native_error.as_ref().map(copy_of)) {
        return Err(SetupError::NoNativeXdp { interface: interface.name.clone(), error });
    }
    let Some(program) = loaded(rules, sockets, false)? else {
        return Err(SetupError::KernelTooOld { missing: "XDP programs", since: "5.9" });
    };
    match Link::create(&program, interface.index, FLAG_GENERIC) {
        Ok(link) => {
            let fallback = native_error.map(|error| error.to_string());
            Ok(Attached { program, link, mode: Mode::Generic, fallback, frags: false })
        }
        Err(error) => Err(not_attached(interface, error)),
    }
}

/// A program without rules; `None` where the kernel does not know frames in several buffers.
fn loaded(rules: &Map, sockets: &Map, frags: bool) -> Result<Option<Program>, SetupError> {
    match load(&[], rules, sockets, false, frags) {
        Ok(program) => Ok(Some(program)),
        Err(_) if frags => Ok(None),
        Err(LoadError { error, .. }) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
            Err(SetupError::NoPermission { doing: "loading an XDP program" })
        }
        Err(LoadError { error, log }) => Err(SetupError::ProgramRefused { error, log }),
    }
}

/// Whether another way of attaching would meet the same.
fn is_final(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EBUSY | libc::EEXIST | libc::EPERM | libc::EACCES | libc::ENODEV | libc::ENOMEM)
    )
}

fn not_attached(interface: &Interface, error: io::Error) -> SetupError {
    let name = interface.name.clone();
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => {
            SetupError::Attached { interface: name, holder: holder::of_program(interface.program) }
        }
        Some(libc::ENODEV) => SetupError::NoInterface { interface: name },
        Some(libc::EPERM | libc::EACCES) => {
            SetupError::NoPermission { doing: "putting an XDP program on an interface" }
        }
        _ => SetupError::Attaching { interface: name, error },
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0))
}
