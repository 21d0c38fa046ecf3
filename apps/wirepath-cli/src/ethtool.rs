//! A driver's report about itself: rings, offloads, interrupts, clocks and its own counters, as
//! `ethtool` shows them. A driver need not support a query: EOPNOTSUPP is common, and not a fault.

use std::io;

use wirepath::worker::kernel;

/// linux/net_tstamp.h
const TX_HARDWARE: u32 = 1 << 0;
const RX_HARDWARE: u32 = 1 << 2;
const RAW_HARDWARE: u32 = 1 << 6;
const FILTER_ALL: u32 = 1 << 1;

/// A handle for queries about one interface. Each is one system call or a few.
pub(crate) struct Ethtool(kernel::Ethtool);

/// The NIC's timestamping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timestamping {
    /// Arrivals of all frames, not only those of PTP.
    pub(crate) rx_all: bool,
    /// Arrivals of some frames.
    pub(crate) rx: bool,
    /// Departures.
    pub(crate) tx: bool,
    /// The number of the NIC's clock, as in `/dev/ptp0`.
    pub(crate) clock: Option<u32>,
}

/// A feature of `ethtool -k`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offload {
    /// The kernel's name for it, which `ethtool -K` takes: `rx-gro`, `rx-vlan-hw-parse`.
    pub(crate) name: String,
    pub(crate) on: bool,
    /// It cannot be changed.
    pub(crate) fixed: bool,
}

/// The NIC's interrupt coalescing: `ethtool -c`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coalescing {
    pub(crate) rx_microseconds: u32,
    pub(crate) rx_frames: u32,
    pub(crate) rx_adaptive: bool,
}

/// Current and maximum descriptors: `ethtool -g`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rings {
    pub(crate) rx: u32,
    pub(crate) rx_max: u32,
    pub(crate) tx: u32,
    pub(crate) tx_max: u32,
}

impl Ethtool {
    /// Opens `interface` in the calling thread's network namespace.
    pub(crate) fn of(interface: &str) -> io::Result<Self> {
        kernel::Ethtool::open(interface).map(Self)
    }

    /// The driver's name, also of virtual interfaces.
    pub(crate) fn driver(&self) -> io::Result<String> {
        // struct ethtool_drvinfo: command, driver in 32 bytes.
        let words = self.0.driver()?;
        Ok(words[1..].first_chunk().map(name).unwrap_or_default())
    }

    pub(crate) fn timestamping(&self) -> io::Result<Timestamping> {
        // struct ethtool_ts_info: command, so_timestamping, phc_index, tx_types, 3 reserved,
        // rx_filters.
        let words = self.0.timestamping()?;
        let (can, clock, filters) = (words[1], words[2].cast_signed(), words[7]);
        let rx = can & RX_HARDWARE != 0 && can & RAW_HARDWARE != 0;
        Ok(Timestamping {
            rx_all: rx && filters & FILTER_ALL != 0,
            rx,
            tx: can & TX_HARDWARE != 0 && can & RAW_HARDWARE != 0,
            clock: u32::try_from(clock).ok(),
        })
    }

    pub(crate) fn coalescing(&self) -> io::Result<Coalescing> {
        // struct ethtool_coalesce: the third word is rx_max_coalesced_frames, the eleventh
        // use_adaptive_rx_coalesce.
        let words = self.0.coalescing()?;
        Ok(Coalescing { rx_microseconds: words[1], rx_frames: words[2], rx_adaptive: words[10] != 0 })
    }

    pub(crate) fn rings(&self) -> io::Result<Rings> {
        // struct ethtool_ringparam: the four maxima (rx, mini, jumbo, tx), then the four of now.
        let words = self.0.rings()?;
        Ok(Rings { rx_max: words[1], tx_max: words[4], rx: words[5], tx: words[8] })
    }

    pub(crate) fn offloads(&self) -> io::Result<Vec<Offload>> {
        let (names, states) = self.0.features()?;
        Ok(offloads(names, &states))
    }

    /// The driver's own counters, with its own names.
    pub(crate) fn counters(&self) -> io::Result<Vec<(String, u64)>> {
        self.0.counters()
    }
}

/// Up to 32 bytes, terminated by a zero.
fn name(words: &[u32; 8]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Four words for each 32 features: available, requested, active, never changed.
fn offloads(names: Vec<String>, states: &[u32]) -> Vec<Offload> {
    let bit = |feature: usize, word: usize| {
        let state = states.get(feature / 32 * 4 + word).copied().unwrap_or(0);
        state >> (feature % 32) & 1 != 0
    };
    let offload = |(idx, name)| Offload { name, on: bit(idx, 2), fixed: !bit(idx, 0) || bit(idx, 3) };
    names.into_iter().enumerate().filter(|(_, name)| !name.is_empty()).map(offload).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_offloads_and_no_hardware_clock() {
        let ethtool = Ethtool::of("lo").unwrap();
        let offloads = ethtool.offloads().unwrap();
        assert!(offloads.iter().any(|offload| offload.name == "rx-gro" && !offload.fixed), "{offloads:?}");
        let stamping = ethtool.timestamping().unwrap();
        assert!(!stamping.rx && !stamping.tx, "{stamping:?}");
    }

    #[test]
    fn feature_bits_are_found_in_their_block() {
        let names = (0..40).map(|idx| format!("f{idx}")).collect();
        let mut states = [0; 8];
        states[2] = 1 << 3; // active
        (states[4], states[6], states[7]) = (1 << 7 | 1, 1 << 7, 1); // available, active, never changed
        let offloads = offloads(names, &states);
        assert_eq!(offloads[3], Offload { name: "f3".into(), on: true, fixed: true });
        assert_eq!(offloads[39], Offload { name: "f39".into(), on: true, fixed: false });
        assert_eq!(offloads[32], Offload { name: "f32".into(), on: false, fixed: true });
    }
}
