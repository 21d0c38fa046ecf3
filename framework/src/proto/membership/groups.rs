//! The groups of a reporter with their sources: the filter as last reported, and the changes that
//! are still to be reported.

use core::net::Ipv4Addr;
use core::ops::{Index, IndexMut, Range};

use crate::proto::hash::HashSeed;
use crate::proto::slab::{NIL, Slab};
use crate::proto::source_filter::{FilterMode, group_key, source_key};
use crate::proto::table::Table;
use crate::time::Instant;

/// Queried sources that are in none of our filters, in all groups together. Queries of unknown
/// hosts can use up this room but no other (RFC 3376 9.1); a query that finds no room is answered
/// for the whole group.
const QUERIED_SOURCES_MAX: usize = 512;

/// The part of a group that a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryScope {
    Nothing,
    Group,
    /// The marked sources.
    Sources,
}

/// A group with the interface's filter.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) address: Ipv4Addr,
    pub(super) mode: FilterMode,
    /// Reports left with the whole filter because the mode changed; in versions 1 and 2 those that
    /// repeat a join.
    pub(super) mode_repeats: u8,
    pub(super) queried: QueryScope,
    /// Our report was the last on this link in versions 1 and 2: the leave is ours to send.
    pub(super) is_last_reporter: bool,
    listed: u32,
    first: u32,
    pub(super) change_at: Instant,
    pub(super) answer_at: Instant,
    pub(super) answered: Option<Instant>,
}

impl Group {
    /// Whether any source of the group is wanted.
    pub(super) fn is_member(&self) -> bool {
        self.mode == FilterMode::Exclude || self.listed > 0
    }
}

/// A source that is in the filter, has changed, or is queried.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) address: Ipv4Addr,
    /// Reports left with its change.
    pub(super) repeats: u8,
    /// It is in the filter.
    pub(super) is_listed: bool,
    pub(super) is_queried: bool,
    /// The source is in the filter that is being set.
    is_wanted: bool,
    /// The source uses room for sources that only a query has named.
    is_from_query: bool,
    next: u32,
}

#[derive(Debug)]
pub(super) struct Groups {
    index: Table<u64, u32>,
    groups: Slab<Group>,
    source_index: Table<u64, u32>,
    sources: Slab<Source>,
    sources_max: usize,
    queried_sources: usize,
}

impl Groups {
    pub(super) fn new(groups: usize, sources: usize, seed: HashSeed) -> Self {
        Self {
            index: Table::new(groups, seed),
            groups: Slab::new(groups),
            source_index: Table::new(sources + QUERIED_SOURCES_MAX, seed),
            sources: Slab::new(sources + QUERIED_SOURCES_MAX),
            sources_max: sources,
            queried_sources: 0,
        }
    }

    /// The bytes that `new(groups, sources, …)` allocates: the sum of its four parts.
    pub(super) fn bytes(groups: usize, sources: usize) -> usize {
        Table::<u64, u32>::bytes(groups)
            + Slab::<Group>::bytes(groups)
            + Table::<u64, u32>::bytes(sources + QUERIED_SOURCES_MAX)
            + Slab::<Source>::bytes(sources + QUERIED_SOURCES_MAX)
    }

    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Sources that exist because a query named them.
    #[cfg(test)]
    pub(super) fn queried_sources(&self) -> usize {
        self.queried_sources
    }

    pub(super) fn places(&self) -> Range<u32> {
        0..self.groups.capacity() as u32
    }

    pub(super) fn get(&self, place: u32) -> Option<&Group> {
        self.groups.get(place)
    }

    pub(super) fn find(&self, group: Ipv4Addr) -> Option<u32> {
        self.index.get(group_key(group)).copied()
    }

    /// A group without wanted sources; `None` where there is no room.
    pub(super) fn insert(&mut self, address: Ipv4Addr) -> Option<u32> {
        let group = Group {
            address,
            mode: FilterMode::Include,
            mode_repeats: 0,
            queried: QueryScope::Nothing,
            is_last_reporter: false,
            listed: 0,
            first: NIL,
            change_at: Instant::MAX,
            answer_at: Instant::MAX,
            answered: None,
        };
        let place = self.groups.insert(group).ok()?;
        assert!(self.index.insert(group_key(address), place), "a group stands in one place");
        Some(place)
    }

    pub(super) fn remove(&mut self, place: u32) {
        self.retain_sources(place, |_| false);
        if let Some(group) = self.groups.remove(place) {
            self.index.remove(group_key(group.address));
        }
    }

    pub(super) fn sources_of(&self, place: u32) -> impl Iterator<Item = &Source> {
        let mut next = self.groups[place].first;
        core::iter::from_fn(move || {
            let source = self.sources.get(next)?;
            next = source.next;
            Some(source)
        })
    }

    /// Marks the sources of a filter that [`Groups::settle`] then applies. Returns false, and marks
    /// none, where there is no room for them.
    pub(super) fn want(&mut self, place: u32, sources: impl Iterator<Item = Ipv4Addr>) -> bool {
        for address in sources {
            match self.own_source(place, address) {
                Some(source) => self.sources[source].is_wanted = true,
                None => {
                    self.each_source(place, |source| source.is_wanted = false);
                    return false;
                }
            }
        }
        true
    }

    /// Makes the marked sources the filter, and records the change to report: the whole filter
    /// where the mode changes, otherwise the added and removed sources (RFC 3376 5.1), each in
    /// `repeats` reports. With `None` it records no change to report. Returns false where nothing
    /// has changed.
    pub(super) fn settle(&mut self, place: u32, mode: FilterMode, repeats: Option<u8>) -> bool {
        let turns = self.groups[place].mode != mode;
        let mut has_changed = turns;
        let mut listed = 0;
        self.each_source(place, |source| {
            let changes = source.is_listed != source.is_wanted;
            has_changed |= changes;
            if turns {
                source.repeats = 0;
            } else if changes {
                source.repeats = repeats.unwrap_or(0);
            }
            source.is_listed = source.is_wanted;
            source.is_wanted = false;
            listed += u32::from(source.is_listed);
        });
        let group = &mut self.groups[place];
        group.mode = mode;
        group.listed = listed;
        if let Some(repeats) = repeats
            && turns
        {
            group.mode_repeats = repeats;
        }
        self.prune(place);
        has_changed
    }

    /// Schedules a report of the whole group, as if it were new.
    pub(super) fn repeat_all(&mut self, place: u32, robustness: u8) {
        match self.groups[place].mode {
            FilterMode::Exclude => self.groups[place].mode_repeats = robustness,
            FilterMode::Include => self.each_source(place, |source| {
                if source.is_listed {
                    source.repeats = robustness;
                }
            }),
        }
    }

    /// A change was reported once. True where it has to be repeated.
    pub(super) fn count_down(&mut self, place: u32) -> bool {
        let group = &mut self.groups[place];
        group.mode_repeats = group.mode_repeats.saturating_sub(1);
        let mut more = group.mode_repeats > 0;
        self.each_source(place, |source| {
            source.repeats = source.repeats.saturating_sub(1);
            more |= source.repeats > 0;
        });
        self.prune(place);
        more
    }

    pub(super) fn forget_changes(&mut self, place: u32) {
        let group = &mut self.groups[place];
        group.mode_repeats = 0;
        group.change_at = Instant::MAX;
        self.each_source(place, |source| source.repeats = 0);
        self.prune(place);
    }

    /// Marks sources that a query names and that the filter accepts. False where they find no room.
    pub(super) fn ask(&mut self, place: u32, sources: impl Iterator<Item = Ipv4Addr>) -> bool {
        let mode = self.groups[place].mode;
        for address in sources {
            let source = match self.source_index.get(source_key(place, address)) {
                Some(source) => *source,
                // The source is not in the list of the include filter: neither wanted nor reported.
                None if mode == FilterMode::Include => continue,
                None if self.queried_sources == QUERIED_SOURCES_MAX => return false,
                None => {
                    self.queried_sources += 1;
                    self.add_source(place, address, true)
                }
            };
            self.sources[source].is_queried = true;
        }
        true
    }

    pub(super) fn forget_asked(&mut self, place: u32) {
        self.groups[place].queried = QueryScope::Nothing;
        self.each_source(place, |source| source.is_queried = false);
        self.prune(place);
    }

    /// A source of our own filter, added where it is new; `None` where there is no room.
    fn own_source(&mut self, place: u32, address: Ipv4Addr) -> Option<u32> {
        let found = self.source_index.get(source_key(place, address)).copied();
        if let Some(source) = found.filter(|source| !self.sources[*source].is_from_query) {
            return Some(source);
        }
        if self.sources.len() - self.queried_sources == self.sources_max {
            return None;
        }
        let Some(from_query) = found else { return Some(self.add_source(place, address, false)) };
        self.sources[from_query].is_from_query = false;
        self.queried_sources -= 1;
        Some(from_query)
    }

    fn add_source(&mut self, place: u32, address: Ipv4Addr, is_from_query: bool) -> u32 {
        let next = self.groups[place].first;
        let (repeats, is_listed, is_queried, is_wanted) = (0, false, false, false);
        let source = Source { address, repeats, is_listed, is_queried, is_wanted, is_from_query, next };
        let source = self.sources.insert(source).expect("own sources and queried_sources were counted");
        assert!(self.source_index.insert(source_key(place, address), source), "the table is as large as the slab");
        self.groups[place].first = source;
        source
    }

    fn each_source(&mut self, place: u32, mut act: impl FnMut(&mut Source)) {
        let mut next = self.groups[place].first;
        while let Some(source) = self.sources.get_mut(next) {
            act(source);
            next = source.next;
        }
    }

    /// Removes the sources that need no report.
    fn prune(&mut self, place: u32) {
        self.retain_sources(place, |source| source.is_listed || source.is_queried || source.repeats > 0);
    }

    fn retain_sources(&mut self, place: u32, keep: impl Fn(&Source) -> bool) {
        let mut before = NIL;
        let mut idx = self.groups[place].first;
        while let Some(source) = self.sources.get(idx) {
            let (next, address, is_from_query) = (source.next, source.address, source.is_from_query);
            if keep(source) {
                before = idx;
            } else {
                match self.sources.get_mut(before) {
                    Some(before) => before.next = next,
                    None => self.groups[place].first = next,
                }
                self.sources.remove(idx);
                self.source_index.remove(source_key(place, address));
                self.queried_sources -= usize::from(is_from_query);
            }
            idx = next;
        }
    }
}

impl Index<u32> for Groups {
    type Output = Group;
    fn index(&self, place: u32) -> &Group {
        &self.groups[place]
    }
}

impl IndexMut<u32> for Groups {
    fn index_mut(&mut self, place: u32) -> &mut Group {
        &mut self.groups[place]
    }
}
