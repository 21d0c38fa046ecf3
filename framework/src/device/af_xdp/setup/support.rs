//! What AF_XDP could do on an interface, asked without touching it: for tools, and for programs
//! that choose a backend.

use super::super::program::kfuncs::RxHint;
use super::holder;
use super::interface::Interface;
use crate::device::DeviceError;

/// What the kernel says of an interface and its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    /// The kernel's number of the interface, which stays when it is renamed.
    pub index: u32,
    /// Queues that frames come on.
    pub queues: u16,
    /// What the driver can do with XDP; `None` where the kernel does not tell (the netdev family
    /// came with Linux 6.3).
    pub driver: Option<DriverSupport>,
    /// The XDP program that is on the interface already: no other can be had beside it.
    pub program: Option<AttachedProgram>,
}

/// What a driver says that it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverSupport {
    /// Runs programs itself, before the kernel makes an skb of the frame.
    pub native: bool,
    /// Receives into our memory without a copy.
    pub zero_copy: bool,
    /// Buffers that a frame may have in zero-copy mode.
    pub zero_copy_segments_max: u32,
    /// Gives programs frames in several buffers, without which the MTU must fit one.
    pub multi_buffer: bool,
    /// Can tell a program when a frame arrived.
    pub rx_timestamps: bool,
    /// Can tell a program which VLAN tag the NIC took off the frame.
    pub rx_vlan: bool,
}

/// A program on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedProgram {
    /// Its id, as `ip link` and `bpftool prog` show it.
    pub id: u32,
    /// Who keeps it there, in words.
    pub holder: String,
}

impl Support {
    /// Asks the kernel about `interface`, of the calling thread's network namespace. Needs no
    /// privilege; whose a program is only root sees. A few system calls, and a walk over /proc
    /// where there is a program.
    ///
    /// # Errors
    /// One sentence: there is no such interface, or the kernel does not answer.
    pub fn of(interface: &str) -> Result<Self, DeviceError> {
        let Interface { index, queues, program, driver, .. } = Interface::find(interface)?;
        let program = program.map(|id| AttachedProgram { id, holder: holder::of_program(Some(id)) });
        let driver = driver.known.then_some(DriverSupport {
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
        let error = Support::of("not-there").unwrap_err().to_string();
        assert!(error.contains("no interface not-there"), "{error}");
    }

    #[test]
    fn loopback_runs_no_programs_in_a_driver() {
        let support = Support::of("lo").unwrap();
        assert_eq!(support.program, None);
        assert!(support.driver.is_none_or(|driver| !driver.zero_copy), "{support:?}");
    }
}
