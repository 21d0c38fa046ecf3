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
        let script = Script { seed, per_mille: [0; 3], has_venue_faults: false, disturbances };
        let mut world = World::<OuchClient>::new(script);
        assert_eq!(world.run(), Ok(()), "{}", world.story.join("\n"));
    }
}
