//! The capabilities of an interface for AF_XDP, queried without touching it: for tools, and for
//! programs that choose a backend.

use crate::device::DeviceError;
use crate::device::af_xdp::holder;
use crate::device::af_xdp::interface::Interface;
use crate::device::af_xdp::program::kfuncs::RxHint;

/// The features of an interface and its driver, as the kernel reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpCapabilities {
    /// The interface index, constant across renames.
    pub index: u32,
    /// Number of receive queues.
    pub queues: u16,
    /// The driver's XDP features; `None` if the kernel does not report them (the netdev family came
    /// with Linux 6.3).
    pub driver: Option<DriverCapabilities>,
    /// The XDP program already attached: no other can be attached beside it.
    pub program: Option<AttachedProgram>,
}

/// The driver's reported features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverCapabilities {
    /// Runs programs itself, before the kernel makes an skb of the frame.
    pub native: bool,
    /// Receives into our memory without a copy.
    pub zero_copy: bool,
    /// Maximum number of buffers of a frame in zero-copy mode.
    pub zero_copy_segments_max: u32,
    /// Passes frames in several buffers to programs; without that, the MTU must fit one buffer.
    pub multi_buffer: bool,
    /// Provides receive timestamps to programs.
    pub rx_timestamps: bool,
    /// Provides the VLAN tag that the NIC stripped to programs.
    pub rx_vlan: bool,
}

/// A program attached to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedProgram {
    /// The program's id, as `ip link` and `bpftool prog` show it.
    pub id: u32,
    /// Its holder, in words.
    pub holder: String,
}

impl AfXdpCapabilities {
    /// Queries the kernel about `interface`, in the calling thread's network namespace. Needs no
    /// privilege, but only root sees the holder of a program. Makes a few system calls, and scans
    /// /proc if there is a program.
    ///
    /// # Errors
    /// One sentence: there is no such interface, or the kernel does not answer.
    pub fn of(interface: &str) -> Result<Self, DeviceError> {
        let Interface { index, queues, program, driver, .. } = Interface::find(interface)?;
        let program = program.map(|id| AttachedProgram { id, holder: holder::of_program(Some(id)) });
        let driver = driver.known.then_some(DriverCapabilities {
            native: driver.native,
            zero_copy: driver.zero_copy,
            zero_copy_segments_max: driver.zero_copy_segments_max,
            multi_buffer: driver.multi_buffer,
            rx_timestamps: driver.rx_hints[RxHint::Timestamp as usize],
            rx_vlan: driver.rx_hints[RxHint::Vlan as usize],
        });
        Ok(Self { index, queues, driver, program })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_interface_is_a_sentence() {
        let error = AfXdpCapabilities::of("not-there").unwrap_err().to_string();
        assert!(error.contains("no interface not-there"), "{error}");
    }

    #[test]
    fn loopback_runs_no_programs_in_a_driver() {
        let support = AfXdpCapabilities::of("lo").unwrap();
        assert_eq!(support.program, None);
        assert!(support.driver.is_none_or(|driver| !driver.zero_copy), "{support:?}");
    }
}
