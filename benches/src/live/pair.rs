//! A veth pair between two namespaces: `near` has `veth0`, `far` has `veth1`.

use core::net::Ipv4Addr;
use std::time::{Duration, Instant};
use std::{fs, thread};

use wirepath::wire::MacAddr;
use wirepath_tests::netns::Namespace;

use super::sys;

/// One end: an interface with its addresses. The kernel has them too, and answers ARP for them.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The interface's name in its namespace.
    pub interface: &'static str,
    /// Its address, in 10.9.0.0/24.
    pub address: Ipv4Addr,
    /// Its MAC address.
    pub mac: MacAddr,
}

/// The senders' end.
pub const NEAR: End = End { interface: "veth0", address: Ipv4Addr::new(10, 9, 0, 1), mac: MacAddr([2, 0, 0, 9, 0, 1]) };
/// The receivers' end.
pub const FAR: End = End { interface: "veth1", address: Ipv4Addr::new(10, 9, 0, 2), mac: MacAddr([2, 0, 0, 9, 0, 2]) };

/// The two ends.
pub struct Pair {
    /// The namespace of [`NEAR`].
    pub near: Namespace,
    /// The namespace of [`FAR`].
    pub far: Namespace,
}

impl Pair {
    /// Creates it.
    ///
    /// # Errors
    /// Why it cannot be created, in words.
    pub fn new() -> Result<Self, String> {
        let (near, far) = (Namespace::new().map_err(|why| format!("{why}; run as root"))?, Namespace::new()?);
        near.veth(NEAR.interface, &far, FAR.interface)?;
        for (namespace, end) in [(&near, NEAR), (&far, FAR)] {
            namespace.ip(&["link", "set", end.interface, "address", &end.mac.to_string()])?;
            namespace.ip(&["addr", "add", &format!("{}/24", end.address), "dev", end.interface])?;
            namespace.ip(&["route", "add", "224.0.0.0/4", "dev", end.interface])?;
        }
        // A port that takes all frames answers no ARP.
        let station = FAR.mac.to_string();
        let neighbor = ["neigh", "replace", &FAR.address.to_string(), "lladdr", &station, "dev", NEAR.interface];
        near.ip(&neighbor)?;
        Ok(Self { near, far })
    }

    /// Millions of frames a second that came back to the near end over `window`: the rate of a
    /// forwarder at the far end.
    pub fn rate_back(&self, window: Duration) -> Result<f64, String> {
        self.near.run(|| {
            // The thread must not wait for a core between reading the clock and the count.
            sys::run_first();
            let (start, before) = (Instant::now(), counted(NEAR, Column::Received)?);
            thread::sleep(window);
            let (frames, elapsed) = (counted(NEAR, Column::Received)? - before, start.elapsed());
            Ok(frames as f64 / elapsed.as_secs_f64() / 1e6)
        })
    }
}

/// The kernel's counters of an interface, by their column in /proc/net/dev.
#[derive(Clone, Copy, Debug)]
pub(super) enum Column {
    /// Received frames.
    Received = 1,
    /// Frames dropped for lack of room: in the veth's ring, or in ours.
    Dropped = 3,
}

/// A counter of an end since its creation. The calling thread is in its namespace.
pub(super) fn counted(end: End, column: Column) -> Result<u64, String> {
    const DEVICES: &str = "/proc/thread-self/net/dev";
    let text = fs::read_to_string(DEVICES).map_err(|error| format!("{DEVICES}: {error}"))?;
    let numbers = text.lines().find_map(|line| line.trim_start().strip_prefix(end.interface)?.strip_prefix(':'));
    let number = numbers.and_then(|numbers| numbers.split_whitespace().nth(column as usize)?.parse().ok());
    number.ok_or_else(|| format!("{DEVICES} does not show {}", end.interface))
}
