//! Captures: files of frames with the time at which each was seen.
//!
//! [`Reader`] takes classic pcap (microseconds or nanoseconds, either byte order) and pcapng, plain or gzip, and lends
//! one [`Record`] after the other from a buffer that it fills again and again. [`Writer`] writes classic pcap with
//! nanoseconds. Both are plain file formats: they know nothing of mbufs and queues.
//!
//! Only Ethernet is read, as the pipeline begins with an Ethernet header; a file of another link type is refused by
//! name. A file that ends in mid-packet gives every whole record before the cut and then says where it was cut.

mod classic;
mod error;
mod input;
mod pcapng;
mod reader;
mod writer;

pub use error::{Cut, End, Error, Problem, Truncation};
pub use reader::{Reader, Record};
pub use writer::Writer;

/// The longest packet a record may hold, in bytes: the snaplen of tcpdump and Wireshark, and the limit that libpcap
/// puts on Ethernet captures. A longer one in a file is a damaged or hostile length.
pub const RECORD_LEN_MAX: usize = 262_144;

#[cfg(test)]
mod tests;
