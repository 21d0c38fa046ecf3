//! Source filters: the socket filters of RFC 3376 3.1 with the operations of RFC 3678, and their
//! merge into the interface's filter (RFC 3376 3.2), which IGMP reports.
//!
//! A [`Membership`] is one consumer in one group on one interface. Its filter has a list of sources
//! that it either includes or excludes; any-source is an empty exclude list. The sources of all
//! filters are in one hash table, so that a datagram costs one probe whether the list has two
//! sources or thousands. Only the total number of sources is limited.

use core::fmt;
use core::net::Ipv4Addr;

use super::hash::HashSeed;
use super::ids::{ConsumerId, FilterId, InterfaceId};
use super::slab::{NIL, Slab};
use super::table::Table;

/// The capacities of the filters. All of it is allocated at construction.
#[derive(Clone, Copy, Debug)]
pub struct SourceFilterCapacity {
    /// Memberships: one per consumer, group and interface; 40 bytes, and 48 to 96 for a group's
    /// first one.
    pub memberships: usize,
    /// Sources in all lists together, about 12 bytes and 48 to 96 of table each.
    pub sources: usize,
}

impl SourceFilterCapacity {
    /// The bytes that [`SourceFilters::new`] allocates: the sum of its four parts.
    pub fn bytes(self) -> usize {
        Table::<u64, u32>::bytes(self.memberships)
            + Slab::<Filter>::bytes(self.memberships)
            + Table::<u64, u32>::bytes(self.sources)
            + Slab::<SourceNode>::bytes(self.sources)
    }
}

/// One consumer in one group on one interface, or on [`InterfaceId::ANY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Membership {
    /// The consumer that joined.
    pub consumer: ConsumerId,
    /// The group that it joined.
    pub group: Ipv4Addr,
    /// The interface on which it joined.
    pub interface: InterfaceId,
}

/// The meaning of a list of sources (RFC 3376 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterMode {
    /// Only the sources in the list.
    Include,
    /// All but the sources in the list.
    Exclude,
}

/// Why an operation on a membership was refused. RFC 3678 5.1 names them as errors of the socket
/// calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterError {
    /// The address is not a multicast group.
    NotAGroup,
    /// There is no such membership (`EADDRNOTAVAIL`).
    NotAMember,
    /// The consumer joined the group on this interface already, or on any (`EADDRINUSE`).
    AlreadyAMember,
    /// An include operation on an exclude filter, or an exclude operation on an include filter
    /// (`EINVAL`).
    WrongMode,
    /// The source is in the list already (`EADDRNOTAVAIL`).
    SourceListed,
    /// The source is not in the list (`EADDRNOTAVAIL`).
    SourceNotListed,
    /// No room for another membership (`ENOBUFS`).
    MembershipsFull,
    /// No room for another source (`ENOBUFS`).
    SourcesFull,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAGroup => "not a multicast group: groups are 224.0.0.0 to 239.255.255.255",
            Self::NotAMember => "this consumer has not joined the group on this interface",
            Self::AlreadyAMember => "this consumer joined the group on this interface already",
            Self::WrongMode => "a source is included or excluded, not both: leave the group before changing sides",
            Self::SourceListed => "the source is in the list already",
            Self::SourceNotListed => "the source is not in the list",
            Self::MembershipsFull => "no room for another membership: raise the capacity",
            Self::SourcesFull => "no room for another source: raise the capacity",
        })
    }
}

impl core::error::Error for FilterError {}

/// All memberships of one worker's consumers.
#[derive(Debug)]
pub struct SourceFilters {
    /// Maps a group to its first membership, to which the others are linked.
    groups: Table<u64, u32>,
    filters: Slab<Filter>,
    /// (Filter, source) to a node of that filter's list.
    sources: Table<u64, u32>,
    nodes: Slab<SourceNode>,
    /// Joins, leaves and changes of lists so far.
    changes: u64,
}

#[derive(Debug)]
struct Filter {
    membership: Membership,
    mode: FilterMode,
    len: u32,
    first: u32,
    /// The source of a list of one, the usual include list: read without a probe.
    only: Ipv4Addr,
    next_in_group: u32,
    /// The last change of the whole group, by the count of changes.
    changed: u64,
}

#[derive(Debug)]
struct SourceNode {
    source: Ipv4Addr,
    next: u32,
}

impl SourceFilters {
    /// Allocates all its memory here (see [`SourceFilterCapacity::bytes`]).
    pub fn new(capacity: SourceFilterCapacity, seed: HashSeed) -> Self {
        Self {
            groups: Table::new(capacity.memberships, seed),
            filters: Slab::new(capacity.memberships),
            sources: Table::new(capacity.sources, seed),
            nodes: Slab::new(capacity.sources),
            changes: 0,
        }
    }

    /// Whether the filter accepts a datagram from `source` that arrived on `interface`: costs one
    /// cache line for lists of zero or one source, and a probe more for longer ones. The filter
    /// belongs to one group. The filter of a membership that ended accepts nothing.
    #[inline]
    pub fn accepts(&self, filter: FilterId, interface: InterfaceId, source: Ipv4Addr) -> bool {
        if filter.is_any() {
            return true;
        }
        let Some(state) = self.filters.get(filter.0) else { return false };
        let joined = state.membership.interface;
        if joined != interface && joined != InterfaceId::ANY {
            return false;
        }
        let listed = match state.len {
            0 => false,
            1 => state.only == source,
            _ => self.sources.get(source_key(filter.0, source)).is_some(),
        };
        listed == (state.mode == FilterMode::Include)
    }

    /// Joins for any source. The returned filter checks the interface; a caller may replace it by
    /// [`FilterId::ANY`] only where there is a single interface.
    pub fn join(&mut self, membership: Membership) -> Result<FilterId, FilterError> {
        self.add(membership, FilterMode::Exclude).map(FilterId)
    }

    /// Joins for one source, or adds one to an include list (RFC 3678 `IP_ADD_SOURCE_MEMBERSHIP`).
    pub fn join_source(&mut self, membership: Membership, source: Ipv4Addr) -> Result<FilterId, FilterError> {
        if let Some(filter) = self.find(membership) {
            self.require(filter, FilterMode::Include)?;
            self.list(filter, source)?;
            return Ok(FilterId(filter));
        }
        if self.nodes.free_count() == 0 {
            return Err(FilterError::SourcesFull);
        }
        let filter = self.add(membership, FilterMode::Include)?;
        self.list(filter, source)?;
        Ok(FilterId(filter))
    }

    /// Removes one source from an include list; removing the last one ends the membership, and its
    /// filter with it. True while the membership lasts.
    pub fn leave_source(&mut self, membership: Membership, source: Ipv4Addr) -> Result<bool, FilterError> {
        let filter = self.member(membership)?;
        self.require(filter, FilterMode::Include)?;
        self.unlist(filter, source)?;
        if self.filters[filter].len > 0 {
            return Ok(true);
        }
        self.drop_membership(filter);
        Ok(false)
    }

    /// Excludes one source of an any-source membership (RFC 3678 `IP_BLOCK_SOURCE`).
    pub fn block(&mut self, membership: Membership, source: Ipv4Addr) -> Result<(), FilterError> {
        let filter = self.member(membership)?;
        self.require(filter, FilterMode::Exclude)?;
        self.list(filter, source)
    }

    /// Removes one source from the exclude list (RFC 3678 `IP_UNBLOCK_SOURCE`).
    pub fn unblock(&mut self, membership: Membership, source: Ipv4Addr) -> Result<(), FilterError> {
        let filter = self.member(membership)?;
        self.require(filter, FilterMode::Exclude)?;
        self.unlist(filter, source)
    }

    /// Sets mode and list at once (RFC 3678 4.1.3 `setsourcefilter`), and joins where there was no
    /// membership. A source named twice counts once. An empty include list leaves, and returns no
    /// filter. On an error the filter does not change.
    pub fn set(
        &mut self,
        membership: Membership,
        mode: FilterMode,
        sources: &[Ipv4Addr],
    ) -> Result<Option<FilterId>, FilterError> {
        let found = self.find(membership);
        if mode == FilterMode::Include && sources.is_empty() {
            if let Some(filter) = found {
                self.drop_membership(filter);
            }
            return Ok(None);
        }
        let held = found.map_or(0, |filter| self.filters[filter].len as usize);
        // Counts a source named twice as two: refusing a list that would just fit is better than
        // applying half a list.
        if sources.len() > self.nodes.free_count() + held {
            return Err(FilterError::SourcesFull);
        }
        let filter = match found {
            Some(filter) => filter,
            None => self.add(membership, mode)?,
        };
        self.clear(filter);
        self.filters[filter].mode = mode;
        self.touch(membership.group);
        for source in sources {
            match self.list(filter, *source) {
                Ok(()) | Err(FilterError::SourceListed) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(FilterId(filter)))
    }

    /// Ends a membership with any filter. Its `FilterId` is invalid from then on, so unbind its
    /// subscriber first.
    pub fn leave(&mut self, membership: Membership) -> Result<(), FilterError> {
        let filter = self.member(membership)?;
        self.drop_membership(filter);
        Ok(())
    }

    /// The filter of a membership.
    pub fn filter(&self, membership: Membership) -> Option<FilterId> {
        self.find(membership).map(FilterId)
    }

    /// The filter of the interface, so that each of its consumers gets the sources that it wants
    /// (RFC 3376 3.2). If any consumer excludes, the merged filter excludes the sources that all of
    /// the excluding ones exclude and no other includes; otherwise it includes all sources that any
    /// consumer includes. `None` where there is no member. Costs (sources x memberships of the
    /// group): for reports, not for packets.
    pub fn reception_state(&self, group: Ipv4Addr, interface: InterfaceId) -> Option<ReceptionState<'_>> {
        let mut mode = None;
        // The shortest exclude list bounds the intersection.
        let mut shortest = NIL;
        for filter in self.memberships_of(group, interface) {
            match self.filters[filter].mode {
                FilterMode::Include if mode.is_none() => mode = Some(FilterMode::Include),
                FilterMode::Include => {}
                FilterMode::Exclude => {
                    mode = Some(FilterMode::Exclude);
                    if self.filters.get(shortest).is_none_or(|best| self.filters[filter].len < best.len) {
                        shortest = filter;
                    }
                }
            }
        }
        Some(ReceptionState { filters: self, group, interface, mode: mode?, shortest })
    }

    /// Increments with every join, leave and change of a list: data read from the filters is valid
    /// while this number stays the same.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Entries for memberships: the bound of [`SourceFilters::changed_at`].
    pub fn places(&self) -> usize {
        self.filters.capacity()
    }

    /// The group of the membership in an entry, where the group has changed after `since`, an
    /// earlier value of [`changes`](SourceFilters::changes). A group with several members may
    /// appear several times; a group that lost its last member does not appear. Reads one cache
    /// line, so a scan of all entries in small steps does not delay packets.
    pub fn changed_at(&self, place: usize, since: u64) -> Option<Ipv4Addr> {
        let filter = self.filters.get(u32::try_from(place).ok()?)?;
        (filter.changed > since).then_some(filter.membership.group)
    }

    /// Counts a change and marks the group's remaining memberships with it.
    fn touch(&mut self, group: Ipv4Addr) {
        self.changes += 1;
        let mut filter = self.groups.get(group_key(group)).copied().unwrap_or(NIL);
        while let Some(state) = self.filters.get_mut(filter) {
            state.changed = self.changes;
            filter = state.next_in_group;
        }
    }

    /// Whether a filter accepts every source on every interface, so that it need not be checked.
    pub(super) fn accepts_all(&self, filter: FilterId) -> bool {
        let plain = |state: &Filter| {
            state.membership.interface == InterfaceId::ANY && state.mode == FilterMode::Exclude && state.len == 0
        };
        filter.is_any() || self.filters.get(filter.0).is_some_and(plain)
    }

    /// Whether a filter accepts only the sources in its list.
    pub(super) fn is_include(&self, filter: FilterId) -> bool {
        self.filters.get(filter.0).is_some_and(|state| state.mode == FilterMode::Include)
    }

    /// Whether a filter includes this source only.
    pub(super) fn is_only_source(&self, filter: FilterId, source: Ipv4Addr) -> bool {
        let only = |state: &Filter| state.mode == FilterMode::Include && state.len == 1 && state.only == source;
        self.filters.get(filter.0).is_some_and(only)
    }

    /// Memberships held.
    pub fn memberships(&self) -> usize {
        self.filters.len()
    }

    /// Sources in all lists.
    pub fn sources(&self) -> usize {
        self.nodes.len()
    }

    fn member(&self, membership: Membership) -> Result<u32, FilterError> {
        self.find(membership).ok_or(FilterError::NotAMember)
    }

    fn find(&self, membership: Membership) -> Option<u32> {
        self.group(membership.group).find(|filter| self.filters[*filter].membership == membership)
    }

    fn require(&self, filter: u32, mode: FilterMode) -> Result<(), FilterError> {
        if self.filters[filter].mode == mode { Ok(()) } else { Err(FilterError::WrongMode) }
    }

    /// All memberships of a group.
    fn group(&self, group: Ipv4Addr) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.groups.get(group_key(group)).copied().unwrap_or(NIL);
        core::iter::from_fn(move || {
            let filter = next;
            next = self.filters.get(filter)?.next_in_group;
            Some(filter)
        })
    }

    fn memberships_of(&self, group: Ipv4Addr, interface: InterfaceId) -> impl Iterator<Item = u32> + '_ {
        self.group(group).filter(move |filter| {
            let joined = self.filters[*filter].membership.interface;
            joined == interface || joined == InterfaceId::ANY
        })
    }

    fn list_of(&self, filter: u32) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let mut next = self.filters[filter].first;
        core::iter::from_fn(move || {
            let node = self.nodes.get(next)?;
            next = node.next;
            Some(node.source)
        })
    }

    fn lists(&self, filter: u32, source: Ipv4Addr) -> bool {
        self.sources.get(source_key(filter, source)).is_some()
    }

    fn add(&mut self, membership: Membership, mode: FilterMode) -> Result<u32, FilterError> {
        if !membership.group.is_multicast() {
            return Err(FilterError::NotAGroup);
        }
        // A membership on any interface beside one on this interface would deliver twice.
        let any = |id| id == InterfaceId::ANY;
        let covered = self.group(membership.group).any(|filter| {
            let held = self.filters[filter].membership;
            let overlaps = held.interface == membership.interface || any(held.interface) || any(membership.interface);
            held.consumer == membership.consumer && overlaps
        });
        if covered {
            return Err(FilterError::AlreadyAMember);
        }
        let key = group_key(membership.group);
        let next_in_group = self.groups.get(key).copied().unwrap_or(NIL);
        let filter =
            Filter { membership, mode, len: 0, first: NIL, only: Ipv4Addr::UNSPECIFIED, next_in_group, changed: 0 };
        let filter = self.filters.insert(filter).map_err(|_| FilterError::MembershipsFull)?;
        match self.groups.get_mut(key) {
            Some(first) => *first = filter,
            None => assert!(self.groups.insert(key, filter), "there are as many groups as memberships"),
        }
        self.touch(membership.group);
        Ok(filter)
    }

    fn drop_membership(&mut self, filter: u32) {
        self.clear(filter);
        let group = self.filters[filter].membership.group;
        let next = self.filters[filter].next_in_group;
        let before = self.group(group).find(|other| self.filters[*other].next_in_group == filter);
        match before {
            Some(before) => self.filters[before].next_in_group = next,
            None if next == NIL => {
                self.groups.remove(group_key(group));
            }
            None => *self.groups.get_mut(group_key(group)).expect("a member's group is listed") = next,
        }
        self.filters.remove(filter);
        self.touch(group);
    }

    fn list(&mut self, filter: u32, source: Ipv4Addr) -> Result<(), FilterError> {
        if self.lists(filter, source) {
            return Err(FilterError::SourceListed);
        }
        let node = SourceNode { source, next: self.filters[filter].first };
        let node = self.nodes.insert(node).map_err(|_| FilterError::SourcesFull)?;
        assert!(self.sources.insert(source_key(filter, source), node), "the table has a place for each node");
        let state = &mut self.filters[filter];
        state.first = node;
        state.len += 1;
        state.only = source;
        let group = state.membership.group;
        self.touch(group);
        Ok(())
    }

    fn unlist(&mut self, filter: u32, source: Ipv4Addr) -> Result<(), FilterError> {
        let node = self.sources.remove(source_key(filter, source)).ok_or(FilterError::SourceNotListed)?;
        let next = self.nodes[node].next;
        let mut before = self.filters[filter].first;
        if before == node {
            self.filters[filter].first = next;
        } else {
            while self.nodes[before].next != node {
                before = self.nodes[before].next;
            }
            self.nodes[before].next = next;
        }
        self.nodes.remove(node);
        let first = self.filters[filter].first;
        let only = self.nodes.get(first).map_or(Ipv4Addr::UNSPECIFIED, |node| node.source);
        let state = &mut self.filters[filter];
        state.len -= 1;
        state.only = only;
        let group = state.membership.group;
        self.touch(group);
        Ok(())
    }

    fn clear(&mut self, filter: u32) {
        while let Some(node) = self.nodes.get(self.filters[filter].first) {
            let source = node.source;
            self.unlist(filter, source).expect("the source stands in the list");
        }
    }
}

/// The filter of an interface for one group.
#[derive(Clone, Copy)]
pub struct ReceptionState<'a> {
    filters: &'a SourceFilters,
    group: Ipv4Addr,
    interface: InterfaceId,
    mode: FilterMode,
    shortest: u32,
}

impl<'a> ReceptionState<'a> {
    /// Include or exclude.
    pub fn mode(&self) -> FilterMode {
        self.mode
    }

    /// The sources, each once, in no particular order.
    pub fn sources(self) -> impl Iterator<Item = Ipv4Addr> + 'a {
        let members = move || self.filters.memberships_of(self.group, self.interface);
        let lists = move |filter, source| self.filters.lists(filter, source);
        let mode_of = move |filter| self.filters.filters[filter].mode;
        let included = members().filter(move |_| self.mode == FilterMode::Include).flat_map(move |filter| {
            let earlier = move |source| members().take_while(|f| *f != filter).any(|f| lists(f, source));
            self.filters.list_of(filter).filter(move |source| !earlier(*source))
        });
        let shortest = (self.mode == FilterMode::Exclude).then_some(self.shortest);
        let excluded = shortest.into_iter().flat_map(move |filter| {
            let unwanted = move |source| members().all(|f| lists(f, source) == (mode_of(f) == FilterMode::Exclude));
            self.filters.list_of(filter).filter(move |source| unwanted(*source))
        });
        included.chain(excluded)
    }
}

pub(super) fn group_key(group: Ipv4Addr) -> u64 {
    // Not zero, which marks a free slot.
    1 << 32 | u64::from(group.to_bits())
}

#[inline]
pub(super) fn source_key(filter: u32, source: Ipv4Addr) -> u64 {
    // Filter 0 and source 0.0.0.0 must not give zero, which marks a free slot.
    (u64::from(filter) + 1) << 32 | u64::from(source.to_bits())
}

#[cfg(test)]
mod tests;
