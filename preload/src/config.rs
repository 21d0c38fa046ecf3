//! The configuration in the environment, which `wirepath run` sets, and the messages to the
//! program's user.

use core::ffi::c_int;
use core::net::SocketAddrV4;
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicBool, Ordering};
use std::env;
use std::fmt::Display;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use sockets::System;
use sockets::rules::{Decision, Query, Role, Rules, Traffic};
use wirepath::device::af_xdp::{AfXdpConfig, Mode};
use wirepath::device::mlx5::Feature;
use wirepath::proto::Ipv4Prefix;
use wirepath::worker::affinity;
use wirepath::worker::live::{DedicatedHost, PortConfig, StaticRoute};
use wirepath::worker::topology::CpuList;

use crate::engine::options::Interface;
use crate::engine::table::{self, ENGINES_MAX};
use crate::engine::thread;
use crate::{log, process, sys};

/// The interface whose sockets are offloaded, as `Port::open` names it: `eth1`, `mlx5:eth1`.
pub(crate) const INTERFACE: &str = "WIREPATH_INTERFACE";
/// The socket of a broker, which lends a queue to a program without capabilities.
const BROKER: &str = "WIREPATH_BROKER";
const RULES: &str = "WIREPATH_RULES";
const POLICY: &str = "WIREPATH_POLICY";
const SPIN_US: &str = "WIREPATH_SPIN_US";
/// The longest that answers of a server wait for others before they are sent together; 0: never.
const GATHER_US: &str = "WIREPATH_GATHER_US";
const APPLICATION_ID: &str = "WIREPATH_APPLICATION_ID";
/// An address that the kernel does not have, with the length of its network's prefix, and the
/// router to other networks: a host of the program's own on the interface.
const ADDRESS: &str = "WIREPATH_ADDRESS";
const GATEWAY: &str = "WIREPATH_GATEWAY";
/// The file that has what the library says.
const LOG: &str = "WIREPATH_LOG";
/// Set for the programs that this one starts, once it has opened the interface.
pub(crate) const OPENED: &str = "WIREPATH_OPENED";
/// How many engines there are, for the threads that open sockets.
const ENGINES: &str = "WIREPATH_ENGINES";
/// The connections that each engine has room for, and the packet buffers in which bytes of
/// connections wait; an eighth as many are for datagrams.
const CONNECTIONS: &str = "WIREPATH_CONNECTIONS";
const BUFFERS: &str = "WIREPATH_BUFFERS";
/// The cores of the library's own threads.
const HELPER_CPUS: &str = "WIREPATH_HELPER_CPUS";
/// 1: the NIC stamps frames, for `SO_TIMESTAMPING`.
const TIMESTAMPS: &str = "WIREPATH_TIMESTAMPS";
/// Where the XDP program runs: `auto`, `native` or `generic`.
const XDP_MODE: &str = "WIREPATH_XDP_MODE";

pub(crate) struct Config {
    pub(crate) port: PortConfig,
    /// The host beside the kernel's; `None` where the sockets have the kernel's addresses.
    pub(crate) own: Option<DedicatedHost>,
    pub(crate) program: String,
    /// The application id by which libvma.conf selects the program.
    pub(crate) application_id: Option<String>,
    pub(crate) rules: Rules,
    /// Ports to which a datagram may be the kernel's by the rules, or refused.
    kept_sender_ports: RangeInclusive<u16>,
    /// The rules may give a socket to us by its groups, whose address they leave to the kernel.
    pub(crate) gives_groups: bool,
    /// The rules leave all sockets to the kernel.
    leaves_all: bool,
    /// The rules refuse something.
    pub(crate) may_refuse: bool,
    pub(crate) policy: Policy,
    /// How long a call that waits polls before its thread sleeps.
    spin: Spin,
    /// How long a server's answers wait for others.
    gather_ns: u64,
    /// How many engines there are.
    engines: usize,
    /// The connections and the buffers of each.
    pub(crate) connections: usize,
    pub(crate) buffers: usize,
}

/// The reaction where sockets cannot be offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The program ends.
    Refuse,
    /// The program runs on the kernel, and one line says why.
    Warn,
    /// The program runs on the kernel, silently.
    Quiet,
}

impl Config {
    /// Whether the rules leave all sockets to the kernel.
    pub(crate) fn leaves_all(&self) -> bool {
        self.leaves_all
    }

    /// The answer of the rules about a socket.
    pub(crate) fn role(&self, traffic: Traffic, local: SocketAddrV4, remote: Option<SocketAddrV4>) -> Decision<'_> {
        let application_id = self.application_id.as_deref();
        self.rules.role(&Query { program: &self.program, application_id, traffic, local, remote })
    }

    /// The same about a datagram; `None` where no rule keeps any to that port from us.
    #[inline]
    pub(crate) fn role_of_sender(&self, local: impl FnOnce() -> SocketAddrV4, to: SocketAddrV4) -> Option<Role> {
        self.kept_sender_ports.contains(&to.port()).then(|| self.role(Traffic::UdpSender, local(), Some(to)).role)
    }
}

static CONFIG: OnceLock<Option<Config>> = OnceLock::new();

/// The configuration; `None` if it names no interface: then nothing is offloaded.
pub(crate) fn get() -> Option<&'static Config> {
    CONFIG.get_or_init(read).as_ref()
}

/// How long a call that waits polls before its thread sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    pub(crate) ns: u64,
    /// The user has set the time: each thread then polls for it, also where the cores are needed.
    pub(crate) is_set: bool,
}

#[inline]
pub(crate) fn spin() -> Spin {
    CONFIG.get().and_then(Option::as_ref).map_or(Spin { ns: 0, is_set: false }, |config| config.spin)
}

/// How long a server's answers wait for others at most; 0: they do not wait.
#[inline]
pub(crate) fn gather_ns() -> u64 {
    CONFIG.get().and_then(Option::as_ref).map_or(0, |config| config.gather_ns)
}

/// How many engines the process has: 1, or as many as `WIREPATH_ENGINES` says.
#[inline]
pub(crate) fn engines() -> usize {
    CONFIG.get().and_then(Option::as_ref).map_or(1, |config| config.engines)
}

/// The system's limits of socket options, and the index of our interface.
pub(crate) fn system() -> &'static System {
    static SYSTEM: OnceLock<System> = OnceLock::new();
    thread::once(&SYSTEM, || {
        let default = System::default();
        let number = |path: &str| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
        let interface = get().map_or("", |config| config.port.interface());
        System {
            receive_buffer_max: number("/proc/sys/net/core/rmem_max").unwrap_or(default.receive_buffer_max),
            send_buffer_max: number("/proc/sys/net/core/wmem_max").unwrap_or(default.send_buffer_max),
            interface_idx: sys::interface_idx(interface),
        }
    })
}

/// One line in the log, and on the program's standard error unless the policy is quiet.
pub(crate) fn say(sentence: impl Display) {
    log::write(&sentence);
    if CONFIG.get().and_then(Option::as_ref).is_none_or(|config| config.policy != Policy::Quiet) {
        show(sentence);
    }
}

/// Whether the program gets no ring of io_uring, which would act on the kernel's side of its
/// sockets alone. It does where the rules leave all of them to the kernel. Says so once.
pub(crate) fn refuses_io_uring() -> bool {
    static HAS_SAID: AtomicBool = AtomicBool::new(false);
    let refuses = get().is_some_and(|config| !config.leaves_all);
    if refuses && !HAS_SAID.swap(true, Ordering::Relaxed) {
        say(
            "io_uring is refused (ENOSYS), because it passes by the library: have the program use epoll, or leave all \
             its sockets to the kernel by rules (default = \"os\")",
        );
    }
    refuses
}

fn print(sentence: impl Display) {
    log::write(&sentence);
    show(sentence);
}

/// One line on the program's standard error, unless that is the log.
fn show(sentence: impl Display) {
    // A program may have a socket at number 2.
    if table::find(2).is_some() || !is_standard_error() || log::is_file(sys::identity(2)) {
        return;
    }
    if let Some(why) = log::take_failure() {
        let _ = sys::write(2, format!("wirepath: {why}: standard error alone has the sentences\n").as_bytes());
    }
    let _ = sys::write(2, format!("wirepath: {sentence}\n").as_bytes());
}

/// The file that number 2 names where it is standard error: device and inode, and the number of a
/// terminal.
static STANDARD_ERROR: Mutex<Option<[u64; 3]>> = Mutex::new(None);

/// Number 2 is standard error from now on: at the start of the program, and where it puts another
/// file there by `dup2`, as it does with its log. A file that merely gets the number, because it is
/// the lowest one that is free, is none: our lines would damage it.
pub(crate) fn note_standard_error() {
    thread::uninterrupted(|| {
        *STANDARD_ERROR.lock().unwrap_or_else(PoisonError::into_inner) = sys::identity(2);
    });
}

/// Held over a `fork`, so that the child finds it unlocked.
pub(crate) type StandardError = MutexGuard<'static, Option<[u64; 3]>>;

pub(crate) fn lock_standard_error() -> StandardError {
    STANDARD_ERROR.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_standard_error() -> bool {
    let is = thread::uninterrupted(|| *STANDARD_ERROR.lock().unwrap_or_else(PoisonError::into_inner));
    is.is_some() && sys::identity(2) == is
}

/// Applies the policy after the sockets of an engine could not be offloaded.
pub(crate) fn fall_back_of(engine: usize, why: impl Display) {
    if process::has_parent_with_engine() {
        // The program has begun with its sockets on wirepath, as each policy wants it.
        return process::say_that_new_ones_are_the_kernels(why);
    }
    let policy = get().map_or(Policy::Warn, |config| config.policy);
    match engines() {
        count @ 2.. if policy == Policy::Warn => {
            print(format_args!(
                "{why}; the threads of engine {engine}, one of {count}, have their sockets on the kernel"
            ));
        }
        _ => apply(policy, why),
    }
}

fn apply(policy: Policy, why: impl Display) {
    match policy {
        Policy::Refuse => {
            print(format_args!("{why}; the policy is refuse, so the program ends"));
            sys::exit_group(1);
        }
        Policy::Warn => print(format_args!("{why}; the program runs on the kernel")),
        Policy::Quiet => log::write(format_args!("{why}; the program runs on the kernel")),
    }
}

/// Ends the program, because the policy is refuse.
pub(crate) fn refuse(why: impl Display) {
    apply(Policy::Refuse, why);
}

/// Whether the rules leave all sockets of the program to the kernel.
pub(crate) fn leaves_all() -> bool {
    get().is_some_and(|config| config.leaves_all)
}

/// Whether systemd has started this very process with sockets (`sd_listen_fds`).
pub(crate) fn is_activated() -> bool {
    variable("LISTEN_PID").is_some_and(|pid| pid.parse() == Ok(sys::getpid()))
}

/// Whether systemd or `inetd` has given a descriptor to this very process, to serve by it.
pub(crate) fn is_given(fd: c_int) -> bool {
    const FIRST_OF_SYSTEMD: c_int = 3;
    let count = || variable("LISTEN_FDS")?.parse::<c_int>().ok();
    let of_systemd = || is_activated() && count().is_some_and(|count| fd - FIRST_OF_SYSTEMD < count);
    fd == 0 || (fd >= FIRST_OF_SYSTEMD && of_systemd())
}

/// Whether the environment of a test asks for a panic at `place`. A test starts its program with
/// the variable and may change it later, so that every other program looks it up once.
pub(crate) fn is_panic_asked_for(place: &str) -> bool {
    static IS_A_TEST: OnceLock<bool> = OnceLock::new();
    let asked = || env::var_os("WIREPATH_TEST_PANIC");
    *thread::once(&IS_A_TEST, || asked().is_some()) && asked().is_some_and(|asked| asked == place)
}

/// Whether a program that started this one has opened the interface.
pub(crate) fn has_opened() -> bool {
    env::var_os(OPENED).is_some()
}

fn read() -> Option<Config> {
    if sys::is_privileged() {
        return None;
    }
    let name = env::var(INTERFACE).ok().filter(|name| !name.is_empty())?;
    if let Some(path) = env::var_os(LOG).filter(|path| !path.is_empty()) {
        log::open(path.as_ref());
    }
    let (policy, wrong) = match variable(POLICY).as_deref() {
        None | Some("warn") => (Policy::Warn, None),
        Some("refuse") => (Policy::Refuse, None),
        Some("quiet") => (Policy::Quiet, None),
        Some(other) => (Policy::Warn, Some(format!("{POLICY} is {other:?}: set it to refuse, warn or quiet"))),
    };
    let config = wrong.map_or_else(|| load(&name, policy), Err);
    match config {
        Ok(config) => Some(config),
        Err(why) if policy == Policy::Warn => {
            *UNSAID.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            HAS_UNSAID.store(true, Ordering::Release);
            None
        }
        Err(why) => {
            apply(policy, why);
            None
        }
    }
}

/// The error in the settings, kept until the program makes a socket: a script starts many programs
/// that make none.
static UNSAID: Mutex<Option<String>> = Mutex::new(None);
static HAS_UNSAID: AtomicBool = AtomicBool::new(false);

/// The program has made a socket: prints the error in the settings, once.
pub(crate) fn say_unsaid() {
    if HAS_UNSAID.load(Ordering::Acquire) && HAS_UNSAID.swap(false, Ordering::AcqRel) {
        let why = thread::uninterrupted(|| UNSAID.lock().unwrap_or_else(PoisonError::into_inner).take());
        apply(Policy::Warn, why.unwrap_or_default());
    }
}

/// The value of a variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    let value = env::var_os(name).filter(|value| !value.is_empty())?;
    Some(value.to_string_lossy().into_owned())
}

fn load(name: &str, policy: Policy) -> Result<Config, String> {
    if let Some(unknown) = unknown_variable() {
        return Err(format!("{unknown} is no setting of wirepath's: unset it, or see docs/run.md for its name"));
    }
    let program = env::args_os().next().unwrap_or_default();
    let program = program.to_string_lossy().rsplit('/').next().unwrap_or_default().to_owned();
    let spin = microseconds(SPIN_US, SPIN_US_MAX)?;
    let spin = Spin { ns: spin.unwrap_or(DEFAULT_SPIN_US) * 1_000, is_set: spin.is_some() };
    let rules = match env::var_os(RULES).filter(|path| !path.is_empty()) {
        None => Rules::default(),
        Some(path) => Rules::load(path.as_ref()).map_err(|error| error.to_string())?,
    };
    let mut port = PortConfig::named(name).map_err(|error| error.to_string())?;
    borrow(&mut port)?;
    stamp(&mut port)?;
    place_program(&mut port)?;
    let own = own_host(&port)?;
    place_helpers()?;
    let application_id = env::var(APPLICATION_ID).ok();
    let engines = engines_of(&port, own.is_some(), rules.engines(&program, application_id.as_deref()))?;
    let gather_ns = match &port {
        // The last answer of a thread would have the frames of its engine alone leave, and those of
        // its other answers would wait in theirs.
        PortConfig::AfXdp(_) if engines > 1 => 0,
        PortConfig::AfXdp(_) => microseconds(GATHER_US, GATHER_US_MAX)?.unwrap_or(DEFAULT_GATHER_US) * 1_000,
        // Its doorbell is a store.
        _ => 0,
    };
    let kept_sender_ports = rules.kept_sender_ports(&program, application_id.as_deref());
    let gives_groups = rules.may_give_groups(&program, application_id.as_deref());
    let leaves_all = rules.leave_all(&program, application_id.as_deref());
    let may_refuse = rules.may_refuse(&program, application_id.as_deref());
    Ok(Config {
        port,
        own,
        program,
        application_id,
        rules,
        kept_sender_ports,
        gives_groups,
        leaves_all,
        may_refuse,
        policy,
        spin,
        gather_ns,
        engines,
        connections: number(CONNECTIONS, 1..=CONNECTIONS_MAX)?.unwrap_or(DEFAULT_CONNECTIONS),
        buffers: number(BUFFERS, BUFFERS_MIN..=BUFFERS_MAX)?.unwrap_or(DEFAULT_BUFFERS),
    })
}

/// Places the library's own threads: on the cores that the environment names, or else on those that
/// the process has now, before the program pins a thread.
fn place_helpers() -> Result<(), String> {
    let Some(text) = variable(HELPER_CPUS) else {
        // Where they cannot be read, or a sandbox forbids the calls, they run where the thread does
        // that opens the interface.
        let _ = affinity::current().map(|cores| affinity::place_helpers(&cores));
        return Ok(());
    };
    let cores = CpuList::parse(&text).ok().filter(|cores| !cores.is_empty());
    let cores = cores.ok_or_else(|| format!("{HELPER_CPUS} is {text:?}: set it to cores such as 0-1,4"))?;
    affinity::place_helpers(&cores).map_err(|error| format!("{HELPER_CPUS} is {text:?}: {error}"))
}

/// The engines that the environment asks for, or else the file of rules. Each has a queue of its
/// own: over AF_XDP a broker's, because an interface has one program. An address of our own is one
/// engine's, which answers for it.
fn engines_of(port: &PortConfig, has_own_address: bool, by_rules: Option<usize>) -> Result<usize, String> {
    let (engines, whence) = match (variable(ENGINES), by_rules) {
        (Some(text), _) => match text.parse() {
            Ok(engines @ 1..=ENGINES_MAX) => (engines, ENGINES),
            _ => return Err(format!("{ENGINES} is {text:?}: set it to a number of engines, {ENGINES_MAX} at most")),
        },
        (None, Some(engines)) => (engines, "engines in the file of rules"),
        (None, None) => return Ok(1),
    };
    match port {
        _ if engines == 1 => Ok(1),
        PortConfig::AfXdp(AfXdpConfig { broker: Some(_), .. }) => Ok(engines),
        PortConfig::Mlx5(_) if !has_own_address => Ok(engines),
        PortConfig::Mlx5(_) => Err(format!(
            "{whence} is {engines}, and one engine answers for the address that {ADDRESS} gives the program: omit one \
             of them"
        )),
        _ => Err(format!(
            "{whence} is {engines}, and each engine needs a queue of a broker: start the program by `wirepath run \
             --engines {engines}`, or remove {whence}"
        )),
    }
}

/// A time that a variable sets.
fn microseconds(name: &str, max: u64) -> Result<Option<u64>, String> {
    let Some(text) = variable(name) else { return Ok(None) };
    match text.parse() {
        Ok(us) if us <= max => Ok(Some(us)),
        _ => Err(format!("{name} is {text:?}: set it to microseconds, {max} at most")),
    }
}

/// A count that a variable sets.
fn number(name: &str, range: RangeInclusive<usize>) -> Result<Option<usize>, String> {
    let Some(text) = variable(name) else { return Ok(None) };
    let count = text.parse().ok().filter(|count| range.contains(count));
    let (least, most) = (range.start(), range.end());
    count.map(Some).ok_or_else(|| format!("{name} is {text:?}: set it to a number from {least} to {most}"))
}

/// Room for 16,384 connections and 64 MiB of their bytes takes some 80 MiB of packet buffers.
const DEFAULT_CONNECTIONS: usize = 16_384;
const DEFAULT_BUFFERS: usize = 32_768;
/// A million connections, and 2 GiB of their bytes.
const CONNECTIONS_MAX: usize = 1 << 20;
const BUFFERS_MAX: usize = 1 << 20;
/// Fewer would be less than one connection fills.
const BUFFERS_MIN: usize = 512;

/// A variable with our prefix that nothing reads: a misspelled one would have no effect.
fn unknown_variable() -> Option<String> {
    const KNOWN: [&str; 19] = [
        INTERFACE,
        BROKER,
        RULES,
        POLICY,
        SPIN_US,
        GATHER_US,
        ENGINES,
        APPLICATION_ID,
        ADDRESS,
        GATEWAY,
        CONNECTIONS,
        BUFFERS,
        HELPER_CPUS,
        TIMESTAMPS,
        XDP_MODE,
        LOG,
        OPENED,
        "WIREPATH_PRELOAD",
        "WIREPATH_SHM",
    ];
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut ours = names.filter(|name| name.starts_with("WIREPATH_") && !name.starts_with("WIREPATH_TEST_"));
    ours.find(|name| !KNOWN.contains(&&**name))
}

/// The host beside the kernel's that the environment asks for.
fn own_host(port: &PortConfig) -> Result<Option<DedicatedHost>, String> {
    let gateway = variable(GATEWAY)
        .map(|text| {
            text.parse().map_err(|_| format!("{GATEWAY} is {text:?}: set it to an address such as 192.0.2.254"))
        })
        .transpose()?;
    let Some(text) = variable(ADDRESS) else {
        return match gateway {
            Some(_) => Err(format!("{GATEWAY} without {ADDRESS}: the kernel has routes of its own; unset it")),
            None => Ok(None),
        };
    };
    let address: Ipv4Prefix =
        text.parse().map_err(|_| format!("{ADDRESS} is {text:?}: set it to an address such as 192.0.2.7/24"))?;
    if broker_of(port).is_some() {
        return Err(format!("a broker lends flows to addresses of the interface alone: unset {ADDRESS}, or be root"));
    }
    let route = |via| StaticRoute { network: Ipv4Prefix::ALL, via };
    let routes = gateway.map(route).into_iter().collect();
    Ok(Some(DedicatedHost { addresses: vec![address], routes, ..DedicatedHost::default() }))
}

/// The socket of the broker, and the interface that it is asked for; `None` without a broker.
pub(crate) fn broker() -> Option<(&'static Path, &'static str)> {
    let port = &CONFIG.get()?.as_ref()?.port;
    Some((broker_of(port)?, port.interface()))
}

fn broker_of(port: &PortConfig) -> Option<&Path> {
    match port {
        PortConfig::AfXdp(config) => config.broker.as_deref(),
        PortConfig::Mlx5(config) => config.broker.as_deref(),
        _ => None,
    }
}

/// Has the broker that the environment names, if any, lend the queue.
fn borrow(port: &mut PortConfig) -> Result<(), String> {
    let Some(path) = env::var_os(BROKER).filter(|path| !path.is_empty()) else { return Ok(()) };
    match port {
        PortConfig::AfXdp(config) => {
            config.broker = Some(path.into());
            Ok(())
        }
        PortConfig::Mlx5(config) => {
            config.broker = Some(path.into());
            Ok(())
        }
        _ => Err(format!("a broker lends queues of AF_XDP and of a ConnectX: unset {BROKER}")),
    }
}

/// Has the NIC stamp frames, if the environment asks for it: a ConnectX those that it sends as
/// well. Over AF_XDP a NIC that cannot stamp is no error.
fn stamp(port: &mut PortConfig) -> Result<(), String> {
    let asks = match variable(TIMESTAMPS).as_deref() {
        None | Some("0") => false,
        Some("1") => true,
        Some(other) => return Err(format!("{TIMESTAMPS} is {other:?}: set it to 1, or unset it")),
    };
    if asks {
        match port {
            PortConfig::Mlx5(config) => config.timestamps = Feature::Required,
            PortConfig::AfXdp(config) => config.rx_timestamps = true,
            _ => (),
        }
    }
    Ok(())
}

/// Sets the mode of AF_XDP that the environment names.
fn place_program(port: &mut PortConfig) -> Result<(), String> {
    let Some(name) = variable(XDP_MODE) else { return Ok(()) };
    let mode = match name.as_str() {
        "auto" => Mode::Auto,
        "native" => Mode::Native,
        "generic" => Mode::Generic,
        other => return Err(format!("{XDP_MODE} is {other:?}: set it to auto, native or generic")),
    };
    match port {
        PortConfig::AfXdp(config) => {
            config.mode = mode;
            Ok(())
        }
        _ => Err(format!("{XDP_MODE} is of AF_XDP: name an interface without a driver before it, or unset it")),
    }
}

/// Longer than a round trip within a building, shorter than what a CPU meter shows.
const DEFAULT_SPIN_US: u64 = 100;
/// Less than a scheduler's slice, and enough for several answers.
const DEFAULT_GATHER_US: u64 = 100;
/// More than a server computes between two answers.
const GATHER_US_MAX: u64 = 1_000_000;
/// Longer than any TCP timer that a request waits for.
const SPIN_US_MAX: u64 = 10_000_000;

/// The interface that is ours.
pub(crate) fn interface() -> Interface<'static> {
    Interface { name: get().map_or("", |config| config.port.interface()), idx: system().interface_idx }
}
