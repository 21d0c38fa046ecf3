//! Every interleaving that loom can find, with every value that the memory model lets a load
//! return.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p wirepath --lib loom`
//!
//! The ring holds two records. At most three preemptions per run, as for the rings of `spsc`.

use loom::model::Builder;
use loom::thread;

use super::{Plain, read, write};
use crate::device::tap::ring::{Reader, Writer};

/// Bytes of a frame: one word.
const LEN: usize = 8;
const CAPACITY: u64 = 16;

#[test]
fn loom_tap_is_never_torn_and_accounts_are_exact() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let words = Plain::new(CAPACITY);
        let mut writer = Writer::new(words.clone(), CAPACITY);
        let mut reader = Reader::new(words, CAPACITY);
        assert!(reader.join().unwrap());
        let writing = thread::spawn(move || (0..3).for_each(|n| write(&mut writer, 8 + n, LEN)));
        let mut seen = u64::from(read(&mut reader, LEN).is_some());
        writing.join().unwrap();
        while read(&mut reader, LEN).is_some() {
            seen += 1;
        }
        assert_eq!(seen + reader.missed().rx, 3 + 8);
    });
}
