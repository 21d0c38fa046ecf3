//! An echo of 2 MB where a tenth or more of all frames are lost in each direction, in virtual time:
//! a lost retransmission costs some round trips, and hardly ever the minimum timeout, which is
//! thousands of round trips long.
#![allow(clippy::unwrap_used)] // a panic here is the report

use wirepath::pipeline::tcp::{Congestion, ConnectionOptions};
use wirepath::time::Duration;
use wirepath_tests::lossy::{Echo, Echoed};

const SEEDS: u64 = 9;

/// Over a wire of 15 µs one way.
fn echoes(per_mille: usize, congestion: Congestion) -> Vec<Echoed> {
    let options = ConnectionOptions { congestion, ..ConnectionOptions::default() };
    let mut echoes: Vec<_> = (0..SEEDS)
        .map(|seed| {
            let echo =
                Echo { seed: 1 + seed * 7919, len: 2 << 20, per_mille, delay: Duration::from_micros(15), options };
            echo.run(Duration::from_secs(600)).unwrap_or_else(|| panic!("seed {seed} at {per_mille} of a thousand"))
        })
        .collect();
    echoes.sort_by_key(|echoed| echoed.took);
    let timeouts: Vec<_> = echoes.iter().map(|echoed| echoed.timeouts).collect();
    println!("{per_mille} of a thousand lost, {congestion:?}: median {}, timeouts {timeouts:?}", echoes[4].took);
    echoes
}

/// The median is so long at most, and the timeouts of all seeds together are so many at most.
fn takes(per_mille: usize, median: Duration, timeouts: u64) {
    for congestion in [Congestion::Cubic, Congestion::Reno] {
        let echoes = echoes(per_mille, congestion);
        let sum: u64 = echoes.iter().map(|echoed| echoed.timeouts).sum();
        assert!(echoes[4].took <= median && sum <= timeouts, "{congestion:?}: {}, {sum} timeouts", echoes[4].took);
    }
}

#[test]
fn echo_where_a_twentieth_is_lost_waits_for_hardly_a_timeout() {
    takes(50, Duration::from_millis(250), 5);
}

/// Where one probe was all there was before the timeout, there were some eighty in all, and the
/// median was 1 to 2 s.
#[test]
fn echo_where_a_tenth_is_lost_waits_for_hardly_a_timeout() {
    takes(100, Duration::from_secs(1), 20);
}

/// There were some eight hundred, and it took 24 to 68 s.
#[test]
fn echo_where_a_fifth_is_lost_waits_for_few_timeouts() {
    takes(200, Duration::from_secs(5), 60);
}

/// It took minutes.
#[test]
fn echo_where_three_tenths_are_lost_waits_for_few_timeouts() {
    takes(300, Duration::from_secs(15), 250);
}
