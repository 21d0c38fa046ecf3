//! What carries a queue pair's packets.

use core::fmt;

/// What carries a queue pair in software, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Carrier {
    /// Memory that both ends have, on one host.
    SharedMemory,
    /// RoCEv2 by this package, on a port.
    RoceV2,
    /// The same frames in a TCP connection, where no port may be opened.
    FramedTcp,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SharedMemory => "shared memory",
            Self::RoceV2 => "RoCEv2 in software",
            Self::FramedTcp => "frames over TCP",
        })
    }
}
