//! The ring on words of this process: between two threads, overrun, and read by no one.

#[cfg(loom)]
mod loom;

use super::*;
use std::sync::Arc;

#[cfg(loom)]
use ::loom::sync::atomic::AtomicU64;
#[cfg(not(loom))]
use core::sync::atomic::AtomicU64;

/// Words shared by two threads of one process.
#[derive(Clone)]
pub(crate) struct Plain(Arc<[AtomicU64]>);

impl Plain {
    pub(crate) fn new(capacity: u64) -> Self {
        Self((0..RING as u64 + capacity).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Words for Plain {
    fn load(&self, idx: usize, order: Ordering) -> u64 {
        self.0[idx].load(order)
    }

    fn store(&self, idx: usize, value: u64, order: Ordering) {
        self.0[idx].store(value, order);
    }
}

impl Copies for Plain {
    fn copy(&self, first: usize, into: &mut [u64]) -> io::Result<()> {
        for (idx, word) in into.iter_mut().enumerate() {
            *word = self.0[first + idx].load(Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Frame `n` of those received: its number eight times over, truncated to a length that depends
/// on it.
pub(crate) fn write(writer: &mut Writer<Plain>, n: u64, len_max: usize) {
    let bytes = n.to_ne_bytes().repeat(8);
    writer.offer(64, len_max.min(n as usize % 65), [&bytes[..3], &bytes[3..]].into_iter());
    let before = FrameCounts { rx: n, tx: 0 };
    writer.seal(&Head { direction: Some(Direction::Rx), vlan: None, timestamp_ns: n, before });
}

/// Reads one frame and checks it; returns its number.
pub(crate) fn read(reader: &mut Reader<Plain>, len_max: usize) -> Option<u64> {
    let record = reader.next().unwrap()?;
    let n = record.timestamp_ns;
    assert_eq!(record.bytes, &n.to_ne_bytes().repeat(8)[..len_max.min(n as usize % 65)]);
    assert_eq!((record.original_len, record.direction), (64, Direction::Rx));
    Some(n)
}

#[cfg(not(loom))]
mod on_threads {
    use super::*;

    fn ring(capacity: u64) -> (Writer<Plain>, Reader<Plain>) {
        let words = Plain::new(capacity);
        let writer = Writer::new(words.clone(), capacity);
        let mut reader = Reader::new(words, capacity);
        assert!(reader.join().unwrap());
        (writer, reader)
    }

    #[test]
    fn reader_that_keeps_up_misses_nothing() {
        let (mut writer, mut reader) = ring(256);
        for n in 0..500 {
            write(&mut writer, n, 64);
            assert_eq!(read(&mut reader, 64), Some(n));
        }
        assert_eq!((read(&mut reader, 64), reader.missed()), (None, FrameCounts::default()));
    }

    #[test]
    fn overrun_reader_goes_on_behind_the_oldest_quarter_and_counts_what_it_passed() {
        let (mut writer, mut reader) = ring(256);
        (0..1_000).for_each(|n| write(&mut writer, n, 0));
        // A frame without bytes takes 5 words: 51 fit, and at most each 13th begins a block of
        // 4 words.
        let first = read(&mut reader, 0).unwrap();
        assert!((1_000 - 51..=1_000 - 36).contains(&first), "{first}");
        assert_eq!(reader.missed().rx, first);
        assert_eq!(core::iter::from_fn(|| read(&mut reader, 0)).last(), Some(999));
    }

    #[test]
    fn late_reader_counts_from_where_it_joined() {
        let (mut writer, _) = ring(256);
        (0..100).for_each(|n| write(&mut writer, n, 64));
        let mut reader = Reader::new(writer.words().clone(), 256);
        assert!(reader.join().unwrap());
        write(&mut writer, 100, 64);
        assert_eq!((read(&mut reader, 64), reader.missed().rx), (Some(100), 0));
    }

    #[test]
    fn written_is_read_plus_missed_and_nothing_is_torn() {
        let count: u64 = if cfg!(miri) { 200 } else { 200_000 };
        let (mut writer, mut reader) = ring(256);
        let writing = std::thread::spawn(move || {
            for n in 0..count {
                write(&mut writer, n, 64);
                if n % 32 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut seen = 0;
        loop {
            let done = writing.is_finished(); // Before the read: what was written before the end is seen by it.
            match read(&mut reader, 64) {
                Some(_) => seen += 1,
                None if done => break,
                None => std::thread::yield_now(),
            }
        }
        writing.join().unwrap();
        assert_eq!(seen + reader.missed().rx, count, "{seen} seen");
    }

    #[test]
    fn words_that_no_writer_wrote_are_told_and_never_believed() {
        let damage = |words: &[(usize, u64)]| {
            let (mut writer, mut reader) = ring(256);
            (0..30).for_each(|n| write(&mut writer, n, 8));
            words.iter().for_each(|&(idx, word)| writer.words().store(idx, word, Ordering::Relaxed));
            let mut last = Ok(Some(()));
            for _ in 0..100 {
                last = reader.next().map(|record| record.map(|_| ()));
            }
            last
        };
        assert!(matches!(damage(&[(RING, u64::MAX)]), Err(RingEnd::Damaged)));
        assert!(matches!(damage(&[(RING, 9 | 8 << 32)]), Err(RingEnd::Damaged)));
        assert!(matches!(damage(&[(RING, 200 | 200 << 32), (WRITTEN, 20)]), Err(RingEnd::Damaged)));
        assert!(matches!(damage(&[(RING + 1, 3)]), Err(RingEnd::Damaged)));
        assert!(matches!(damage(&[(WRITTEN, u64::MAX)]), Err(RingEnd::Damaged)));
        assert!(damage(&[(CLAIMED, u64::MAX)]).is_ok());
        assert!(damage(&[(CLAIMED, 0), (WRITTEN, 1 << 40)]).is_ok());
    }

    proptest::proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "thousands of cases")]
        fn any_words_are_an_error_or_frames_but_never_a_panic(
            damage in proptest::collection::vec((0..RING + 256, proptest::prelude::any::<u64>()), 1..20),
            heads in proptest::collection::vec((CLAIMED..TX_FRAMES + 1, 0..600_u64), 0..4),
            capacity_bits in 0..9_u32,
        ) {
            let (mut writer, _) = ring(256);
            let mut reader = Reader::new(writer.words().clone(), 1_u64 << capacity_bits);
            let _ = reader.join();
            (0..70).for_each(|n| write(&mut writer, n, 64));
            for (idx, word) in damage.into_iter().chain(heads) {
                writer.words().store(idx, word, Ordering::Relaxed);
            }
            for _ in 0..200 {
                let _ = reader.next();
            }
        }
    }
}
