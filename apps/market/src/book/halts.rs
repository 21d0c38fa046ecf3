//! Which instruments a venue does not trade, as its messages and images have told.

use super::BookIdx;
use super::symbols::Symbols;
use crate::event::{GroupStatus, Instrument, Status};
use crate::units::Symbol;

/// The halts of a channel's instruments. All memory is allocated at the start; an instrument for
/// which there is no room counts as those of which nothing was told.
///
/// A gap that nothing fills may have the begin or the end of a halt, and the venue then says no
/// more until the next one: the books behind it are stale.
#[derive(Clone, Debug)]
pub struct Halts {
    symbols: Symbols,
    /// Of each instrument of `symbols`.
    halts: Box<[Halt]>,
    /// The group of each, in the same order.
    members: Box<[Member]>,
    /// Groups that states and definitions have named, as many as instruments at most.
    groups: Symbols,
    /// What was told of each group last.
    group_halts: Box<[Option<bool>]>,
    /// Of instruments of which nothing was told.
    untold: Halt,
    /// All instruments, whatever was told of each.
    is_channel_halted: bool,
    /// Instruments of `halts` that are halted. Mostly none is, and a look at one costs nothing
    /// then.
    halted: usize,
    /// States of instruments for which there is no room.
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
        Self {
            symbols: Symbols::new(capacity),
            halts: vec![Halt::default(); capacity].into(),
            members: vec![Member::default(); capacity].into(),
            groups: Symbols::new(capacity),
            group_halts: vec![None; capacity].into(),
            untold: Halt::default(),
            is_channel_halted: false,
            halted: 0,
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

    /// States that were left out because there was no room for their instruments.
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
        if status.symbol == Symbol::NONE {
            return is_halted.is_some_and(|is_now| self.take_channel(is_now, operational));
        }
        let Some((idx, _)) = self.place(status.symbol) else {
            self.refused += 1;
            return false;
        };
        let of_group = follows_group.and_then(|follows| self.tie(idx, follows));
        of_group.or(is_halted).is_some_and(|is_now| self.set(idx, is_now, operational))
    }

    /// Takes the state of a group: that of each of its instruments that the venue has not taken
    /// out of it, until they are told another. Returns whether that changes one.
    #[cold]
    pub fn take_group(&mut self, status: &GroupStatus) -> bool {
        let Some(is_now) = status.is_halted else { return false };
        let Some(group) = self.groups.find_or_insert(status.group) else {
            self.refused += 1;
            return false;
        };
        self.group_halts[group.0 as usize] = Some(is_now);
        let meant = match status.symbol {
            Symbol::NONE => 0..self.symbols.len(),
            one => self.symbols.find(one).map_or(0..0, |idx| idx.0 as usize..idx.0 as usize + 1),
        };
        let mut is_changed = false;
        for idx in meant {
            let Member { group: of, is_apart } = self.members[idx];
            is_changed |= of == Some(group) && !is_apart && self.set(idx, is_now, false);
        }
        is_changed
    }

    /// Takes the group of an instrument out of its definition. One of which nothing was told has
    /// the state of its group. Returns whether that changes it.
    #[cold]
    pub fn define(&mut self, instrument: &Instrument) -> bool {
        if instrument.group == Symbol::NONE || instrument.symbol == Symbol::NONE {
            return false;
        }
        let Some(group) = self.groups.find_or_insert(instrument.group) else { return false };
        let Some((idx, is_new)) = self.place(instrument.symbol) else { return false };
        self.members[idx].group = Some(group);
        let of_group = self.group_halts[group.0 as usize].filter(|_| is_new);
        of_group.is_some_and(|is_now| self.set(idx, is_now, false))
    }

    /// An instrument follows its group from now on, whose state is the result where it is known, or
    /// has one of its own.
    fn tie(&mut self, idx: usize, follows: bool) -> Option<bool> {
        let member = &mut self.members[idx];
        member.is_apart = !follows;
        member.group.filter(|_| follows).and_then(|group| self.group_halts[group.0 as usize])
    }

    /// The place of an instrument, and whether it is a new one.
    fn place(&mut self, symbol: Symbol) -> Option<(usize, bool)> {
        let known = self.symbols.len();
        let idx = self.symbols.find_or_insert(symbol)?.0 as usize;
        if idx == known {
            self.halts[idx] = self.untold;
            self.halted += usize::from(self.untold.is_halted());
        }
        Some((idx, idx == known))
    }

    /// Returns whether the instrument was not halted and is now, or the other way round.
    fn set(&mut self, idx: usize, is_now: bool, operational: bool) -> bool {
        let (before, halt) = (self.halts[idx], &mut self.halts[idx]);
        if operational {
            halt.is_operational = is_now;
        } else {
            halt.is_regulatory = is_now;
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
        self.halts[..known].iter_mut().chain([&mut self.untold]).for_each(|halt| halt.is_regulatory = is_now);
        self.count();
        // All have the same state now, so that the number says whether one has changed.
        before != (self.halted, self.untold.is_halted())
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
            self.count();
        }
        statuses.iter().for_each(|status| _ = self.take(status));
    }

    /// A new session begins: nothing is known to be halted. Instruments keep their groups.
    #[cold]
    pub fn clear(&mut self) {
        self.halts.fill(Halt::default());
        self.members.iter_mut().for_each(|member| member.is_apart = false);
        self.group_halts.fill(None);
        (self.untold, self.is_channel_halted, self.halted) = (Halt::default(), false, 0);
    }

    /// Whether some instrument may be halted.
    const fn is_any(&self) -> bool {
        self.halted > 0 || self.untold.is_halted() || self.is_channel_halted
    }

    fn count(&mut self) {
        self.halted = self.halts[..self.symbols.len()].iter().filter(|halt| halt.is_halted()).count();
    }

    fn halt(&self, symbol: Symbol) -> Halt {
        self.symbols.find(symbol).map_or(self.untold, |idx| self.halts[idx.0 as usize])
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
        assert!(!halts.take_group(&of_group("G", false, "")), "it is halted at the venue alone");
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
        halts.take_group(&of_group("G", true, "B"));
        halts.take_group(&of_group("G", true, "C"));
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
        assert!(halts.define(&definition("A", "G")));
        assert!(!halts.define(&definition("B", "G")));
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
