//! The configuration of faults.

use crate::device::{DeviceError, DeviceErrorKind};
use crate::time::Duration;

/// The seed and the faults of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultConfig {
    /// Print it when a test fails: the same seed gives the same faults. By default 0.
    pub seed: u64,
    /// Faults of received frames. By default [`Faults::NONE`].
    pub rx: Faults,
    /// Faults of sent frames. By default [`Faults::NONE`].
    pub tx: Faults,
}

/// The faults of one direction. Probabilities are from 0 to 1 and per frame; the default has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The frame is lost. By default 0.
    pub loss: f64,
    /// The frame arrives twice. By default 0.
    pub duplication: f64,
    /// One bit of the frame's first segment is flipped. By default 0.
    pub corruption: f64,
    /// Later frames overtake the frame. By default 0.
    pub reordering: f64,
    /// Frames that overtake it: from 1 to this many. By default 4.
    pub reorder_frames_max: u32,
    /// The frame is delayed. By default 0.
    pub delay: f64,
    /// The delay: from 0 to this long. Also the longest that a reordered frame waits to be
    /// overtaken. By default a millisecond.
    pub delay_max: Duration,
    /// A ring runs full. On receive, this frame and some after it are lost, as after a worker was
    /// delayed. On send, the ring accepts nothing for some turns from the next doorbell on. By
    /// default 0.
    pub ring_full: f64,
    /// Frames that a full ring loses, or turns (calls of `reap`) for which it accepts none: from 1
    /// to this many. By default 32.
    pub ring_full_max: u32,
}

impl Faults {
    /// A perfect network. The lengths are defaults for a fault whose probability alone is set:
    /// overtaken by up to four frames, delayed by up to a millisecond, a ring full for up to 32
    /// frames.
    pub const NONE: Self = Self {
        loss: 0.0,
        duplication: 0.0,
        corruption: 0.0,
        reordering: 0.0,
        reorder_frames_max: 4,
        delay: 0.0,
        delay_max: Duration::from_millis(1),
        ring_full: 0.0,
        ring_full_max: 32,
    };

    /// Checks the probabilities and lengths; `direction` is for the error.
    pub(super) fn check(&self, direction: &str) -> Result<(), DeviceError> {
        for (name, value) in [
            ("loss", self.loss),
            ("duplication", self.duplication),
            ("corruption", self.corruption),
            ("reordering", self.reordering),
            ("delay", self.delay),
            ("ring_full", self.ring_full),
        ] {
            if !(0.0..=1.0).contains(&value) {
                let sentence = format!("the fault probability {direction}.{name} is {value}: use a number from 0 to 1");
                return Err(DeviceError::new(DeviceErrorKind::InvalidConfig, sentence));
            }
        }
        for (name, value) in [("reorder_frames_max", self.reorder_frames_max), ("ring_full_max", self.ring_full_max)] {
            if value == 0 {
                let sentence = format!("the fault length {direction}.{name} is 0: use 1 or more");
                return Err(DeviceError::new(DeviceErrorKind::InvalidConfig, sentence));
            }
        }
        Ok(())
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}
