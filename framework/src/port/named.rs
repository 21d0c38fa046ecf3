//! The source of a port by its name, and how its apps run.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use super::built::{self, Capture};
use super::error::Result;
use super::name::{PortName, live};
use super::run::Settings;
use super::source::{OpenPort, PortSource};
use super::subscription::Subscription;
use crate::counters::Block;
use crate::device::either::Either;
use crate::device::memory::{MemoryConfig, MemoryDevice, pair};
use crate::pipeline::App;
use crate::worker::live::{LiveConfig, LiveHost, LivePort, PortConfig};
use crate::worker::{HostDescription, StopFlag, WorkerBuilder, WorkerContext};

/// The source of a port that was [opened](super::Port::open) by its name.
pub struct Named(ByName);

/// A source by the kind of its name.
enum ByName {
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

    /// Whether frames come for every station, because they are those of a capture.
    pub(super) fn is_capture(&self) -> bool {
        matches!(self.0, ByName::Pcap(_))
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

/// The device of a name that is no interface.
type OtherDevice = Either<Capture, MemoryDevice>;

/// A kind is chosen once; then each call into the device costs a branch that always goes the same
/// way. `Port::run` does not pay for it: it is compiled for each kind.
impl PortSource for Named {
    type Queue = Either<<LiveConfig as PortSource>::Queue, <OtherDevice as PortSource>::Queue>;
    type HostProvider = Either<LiveHost, HostDescription>;
    type Open = Either<LivePort, OtherDevice>;
    type Taken = Either<<LiveConfig as PortSource>::Taken, <OtherDevice as PortSource>::Taken>;

    fn open(
        self,
        settings: &Settings,
        subscriptions: &[Subscription],
        block: &Block,
        stop: &StopFlag,
    ) -> Result<OpenPort<Self>> {
        let other = match self.0 {
            ByName::Live(port) => {
                let open = configured(port, settings).open(settings, subscriptions, block, stop)?;
                return Ok(open.wrap(Either::Left, Either::Left));
            }
            ByName::Pcap(device) => OtherDevice::Left(*device),
            ByName::Memory(device) => OtherDevice::Right(device),
        };
        Ok(other.open(settings, subscriptions, block, stop)?.wrap(Either::Right, Either::Right))
    }

    fn builder(taken: Self::Taken) -> WorkerBuilder<Self::Queue, Self::HostProvider> {
        match taken {
            Either::Left(taken) => LiveConfig::builder(taken).wrap_queue(Either::Left).wrap_host(Either::Left),
            Either::Right(taken) => OtherDevice::builder(taken).wrap_queue(Either::Right).wrap_host(Either::Right),
        }
    }

    fn run<A: App>(self, settings: Settings, app: impl Fn(&WorkerContext) -> A + Send + Sync + 'static) -> Result<()> {
        match self.0 {
            ByName::Live(port) => configured(port, &settings).run(settings, app),
            ByName::Pcap(device) => device.run(settings, app),
            ByName::Memory(device) => device.run(settings, app),
        }
    }
}

/// The configuration of an interface with a queue for each core.
fn configured(port: PortConfig, settings: &Settings) -> LiveConfig {
    let queues = settings.cores.as_ref().map_or(1, |cores| cores.len().max(1));
    LiveConfig { queues: (0..queues as u16).collect(), ..LiveConfig::over(port) }
}
