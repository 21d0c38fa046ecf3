//! Who is listened for: local ends, with a backlog and a rate each.

use core::net::{Ipv4Addr, SocketAddrV4};

use super::event::{ListenError, ListenerId, OptionError};
use super::options::ConnectionOptions;
use crate::proto::slab::Slab;
use crate::proto::table::{Key, Table};
use crate::proto::{ConsumerId, HashSeed, TokenBucket};
use crate::time::Instant;

/// How a listener takes connections.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Handshakes that may be open at the same time; beyond, the answer is a SYN cookie.
    pub backlog: u32,
    /// SYNs a second, and as many at once; more are dropped before anything else of them is looked at, so that a flood leaves the worker its
    /// time for the connections that stand. None: no limit.
    pub syns_per_second: Option<u32>,
    /// What accepted connections inherit.
    pub connection: ConnectionOptions,
    /// Whose the accepted connections are.
    pub consumer: ConsumerId,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 128,
            // A SYN that is answered costs 0.3 µs: some twentieth of a core, and more new connections than any server of orders has.
            syns_per_second: Some(200_000),
            connection: ConnectionOptions::default(),
            consumer: ConsumerId::default(),
        }
    }
}

/// What a listener's app says of a peer that wants to connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accept {
    /// Yes.
    #[default]
    Yes,
    /// No, and it is told: a reset.
    Refuse,
    /// No, and it hears nothing.
    Ignore,
}

pub(super) struct Listener {
    pub(super) local: SocketAddrV4,
    pub(super) options: ListenOptions,
    pub(super) rate: Option<TokenBucket>,
    /// Handshakes that are open.
    pub(super) embryonic: u32,
    /// Until then a SYN cookie may come back.
    pub(super) cookies_until: Instant,
}

pub(super) struct Listeners {
    by_local: Table<LocalKey, u32>,
    pub(super) slots: Slab<Listener>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LocalKey(u64);

impl Key for LocalKey {
    const EMPTY: Self = Self(0);

    fn hash(self, seed: &HashSeed) -> u64 {
        seed.fold(self.0)
    }
}

fn key(local: SocketAddrV4) -> LocalKey {
    LocalKey(u64::from(local.ip().to_bits()) << 16 | u64::from(local.port()))
}

impl Listeners {
    pub(super) fn new(capacity: usize, seed: HashSeed) -> Self {
        Self { by_local: Table::new(capacity, seed), slots: Slab::new(capacity) }
    }

    /// Listens at `local`; the unspecified address stands for all of ours that nobody listens at by name.
    pub(super) fn open(&mut self, local: SocketAddrV4, options: &ListenOptions) -> Result<ListenerId, ListenError> {
        let out_of_range = |option, range| Err(ListenError::Option(OptionError { option, range }));
        if local.port() == 0 {
            return out_of_range("port", "1 to 65535");
        }
        if options.backlog == 0 {
            return out_of_range("backlog", "1 at least");
        }
        if local.ip().is_multicast() || local.ip().is_broadcast() {
            return out_of_range("address", "one of ours, or the unspecified one");
        }
        if options.syns_per_second == Some(0) {
            return out_of_range("syns_per_second", "1 at least, or none for no limit");
        }
        options.connection.check().map_err(ListenError::Option)?;
        if self.by_local.get(key(local)).is_some() {
            return Err(ListenError::AddressInUse(local));
        }
        let rate = options.syns_per_second.map(|rate| TokenBucket::new(rate, rate));
        let limit = self.slots.capacity();
        let listener = Listener { local, options: *options, rate, embryonic: 0, cookies_until: Instant::ZERO };
        let idx = self.slots.insert(listener).map_err(|_| ListenError::TooMany { limit })?;
        assert!(self.by_local.insert(key(local), idx), "the table has room for as many as the slab");
        Ok(ListenerId(idx))
    }

    /// Listens no more. Connections that it accepted stay.
    pub(super) fn close(&mut self, id: ListenerId) -> bool {
        let Some(listener) = self.slots.remove(id.0) else { return false };
        self.by_local.remove(key(listener.local));
        true
    }

    /// Who listens at `local`.
    pub(super) fn find(&self, local: SocketAddrV4) -> Option<u32> {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, local.port());
        self.by_local.get(key(local)).or_else(|| self.by_local.get(key(any))).copied()
    }
}
