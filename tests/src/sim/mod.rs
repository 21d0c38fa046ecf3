//! TCP in virtual time: two to eight hosts, each a whole worker, over a network that loses,
//! repeats, delays, reorders and damages frames, goes dark and changes its MTU, while rings fill,
//! pools run empty and clocks jump. All of it is drawn from a seed. smoltcp is every other host of
//! each fourth seed.
//!
//! ```text
//!  seed ─▶ script ─▶ world: hosts (worker, pipeline, app) ◀─ frames, turns ─▶ network
//!                      └─▶ ledger, observer: what is wrong
//! ```
//!
//! Only clock, link and device are replaced. It stands with the tests, since it judges more than it
//! simulates: the apps, the streams and the checkers are of use to nobody but a TCP's author, and
//! smoltcp must not become a dependency of the library.

pub mod end;
pub mod host;
pub mod ledger;
pub mod manners;
pub mod network;
pub mod nic;
pub mod packet;
pub mod run;
pub mod scenario;
pub mod script;
pub mod smoltcp;
pub mod station;
pub mod world;

pub use run::{Summary, Watcher, on_all_cores, run_seed, run_seeds};
pub use world::{Report, World};
