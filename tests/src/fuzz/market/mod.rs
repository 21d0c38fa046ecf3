//! The exchanges' side: packets and messages (`formats`), books beside naive models (`books`), gaps
//! and lines (`sequence`).

pub(super) mod books;
pub(super) mod formats;
pub(super) mod sequence;
