//! The library under unmodified programs: `LD_PRELOAD` puts it between them and libc, and it
//! offloads their UDP and TCP sockets: these run on wirepath instead of the kernel.
//!
//! ```text
//!   program ──▶ abi        the symbols of libc: pointers become slices, results become errno
//!                 │
//!                 ├─ a descriptor that is not ours ──▶ real     the next function of the name
//!                 ▼
//!   calls                  what a call does to a file of ours; offload: whose a socket becomes
//!   process                fork, close, dup, exit
//!   background             turns the worker meanwhile, and writes what `wirepath sockets` reads
//!                 ▼
//!   engine                 one, or one for each thread: the sockets on their worker, behind a
//!                          lock; open files and descriptors; threads that wait; signals that come
//!                          meanwhile
//!                 ▼
//!   address, config, sys   words of the ABI, the environment, system calls; log: what the library
//!                          has to say; probe: whether memory of the program is there; heap: memory
//!                          apart from the program's `malloc`
//! ```
//!
//! Each descriptor of the program is also a socket of the kernel, its twin: so the kernel gives out
//! each descriptor and each port once, and the twin receives by other interfaces than ours. "Ours"
//! is an offloaded socket. A thread that makes a call polls the worker itself, so no other thread
//! handles its packets.
//!
//! Calls that our own code makes within the engine pass through to libc, so the library may use the
//! standard library.

#[allow(unsafe_code)]
pub mod abi;
mod address;
mod background;
mod calls;
mod config;
mod engine;
#[allow(unsafe_code)]
mod heap;
mod log;
#[allow(unsafe_code)]
mod probe;
#[allow(unsafe_code)]
mod process;
#[allow(unsafe_code)]
mod real;
#[allow(unsafe_code)]
mod rehearsal;
mod scarce;
#[allow(unsafe_code)]
mod sys;
