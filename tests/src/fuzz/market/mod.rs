//! The exchanges' side: packets and messages (`formats`), books beside naive models (`books`), gaps
//! and lines (`sequence`), CME's messages and what servers of recovery send (`recovery`).

pub(super) mod books;
pub(super) mod formats;
pub(super) mod recovery;
pub(super) mod sequence;
