//! The two cores of a hand-off: pinning, and their current distance.

use core::sync::atomic::{AtomicU32, Ordering};
use std::{hint, thread, time};

use wirepath::worker::affinity::{self, PinError};

/// Pins the calling thread, and prints a notice where that is refused: the figures are less
/// reliable then.
pub fn pin(core: usize) {
    if let Err(error) = affinity::pin(core) {
        eprintln!("bench: not pinned: {error}");
    }
}

/// Has the ports' helpers and the benches of other packages run on all cores of the process, which
/// must not be pinned yet: a reader in another process needs a core of its own.
///
/// # Errors
/// The kernel refuses it.
pub fn place_helpers() -> Result<(), PinError> {
    affinity::current().map_or(Ok(()), |cores| affinity::place_helpers(&cores))
}

/// The first two cores that the process may use; `None` on a machine with one.
pub fn two() -> Option<[usize; 2]> {
    let allowed: Vec<usize> = affinity::current()?.iter().collect();
    match allowed[..] {
        [first, second, ..] => Some([first, second]),
        _ => None,
    }
}

/// Nanoseconds that a cache line takes from one core to the other, one way: the median of many
/// short ping-pongs.
pub fn line_ns(cores: [usize; 2]) -> f64 {
    const GAMES: usize = 201;
    const TURNS: u32 = 64;
    let ball = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(cores[1]);
            for turn in 0..GAMES as u32 * TURNS {
                await_value(&ball, 2 * turn + 1);
                ball.store(2 * turn + 2, Ordering::Release);
            }
        });
        let player = scope.spawn(|| {
            pin(cores[0]);
            let mut turn = 0;
            let mut games: Vec<f64> = (0..GAMES)
                .map(|_| {
                    let start = time::Instant::now();
                    for _ in 0..TURNS {
                        ball.store(2 * turn + 1, Ordering::Release);
                        await_value(&ball, 2 * turn + 2);
                        turn += 1;
                    }
                    start.elapsed().as_nanos() as f64 / f64::from(2 * TURNS)
                })
                .collect();
            games.sort_by(f64::total_cmp);
            games[GAMES / 2]
        });
        player.join().expect("the player does not panic")
    })
}

fn await_value(ball: &AtomicU32, value: u32) {
    while ball.load(Ordering::Acquire) != value {
        hint::spin_loop();
    }
}
