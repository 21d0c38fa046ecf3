//! The rings between workers, writer and readers interleaved as the input says. One thread: loom
//! tests other interleavings of loads and stores.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use wirepath::worker::spsc::lossy::{Next, Reader};
use wirepath::worker::spsc::{lossless, lossy};

use super::input::Input;

/// The ring that never waits: every event is read whole and in order, or counted as lost.
pub(super) fn lossy(data: &[u8]) {
    let mut input = Input::new(data);
    let capacity = input.pick(&[2, 4, 8, 64]);
    let mut writer = lossy::ring::<[u64; 2]>(capacity).expect("a power of two is a capacity");
    let mut written = 0;
    let mut readers = vec![Follower::new(writer.reader(), 0)];
    while !input.is_empty() {
        match input.below(6) {
            0 | 1 => {
                let events: Vec<_> = (0..u64::from(input.below(12))).map(|idx| event(written + idx)).collect();
                writer.push_burst(&events);
                written += events.len() as u64;
            }
            2 if readers.len() < 4 => readers.push(Follower::new(writer.reader(), written)),
            2 | 3 => {
                let idx = usize::from(input.u8()) % readers.len();
                readers[idx].read(written);
            }
            _ => {
                let idx = usize::from(input.u8()) % readers.len();
                readers[idx].read_burst(written, capacity as u64);
            }
        }
    }
    drop(writer);
    for mut reader in readers {
        while reader.read(written) {}
        assert!(reader.reader.is_closed());
        assert_eq!(reader.next, written, "what is neither read nor lost");
    }
}

fn event(number: u64) -> [u64; 2] {
    [number, !number]
}

/// A reader and the number of the event that it must meet next.
struct Follower {
    reader: Reader<[u64; 2]>,
    joined: u64,
    next: u64,
}

impl Follower {
    fn new(reader: Reader<[u64; 2]>, joined: u64) -> Self {
        Self { reader, joined, next: joined }
    }

    fn read(&mut self, written: u64) -> bool {
        match self.reader.read() {
            Next::Event(got) => {
                assert_eq!(got, event(self.next));
                self.next += 1;
            }
            Next::Lost(lost) => {
                assert!(lost > 0);
                self.next += lost;
            }
            Next::Empty => {
                assert_eq!(self.next, written, "there is something to read");
                return false;
            }
        }
        self.check(written);
        true
    }

    fn read_burst(&mut self, written: u64, capacity: u64) {
        let mut burst = ArrayVec::<_, 5>::new();
        self.next += self.reader.read_burst(&mut burst);
        for got in burst {
            assert_eq!(got, event(self.next));
            self.next += 1;
        }
        self.check(written);
        assert!(written - self.next <= capacity, "it lags behind by more than the ring");
    }

    fn check(&self, written: u64) {
        assert!(self.next <= written);
        assert_eq!(self.reader.read_count() + self.reader.lost_count(), self.next - self.joined);
    }
}

/// The ring that refuses: a queue.
pub(super) fn lossless(data: &[u8]) {
    let mut input = Input::new(data);
    let capacity = input.pick(&[2, 4, 8, 64]);
    let (mut producer, mut consumer) = lossless::ring(capacity).expect("a power of two is a capacity");
    let mut queue = VecDeque::new();
    for number in 0_u32.. {
        if input.is_empty() {
            break;
        }
        match input.below(5) {
            0 => match producer.push(number) {
                Ok(()) => queue.push_back(number),
                Err(back) => assert_eq!((back, queue.len()), (number, capacity)),
            },
            1 => {
                let items = [number; 7];
                let items = &items[..input.below(8).into()];
                let taken = producer.push_burst(items);
                assert_eq!(taken, items.len().min(capacity - queue.len()));
                queue.extend(&items[..taken]);
            }
            2 => assert_eq!(consumer.pop(), queue.pop_front()),
            3 => {
                let mut burst = ArrayVec::<_, 5>::new();
                let count = consumer.pop_burst(&mut burst);
                check_taken(count, queue.len(), 5);
                assert!(burst.into_iter().eq(queue.drain(..count)));
            }
            _ => {
                let max = input.below(9).into();
                let mut taken = Vec::new();
                let count = consumer.pop_each(max, |item| taken.push(item));
                check_taken(count, queue.len(), max);
                assert!(taken.into_iter().eq(queue.drain(..count)));
            }
        }
        assert!(queue.len() <= capacity);
    }
    drop(producer);
    assert!(std::iter::from_fn(|| consumer.pop()).eq(queue));
    assert!(consumer.is_drained());
}

/// The consumer reads the producer's index only when it has used up what it knows of, so it may
/// take fewer items than there are.
fn check_taken(count: usize, waiting: usize, max: usize) {
    assert!(count <= waiting.min(max));
    assert!(count > 0 || waiting == 0 || max == 0);
}
