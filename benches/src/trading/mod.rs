//! The libraries of the trading loop in plain memory, each as a value that can be timed.

pub mod depth_feed;
mod elsewhere;
pub mod itch_day;
mod lines;
pub mod order_feed;
pub mod replayed;

pub use lines::lines;

use market::framing::{Framing, PacketWriter};

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
