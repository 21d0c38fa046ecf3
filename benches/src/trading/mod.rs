//! The libraries of the trading loop in plain memory, each as a value that can be timed.

pub mod depth_feed;
pub mod itch_day;
mod lines;

pub use lines::lines;

use std::time;

use market::framing::{Framing, PacketWriter};

/// Packets of a sample: some 20,000 messages.
const SAMPLE: usize = 500;
/// Bytes of the largest packet, as on Ethernet.
const PACKET_LEN_MAX: usize = 1_472;

/// Full packets of messages. `header` is given the places of a packet and of its first message.
fn packed<F: Framing>(messages: Vec<Vec<u8>>, header: impl Fn(usize, usize) -> F::Raw) -> Vec<Vec<u8>> {
    let (mut packets, mut messages) = (Vec::new(), messages.iter().enumerate().peekable());
    while let Some(&(idx, _)) = messages.peek() {
        let mut out = [0; PACKET_LEN_MAX];
        let mut writer = PacketWriter::<F>::new(header(packets.len(), idx), &mut out).expect("a header fits");
        while messages.peek().is_some_and(|(_, message)| writer.push(message).is_ok()) {
            messages.next();
        }
        packets.push(writer.finish().to_vec());
    }
    packets
}

/// Nanoseconds a message of the next packets, by a feed's count of its messages.
fn time_messages<T>(feed: &mut T, count: impl Fn(&T) -> u64, take: impl FnOnce(&mut T, usize)) -> f64 {
    let before = count(feed);
    let start = time::Instant::now();
    take(feed, SAMPLE);
    let spent = start.elapsed().as_nanos() as f64;
    spent / (count(feed) - before) as f64
}
