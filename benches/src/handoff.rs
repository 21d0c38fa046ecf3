//! Items through the lossless ring from one core to the other, in bursts.

use core::sync::atomic::{AtomicU32, Ordering};
use std::{hint, thread, time};

use arrayvec::ArrayVec;
use wirepath::worker::spsc::lossless;

use crate::measure::cores;

/// Items that travel together.
pub const BURST: usize = 32;
/// Bursts in one run: some hundred microseconds, shorter than a scheduler's time slice.
const BURSTS: usize = 4096;
/// Slots of the ring.
const SLOTS: usize = 1024;

/// Nanoseconds per item, for each of `runs` runs. Both ends spin on their own core; a run begins
/// when both are ready.
pub fn time_runs(cores: [usize; 2], runs: u32) -> Vec<f64> {
    let (mut producer, mut consumer) = lossless::ring::<u64>(SLOTS).expect("1024 is a power of two");
    let started = AtomicU32::new(0);
    thread::scope(|scope| {
        let started = &started;
        scope.spawn(move || {
            cores::pin(cores[1]);
            let mut items = [0u64; BURST];
            for run in 1..=runs {
                await_run(started, run);
                for burst in 0..BURSTS {
                    items.fill(burst as u64);
                    let mut sent = 0;
                    while sent < BURST {
                        sent += producer.push_burst(&items[sent..]);
                    }
                }
            }
        });
        let consumer = scope.spawn(move || {
            cores::pin(cores[0]);
            (1..=runs)
                .map(|run| {
                    let mut into = ArrayVec::<u64, BURST>::new();
                    let (mut taken, mut sum) = (0, 0);
                    let start = time::Instant::now();
                    started.store(run, Ordering::Release);
                    while taken < BURST * BURSTS {
                        taken += consumer.pop_burst(&mut into);
                        for item in into.drain(..) {
                            sum += item;
                        }
                    }
                    let spent = start.elapsed();
                    assert_eq!(sum, (BURST * BURSTS * (BURSTS - 1) / 2) as u64, "an item was lost or changed");
                    spent.as_nanos() as f64 / (BURST * BURSTS) as f64
                })
                .collect()
        });
        consumer.join().expect("the consumer does not panic")
    })
}

fn await_run(started: &AtomicU32, run: u32) {
    while started.load(Ordering::Acquire) < run {
        hint::spin_loop();
    }
}
