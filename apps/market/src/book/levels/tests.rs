use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn depth(levels: &Levels<Total>, at: u32) -> usize {
    if at == NONE {
        return 0;
    }
    1 + depth(levels, levels.get(at).left).max(depth(levels, levels.get(at).right))
}

#[test]
fn rising_prices_do_not_make_a_deep_tree() {
    let mut levels = Levels::new(4096);
    let mut ladder = Ladder::EMPTY;
    for cents in 0..4096 {
        levels.insert(&mut ladder, Side::Sell, Price::from_cents(cents), Total::none(0)).unwrap();
    }
    // Twelve steps are the least for 4,096 levels; a treap needs about twice that.
    assert!((12..40).contains(&depth(&levels, ladder.root)));
    assert_eq!(levels.insert(&mut ladder, Side::Sell, Price(-1), Total::none(0)), None);
}

/// Inserts levels at prices in cents, and gives how many of them the tree has.
fn behind_window(levels: &mut Levels<Total>, ladder: &mut Ladder, cents: impl Iterator<Item = i64>) -> usize {
    for cents in cents {
        levels.insert(ladder, Side::Sell, Price::from_cents(cents), Total::none(0)).unwrap();
    }
    levels.iter(ladder).filter(|level| levels.find_in_tree(ladder, level.key) != NONE).count()
}

#[test]
fn window_follows_the_best_price_to_a_better_and_to_a_worse_one() {
    let (mut levels, mut ladder) = (Levels::new(200), Ladder::EMPTY);
    assert_eq!(behind_window(&mut levels, &mut ladder, 1_000..1_020), 0);
    // All of those are too far from a price that is half a dollar better, and come back with its
    // end.
    assert_eq!(behind_window(&mut levels, &mut ladder, 950..951), 20);
    let best = ladder.best();
    levels.remove(&mut ladder, best);
    assert_eq!((behind_window(&mut levels, &mut ladder, 0..0), levels.iter(&ladder).count()), (0, 20));
    // As the best prices end, the window goes on with those that follow.
    assert!(behind_window(&mut levels, &mut ladder, 1_020..1_050) > 0);
    for _ in 0..25 {
        let best = ladder.best();
        levels.remove(&mut ladder, best);
    }
    assert_eq!(behind_window(&mut levels, &mut ladder, 1_050..1_051), 0);
}

#[test]
fn extreme_prices_are_ordered() {
    let mut levels = Levels::new(3);
    let mut ladder = Ladder::EMPTY;
    for price in [i64::MIN, i64::MAX, 0] {
        levels.insert(&mut ladder, Side::Buy, Price(price), Total::none(0)).unwrap();
    }
    let prices: Vec<_> = levels.iter(&ladder).map(|level| level.price().0).collect();
    assert_eq!(prices, [i64::MAX, 0, i64::MIN]);
}

proptest! {
    #[test]
    fn ladder_agrees_with_a_sorted_map(
        buy in any::<bool>(),
        // Units of a ten-thousandth: many levels of an entry, two, one, and most outside of a
        // window.
        scale in prop::sample::select(vec![1_i64, 50, 100, 1_000]),
        steps in proptest::collection::vec(-40_i64..40, 1..300),
    ) {
        let side = if buy { Side::Buy } else { Side::Sell };
        let mut levels = Levels::new(24);
        let mut ladder = Ladder::EMPTY;
        let mut map = BTreeMap::new();
        for price in steps.into_iter().map(|step| step * scale) {
            match levels.find(&ladder, side, Price(price)) {
                Some(idx) => {
                    prop_assert_eq!(map.remove(&price), Some(idx));
                    levels.remove(&mut ladder, idx);
                }
                None => {
                    prop_assert!(!map.contains_key(&price));
                    let inserted = levels.insert(&mut ladder, side, Price(price), Total::none(7));
                    prop_assert_eq!(inserted.is_some(), map.len() < 24);
                    inserted.map(|idx| map.insert(price, idx));
                }
            }
            let mut prices: Vec<_> = map.keys().copied().collect();
            if buy {
                prices.reverse();
            }
            let listed: Vec<_> = levels.iter(&ladder).map(|level| level.price().0).collect();
            prop_assert_eq!(listed, prices);
            prop_assert_eq!(levels.len(), map.len());
            let knows_best = |&idx: &u32| levels.get(idx).is_best() == (idx == ladder.best());
            prop_assert!(map.values().all(knows_best));
        }
    }
}
