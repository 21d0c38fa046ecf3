//! The addresses of a segment's connection, for a prefetch before the segment is processed: with a
//! million connections none is in a cache, and with a prefetch a whole burst waits for memory once
//! instead of once per segment. It takes two steps, because the flow's bucket contains the
//! connection's address.
//!
//! It only returns addresses, and accepts a slot as a hint for the next segment's lookup. A wrong
//! hint costs a load.

use crate::proto::Flow;
use crate::proto::table::Key;
use crate::proto::tcp::machine::{FlowKey, Tcp};
use crate::proto::tcp::state::connection::Connection;

/// Bytes of a cache line.
const LINE: usize = 64;

/// A flow that will be looked up soon.
#[derive(Clone, Copy, Debug)]
pub struct LookupKey {
    hash: u64,
    ports: u32,
}

impl<P> Tcp<P> {
    /// The inputs for a lookup of the flow. `None` where no connection can have it.
    #[inline]
    pub fn lookup_key(&self, flow: Flow) -> Option<LookupKey> {
        let key = FlowKey::from(flow);
        (key.ports() != FlowKey::EMPTY.ports()).then(|| LookupKey { hash: self.flows.hash(key), ports: key.ports() })
    }

    /// The address at which the lookup begins to read.
    #[inline]
    pub fn bucket(&self, key: &LookupKey) -> *const u8 {
        self.flows.address(key.hash)
    }

    /// The slot that the connection most likely has, recognized by its ports: hardly any other flow
    /// in its bucket has the same ports. One connection in a hundred is not found here; the full
    /// lookup finds it.
    #[inline(always)]
    pub fn likely_slot(&self, key: &LookupKey) -> Option<u32> {
        self.flows.probe_home_bucket(key.hash, key.ports, FlowKey::ports).copied()
    }

    /// The next segment probably belongs to the connection at that slot.
    #[inline]
    pub fn expect(&mut self, slot: u32) {
        self.recent = slot;
    }

    /// The cache lines that a segment of the connection at a slot touches: its own, and its links
    /// in the wheel.
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
