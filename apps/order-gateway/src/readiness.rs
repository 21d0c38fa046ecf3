//! What a start would fail on, or be of no use for, beside the journal and the limits: found by
//! looking, without a connection, a listener or a file of its own.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use market_ring::RingReader;
use order_gateway::{Config, Error, LatencyConfig, StandbyConfig};
use rustix::fs::{Access, access};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, socket};

const CONTROL: &str = "check `control`: each gateway of a machine has its own";
const LISTEN: &str = "check `listen` of [standby], and what `ss -ltnp` says of the port: each gateway of a machine has \
                      its own";
const ROUTE: &str = "check the address, and `ip route get` of it";
const FEED: &str = "`interface` of [[feed]] is an address of this machine, as `ip -4 address` lists them";
const RING: &str = "start the market-gateway of this machine, or check `ring` of [quotes]";
const BESIDE: &str = "what lies behind the journal's last good record is kept beside it: check who owns the directory";
const LOG: &str = "check the path of `audit`, and who owns it";
const PICTURE: &str = "check `picture` of [latency]";
const KILL_FILE: &str = "delete it, or the kill switch is thrown at the start";

/// What stands against a start by this configuration now, each in a sentence with the next step.
pub(crate) fn obstacles(config: &Config) -> Vec<Error> {
    let mut found = Vec::new();
    if config.wire().is_none() {
        let venues = [Some(config.venue.primary), config.venue.secondary].into_iter().flatten();
        found.extend(venues.filter_map(no_route));
    }
    found.extend(config.standby.as_ref().and_then(cannot_listen));
    found.extend(config.standby.as_ref().and_then(|standby| standby.secret().err()));
    let path = config.control.as_deref();
    found.extend(path.and_then(|path| at("control socket", path, can_be_socket(path), CONTROL)));
    let journal = &config.journal.path;
    found.extend(at("journal", journal, may_write(parent(journal)), BESIDE));
    let log = config.audit.as_deref();
    found.extend(log.and_then(|path| at("audit log", path, can_be_written(path), LOG)));
    let picture = config.latency.as_ref().and_then(LatencyConfig::picture);
    found.extend(picture.and_then(|path| at("picture", path, can_be_written(path), PICTURE)));
    let kill_file = config.kill_file.as_deref().filter(|path| path.exists());
    found.extend(kill_file.map(|path| Error::at("kill file", path, "it is there", KILL_FILE)));
    if config.wire().is_none() {
        found.extend(config.feed().filter_map(no_interface));
    }
    found.extend(config.quotes(&[]).and_then(|(ring, _)| no_gateway(&ring)));
    found
}

fn at(what: &str, path: &Path, looked: io::Result<()>, way_on: &str) -> Option<Error> {
    looked.err().map(|error| Error::at(what, path, error, way_on))
}

/// A datagram socket is connected by a look into the routes, and nothing is sent.
fn no_route(venue: SocketAddrV4) -> Option<Error> {
    let routed = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| socket.connect(venue));
    routed.err().map(|error| Error::failed(format!("the venue {venue} cannot be reached: {error}; {ROUTE}")))
}

/// Bound as a listener is, and not one: nobody is kept from the port.
fn cannot_listen(section: &StandbyConfig) -> Option<Error> {
    let bound = socket(AddressFamily::INET, SocketType::STREAM, None).and_then(|socket| {
        set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &section.listen)
    });
    let error = bound.err()?;
    Some(Error::failed(format!("cannot listen at {} for a standby: {error}; {LISTEN}", section.listen)))
}

/// Whether a socket can be made there, as the control thread makes it.
fn can_be_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::other("a file that is no socket has this name"));
        }
        Ok(_) if is_listening(path) => return Err(io::Error::other("another gateway listens there")),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    may_write(parent(path))
}

/// Whether a process of this network namespace listens at a socket's path. Where the kernel does
/// not say, nobody does: the start finds out.
fn is_listening(path: &Path) -> bool {
    const ACCEPTS: &str = "00010000";
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    sockets.lines().any(|line| {
        let (flags, at) = socket_of(line);
        flags == ACCEPTS && Path::new(at) == path
    })
}

/// The flags of a socket, and its path: the fourth word of a line, and all behind the seventh,
/// where spaces are the path's own.
fn socket_of(line: &str) -> (&str, &str) {
    let mut rest = line;
    let words: [&str; 7] = std::array::from_fn(|_| {
        let (word, behind) = rest.trim_start_matches(' ').split_once(' ').unwrap_or_default();
        rest = behind;
        word
    });
    (words[3], rest)
}

fn can_be_written(path: &Path) -> io::Result<()> {
    match access(path, Access::WRITE_OK) {
        Err(rustix::io::Errno::NOENT) => may_write(parent(path)),
        looked => Ok(looked?),
    }
}

/// Whether files can be made in a directory.
fn may_write(directory: PathBuf) -> io::Result<()> {
    if !fs::metadata(&directory)?.is_dir() {
        return Err(io::Error::other(format!("{} is no directory", directory.display())));
    }
    Ok(access(&directory, Access::WRITE_OK | Access::EXEC_OK)?)
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn no_interface((group, interface): (SocketAddrV4, Ipv4Addr)) -> Option<Error> {
    let error = UdpSocket::bind((interface, 0)).err()?;
    Some(Error::failed(format!("cannot join the feed {group} on {interface}: {error}; {FEED}")))
}

fn no_gateway(ring: &Path) -> Option<Error> {
    match RingReader::open(ring) {
        // The file of one that was killed stays behind.
        Ok(reader) if reader.is_writer_gone().unwrap_or(true) => {
            Some(Error::at("ring", ring, "its market-gateway has ended", RING))
        }
        Ok(_) => None,
        Err(error) => Some(Error::at("ring", ring, error, RING)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use rustix::net::getsockname;
    use tempfile::TempDir;

    use super::*;

    const VENUE: &str = "[venue]\nprotocol = \"ouch50\"\nprimary = \"127.0.0.1:9100\"\nuser = \"TRADER\"\n\
                         password = \"SECRET\"\nfirm = \"FIRM\"\ncapacity = \"principal\"\n";

    /// A configuration with all that is looked at, in a directory where everything is right.
    fn config(folder: &TempDir, listen: SocketAddrV4, more: &str) -> Config {
        let path = |name: &str| folder.path().join(name);
        fs::write(path("secret"), "0123456789abcdef").unwrap();
        fs::set_permissions(path("secret"), Permissions::from_mode(0o600)).unwrap();
        let text = format!(
            "limits = \"limits\"\naudit = {:?}\ncontrol = {:?}\nkill_file = {:?}\n{VENUE}[journal]\npath = {:?}\n\
             [standby]\nlisten = \"{listen}\"\nsecret_file = {:?}\n{more}",
            path("audit"),
            path("control"),
            path("kill"),
            path("journal"),
            path("secret"),
        );
        fs::write(path("config"), text).unwrap();
        Config::read(&path("config")).unwrap()
    }

    fn sentences(config: &Config) -> Vec<String> {
        obstacles(config).iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn one(config: &Config, parts: [&str; 2]) {
        let found = sentences(config);
        assert!(matches!(&found[..], [one] if parts.iter().all(|part| one.contains(part))), "{found:?}");
    }

    /// A port on which nobody listens, and the socket that keeps others from it: who listens may
    /// share it, as the start does.
    fn free() -> (OwnedFd, SocketAddrV4) {
        let kept = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        set_socket_reuseaddr(&kept, true).unwrap();
        bind(&kept, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = SocketAddrV4::try_from(getsockname(&kept).unwrap()).unwrap();
        (kept, at)
    }

    #[test]
    fn start_that_nothing_stands_against_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let (_kept, listen) = free();
        let config = config(&folder, listen, "");
        assert_eq!(sentences(&config), [""; 0]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the configuration and the secret");
        drop(TcpListener::bind(listen).unwrap());
    }

    #[test]
    fn port_and_socket_that_another_gateway_has_are_told_with_the_next_step() {
        let folder = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listen = SocketAddrV4::new(Ipv4Addr::LOCALHOST, taken.local_addr().unwrap().port());
        one(&config(&folder, listen, ""), ["cannot listen at 127.0.0.1:", "ss -ltnp"]);
        drop(taken);
        let (_kept, listen) = free();
        let config = config(&folder, listen, "");
        let path = folder.path().join("control");
        let listener = UnixListener::bind(&path).unwrap();
        one(&config, ["another gateway listens there", "check `control`"]);
        drop(listener);
        assert_eq!(sentences(&config), [""; 0], "a dead gateway's socket makes room");
        let spaced = folder.path().join("the control  socket");
        let listener = UnixListener::bind(&spaced).unwrap();
        assert!(is_listening(&spaced) && !is_listening(&path));
        drop(listener);
        assert!(!is_listening(&spaced));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        one(&config, ["a file that is no socket has this name", "check `control`"]);
    }

    #[test]
    fn secret_that_others_may_read_a_kill_file_and_a_directory_that_is_missing_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let (_kept, listen) = free();
        let mut config = config(&folder, listen, "");
        let path = |name: &str| folder.path().join(name);
        fs::set_permissions(path("secret"), Permissions::from_mode(0o644)).unwrap();
        one(&config, ["others may read it", "chmod 600"]);
        fs::set_permissions(path("secret"), Permissions::from_mode(0o600)).unwrap();
        fs::write(path("kill"), "").unwrap();
        one(&config, ["kill file", "delete it"]);
        config.kill_file = None;
        config.audit = Some(path("none/audit"));
        one(&config, ["the audit log", "check the path of `audit`"]);
        config.audit = Some(path("config/audit"));
        one(&config, ["the audit log", "check the path of `audit`"]);
        config.audit = None;
        config.journal.path = path("none/journal");
        one(&config, ["the journal", "who owns the directory"]);
    }

    #[test]
    fn feed_of_an_interface_that_is_not_here_and_a_ring_that_nobody_made_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let (_kept, listen) = free();
        let feed = "[[feed]]\ngroup = \"239.0.0.1\"\nport = 1\ninterface = \"192.0.2.1\"\n";
        one(&config(&folder, listen, feed), ["cannot join the feed 239.0.0.1:1", "ip -4 address"]);
        let quotes = format!("[quotes]\nring = {:?}\n", folder.path().join("ring"));
        one(&config(&folder, listen, &quotes), ["the ring", "start the market-gateway"]);
    }
}
