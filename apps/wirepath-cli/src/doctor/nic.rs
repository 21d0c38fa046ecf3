//! Checks the interface: its link, its possible backend, and the driver's settings for received
//! frames.

use wirepath::mem::Layout;
use wirepath::worker::topology::Finding;

use super::finding::{fault, good, note, warning};
use super::inspected::{Inspected, Nic};
use super::kernel;
use crate::devices::backend::{self, BackendInput, Usability};
use crate::ethtool::{Coalescing, Offload, Rings};
use crate::interface::LinkState;

/// Ethernet's header and one VLAN tag, in bytes.
const LINK_HEADER_LEN: u32 = 14 + 4;
/// Frames that a receive ring must hold: at 10 Gbit/s 1024 of the shortest are 69 µs.
const RING_LEN: u32 = 1024;
/// The longest acceptable interrupt delay of the NIC.
const WAIT_MICROSECONDS: u32 = 10;

pub(super) fn link(inspected: &Inspected) -> Vec<Finding> {
    let Some(nic) = &inspected.nic else { return Vec::new() };
    let name = nic.name();
    match nic.interface.link {
        LinkState::Up => good(format!("{name} is up")),
        LinkState::Down => warning(format!("{name} is down"), format!("`ip link set dev {name} up`")),
        LinkState::NoCarrier => warning(
            format!("{name} is set up and has no carrier"),
            format!("look at the cable and the port on the other side: `ethtool {name}`"),
        ),
    }
}

/// The verdict of `wirepath devices` on AF_XDP, as findings.
pub(super) fn backend(inspected: &Inspected) -> Vec<Finding> {
    let Some(nic) = &inspected.nic else { return Vec::new() };
    let Some(support) = &nic.support else { return Vec::new() };
    if let Some(process) = &nic.polled_by {
        return good(format!("{} is polled by {process}", nic.name()));
    }
    let input = BackendInput { interface: &nic.interface, support, offloads: &nic.offloads };
    let af_xdp = backend::judge(&input);
    let see = format!("`wirepath devices {}`", nic.name());
    if let Some(yes) = af_xdp.iter().find(|backend| backend.verdict == Usability::Yes) {
        if yes.name == backend::NATIVE {
            return good(format!("{}: {}", yes.name, yes.why));
        }
        let first = &af_xdp[0];
        let remedy = first.remedy.clone().unwrap_or(see);
        return warning(format!("no {}: {}; there is {}", first.name, first.why, yes.name), remedy);
    }
    let Some(first) = af_xdp.first() else { return Vec::new() };
    fault(format!("no AF_XDP on {}: {}", nic.name(), first.why), first.remedy.clone().unwrap_or(see))
}

/// Whether frames fit one buffer, and how longer ones are handled.
pub(super) fn mtu(inspected: &Inspected) -> Vec<Finding> {
    let Some(nic) = &inspected.nic else { return Vec::new() };
    let (name, Some(mtu)) = (nic.name(), nic.interface.mtu) else { return Vec::new() };
    let room = |chunk_len| u32::try_from(Layout::umem(chunk_len).data_room()).unwrap_or(u32::MAX) - LINK_HEADER_LEN;
    let (small, large) = (room(2048), room(4096));
    let driver = nic.support.as_ref().and_then(|support| support.as_ref().ok()?.driver);
    let kernel_spreads = kernel::running(inspected).is_none_or(|version| version >= kernel::MULTI_BUFFER_SINCE);
    if mtu <= small {
        return good(format!("frames of {name} (MTU {mtu}) fit one buffer"));
    }
    if mtu > large && driver.is_some_and(|driver| driver.native && !driver.multi_buffer) {
        return warning(
            format!(
                "the driver of {name} runs programs on frames of one buffer only: with MTU {mtu} generic XDP is left"
            ),
            format!("`ip link set dev {name} mtu {large}`"),
        );
    }
    match (kernel_spreads, mtu <= large) {
        (true, _) => good(format!("frames of {name} (MTU {mtu}) come in several buffers where one is too short")),
        (false, true) => note(
            format!("frames of {name} (MTU {mtu}) need buffers of 4096 bytes"),
            "make the pool with Layout::umem(4096)",
        ),
        (false, false) => warning(
            format!("frames of {name} (MTU {mtu}) fit no buffer, and this kernel does not spread them over several"),
            format!("`ip link set dev {name} mtu {large}`, or use Linux 6.6 or later"),
        ),
    }
}

/// A rule takes frames from the queue that the NIC chose for them, and AF_XDP cannot move them.
pub(super) fn queues(inspected: &Inspected) -> Vec<Finding> {
    let Some(nic) = &inspected.nic else { return Vec::new() };
    let name = nic.name();
    match nic.queues() {
        0 | 1 => good(format!("{name} has one queue: every frame comes to its worker")),
        queues => note(
            format!(
                "{name} spreads frames over {queues} queues by a hash: where its driver has rules (ntuple) each flow is \
                 brought to its queue, else a flow needs a worker on each"
            ),
            format!("`ethtool -K {name} ntuple on`, or one queue: `ethtool -L {name} combined 1`"),
        ),
    }
}

pub(super) fn rings(inspected: &Inspected) -> Vec<Finding> {
    let Some((nic, Rings { rx, rx_max, .. })) = asked(inspected, |nic| nic.rings) else { return Vec::new() };
    let name = nic.name();
    if rx >= RING_LEN.min(rx_max) {
        return good(format!("the NIC's receive ring holds {rx} frames of {rx_max}"));
    }
    warning(
        format!("the NIC's receive ring holds {rx} frames: a longer burst between two polls is lost"),
        format!("`ethtool -G {name} rx {}`", RING_LEN.min(rx_max)),
    )
}

/// How long the NIC waits for more frames before it interrupts. Busy polling does not depend on it,
/// the kernel's softirq does.
pub(super) fn coalescing(inspected: &Inspected) -> Vec<Finding> {
    let Some((nic, coalescing)) = asked(inspected, |nic| nic.coalescing) else { return Vec::new() };
    let Coalescing { rx_microseconds, rx_adaptive, .. } = coalescing;
    let remedy = format!("`ethtool -C {} adaptive-rx off rx-usecs 0`", nic.name());
    if rx_adaptive {
        return warning(
            "the NIC chooses how long it holds frames back, by the load of the moment (adaptive-rx)",
            remedy,
        );
    }
    if rx_microseconds > WAIT_MICROSECONDS {
        return warning(format!("the NIC holds frames back for up to {rx_microseconds} µs (rx-usecs)"), remedy);
    }
    good(format!("the NIC holds frames back for no more than {rx_microseconds} µs"))
}

const VLAN_OFFLOAD: &str = "rx-vlan-hw-parse";

/// Changes that NICs make to frames before a program sees them, with the kernel's name and the cost
/// for us. The kernel's own GRO is not among them, because native XDP runs before it, and generic
/// XDP disables it (netif_elide_gro in linux/netdevice.h).
const HARMFUL: [(&str, &str); 3] = [
    ("rx-lro", "the NIC makes one frame of several, which is not what was sent, and many drivers then refuse XDP"),
    ("rx-gro-hw", "the NIC makes one frame of several, which is not what was sent, and some drivers then refuse XDP"),
    (VLAN_OFFLOAD, "the NIC takes VLAN tags off, and AF_XDP does not get them: frames of all VLANs look alike"),
];

pub(super) fn offloads(inspected: &Inspected) -> Vec<Finding> {
    let Some(nic) = inspected.nic.as_ref().filter(|nic| !nic.offloads.is_empty()) else { return Vec::new() };
    let mut findings = Vec::new();
    for (name, cost) in HARMFUL {
        if name == VLAN_OFFLOAD && tells_vlan(nic) {
            continue;
        }
        let Some(offload) = nic.offloads.iter().find(|offload| offload.name == name && offload.on) else { continue };
        findings.extend(harmful(nic, offload, cost));
    }
    if findings.is_empty() { good("no offload changes frames on their way to us") } else { findings }
}

/// Whether a stripped VLAN tag is delivered beside the frame.
fn tells_vlan(nic: &Nic) -> bool {
    let driver = nic.support.as_ref().and_then(|support| support.as_ref().ok()?.driver);
    driver.is_some_and(|driver| driver.native && driver.rx_vlan)
}

fn harmful(nic: &Nic, offload: &Offload, cost: &str) -> Vec<Finding> {
    let (what, name) = (format!("{} is on: {cost}", offload.name), nic.name());
    if offload.fixed {
        return note(
            what,
            format!("the driver of {name} does not let it be switched off; a virtual machine's host may"),
        );
    }
    warning(what, format!("`ethtool -K {name} {} off`", offload.name))
}

/// A driver's answer, and the interface's name.
fn asked<T>(inspected: &Inspected, answer: fn(&Nic) -> Option<T>) -> Option<(&Nic, T)> {
    let nic = inspected.nic.as_ref()?;
    Some((nic, answer(nic)?))
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds_on;
    use super::*;
    use crate::interface::Interface;
    use wirepath::device::af_xdp::{AfXdpCapabilities, AttachedProgram, DriverCapabilities};

    fn nic() -> Nic {
        let interface = Interface {
            name: "eth1".into(),
            pci: Some("0000:3b:00.0".into()),
            driver: Some("ice".into()),
            mtu: Some(1500),
            ethernet: true,
            link: LinkState::Up,
            queues: 1,
            ..Interface::default()
        };
        Nic { interface, ..Nic::default() }
    }

    fn support() -> AfXdpCapabilities {
        let driver = DriverCapabilities {
            native: true,
            zero_copy: true,
            zero_copy_segments_max: 1,
            multi_buffer: false,
            rx_timestamps: false,
            rx_vlan: false,
        };
        AfXdpCapabilities { index: 2, queues: 1, driver: Some(driver), program: None }
    }

    /// Checks the findings of an interface that differs from the best one in `change`.
    fn finds(
        change: impl FnOnce(&mut Nic),
        look: fn(&Inspected) -> Vec<Finding>,
        severity: &str,
        what: &str,
        remedy: &str,
    ) {
        let mut nic = nic();
        change(&mut nic);
        finds_on(Some(nic), look, &[("sys/class/net/eth1/flags", "0x1003")], severity, what, remedy);
    }

    #[test]
    fn link_that_is_down_or_without_a_cable_is_a_warning() {
        finds(|nic| nic.interface.link = LinkState::Down, link, "warning", "eth1 is down", "ip link set dev eth1 up");
        finds(|nic| nic.interface.link = LinkState::NoCarrier, link, "warning", "no carrier", "cable");
        finds(|_| {}, link, "good", "up", "");
    }

    #[test]
    fn program_of_somebody_else_is_a_fault_and_one_of_ours_is_good() {
        let program = AttachedProgram { id: 7, holder: "kept by process 4711 (other)".into() };
        let taken = AfXdpCapabilities { program: Some(program), ..support() };
        let ours = |nic: &mut Nic| {
            nic.support = Some(Ok(taken.clone()));
            nic.polled_by = Some("feed-handler (process 4711)".into());
        };
        finds(ours, backend, "good", "eth1 is polled by feed-handler (process 4711)", "");
        finds(|nic| nic.support = Some(Ok(taken)), backend, "fault", "process 4711", "stop that process");
    }

    #[test]
    fn generic_is_a_warning_and_native_is_good() {
        let driver = support().driver.map(|driver| DriverCapabilities { native: false, ..driver });
        let generic = AfXdpCapabilities { driver, ..support() };
        finds(
            |nic| nic.support = Some(Ok(generic)),
            backend,
            "warning",
            "there is af_xdp generic",
            "a NIC whose driver",
        );
        finds(|nic| nic.support = Some(Ok(support())), backend, "good", "ice runs programs", "");
    }

    #[test]
    fn long_frames_want_long_buffers_or_a_kernel_that_spreads_them() {
        let of_kernel = |release, len, severity, what, remedy| {
            let mut nic = nic();
            nic.interface.mtu = Some(len);
            finds_on(Some(nic), mtu, &[("proc/sys/kernel/osrelease", release)], severity, what, remedy);
        };
        of_kernel("6.5.0", 9000, "warning", "fit no buffer", "ip link set dev eth1 mtu ");
        of_kernel("6.5.0", 3000, "note", "4096", "Layout::umem(4096)");
        of_kernel("6.6.0", 9000, "good", "several buffers", "");
        of_kernel("6.5.0", 1500, "good", "fit one buffer", "");
    }

    #[test]
    fn long_frames_and_a_driver_of_one_buffer_leave_generic() {
        let jumbo = |nic: &mut Nic| {
            nic.interface.mtu = Some(9000);
            nic.support = Some(Ok(support()));
        };
        finds(jumbo, mtu, "warning", "generic XDP is left", "ip link set dev eth1 mtu ");
    }

    #[test]
    fn several_queues_are_a_note() {
        finds(|nic| nic.interface.queues = 8, queues, "note", "8 queues", "ethtool -L eth1 combined 1");
        finds(|_| {}, queues, "good", "one queue", "");
    }

    #[test]
    fn ring_is_as_long_as_it_may_be() {
        let rings_of = |rx, rx_max| move |nic: &mut Nic| nic.rings = Some(Rings { rx, rx_max, tx: 0, tx_max: 0 });
        finds(rings_of(256, 4096), rings, "warning", "256 frames", "ethtool -G eth1 rx 1024");
        finds(rings_of(256, 256), rings, "good", "256 frames of 256", "");
        finds(rings_of(2048, 4096), rings, "good", "2048", "");
    }

    #[test]
    fn frames_that_are_held_back_are_a_warning() {
        let set = |rx_microseconds, rx_adaptive| {
            move |nic: &mut Nic| nic.coalescing = Some(Coalescing { rx_microseconds, rx_frames: 0, rx_adaptive })
        };
        finds(set(0, true), coalescing, "warning", "adaptive-rx", "adaptive-rx off rx-usecs 0");
        finds(set(50, false), coalescing, "warning", "50 µs", "ethtool -C eth1");
        finds(set(8, false), coalescing, "good", "8 µs", "");
    }

    #[test]
    fn harmful_offloads_are_switched_off_where_that_can_be() {
        let on = |name: &str, fixed| {
            let offloads = vec![Offload { name: name.into(), on: true, fixed }];
            move |nic: &mut Nic| nic.offloads = offloads
        };
        finds(on("rx-lro", false), offloads, "warning", "one frame of several", "ethtool -K eth1 rx-lro off");
        finds(on("rx-vlan-hw-parse", false), offloads, "warning", "VLAN tags", "ethtool -K eth1 rx-vlan-hw-parse off");
        let reported = |nic: &mut Nic| {
            on("rx-vlan-hw-parse", false)(nic);
            let support = support();
            let driver = support.driver.map(|driver| DriverCapabilities { rx_vlan: true, ..driver });
            nic.support = Some(Ok(AfXdpCapabilities { driver, ..support }));
        };
        finds(reported, offloads, "good", "no offload", "");
        finds(on("rx-gro-hw", true), offloads, "note", "rx-gro-hw is on", "host");
        finds(on("rx-checksum", true), offloads, "good", "no offload", "");
    }
}
