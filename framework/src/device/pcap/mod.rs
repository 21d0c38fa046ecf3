//! Captures: files of frames with their timestamps, and a device that replays and records them.
//!
//! [`Reader`] reads classic pcap (microseconds or nanoseconds, either byte order) and pcapng, plain
//! or gzip, and lends one [`Record`] after the other from a buffer that it refills. [`Writer`]
//! writes classic pcap with nanoseconds. Both handle only the file format, without mbufs and
//! queues; [`PcapDevice`] adds those.
//!
//! Only Ethernet is supported, because the pipeline begins with an Ethernet header; a file of
//! another link type is refused with its name. A file truncated within a packet delivers every
//! whole record before the cut and then reports the truncation.

mod classic;
mod device;
mod error;
mod input;
mod outcome;
mod pace;
mod pcapng;
mod reader;
mod rx;
mod source;
mod tx;
mod writer;

pub use device::{Loading, PcapConfig, PcapDevice};
pub use error::{Cut, End, Error, Problem, Truncation};
pub use outcome::{Outcome, Recorded};
pub use pace::{Pace, Pacer};
pub use reader::{Reader, Record};
pub use writer::Writer;

/// The longest packet a record may hold, in bytes: the snaplen of tcpdump and Wireshark, and the
/// limit that libpcap puts on Ethernet captures. A longer one in a file is a damaged or hostile
/// length.
pub(crate) const RECORD_LEN_MAX: usize = 262_144;

#[cfg(test)]
mod tests;
