//! Shared receive queues: made, filled and destroyed.

use super::{Device, DeviceError, PostError};
use crate::roce::handle::{PdHandle, SrqHandle};
use crate::roce::srq::Srq;
use crate::roce::work::Sge;

const NAME: &str = "shared receive queue";

impl Device {
    /// Makes a shared receive queue of up to `depth` receives, which are allocated here.
    ///
    /// # Errors
    /// If the device has no room for it, or not so many receives.
    pub fn create_srq(&mut self, pd: PdHandle, depth: u32) -> Result<SrqHandle, DeviceError> {
        self.pds.get(pd).ok_or(DeviceError::Unknown("protection domain"))?;
        if depth > self.config.wrs_per_queue {
            return Err(DeviceError::Value("queue depth"));
        }
        self.tables.srqs.insert_with(|_| Srq::new(pd, depth)).ok_or(DeviceError::Full("shared receive queues"))
    }

    /// Destroys a shared receive queue; its receives have no completions.
    ///
    /// # Errors
    /// If queue pairs use it.
    pub fn destroy_srq(&mut self, handle: SrqHandle) -> Result<(), DeviceError> {
        let srq = self.tables.srqs.get(handle).ok_or(DeviceError::Unknown(NAME))?;
        if srq.users > 0 {
            return Err(DeviceError::InUse(NAME));
        }
        self.tables.srqs.remove(handle);
        Ok(())
    }

    /// Asks for one event [`SrqLimitReached`](crate::roce::Event::SrqLimitReached) when a message
    /// leaves fewer than `limit` receives; 0 asks for none.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn arm_srq(&mut self, handle: SrqHandle, limit: u32) -> Result<(), DeviceError> {
        self.tables.srqs.get_mut(handle).ok_or(DeviceError::Unknown(NAME))?.arm(limit);
        Ok(())
    }

    /// Puts memory into a shared receive queue, for the next message to any of its queue pairs.
    ///
    /// # Errors
    /// [`PostError`]; nothing changed then.
    #[inline]
    pub fn post_srq_recv(&mut self, handle: SrqHandle, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        self.check_sges(sges)?;
        self.tables.srqs.get_mut(handle).ok_or(PostError::UnknownSrq)?.queue.post(wr_id, sges)
    }

    /// Receives that are left in a shared receive queue.
    pub fn srq_len(&self, handle: SrqHandle) -> Option<u32> {
        self.tables.srqs.get(handle).map(|srq| srq.queue.len())
    }
}
