//! The listed symbols: names, first prices, parameters, and their share of trading.

use std::collections::BTreeSet;

use market::{Locate, Symbol};

use super::book::Book;
use crate::random::Random;

/// One listed stock with its book.
#[derive(Debug)]
pub(super) struct Stock {
    pub symbol: Symbol,
    pub locate: Locate,
    pub book: Book,
    /// The market's current estimate of the price, in cents. Orders rest around it.
    pub mid: u32,
    /// The first price of the day; the walk stays between half and twice of it.
    pub reference_price: u32,
    /// Distance of the nearest orders from `mid`, in cents.
    pub half_spread: u32,
    /// Distance between levels, in cents.
    pub level_step: u32,
    /// The number of orders on a side that the model tends to.
    pub depth: usize,
}

/// Lists `count` stocks under new random names, sorted by name as Nasdaq's directory is.
pub(super) fn list(count: u16, random: &mut Random) -> Vec<Stock> {
    names(count, random).into_iter().zip(1..).map(|(symbol, locate)| stock(symbol, Locate(locate), random)).collect()
}

fn names(count: u16, random: &mut Random) -> BTreeSet<Symbol> {
    let mut names = BTreeSet::new();
    while names.len() < usize::from(count) {
        let mut name = [b' '; 8];
        // Of 10,000 symbols at most, four letters (456,976 names) leave room to find a free one
        // quickly.
        let len = if random.chance(0.4) { 3 } else { 4 };
        for letter in &mut name[..len] {
            *letter = b'A' + random.below(26) as u8;
        }
        names.insert(Symbol(name));
    }
    names
}

/// Prices spread evenly over the powers of two from $5 to $640; expensive stocks have wider spreads
/// and sparser levels.
fn stock(symbol: Symbol, locate: Locate, random: &mut Random) -> Stock {
    let octave = random.below(7) as u32;
    let low = 500 << octave;
    let price = low + random.below(u64::from(low)) as u32;
    Stock {
        symbol,
        locate,
        book: Book::default(),
        mid: price,
        reference_price: price,
        half_spread: 1 + octave / 2 + random.below(2) as u32,
        level_step: 1 + octave / 3,
        depth: 20 + random.below(60) as usize,
    }
}

/// Draws stocks by a Zipf law: the stock of rank r is drawn in proportion to 1 / r.
#[derive(Debug)]
pub(super) struct Popularity {
    /// Sums of the weights, by rank.
    sums: Vec<f64>,
    /// The stock of each rank.
    stock_idx: Vec<usize>,
}

impl Popularity {
    pub(super) fn new(count: usize, random: &mut Random) -> Self {
        let mut total = 0.0;
        let sums = (1..=count)
            .map(|rank| {
                total += 1.0 / rank as f64;
                total
            })
            .collect();
        let mut stock_idx: Vec<usize> = (0..count).collect();
        // Fisher and Yates: the names are sorted, the ranks must not be.
        for idx in (1..count).rev() {
            stock_idx.swap(idx, random.below(idx as u64 + 1) as usize);
        }
        Self { sums, stock_idx }
    }

    /// Position of a stock. Costs a binary search.
    pub(super) fn draw(&self, random: &mut Random) -> usize {
        let last = self.sums.len() - 1;
        let at = random.unit() * self.sums[last];
        self.stock_idx[self.sums.partition_point(|&sum| sum <= at).min(last)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_listing_has_unique_sorted_names() {
        let stocks = list(10_000, &mut Random::new(3, 0));
        assert_eq!(stocks.len(), 10_000);
        assert!(stocks.is_sorted_by(|a, b| a.symbol < b.symbol && a.locate < b.locate));
    }

    #[test]
    fn activity_falls_with_rank() {
        let mut random = Random::new(3, 0);
        let popularity = Popularity::new(100, &mut random);
        let mut drawn = [0u32; 100];
        for _ in 0..100_000 {
            drawn[popularity.draw(&mut random)] += 1;
        }
        drawn.sort_unstable_by(|a, b| b.cmp(a));
        // 1 / H(100) = 19.3 % for the first, half of it for the second.
        assert!((18_500..20_100).contains(&drawn[0]), "{}", drawn[0]);
        assert!((9_100..10_200).contains(&drawn[1]), "{}", drawn[1]);
        assert!(drawn[99] > 0);
    }

    #[test]
    fn single_stock_is_always_drawn() {
        let mut random = Random::new(3, 0);
        let popularity = Popularity::new(1, &mut random);
        assert_eq!(popularity.draw(&mut random), 0);
    }
}
