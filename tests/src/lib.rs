//! The parts that tests across packages share: the fuzz targets with their corpus, a rig around a
//! whole worker, inputs made from a seed, network namespaces, a live port or a whole host in one,
//! and the kernel's packet sockets as their peers.

pub mod cable;
pub mod connectx;
pub mod corpus;
pub mod differential;
pub mod exchange;
pub mod frames;
pub mod fuzz;
pub mod lists;
pub mod live;
pub mod lossy;
pub mod metal;
pub mod mutate;
#[allow(unsafe_code)]
pub mod netns;
#[allow(unsafe_code)]
pub mod nic;
#[allow(unsafe_code)]
pub mod packet;
pub mod patience;
pub mod port;
pub mod programs;
pub mod rig;
pub mod roce_wire;
pub mod rxe;
pub mod script;
pub mod sim;
pub mod soak;
pub mod trading;
