//! A plain file of messages as a device, and the intake around the queue of any device.

mod blocks;
mod intake;
mod itch_file;

pub use blocks::FileEnding;
pub use intake::StampingQueue;
pub use itch_file::{ItchFileConfig, ItchFileDevice, ItchFileQueue};
