//! The reassembly machine compared with a model that keeps datagrams in a list and searches all of
//! it each time. Both must keep, complete and drop the same fragments for the same reasons, and no
//! payload is lost or returned twice.

use std::collections::BTreeSet;

use wirepath::proto::{HashSeed, ReassemblyCapacity};
use wirepath::testing::proto::{DATAGRAM_PAYLOAD_MAX, EXPIRED_PER_TICK_MAX};
use wirepath::testing::proto::{Fragment, FragmentKey, Outcome, Reassembly, ReassemblyDrop, Released};
use wirepath::time::{Duration, Instant};

use crate::fuzz::Input;

const TIMEOUT: Duration = Duration::from_nanos(100);
const DATAGRAMS: usize = 3;
const PIECES: usize = 8;
const PIECES_PER_DATAGRAM: usize = 5;

/// Fragments of a few datagrams, with time passing.
pub(in crate::fuzz) fn reassembly(data: &[u8]) {
    let mut input = Input::new(data);
    let capacity =
        ReassemblyCapacity { datagrams: DATAGRAMS, pieces: PIECES, pieces_per_datagram: PIECES_PER_DATAGRAM };
    let mut machine: Reassembly<u32> = Reassembly::new(capacity, TIMEOUT, HashSeed::new(7, 9));
    let mut model = Model::default();
    let mut now = Instant::ZERO;
    for handle in 0.. {
        if input.is_empty() {
            break;
        }
        now += Duration::from_nanos(input.pick(&[0, 0, 1, 10, 60, 200]));
        let mut released = Vec::new();
        if input.below(8) == 0 {
            machine.tick(now, &mut |one| released.push(one));
            assert_eq!(sorted(released), sorted(model.tick(now)));
        } else {
            push(&mut machine, &mut model, fragment(&mut input, handle), now);
        }
        assert_eq!((machine.datagrams(), machine.held()), (model.datagrams.len(), model.held()));
        assert_eq!(machine.deadline(), model.datagrams.first().map(|datagram| datagram.deadline));
    }
    let mut released = Vec::new();
    machine.tick(Instant::MAX, &mut |one| released.push(one));
    assert_eq!(sorted(released), sorted(model.tick(Instant::MAX)));
    assert_eq!((machine.datagrams(), machine.held(), machine.deadline()), (0, 0, None));
}

fn push(machine: &mut Reassembly<u32>, model: &mut Model, fragment: Fragment<u32>, now: Instant) {
    let mut released = Vec::new();
    let outcome = match machine.push(fragment, now, &mut |one| released.push(one)) {
        Outcome::Kept => Expected::Kept,
        Outcome::Dropped(reason) => Expected::Dropped(reason),
        Outcome::Complete(pieces) => Expected::Complete(pieces.datagram_len(), pieces.collect()),
    };
    let (expected, expected_released) = model.push(fragment, now);
    assert_eq!(outcome, expected, "{fragment:?}");
    assert_eq!(sorted(released), sorted(expected_released), "{fragment:?}");
}

fn fragment(input: &mut Input<'_>, handle: u32) -> Fragment<u32> {
    let key = FragmentKey {
        source: 1.into(),
        destination: 2.into(),
        protocol: 17,
        identification: input.below(5).into(),
        scope: u32::from(input.below(8) / 7),
    };
    let (offset, len) = match input.below(16) {
        0 => (input.u16(), input.u16()),
        1 => (65_512, input.u16()),
        _ => (u16::from(input.below(6)) * 8, u16::from(input.below(3) + 1) * 8),
    };
    Fragment { key, offset, len, more: input.below(4) > 0, handle }
}

fn sorted(mut released: Vec<Released<u32>>) -> Vec<(u32, u16, ReassemblyDrop)> {
    released.sort_by_key(|one| one.handle);
    let handles: BTreeSet<_> = released.iter().map(|one| one.handle).collect();
    assert_eq!(handles.len(), released.len(), "a payload came back twice");
    released.into_iter().map(|one| (one.handle, one.offset, one.reason)).collect()
}

#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Kept,
    Dropped(ReassemblyDrop),
    Complete(usize, Vec<u32>),
}

/// Datagrams, the oldest first.
#[derive(Default)]
struct Model {
    datagrams: Vec<Datagram>,
}

struct Datagram {
    key: FragmentKey,
    deadline: Instant,
    pieces: Vec<Fragment<u32>>,
}

impl Datagram {
    /// Where it ends, if the last fragment is here.
    fn end(&self) -> Option<u32> {
        self.pieces.iter().find(|piece| !piece.more).map(end)
    }

    fn release(self, reason: ReassemblyDrop) -> impl Iterator<Item = Released<u32>> {
        self.pieces.into_iter().map(move |piece| Released { handle: piece.handle, reason, offset: piece.offset })
    }

    /// The conflict of the fragment with those that are here, if any.
    fn judge(&self, fragment: &Fragment<u32>) -> Option<ReassemblyDrop> {
        let (start, end_new) = (u32::from(fragment.offset), end(fragment));
        let same = |piece: &&Fragment<u32>| {
            (piece.offset, piece.len, piece.more) == (fragment.offset, fragment.len, fragment.more)
        };
        if self.pieces.iter().any(|piece| same(&piece)) {
            return Some(ReassemblyDrop::Duplicate);
        }
        let reaches = self.pieces.iter().map(end).max().unwrap_or(0);
        let conflict = match (fragment.more, self.end()) {
            (true, Some(known)) => end_new >= known,
            (true, None) => false,
            (false, Some(known)) => end_new != known,
            (false, None) => end_new < reaches,
        };
        if conflict {
            return Some(ReassemblyDrop::LengthConflict);
        }
        if self.pieces.iter().any(|piece| u32::from(piece.offset) < end_new && start < end(piece)) {
            return Some(ReassemblyDrop::Overlap);
        }
        (self.pieces.len() == PIECES_PER_DATAGRAM).then_some(ReassemblyDrop::TooManyFragments)
    }
}

fn end(piece: &Fragment<u32>) -> u32 {
    u32::from(piece.offset) + u32::from(piece.len)
}

impl Model {
    fn held(&self) -> usize {
        self.datagrams.iter().map(|datagram| datagram.pieces.len()).sum()
    }

    fn tick(&mut self, now: Instant) -> Vec<Released<u32>> {
        let late = self.datagrams.iter().take_while(|datagram| datagram.deadline <= now).count();
        let late = self.datagrams.drain(..late.min(EXPIRED_PER_TICK_MAX));
        late.flat_map(|datagram| datagram.release(ReassemblyDrop::Timeout)).collect()
    }

    fn push(&mut self, fragment: Fragment<u32>, now: Instant) -> (Expected, Vec<Released<u32>>) {
        let mut released = Vec::new();
        let alone = |reason| Released { handle: fragment.handle, reason, offset: fragment.offset };
        if let Some(reason) = malformed(&fragment) {
            return (Expected::Dropped(reason), vec![alone(reason)]);
        }
        let place = self.open(fragment.key, now, &mut released);
        if let Some(reason) = self.datagrams[place].judge(&fragment) {
            released.push(alone(reason));
            if reason != ReassemblyDrop::Duplicate {
                released.extend(self.datagrams.remove(place).release(reason));
            }
            return (Expected::Dropped(reason), released);
        }
        let place = self.make_room(place, &mut released);
        let datagram = &mut self.datagrams[place];
        datagram.pieces.push(fragment);
        datagram.pieces.sort_by_key(|piece| piece.offset);
        let held: u32 = datagram.pieces.iter().map(|piece| u32::from(piece.len)).sum();
        if datagram.end() != Some(held) {
            return (Expected::Kept, released);
        }
        let whole = self.datagrams.remove(place);
        (Expected::Complete(held as usize, whole.pieces.iter().map(|piece| piece.handle).collect()), released)
    }

    fn open(&mut self, key: FragmentKey, now: Instant, released: &mut Vec<Released<u32>>) -> usize {
        if let Some(place) = self.datagrams.iter().position(|datagram| datagram.key == key) {
            if now < self.datagrams[place].deadline {
                return place;
            }
            released.extend(self.datagrams.remove(place).release(ReassemblyDrop::Timeout));
        }
        if self.datagrams.len() == DATAGRAMS {
            released.extend(self.datagrams.remove(0).release(ReassemblyDrop::Evicted));
        }
        self.datagrams.push(Datagram { key, deadline: now + TIMEOUT, pieces: Vec::new() });
        self.datagrams.len() - 1
    }

    /// The oldest datagram but the one at `place` goes where no piece is free; returns the place
    /// afterwards.
    fn make_room(&mut self, place: usize, released: &mut Vec<Released<u32>>) -> usize {
        if self.held() < PIECES {
            return place;
        }
        let victim = usize::from(place == 0);
        released.extend(self.datagrams.remove(victim).release(ReassemblyDrop::Evicted));
        place - usize::from(victim < place)
    }
}

fn malformed(fragment: &Fragment<u32>) -> Option<ReassemblyDrop> {
    if fragment.len == 0 {
        return Some(ReassemblyDrop::ZeroLength);
    }
    if !fragment.offset.is_multiple_of(8) || (fragment.more && !fragment.len.is_multiple_of(8)) {
        return Some(ReassemblyDrop::NotMultipleOf8);
    }
    (end(fragment) as usize > DATAGRAM_PAYLOAD_MAX).then_some(ReassemblyDrop::Oversize)
}
