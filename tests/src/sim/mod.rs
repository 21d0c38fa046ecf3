//! TCP in virtual time: two to eight hosts, each a whole worker, over a network that loses,
//! repeats, delays, reorders and damages frames, fails completely and changes its MTU, while rings
//! fill, pools run empty and clocks jump. All of it is drawn from a seed. In each fourth seed every
//! other host runs smoltcp.
//!
//! ```text
//!  seed ─▶ script ─▶ world: hosts (worker, pipeline, app) ◀─ frames, turns ─▶ network
//!                      └─▶ ledger: the progress of each session, and the errors found
//! ```
//!
//! Only clock, link and device are replaced. The simulator is among the tests, because its apps,
//! streams and checkers are useful only to the author of a TCP, and because smoltcp must not become
//! a dependency of the library.

pub mod any_host;
pub mod behavior;
pub mod end;
pub mod host;
pub mod ledger;
pub mod network;
pub mod nic;
pub mod packet;
pub mod run;
pub mod scenario;
pub mod script;
pub mod smoltcp;
pub mod world;

pub use run::{Summary, Watcher, on_all_cores, run_seed, run_seeds};
pub use world::{Report, World};
