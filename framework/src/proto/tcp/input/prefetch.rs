//! Where a segment's connection stands, told before the segment comes: with a million of them each
//! is in no cache, and who asks for the memory of a whole burst at once waits once instead of once
//! a segment. In two steps, as the bucket of the flow says where the rest is.
//!
//! Addresses go out, nothing else; and a place may come back as the one where the next segment's
//! connection is looked for first. What was found wrongly costs a load.

use super::super::machine::{FlowKey, Tcp};
use super::super::state::connection::Connection;
use crate::proto::Flow;
use crate::proto::table::Key;

/// Bytes of a cache line.
const LINE: usize = 64;

/// A flow that is looked up soon.
#[derive(Clone, Copy, Debug)]
pub struct LookupKey {
    hash: u64,
    ports: u32,
}

impl<P> Tcp<P> {
    /// What a lookup of the flow needs. None where no connection can be of it.
    #[inline]
    pub fn lookup_key(&self, flow: Flow) -> Option<LookupKey> {
        let key = FlowKey::from(flow);
        (key.ports() != FlowKey::EMPTY.ports()).then(|| LookupKey { hash: self.flows.hash(key), ports: key.ports() })
    }

    /// Where the lookup begins to read.
    #[inline]
    pub fn bucket(&self, key: &LookupKey) -> *const u8 {
        self.flows.address(key.hash)
    }

    /// The connection's place. Of a hundred one is not found here, and is where the lookup looks
    /// further. It is known by its ports: of those in its bucket hardly one has the same.
    #[inline(always)]
    pub fn likely_slot(&self, key: &LookupKey) -> Option<u32> {
        self.flows.guess_at_home(key.hash, key.ports, FlowKey::ports).copied()
    }

    /// The next segment is probably of the connection at that place.
    #[inline]
    pub fn expect(&mut self, slot: u32) {
        self.recent = slot;
    }

    /// The lines that a segment of the connection at a place touches: its own, and its links in the
    /// wheel.
    #[inline]
    pub fn lines(&self, slot: u32) -> [*const u8; Connection::HOT_LINES + 1] {
        let mut lines = [self.connections.address(slot); Connection::HOT_LINES + 1];
        for (idx, line) in lines[..Connection::HOT_LINES].iter_mut().enumerate() {
            *line = line.wrapping_add(idx * LINE);
        }
        lines[Connection::HOT_LINES] = self.shared.wheel.address(slot);
        lines
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::*;
    use crate::proto::tcp::state::connection::State;
    use crate::proto::tcp::tests::{CLIENT, SERVER};
    use crate::proto::tcp::{ConnectionOptions, TcpConfig};
    use crate::proto::{ConsumerId, HashSeed};
    use crate::time::Instant;

    #[test]
    fn connection_is_found_where_it_stands_and_no_other_is() {
        let config = TcpConfig { connections_max: 4, ..TcpConfig::default() };
        let mut tcp = Tcp::<Vec<u8>>::new(config, HashSeed::new(1, 2)).unwrap();
        let (flow, back) = (Flow { local: SERVER, remote: CLIENT }, Flow { local: CLIENT, remote: SERVER });
        let (options, consumer) = (ConnectionOptions::default(), ConsumerId(0));
        let slot = tcp.insert(Connection::new(flow, State::Established, &options, consumer, Instant::ZERO)).unwrap();
        let likely = |flow| tcp.lookup_key(flow).and_then(|key| tcp.likely_slot(&key));
        assert_eq!((likely(flow), likely(back)), (Some(slot), None));
        assert_eq!(tcp.lines(slot)[0], (&raw const tcp.connections[slot]).cast());
    }
}
