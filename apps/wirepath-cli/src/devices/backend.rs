//! The verdicts: which backend could drive an interface, or why not, and the remedy.

use wirepath::device::af_xdp::{AfXdpCapabilities, DriverCapabilities};
use wirepath::device::mlx5::{Mlx5Capabilities, Mlx5DeviceInfo};

use crate::ethtool::Offload;
use crate::interface::Interface;

/// A backend for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    pub(crate) name: &'static str,
    pub(crate) verdict: Usability,
    /// Its properties, or why it is not usable.
    pub(crate) why: String,
    /// The remedy, where there is one.
    pub(crate) remedy: Option<String>,
}

/// Whether a backend could drive an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usability {
    Yes,
    No,
    /// The kernel does not report it.
    Unknown,
}

impl Usability {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }
}

/// The kernel module of every ConnectX from 4 on.
const CONNECTX_DRIVER: &str = "mlx5_core";

/// The input of a verdict.
pub(crate) struct BackendInput<'a> {
    pub(crate) interface: &'a Interface,
    /// The kernel's report about AF_XDP there, or why there is none.
    pub(crate) support: &'a Result<AfXdpCapabilities, String>,
    pub(crate) offloads: &'a [Offload],
}

/// AF_XDP in its three ways.
pub(crate) fn judge(input: &BackendInput<'_>) -> Vec<Backend> {
    match input.support {
        Ok(support) => af_xdp(input, support),
        Err(why) => AF_XDP.map(|name| unknown(name, why.clone(), None)).into(),
    }
}

pub(crate) const AF_XDP: [&str; 3] = [NATIVE, ZERO_COPY, GENERIC];
pub(crate) const NATIVE: &str = "af_xdp native";
const ZERO_COPY: &str = "af_xdp zero-copy";
const GENERIC: &str = "af_xdp generic";
const MLX5: &str = "mlx5";

fn af_xdp(input: &BackendInput<'_>, support: &AfXdpCapabilities) -> Vec<Backend> {
    let name = &input.interface.name;
    if !input.interface.ethernet {
        return AF_XDP.map(|backend| no(backend, "its frames have no Ethernet header".into(), None)).into();
    }
    if input.interface.mac.as_deref() == Some("00:00:00:00:00:00") {
        return AF_XDP.map(|backend| no(backend, "it has no MAC address to send to".into(), None)).into();
    }
    if let Some(program) = &support.program {
        let why = format!("it has an XDP program already (id {}, {})", program.id, program.holder);
        let remedy = format!("stop that process, or `ip link set dev {name} xdp off` where no process keeps it");
        return AF_XDP.map(|backend| no(backend, why.clone(), Some(remedy.clone()))).into();
    }
    let generic = yes(GENERIC, "behind the driver, at the cost of an skb a frame".into());
    let Some(driver) = support.driver else {
        let why = "this kernel does not tell what drivers can do (the netdev family came with Linux 6.3)".to_owned();
        let remedy = Some("open it with the mode left to us (auto), and see what it says when it starts".to_owned());
        let ask = |backend| unknown(backend, why.clone(), remedy.clone());
        return vec![ask(NATIVE), ask(ZERO_COPY), generic];
    };
    let native = native(input, driver);
    let zero_copy = zero_copy(input.interface, driver, native.verdict);
    vec![native, zero_copy, generic]
}

fn native(input: &BackendInput<'_>, driver: DriverCapabilities) -> Backend {
    let driver_name = driver_name(input.interface);
    if !driver.native {
        let remedy = "take af_xdp generic, or a NIC whose driver runs XDP programs".to_owned();
        return no(NATIVE, format!("{driver_name} runs no XDP programs"), Some(remedy));
    }
    // The driver reports support, but refuses programs if it cannot make the host stop merging
    // frames (virtnet_xdp_set in drivers/net/virtio_net.c).
    let merges = |offload: &&Offload| offload.name == "rx-gro-hw" && offload.on && offload.fixed;
    let is_virtio = input.interface.driver.as_deref() == Some("virtio_net");
    if is_virtio && input.offloads.iter().any(|offload| merges(&offload)) {
        let why = "virtio_net refuses programs while the host merges frames (rx-gro-hw is on and fixed)".to_owned();
        let remedy = "on the host: `guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,guest_csum=off` (QEMU's words \
                      for the device), or take af_xdp generic";
        return no(NATIVE, why, Some(remedy.into()));
    }
    let buffers = if driver.multi_buffer { "of several buffers too" } else { "of one buffer only" };
    yes(NATIVE, format!("{driver_name} runs programs, on frames {buffers}"))
}

fn zero_copy(interface: &Interface, driver: DriverCapabilities, native: Usability) -> Backend {
    if !driver.zero_copy {
        let why = format!("{} cannot receive into our memory: frames are copied", driver_name(interface));
        return no(ZERO_COPY, why, None);
    }
    if native != Usability::Yes {
        return no(ZERO_COPY, "requires af_xdp native".into(), None);
    }
    match driver.zero_copy_segments_max {
        1 => yes(ZERO_COPY, "frames of one buffer".into()),
        buffers => yes(ZERO_COPY, format!("frames of up to {buffers} buffers")),
    }
}

fn driver_name(interface: &Interface) -> String {
    interface.driver.as_ref().map_or("its driver".to_owned(), |driver| format!("the driver {driver}"))
}

/// Our own device for a ConnectX: the result of opening it, `verbs`, or the reason why it could not
/// be opened.
pub(super) fn mlx5(interface: &Interface, verbs: &Result<Vec<Mlx5DeviceInfo>, String>) -> Backend {
    let is_of = |device: &&Mlx5DeviceInfo| {
        device.interfaces.contains(&interface.name) || interface.rdma.as_deref() == Some(&*device.name)
    };
    let device = verbs.as_ref().ok().and_then(|devices| devices.iter().find(is_of));
    if let Some(device) = device {
        return match &device.capabilities {
            Ok(capabilities) => on_a_connectx(device, capabilities),
            Err(sentence) => no(MLX5, sentence.clone(), None),
        };
    }
    if interface.driver.as_deref() != Some(CONNECTX_DRIVER) {
        let what = interface.driver.as_deref().unwrap_or("no NIC");
        return no(MLX5, format!("needs a ConnectX ({CONNECTX_DRIVER}); this is {what}"), None);
    }
    match (verbs, &interface.rdma) {
        (Err(sentence), _) => no(MLX5, sentence.clone(), None),
        (Ok(_), None) => {
            let why = format!("the ConnectX of {} has no verbs device", interface.name);
            no(MLX5, why, Some("`modprobe mlx5_ib`".into()))
        }
        (Ok(_), Some(rdma)) => {
            let why = format!("the kernel has {rdma} for it, libibverbs does not list it");
            no(MLX5, why, Some("`ibv_devices` says why; is ibverbs-providers installed?".into()))
        }
    }
}

fn on_a_connectx(device: &Mlx5DeviceInfo, capabilities: &Mlx5Capabilities) -> Backend {
    let is_ethernet = capabilities.ports.first().is_some_and(|port| port.is_ethernet);
    if !is_ethernet {
        let pci = device.pci.as_deref().unwrap_or(&device.name);
        let remedy = format!("`mlxconfig -d {pci} set LINK_TYPE_P1=2` and reboot");
        return no(MLX5, format!("{} is an InfiniBand port", device.name), Some(remedy));
    }
    let there = capabilities.features.iter().filter(|(_, can)| can.is_ok()).count();
    let why = format!(
        "{}, firmware {}, {there} of {} features",
        device.name,
        capabilities.firmware,
        capabilities.features.len()
    );
    yes(MLX5, why)
}

fn yes(name: &'static str, why: String) -> Backend {
    Backend { name, verdict: Usability::Yes, why, remedy: None }
}

fn no(name: &'static str, why: String, remedy: Option<String>) -> Backend {
    Backend { name, verdict: Usability::No, why, remedy }
}

fn unknown(name: &'static str, why: String, remedy: Option<String>) -> Backend {
    Backend { name, verdict: Usability::Unknown, why, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wirepath::device::af_xdp::{AttachedProgram, DriverCapabilities};
    use wirepath::device::mlx5::Mlx5Port;

    const DRIVER: DriverCapabilities = DriverCapabilities {
        native: true,
        zero_copy: true,
        zero_copy_segments_max: 17,
        multi_buffer: true,
        rx_timestamps: false,
        rx_vlan: false,
    };
    const SUPPORT: AfXdpCapabilities = AfXdpCapabilities { index: 2, queues: 1, driver: Some(DRIVER), program: None };

    fn interface(driver: &str) -> Interface {
        Interface { name: "eth1".into(), driver: Some(driver.into()), ethernet: true, ..Interface::default() }
    }

    /// Checks the verdicts on native, zero-copy and generic, and words in their texts.
    fn check(interface: &Interface, support: Result<AfXdpCapabilities, String>, verdicts: [&str; 3], words: &str) {
        check_with(&[], interface, support, verdicts, words);
    }

    fn check_with(
        offloads: &[Offload],
        interface: &Interface,
        support: Result<AfXdpCapabilities, String>,
        verdicts: [&str; 3],
        words: &str,
    ) {
        let input = BackendInput { interface, support: &support, offloads };
        let backends = judge(&input);
        assert_eq!(backends.iter().map(|backend| backend.verdict.word()).collect::<Vec<_>>(), verdicts);
        assert!(format!("{backends:?}").contains(words), "{words} is not in {backends:?}");
    }

    #[test]
    fn kernel_that_does_not_answer_leaves_all_of_af_xdp_unknown() {
        check(&interface("ice"), Err("no answer".into()), ["unknown", "unknown", "unknown"], "no answer");
    }

    #[test]
    fn old_kernel_knows_generic_only() {
        let support = AfXdpCapabilities { driver: None, ..SUPPORT };
        check(&interface("ice"), Ok(support), ["unknown", "unknown", "yes"], "Linux 6.3");
    }

    #[test]
    fn program_of_somebody_else_keeps_us_out_and_is_named() {
        let program = AttachedProgram { id: 7, holder: "kept by process 4711 (other)".into() };
        let support = AfXdpCapabilities { program: Some(program), ..SUPPORT };
        check(&interface("ice"), Ok(support), ["no", "no", "no"], "process 4711 (other)");
    }

    #[test]
    fn frames_without_ethernet_are_not_ours() {
        let tunnel = Interface { ethernet: false, ..interface("tun") };
        check(&tunnel, Ok(SUPPORT), ["no", "no", "no"], "no Ethernet header");
    }

    #[test]
    fn driver_without_xdp_leaves_generic() {
        let driver = DriverCapabilities { native: false, ..DRIVER };
        let support = AfXdpCapabilities { driver: Some(driver), ..SUPPORT };
        check(&interface("bnx2"), Ok(support), ["no", "no", "yes"], "bnx2 runs no XDP programs");
    }

    #[test]
    fn virtio_whose_host_merges_frames_refuses_programs() {
        let merging = Offload { name: "rx-gro-hw".into(), on: true, fixed: true };
        let mendable = Offload { fixed: false, ..merging.clone() };
        let verdicts = ["no", "no", "yes"];
        check_with(&[merging], &interface("virtio_net"), Ok(SUPPORT), verdicts, "rx-gro-hw is on and fixed");
        let verdicts = ["yes", "yes", "yes"];
        check_with(&[mendable], &interface("virtio_net"), Ok(SUPPORT), verdicts, "the driver virtio_net runs programs");
    }

    #[test]
    fn driver_with_everything_is_taken_at_its_word() {
        check(&interface("ice"), Ok(SUPPORT), ["yes", "yes", "yes"], "up to 17 buffers");
    }

    fn connectx(capabilities: Result<Mlx5Capabilities, String>) -> Mlx5DeviceInfo {
        let interfaces = vec!["eth1".to_owned()];
        Mlx5DeviceInfo { name: "mlx5_0".into(), pci: Some("0000:3b:00.0".into()), interfaces, capabilities }
    }

    fn check_mlx5(interface: &Interface, verbs: Result<Vec<Mlx5DeviceInfo>, String>, verdict: Usability, words: &str) {
        let backend = mlx5(interface, &verbs);
        assert_eq!(backend.verdict, verdict);
        assert!(format!("{backend:?}").contains(words), "{words} is not in {backend:?}");
    }

    #[test]
    fn connectx_is_judged_by_what_opening_it_has_told() {
        let port = |is_ethernet| Mlx5Port { is_ethernet, is_up: true, gbps: 25.0 };
        let features = vec![("checksums", Ok(String::new())), ("packet pacing", Err("too old".into()))];
        let capabilities = |is_ethernet| Mlx5Capabilities {
            firmware: "16.35".into(),
            ports: vec![port(is_ethernet)],
            features: features.clone(),
        };
        let eth1 = interface(CONNECTX_DRIVER);
        let words = "mlx5_0, firmware 16.35, 1 of 2 features";
        check_mlx5(&eth1, Ok(vec![connectx(Ok(capabilities(true)))]), Usability::Yes, words);
        check_mlx5(&eth1, Ok(vec![connectx(Ok(capabilities(false)))]), Usability::No, "mlxconfig -d 0000:3b:00.0");
        check_mlx5(&eth1, Ok(vec![connectx(Err("no permission".into()))]), Usability::No, "no permission");
        let by_name = Interface { name: "eth7".into(), rdma: Some("mlx5_0".into()), ..eth1 };
        check_mlx5(&by_name, Ok(vec![connectx(Ok(capabilities(true)))]), Usability::Yes, "mlx5_0");
    }

    #[test]
    fn connectx_wants_its_verbs_device_and_the_library() {
        let bare = interface(CONNECTX_DRIVER);
        let port = Interface { rdma: Some("mlx5_0".into()), ..bare.clone() };
        check_mlx5(&interface("ice"), Err("not installed".into()), Usability::No, "this is ice");
        check_mlx5(&port, Err("rdma-core is not installed: apt install".into()), Usability::No, "apt install");
        check_mlx5(&bare, Ok(Vec::new()), Usability::No, "modprobe mlx5_ib");
        check_mlx5(&port, Ok(Vec::new()), Usability::No, "ibverbs-providers");
    }
}
