//! Shows a tree in `/sys` and nodes in `/dev/infiniband`, in the mount namespace of this process.
//!
//! ```text
//!  /sys   overlay: the tree over the kernel's own class, bus and devices; every other directory of sysfs as it is
//!  /dev   overlay: infiniband/uverbsN over the machine's own; what is mounted below stays
//! ```
//!
//! The layers are named by descriptors (`/proc/self/fd/N`), because a mount covers the layer below
//! it. So no directory of the machine is written, and nothing has to be removed afterwards.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use super::sys::{self, Mount};
use super::tree::{Entry, OWN_DIRECTORIES, Tree};
use super::{Failure, privilege};

/// The directories of sysfs that the overlay replaces. All others are bind mounts of the kernel's,
/// because a write to an overlay would not reach the kernel.
const OVERLAID: [&str; 3] = ["class", "bus", "devices"];

/// Makes `tree` visible.
pub(super) fn show(tree: &Tree) -> Result<(), Failure> {
    let steps = || {
        // Mounts made here must not reach the machine; mounts of the machine may reach us.
        sys::mount(&Mount { target: "/", flags: libc::MS_REC | libc::MS_SLAVE, ..Mount::default() })?;
        show_in_sysfs(tree)?;
        show_in_dev(tree.devices)
    };
    steps().map_err(|error: io::Error| match error.raw_os_error() {
        Some(libc::ENODEV) => {
            Failure::new("this kernel has no overlay file system (modprobe overlay), which shows the devices")
        }
        Some(libc::EPERM) => privilege("mounts", &error),
        _ => Failure::new(format!("the devices cannot be shown in /sys and /dev: {error}")),
    })
}

fn show_in_sysfs(tree: &Tree) -> io::Result<()> {
    let machines = Layer::open("/sys")?;
    // Sysfs shows the interfaces of the network namespace in which it was mounted, which may not be
    // ours. Where it is ours, a new mount is not needed, and the kernel refuses it.
    let _ = sys::mount(&Mount { source: "sysfs", target: "/sys", kind: "sysfs", ..Mount::default() });
    let kernels = Layer::open("/sys")?;
    let ours = Layer::cover("/sys")?;
    for (path, entry) in &tree.entries {
        let path = ours.path("tree").join(path);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        match entry {
            Entry::File(text) => fs::write(path, text)?,
            Entry::Link(target) => symlink(target, path)?,
        }
    }
    for directory in OWN_DIRECTORIES {
        sys::make_opaque(&ours.path("tree").join(directory))?;
    }
    let layers = format!("lowerdir={}:{}", ours.path("tree").display(), kernels.path("").display());
    sys::mount(&Mount {
        source: "softhca",
        target: "/sys",
        kind: "overlay",
        flags: libc::MS_RDONLY,
        options: &layers,
    })?;
    tree.live.iter().try_for_each(|directory| enliven(tree, directory))?;
    for entry in fs::read_dir(machines.path(""))? {
        let name = entry?.file_name();
        if !OVERLAID.iter().any(|overlaid| name == *overlaid) {
            bind(&machines.path("").join(&name), &Path::new("/sys").join(&name))?;
        }
    }
    Ok(())
}

/// Makes the files of a directory below `/sys` writable: mounts a separate file system there, which
/// no layer covers.
fn enliven(tree: &Tree, directory: &Path) -> io::Result<()> {
    let target = Path::new("/sys").join(directory).display().to_string();
    sys::mount(&Mount { source: "tmpfs", target: &target, kind: "tmpfs", options: "mode=0755", ..Mount::default() })?;
    for (path, entry) in &tree.entries {
        if let (Entry::File(text), true) = (entry, path.starts_with(directory)) {
            fs::write(Path::new("/sys").join(path), text)?;
        }
    }
    Ok(())
}

fn show_in_dev(devices: usize) -> io::Result<()> {
    let mounted = mounted_below("/dev/")?;
    let machines = Layer::open("/dev")?;
    let ours = Layer::cover("/dev")?;
    let nodes = ours.path("tree/infiniband");
    fs::create_dir_all(&nodes)?;
    fs::create_dir(ours.path("work"))?;
    sys::make_opaque(&nodes)?;
    for idx in 0..devices {
        sys::make_zero_node(&nodes.join(format!("uverbs{idx}")))?;
    }
    let [lower, upper, work] =
        [machines.path(""), ours.path("tree"), ours.path("work")].map(|path| path.display().to_string());
    let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    sys::mount(&Mount { source: "softhca", target: "/dev", kind: "overlay", flags: 0, options: &layers })?;
    mounted.iter().try_for_each(|name| bind(&machines.path(name), &Path::new("/dev").join(name)))
}

/// A directory that stays reachable when something is mounted over it.
struct Layer(File);

impl Layer {
    fn open(path: &str) -> io::Result<Self> {
        OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(path).map(Self)
    }

    /// Mounts an empty file system over `path`, for layers that are ours.
    fn cover(path: &str) -> io::Result<Self> {
        sys::mount(&Mount {
            source: "softhca",
            target: path,
            kind: "tmpfs",
            options: "mode=0755",
            ..Mount::default()
        })?;
        Self::open(path)
    }

    fn path(&self, below: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd())).join(below)
    }
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    let (source, target) = (from.display().to_string(), to.display().to_string());
    sys::mount(&Mount { source: &source, target: &target, flags: libc::MS_BIND | libc::MS_REC, ..Mount::default() })
}

/// Mount points directly below `directory`, as /proc/self/mountinfo (proc(5)) has them.
fn mounted_below(directory: &str) -> io::Result<Vec<String>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let mut names: Vec<_> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4)?.strip_prefix(directory))
        .filter(|name| !name.contains('/') && *name != "infiniband")
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}
