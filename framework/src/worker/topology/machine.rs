//! Facts about a machine, read from /sys and /proc at each call.
//!
//! `None` means that the kernel does not report it: a file that is absent, unreadable or not in its
//! documented form. The caller decides what that means. Tests set another root folder, with the
//! files of any machine that they need.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::cpu_list::CpuList;

/// The limit for a file: none read here is longer, except /proc/cpuinfo, which is read only for its
/// first processor.
const FILE_LEN_MAX: u64 = 64 * 1024;

/// A place to read facts from.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

impl Machine {
    /// The machine that this process runs on.
    pub fn here() -> Self {
        Self::at("/")
    }

    /// The machine whose /sys and /proc are under `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The cores that are running.
    pub fn online(&self) -> Option<CpuList> {
        self.list("sys/devices/system/cpu/online")
    }

    /// The cores on which the scheduler does not place tasks by itself: `isolcpus=` at boot, or an
    /// isolated cpuset partition.
    pub fn isolated(&self) -> CpuList {
        let at_boot = self.list("sys/devices/system/cpu/isolated").unwrap_or_default();
        let by_cpuset = self.list("sys/fs/cgroup/cpuset.cpus.isolated").unwrap_or_default();
        at_boot.iter().chain(by_cpuset.iter()).collect()
    }

    /// The cores whose timer tick stops while one task runs: `nohz_full=` at boot.
    pub fn nohz_full(&self) -> CpuList {
        self.list("sys/devices/system/cpu/nohz_full").unwrap_or_default()
    }

    /// The cores whose RCU callbacks run elsewhere: `rcu_nocbs=` at boot. `nohz_full=` implies it
    /// (the kernel's Documentation/timers/no_hz.rst).
    pub fn rcu_nocbs(&self) -> CpuList {
        let last = self.list("sys/devices/system/cpu/possible").and_then(|possible| possible.last()).unwrap_or(0);
        let asked = self.boot_parameter("rcu_nocbs");
        let asked = asked.and_then(|list| CpuList::parse_boot(&list, last).ok()).unwrap_or_default();
        asked.iter().chain(self.nohz_full().iter()).collect()
    }

    /// The cores on which this process may run: those that its cgroup grants, or else those of its
    /// affinity mask.
    pub fn allowed(&self) -> Option<CpuList> {
        self.granted_by_cgroup().or_else(|| {
            let status = self.read("proc/self/status")?;
            CpuList::parse(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?).ok()
        })
    }

    /// The NUMA node of a core. `None` also on a kernel without NUMA.
    pub fn node_of_core(&self, core: usize) -> Option<usize> {
        let folder = fs::read_dir(self.path(&format!("sys/devices/system/cpu/cpu{core}"))).ok()?;
        folder.flatten().find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
    }

    /// The cores of a NUMA node.
    pub fn cores_of_node(&self, node: usize) -> Option<CpuList> {
        self.list(&format!("sys/devices/system/node/node{node}/cpulist"))
    }

    /// Whether a network interface of this name exists.
    pub fn has_interface(&self, name: &str) -> bool {
        is_interface_name(name) && self.path(&format!("sys/class/net/{name}")).exists()
    }

    /// The NUMA node of a network interface's device. `None` for virtual interfaces, and if the
    /// firmware does not report it (the kernel writes -1).
    pub fn node_of_interface(&self, name: &str) -> Option<usize> {
        if !is_interface_name(name) {
            return None;
        }
        self.read(&format!("sys/class/net/{name}/device/numa_node"))?.trim().parse().ok()
    }

    /// The hardware threads of a core's physical core, itself included.
    pub fn smt_siblings(&self, core: usize) -> Option<CpuList> {
        self.list(&format!("sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"))
    }

    /// The frequency governor of a core. `None` if the kernel does not choose the frequency (most
    /// virtual machines).
    pub fn governor(&self, core: usize) -> Option<String> {
        self.word(&format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor"))
    }

    /// The kernel's current clocksource.
    pub fn clocksource(&self) -> Option<String> {
        self.word("sys/devices/system/clocksource/clocksource0/current_clocksource")
    }

    /// Whether `name` is an available clocksource.
    pub fn could_use_clocksource(&self, name: &str) -> bool {
        let available = self.read("sys/devices/system/clocksource/clocksource0/available_clocksource");
        available.is_some_and(|available| available.split_whitespace().any(|word| word == name))
    }

    /// The name of the hypervisor or the virtual hardware, if this is a virtual machine.
    pub fn hypervisor(&self) -> Option<String> {
        if let Some(name) = self.word("sys/hypervisor/type") {
            return Some(name);
        }
        let flags = self.read("proc/cpuinfo")?;
        let flags = flags.lines().find(|line| line.starts_with("flags"))?;
        if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
            return None;
        }
        let product = self.read("sys/class/dmi/id/sys_vendor").map(|vendor| vendor.trim().to_owned());
        product.filter(|name| !name.is_empty()).or_else(|| Some("unnamed hypervisor".to_owned()))
    }

    /// The value of `name=` on the kernel's command line. The last one counts, as it does for the
    /// kernel.
    fn boot_parameter(&self, name: &str) -> Option<String> {
        let line = self.read("proc/cmdline")?;
        let value = line.split_whitespace().filter_map(|word| word.strip_prefix(name)?.strip_prefix('=')).next_back();
        value.map(str::to_owned)
    }

    /// The cores of the nearest cgroup upwards that restricts cores: version 2, then version 1.
    fn granted_by_cgroup(&self) -> Option<CpuList> {
        let cgroups = self.read("proc/self/cgroup")?;
        cgroups.lines().find_map(|line| {
            // "0::/path" for version 2, "3:cpuset:/path" for version 1 (cgroups(7),
            // /proc/pid/cgroup).
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let (mount, file) = match controllers {
                "" => ("sys/fs/cgroup", "cpuset.cpus.effective"),
                _ if controllers.split(',').any(|name| name == "cpuset") => {
                    ("sys/fs/cgroup/cpuset", "cpuset.effective_cpus")
                }
                _ => return None,
            };
            Path::new(path.trim_start_matches('/'))
                .ancestors()
                .find_map(|group| self.list(Path::new(mount).join(group).join(file).to_str()?))
                .filter(|list| !list.is_empty())
        })
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn list(&self, path: &str) -> Option<CpuList> {
        CpuList::parse(&self.read(path)?).ok()
    }

    /// The content of a file that holds one word.
    fn word(&self, path: &str) -> Option<String> {
        let text = self.read(path)?;
        text.split_whitespace().next().map(str::to_owned)
    }

    pub(super) fn read(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        File::open(self.path(path)).ok()?.take(FILE_LEN_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Whether the kernel would accept the name (`dev_valid_name`, net/core/dev.c), so that it cannot
/// lead out of its folder.
fn is_interface_name(name: &str) -> bool {
    const LEN_MAX: usize = 15; // IFNAMSIZ without its NUL.
    !name.is_empty()
        && name.len() <= LEN_MAX
        && name != "."
        && name != ".."
        && !name.chars().any(|letter| letter == '/' || letter == ':' || letter.is_whitespace())
}
