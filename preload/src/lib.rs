//! The library under unmodified programs: `LD_PRELOAD` puts it between them and libc, and their UDP
//! and TCP sockets leave the kernel.
//!
//! ```text
//!   program ──▶ abi        the symbols of libc: pointers become slices, results become errno
//!                 │
//!                 ├─ a descriptor that is not ours ──▶ real     the next function of the name
//!                 ▼
//!   calls                  what a call does to a file of ours; offload: whose a socket becomes
//!   process                fork, close, dup, exit
//!   keeper                 turns the worker meanwhile, and writes what `wirepath sockets` reads
//!                 ▼
//!   engine                 the sockets on their worker, behind one lock; open files and descriptors;
//!                          threads that wait; signals that come meanwhile
//!                 ▼
//!   address, config, sys   words of the ABI, the environment, system calls
//! ```
//!
//! A descriptor of the program is always one of the kernel's as well, its twin: the kernel gives
//! each number and each port once, and has what does not come by our interface. A thread that calls
//! polls the worker itself, so a packet meets no other thread on its way.
//!
//! Calls that our own code makes while it is within the engine pass through: the library may use
//! libc as everybody else does.

#[allow(unsafe_code)]
pub mod abi;
mod address;
mod calls;
mod config;
mod engine;
mod keeper;
#[allow(unsafe_code)]
mod process;
#[allow(unsafe_code)]
mod real;
#[allow(unsafe_code)]
mod sys;
