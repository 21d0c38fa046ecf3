//! Every interleaving that loom can find, with every value that the memory model lets a load
//! return.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p wirepath --release loom`
//!
//! The rings are tiny and begin at the wrap of their positions. At most three preemptions per run:
//! known bugs of this kind need two, and unbounded runs take hours.

use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use super::{lossless, lossy};

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn loom_lossless_hands_items_over_in_order() {
    check(|| {
        let (mut producer, mut consumer) = lossless::ring_starting_at(2, usize::MAX).unwrap();
        let writer = thread::spawn(move || {
            for item in 1..=3_u64 {
                while producer.push(Box::new(item)).is_err() {
                    thread::yield_now();
                }
            }
        });
        for expected in 1..=3 {
            let item = loop {
                match consumer.pop() {
                    Some(item) => break item,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(*item, expected);
        }
        writer.join().unwrap();
        assert!(consumer.is_drained());
    });
}

#[test]
fn loom_lossless_bursts_are_whole() {
    check(|| {
        let (mut producer, mut consumer) = lossless::ring_starting_at(2, usize::MAX - 1).unwrap();
        let writer = thread::spawn(move || {
            let items = [1_u64, 2, 3, 4];
            let mut sent = 0;
            while sent < items.len() {
                match producer.push_burst(&items[sent..]) {
                    0 => thread::yield_now(),
                    accepted => sent += accepted,
                }
            }
        });
        let mut expected = 1;
        while expected <= 4 {
            let taken = consumer.pop_each(2, |item| {
                assert_eq!(item, expected);
                expected += 1;
            });
            if taken == 0 {
                thread::yield_now();
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn loom_lossless_leftovers_are_dropped_whichever_end_goes_last() {
    check(|| {
        let item = Arc::new(());
        let (mut producer, mut consumer) = lossless::ring_starting_at(2, usize::MAX).unwrap();
        let pushed = [item.clone(), item.clone()];
        let writer = thread::spawn(move || pushed.map(|item| producer.push(item).is_ok()));
        drop(consumer.pop());
        drop(consumer);
        writer.join().unwrap();
        assert_eq!(Arc::strong_count(&item), 1);
    });
}

#[test]
fn loom_lossless_drained_means_that_nothing_is_left() {
    check(|| {
        let (mut producer, mut consumer) = lossless::ring_starting_at(2, 0).unwrap();
        let writer = thread::spawn(move || producer.push(7_u64).unwrap());
        let mut popped = 0;
        while !consumer.is_drained() {
            match consumer.pop() {
                Some(_) => popped += 1,
                None => thread::yield_now(),
            }
        }
        writer.join().unwrap();
        assert_eq!(popped, 1);
    });
}

/// Writes events n = 1, 2, 3 of two words into a ring of two, while a reader follows and a part is
/// lost.
#[test]
fn loom_lossy_reads_are_never_torn_and_accounts_are_exact() {
    check(|| {
        let mut writer = lossy::ring_starting_at::<[u64; 2]>(2, u64::MAX).unwrap();
        let mut reader = writer.reader();
        let writing = thread::spawn(move || {
            for n in 1..=3 {
                writer.push(&[n, !n]);
            }
        });
        let mut expected = 1;
        for _ in 0..3 {
            read_checked(&mut reader, &mut expected);
        }
        writing.join().unwrap();
        while read_checked(&mut reader, &mut expected) {}
        assert_eq!(expected, 4);
        assert_eq!(reader.read_count() + reader.lost_count(), 3);
    });
}

/// One read; false if there was nothing.
fn read_checked(reader: &mut lossy::Reader<[u64; 2]>, expected: &mut u64) -> bool {
    match reader.read() {
        lossy::Next::Event([n, inverse]) => {
            assert_eq!([n, inverse], [*expected, !*expected]);
            *expected += 1;
        }
        lossy::Next::Lost(count) => *expected += count,
        lossy::Next::Empty => return false,
    }
    true
}
