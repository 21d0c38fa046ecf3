//! The library under unmodified programs: `LD_PRELOAD` puts it between them and libc, and their UDP
//! and TCP sockets leave the kernel.
//!
//! ```text
//!   program ──▶ entry     the symbols of libc: pointers become slices, results become errno
//!                 │
//!                 ├─ a descriptor that is not ours ──▶ real     the next function of the name
//!                 ▼
//!   calls, data, poll     what a call does to a file of ours
//!   offload               whose a socket becomes
//!   process, signals      fork, dup, close_range; handlers that wait
//!                 ▼
//!   wait                  spin, then sleep
//!   engine                the sockets on their worker, behind one lock; keeper turns it meanwhile,
//!                         and writes the listing that `wirepath sockets` reads
//!   file, table           descriptors, and what they stand for
//!                 ▼
//!   address, memory, thread, config, sys     words of the ABI, TLS, the environment, system calls
//! ```
//!
//! A descriptor of the program is always one of the kernel's as well, its twin: the kernel gives each
//! number and each port once, and has what does not come by our interface. A thread that calls polls
//! the worker itself, so a packet meets no other thread on its way.
//!
//! Calls that our own code makes while it is within the engine pass through: the library may use libc
//! as everybody else does.

mod address;
mod calls;
mod config;
mod data;
mod engine;
#[allow(unsafe_code)]
pub mod entry;
mod file;
mod keeper;
mod listing;
#[allow(unsafe_code)]
mod memory;
mod offload;
mod options;
mod poll;
#[allow(unsafe_code)]
mod process;
#[allow(unsafe_code)]
mod real;
#[allow(unsafe_code)]
mod signals;
#[allow(unsafe_code)]
mod sys;
mod table;
mod thread;
mod wait;
