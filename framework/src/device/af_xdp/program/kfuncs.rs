//! The RX metadata that a driver can provide to the program: timestamp, hash, and the VLAN tag that
//! the NIC stripped (Documentation/networking/xdp-rx-metadata.rst). The program calls kernel
//! functions (kfuncs), whose ids are in the kernel's BTF and are constant until the next boot. For
//! metadata that is unavailable the reason is recorded.

use core::fmt;
use std::sync::OnceLock;

use super::btf::{Btf, VMLINUX};
use crate::device::af_xdp::config::Mode;
use crate::device::af_xdp::interface::Interface;

/// A kind of metadata; also the index into arrays with an entry per kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RxHint {
    Timestamp,
    Hash,
    Vlan,
}

impl RxHint {
    pub(crate) const ALL: [Self; 3] = [Self::Timestamp, Self::Hash, Self::Vlan];

    /// The kernel function (net/core/xdp.c).
    const fn function(self) -> &'static str {
        match self {
            Self::Timestamp => "bpf_xdp_metadata_rx_timestamp",
            Self::Hash => "bpf_xdp_metadata_rx_hash",
            Self::Vlan => "bpf_xdp_metadata_rx_vlan_tag",
        }
    }

    /// The first Linux with it.
    const fn since(self) -> &'static str {
        match self {
            Self::Timestamp | Self::Hash => "6.3",
            Self::Vlan => "6.8",
        }
    }
}

/// How the program gets a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HintSource {
    /// By a call of the kernel function with this BTF id.
    Kernel(u32),
    /// As if the function had returned `result` and written the two values: a program that calls
    /// kfuncs is bound to a driver, and the kernel does not test-run such a program.
    #[cfg(test)]
    AsIf { result: i32, values: [i32; 2] },
}

/// The metadata that a program requests, by [`RxHint`].
pub(crate) type Kfuncs = [Option<HintSource>; 3];

/// Why the program does not request it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    NotWanted,
    BehindTheDriver,
    Driver,
    NoBtf(String),
    NoFunction(RxHint),
    Refused(String),
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWanted => f.write_str("not asked for"),
            Self::BehindTheDriver => f.write_str("a program behind the driver cannot ask it"),
            Self::Driver => f.write_str("the driver gives none"),
            Self::NoBtf(why) => {
                write!(f, "the kernel does not describe its functions in {VMLINUX}, CONFIG_DEBUG_INFO_BTF: {why}")
            }
            Self::NoFunction(hint) => {
                write!(f, "this kernel lacks {}: use Linux {} or later", hint.function(), hint.since())
            }
            Self::Refused(why) => write!(f, "the kernel refuses the program that asks: {why}"),
        }
    }
}

/// The metadata available on an interface, or the reasons why it is not.
pub(crate) type Found = [Result<HintSource, Absent>; 3];

/// Determines which of `wanted` the driver of `interface` and this kernel provide to a program in
/// `mode`.
pub(crate) fn find(interface: &Interface, mode: Mode, wanted: [bool; 3]) -> Found {
    RxHint::ALL.map(|hint| {
        if !wanted[hint as usize] {
            return Err(Absent::NotWanted);
        }
        if mode == Mode::Generic {
            return Err(Absent::BehindTheDriver);
        }
        if !interface.driver.rx_hints[hint as usize] {
            return Err(Absent::Driver);
        }
        match of_this_kernel() {
            Ok(functions) => functions[hint as usize].map(HintSource::Kernel).ok_or(Absent::NoFunction(hint)),
            Err(why) => Err(Absent::NoBtf(why.clone())),
        }
    })
}

/// The metadata to request.
pub(crate) fn asked(found: &Found) -> Kfuncs {
    [0, 1, 2].map(|idx| found[idx].as_ref().ok().copied())
}

/// The ids of the functions. Read once, because they change only with the kernel: 5 MB and some
/// milliseconds.
fn of_this_kernel() -> &'static Result<[Option<u32>; 3], String> {
    static FUNCTIONS: OnceLock<Result<[Option<u32>; 3], String>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        let bytes = std::fs::read(VMLINUX).map_err(|error| error.to_string())?;
        let functions = Btf::parse(&bytes).and_then(|btf| btf.functions(RxHint::ALL.map(RxHint::function)));
        functions.map_err(|error| error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::af_xdp::interface::{DriverFeatures, LinkState};

    fn interface(rx_hints: [bool; 3]) -> Interface {
        Interface {
            index: 1,
            name: "eth0".into(),
            mac: crate::wire::MacAddr::ZERO,
            mtu: 1500,
            link: LinkState::Up,
            queues: 1,
            program: None,
            strips_vlan: true,
            driver: DriverFeatures { known: true, native: true, rx_hints, ..DriverFeatures::default() },
            is_virtual: false,
        }
    }

    #[test]
    fn what_is_not_asked_has_a_reason() {
        let check = |rx_hints, mode, wanted, expected: [Option<Absent>; 3]| {
            let absent = find(&interface(rx_hints), mode, wanted).map(Result::err);
            assert_eq!(absent, expected, "{rx_hints:?} {mode:?} {wanted:?}");
        };
        let [unwanted, behind, driver] = [Absent::NotWanted, Absent::BehindTheDriver, Absent::Driver].map(Some);
        let all = |reason: &Option<Absent>| [0; 3].map(|_| reason.clone());
        check([true; 3], Mode::Native, [false; 3], all(&unwanted));
        check([true; 3], Mode::Generic, [true; 3], all(&behind));
        check([false; 3], Mode::Native, [true; 3], all(&driver));
        check([false; 3], Mode::Native, [true, false, true], [driver.clone(), unwanted, driver]);
    }

    #[test]
    fn reasons_say_what_would_help() {
        let check = |absent: Absent, expected: &str| assert!(absent.to_string().contains(expected), "{absent}");
        check(Absent::NoBtf("No such file or directory".into()), "CONFIG_DEBUG_INFO_BTF: No such file");
        check(Absent::NoFunction(RxHint::Vlan), "lacks bpf_xdp_metadata_rx_vlan_tag: use Linux 6.8 or later");
        check(Absent::NoFunction(RxHint::Timestamp), "use Linux 6.3 or later");
        check(Absent::Refused("Invalid argument".into()), "refuses the program that asks: Invalid argument");
    }
}
