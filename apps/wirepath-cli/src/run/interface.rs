//! Chooses the interface of the program's sockets.

use std::ffi::OsStr;

use wirepath::worker::live::PortConfig;

use crate::devices::no_such_interface;
use crate::interface::{Interface, LinkState};
use crate::obstacle::Obstacle;
use crate::root::Root;

/// linux/if_arp.h
const TYPE_ETHERNET: u32 = 1;

/// The port that is wanted, `eth1` or `mlx5:eth1`, or, where none is, the only interface that
/// carries frames.
pub(super) fn choose(root: &Root, wanted: Option<&OsStr>) -> Result<String, Obstacle> {
    let Some(wanted) = wanted.map(OsStr::to_string_lossy) else { return only(root) };
    let port = PortConfig::named(&wanted).map_err(|_| Obstacle::said(no_such_interface(&wanted)))?;
    match port {
        PortConfig::Mlx5(_) => Ok(format!("mlx5:{}", check(root, &Interface::of_connectx(root, port.interface()))?)),
        _ => check(root, port.interface()),
    }
}

fn check(root: &Root, name: &str) -> Result<String, Obstacle> {
    if let Some(names) = names_elsewhere(root) {
        let found = names.into_iter().find(|found| found == name);
        return found.ok_or_else(|| Obstacle::said(no_such_interface(name)));
    }
    let Some(interface) = Interface::find(root, name) else {
        return Err(Obstacle::said(no_such_interface(name)));
    };
    if !is_ethernet(root, name) {
        return Err(Obstacle::new(
            format!("{name} carries no Ethernet frames, and its traffic stays the kernel's"),
            format!("choose another with --interface: {}", list(root)),
        ));
    }
    match interface.link {
        LinkState::Down => Err(Obstacle::new(format!("{name} is down"), format!("`ip link set {name} up`"))),
        // A cable may be plugged in later.
        LinkState::Up | LinkState::NoCarrier => Ok(interface.name),
    }
}

fn only(root: &Root) -> Result<String, Obstacle> {
    match &candidates(root)[..] {
        [only] => Ok(only.clone()),
        [] => Err(Obstacle::new(
            "no Ethernet interface carries frames in this network namespace",
            "set one up, or name one with --interface; `wirepath devices` lists them",
        )),
        several => Err(Obstacle::new(
            format!("{} interfaces carry frames, and none was chosen", several.len()),
            format!("choose one with --interface: {}", several.join(", ")),
        )),
    }
}

/// The interfaces that carry frames.
pub(crate) fn candidates(root: &Root) -> Vec<String> {
    if let Some(names) = names_elsewhere(root) {
        return names.into_iter().filter(|name| name != "lo").collect();
    }
    let up = Interface::list(root).into_iter().filter(|interface| interface.link == LinkState::Up);
    up.map(|interface| interface.name).filter(|name| is_ethernet(root, name)).collect()
}

fn list(root: &Root) -> String {
    let names = candidates(root).join(", ");
    if names.is_empty() { "none carries frames yet".to_owned() } else { names }
}

/// All interfaces of this network namespace.
pub(super) fn names(root: &Root) -> Vec<String> {
    names_elsewhere(root).unwrap_or_else(|| Interface::list(root).into_iter().map(|interface| interface.name).collect())
}

/// The interfaces of this network namespace, where /sys shows those of another one, as after
/// `nsenter --net`: then only their names are known. `None` where /sys is of this namespace.
fn names_elsewhere(root: &Root) -> Option<Vec<String>> {
    let text = root.read("proc/thread-self/net/dev")?;
    let mut names: Vec<String> =
        text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect();
    let mut shown: Vec<String> = Interface::list(root).into_iter().map(|interface| interface.name).collect();
    names.sort();
    shown.sort();
    (names != shown).then_some(names)
}

/// Whether an interface has the type Ethernet, which loopback has not.
fn is_ethernet(root: &Root, name: &str) -> bool {
    root.number::<u32>(&format!("sys/class/net/{name}/type")) == Some(TYPE_ETHERNET)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A machine with these interfaces: name, type of frames, flags and carrier.
    fn check(interfaces: &[(&str, u32, &str, &str)], wanted: Option<&str>, expected: Result<&str, &str>) {
        let folder = tempfile::tempdir().unwrap();
        for (name, kind, flags, carrier) in interfaces {
            let path = folder.path().join("sys/class/net").join(name);
            fs::create_dir_all(&path).unwrap();
            let files = [
                ("address", "02:00:00:00:00:01"),
                ("type", &kind.to_string()),
                ("flags", *flags),
                ("carrier", carrier),
            ];
            files.iter().for_each(|(file, text)| fs::write(path.join(file), text).unwrap());
        }
        let found = choose(&Root::new(Some(folder.path())), wanted.map(OsStr::new));
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(obstacle), Err(says)) => {
                let sentence = obstacle.to_string();
                assert!(sentence.contains(says), "{says:?} is not in {sentence:?}");
            }
            (found, expected) => panic!("{found:?} and not {expected:?}"),
        }
    }

    const LO: (&str, u32, &str, &str) = ("lo", 772, "0x9", "1");
    const ETH1: (&str, u32, &str, &str) = ("eth1", 1, "0x1003", "1");
    const DOWN: (&str, u32, &str, &str) = ("eth2", 1, "0x1002", "");

    #[test]
    fn only_interface_that_carries_frames_needs_no_name() {
        check(&[LO, ETH1, DOWN], None, Ok("eth1"));
        check(&[LO, DOWN], None, Err("no Ethernet interface carries frames"));
        check(&[LO, ETH1, ("eth3", 1, "0x1003", "1")], None, Err("choose one with --interface: eth1, eth3"));
    }

    #[test]
    fn interface_that_was_named_must_be_one_that_can() {
        check(&[LO, ETH1], Some("eth1"), Ok("eth1"));
        check(&[LO, ETH1], Some("eth9"), Err("there is no interface eth9 in this network namespace: `ip -brief link`"));
        check(&[LO, ETH1], Some("../eth1"), Err("there is no interface"));
        check(
            &[LO, ETH1],
            Some("lo"),
            Err("lo carries no Ethernet frames, and its traffic stays the kernel's: choose another"),
        );
        check(&[LO, DOWN], Some("eth2"), Err("eth2 is down: `ip link set eth2 up`"));
        check(&[("eth3", 1, "0x1003", "0")], Some("eth3"), Ok("eth3"));
    }

    #[test]
    fn names_of_the_namespace_count_where_sys_shows_another() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(Some(folder.path()));
        let dev = folder.path().join("proc/thread-self/net");
        fs::create_dir_all(&dev).unwrap();
        fs::write(dev.join("dev"), "Inter-|   Receive\n face |bytes\n    lo:  0\n  eth7: 12 0\n").unwrap();
        assert_eq!(choose(&root, None).unwrap(), "eth7");
        assert_eq!(choose(&root, Some(OsStr::new("eth7"))).unwrap(), "eth7");
        assert_eq!(choose(&root, Some(OsStr::new("mlx5:eth7"))).unwrap(), "mlx5:eth7");
        assert!(choose(&root, Some(OsStr::new("eth1"))).is_err());
    }
}
