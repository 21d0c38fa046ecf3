//! Devices move frames.

pub mod pcap;
