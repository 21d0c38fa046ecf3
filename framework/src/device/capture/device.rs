//! The wrapper around a device and its queues.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::rx::CaptureRx;
use super::tap::Tap;
use super::tx::CaptureTx;
use crate::counters::Scope;
use crate::device::pcap::{Outcome, Recorded, Writer};
use crate::device::{Device, DeviceError, Queue};
use crate::forward;
use crate::mem::Pool;

/// The file and the frames to capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureConfig {
    /// The file for queue 0. Queue 3 of `day.pcap` goes to `day.q3.pcap`: each worker writes its
    /// own.
    pub path: PathBuf,
    /// The directions to capture.
    pub directions: Directions,
    /// Unix time in ns at the origin of the worker's clock, added to `now` for frames without a
    /// timestamp; 0 writes `now` unchanged.
    pub epoch_ns: u64,
}

/// The frames to capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Directions {
    /// Received frames.
    Rx,
    /// Sent frames.
    Tx,
    /// All frames, in the order in which the worker processes them.
    #[default]
    Both,
}

/// A device whose queues are captured.
pub struct CaptureDevice<D> {
    inner: D,
    config: CaptureConfig,
    outcomes: Vec<(u16, Outcome<Recorded>)>,
}

/// A captured queue, before a worker opens it.
pub struct CaptureQueue<Q> {
    inner: Q,
    directions: Directions,
    epoch_ns: u64,
    writer: Writer,
    outcome: Outcome<Recorded>,
}

impl<D> CaptureDevice<D> {
    /// Wraps `inner`. Files are created as queues are taken.
    pub fn new(inner: D, config: CaptureConfig) -> Self {
        Self { inner, config, outcomes: Vec::new() }
    }

    /// The wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The outcome of the capture of queue `idx`, available after the worker has dropped both
    /// halves. `None` if the queue was not taken.
    pub fn recorded(&self, idx: u16) -> Option<Outcome<Recorded>> {
        self.outcomes.iter().find(|(other, _)| *other == idx).map(|(_, outcome)| outcome.clone())
    }
}

impl<D: Device> Device for CaptureDevice<D> {
    type Queue = CaptureQueue<D::Queue>;

    fn take_queue(&mut self, idx: u16) -> Result<Self::Queue, DeviceError> {
        let inner = self.inner.take_queue(idx)?;
        let path = path_of_queue(&self.config.path, idx);
        let writer = Writer::create(path)?;
        let outcome = Outcome::new();
        self.outcomes.push((idx, outcome.clone()));
        let CaptureConfig { directions, epoch_ns, .. } = self.config;
        Ok(CaptureQueue { inner, directions, epoch_ns, writer, outcome })
    }

    forward!(inner: name, capabilities, steer, unsteer);
}

impl<Q: Queue> Queue for CaptureQueue<Q> {
    type Rx = CaptureRx<Q::Rx>;
    type Tx = CaptureTx<Q::Tx>;

    fn open(self, pool: &Pool, scope: &Scope) -> Result<(Self::Rx, Self::Tx), DeviceError> {
        let (rx, tx) = self.inner.open(pool, scope)?;
        let tap = Rc::new(RefCell::new(Tap::new(self.writer, self.epoch_ns, self.outcome, scope)));
        let (records_rx, records_tx) = match self.directions {
            Directions::Rx => (true, false),
            Directions::Tx => (false, true),
            Directions::Both => (true, true),
        };
        Ok((CaptureRx::new(rx, Rc::clone(&tap), records_rx), CaptureTx::new(tx, tap, records_tx)))
    }

    forward!(inner: layout, buffers, region);
}

/// `day.pcap` for queue 0, `day.q3.pcap` for queue 3.
fn path_of_queue(path: &Path, idx: u16) -> PathBuf {
    if idx == 0 {
        return path.to_owned();
    }
    match path.extension() {
        Some(extension) => path.with_extension(format!("q{idx}.{}", extension.display())),
        None => path.with_extension(format!("q{idx}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_has_its_own_file() {
        let check =
            |path: &str, idx, expected: &str| assert_eq!(path_of_queue(path.as_ref(), idx), Path::new(expected));
        check("a/day.pcap", 0, "a/day.pcap");
        check("a/day.pcap", 3, "a/day.q3.pcap");
        check("a/day", 3, "a/day.q3");
    }
}
