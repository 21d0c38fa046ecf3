use super::*;
use crate::risk::rate::{Bucket, Overflow};

fn fill(bucket: &mut Bucket, rate: Rate, now_ns: u64, most: u32) -> u32 {
    for count in 0..most {
        match bucket.with_one(rate, now_ns) {
            Ok(next) => bucket.commit(next),
            Err(_) => return count,
        }
    }
    most
}

#[test]
fn bucket_passes_its_burst_and_then_its_rate() {
    let (rate, mut bucket) = (Rate::new(10, 5), Bucket::default());
    assert_eq!(fill(&mut bucket, rate, SECOND, 100), 5);
    assert_eq!(bucket.with_one(rate, SECOND + SECOND / 10 - 1).unwrap_err(), Overflow(6));
    assert_eq!(fill(&mut bucket, rate, SECOND + SECOND / 10, 100), 1);
}

#[test]
fn bucket_of_zero_passes_nothing() {
    for rate in [Rate::ZERO, Rate::default(), Rate::new(0, 5), Rate::new(5, 0), Rate::with_headroom(5, 5, 100)] {
        assert_eq!(fill(&mut Bucket::default(), rate, SECOND, 100), 0);
    }
}

#[test]
fn clock_that_steps_back_costs_at_most_a_full_bucket() {
    let (rate, mut bucket) = (Rate::new(10, 5), Bucket::default());
    assert_eq!(fill(&mut bucket, rate, 3_600 * SECOND, 100), 5);
    assert_eq!(fill(&mut bucket, rate, SECOND, 100), 0);
    assert_eq!(fill(&mut bucket, rate, SECOND + SECOND / 10, 100), 1);
}

#[test]
fn rate_that_became_lower_leaves_a_full_bucket() {
    let mut bucket = Bucket::default();
    assert_eq!(fill(&mut bucket, Rate::new(1, 100), SECOND, 200), 100);
    let lower = Rate::new(10, 5);
    assert_eq!(fill(&mut bucket, lower, SECOND, 100), 0);
    assert_eq!(fill(&mut bucket, lower, 2 * SECOND, 100), 5);
}

#[test]
fn headroom_leaves_a_part_of_the_venues_limit() {
    assert_eq!(Rate::with_headroom(1_000, 100, 10), Rate::new(900, 90));
}

#[test]
fn orders_do_not_fill_the_bucket_of_cancels() {
    let mut gate = gate_with(|limits| {
        limits.ports[0] = RateLimits { orders: Rate::new(10, 1), cancels: Rate::new(10, 1) };
    });
    pass(&mut gate, 0, &buy(100, dollars(100)));
    assert_eq!(refused(&mut gate, &buy(101, dollars(100))), (Limit::PortRate, 1, 2));
    assert_eq!(gate.check_cancel(STOCK, Route::default(), SECOND), Ok(()));
    let reject = gate.check_cancel(STOCK, Route::default(), SECOND).unwrap_err();
    assert_eq!(reject.limit, Limit::PortRate);
}

#[test]
fn replace_counts_as_an_order() {
    let mut gate = gate_with(|limits| limits.instruments[1].rates.orders = Rate::new(10, 1));
    pass(&mut gate, 0, &buy(100, dollars(100)));
    let reject = gate.check_replace(0, &replace(2, 50, 0, dollars(100)), &market(), SECOND).unwrap_err();
    assert_eq!(reject.limit, Limit::InstrumentRate);
}
