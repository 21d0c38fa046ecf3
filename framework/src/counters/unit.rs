//! The unit of a number, so that a table can show it.

use core::fmt;

/// The meaning of one step of a value. Stored as one byte in the shared file: the numbers never
/// change meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Unit {
    /// A plain number: a state, an index, a CPU.
    Number = 0,
    /// Layer 2 frames.
    Frames = 1,
    /// Layer 3 packets.
    Packets = 2,
    /// UDP datagrams.
    Datagrams = 3,
    /// TCP segments.
    Segments = 4,
    /// Application messages.
    Messages = 5,
    /// Bytes.
    Bytes = 6,
    /// Any event: retries, restarts, gaps.
    Events = 7,
    /// Packet buffers.
    Mbufs = 8,
    /// Bursts handed over by a device.
    Bursts = 9,
    /// Turns of the poll loop.
    Polls = 10,
    /// A span of time in nanoseconds.
    Nanoseconds = 11,
    /// CPU cycles.
    Cycles = 12,
    /// A point in time: nanoseconds since the origin of the writer's clock. Two readings show
    /// whether it advances.
    ClockNanoseconds = 13,
}

impl Unit {
    const ALL: [Self; 14] = [
        Self::Number,
        Self::Frames,
        Self::Packets,
        Self::Datagrams,
        Self::Segments,
        Self::Messages,
        Self::Bytes,
        Self::Events,
        Self::Mbufs,
        Self::Bursts,
        Self::Polls,
        Self::Nanoseconds,
        Self::Cycles,
        Self::ClockNanoseconds,
    ];

    /// The unit as shown in tables and JSON; empty for a plain number.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Number => "",
            Self::Frames => "frames",
            Self::Packets => "packets",
            Self::Datagrams => "datagrams",
            Self::Segments => "segments",
            Self::Messages => "messages",
            Self::Bytes => "bytes",
            Self::Events => "events",
            Self::Mbufs => "mbufs",
            Self::Bursts => "bursts",
            Self::Polls => "polls",
            Self::Nanoseconds => "ns",
            Self::Cycles => "cycles",
            Self::ClockNanoseconds => "clock ns",
        }
    }

    /// The unit of a byte of a shared file, if it is valid.
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_names_the_unit_it_came_from() {
        for unit in Unit::ALL {
            assert_eq!(Unit::from_byte(unit as u8), Some(unit));
        }
        assert_eq!(Unit::from_byte(14), None);
    }
}
