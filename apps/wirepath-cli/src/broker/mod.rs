//! `wirepath broker`: lends the queues of an interface to programs of users without capabilities.

mod background;
mod lifetime;
mod log;

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use sockets::rules::load_broker;
use wirepath::worker::broker::{Broker, BrokerConfig, BrokerRule, BrokerRules, BrokerUser};
use wirepath::worker::live::PortConfig;
use wirepath::worker::topology::CpuList;
use wirepath::worker::{ReloadSignal, StopFlag};

use self::lifetime::Lifetime;
use self::log::Log;
use crate::interface::Interface;
use crate::root::Root;
use crate::{sys, user};

/// The most MiB of packet buffers for a client: more than any program needs.
const MEMORY_MAX_MIB: i64 = 65_536;
/// The most for all clients of a user: what all his connections could have.
const USER_MEMORY_MAX_MIB: i64 = USER_CONNECTIONS_MAX * MEMORY_MAX_MIB;
/// The most connections of a user: all but those that are root's.
const USER_CONNECTIONS_MAX: i64 = 120;

/// Lends queues of an interface to programs that have no capability, until it is stopped.
#[derive(Args)]
pub(crate) struct BrokerOptions {
    /// The interface, such as eth1, or mlx5:eth1 for the queues of a ConnectX itself
    #[arg(long, value_name = "IF")]
    interface: String,
    /// A user whose programs it serves, beside root: a name or a number, and ports below 1024 that
    /// they may have, as in 1000:53,123
    #[arg(long = "uid", value_name = "USER[:PORT,...]")]
    users: Vec<String>,
    /// A file that says who may have what, in place of --uid; read again at SIGHUP
    #[arg(long, value_name = "FILE", conflicts_with = "users", value_parser = absolute())]
    rules: Option<PathBuf>,
    /// Where it listens, if not at /run/wirepath/IF.sock
    #[arg(long, value_name = "PATH", value_parser = absolute())]
    socket: Option<PathBuf>,
    /// MiB of packet buffers for each program, at most
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(i64).range(1..=MEMORY_MAX_MIB))]
    memory: Option<i64>,
    /// MiB of packet buffers for all programs of a user together, at most
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(i64).range(1..=USER_MEMORY_MAX_MIB))]
    user_memory: Option<i64>,
    /// Connections of a user, one for each process, at most: 32 without it, of 128 in all
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(1..=USER_CONNECTIONS_MAX))]
    user_connections: Option<i64>,
    /// Keep the queues and pass frames on, so that any number of programs share the interface
    #[arg(long)]
    forward: bool,
    /// The cores of its threads, such as 0-1,4; by default those on which it is started
    #[arg(long, value_name = "CORES", value_parser = cores)]
    cpus: Option<CpuList>,
    /// Go on in the background once it listens, and log to a file beside its socket: eth1.log
    #[arg(long)]
    background: bool,
    /// End when this process has ended and no program was served for ten seconds; until then serve
    /// the users of `wirepath run --user` by root as well
    #[arg(long, value_name = "PID")]
    until_exit: Option<u32>,
    /// It was started in the background: begin the log anew once it is long, and leave the caller's
    /// folder
    #[arg(long, hide = true)]
    bounded_log: bool,
}

/// A path from the root, because a broker in the background leaves its folder.
fn absolute() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| std::path::absolute(&path).unwrap_or(path))
}

/// A list of cores that names one at least.
pub(crate) fn cores(text: &str) -> Result<CpuList, String> {
    let cores = CpuList::parse(text).map_err(|error| error.to_string())?;
    if cores.is_empty() { Err("name cores such as 0-1,4".into()) } else { Ok(cores) }
}

/// Runs the subcommand until a signal, or until the interface is gone.
pub(crate) fn run(options: &BrokerOptions) -> Result<(), Box<dyn Error>> {
    let root = Root::new(None);
    let config = options.config(&root)?;
    if options.background {
        return Ok(background::start(&config)?);
    }
    if let Some(cores) = &options.cpus {
        sys::run_on(&mut cores.iter()).map_err(|error| format!("cannot run on cores {cores}: {error}"))?;
    }
    let log = Log::new(options.bounded_log)?;
    if options.bounded_log {
        std::env::set_current_dir("/")?;
    }
    if config.users.is_empty() && config.rules.as_ref().is_none_or(Vec::is_empty) {
        log.say("only root is served: name users with --uid, or in a file with --rules");
    }
    // Each program takes some. With fewer, later ones wait, and the log says so.
    let _ = sys::raise_open_files();
    let (stop, reload) = (StopFlag::on_signals()?, ReloadSignal::new()?);
    let broker = Broker::open(config)?;
    log.say(&broker.describe());
    let mut lifetime = Lifetime::new(&root, options.until_exit);
    let rules = broker.rules();
    let is_needed = |clients| {
        if reload.take() {
            options.reload(&root, &rules, &log);
        }
        lifetime.is_needed(&root, clients, Instant::now())
    };
    broker.serve_while(&stop, is_needed, |line| log.say(line))?;
    Ok(())
}

impl BrokerOptions {
    fn config(&self, root: &Root) -> Result<BrokerConfig, String> {
        let mut config = match PortConfig::named(&self.port(root)).map_err(|error| error.to_string())? {
            PortConfig::AfXdp(port) => BrokerConfig::new(&port.interface),
            port => BrokerConfig::over(port),
        };
        config.users = self.users.iter().map(|text| parse(root, text)).collect::<Result<_, _>>()?;
        config.rules = self.rules(root)?;
        config.forward = self.forward;
        // A `wirepath run` of root's has started it, and a later one may name another user.
        config.serves_added_users = self.until_exit.is_some();
        if let Some(path) = &self.socket {
            config.path = path.clone();
        }
        if let Some(mib) = self.memory {
            config.memory_max = mib.unsigned_abs() << 20;
        }
        if let Some(mib) = self.user_memory {
            config.user_memory_max = mib.unsigned_abs() << 20;
        }
        if let Some(count) = self.user_connections {
            config.user_connections_max = count.unsigned_abs() as usize;
        }
        Ok(config)
    }

    /// The port by its interface, whose name rules and the path of the socket have.
    fn port(&self, root: &Root) -> String {
        match self.interface.strip_prefix("mlx5:") {
            Some(name) => format!("mlx5:{}", Interface::of_connectx(root, name)),
            None => self.interface.clone(),
        }
    }

    fn rules(&self, root: &Root) -> Result<Option<Vec<BrokerRule>>, String> {
        let port = self.port(root);
        let interface = port.strip_prefix("mlx5:").unwrap_or(&port);
        let load = |path: &PathBuf| load_broker(path, interface, &user::Numbers(root));
        self.rules.as_ref().map(load).transpose().map_err(|error| error.to_string())
    }

    /// Reads the file again. A file with an error changes nothing.
    fn reload(&self, root: &Root, rules: &BrokerRules, log: &Log) {
        match self.rules(root) {
            Ok(Some(new)) => rules.replace(new),
            Ok(None) => log.say("there is no file to read again: start the broker with --rules"),
            Err(error) => log.say(&format!("{error}; the rules stay as they are")),
        }
    }
}

/// Reads `USER` or `USER:PORT,PORT`.
fn parse(root: &Root, text: &str) -> Result<BrokerUser, String> {
    let (name, ports) = text.split_once(':').map_or((text, None), |(name, ports)| (name, Some(ports)));
    let uid = user::find(root, name)?.uid;
    let port = |text: &str| {
        let port = text.parse().ok().filter(|port| (1..1024).contains(port));
        port.ok_or_else(|| format!("--uid {name}: `{text}` is no port below 1024, and those above need no leave"))
    };
    let low_ports = ports.map_or(Ok(Vec::new()), |ports| ports.split(',').map(port).collect())?;
    Ok(BrokerUser { uid, low_ports })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_a_name_or_a_number_with_low_ports() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        std::fs::write(folder.path().join("etc/passwd"), "trader:x:1000:100:T:/home/t:/bin/sh\n").unwrap();
        let root = Root::new(Some(folder.path()));
        let user = |uid, low_ports: &[u16]| Ok(BrokerUser { uid, low_ports: low_ports.to_vec() });
        assert_eq!(parse(&root, "trader"), user(1000, &[]));
        assert_eq!(parse(&root, "65534"), user(65_534, &[]));
        assert_eq!(parse(&root, "trader:53,123"), user(1000, &[53, 123]));
        for (wrong, says) in [
            ("nobody-here", "there is no user nobody-here"),
            ("", "there is no user"),
            ("trader:", "`` is no port below 1024"),
            ("trader:0", "`0` is no port"),
            ("trader:1024", "those above need no leave"),
            ("trader:53,x", "`x` is no port"),
        ] {
            let refused = parse(&root, wrong).unwrap_err();
            assert!(refused.contains(says), "{wrong}: {refused}");
        }
    }
}
