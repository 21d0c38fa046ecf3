//! Counters that live in shared memory.
