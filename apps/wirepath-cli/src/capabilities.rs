//! The capabilities that AF_XDP and a ConnectX need, in a mask of capabilities.

/// The capabilities of linux/capability.h that AF_XDP needs.
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
pub(crate) const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// The capabilities that AF_XDP needs and that this mask lacks.
pub(crate) fn missing_capabilities(mask: u64) -> Vec<&'static str> {
    let has = |capability: u32| mask >> capability & 1 != 0;
    let mut missing = Vec::new();
    for (capability, name) in [(NET_ADMIN, "cap_net_admin"), (NET_RAW, "cap_net_raw")] {
        if !has(capability) {
            missing.push(name);
        }
    }
    for (capability, name) in [(BPF, "cap_bpf"), (PERFMON, "cap_perfmon")] {
        if !has(capability) && !has(SYS_ADMIN) {
            missing.push(name);
        }
    }
    missing
}

/// The capabilities of a program that drives a ConnectX, for systemd; the second one only lets it
/// lock more memory than its limit.
pub(crate) const CONNECTX_CAPABILITIES: &str = "cap_net_raw,cap_ipc_lock";

/// Whether a program with this mask may open the queues of a ConnectX.
pub(crate) fn may_open_connectx(mask: u64) -> bool {
    mask >> NET_RAW & 1 != 0
}
