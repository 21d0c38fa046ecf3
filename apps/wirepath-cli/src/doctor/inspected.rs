//! The subject of the checks: a machine, the workers' cores, and perhaps one interface with its
//! driver's report.

use wirepath::counters::{Snapshot, default_directory};
use wirepath::device::af_xdp::AfXdpCapabilities;
use wirepath::worker::topology::{CpuList, Machine};

use crate::dcb::{self, Pfc};
use crate::ethtool::{Coalescing, Ethtool, Offload, Rings};
use crate::interface::Interface;
use crate::root::Root;

/// The machine under inspection.
pub(super) struct Inspected {
    pub(super) root: Root,
    /// The same machine for the library's checks of cores.
    pub(super) machine: Machine,
    /// The workers' cores.
    pub(super) cores: CpuList,
    /// Whether the user chose them.
    pub(super) cores_chosen: bool,
    pub(super) nic: Option<Nic>,
}

/// The interface under inspection. `None` where a query failed.
#[derive(Default)]
pub(super) struct Nic {
    pub(super) interface: Interface,
    /// The kernel's report about AF_XDP there, or why there is none.
    pub(super) support: Option<Result<AfXdpCapabilities, String>>,
    /// The wirepath process whose program is on it, in words.
    pub(super) polled_by: Option<String>,
    pub(super) offloads: Vec<Offload>,
    pub(super) coalescing: Option<Coalescing>,
    pub(super) rings: Option<Rings>,
    /// Priority flow control; `None` where the driver has none.
    pub(super) pfc: Option<Pfc>,
}

impl Inspected {
    /// The machine whose files are below `root`. Without a choice the cores are the isolated ones,
    /// or else the last.
    pub(super) fn new(root: Root, cores: Option<&CpuList>) -> Self {
        let machine = Machine::at(root.path(""));
        let chosen = cores.cloned();
        let cores_chosen = chosen.is_some();
        let cores = chosen.unwrap_or_else(|| {
            let isolated = machine.isolated();
            let last = machine.online().and_then(|online| online.last());
            if isolated.is_empty() { last.into_iter().collect() } else { isolated }
        });
        Self { root, machine, cores, cores_chosen, nic: None }
    }

    /// With the interface `name`; `None` where there is none.
    pub(super) fn with_interface(mut self, name: &str) -> Option<Self> {
        let interface = Interface::find(&self.root, name)?;
        self.nic = Some(Nic { interface, ..Nic::default() });
        Some(self)
    }

    /// Queries kernel and driver about the interface: this machine's only.
    pub(super) fn ask_driver(mut self) -> Self {
        if let Some(nic) = &mut self.nic {
            nic.ask();
        }
        self
    }

    /// The cores that are left for interrupts, in the notation of the kernel.
    pub(super) fn other_cores(&self) -> String {
        let online = self.machine.online().unwrap_or_default();
        let others: CpuList = online.iter().filter(|core| !self.cores.contains(*core)).collect();
        if others.is_empty() { "0".to_owned() } else { others.to_string() }
    }
}

impl Nic {
    /// A query that the driver does not answer stays open.
    fn ask(&mut self) {
        let name = &self.interface.name;
        let support = AfXdpCapabilities::of(name).map_err(|error| error.to_string());
        self.polled_by = support.as_ref().ok().and_then(one_of_ours);
        self.support = Some(support);
        let Ok(ethtool) = Ethtool::of(name) else { return };
        if self.interface.driver.is_none() {
            self.interface.driver = ethtool.driver().ok();
        }
        self.offloads = ethtool.offloads().unwrap_or_default();
        self.coalescing = ethtool.coalescing().ok();
        self.rings = ethtool.rings().ok();
        self.pfc = dcb::pfc(&self.interface.name).ok();
    }

    pub(super) fn name(&self) -> &str {
        &self.interface.name
    }

    /// The folder of the interface below /sys.
    pub(super) fn file(&self, name: &str) -> String {
        format!("sys/class/net/{}/{name}", self.name())
    }

    /// The number of receive queues.
    pub(super) fn queues(&self) -> usize {
        match &self.support {
            Some(Ok(support)) => support.queues.into(),
            _ => self.interface.queues,
        }
    }
}

/// The process that holds the program there, if its counters are wirepath's.
fn one_of_ours(support: &AfXdpCapabilities) -> Option<String> {
    let holder = &support.program.as_ref()?.holder;
    let running = Snapshot::list(&default_directory()).ok()?.running;
    let mut running = running.into_iter().filter(Snapshot::is_credible);
    let ours = running.find(|process| holder.contains(&format!("process {} (", process.pid)))?;
    Some(format!("{} (process {})", ours.app, ours.pid))
}
