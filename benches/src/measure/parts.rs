//! How the criterion benches measure: briefly, because there are many of them and each takes a few
//! nanoseconds.

use std::time::Duration;

use criterion::{Bencher, Criterion};

use crate::is_quick;
use crate::receiver::ROUND;

/// Each bench takes one and a third seconds; with `QUICK=1` a fifth of that. Other load on the
/// machine shows as outliers.
pub fn criterion() -> Criterion {
    let part = |ms| Duration::from_millis(if is_quick() { ms / 5 } else { ms });
    let criterion = Criterion::default().without_plots().sample_size(50);
    criterion.warm_up_time(part(300)).measurement_time(part(1_000)).configure_from_args()
}

/// Has criterion count packets of a path that is fed and drained in rounds. `time` takes a number
/// of rounds and returns nanoseconds a packet, without the feeding.
pub fn packets(bencher: &mut Bencher<'_>, mut time: impl FnMut(usize) -> f64) {
    bencher.iter_custom(|packets| {
        let rounds = packets.div_ceil(ROUND as u64);
        Duration::from_nanos((time(rounds as usize) * packets as f64) as u64)
    });
}
