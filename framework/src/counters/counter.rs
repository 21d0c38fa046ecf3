//! The handles that a worker writes: a counter, which only grows, and a gauge, which is set.

use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::memory::WordsHandle;

/// A number that only grows (and wraps after 2^64): an 8-byte handle on a word of shared memory.
///
/// Counting is a load, an addition and a store, on x86 one `add` without a lock prefix: about a
/// nanosecond in cache. That is correct because there is one writer: a counter can be sent to its
/// thread, but neither cloned nor shared. It keeps its memory alive even after the
/// [`Block`](super::Block) is dropped.
pub struct Counter(WordsHandle<AtomicU64>);

impl Counter {
    pub(super) fn new(word: WordsHandle<AtomicU64>) -> Self {
        Self(word)
    }

    /// Counts `n`.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        bump(&self.0, n);
    }

    /// Counts one.
    #[inline(always)]
    pub fn inc(&self) {
        self.add(1);
    }

    /// The current count.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that is set: a level, a limit, a state. An 8-byte handle with one writer, like
/// [`Counter`].
pub struct Gauge(WordsHandle<AtomicU64>);

impl Gauge {
    pub(super) fn new(word: WordsHandle<AtomicU64>) -> Self {
        Self(word)
    }

    /// Sets the value.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Raises the value to `value` if that is higher: a high-water mark.
    #[inline(always)]
    pub fn raise(&self, value: u64) {
        if value > self.get() {
            self.set(value);
        }
    }

    /// The current value.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Adds with one writer: a load and a store, never a locked instruction.
#[inline(always)]
pub(super) fn bump(word: &AtomicU64, n: u64) {
    word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counter({})", self.get())
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gauge({})", self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_is_eight_bytes() {
        assert_eq!(size_of::<Counter>(), 8);
        assert_eq!(size_of::<Option<Gauge>>(), 8);
    }

    #[test]
    fn counter_wraps_instead_of_panicking() {
        let counter = Counter::new(WordsHandle::heap(1).word(0));
        counter.add(u64::MAX);
        counter.add(2);
        assert_eq!(counter.get(), 1);
    }

    #[test]
    fn high_water_mark_never_falls() {
        let gauge = Gauge::new(WordsHandle::heap(1).word(0));
        gauge.raise(9);
        gauge.raise(4);
        assert_eq!(gauge.get(), 9);
        gauge.set(2);
        assert_eq!(gauge.get(), 2);
    }

    #[test]
    fn counter_moves_to_its_thread() {
        let counter = Counter::new(WordsHandle::heap(1).word(0));
        let counter = std::thread::spawn(move || {
            counter.inc();
            counter
        });
        assert_eq!(counter.join().unwrap().get(), 1);
    }
}
