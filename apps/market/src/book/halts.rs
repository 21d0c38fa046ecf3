//! Which instruments a venue does not trade, as its messages and images have told.

use super::BookIdx;
use super::symbols::Symbols;
use crate::event::{GroupStatus, Instrument, Status};
use crate::units::Symbol;

/// Definitions that are kept for each instrument with a state of its own. A channel of options
/// defines some ten thousands, most of which do not trade on a day.
const DEFINED_PER_PLACE: usize = 8;

/// The halts of a channel's instruments. All memory is allocated at the start; an instrument for
/// which there is no room counts as those of which nothing was told.
///
/// A gap that nothing fills may have the begin or the end of a halt, and the venue then says no
/// more until the next one: the books behind it are stale.
#[derive(Clone, Debug)]
pub struct Halts {
    /// Instruments of which a state of their own was told.
    symbols: Symbols,
    /// Of each instrument of `symbols`.
    halts: Box<[Halt]>,
    /// The group of each, in the same order.
    members: Box<[Member]>,
    /// Other instruments, whose definitions name a group: they have its state.
    defined: Symbols,
    /// Of each instrument of `defined`.
    definitions: Box<[Definition]>,
    /// Groups that states and definitions have named, as many as instruments at most.
    groups: Symbols,
    /// What was told of each group last.
    group_states: Box<[GroupState]>,
    /// Groups that are halted.
    halted_groups: usize,
    /// Of instruments of which nothing was told.
    untold: Halt,
    /// The number of that state.
    untold_number: u64,
    /// All instruments, whatever was told of each.
    is_channel_halted: bool,
    /// Instruments of `halts` that are halted. Mostly none is, and a look at one costs nothing
    /// then.
    halted: usize,
    /// The number of the last state that was told: the later one of an instrument's own and its
    /// group's is what counts, also where the definition that ties the two comes last.
    number: u64,
    /// The number of the last state before the last gap.
    gap_number: u64,
    /// States and groups of instruments for which there is no room.
    refused: u64,
}

/// Why the venue does not trade an instrument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Halt {
    /// By its listing market, everywhere; of venues that do not tell the two apart, in any case.
    is_regulatory: bool,
    /// At this venue alone.
    is_operational: bool,
}

/// Whose states an instrument follows besides its own.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    group: Option<BookIdx>,
    /// The venue has taken it out of its group, until it says otherwise.
    is_apart: bool,
    /// The number of the state that it has; 0 where any state of the group is to be preferred.
    number: u64,
    /// A snapshot has told a halt of that number, which begins when the group is known.
    awaits_group: bool,
}

/// The group of an instrument without a state of its own.
#[derive(Clone, Copy, Debug, Default)]
struct Definition {
    /// Its index.
    group: u32,
    /// Older states of the group are not the instrument's: they may have ended in a gap before it
    /// was defined.
    behind: u64,
}

/// What was told of a group last.
#[derive(Clone, Copy, Debug, Default)]
struct GroupState {
    is_halted: Option<bool>,
    number: u64,
}

impl GroupState {
    /// The state, where it is later than `number`.
    fn behind(self, number: u64) -> Option<bool> {
        self.is_halted.filter(|_| self.number > number)
    }
}

impl Halt {
    /// Halted everywhere, as far as is known.
    const REGULATORY: Self = Self { is_regulatory: true, is_operational: false };

    const fn is_halted(self) -> bool {
        self.is_regulatory | self.is_operational
    }
}

impl Halts {
    /// Room for `capacity` instruments, none of which is halted.
    pub fn new(capacity: usize) -> Self {
        let defined_max = DEFINED_PER_PLACE.saturating_mul(capacity);
        Self {
            symbols: Symbols::new(capacity),
            halts: vec![Halt::default(); capacity].into(),
            members: vec![Member::default(); capacity].into(),
            defined: Symbols::new(defined_max),
            definitions: vec![Definition::default(); defined_max].into(),
            groups: Symbols::new(capacity),
            group_states: vec![GroupState::default(); capacity].into(),
            halted_groups: 0,
            untold: Halt::default(),
            untold_number: 0,
            is_channel_halted: false,
            halted: 0,
            number: 0,
            gap_number: 0,
            refused: 0,
        }
    }

    /// The same for these instruments alone.
    pub fn of(symbols: &[Symbol]) -> Self {
        let mut halts = Self::new(symbols.len());
        symbols.iter().for_each(|symbol| _ = halts.symbols.find_or_insert(*symbol));
        halts
    }

    /// Whether the venue does not trade `symbol`, as far as is known.
    #[inline]
    pub fn is_halted(&self, symbol: Symbol) -> bool {
        self.is_any() && (self.is_channel_halted || self.halt(symbol).is_halted())
    }

    /// States, and groups of definitions, that were left out because there was no room for their
    /// instruments. A definition that comes again counts again.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes a state. Returns whether it halts an instrument that was not halted, or the other way
    /// round.
    #[cold]
    pub fn take(&mut self, status: &Status) -> bool {
        let Status { is_halted, operational, follows_group, .. } = *status;
        if is_halted.is_none() && follows_group.is_none() {
            return false;
        }
        self.number += 1;
        if status.symbol == Symbol::NONE {
            return is_halted.is_some_and(|is_now| self.take_channel(is_now, operational));
        }
        let Some(idx) = self.place(status.symbol) else {
            self.refused += 1;
            return false;
        };
        let of_group = follows_group.and_then(|follows| self.tie(idx, follows));
        let is_changed = of_group.or(is_halted).is_some_and(|is_now| self.set(idx, is_now, operational));
        if follows_group == Some(true) && of_group.is_none() {
            // Its state is that before the one of the group, which is not known yet.
            self.members[idx].number = 0;
        }
        is_changed
    }

    /// Takes the state in a snapshot, which may be that of the group. Where nobody has named the
    /// group yet, a halt begins with the definition only: else the group's next state would not end
    /// it, and without definitions nothing might. Returns what [`Halts::take`] does.
    #[cold]
    pub fn take_snapshot(&mut self, status: &Status) -> bool {
        let is_halt = status.is_halted == Some(true) && status.symbol != Symbol::NONE;
        let Some(idx) = is_halt.then(|| self.place(status.symbol)).flatten() else { return self.take(status) };
        if self.members[idx].group.is_some() {
            return self.take(status);
        }
        self.number += 1;
        (self.members[idx].number, self.members[idx].awaits_group) = (self.number, true);
        false
    }

    /// Takes the state of a group: that of each of its instruments that the venue has not taken
    /// out of it, until they are told another. Returns whether that may change one.
    ///
    /// A state for one instrument is one that was told before of the whole group. That instrument
    /// missed it, or has taken an older state of its own since.
    #[cold]
    pub fn take_group(&mut self, status: &GroupStatus) -> bool {
        let Some(is_now) = status.is_halted else { return false };
        let Some(group) = self.groups.find_or_insert(status.group) else {
            self.refused += 1;
            return false;
        };
        self.number += 1;
        if status.symbol != Symbol::NONE {
            return self.take_group_again(group, is_now, status.symbol);
        }
        let mut is_changed = self.set_group(group, is_now) && self.defined.len() > 0;
        for idx in 0..self.symbols.len() {
            is_changed |= self.follows(idx, group) && self.set(idx, is_now, false);
        }
        is_changed
    }

    fn take_group_again(&mut self, group: BookIdx, is_now: bool, symbol: Symbol) -> bool {
        let known = self.group_states[group.0 as usize];
        let is_new = known.is_halted.is_none() && self.set_group(group, is_now);
        let Some(idx) = self.symbols.find(symbol).map(|idx| idx.0 as usize) else { return is_new };
        let member = &mut self.members[idx];
        if member.group.is_none() && !member.is_apart {
            // Where the definition will name this group, the group's state is the later one.
            member.number = member.number.min(self.group_states[group.0 as usize].number - 1);
        }
        self.follows(idx, group) && self.set(idx, is_now, false)
    }

    /// Keeps the state of a group. Returns whether that may be another one for an instrument
    /// without a state of its own.
    fn set_group(&mut self, group: BookIdx, is_now: bool) -> bool {
        let state = &mut self.group_states[group.0 as usize];
        let before = state.behind(self.untold_number.max(self.gap_number));
        self.halted_groups += usize::from(is_now);
        self.halted_groups -= usize::from(state.is_halted == Some(true));
        *state = GroupState { is_halted: Some(is_now), number: self.number };
        before != Some(is_now)
    }

    fn follows(&self, idx: usize, group: BookIdx) -> bool {
        self.members[idx].group == Some(group) && !self.members[idx].is_apart
    }

    /// Takes the group of an instrument out of its definition. The instrument has the state of its
    /// group where none of its own was told later. Returns whether that changes it.
    #[cold]
    pub fn define(&mut self, instrument: &Instrument) -> bool {
        if instrument.group == Symbol::NONE || instrument.symbol == Symbol::NONE {
            return false;
        }
        let is_changed =
            self.groups.find_or_insert(instrument.group).and_then(|group| match self.symbols.find(instrument.symbol) {
                Some(idx) => Some(self.define_member(idx.0 as usize, group)),
                None => self.define_untold(instrument.symbol, group),
            });
        self.refused += u64::from(is_changed.is_none());
        is_changed == Some(true)
    }

    /// The same of one of which a state of its own was told.
    fn define_member(&mut self, idx: usize, group: BookIdx) -> bool {
        let member = &mut self.members[idx];
        member.group = Some(group);
        let (behind, of_snapshot) = (member.number.max(self.gap_number), member.awaits_group.then_some(true));
        let of_group = self.group_states[group.0 as usize].behind(behind).filter(|_| self.follows(idx, group));
        of_group.or(of_snapshot).is_some_and(|is_now| self.set(idx, is_now, false))
    }

    /// The same of another; `None` where there is no room.
    fn define_untold(&mut self, symbol: Symbol, group: BookIdx) -> Option<bool> {
        let (known, was_halted) = (self.defined.len(), self.untold_of(symbol).0.is_halted());
        let idx = self.defined.find_or_insert(symbol)?.0 as usize;
        let definition = &mut self.definitions[idx];
        if idx == known || definition.group != group.0 {
            *definition = Definition { group: group.0, behind: self.gap_number };
        }
        Some(self.untold_of(symbol).0.is_halted() != was_halted)
    }

    /// An instrument follows its group from now on, whose state is the result where it is known, or
    /// has one of its own.
    fn tie(&mut self, idx: usize, follows: bool) -> Option<bool> {
        let member = &mut self.members[idx];
        member.is_apart = !follows;
        let group = member.group.filter(|_| follows)?;
        self.group_states[group.0 as usize].behind(self.gap_number)
    }

    /// Messages are lost for good. A state of a group may have ended among them: instruments keep
    /// what they have, and no other takes it over. One apart from its group may have come back.
    #[cold]
    pub fn gap(&mut self) {
        self.gap_number = self.number;
        for member in &mut self.members[..self.symbols.len()] {
            (member.is_apart, member.awaits_group) = (false, false);
        }
    }

    /// The place of an instrument.
    fn place(&mut self, symbol: Symbol) -> Option<usize> {
        let (known, (halt, number, group)) = (self.symbols.len(), self.untold_of(symbol));
        let idx = self.symbols.find_or_insert(symbol)?.0 as usize;
        if idx == known {
            self.halts[idx] = halt;
            self.members[idx] = Member { group, number, ..Member::default() };
            self.halted += usize::from(halt.is_halted());
        }
        Some(idx)
    }

    /// What an instrument without a place has: the state, its number, and its group.
    fn untold_of(&self, symbol: Symbol) -> (Halt, u64, Option<BookIdx>) {
        let Some(idx) = self.defined.find(symbol) else { return (self.untold, self.untold_number, None) };
        let Definition { group, behind } = self.definitions[idx.0 as usize];
        let state = self.group_states[group as usize];
        let (halt, number) = match state.behind(behind.max(self.untold_number)) {
            Some(is_regulatory) => (Halt { is_regulatory, ..self.untold }, state.number),
            None => (self.untold, self.untold_number),
        };
        (halt, number, Some(BookIdx(group)))
    }

    /// Returns whether the instrument was not halted and is now, or the other way round.
    fn set(&mut self, idx: usize, is_now: bool, operational: bool) -> bool {
        let (before, halt) = (self.halts[idx], &mut self.halts[idx]);
        if operational {
            halt.is_operational = is_now;
        } else {
            halt.is_regulatory = is_now;
            (self.members[idx].number, self.members[idx].awaits_group) = (self.number, false);
        }
        self.halted = self.halted + usize::from(halt.is_halted()) - usize::from(before.is_halted());
        halt.is_halted() != before.is_halted()
    }

    /// The state of the channel, or of each of its instruments.
    fn take_channel(&mut self, is_now: bool, operational: bool) -> bool {
        if operational {
            core::mem::replace(&mut self.is_channel_halted, is_now) != is_now
        } else {
            self.take_all(is_now)
        }
    }

    /// Each instrument has this state, also those of which nothing was told.
    fn take_all(&mut self, is_now: bool) -> bool {
        let before = (self.halted, self.untold.is_halted());
        let known = self.symbols.len();
        let are_of_groups = self.halted_groups > 0;
        self.halts[..known].iter_mut().chain([&mut self.untold]).for_each(|halt| halt.is_regulatory = is_now);
        self.number_all();
        self.count();
        // All have the same state now, so that the number says whether one has changed. Those of
        // halted groups may have.
        before != (self.halted, self.untold.is_halted()) || are_of_groups
    }

    /// Each instrument has a state of now.
    fn number_all(&mut self) {
        self.untold_number = self.number;
        for member in &mut self.members[..self.symbols.len()] {
            (member.number, member.awaits_group) = (self.number, false);
        }
    }

    /// Takes the states of an image, which are those of one moment and take the place of what was
    /// known of the same instruments. An image without any leaves that: its server does not send
    /// them. `is_untold_halted` says whether an instrument of which an image with states tells
    /// nothing is halted; where not, such an instrument is as it was.
    #[cold]
    pub fn take_image(&mut self, statuses: &[Status], is_untold_halted: bool) {
        if statuses.is_empty() {
            return;
        }
        if is_untold_halted {
            self.untold = Halt::REGULATORY;
            self.halts[..self.symbols.len()].fill(Halt::REGULATORY);
            self.number += 1;
            self.number_all();
            self.count();
        }
        statuses.iter().for_each(|status| _ = self.take(status));
    }

    /// A new session begins: nothing is known to be halted. Instruments keep their groups.
    #[cold]
    pub fn clear(&mut self) {
        self.halts.fill(Halt::default());
        for member in &mut self.members {
            *member = Member { group: member.group, ..Member::default() };
        }
        self.group_states.fill(GroupState::default());
        (self.untold, self.untold_number, self.is_channel_halted) = (Halt::default(), 0, false);
        (self.halted, self.halted_groups) = (0, 0);
    }

    /// Whether some instrument may be halted.
    const fn is_any(&self) -> bool {
        self.halted > 0 || self.halted_groups > 0 || self.untold.is_halted() || self.is_channel_halted
    }

    fn count(&mut self) {
        self.halted = self.halts[..self.symbols.len()].iter().filter(|halt| halt.is_halted()).count();
    }

    fn halt(&self, symbol: Symbol) -> Halt {
        match self.symbols.find(symbol) {
            Some(idx) => self.halts[idx.0 as usize],
            None => self.untold_of(symbol).0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Locate;

    fn status(name: &str, is_halted: impl Into<Option<bool>>, operational: bool) -> Status {
        let (is_halted, symbol) = (is_halted.into(), Symbol::new(name).unwrap_or(Symbol::NONE));
        Status { locate: Locate::default(), state: b'?', is_halted, operational, follows_group: None, at_ns: 0, symbol }
    }

    fn halted(halts: &Halts) -> String {
        ["A", "B", "C"].into_iter().filter(|name| halts.is_halted(Symbol::new(name).unwrap())).collect()
    }

    #[test]
    fn halt_at_the_venue_alone_and_one_everywhere_end_apart() {
        let mut halts = Halts::new(2);
        assert!(halts.take(&status("A", true, false)));
        assert!(!halts.take(&status("A", true, true)), "it is halted twice");
        assert!(!halts.take(&status("A", false, false)));
        assert!(!halts.take(&status("A", None, true)), "a state that says nothing of a halt");
        assert_eq!(halted(&halts), "A");
        assert!(halts.take(&status("A", false, true)));
        assert_eq!(halted(&halts), "");
    }

    #[test]
    fn instruments_without_room_are_left_out_and_a_copy_has_the_room_of_the_first() {
        let mut halts = Halts::new(2).clone();
        for name in ["A", "B", "C"] {
            halts.take(&status(name, true, false));
        }
        assert_eq!((halted(&halts).as_str(), halts.refused()), ("AB", 1));
        let mut ours = Halts::of(&[Symbol::new("C").unwrap()]);
        assert_eq!(["A", "C"].map(|name| ours.take(&status(name, true, false))), [false, true]);
    }

    #[test]
    fn halt_of_the_channel_is_one_of_each_instrument_and_ends_none_of_theirs() {
        let mut halts = Halts::new(4);
        halts.take(&status("B", true, false));
        assert!(halts.take(&status("", true, true)));
        assert_eq!(halted(&halts), "ABC");
        halts.take(&status("B", false, false));
        halts.take(&status("C", true, false));
        assert!(halts.take(&status("", false, true)));
        assert_eq!(halted(&halts), "C");
        halts.clear();
        assert_eq!(halted(&halts), "");
    }

    #[test]
    fn state_of_all_instruments_takes_the_place_of_that_of_each() {
        let mut halts = Halts::new(4);
        halts.take(&status("B", true, false));
        halts.take(&status("C", true, true));
        assert!(halts.take(&status("", true, false)));
        assert!(!halts.take(&status("", true, false)));
        assert_eq!(halted(&halts), "ABC");
        assert!(halts.take(&status("A", false, false)));
        assert_eq!(halted(&halts), "BC");
        assert!(halts.take(&status("", false, false)));
        assert_eq!(halted(&halts), "C", "it is halted at the venue alone");
    }

    fn of_group(group: &str, is_halted: impl Into<Option<bool>>, symbol: &str) -> GroupStatus {
        let named = |name| Symbol::new(name).unwrap_or(Symbol::NONE);
        let (is_halted, group, symbol) = (is_halted.into(), named(group), named(symbol));
        GroupStatus { state: 0, is_halted, at_ns: 0, group, symbol }
    }

    fn definition(name: &str, group: &str) -> Instrument {
        Instrument {
            depth: 0,
            implied_depth: 0,
            action: b'A',
            total: 0,
            at_ns: 0,
            symbol: Symbol::new(name).unwrap(),
            tick: crate::units::Price9(0),
            name: Symbol::NONE,
            group: Symbol::new(group).unwrap_or(Symbol::NONE),
        }
    }

    /// Room for four instruments, of which A and B are of a group, and C of another.
    fn grouped() -> Halts {
        let mut halts = Halts::new(4);
        for (name, group) in [("A", "G"), ("B", "G"), ("C", "H")] {
            halts.define(&definition(name, group));
        }
        halts
    }

    #[test]
    fn state_of_a_group_is_that_of_each_of_its_instruments_until_another_is_told() {
        let mut halts = grouped();
        assert!(halts.take_group(&of_group("G", true, "")));
        assert!(!halts.take_group(&of_group("G", true, "")));
        assert_eq!(halted(&halts), "AB");
        assert!(!halts.take_group(&of_group("G", None, "")), "a state that says nothing of a halt");
        assert!(halts.take(&status("A", false, false)));
        assert_eq!(halted(&halts), "B");
        halts.take(&status("B", true, true));
        halts.take_group(&of_group("G", false, ""));
        assert_eq!(halted(&halts), "B", "it is halted at the venue alone");
        halts.take(&status("B", false, true));
        assert_eq!(halted(&halts), "");
    }

    #[test]
    fn instrument_apart_from_its_group_has_its_own_state_until_it_follows_again() {
        let mut halts = grouped();
        halts.take(&Status { follows_group: Some(false), ..status("A", false, false) });
        halts.take_group(&of_group("G", true, ""));
        assert_eq!(halted(&halts), "B");
        // What it says is the state before that of the group.
        assert!(halts.take(&Status { follows_group: Some(true), ..status("A", false, false) }));
        assert_eq!(halted(&halts), "AB");
        halts.take_group(&of_group("G", false, ""));
        assert_eq!(halted(&halts), "");
        // Of a group of which nothing was told it has its own.
        halts.take(&Status { follows_group: Some(true), ..status("C", true, false) });
        assert_eq!(halted(&halts), "C");
    }

    #[test]
    fn group_that_is_told_before_its_instruments_are_defined_halts_those_without_a_state() {
        let mut halts = Halts::new(4);
        assert!(!halts.take_group(&of_group("G", true, "")));
        halts.take(&status("A", false, false));
        assert!(!halts.define(&definition("A", "G")), "its own state was told");
        assert!(halts.define(&definition("B", "G")));
        assert!(!halts.define(&definition("B", "G")), "the loop says it again");
        assert!(!halts.define(&definition("C", "")));
        assert_eq!(halted(&halts), "B");
        halts.clear();
        assert_eq!(halted(&halts), "");
        halts.take_group(&of_group("G", true, ""));
        assert_eq!(halted(&halts), "AB", "a new session leaves groups");
    }

    #[test]
    fn state_of_a_group_for_one_instrument_is_no_other_instruments() {
        let mut halts = grouped();
        halts.take_group(&of_group("G", true, ""));
        halts.take(&status("A", false, false));
        halts.take(&status("B", false, false));
        halts.take(&status("C", false, false));
        assert!(halts.take_group(&of_group("G", true, "B")));
        assert!(!halts.take_group(&of_group("G", true, "C")));
        assert_eq!(halted(&halts), "B");
        halts.take_group(&of_group("G", true, "D"));
        assert_eq!((halted(&halts).as_str(), halts.refused()), ("B", 0));
    }

    #[test]
    fn groups_and_their_instruments_without_room_are_left_out() {
        let mut halts = Halts::new(1);
        halts.take_group(&of_group("G", true, ""));
        halts.take_group(&of_group("H", true, ""));
        assert_eq!(halts.refused(), 1);
        for name in ["A", "P1", "P2", "P3", "P4", "P5", "P6", "P7"] {
            assert!(halts.define(&definition(name, "G")));
        }
        assert!(!halts.define(&definition("B", "G")));
        assert_eq!((halted(&halts).as_str(), halts.refused()), ("A", 2), "of B nobody knows it");
        assert!(!halts.define(&definition("A", "H")));
        assert_eq!((halted(&halts).as_str(), halts.refused()), ("A", 3), "there is no room for H");
    }

    #[test]
    fn definitions_take_no_place_of_an_instrument_with_a_state_of_its_own() {
        let mut halts = Halts::new(1);
        for name in ["P1", "P2", "P3", "P4"] {
            halts.define(&definition(name, "G"));
        }
        assert!(halts.take(&status("A", true, false)));
        assert_eq!((halted(&halts).as_str(), halts.refused()), ("A", 0));
        assert!(halts.take_group(&of_group("G", true, "")));
        assert!(halts.is_halted(Symbol::new("P4").unwrap()));
    }

    #[test]
    fn later_of_an_own_state_and_the_groups_counts_where_the_definition_comes_last() {
        for is_halted in [true, false] {
            let mut halts = Halts::new(4);
            halts.take(&status("A", !is_halted, false));
            halts.take_group(&of_group("G", is_halted, ""));
            halts.take(&status("B", !is_halted, false));
            ["A", "B"].iter().for_each(|name| _ = halts.define(&definition(name, "G")));
            assert_eq!(["A", "B"].map(|name| halts.is_halted(Symbol::new(name).unwrap())), [is_halted, !is_halted]);
            halts.take(&status("", !is_halted, false));
            halts.define(&definition("C", "G"));
            assert_eq!(halted(&halts), if is_halted { "" } else { "ABC" }, "that of all is later");
        }
    }

    /// A snapshot brings a state of before, and what was told behind it is told again.
    #[test]
    fn state_of_a_group_that_is_told_again_is_later_than_that_of_the_snapshot() {
        let mut halts = Halts::new(4);
        halts.take_group(&of_group("G", true, ""));
        halts.take_group(&of_group("H", true, ""));
        halts.take(&status("B", false, false));
        halts.take(&status("A", false, false));
        ["G", "H"].iter().for_each(|group| _ = halts.take_group(&of_group(group, true, "A")));
        ["A", "B"].iter().for_each(|name| _ = halts.define(&definition(name, "G")));
        assert_eq!(halted(&halts), "A");
    }

    #[test]
    fn halt_of_a_snapshot_begins_where_the_group_is_known_and_ends_with_the_groups() {
        let mut halts = grouped();
        assert!(halts.take_snapshot(&status("A", true, false)));
        assert!(halts.take_group(&of_group("G", false, "")));
        assert_eq!(halted(&halts), "");
        assert!(halts.take_snapshot(&status("A", true, false)));
        assert!(halts.take_snapshot(&status("A", false, false)));
        assert_eq!(halted(&halts), "");
    }

    #[test]
    fn halt_of_a_snapshot_awaits_the_definition_that_names_the_group() {
        for told_since in [None, Some(status("A", false, false))] {
            let mut halts = Halts::new(4);
            halts.take_group(&of_group("G", false, ""));
            assert!(!halts.take_snapshot(&status("A", true, false)), "nothing might end it");
            told_since.iter().for_each(|status| _ = halts.take(status));
            assert_eq!(halts.define(&definition("A", "G")), told_since.is_none());
            assert_eq!(halted(&halts).is_empty(), told_since.is_some());
        }
        let mut halts = Halts::new(4);
        halts.take_snapshot(&status("A", true, false));
        halts.take_group(&of_group("G", false, ""));
        assert!(!halts.define(&definition("A", "G")), "the group trades since");
        halts.take_snapshot(&status("B", true, false));
        halts.gap();
        assert!(!halts.define(&definition("B", "G")), "that may have been lost");
    }

    #[test]
    fn halt_of_a_group_before_a_gap_is_no_later_instruments_and_nobody_is_apart_behind_it() {
        let mut halts = grouped();
        halts.take_group(&of_group("G", true, ""));
        halts.take(&Status { follows_group: Some(false), ..status("B", false, false) });
        halts.gap();
        assert!(!halts.define(&definition("D", "G")), "the group may trade again");
        assert!(!halts.define(&definition("A", "G")), "the loop says it again");
        assert_eq!(halted(&halts), "A", "it keeps what it has");
        halts.take(&Status { follows_group: Some(true), ..status("A", false, false) });
        assert_eq!(halted(&halts), "", "what it says is newer than the group's");
        assert!(halts.take_group(&of_group("G", true, "")));
        assert_eq!(halted(&halts), "AB");
        assert!(halts.is_halted(Symbol::new("D").unwrap()));
    }

    #[test]
    fn instrument_that_follows_a_group_before_its_definition_has_the_groups_state_behind_it() {
        let mut halts = Halts::new(4);
        halts.take_group(&of_group("G", true, ""));
        halts.take(&Status { follows_group: Some(true), ..status("A", false, false) });
        assert!(halts.define(&definition("A", "G")));
        assert_eq!(halted(&halts), "A");
    }

    #[test]
    fn nothing_is_looked_up_once_the_last_halt_has_ended() {
        let mut halts = Halts::new(4);
        halts.take_image(&[status("A", false, false)], true);
        assert!(halts.is_any(), "of others nothing was told");
        halts.clear();
        for (name, is_halted, operational) in
            [("A", true, false), ("A", true, true), ("B", true, false), ("A", false, true), ("A", false, false)]
        {
            halts.take(&status(name, is_halted, operational));
            assert!(halts.is_any());
        }
        halts.take(&status("B", false, false));
        assert!(!halts.is_any());
        halts.take(&status("", true, true));
        halts.take(&status("C", false, true));
        assert!(halts.is_any());
        halts.take(&status("", false, true));
        assert!(!halts.is_any());
    }

    #[test]
    fn image_with_states_takes_the_place_of_what_was_known_and_one_without_leaves_it() {
        let mut halts = Halts::new(4);
        halts.take(&status("A", true, false));
        halts.take(&status("B", true, true));
        halts.take_image(&[], true);
        assert_eq!(halted(&halts), "AB");
        halts.take_image(&[status("A", false, false)], false);
        assert_eq!(halted(&halts), "B");
        halts.take_image(&[status("A", false, false), status("B", false, false)], true);
        assert_eq!(halted(&halts), "C", "nothing was told of it");
        halts.take(&status("C", false, true));
        assert_eq!(halted(&halts), "C", "it is halted everywhere");
        halts.take(&status("C", false, false));
        assert_eq!(halted(&halts), "");
    }
}
