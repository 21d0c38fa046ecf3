//! `wirepath run`: starts a program with the preload library, which offloads its sockets. First it
//! checks for everything that would disable the library, because the loader itself reports nothing:
//! the program would run on the kernel without a notice.

mod interface;
mod privilege;

use core::net::Ipv4Addr;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use sockets::rules::{ENGINES_MAX, Rules};
use wirepath::counters::{environment, printable};
use wirepath::device::af_xdp::{broker_of, check_broker};
use wirepath::proto::Ipv4Prefix;
use wirepath::worker::topology::{CpuList, Severity};

pub(crate) use self::interface::candidates;
use self::privilege::NewBroker;
pub(crate) use self::privilege::{check as check_rights, is_absent};
use crate::broker::cores;
use crate::obstacle::Obstacle;
use crate::program::Program;
use crate::root::Root;
use crate::sys;
use crate::user::{self, Account, User};
use crate::{guard, library};

/// The longest time to poll before a thread sleeps: ten seconds, more than any TCP timer that a
/// request waits for.
const SPIN_US_MAX: i64 = 10_000_000;
/// The longest time that answers wait for others: more than a server computes between two.
const GATHER_US_MAX: i64 = 1_000_000;

/// The most connections and buffers of an engine, and the fewest buffers.
const COUNT_MAX: i64 = 1 << 20;
const BUFFERS_MIN: i64 = 512;

/// The variable that the preloaded library reads.
const INTERFACE: &str = "WIREPATH_INTERFACE";
const BROKER: &str = "WIREPATH_BROKER";
const RULES: &str = "WIREPATH_RULES";
const POLICY: &str = "WIREPATH_POLICY";
const SPIN_US: &str = "WIREPATH_SPIN_US";
const GATHER_US: &str = "WIREPATH_GATHER_US";
const ENGINES: &str = "WIREPATH_ENGINES";
const CONNECTIONS: &str = "WIREPATH_CONNECTIONS";
const BUFFERS: &str = "WIREPATH_BUFFERS";
const HELPER_CPUS: &str = "WIREPATH_HELPER_CPUS";
const TIMESTAMPS: &str = "WIREPATH_TIMESTAMPS";
const XDP_MODE: &str = "WIREPATH_XDP_MODE";
const LOG: &str = "WIREPATH_LOG";
const ADDRESS: &str = "WIREPATH_ADDRESS";
const GATEWAY: &str = "WIREPATH_GATEWAY";
/// Says that a program that has started this one has opened the interface already.
const OPENED: &str = "WIREPATH_OPENED";
const LD_PRELOAD: &str = "LD_PRELOAD";

/// Runs a program whose UDP and TCP sockets leave the kernel.
#[derive(Args)]
pub(crate) struct RunOptions {
    /// The network interface of its sockets, such as eth1 or mlx5:eth1; may be omitted if only one
    /// carries frames
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// The socket of a broker that lends it a queue; may be omitted if `wirepath broker` listens at
    /// /run/wirepath/IF.sock, or if the program may open the interface itself
    #[arg(long, value_name = "PATH")]
    broker: Option<PathBuf>,
    /// Share the interface with further programs: a broker passes frames on, at the cost of a
    /// thread and a copy; it is started if none listens, and ends after the last program
    #[arg(long, conflicts_with = "address")]
    share: bool,
    /// Run the program as this user, without capabilities: a broker has them, which is started if
    /// none listens, and ends after the last program
    #[arg(long, value_name = "USER", conflicts_with = "address")]
    user: Option<String>,
    /// An address for its sockets that the kernel does not have, with its network's prefix length,
    /// such as 192.0.2.7/24; by default they have the kernel's
    #[arg(long, value_name = "ADDRESS", conflicts_with = "broker")]
    address: Option<Ipv4Prefix>,
    /// The router to other networks than that of --address
    #[arg(long, value_name = "ADDRESS", requires = "address")]
    gateway: Option<Ipv4Addr>,
    /// The rules that select its sockets: a TOML file (docs/run.md) or a libvma.conf
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// What to do if its sockets cannot leave the kernel; by default as WIREPATH_POLICY says, or
    /// warn
    #[arg(long, value_enum)]
    policy: Option<Policy>,
    /// A file for what the library has to say, with the time and the process; without it, standard
    /// error alone has it, of which a daemon has none
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Microseconds that a call polls before its thread sleeps
    #[arg(long, value_name = "USEC", value_parser = clap::value_parser!(i64).range(0..=SPIN_US_MAX))]
    spin: Option<i64>,
    /// Microseconds that answers of a server wait at most, to leave together with others, 100 by
    /// default; 0: each leaves at once
    #[arg(long, value_name = "USEC", value_parser = clap::value_parser!(i64).range(0..=GATHER_US_MAX))]
    gather: Option<i64>,
    /// Engines for its threads, each with a queue and a lock of its own, so that threads do not
    /// wait for each other: a broker passes frames on to them, as with --share, where none lends
    /// queues; by default as many as --rules say, or one
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["address", "gather"])]
    #[arg(value_parser = clap::value_parser!(i64).range(1..=ENGINES_MAX as i64))]
    engines: Option<i64>,
    /// Connections that each engine has room for, 16,384 by default
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(1..=COUNT_MAX))]
    connections: Option<i64>,
    /// Packet buffers in which bytes of connections wait, of each engine, 32,768 by default, with
    /// an eighth as many for datagrams; each has 2 KiB
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(BUFFERS_MIN..=COUNT_MAX))]
    buffers: Option<i64>,
    /// Cores of the library's own threads, such as 0-1,4, and of a broker that this starts; by
    /// default those that the program begins on
    #[arg(long, value_name = "CORES", value_parser = cores)]
    helper_cpus: Option<CpuList>,
    /// Have the NIC stamp frames, for sockets with SO_TIMESTAMPING: received ones, and with mlx5:IF
    /// sent ones
    #[arg(long)]
    timestamps: bool,
    /// Have a guardian reset the program's TCP connections when it is killed; as root, or with
    /// CAP_NET_RAW
    #[arg(long)]
    guard: bool,
    /// Where the XDP program runs; by default native where the driver can. On a veth generic is
    /// faster (docs/tuning.md)
    #[arg(long, value_enum, value_name = "MODE")]
    xdp_mode: Option<XdpMode>,
    /// The program: a path, or a name in PATH
    program: OsString,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The treatment of a program whose sockets cannot leave the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// Do not start the program
    Refuse,
    /// Run it on the kernel, and print the reason in one line
    Warn,
    /// Run it on the kernel, silently
    Quiet,
}

impl Policy {
    fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Warn => "warn",
            Self::Quiet => "quiet",
        }
    }
}

/// The place of the XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum XdpMode {
    /// Native where the driver can, else generic
    Auto,
    /// In the driver
    Native,
    /// Behind the driver
    Generic,
}

impl XdpMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// Runs the subcommand: it becomes the program, and returns only with an error.
pub(crate) fn run(options: &RunOptions) -> Result<(), Box<dyn Error>> {
    let policy = options.policy()?;
    let user = options.user.as_deref().map(|name| user::find(&Root::new(None), name)).transpose()?;
    let program = Program::find(&options.program, user.as_ref())?;
    let mut command = Command::new(&program.path);
    command.arg0(&options.program).args(&options.arguments);
    let prepared = options.prepare(&program, user.as_ref(), policy);
    if options.guard && prepared.is_ok() {
        guard::start_for_this_process()?;
    }
    // Whatever hinders the library, the program does not run with other rights.
    if let Some(user) = &user {
        become_user(user, &mut command).map_err(|error| {
            format!(
                "cannot run {} as user {} ({error}): run this as root, or omit --user",
                program.path.display(),
                user.uid
            )
        })?;
    }
    match prepared.and_then(Settings::check_readable) {
        Ok(settings) => {
            command.envs(settings.variables).env_remove(OPENED);
        }
        Err(obstacle) => {
            match policy {
                Policy::Refuse => return Err(obstacle.to_string().into()),
                Policy::Warn => {
                    eprintln!("wirepath: the program runs on the kernel, as {}", printable(obstacle.to_string()))
                }
                Policy::Quiet => {}
            }
            // Without this variable, a copy of the library that `LD_PRELOAD` already names does
            // nothing.
            command.env_remove(INTERFACE).env_remove(BROKER);
        }
    }
    let error = command.exec();
    let path = program.path.display();
    Err(match &options.user {
        Some(user) if error.kind() == ErrorKind::PermissionDenied => {
            format!("cannot run {path} as {user} ({error}): let this user execute it, and enter the folders above it")
        }
        Some(user) => format!("cannot run {path} as {user}: {error}"),
        None => format!("cannot run {path}: {error}"),
    }
    .into())
}

/// Makes this process the user's, and the environment of the program that follows.
fn become_user(user: &User, command: &mut Command) -> io::Result<()> {
    sys::become_user(user.uid, user.gid, &user.groups)?;
    if let Some(Account { name, home }) = &user.account {
        command.envs([("HOME", home), ("USER", name), ("LOGNAME", name)]);
    }
    Ok(())
}

/// What the library gets.
struct Settings {
    library: PathBuf,
    rules: Option<PathBuf>,
    log: Option<PathBuf>,
    variables: Vec<(&'static str, OsString)>,
}

impl Settings {
    /// Whether the user whose process this is by now may read what the program will: the loader
    /// drops a library that it cannot read, and goes on.
    fn check_readable(self) -> Result<Self, Obstacle> {
        for path in [Some(&self.library), self.rules.as_ref()].into_iter().flatten() {
            File::open(path).map_err(|error| {
                let (user, _) = sys::user_and_group();
                Obstacle::new(
                    format!("user {user} may not read {} ({error})", path.display()),
                    "let this user read it and enter the folders above it, or name a copy elsewhere",
                )
            })?;
        }
        if let Some(path) = &self.log {
            check_log(path)?;
        }
        Ok(self)
    }
}

/// Makes the log if there is none, as the library will open it.
fn check_log(path: &Path) -> Result<(), Obstacle> {
    // A link may be another user's, and a pipe without a reader would be waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().append(true).create(true).mode(0o640).custom_flags(flags).open(path);
    let why = match file.and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.is_file() => return Ok(()),
        Ok(_) => "it is no regular file".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Obstacle::new(
        format!("{} cannot be the log ({why})", path.display()),
        "name a file that the program's user may write to, and no link, or omit --log",
    ))
}

impl RunOptions {
    /// The policy of the option, or else of the environment.
    fn policy(&self) -> Result<Policy, String> {
        match (self.policy, environment(POLICY)) {
            (Some(policy), _) => Ok(policy),
            (None, None) => Ok(Policy::Warn),
            (None, Some(word)) => {
                let word = word.to_string_lossy();
                Policy::from_str(&word, false)
                    .map_err(|_| format!("{POLICY} is {word:?}: set it to refuse, warn or quiet"))
            }
        }
    }

    /// What the library gets, or the obstacle that keeps it from the program's sockets.
    fn prepare(&self, program: &Program, user: Option<&User>, policy: Policy) -> Result<Settings, Obstacle> {
        for (_, finding) in program.findings() {
            if finding.severity == Severity::Fault {
                return Err(Obstacle::new(finding.what, finding.remedy.unwrap_or_default()));
            }
        }
        let root = Root::new(None);
        let library = library::find()?;
        let preloaded = preload(&library, environment(LD_PRELOAD).as_deref())?;
        let wanted = self.interface.clone().map(OsString::from).or_else(|| environment(INTERFACE));
        let interface = interface::choose(&root, wanted.as_deref())?;
        let rules = self.rules.clone().or_else(|| environment(RULES).map(PathBuf::from));
        let (rules, engines_max) = rules.map(|path| check_rules(&path)).transpose()?.unzip();
        let broker = self.broker.clone().or_else(|| environment(BROKER).map(PathBuf::from));
        let new = self.new_broker(&interface, user, engines_max.unwrap_or(1));
        let broker = privilege::broker(&root, &interface, broker, new.as_ref())?;
        let own = self.address.map(|address| address.to_string());
        if let (Some(_), Some(path)) = (&own, &broker) {
            let path = path.display();
            return Err(Obstacle::new(
                "a broker lends flows to addresses of the interface alone",
                match privilege::check(&root) {
                    Ok(()) => format!("stop the broker at {path}, or omit --address"),
                    Err(_) => format!("run this as root without the broker at {path}, or omit --address"),
                },
            ));
        }

        // The program may change its directory before it starts others.
        let log = self.log.clone().or_else(|| environment(LOG).map(PathBuf::from));
        let log = log.map(|path| std::path::absolute(&path).unwrap_or(path));
        let mut settings =
            vec![(LD_PRELOAD, preloaded), (INTERFACE, interface.into()), (POLICY, policy.as_str().into())];
        settings.extend(broker.map(|path| (BROKER, path.into())));
        settings.extend(own.map(|address| (ADDRESS, address.into())));
        settings.extend(self.gateway.map(|router| (GATEWAY, router.to_string().into())));
        settings.extend(rules.iter().map(|path| (RULES, path.into())));
        settings.extend(log.iter().map(|path| (LOG, path.into())));
        settings.extend(self.connections.map(|count| (CONNECTIONS, count.to_string().into())));
        settings.extend(self.buffers.map(|count| (BUFFERS, count.to_string().into())));
        settings.extend(self.helper_cpus.as_ref().map(|cores| (HELPER_CPUS, cores.to_string().into())));
        settings.extend(self.timestamps.then(|| (TIMESTAMPS, "1".into())));
        settings.extend(self.xdp_mode.map(|mode| (XDP_MODE, mode.as_str().into())));
        settings.extend(self.spin.map(|spin| (SPIN_US, spin.to_string().into())));
        settings.extend(self.engines.map(|engines| (ENGINES, engines.to_string().into())));
        settings.extend(self.gather.map(|gather| (GATHER_US, gather.to_string().into())));
        Ok(Settings { library, rules, log, variables: settings })
    }

    /// The broker to start where none listens, if one is wanted. The rules of any program count,
    /// because the one named here may start others, as `env` and scripts do; each asks the rules by
    /// its own name, and is refused there what the broker cannot give.
    fn new_broker(&self, interface: &str, user: Option<&User>, engines_by_rules: usize) -> Option<NewBroker> {
        // A ConnectX brings the frames of each engine by its own rules. Elsewhere a broker that
        // lends queues serves several engines as well, if there are queues enough, but each has
        // what the NIC brings there.
        let is_steered = interface.starts_with("mlx5:");
        let has_engines = self.engines.map_or(engines_by_rules > 1, |engines| engines > 1);
        let forward = self.share || (has_engines && !is_steered);
        (forward || user.is_some()).then(|| NewBroker {
            forward,
            needs_forward: self.share,
            uid: user.map(|user| user.uid),
            cpus: self.helper_cpus.clone(),
        })
    }
}

/// Checks the file and returns its absolute path, because the program may change its directory
/// before its first socket, and the most engines that the file gives to a program.
fn check_rules(path: &Path) -> Result<(PathBuf, usize), Obstacle> {
    // Each program reads the file anew, and of a pipe only the first would find the rules.
    if fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        return Err(Obstacle::new(
            format!("{} is no regular file, and each program reads its rules anew", path.display()),
            "write the rules to a file",
        ));
    }
    let rules = Rules::load(path);
    let rules = rules.map_err(|error| Obstacle::new(error.to_string(), "correct the file, or omit --rules"))?;
    Ok((std::path::absolute(path).unwrap_or_else(|_| path.to_owned()), rules.engines_max()))
}

/// The broker that lends queues to this user's programs: the one that the environment names, or
/// that of an interface.
pub(crate) fn broker_that_serves(root: &Root) -> Option<PathBuf> {
    let wanted = environment(INTERFACE).map(|name| name.to_string_lossy().into_owned());
    let interfaces = wanted.map_or_else(|| interface::names(root), |name| vec![name]);
    let path = |interface: &String| environment(BROKER).map_or_else(|| broker_of(interface), PathBuf::from);
    let serving = interfaces.iter().find(|interface| check_broker(&path(interface), interface).is_ok());
    serving.map(path)
}

/// Puts our library first, because the first library gets each call and passes on those that are
/// not for it.
fn preload(library: &Path, others: Option<&OsStr>) -> Result<OsString, Obstacle> {
    let shown = library.display().to_string();
    // Blanks and colons separate the names of the list (ld.so(8)), and cannot be escaped.
    if shown.contains([' ', ':']) {
        return Err(Obstacle::new(
            format!("the path of the library, {shown}, has a blank or a colon, which LD_PRELOAD cannot have"),
            "move it, and set WIREPATH_PRELOAD to its path",
        ));
    }
    let mut list = OsString::from(library);
    let others = others.map(OsStr::to_string_lossy).unwrap_or_default();
    for other in others.split([' ', ':']).filter(|other| !other.is_empty() && *other != shown) {
        list.push(":");
        list.push(other);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn library_stands_in_front_of_others_once() {
        let check = |others: Option<&str>, expected: &str| {
            assert_eq!(preload(Path::new("/l/ours.so"), others.map(OsStr::new)).unwrap(), expected);
        };
        check(None, "/l/ours.so");
        check(Some(""), "/l/ours.so");
        check(Some("libjemalloc.so.2"), "/l/ours.so:libjemalloc.so.2");
        check(Some("a.so b.so:/l/ours.so::c.so"), "/l/ours.so:a.so:b.so:c.so");
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: RunOptions,
    }

    #[test]
    fn broker_passes_frames_on_where_rules_give_any_program_engines() {
        let folder = tempfile::tempdir().unwrap();
        let rules = folder.path().join("rules.toml");
        fs::write(&rules, "[[programs]]\nname = 'other'\nengines = 4\n").unwrap();
        let (_, engines) = check_rules(&rules).unwrap();
        let forwards = |words: &[&str], interface: &str| {
            let Line { options } = Line::parse_from(["run"].iter().chain(words).chain(&["env"]));
            options.new_broker(interface, None, engines).is_some_and(|new| new.forward && !new.needs_forward)
        };
        assert!(forwards(&[], "eth1"));
        assert!(!forwards(&["--engines", "1"], "eth1"));
        assert!(!forwards(&[], "mlx5:eth1"));
        let Line { options } = Line::parse_from(["run", "--engines", "4", "env"]);
        assert!(options.new_broker("mlx5:eth1", None, 1).is_none(), "a ConnectX needs none");
    }

    #[test]
    fn library_whose_path_the_loader_would_cut_is_refused() {
        for path in ["/a b/ours.so", "/a:b/ours.so"] {
            assert!(preload(Path::new(path), None).unwrap_err().remedy.contains("WIREPATH_PRELOAD"));
        }
    }
}
