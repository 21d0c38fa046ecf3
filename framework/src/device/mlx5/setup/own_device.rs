//! A port of our own: an open ConnectX, and the queues that workers take. What its functions do is
//! with those of `Mlx5Device`.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};

use rdma_core_sys::RdmaCore;
use rdma_core_sys::verbs::{Context, CqOptions, Device as VerbsDevice, LinkLayer, VerbsError};

use super::capabilities::{DeviceCapabilities, TimestampFormat};
use super::find::{self, SysfsDevice};
use super::objects;
use super::own_queue::OwnQueue;
use super::port::{Interface, Port, PortInfo};
use crate::device::mlx5::completion::cqe::flow_tag_on_wire;
use crate::device::mlx5::config::Mlx5Config;
use crate::device::mlx5::error::Mlx5SetupError;
use crate::device::mlx5::send::tx::Mlx5Tx;
use crate::device::steering::{Fields, Rule, RuleId, SteerError};
use crate::device::{Capabilities, DeviceError, RxOffloads, RxState, TxOffloads};
use crate::time::UnixTime;
use crate::wire::MacAddr;

/// Ethernet's header and one VLAN tag.
const LINK_HEADER_LEN: usize = 14 + 4;
/// The variable that makes libmlx5 ring plain doorbells only: for slots and hypervisors without
/// write combining (mlx5.md 4). We read it in privileged programs too, as libmlx5 does: both must
/// decide alike, and a wrong value costs only speed.
const SHUT_UP_BLUEFLAME: &str = "MLX5_SHUT_UP_BF";
/// The notice for a kernel without the counter.
const NO_DROP_COUNTER: &str =
    "; frames that find no buffer are not counted: the kernel has no hw_counters/out_of_buffer of this device";
/// The notice for a bond in hardware (docs/hardware.md).
const BOND: &str =
    "frames of either come to the queues, and the kernel decides by which one a queue sends, anew after each reset";
/// The MTU if no interface reports one: Ethernet's.
const MTU_DEFAULT: usize = 1500;

/// An open port.
pub(crate) struct OwnDevice {
    pub(crate) port: Arc<Port>,
    /// For each queue a token that lives as long as the queue or one of its halves.
    taken: Vec<Weak<()>>,
}

impl OwnDevice {
    pub(crate) fn open(config: &Mlx5Config) -> Result<Self, Mlx5SetupError> {
        let open = |device: &VerbsDevice| device.open().map_err(|error| io::Error::from_raw_os_error(error.errno()));
        Self::open_with(config, open)
    }

    /// The same, with a context that `open` makes.
    pub(crate) fn open_with(
        config: &Mlx5Config,
        open: impl FnOnce(&VerbsDevice) -> io::Result<Context>,
    ) -> Result<Self, Mlx5SetupError> {
        let sysfs = &find::sysfs_root();
        config.check()?;
        let (context, listed) = open_context(&config.device, sysfs, open)?;
        let name = listed.name.as_str();
        let capabilities =
            DeviceCapabilities::read(&context).map_err(|error| verbs(name, "asking what it can do", error))?;
        check_port(&context, &listed, config.port, &capabilities)?;
        let interface = listed.interface(&config.device).map(|name| Interface {
            name: name.into(),
            index: find::index(sysfs, name).unwrap_or(0),
            mac: find::mac(sysfs, name).unwrap_or(MacAddr::ZERO),
        });
        let mtu = interface.as_ref().and_then(|interface| find::mtu(sysfs, &interface.name)).unwrap_or(MTU_DEFAULT);
        let frame_len_max = config.frame_len_max.unwrap_or(mtu + LINK_HEADER_LEN);
        let enabled =
            capabilities.choose(name, &Mlx5Config { frame_len_max: Some(frame_len_max), ..config.clone() })?;
        let blueflame = config.blueflame && !is_blueflame_forbidden(std::env::var_os(SHUT_UP_BLUEFLAME).as_deref());
        let info = PortInfo {
            name: name.into(),
            interface,
            config: Mlx5Config { blueflame, ..config.clone() },
            capabilities,
            enabled,
            frame_len_max,
        };
        let mut port = Port::new(&context, info, sysfs)?;
        try_a_queue_pair(&mut port)?;
        Ok(Self { port: Arc::new(port), taken: (0..config.queues).map(|_| Weak::new()).collect() })
    }

    pub(crate) fn interface(&self) -> Option<&str> {
        self.port.info().interface.as_ref().map(|interface| interface.name.as_str())
    }

    pub(crate) fn nic_clock(&self) -> impl FnMut() -> Option<UnixTime> + Send + use<> {
        let port = Arc::downgrade(&self.port);
        move || port.upgrade()?.nic_time()
    }

    pub(crate) fn state(&self) -> RxState {
        self.port.watch.ask();
        self.port.watch.state()
    }

    pub(crate) fn describe(&self) -> String {
        let (info, enabled) = (self.port.info(), self.port.enabled());
        let mut words = format!("{}, firmware {}", info.name, info.capabilities.device.firmware);
        if let Some(interface) = &info.interface {
            // Writing to a String does not fail.
            let _ = write!(words, ", interface {}", interface.name);
        }
        let _ = write!(words, ", frames of up to {} bytes, queues {}", info.frame_len_max, info.config.queues);
        words.push_str(match self.port.watch.state() {
            RxState::Open => "",
            RxState::LinkDown => "; no link",
            RxState::Ended => "; the device does not answer",
        });
        let used = [
            (enabled.checksum, "checksums"),
            (self.port.tso_len_max() > 0, "TCP segmentation"),
            (enabled.multi_packet, "multi-packet sends"),
            (info.config.blueflame, "BlueFlame"),
            (enabled.relaxed_ordering, "relaxed ordering"),
            (enabled.vlan_stripping, "VLAN stripping"),
            (enabled.stamps.is_some(), "time stamps"),
            (enabled.compression.is_some(), "compressed completions"),
            (enabled.striding.is_some(), "striding receive queues"),
            (info.config.hash().is_some(), "spreading by a hash"),
            (enabled.pace.is_some(), "packet pacing"),
        ];
        let used: Vec<_> = used.iter().filter(|(is_used, _)| *is_used).map(|(_, what)| *what).collect();
        let _ = write!(words, "; used: {}", if used.is_empty() { "nothing special".into() } else { used.join(", ") });
        for (feature, why) in &enabled.left_out {
            let _ = write!(words, "; no {feature}: {why}");
        }
        if !self.port.watch.counts_out_of_buffer() {
            words.push_str(NO_DROP_COUNTER);
        }
        if info.capabilities.mlx5.lag_port_count > 1 {
            let _ = write!(words, "; a bond of {} ports: {BOND}", info.capabilities.mlx5.lag_port_count);
        }
        if let Some(why) = self.port.strides.get() {
            let _ = write!(words, "; strides {why}");
        }
        if let Some(filter) = &self.port.filter {
            let _ = write!(words, "{filter}");
        }
        words
    }

    fn device(&self) -> String {
        self.port.name().into()
    }
}

impl OwnDevice {
    pub(crate) fn name(&self) -> &str {
        self.port.name()
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let (info, enabled) = (self.port.info(), self.port.enabled());
        let dated = enabled.stamps.is_some_and(|stamping| stamping != TimestampFormat::Ticks);
        Capabilities {
            queues: info.config.queues,
            frame_len_max: info.frame_len_max,
            tx_segments_max: Mlx5Tx::segments_max_of(info.config.tx_ring_len, self.port.wqe_units_max),
            rx: RxOffloads {
                ip_checksum: enabled.checksum,
                l4_checksum: enabled.checksum,
                timestamp: dated,
                hash: info.config.hash().is_some(),
                vlan: enabled.vlan_stripping,
                flow_tag: true,
            },
            tx: TxOffloads {
                ip_checksum: enabled.checksum,
                l4_checksum: enabled.checksum,
                segmentation_len_max: self.port.tso_len_max(),
                vlan: true,
                timestamp: dated,
            },
            steering: if info.capabilities.steering().is_ok() { Fields::ALL } else { Fields::NONE },
            rules_max: info.config.rules_max,
        }
    }

    pub(crate) fn take_queue(&mut self, idx: u16) -> Result<OwnQueue, DeviceError> {
        let queues = self.port.config().queues;
        let Some(taken) = self.taken.get_mut(usize::from(idx)) else {
            return Err(DeviceError::NoQueue { device: self.device(), idx, queues });
        };
        if taken.strong_count() > 0 {
            return Err(DeviceError::QueueTaken { device: self.device(), idx });
        }
        let place = Arc::new(());
        *taken = Arc::downgrade(&place);
        Ok(OwnQueue { port: Arc::clone(&self.port), idx, place })
    }

    pub(crate) fn steer(&mut self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError> {
        rule.check()?;
        if usize::from(idx) >= self.taken.len() {
            return Err(SteerError::NoQueue { idx });
        }
        if self.port.info().capabilities.steering().is_err() {
            return Err(SteerError::Unsupported { fields: rule.fields() });
        }
        if let Some(tag) = rule.flow_tag.filter(|tag| flow_tag_on_wire(*tag).is_none()) {
            return Err(SteerError::FlowTag(tag));
        }
        self.port.steer(rule, idx)
    }

    pub(crate) fn unsteer(&mut self, id: RuleId) -> Result<(), SteerError> {
        self.port.unsteer(id)
    }
}

/// Whether libmlx5 would ring plain doorbells only: its variable is set, and not to 0.
fn is_blueflame_forbidden(variable: Option<&OsStr>) -> bool {
    variable.is_some_and(|value| value != "0")
}

/// Opens the device that `wanted` names.
fn open_context(
    wanted: &str,
    sysfs: &Path,
    open: impl FnOnce(&VerbsDevice) -> io::Result<Context>,
) -> Result<(Context, SysfsDevice), Mlx5SetupError> {
    let core = RdmaCore::load().map_err(|error| Mlx5SetupError::NoRdmaCore { reason: error.to_string() })?;
    let devices = core.devices().map_err(|error| verbs(wanted, "listing verbs devices", error))?;
    let listed = find::list(sysfs, devices.iter().map(|device| device.name().to_owned()));
    let listed = find::find(sysfs, wanted, &listed)?.clone();
    let device = devices.by_name(&listed.name).ok_or_else(|| Mlx5SetupError::NoDevices { wanted: wanted.into() })?;
    if !device.is_mlx5() {
        return Err(Mlx5SetupError::OtherVendor { device: listed.name, driver: listed.driver });
    }
    let context = open(device).map_err(|error| Mlx5SetupError::Opening { device: listed.name.clone(), error })?;
    Ok((context, listed))
}

/// Checks that the port exists and is Ethernet. A port that is down is valid.
fn check_port(
    context: &Context,
    listed: &SysfsDevice,
    port: u8,
    capabilities: &DeviceCapabilities,
) -> Result<(), Mlx5SetupError> {
    let (device, ports) = (listed.name.clone(), capabilities.device.port_count);
    if port == 0 || port > ports {
        return Err(Mlx5SetupError::NoPort { device, port, ports });
    }
    let attributes = context.port(port).map_err(|error| verbs(&device, "asking for its port", error))?;
    match attributes.link_layer {
        LinkLayer::Ethernet => Ok(()),
        // Before RoCE every port was an InfiniBand port, and reported no link layer.
        LinkLayer::InfiniBand | LinkLayer::Unspecified => {
            Err(Mlx5SetupError::InfiniBand { device, pci: listed.pci.clone(), port })
        }
    }
}

/// Creates the smallest possible queue pair and brings it up, so that a missing permission or an
/// unsuitable port is reported here and not on a worker's thread. Also determines the maximum
/// length of a WQE.
fn try_a_queue_pair(port: &mut Port) -> Result<(), Mlx5SetupError> {
    let (cq, _) = objects::completion_queue(port, 8, CqOptions::default(), None)?;
    objects::sender(port, 0, &cq, 8)?;
    port.wqe_units_max = objects::wqe_units_max(port, &cq)?;
    Ok(())
}

fn verbs(device: &str, doing: &'static str, error: VerbsError) -> Mlx5SetupError {
    Mlx5SetupError::verbs(device, doing, 0, io::Error::from_raw_os_error(error.errno()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blueflame_is_forbidden_by_the_variable_of_libmlx5() {
        for (value, expected) in [(None, false), (Some("0"), false), (Some("1"), true), (Some(""), true)] {
            assert_eq!(is_blueflame_forbidden(value.map(OsStr::new)), expected, "{value:?}");
        }
    }
}
