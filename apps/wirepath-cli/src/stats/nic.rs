//! Counters of the kernel and the driver for the interfaces that a process polls, as values below
//! `nic/NAME` beside the process's own.
//!
//! The process's block names those interfaces: a device on a live port has the gauge
//! `interface_index` in its scope. The index is valid in the process's network namespace, which is
//! entered for the query.

use std::io;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, Stats64};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use wirepath::counters::{Class, Reading, Sample, Snapshot, Unit};

use crate::ethtool::Ethtool;
use crate::namespace;

/// Parts of drivers' names for counters of lost frames, among some hundred counters. An interrupt
/// is no error.
const LOSSES: [&str; 12] = [
    "drop",
    "miss",
    "discard",
    "error",
    "_err",
    "out_of_buffer",
    "no_buf",
    "nobuf",
    "overflow",
    "overrun",
    "fail",
    "full",
];
/// The most interfaces that are queried, however many a file names.
const INTERFACES_MAX: usize = 64;
/// A link with all its attributes (the kernel's netlink_dump packs up to 32 KiB).
const MESSAGE_LEN_MAX: usize = 64 << 10;

/// Adds the counters of the interfaces that the process of `snapshot` polls, or the reason why they
/// cannot be queried.
pub(super) fn add(snapshot: &mut Snapshot) {
    let indices = indices(snapshot);
    // A user that may not enter a process's namespace may still write a file that names it.
    if indices.is_empty() || !snapshot.is_credible() {
        return;
    }
    let (pid, asked) = (snapshot.pid, indices.clone());
    let found = namespace::run_in(pid, move || asked.into_iter().map(read).collect::<Vec<_>>());
    match found {
        Ok(found) => snapshot.samples.extend(found.into_iter().flatten()),
        Err(error) => snapshot.samples.extend(indices.into_iter().map(|index| {
            let what = format!("the network namespace of process {pid} is closed to us ({error}): run this as root");
            unreadable(index, what)
        })),
    }
}

/// The interfaces of all queues, each once.
fn indices(snapshot: &Snapshot) -> Vec<u32> {
    let index = |sample: &Sample| match sample.reading {
        Reading::Gauge(index) if sample.name.ends_with("/interface_index") => u32::try_from(index).ok(),
        _ => None,
    };
    let mut indices: Vec<u32> = snapshot.samples.iter().filter_map(index).filter(|&index| index != 0).collect();
    indices.sort_unstable();
    indices.dedup();
    indices.truncate(INTERFACES_MAX);
    indices
}

/// All counters of one interface in this thread's network namespace.
fn read(index: u32) -> Vec<Sample> {
    let (name, statistics) = match link(index) {
        Ok(link) => link,
        Err(error) => return vec![unreadable(index, format!("{error}: is the interface gone?"))],
    };
    let counter = |(counter, unit, value): (&str, Unit, u64)| sample(&name, counter, unit, Reading::Counter(value));
    let mut samples: Vec<Sample> = kernel(&statistics).into_iter().map(counter).collect();
    // Virtual interfaces have no driver that counts.
    let driver = Ethtool::of(&name).and_then(|ethtool| ethtool.counters()).unwrap_or_default();
    for (own, value) in driver.into_iter().filter(|(own, _)| is_loss(own)) {
        samples.push(counter((&format!("driver/{}", word(&own)), Unit::Number, value)));
    }
    samples
}

/// The kernel's counters of every interface: received and sent frames, and each kind of loss.
fn kernel(statistics: &Stats64) -> Vec<(&'static str, Unit, u64)> {
    vec![
        ("rx_frames", Unit::Frames, statistics.rx_packets),
        ("rx_bytes", Unit::Bytes, statistics.rx_bytes),
        ("rx_dropped", Unit::Frames, statistics.rx_dropped),
        ("rx_missed", Unit::Frames, statistics.rx_missed_errors),
        ("rx_nohandler", Unit::Frames, statistics.rx_nohandler),
        ("rx_errors", Unit::Frames, statistics.rx_errors),
        ("rx_length_errors", Unit::Frames, statistics.rx_length_errors),
        ("rx_crc_errors", Unit::Frames, statistics.rx_crc_errors),
        ("rx_overruns", Unit::Frames, statistics.rx_over_errors),
        ("rx_fifo_errors", Unit::Frames, statistics.rx_fifo_errors),
        ("tx_frames", Unit::Frames, statistics.tx_packets),
        ("tx_bytes", Unit::Bytes, statistics.tx_bytes),
        ("tx_dropped", Unit::Frames, statistics.tx_dropped),
        ("tx_errors", Unit::Frames, statistics.tx_errors),
        ("tx_fifo_errors", Unit::Frames, statistics.tx_fifo_errors),
    ]
}

fn is_loss(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    LOSSES.iter().any(|loss| name.contains(loss))
}

/// A driver's counter name as one part of a path, without control characters for a terminal.
fn word(name: &str) -> String {
    name.trim().replace(|letter: char| !letter.is_ascii_graphic() || letter == '/', "_")
}

fn sample(interface: &str, name: &str, unit: Unit, reading: Reading) -> Sample {
    Sample { name: format!("nic/{interface}/{name}"), unit, class: Class::Other, reading }
}

fn unreadable(index: u32, why: String) -> Sample {
    sample(&format!("index{index}"), "unreadable", Unit::Number, Reading::Text(why))
}

/// The name and the statistics of an interface.
fn link(index: u32) -> io::Result<(String, Stats64)> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.send_to(&request(index), &SocketAddr::new(0, 0), 0)?;
    // The kernel answers within the call above, so this does not wait.
    let mut buffer = Vec::with_capacity(MESSAGE_LEN_MAX);
    socket.recv_from(&mut buffer, 0)?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&buffer).map_err(io::Error::other)?;
    match answer.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => Ok(facts(&link)),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(io::Error::other("the kernel answered something else")),
    }
}

fn request(index: u32) -> Vec<u8> {
    let mut link = LinkMessage::default();
    link.header.index = index;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let payload = NetlinkPayload::InnerMessage(RouteNetlinkMessage::GetLink(link));
    let mut message = NetlinkMessage::new(header, payload);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn facts(link: &LinkMessage) -> (String, Stats64) {
    let (mut name, mut statistics) = (String::new(), Stats64::default());
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(own) => name.clone_from(own),
            LinkAttribute::Stats64(own) => statistics = *own,
            _ => {}
        }
    }
    (word(&name), statistics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wirepath::counters::Block;

    /// The loopback is number 1 in every network namespace.
    const LOOPBACK: u64 = 1;

    /// The values added for a process whose queues poll these interfaces.
    fn added(indices: &[u64]) -> Snapshot {
        let block = Block::heap();
        for (queue, &index) in indices.iter().enumerate() {
            block.scope(&format!("worker{queue}")).gauge("interface_index", Unit::Number).set(index);
        }
        let mut snapshot = block.snapshot();
        add(&mut snapshot);
        snapshot.samples.retain(|sample| sample.name.starts_with("nic/"));
        snapshot
    }

    #[test]
    fn process_without_a_live_port_gets_nothing() {
        assert_eq!(added(&[]).samples, []);
        assert_eq!(added(&[0, u64::MAX]).samples, []);
    }

    #[test]
    fn interface_that_is_gone_is_a_text() {
        let gone = added(&[0x7fff_ffff]);
        let text = gone.text("nic/index2147483647/unreadable").unwrap();
        assert!(text.contains("is the interface gone?"), "{text}");
    }

    #[test]
    fn interface_of_two_queues_is_asked_once_and_by_its_name() {
        let _traffic = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"one", "127.0.0.1:9");
        let loopback = added(&[LOOPBACK, LOOPBACK]);
        assert!(loopback.count("nic/lo/rx_frames").unwrap() > 0);
        assert_eq!(loopback.samples.iter().filter(|sample| sample.name.ends_with("/rx_dropped")).count(), 1);
    }

    #[test]
    fn losses_are_told_from_other_counters() {
        let losses = ["rx_out_of_buffer", "rx0_drops", "port.rx_discards", "rx_missed_errors", "rx_no_buffer_count"];
        assert!(losses.iter().all(|name| is_loss(name)));
        assert!(!["rx_packets", "interrupts", "tx_kicks", "rx_xdp_redirects"].iter().any(|name| is_loss(name)));
        assert_eq!(word(" [0]: rx drops/s\x1b"), "[0]:_rx_drops_s_");
    }
}
