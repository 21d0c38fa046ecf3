//! The wrapper around a device and its queues.

use core::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::layout::{Identity, RING};
use super::recorder::{Recorder, Shared};
use super::ring::CAPACITY_MIN;
use super::rx::TapRx;
use super::tx::TapTx;
use crate::counters::{
    BlockError, Content, Publication, Scope, WordsHandle, check_app, default_directory, printable, since_epoch_ns,
};
use crate::device::{Device, DeviceError, Queue};
use crate::forward;
use crate::mem::Pool;

/// The place and size of a process's taps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// The application's name, as in [`Block::create`](crate::counters::Block::create).
    pub app: String,
    /// The directory of shared files.
    pub directory: PathBuf,
    /// Bytes of each queue's ring, rounded up to a power of two: the backlog that a listener may
    /// have. At a million frames of 200 bytes per second the default lasts 35 ms. A smaller ring
    /// loses frames sooner. The ring has no memory before a listener comes; its first pass then
    /// takes a page fault of the worker every 4 KiB.
    pub ring_len: usize,
}

impl TapConfig {
    /// Taps of `app` beside the counters, with rings of 8 MiB per queue.
    pub fn new(app: impl Into<String>) -> Self {
        Self { app: app.into(), directory: default_directory(), ring_len: 8 << 20 }
    }
}

/// A device whose queues can be tapped.
pub struct TapDevice<D> {
    inner: D,
    config: TapConfig,
    problems: Vec<TapProblem>,
}

/// A queue that can be tapped, before a worker opens it.
pub struct TapQueue<Q> {
    inner: Q,
    shared: Shared,
}

impl<D> TapDevice<D> {
    /// Wraps `inner`. The ring of a queue is made when the queue is taken.
    pub fn new(inner: D, config: TapConfig) -> Self {
        Self { inner, config, problems: Vec::new() }
    }

    /// The wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The wrapped device, for methods that only its type has.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// Queues that cannot be tapped, with the reason. They run nevertheless, because a full
    /// `/dev/shm` is no reason not to trade, but it should be reported.
    pub fn problems(&self) -> impl Iterator<Item = &TapProblem> {
        self.problems.iter()
    }
}

impl<D: Device> Device for TapDevice<D> {
    type Queue = TapQueue<D::Queue>;

    fn take_queue(&mut self, idx: u16) -> Result<Self::Queue, DeviceError> {
        let inner = self.inner.take_queue(idx)?;
        let shared = match share(&self.config, self.inner.name(), idx) {
            Ok(shared) => shared,
            Err(reason) => {
                self.problems.push(TapProblem { device: self.inner.name().to_owned(), queue: idx, reason });
                private()
            }
        };
        Ok(TapQueue { inner, shared })
    }

    forward!(inner: name, capabilities, steer, unsteer);
}

impl<Q: Queue> Queue for TapQueue<Q> {
    type Rx = TapRx<Q::Rx>;
    type Tx = TapTx<Q::Tx>;

    fn open(self, pool: &Pool, scope: &Scope) -> Result<(Self::Rx, Self::Tx), DeviceError> {
        let (rx, tx) = self.inner.open(pool, scope)?;
        let tap = Rc::new(Recorder::new(self.shared, scope));
        Ok((TapRx::new(rx, Rc::clone(&tap)), TapTx::new(tx, tap)))
    }

    forward!(inner: layout, buffers, region);
}

impl<Q> TapQueue<Q> {
    /// The file that listeners open; None if it could not be created.
    pub fn path(&self) -> Option<&Path> {
        self.shared.publication.as_ref().map(Publication::path)
    }
}

/// A ring in a file that listeners find.
fn share(config: &TapConfig, device: &str, queue: u16) -> Result<Shared, BlockError> {
    check_app(&config.app)?;
    let capacity = (config.ring_len as u64 / 8).next_power_of_two().max(CAPACITY_MIN);
    let (publication, words) = Publication::create(&config.directory, &config.app, Content::Frames, |file| {
        let words = WordsHandle::mapped_in_part(file, RING + capacity as usize, RING)?;
        let identity = Identity {
            app: config.app.clone(),
            pid: std::process::id(),
            started_ns: since_epoch_ns(),
            device: device.to_owned(),
            queue,
            ring_words: capacity,
        };
        identity.store(&words);
        Ok(words)
    })?;
    Ok(Shared { words, capacity, publication: Some(publication) })
}

/// A ring without listeners, which needs no room.
fn private() -> Shared {
    Shared { words: WordsHandle::heap(RING + 1), capacity: 1, publication: None }
}

/// Why a queue cannot be tapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapProblem {
    device: String,
    queue: u16,
    reason: BlockError,
}

impl fmt::Display for TapProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, queue, reason } = self;
        write!(f, "`wirepath capture` will not see {device} queue {queue}, which runs without a tap: ")?;
        match reason {
            BlockError::File { path, error } => write!(
                f,
                "no shared file in {}: {error}; make it writable and give it room, or set WIREPATH_SHM to a directory on \
                 another tmpfs",
                printable(path.display())
            ),
            reason => reason.fmt(f),
        }
    }
}

impl std::error::Error for TapProblem {}
