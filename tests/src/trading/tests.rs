//! Scripts in which nothing is left to chance but the time.

use order_entry::ouch::OuchClient;

use super::script::{Disturbance, Script};
use super::world::World;

#[test]
fn primary_that_has_handed_over_goes_on_where_its_standby_died_before_it_took_over() {
    for seed in 0..8 {
        // The message does not arrive, and the promise that stands for it dies with the standby.
        let disturbances =
            vec![(1_000, Disturbance::Cut(2)), (1_005, Disturbance::HandOver), (1_010, Disturbance::StandbyDies)];
        let (per_mille, slow_per_mille) = ([0; 3], 0);
        let script = Script { seed, per_mille, has_venue_faults: false, slow_per_mille, has_rates: true, disturbances };
        let mut world = World::<OuchClient>::new(script);
        assert_eq!(world.run(), Ok(()), "{}", world.story.join("\n"));
    }
}

/// The judge of the rates is of use: a gateway that has none is found, and by most seeds.
#[test]
fn gateway_without_rates_is_found_by_the_simulation() {
    let is_found = |seed: &u64| {
        let mut world = World::<OuchClient>::new(Script { has_rates: false, ..Script::new(*seed) });
        world.run().is_err_and(|why| why.starts_with("rate exceeded"))
    };
    assert!((0..8).filter(is_found).count() >= 6);
}
