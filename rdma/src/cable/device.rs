//! A device at one end of a cable.

use super::{Cable, CableError, FRAME_LEN_MAX};
use crate::roce::{Device, RoceFrame};

/// Frames of one turn in each direction: an end with much to send must not keep the program from
/// what arrives.
const FRAMES_PER_TURN: usize = 64;

/// A RoCE device whose frames a cable carries. Requests are posted, and completions polled, by
/// [`device_mut`](Self::device_mut) between two turns.
pub struct CabledDevice<C> {
    device: Device,
    cable: C,
    frame: Box<[u8]>,
    foreign: u64,
}

impl<C: Cable> CabledDevice<C> {
    /// Joins a device with its end.
    pub fn new(device: Device, cable: C) -> Self {
        Self { device, cable, frame: vec![0; FRAME_LEN_MAX].into(), foreign: 0 }
    }

    /// The device.
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// The device, to post and to poll.
    pub const fn device_mut(&mut self) -> &mut Device {
        &mut self.device
    }

    /// The cable.
    pub const fn cable_mut(&mut self) -> &mut C {
        &mut self.cable
    }

    /// Frames that were none of RoCE, and were dropped.
    pub const fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Takes what has arrived, looks at the timers, and sends what is due, answers included; up to
    /// 64 frames each way. Returns how many frames went either way. `now` is as of
    /// [`Device::receive`].
    ///
    /// # Errors
    /// [`CableError`]: the cable carries nothing more. Turn it all the same: queue pairs with
    /// requests end by their timeouts, as they do where the other end takes nothing more. Those
    /// whose timeout is 0 never end, and those that only answer have nothing to end.
    pub fn turn(&mut self, now: u64) -> Result<usize, CableError> {
        let (mut received, mut sent) = (0, 0);
        let carried = self.receive(now, &mut received);
        if self.device.next_timer().is_some_and(|at| at <= now) {
            self.device.on_timer(now);
        }
        let carried = carried.and_then(|()| self.transmit(now, &mut sent));
        if sent == 0 && self.device.is_due() {
            self.device.on_blocked(now);
        }
        carried.map(|()| received + sent)
    }

    fn receive(&mut self, now: u64, received: &mut usize) -> Result<(), CableError> {
        while *received < FRAMES_PER_TURN {
            let Some(len) = self.cable.receive(&mut self.frame)? else { break };
            match self.frame.get(..len).map(RoceFrame::parse) {
                Some(Ok(frame)) => self.device.receive(now, frame.network, frame.roce),
                _ => self.foreign += 1,
            }
            *received += 1;
        }
        Ok(())
    }

    fn transmit(&mut self, now: u64, sent: &mut usize) -> Result<(), CableError> {
        while *sent < FRAMES_PER_TURN && self.device.is_due() && self.cable.has_room()? {
            let Some(len) = self.device.transmit(now, &mut self.frame) else { break };
            self.cable.send(&self.frame[..len])?;
            *sent += 1;
        }
        self.cable.flush()
    }
}
