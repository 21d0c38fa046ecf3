//! The configuration in the environment, which `wirepath run` sets, and the messages to the
//! program's user.

use std::env;
use std::fmt::Display;
use std::sync::OnceLock;
use std::time::Duration;

use sockets::System;
use sockets::rules::Rules;
use wirepath::worker::live::PortConfig;

use crate::engine::table;
use crate::sys;

/// The interface whose sockets are offloaded, as `Port::open` names it: `eth1`, `mlx5:eth1`.
pub(crate) const INTERFACE: &str = "WIREPATH_INTERFACE";
/// The socket of a broker, which lends a queue to a program without capabilities.
const BROKER: &str = "WIREPATH_BROKER";
const RULES: &str = "WIREPATH_RULES";
const POLICY: &str = "WIREPATH_POLICY";
const SPIN_US: &str = "WIREPATH_SPIN_US";
const APPLICATION_ID: &str = "WIREPATH_APPLICATION_ID";

pub(crate) struct Config {
    pub(crate) port: PortConfig,
    pub(crate) program: String,
    /// The application id by which libvma.conf selects the program.
    pub(crate) application_id: Option<String>,
    pub(crate) rules: Rules,
    pub(crate) policy: Policy,
    /// How long a call that waits polls before its thread sleeps.
    spin: Duration,
}

/// What happens if sockets cannot be offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The program ends.
    Refuse,
    /// The program runs on the kernel, and one line says why.
    Warn,
    /// The program runs on the kernel, silently.
    Quiet,
}

static CONFIG: OnceLock<Option<Config>> = OnceLock::new();

/// The configuration; `None` if it names no interface: then nothing is offloaded.
pub(crate) fn get() -> Option<&'static Config> {
    CONFIG.get_or_init(read).as_ref()
}

/// How long a call that waits polls before its thread sleeps.
pub(crate) fn spin() -> Duration {
    CONFIG.get().and_then(Option::as_ref).map_or(Duration::ZERO, |config| config.spin)
}

/// The system's limits of socket options, and the index of our interface.
pub(crate) fn system() -> &'static System {
    static SYSTEM: OnceLock<System> = OnceLock::new();
    SYSTEM.get_or_init(|| {
        let default = System::default();
        let number = |path: &str| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
        let interface = get().map_or("", |config| config.port.interface());
        System {
            receive_buffer_max: number("/proc/sys/net/core/rmem_max").unwrap_or(default.receive_buffer_max),
            send_buffer_max: number("/proc/sys/net/core/wmem_max").unwrap_or(default.send_buffer_max),
            interface_idx: number(&format!("/sys/class/net/{interface}/ifindex")).unwrap_or(0),
        }
    })
}

/// One line on the program's standard error.
pub(crate) fn say(sentence: impl Display) {
    // A program may have a socket at number 2.
    let is_socket = table::find(2).is_some();
    if !is_socket && CONFIG.get().and_then(Option::as_ref).is_none_or(|config| config.policy != Policy::Quiet) {
        let _ = sys::write(2, format!("wirepath: {sentence}\n").as_bytes());
    }
}

/// Applies the policy after sockets could not be offloaded.
pub(crate) fn fall_back(why: impl Display) {
    match get().map(|config| config.policy) {
        Some(Policy::Refuse) => {
            say(format_args!("{why}; the policy is refuse, so the program ends"));
            sys::exit_group(1);
        }
        _ => say(format_args!("{why}; the program runs on the kernel")),
    }
}

/// Whether the environment of a test asks for a panic at `place`.
pub(crate) fn is_panic_asked_for(place: &str) -> bool {
    env::var("WIREPATH_TEST_PANIC").is_ok_and(|asked| asked == place)
}

fn read() -> Option<Config> {
    if sys::is_privileged() {
        return None;
    }
    let name = env::var(INTERFACE).ok().filter(|name| !name.is_empty())?;
    let program = env::args_os().next().unwrap_or_default();
    let program = program.to_string_lossy().rsplit('/').next().unwrap_or_default().to_owned();
    let policy = match env::var(POLICY).as_deref() {
        Ok("refuse") => Policy::Refuse,
        Ok("quiet") => Policy::Quiet,
        _ => Policy::Warn,
    };
    let spin_us = env::var(SPIN_US).ok().and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_SPIN_US);
    let rules = match env::var_os(RULES).filter(|path| !path.is_empty()) {
        None => Rules::default(),
        Some(path) => Rules::load(path.as_ref()).map_err(|error| refuse(policy, error)).ok()?,
    };
    let mut port = PortConfig::named(&name).map_err(|error| refuse(policy, error)).ok()?;
    borrow(&mut port).map_err(|error| refuse(policy, error)).ok()?;
    let application_id = env::var(APPLICATION_ID).ok();
    Some(Config { port, program, application_id, rules, policy, spin: Duration::from_micros(spin_us) })
}

/// Has the broker that the environment names, if any, lend the queue.
fn borrow(port: &mut PortConfig) -> Result<(), &'static str> {
    let Some(path) = env::var_os(BROKER).filter(|path| !path.is_empty()) else { return Ok(()) };
    match port {
        PortConfig::AfXdp(config) => {
            config.broker = Some(path.into());
            Ok(())
        }
        _ => Err(
            "a broker lends queues of AF_XDP: name an interface without a driver before it, or unset WIREPATH_BROKER",
        ),
    }
}

/// Reports wrong settings. Under the policy `refuse` the program ends.
fn refuse(policy: Policy, error: impl Display) {
    let _ = sys::write(2, format!("wirepath: {error}; the program runs on the kernel\n").as_bytes());
    if policy == Policy::Refuse {
        sys::exit_group(1);
    }
}

/// Longer than a round trip within a building, shorter than what a CPU meter shows.
const DEFAULT_SPIN_US: u64 = 100;
