//! The program on the interface, its maps, and the rules in them: the state that all queues of a
//! device share.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant as Moment};

use zerocopy::IntoBytes;

use super::nic_rules::NicRules;
use super::rule_table::RuleTable;
use super::stamping::TimestampingGuard;
use crate::device::af_xdp::config::{AfXdpConfig, Mode};
use crate::device::af_xdp::error::AfXdpSetupError;
use crate::device::af_xdp::holder;
use crate::device::af_xdp::interface::{Interface, LinkState, LinkWatch};
use crate::device::af_xdp::program::bpf::{BpfLink, LoadError, LoadOptions, Map, MapKind, Program};
use crate::device::af_xdp::program::generate::{Rules, Source, XdpAction, generate};
use crate::device::af_xdp::program::kfuncs::{self, Absent, Found, Kfuncs, RxHint};
use crate::device::af_xdp::program::steering::{Constant, Key, Shape, tag_word};
use crate::device::af_xdp::rings::socket::kernel_version;
use crate::device::nic_filter::{NicFilter, Wanted};
use crate::device::steering::{Fields, Rule, RuleId, SteerError};

/// linux/if_link.h
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;
/// The first Linux with XDP links, which detach the program when the process ends.
const LINKS_SINCE: (u32, u32) = (5, 9);

/// A program on an interface.
pub(crate) struct Port {
    pub(in crate::device::af_xdp) interface: Interface,
    /// The mode in use: never [`Mode::Auto`].
    pub(in crate::device::af_xdp) mode: Mode,
    /// Why it does not run in the driver, if that was preferred.
    pub(in crate::device::af_xdp) fallback: Option<String>,
    /// The RX metadata that the driver provides, and why other metadata is unavailable.
    pub(in crate::device::af_xdp) found: Found,
    /// Why the NIC does not stamp all frames, if that was requested.
    pub(in crate::device::af_xdp) unstamped: Option<io::Error>,
    _stamped: Option<TimestampingGuard>,
    namespace: Option<(u64, u64)>,
    /// Reports whether the interface exists, in the namespace of [`attach`](Self::attach).
    watch: LinkWatch,
    options: LoadOptions,
    rules_max: usize,
    maps: Maps,
    filter: NicFilter,
    /// On an interface of several queues: the NIC's own rules, or why it has none.
    nic_rules: Option<io::Result<NicRules>>,
    installed: Mutex<Installed>,
    /// Whether frames may carry metadata. Once set it remains set: some frames could still be in a
    /// ring.
    has_rx_hints: AtomicBool,
    /// Taken queues that do not receive yet.
    awaited: AtomicUsize,
    /// Times that the program was found detached, and attached again.
    put_back: AtomicU64,
    /// Why it is detached for good: the system's error number.
    lost: OnceLock<i32>,
}

/// The maps that this and later programs share with us.
struct Maps {
    sockets: Map,
    rules: Map,
}

/// The installed program.
struct Installed {
    rules: RuleTable,
    contents: Contents,
    /// The program that looks up rules. It stays loaded beside a program with the rules compiled
    /// in, as a fallback if a new one of those cannot be loaded.
    lookups: Program,
    /// The program that compares frames with a few rules; if present, this one is attached.
    compares: Option<Program>,
    link: BpfLink,
}

/// The part of the rules that stands in programs.
#[derive(Default, PartialEq, Eq)]
struct Contents {
    shapes: Vec<Shape>,
    tags: bool,
    /// Empty if the rules are looked up.
    constants: Vec<Constant>,
}

impl Port {
    /// Attaches a program without rules to `interface`: the kernel receives every frame.
    pub(in crate::device::af_xdp) fn attach(
        interface: Interface,
        config: &AfXdpConfig,
    ) -> Result<Self, AfXdpSetupError> {
        check_kernel(kernel_version())?;
        let map = |kind, key_len, value_len, entries| {
            Map::create(kind, key_len, value_len, entries)
                .map_err(|error| AfXdpSetupError::system("making a BPF map", error))
        };
        let maps = Maps {
            rules: map(MapKind::Hash, size_of::<Key>(), size_of::<u32>(), config.rules_max.max(1) as u32)?,
            sockets: map(MapKind::Sockets, 4, 4, interface.queues.into())?,
        };
        let watch = LinkWatch::new(interface.index)
            .map_err(|error| AfXdpSetupError::system("opening a socket that watches the link", error))?;
        let filter = NicFilter::open(interface.index)
            .map_err(|error| AfXdpSetupError::system("telling the NIC which groups to let through", error))?;
        let spreads = interface.queues > 1 && config.ntuple;
        let nic_rules = spreads.then(|| NicRules::open(&interface.name));
        let wanted = [config.rx_timestamps, config.rx_hash, config.rx_vlan && interface.strips_vlan];
        let attached = attach_behind_the_dead(&interface, config.mode, &maps, wanted)?;
        let stamped = match attached.found[RxHint::Timestamp as usize] {
            Ok(_) => Some(TimestampingGuard::start(&interface)),
            Err(_) => None,
        };
        let (stamped, unstamped) = match stamped.transpose() {
            Ok(stamped) => (stamped, None),
            Err(error) => (None, Some(error)),
        };
        Ok(Self {
            interface,
            mode: attached.mode,
            fallback: attached.fallback,
            has_rx_hints: AtomicBool::new(kfuncs::asked(&attached.found) != [None; 3]),
            found: attached.found,
            unstamped,
            _stamped: stamped,
            namespace: namespace(),
            watch,
            options: attached.options,
            rules_max: config.rules_max,
            awaited: AtomicUsize::new(0),
            put_back: AtomicU64::new(0),
            lost: OnceLock::new(),
            maps,
            filter,
            nic_rules,
            installed: Mutex::new(Installed {
                rules: RuleTable::default(),
                contents: Contents::default(),
                lookups: attached.program,
                compares: None,
                link: attached.link,
            }),
        })
    }

    /// Whether frames may carry metadata.
    #[inline]
    pub(in crate::device::af_xdp) fn has_rx_hints(&self) -> bool {
        self.has_rx_hints.load(Ordering::Relaxed)
    }

    /// Taken queues that do not receive yet.
    pub(in crate::device::af_xdp) fn awaited(&self) -> &AtomicUsize {
        &self.awaited
    }

    /// Redirects the frames of `queue` to `socket`.
    pub(in crate::device::af_xdp) fn connect(&self, queue: u16, socket: &OwnedFd) -> io::Result<()> {
        self.maps.sockets.update(u32::from(queue).as_bytes(), socket.as_raw_fd().as_bytes())
    }

    /// From now on the kernel receives the frames of `queue`.
    pub(in crate::device::af_xdp) fn disconnect(&self, queue: u16) {
        // A socket that is not in the map is not connected.
        let _ = self.maps.sockets.remove(u32::from(queue).as_bytes());
    }

    /// Installs a rule.
    pub(in crate::device::af_xdp) fn add(&self, rule: &Rule, queue: u16) -> Result<RuleId, SteerError> {
        let mut installed = self.installed();
        if installed.rules.len() >= self.rules_max {
            return Err(SteerError::TableFull { rules_max: self.rules_max });
        }
        let key = Key::new(rule, queue);
        if !installed.rules.has(&key) {
            self.maps.rules.update(key.as_bytes(), tag_word(rule).as_bytes()).map_err(|error| refused(&error))?;
        }
        let id = installed.rules.insert(rule, queue);
        if let Err(error) = self.adapt(&mut installed).and_then(|()| self.let_through(rule)) {
            installed.rules.remove(id);
            self.forget(&installed, &key);
            self.settle(&mut installed);
            return Err(error);
        }
        if let Some(Ok(nic)) = &self.nic_rules {
            nic.add(rule, queue);
        }
        Ok(id)
    }

    /// Why the NIC brings no rule's frames to its queue, although it spreads them over several;
    /// `None` if it does, or has one queue.
    pub(in crate::device::af_xdp) fn why_unsteered(&self) -> Option<&io::Error> {
        self.nic_rules.as_ref()?.as_ref().err()
    }

    /// Rules that the NIC has refused, so that their queue receives what its hash brings there.
    pub(in crate::device::af_xdp) fn unsteered_rules(&self) -> u64 {
        self.nic_rules.as_ref().and_then(|nic| nic.as_ref().ok()).map_or(0, NicRules::refused)
    }

    /// Rules whose frames the NIC sends elsewhere, because a rule of someone else says so.
    pub(in crate::device::af_xdp) fn rules_elsewhere(&self) -> u64 {
        self.nic_rules.as_ref().and_then(|nic| nic.as_ref().ok()).map_or(0, NicRules::elsewhere)
    }

    /// Adds the rule's group or station to the NIC's address filter.
    fn let_through(&self, rule: &Rule) -> Result<(), SteerError> {
        let Some(wanted) = Wanted::by(rule, self.interface.mac) else { return Ok(()) };
        match self.filter.add(wanted) {
            // The interface is gone; the state of the queues shows it.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            accepted => accepted.map_err(|error| refused(&error)),
        }
    }

    /// Removes a rule.
    pub(in crate::device::af_xdp) fn remove(&self, id: RuleId) -> Result<(), SteerError> {
        let mut installed = self.installed();
        let (rule, queue) = installed.rules.remove(id).ok_or(SteerError::NoRule { id })?;
        self.forget(&installed, &Key::new(&rule, queue));
        if let Some(wanted) = Wanted::by(&rule, self.interface.mac) {
            self.filter.remove(wanted);
        }
        if let Some(Ok(nic)) = &self.nic_rules {
            nic.remove(&rule, queue);
        }
        self.settle(&mut installed);
        Ok(())
    }

    /// Removes `key` from the map, or gives it the tag of the oldest remaining rule with it.
    fn forget(&self, installed: &Installed, key: &Key) {
        // Neither call fails for a key that is in the map.
        let _ = match installed.rules.oldest_with(key) {
            Some(rule) => self.maps.rules.update(key.as_bytes(), tag_word(rule).as_bytes()),
            None => self.maps.rules.remove(key.as_bytes()),
        };
    }

    /// Replaces the program if its content has changed: the shapes of the rules, the presence of
    /// tags, a few rules.
    fn adapt(&self, installed: &mut Installed) -> Result<(), SteerError> {
        let wanted = Contents {
            shapes: installed.rules.shapes(),
            tags: installed.rules.has_tags(),
            constants: installed.rules.constants(self.interface.queues),
        };
        if wanted == installed.contents {
            return Ok(());
        }
        if wanted.tags {
            self.has_rx_hints.store(true, Ordering::Relaxed);
        }
        match self.exchange(installed, &wanted) {
            Ok(()) => {}
            // The interface is gone, and the program with it; the state of the queues shows it.
            Err(_) if self.is_without_interface() => {}
            Err(error) => return Err(refused(&error)),
        }
        installed.contents = wanted;
        Ok(())
    }

    /// Attaches the program again if someone has detached it (`bpftool link detach`), because until
    /// then the kernel receives every frame without a notice. It makes a system call; each queue
    /// calls it at intervals. If the program cannot be attached, because another one is on the
    /// interface or the driver refuses it after the MTU was raised, the queues have
    /// [ended](Self::lost).
    pub(in crate::device::af_xdp) fn reattach_if_lost(&self) {
        // A thread that changes rules holds the lock, and finds out as well.
        let Ok(mut installed) = self.installed.try_lock() else { return };
        if self.lost.get().is_some() || !installed.link.is_detached() {
            return;
        }
        match self.put_back(&mut installed) {
            Ok(()) => {}
            // The state of the queues shows it.
            Err(_) if self.is_without_interface() => {}
            Err(error) => _ = self.lost.set(error.raw_os_error().unwrap_or(0)),
        }
    }

    /// Whether the interface is gone, or in another namespace. The error of an attach does not
    /// distinguish these: the kernel returns EINVAL for a missing interface (`bpf_xdp_link_attach`
    /// in net/core/dev.c), and drivers return it for other reasons.
    fn is_without_interface(&self) -> bool {
        self.watch.look() == Some(LinkState::Gone)
    }

    /// Attaches the program again.
    fn put_back(&self, installed: &mut Installed) -> io::Result<()> {
        // An interface index refers to another interface in another namespace.
        if namespace() != self.namespace {
            return Err(io::Error::from_raw_os_error(libc::EXDEV));
        }
        let flags = if self.mode == Mode::Generic { FLAG_GENERIC } else { FLAG_NATIVE };
        installed.link = BpfLink::create(installed.current(), self.interface.index, flags)?;
        self.put_back.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Times that someone detached the program, and it was attached again.
    pub(in crate::device::af_xdp) fn reattached_count(&self) -> u64 {
        self.put_back.load(Ordering::Relaxed)
    }

    /// Why the program is detached for good, if it is.
    pub(in crate::device::af_xdp) fn lost(&self) -> Option<AfXdpSetupError> {
        let error = io::Error::from_raw_os_error(*self.lost.get()?);
        let interface = self.interface.name.clone();
        Some(AfXdpSetupError::TakenOff { interface, why: not_attached(&self.interface, error).to_string() })
    }

    /// The same without the reason.
    pub(in crate::device::af_xdp) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Replaces the installed program by one for `wanted`. A program with comparisons must be
    /// loaded for each change; if that fails, for example from another namespace, the lookup
    /// program takes over.
    fn exchange(&self, installed: &mut Installed, wanted: &Contents) -> io::Result<()> {
        let kfuncs = kfuncs::asked(&self.found);
        let source = self.maps.source(&wanted.shapes, wanted.tags, kfuncs, self.options);
        let lookups = match installed.contents.looks_up_as(wanted) {
            true => None,
            false => Some(self.load(&source)?),
        };
        let compares = match wanted.constants.as_slice() {
            [] => None,
            constants => self.load(&Source { rules: Rules::Constants(constants), ..source }).ok(),
        };
        if installed.link.is_detached() {
            self.put_back(installed)?;
        }
        let next = compares.as_ref().or(lookups.as_ref()).unwrap_or(&installed.lookups);
        installed.link.replace(installed.current(), next)?;
        installed.compares = compares;
        if let Some(lookups) = lookups {
            installed.lookups = lookups;
        }
        Ok(())
    }

    fn load(&self, source: &Source<'_>) -> io::Result<Program> {
        // An interface index refers to another interface in another namespace, whose driver must
        // not be called.
        if self.options.bound_to.is_some() && namespace() != self.namespace {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        load(source, self.options).map_err(|refusal| refusal.error)
    }

    /// Adapts to a removed rule, which cannot fail: the lookup program does not find the rule any
    /// more, and a superfluous lookup makes the program slower, not wrong.
    fn settle(&self, installed: &mut Installed) {
        if self.adapt(installed).is_err()
            && let Some(compares) = installed.compares.take()
        {
            // Both are loaded, and the first is attached: that fails only if the interface is gone.
            let _ = installed.link.replace(&compares, &installed.lookups);
            installed.contents.constants.clear();
        }
    }

    fn installed(&self) -> MutexGuard<'_, Installed> {
        // Rules and maps agree after every statement that can panic.
        self.installed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    /// Whether one lookup program serves both.
    fn looks_up_as(&self, other: &Self) -> bool {
        self.shapes == other.shapes && self.tags == other.tags
    }
}

impl Maps {
    /// The source of a lookup program.
    fn source<'a>(&self, shapes: &'a [Shape], tags: bool, kfuncs: Kfuncs, options: LoadOptions) -> Source<'a> {
        Source {
            shapes,
            rules: Rules::Table(self.rules.raw_fd()),
            sockets_fd: self.sockets.raw_fd(),
            tags,
            kfuncs,
            frags: options.frags,
            unclaimed: XdpAction::Pass,
        }
    }
}

impl Installed {
    /// The program on the interface.
    fn current(&self) -> &Program {
        self.compares.as_ref().unwrap_or(&self.lookups)
    }
}

fn refused(error: &io::Error) -> SteerError {
    match error.raw_os_error() {
        // A program with rules computes where headers end, which the verifier permits only with
        // cap_perfmon.
        Some(libc::EPERM | libc::EACCES) => SteerError::NoPermission { capabilities: AfXdpConfig::CAPABILITIES },
        errno => SteerError::Refused { errno: errno.unwrap_or(0) },
    }
}

/// Whether a kernel of this version detaches the program when the process ends. An unknown version
/// is tried.
fn check_kernel(version: Option<(u32, u32)>) -> Result<(), AfXdpSetupError> {
    if version.is_some_and(|version| version < LINKS_SINCE) {
        return Err(AfXdpSetupError::KernelTooOld { missing: "XDP links", since: "5.9" });
    }
    Ok(())
}

/// The network namespace of the calling thread, by device and inode of its file.
fn namespace() -> Option<(u64, u64)> {
    let file = std::fs::metadata("/proc/thread-self/ns/net").ok()?;
    Some((file.dev(), file.ino()))
}

fn load(source: &Source<'_>, options: LoadOptions) -> Result<Program, LoadError> {
    Program::load(&generate(source), options)
}

/// How long to wait for a program without a holder to disappear, and the interval between checks.
const DETACH_TIMEOUT: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Attaches the program. Waits a little if there is another program without a holder: the program
/// of an ended process or port is detached only when the last copy of its descriptor is closed, and
/// a process that is just being started (fork, exec) has copies of all descriptors for some
/// milliseconds.
fn attach_behind_the_dead(
    interface: &Interface,
    mode: Mode,
    maps: &Maps,
    wanted: [bool; 3],
) -> Result<Attached, AfXdpSetupError> {
    let start = Moment::now();
    loop {
        match attach(interface, mode, maps, wanted) {
            Err(AfXdpSetupError::Attached { holder, .. })
                if holder == holder::NO_KNOWN_HOLDER && start.elapsed() < DETACH_TIMEOUT =>
            {
                std::thread::sleep(LOOK_AGAIN);
            }
            attached => return attached,
        }
    }
}

struct Attached {
    program: Program,
    link: BpfLink,
    mode: Mode,
    fallback: Option<String>,
    found: Found,
    options: LoadOptions,
}

/// Native first if `mode` permits it, else generic.
fn attach(interface: &Interface, mode: Mode, maps: &Maps, wanted: [bool; 3]) -> Result<Attached, AfXdpSetupError> {
    let mut native_error = None;
    if mode != Mode::Generic {
        match attach_native(interface, maps, wanted)? {
            Ok(attached) => return Ok(attached),
            Err(error) => native_error = Some(error),
        }
    }
    if let (Mode::Native, Some(error)) = (mode, &native_error) {
        return Err(AfXdpSetupError::NoNativeXdp { interface: interface.name.clone(), error: copy_of(error) });
    }
    let Some(program) = loaded(maps, LoadOptions::default())? else {
        return Err(AfXdpSetupError::KernelTooOld { missing: "XDP programs", since: "5.9" });
    };
    match BpfLink::create(&program, interface.index, FLAG_GENERIC) {
        Ok(link) => Ok(Attached {
            program,
            link,
            mode: Mode::Generic,
            fallback: native_error.map(|error| error.to_string()),
            found: kfuncs::find(interface, Mode::Generic, wanted),
            options: LoadOptions::default(),
        }),
        Err(error) => Err(not_attached(interface, error)),
    }
}

/// Tries a program with RX metadata before one without, and one for a single buffer before one for
/// several, because not all drivers support the first of each. The inner error is the driver's, if
/// it supports none of them.
fn attach_native(
    interface: &Interface,
    maps: &Maps,
    wanted: [bool; 3],
) -> Result<Result<Attached, io::Error>, AfXdpSetupError> {
    let mut found = kfuncs::find(interface, Mode::Native, wanted);
    let mut native_error = None;
    loop {
        let asks = kfuncs::asked(&found) != [None; 3];
        for frags in [false, true] {
            let options = LoadOptions { frags, bound_to: asks.then_some(interface.index) };
            if asks
                && let Err(LoadError { error, log }) =
                    load(&maps.source(&[ANY], true, kfuncs::asked(&found), options), options)
            {
                native_error = Some(io::Error::other(format!("{error}; {log}")));
                continue;
            }
            let Some(program) = loaded(maps, options)? else { continue };
            match BpfLink::create(&program, interface.index, FLAG_NATIVE) {
                Ok(link) => {
                    let (mode, fallback) = (Mode::Native, None);
                    return Ok(Ok(Attached { program, link, mode, fallback, found, options }));
                }
                Err(error) if is_final(&error) => return Err(not_attached(interface, error)),
                Err(error) => native_error = Some(error),
            }
        }
        let error = native_error.take().unwrap_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        if !asks {
            return Ok(Err(error));
        }
        for refused in found.iter_mut().filter(|ask| ask.is_ok()) {
            *refused = Err(Absent::Refused(error.to_string()));
        }
    }
}

/// The shape of a rule that matches every frame: with it the program requests all available
/// metadata.
const ANY: Shape = Shape(Fields::NONE);

/// A program without rules; `None` if the kernel does not support multi-buffer programs.
fn loaded(maps: &Maps, options: LoadOptions) -> Result<Option<Program>, AfXdpSetupError> {
    match load(&maps.source(&[], false, [None; 3], options), options) {
        Ok(program) => Ok(Some(program)),
        Err(_) if options.frags => Ok(None),
        Err(LoadError { error, .. }) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
            Err(AfXdpSetupError::NoPermission { doing: "loading an XDP program" })
        }
        Err(LoadError { error, log }) => Err(AfXdpSetupError::ProgramRefused { error, log }),
    }
}

/// Whether another attach mode would fail in the same way.
fn is_final(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EBUSY | libc::EEXIST | libc::EPERM | libc::EACCES | libc::ENODEV | libc::ENOMEM)
    )
}

fn not_attached(interface: &Interface, error: io::Error) -> AfXdpSetupError {
    let name = interface.name.clone();
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => {
            // Read anew: the holder may have replaced the program since.
            let program = Interface::find(&name).map_or(interface.program, |now| now.program);
            AfXdpSetupError::Attached { interface: name, holder: holder::of_program(program) }
        }
        Some(libc::ENODEV) => AfXdpSetupError::NoInterface { interface: name },
        Some(libc::EPERM | libc::EACCES) => {
            AfXdpSetupError::NoPermission { doing: "putting an XDP program on an interface" }
        }
        _ => AfXdpSetupError::Attaching { interface: name, error },
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0))
}

#[cfg(test)]
impl Port {
    /// Detaches the program, as another process may.
    pub(in crate::device::af_xdp) fn detach(&self) -> io::Result<()> {
        self.installed().link.detach()
    }

    /// Replaces the program by one that no interface accepts: EINVAL, as from a driver.
    pub(in crate::device::af_xdp) fn detach_for(&self, refused: Program) -> io::Result<()> {
        let mut installed = self.installed();
        (installed.compares, installed.lookups) = (None, refused);
        installed.link.detach()
    }

    /// From now on the kernel refuses to let any queue receive, as if a program had dropped its
    /// capabilities.
    pub(in crate::device::af_xdp) fn freeze(&self) -> io::Result<()> {
        self.maps.sockets.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_without_links_is_too_old() {
        for version in [(4, 18), (5, 8)] {
            let said = check_kernel(Some(version)).unwrap_err().to_string();
            assert!(said.ends_with("lacks XDP links: use Linux 5.9 or later"), "{said}");
        }
        for version in [Some((5, 9)), Some((6, 0)), None] {
            assert!(check_kernel(version).is_ok(), "{version:?}");
        }
    }

    #[test]
    fn refusal_of_a_rule_for_lack_of_rights_names_the_capabilities() {
        for errno in [libc::EPERM, libc::EACCES] {
            let said = refused(&io::Error::from_raw_os_error(errno)).to_string();
            assert!(said.contains("`setcap ") && said.contains("cap_perfmon"), "{said}");
        }
    }
}
