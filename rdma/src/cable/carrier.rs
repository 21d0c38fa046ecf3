//! What carries a queue pair's packets.

use core::fmt;

/// What carries a queue pair, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Carrier {
    /// Memory that both ends have, on one host.
    SharedMemory,
    /// Reliable connections of two RNICs.
    Rnic,
    /// RoCEv2 by this package, on a port.
    RoceV2,
    /// The same frames in a TCP connection, where no port may be opened.
    FramedTcp,
}

/// The ways from one end to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// Both ends are on one host.
    pub is_same_host: bool,
    /// Both ends have an RNIC, on one network.
    pub has_rnics: bool,
    /// A port can be opened towards the peer.
    pub has_port: bool,
}

impl Carrier {
    /// The best that there is. TCP is always there.
    pub const fn choose(ways: &Ways) -> Self {
        match *ways {
            Ways { is_same_host: true, .. } => Self::SharedMemory,
            Ways { has_rnics: true, .. } => Self::Rnic,
            Ways { has_port: true, .. } => Self::RoceV2,
            _ => Self::FramedTcp,
        }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SharedMemory => "shared memory",
            Self::Rnic => "RC of the RNIC",
            Self::RoceV2 => "RoCEv2 in software",
            Self::FramedTcp => "frames over TCP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_way_that_is_there_is_chosen() {
        for bits in 0..8 {
            let ways = Ways { is_same_host: bits & 1 != 0, has_rnics: bits & 2 != 0, has_port: bits & 4 != 0 };
            let first = [
                (ways.is_same_host, Carrier::SharedMemory),
                (ways.has_rnics, Carrier::Rnic),
                (ways.has_port, Carrier::RoceV2),
                (true, Carrier::FramedTcp),
            ];
            let best = first.into_iter().filter(|(is_there, _)| *is_there).map(|(_, carrier)| carrier).min();
            assert_eq!(Some(Carrier::choose(&ways)), best, "{ways:?}");
        }
    }
}
