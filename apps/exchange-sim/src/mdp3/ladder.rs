//! The published levels of one side, and what changes them.

use market::Side;

/// Levels that are published.
pub(super) const DEPTH: usize = 10;

/// One price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Level {
    /// With nine decimals.
    pub(super) price: i64,
    pub(super) qty: u64,
    pub(super) orders: u32,
}

/// What a venue says of a level: its number is that of MDP 3.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    New = 0,
    Change = 1,
    Delete = 2,
}

/// The levels of a side, the best first.
#[derive(Clone, Debug)]
pub(super) struct Ladder {
    side: Side,
    levels: Vec<Level>,
}

impl Ladder {
    pub(super) fn new(side: Side) -> Self {
        Self { side, levels: Vec::with_capacity(DEPTH) }
    }

    pub(super) fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Makes `levels` the ladder's, and passes the steps to there to `each`, with positions from 1.
    ///
    /// A level that better ones push beyond the last is not spoken of, and one that comes up behind
    /// a deleted one is new, as CME does both.
    pub(super) fn update(&mut self, levels: Vec<Level>, mut each: impl FnMut(Step, usize, Level)) {
        let is_pushed_out = |old: &Level| {
            levels.len() == DEPTH && levels.last().is_some_and(|last| self.is_better(last.price, old.price))
        };
        let mut left = self.levels.clone();
        // The last first, so that the positions before it stay as they are.
        for idx in (0..left.len()).rev() {
            let old = left[idx];
            if !levels.iter().any(|new| new.price == old.price) && !is_pushed_out(&old) {
                each(Step::Delete, idx + 1, old);
                left.remove(idx);
            }
        }
        for (idx, &level) in levels.iter().enumerate() {
            match left.get(idx).filter(|old| old.price == level.price) {
                None => {
                    left.insert(idx, level);
                    each(Step::New, idx + 1, level);
                }
                Some(&old) if old != level => each(Step::Change, idx + 1, level),
                Some(_) => {}
            }
        }
        self.levels = levels;
    }

    fn is_better(&self, price: i64, other: i64) -> bool {
        match self.side {
            Side::Buy => price > other,
            Side::Sell => price < other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(prices: &[i64]) -> Vec<Level> {
        prices.iter().map(|&price| Level { price, qty: 100, orders: 1 }).collect()
    }

    /// The steps from one list of bids to another, as `N3 98`: new at 3, price 98.
    fn steps(from: &[i64], to: &[i64]) -> Vec<String> {
        let mut ladder = Ladder { side: Side::Buy, levels: levels(from) };
        let mut steps = Vec::new();
        ladder.update(levels(to), |step, position, level| {
            steps.push(format!("{}{position} {}", &format!("{step:?}")[..1], level.price));
        });
        steps
    }

    const FULL: [i64; DEPTH] = [20, 19, 18, 17, 16, 15, 14, 13, 12, 11];

    #[test]
    fn new_level_of_a_full_side_pushes_the_last_out_without_a_word() {
        let better = [21, 20, 19, 18, 17, 16, 15, 14, 13, 12];
        assert_eq!(steps(&FULL, &better), ["N1 21"]);
        assert_eq!(steps(&better, &FULL), ["D1 21", "N10 11"], "and it comes up again as a new one");
    }

    #[test]
    fn last_level_that_is_gone_is_deleted_although_another_comes_up() {
        let next = [20, 19, 18, 17, 16, 15, 14, 13, 12, 10];
        assert_eq!(steps(&FULL, &next), ["D10 11", "N10 10"]);
    }

    #[test]
    fn levels_come_and_go_at_their_positions() {
        assert_eq!(steps(&[], &[20, 18]), ["N1 20", "N2 18"]);
        assert_eq!(steps(&[20, 19, 18], &[19]), ["D3 18", "D1 20"]);
        assert_eq!(steps(&[20, 18], &[20, 19, 18]), ["N2 19"]);
        assert_eq!(steps(&[20], &[20]), [""; 0]);
    }

    #[test]
    fn level_with_another_quantity_has_changed() {
        let mut ladder = Ladder { side: Side::Sell, levels: levels(&[5, 6]) };
        let mut steps = Vec::new();
        let levels = vec![levels(&[5])[0], Level { price: 6, qty: 50, orders: 1 }];
        ladder.update(levels, |step, position, level| steps.push((step, position, level.qty)));
        assert_eq!(steps, [(Step::Change, 2, 50)]);
    }
}
