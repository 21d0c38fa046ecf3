//! The source of a port by its name, and how its apps run.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use super::built::{self, Capture};
use super::error::Result;
use super::name::{PortName, live};
use super::run::{Runnable, Settings};
use crate::device::memory::{MemoryConfig, MemoryDevice, pair};
use crate::pipeline::App;
use crate::worker::WorkerContext;
use crate::worker::live::{LiveConfig, PortConfig};

/// The source of a port that was [opened](super::Port::open) by its name.
pub struct Named(pub(super) ByName);

/// A source by the kind of its name.
pub(super) enum ByName {
    Live(PortConfig),
    Pcap(Box<Capture>),
    Memory(MemoryDevice),
}

impl Named {
    pub(super) fn open(name: &PortName) -> Result<Self> {
        if let Some(port) = live(name)? {
            return Ok(Self(ByName::Live(port)));
        }
        Ok(Self(match name {
            PortName::Pcap(path) => ByName::Pcap(Box::new(built::pcap(path)?)),
            PortName::Memory(wire) => ByName::Memory(end_of(wire)),
            PortName::AfXdp(_) | PortName::Mlx5(_) => unreachable!("they are live"),
        }))
    }

    /// Has the device stamp frames, where it does so only when asked.
    pub(super) fn stamp(&mut self) {
        if let ByName::Live(port) = &mut self.0 {
            built::stamp(port);
        }
    }
}

/// One end of a wire: the first caller that names the wire gets one end, the second the other.
fn end_of(wire: &str) -> MemoryDevice {
    static ENDS: LazyLock<Mutex<HashMap<String, MemoryDevice>>> = LazyLock::new(Mutex::default);
    let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
    ends.remove(wire).unwrap_or_else(|| {
        let (near, far) = pair(wire, MemoryConfig::default());
        ends.insert(wire.to_owned(), far);
        near
    })
}

impl Runnable for Named {
    fn run<A: App>(
        self,
        mut settings: Settings,
        app: impl Fn(&WorkerContext) -> A + Send + Sync + 'static,
    ) -> Result<()> {
        match self.0 {
            ByName::Live(port) => {
                let queues = settings.cores.as_ref().map_or(1, |cores| cores.len().max(1));
                LiveConfig { queues: (0..queues as u16).collect(), ..LiveConfig::over(port) }.run(settings, app)
            }
            ByName::Pcap(device) => {
                settings.is_promiscuous = true;
                device.run(settings, app)
            }
            ByName::Memory(device) => device.run(settings, app),
        }
    }
}
