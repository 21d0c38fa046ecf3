//! Limits for remote clients: for all listeners together, so that slots are left for our own
//! connections; for one listener; and for one address. Connections are counted when they begin and
//! end; segments in between cost nothing.
//!
//! ```text
//!  SYN ─▶ handshake ─▶ established ─▶ TIME-WAIT ─▶ gone
//!         └───────── a place ───────┘
//!                      └─ a session ┘   of a listener, from an address
//! ```
//!
//! A handshake does not count as a session, because its sender may be forged. A connection in
//! TIME-WAIT counts as neither, because new connections displace it.

use core::net::Ipv4Addr;

use super::listener::Listener;
use super::secret::Secret;
use crate::proto::slab::NIL;
use crate::proto::tcp::event::ListenerId;
use crate::proto::tcp::input::arrival::TcpDrop;
use crate::proto::tcp::machine::{Shared, Tcp};
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::state::connection::{Connection, Counted};

/// The counts of accepted connections.
#[derive(Debug)]
pub(crate) struct Admission {
    places: usize,
    places_max: usize,
    listeners: Box<[Sessions]>,
    sources: Sources,
}

/// The sessions of the listener that uses the slot now, or used it last.
#[derive(Clone, Copy, Debug)]
struct Sessions {
    listener: ListenerId,
    count: u32,
}

impl Admission {
    /// Allocates all its memory here.
    pub(crate) fn new(places_max: usize, listeners_max: usize, connections_max: usize) -> Self {
        let nobody = Sessions { listener: ListenerId(NIL), count: 0 };
        Self {
            places: 0,
            places_max,
            listeners: vec![nobody; listeners_max].into_boxed_slice(),
            sources: Sources::new(connections_max),
        }
    }

    /// Slots that remote clients may still take, if they are free.
    pub(crate) fn left(&self) -> usize {
        self.places_max - self.places
    }

    /// Sessions of all addresses.
    #[cfg(test)]
    pub(crate) fn sessions(&self) -> u32 {
        self.sources.counters[..self.sources.row_len].iter().sum()
    }

    fn of_listener(&mut self, id: ListenerId) -> &mut u32 {
        let sessions = &mut self.listeners[id.slot() as usize];
        if sessions.listener != id {
            *sessions = Sessions { listener: id, count: 0 };
        }
        &mut sessions.count
    }
}

impl<P: Payload> Shared<P> {
    /// A remote client's handshake begins.
    pub(crate) fn count_place(&mut self, connection: &mut Connection) {
        connection.counted.insert(Counted::PLACE);
        self.admission.places += 1;
    }

    /// A remote client's handshake is done.
    pub(crate) fn count_session(&mut self, connection: &mut Connection) {
        connection.counted.insert(Counted::SESSION);
        *self.admission.of_listener(connection.accepted_by.id) += 1;
        self.admission.sources.add(&self.secret, *connection.flow.remote.ip());
    }

    /// A connection is over, opened by either side.
    pub(crate) fn count_out(&mut self, connection: &mut Connection) {
        let was = core::mem::take(&mut connection.counted);
        if was.has(Counted::PLACE) {
            self.admission.places -= 1;
        }
        if was.has(Counted::SESSION) {
            let id = connection.accepted_by.id;
            let sessions = &mut self.admission.listeners[id.slot() as usize];
            if sessions.listener == id {
                sessions.count -= 1;
            }
            self.admission.sources.remove(&self.secret, *connection.flow.remote.ip());
        }
    }
}

impl<P: Payload> Tcp<P> {
    /// Whether the limits of a listener, and of that address, allow one more session.
    pub(in crate::proto::tcp) fn check_limits(&mut self, listener: u32, source: Ipv4Addr) -> Result<(), TcpDrop> {
        let Listener { id, options, .. } = &self.listeners.slots[listener];
        let Shared { admission, secret, .. } = &mut self.shared;
        if options.connections_max.is_some_and(|limit| *admission.of_listener(*id) >= limit) {
            return Err(TcpDrop::ListenerFull);
        }
        if options.connections_per_source.is_some_and(|limit| admission.sources.count(secret, source) >= limit) {
            return Err(TcpDrop::SourceFull);
        }
        Ok(())
    }

    /// Whether there is room for another remote client, or
    /// [`make_room_for_peer`](Self::make_room_for_peer) would make some.
    pub(in crate::proto::tcp) fn can_admit_peer(&self) -> bool {
        self.shared.admission.left() > 0 && self.can_make_room()
    }

    /// Whether there is room for another remote client. Like [`make_room`](Self::make_room), but
    /// the reserved slots do not count.
    pub(in crate::proto::tcp) fn make_room_for_peer(&mut self) -> bool {
        self.shared.admission.left() > 0 && self.make_room()
    }
}

/// Counts sessions by address. Each address has one counter in each of four rows and shares it with
/// other addresses. The minimum of the four is its count; it is too high only where the address
/// collides in all of them. So the memory does not depend on the number of addresses. A keyed hash
/// chooses the counters, so that an attacker cannot choose collisions.
#[derive(Debug)]
pub(crate) struct Sources {
    counters: Box<[u32]>,
    /// Counters of a row.
    row_len: usize,
}

const ROWS: usize = 4;
/// With a thousand connections from as many addresses, one address in a thousand is counted four
/// too high; with a hundred connections from a hundred addresses, not one in a million is. Large
/// tables have an eighth of a counter for each connection: there one address in a hundred million
/// is counted sixteen too high, but the limits are larger as well.
const ROW_LEN_MIN: usize = 1_024;

impl Sources {
    /// Bytes for each connection of a large table.
    pub(crate) const ENTRY_LEN: usize = ROWS * size_of::<u32>() / 8;

    pub(crate) fn new(connections_max: usize) -> Self {
        let row_len = Self::row_len(connections_max);
        Self { counters: vec![0; ROWS * row_len].into_boxed_slice(), row_len }
    }

    /// The bytes that `new(connections_max)` allocates.
    pub(crate) fn bytes(connections_max: usize) -> usize {
        ROWS * Self::row_len(connections_max) * size_of::<u32>()
    }

    fn row_len(connections_max: usize) -> usize {
        connections_max.div_ceil(8).max(ROW_LEN_MIN.min(2 * connections_max))
    }

    fn count(&self, secret: &Secret, source: Ipv4Addr) -> u32 {
        self.places(secret, source).map(|place| self.counters[place]).into_iter().min().unwrap_or(0)
    }

    fn add(&mut self, secret: &Secret, source: Ipv4Addr) {
        self.places(secret, source).into_iter().for_each(|place| self.counters[place] += 1);
    }

    fn remove(&mut self, secret: &Secret, source: Ipv4Addr) {
        self.places(secret, source).into_iter().for_each(|place| self.counters[place] -= 1);
    }

    /// One of each row.
    fn places(&self, secret: &Secret, source: Ipv4Addr) -> [usize; ROWS] {
        let hash = secret.source(source);
        let (first, step) = (hash as u32, (hash >> 32) as u32 | 1);
        core::array::from_fn(|row| {
            let word = first.wrapping_add(step.wrapping_mul(row as u32));
            row * self.row_len + ((u64::from(word) * self.row_len as u64) >> 32) as usize
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::HashSeed;

    fn address(idx: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x0a00_0000 + idx)
    }

    #[test]
    fn sessions_of_an_address_are_counted_and_hardly_any_of_others() {
        let secret = Secret::new(HashSeed::new(1, 2));
        let mut sources = Sources::new(1_024);
        for _ in 0..200 {
            sources.add(&secret, address(0));
        }
        for idx in 1..=824 {
            sources.add(&secret, address(idx));
        }
        let count = |sources: &Sources, idx| sources.count(&secret, address(idx));
        assert_eq!(count(&sources, 0), 200);
        assert!((1..=824).all(|idx| (1..4).contains(&count(&sources, idx))));
        let strangers = (1_000..2_000).filter(|idx| count(&sources, *idx) >= 2).count();
        assert!(strangers < 20, "{strangers} of a thousand");
        (0..200).for_each(|_| sources.remove(&secret, address(0)));
        (1..=824).for_each(|idx| sources.remove(&secret, address(idx)));
        assert!(sources.counters.iter().all(|counter| *counter == 0));
    }

    #[test]
    fn large_table_pays_two_bytes_a_connection() {
        assert_eq!(Sources::bytes(1 << 20), (1 << 20) * Sources::ENTRY_LEN);
        assert_eq!((Sources::bytes(1), Sources::bytes(1_024)), (32, 16 << 10));
    }
}
