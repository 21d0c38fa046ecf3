//! Listeners: local ends, with a backlog and a rate each.

use core::net::{Ipv4Addr, SocketAddrV4};

use crate::proto::slab::{NIL, Slab};
use crate::proto::table::{Key, Table};
use crate::proto::tcp::event::{ListenError, ListenerId, OptionError};
use crate::proto::tcp::options::{ConnectionOptions, Keepalive};
use crate::proto::{ConsumerId, Flow, HashSeed, TokenBucket};
use crate::time::Instant;

/// The options of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Handshakes that may be open at the same time; beyond, the answer is a SYN cookie. By default
    /// 128.
    pub backlog: u32,
    /// Maximum SYN rate, and the burst. Further ones are dropped before any other
    /// check, so that in a flood the worker has time for established connections. Beyond this rate
    /// a client succeeds only by chance, and SYN cookies do not help it; they are for a full
    /// backlog. None: no limit, every SYN is answered. By default 100,000.
    pub syns_per_second: Option<u32>,
    /// The most connections at the same time, not counting those in TIME-WAIT and handshakes, which
    /// `backlog` limits. The SYN of a further one is dropped, and `drop/listener_full` counts it.
    /// None: as many as there are slots for clients. By default `None`.
    pub connections_max: Option<u32>,
    /// The most connections from one address at the same time, those of other listeners included.
    /// The SYN of a further one is dropped, and `drop/source_full` counts it, so that one host with
    /// many idle connections leaves slots for the others. A keyed hash chooses shared counters:
    /// where a thousand addresses are connected, a limit of less than eight now and then refuses an
    /// address that has fewer. None: no limit, for peers that are all behind one address. By
    /// default 256.
    pub connections_per_source: Option<u32>,
    /// Options that accepted connections inherit. By default those of a connection, with keepalive
    /// after two hours.
    pub connection: ConnectionOptions,
    /// The consumer of accepted connections. By default consumer 0.
    pub consumer: ConsumerId,
    /// `SO_REUSEPORT`: others may listen at the same address, where all of them set it. A hash of
    /// both ends chooses whose a connection becomes, the same for each segment of its handshake;
    /// the choice changes for open handshakes where one of them comes or goes. By default off.
    pub reuse_port: bool,
}

impl Default for ListenOptions {
    /// Keepalive is on, because a client that vanishes without a FIN would keep its slot for ever.
    /// RFC 9293 3.8.4 wants keepalive off by default (MUST-25), which we do not follow, and two
    /// hours before the first probe (MUST-28), which we do.
    fn default() -> Self {
        Self {
            backlog: 128,
            // Answering a SYN costs 0.3 µs: 3 % of a core at 100,000 SYN/s, which are more new
            // connections than any order server has.
            syns_per_second: Some(100_000),
            connections_max: None,
            // A quarter of the default table.
            connections_per_source: Some(256),
            connection: ConnectionOptions { keepalive: Some(Keepalive::default()), ..ConnectionOptions::default() },
            consumer: ConsumerId::default(),
            reuse_port: false,
        }
    }
}

impl ListenOptions {
    /// Whether `backlog` is in range.
    pub(in crate::proto::tcp) fn check_backlog(backlog: u32) -> Result<(), OptionError> {
        if backlog == 0 { Err(OptionError { option: "backlog", range: "1 at least" }) } else { Ok(()) }
    }
}

/// The decision of a listener's app about a peer that wants to connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptDecision {
    /// Yes.
    #[default]
    Yes,
    /// No, with a reset.
    Refuse,
    /// No, without an answer.
    Ignore,
}

pub(crate) struct Listener {
    pub(in crate::proto::tcp) id: ListenerId,
    pub(in crate::proto::tcp) local: SocketAddrV4,
    pub(in crate::proto::tcp) options: ListenOptions,
    pub(in crate::proto::tcp) rate: Option<TokenBucket>,
    /// Handshakes that are open.
    pub(in crate::proto::tcp) embryonic: u32,
    /// Until when a SYN cookie may come back.
    pub(in crate::proto::tcp) cookies_until: Instant,
    /// All that listen at this address, this one included, in the order in which they began; only
    /// the one in the table has them. Empty where it is alone.
    sharers: Vec<u32>,
}

impl Listener {
    /// Whether the backlog is full.
    pub(in crate::proto::tcp) fn is_full(&self) -> bool {
        self.embryonic >= self.options.backlog
    }

    /// Adds one more listener at the address of this one, which is in slot `first`.
    fn share_with(&mut self, first: u32, another: u32) {
        if self.sharers.is_empty() {
            self.sharers.push(first);
        }
        self.sharers.push(another);
    }
}

pub(crate) struct Listeners {
    by_local: Table<LocalKey, u32>,
    pub(crate) slots: Slab<Listener>,
    refusal: Refusal,
    seed: HashSeed,
    /// Generation of the last that was opened. Never all ones, with which no listener's id begins.
    generation: u16,
}

/// No SYN to `local` is accepted before `until`. Nearly all SYNs of a flood have the same
/// destination: so the bucket is read once in a token's interval.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    local: LocalKey,
    until: Instant,
}

impl Refusal {
    const NONE: Self = Self { local: LocalKey::EMPTY, until: Instant::ZERO };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LocalKey(u64);

impl Key for LocalKey {
    const EMPTY: Self = Self(0);

    fn hash(self, seed: &HashSeed) -> u64 {
        seed.fold(self.0)
    }
}

#[inline]
fn key(local: SocketAddrV4) -> LocalKey {
    LocalKey(u64::from(local.ip().to_bits()) << 16 | u64::from(local.port()))
}

/// Derives the seed of the hash that chooses among sharers ("share" in ASCII).
const SHARERS: u64 = 0x73_6861_7265;

impl Listeners {
    pub(crate) fn new(capacity: usize, seed: HashSeed) -> Self {
        let (by_local, slots) = (Table::new(capacity, seed), Slab::new(capacity));
        Self { by_local, slots, refusal: Refusal::NONE, seed: seed.derive(SHARERS), generation: 0 }
    }

    /// Listens at `local`. The unspecified address means each address of ours that has no separate
    /// listener.
    pub(crate) fn open(&mut self, local: SocketAddrV4, options: &ListenOptions) -> Result<ListenerId, ListenError> {
        let out_of_range = |option, range| Err(ListenError::Option(OptionError { option, range }));
        if local.port() == 0 {
            return out_of_range("port", "1 to 65535");
        }
        ListenOptions::check_backlog(options.backlog).map_err(ListenError::Option)?;
        if local.ip().is_multicast() || local.ip().is_broadcast() {
            return out_of_range("address", "one of ours, or the unspecified one");
        }
        if options.syns_per_second == Some(0) {
            return out_of_range("syns_per_second", "1 at least, or none for no limit");
        }
        let limits =
            [("connections_max", options.connections_max), ("connections_per_source", options.connections_per_source)];
        for (option, limit) in limits {
            if limit == Some(0) {
                return out_of_range(option, "1 at least, or none for no limit");
            }
        }
        options.connection.check().map_err(ListenError::Option)?;
        let first = self.by_local.get(key(local)).copied();
        let is_shared = |first: u32| options.reuse_port && self.slots[first].options.reuse_port;
        if first.is_some_and(|first| !is_shared(first)) {
            return Err(ListenError::AddressInUse(local));
        }
        let rate = options.syns_per_second.map(|rate| TokenBucket::new(rate, rate));
        let limit = self.slots.capacity();
        let id = ListenerId(NIL);
        let (embryonic, cookies_until, sharers) = (0, Instant::ZERO, Vec::new());
        let listener = Listener { id, local, options: *options, rate, embryonic, cookies_until, sharers };
        let slot = self.slots.insert(listener).map_err(|_| ListenError::TooMany { limit })?;
        match first {
            Some(first) => self.slots[first].share_with(first, slot),
            None => assert!(self.by_local.insert(key(local), slot), "the table has room for as many as the slab"),
        }
        // The new one may match more closely than another that refuses.
        self.refusal = Refusal::NONE;
        self.generation = (self.generation + 1) % u16::MAX;
        let id = ListenerId::new(slot, self.generation);
        self.slots[slot].id = id;
        Ok(id)
    }

    /// The listener of that name, where it still exists.
    pub(crate) fn get_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.slots.get_mut(id.slot()).filter(|listener| listener.id == id)
    }

    /// Closes a listener. Connections that it accepted stay.
    pub(crate) fn close(&mut self, id: ListenerId) -> bool {
        let Some(local) = self.get_mut(id).map(|listener| listener.local) else { return false };
        self.refusal = Refusal::NONE;
        let first = self.by_local.remove(key(local)).unwrap_or(NIL);
        let mut sharers = core::mem::take(&mut self.slots[first].sharers);
        sharers.retain(|&slot| slot != id.slot());
        self.slots.remove(id.slot());
        if let Some(&next) = sharers.first() {
            self.slots[next].sharers = sharers;
            assert!(self.by_local.insert(key(local), next), "the table has the place of the one that went");
        }
        true
    }

    /// Whether the listener that `flow` is for is over its rate. Takes no token.
    #[inline]
    pub(crate) fn refuses(&mut self, flow: Flow, now: Instant) -> bool {
        self.refusal.local == key(flow.local) && now < self.refusal.until || self.begins_to_refuse(flow, now)
    }

    #[cold]
    fn begins_to_refuse(&mut self, flow: Flow, now: Instant) -> bool {
        let Some(listener) = self.choose(flow) else { return false };
        let Some(rate) = &self.slots[listener].rate else { return false };
        let until = rate.empty_until();
        // Among several, one may refuse what another takes.
        if self.find(flow.local).is_some_and(|first| self.slots[first].sharers.is_empty()) {
            self.refusal = Refusal { local: key(flow.local), until };
        }
        now < until
    }

    /// The listener at `local`; of several, the first.
    pub(crate) fn find(&self, local: SocketAddrV4) -> Option<u32> {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, local.port());
        self.by_local.get(key(local)).or_else(|| self.by_local.get(key(any))).copied()
    }

    /// The listener that a segment of `flow` is for.
    pub(crate) fn choose(&self, flow: Flow) -> Option<u32> {
        let first = self.find(flow.local)?;
        let sharers = &self.slots[first].sharers;
        if sharers.is_empty() {
            return Some(first);
        }
        let addresses = u64::from(flow.local.ip().to_bits()) << 32 | u64::from(flow.remote.ip().to_bits());
        let ports = u32::from(flow.local.port()) << 16 | u32::from(flow.remote.port());
        // SipHash: a folded product leaves neighboring ports close together, and then one of the
        // sharers has no connection.
        let hash = self.seed.sip_flow(addresses, ports) >> 32;
        Some(sharers[((hash * sharers.len() as u64) >> 32) as usize])
    }
}
