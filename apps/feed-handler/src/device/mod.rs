//! The sources of frames: any device of the framework behind one type, and a plain file of messages
//! as a device.

mod blocks;
mod intake;
mod itch_file;

pub use blocks::FileEnding;
pub use intake::{AnyQueue, AnyTx, Intake};
pub use itch_file::{ItchFileConfig, ItchFileDevice, ItchFileQueue};
