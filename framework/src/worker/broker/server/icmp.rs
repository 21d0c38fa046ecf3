//! ICMP errors that the kernel has received, for the client whose packet they quote.

use super::Broker;
use crate::wire::icmpv4::{Icmpv4Message, QuotedFlow};
use crate::wire::{Ipv4Packet, Protocol};

/// The most ICMP errors passed on in a turn.
const ERRORS_A_TURN: usize = 64;

impl Broker {
    /// Passes each ICMP error that the kernel has received on to the client whose packet it quotes.
    pub(super) fn pass_errors_on(&mut self) {
        let mut bytes = [0; 2048];
        for _ in 0..ERRORS_A_TURN {
            let Ok(len) = self.icmp_errors.recv(&mut bytes) else { return };
            let Some(quoted) = quoted(&bytes[..len]) else { continue };
            for id in self.flows.clients_of(&quoted) {
                if let Some(socket) = self.clients.get(id).and_then(|client| client.icmp_errors.as_ref()) {
                    // A client that does not read loses repetitions.
                    let _ = socket.send(&bytes[..len]);
                    self.counters.errors_passed_on.inc();
                }
            }
        }
    }
}

/// The flow of the packet that an ICMP error quotes.
fn quoted(packet: &[u8]) -> Option<QuotedFlow> {
    let packet = Ipv4Packet::parse(packet).ok().filter(|packet| packet.header.protocol() == Protocol::ICMP)?;
    QuotedFlow::parse(Icmpv4Message::parse(packet.payload).ok()?.quoted()?)
}
