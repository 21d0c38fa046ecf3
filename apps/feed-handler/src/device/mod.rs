//! Where frames come from: any device of the framework behind one type, and a plain file of messages as a device.

mod intake;
mod itch_file;

pub use intake::{AnyQueue, AnyTx, Intake, IntakeConfig};
pub use itch_file::{FileEnding, ItchFileConfig, ItchFileDevice, ItchFileQueue};
