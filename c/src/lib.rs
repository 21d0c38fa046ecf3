//! wirepath for C and C++: a stack is one worker of a [`Port`](wirepath::port::Port) in the
//! caller's own loop. `wp_poll` makes a turn and writes its events into the caller's array; all
//! other calls act at once. The header is `include/wirepath.h`, and a test compares it with this
//! library.
//!
//! ```text
//!  C ─▶ entry ── pointers checked (foreign) ─▶ registry ── handle, thread ─▶ stack ─▶ EmbeddedPort
//!         ▲                                                                   ▲          │ App
//!         └── code and sentence (error)                            events ── collector ◀─┘
//! ```
//!
//! No panic leaves a call. A handle is a number that is looked up, never an address, so a stale or
//! invented one is refused.

pub mod abi;
mod collector;
#[allow(unsafe_code, missing_docs)] // the header describes them
pub mod entry;
mod error;
#[allow(unsafe_code)]
mod foreign;
mod handles;
mod registry;
mod returned;
mod stack;

pub use error::Code;
