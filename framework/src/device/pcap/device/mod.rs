//! A port made of files: it receives from one capture, and sends into another.

use std::path::{Path, PathBuf};

use super::outcome::{Outcome, Recorded};
use super::pace::{Pace, Pacer};
use super::rx::PcapRx;
use super::source::{Arena, Source};
use super::tx::PcapTx;
use super::{End, Error, Reader, Writer};
use crate::counters::{Scope, printable};
use crate::device::steering::Fields;
use crate::device::{
    Capabilities, Device, DeviceError, DeviceErrorKind, Queue, RxOffloads, TxOffloads, take_only_queue,
};
use crate::mem::{BURST_MAX, Pool, Sizing};

/// The files and the options.
#[derive(Clone, Debug, PartialEq)]
pub struct PcapConfig {
    /// The capture to receive from; without one, the receive half has
    /// [ended](crate::device::RxState::Ended) from the start. By default `None`.
    pub replay: Option<PathBuf>,
    /// The replay speed. By default full speed.
    pub pace: Pace,
    /// When the file is read. By default [`Loading::Stream`].
    pub loading: Loading,
    /// The file for sent frames; without one they are counted and freed. By default `None`.
    pub record: Option<PathBuf>,
    /// Unix time in ns at the origin of the worker's clock, added to `now` for the times in the
    /// recording; 0 writes `now` unchanged. By default 0.
    pub epoch_ns: u64,
    /// Bytes of the longest frame, Ethernet header to last payload byte; longer ones are counted
    /// and dropped. By default 1,522: an MTU of 1500 with two VLAN tags.
    pub frame_len_max: usize,
}

/// When the capture file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loading {
    /// During the replay: a poll that finds the buffer empty makes a read(2) of up to 512 KiB, and
    /// decompresses a gzip file. For a file of any length.
    #[default]
    Stream,
    /// Reads and decompresses the file before the start, into separate memory: then a poll makes no
    /// system call and no allocation.
    Preload {
        /// Maximum bytes of frames in memory; [`PcapDevice::open`] refuses a longer capture.
        len_max: usize,
    },
}

impl Default for PcapConfig {
    /// No files, full speed, and frames of an MTU of 1500 with two VLAN tags.
    fn default() -> Self {
        Self {
            replay: None,
            pace: Pace::default(),
            loading: Loading::default(),
            record: None,
            epoch_ns: 0,
            frame_len_max: 1500 + 14 + 8,
        }
    }
}

/// A port made of files. It has one queue, no steering, and delivers all frames.
pub struct PcapDevice {
    name: String,
    frame_len_max: usize,
    queue: Option<PcapQueue>,
    replayed: Outcome<End>,
    recorded: Outcome<Recorded>,
}

/// The port's queue, before a worker opens it.
pub struct PcapQueue {
    name: String,
    frame_len_max: usize,
    epoch_ns: u64,
    source: Option<Source>,
    pacer: Pacer,
    writer: Option<Writer>,
    replayed: Outcome<End>,
    recorded: Outcome<Recorded>,
}

impl PcapDevice {
    /// Opens the files. Reports an invalid capture, a missing folder and a pace of zero.
    pub fn open(config: &PcapConfig) -> Result<Self, DeviceError> {
        if let Pace::Times(factor) = config.pace
            && !(factor.is_finite() && factor > 0.0)
        {
            return Err(DeviceError::new(
                DeviceErrorKind::InvalidConfig,
                format!("a capture cannot be replayed at {factor} times its pace: use a number above 0"),
            ));
        }
        let source = config.replay.as_deref().map(|path| open_source(path, config.loading)).transpose()?;
        let writer = config.record.as_deref().map(Writer::create).transpose()?;
        let (replayed, recorded) = (Outcome::new(), Outcome::new());
        let path = config.replay.as_ref().or(config.record.as_ref());
        let name = path.map_or_else(|| "pcap".to_string(), |path| printable(path.display()).to_string());
        let queue = PcapQueue {
            name: name.clone(),
            frame_len_max: config.frame_len_max,
            epoch_ns: config.epoch_ns,
            source,
            pacer: Pacer::new(config.pace),
            writer,
            replayed: replayed.clone(),
            recorded: recorded.clone(),
        };
        Ok(Self { name, frame_len_max: config.frame_len_max, queue: Some(queue), replayed, recorded })
    }

    /// The outcome of the replay, available once the queue has
    /// [ended](crate::device::RxState::Ended). It includes truncation and damage of the file.
    pub fn replayed(&self) -> Outcome<End> {
        self.replayed.clone()
    }

    /// The outcome of the recording, available once the worker has dropped the send half. It
    /// includes a full disk.
    pub fn recorded(&self) -> Outcome<Recorded> {
        self.recorded.clone()
    }
}

fn open_source(path: &Path, loading: Loading) -> Result<Source, Error> {
    let reader = Reader::open(path)?;
    match loading {
        Loading::Stream => Ok(Source::Stream(reader)),
        Loading::Preload { len_max } => Arena::load(reader, len_max).map(Source::Arena),
    }
}

impl Device for PcapDevice {
    type Queue = PcapQueue;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            queues: 1,
            frame_len_max: self.frame_len_max,
            tx_segments_max: usize::MAX,
            rx: RxOffloads { timestamp: true, ..RxOffloads::default() },
            tx: TxOffloads { vlan: true, ..TxOffloads::default() },
            steering: Fields::NONE,
            rules_max: 0,
        }
    }

    fn take_queue(&mut self, idx: u16) -> Result<PcapQueue, DeviceError> {
        take_only_queue(&mut self.queue, &self.name, idx)
    }
}

impl Queue for PcapQueue {
    type Rx = PcapRx;
    type Tx = PcapTx;

    fn open(self, pool: &Pool, scope: &Scope) -> Result<(PcapRx, PcapTx), DeviceError> {
        let (frame_len_max, data_room) = (self.frame_len_max, pool.layout().data_room());
        if data_room < frame_len_max {
            return Err(DeviceError::BuffersTooSmall { device: self.name, frame_len_max, data_room });
        }
        let rx = PcapRx::new(self.source, self.pacer, frame_len_max, self.replayed, scope);
        Ok((rx, PcapTx::new(self.writer, self.epoch_ns, frame_len_max, self.recorded, scope)))
    }

    fn buffers(&self) -> Sizing {
        // A frame is read once there is a buffer for it, and a sent frame is written at once.
        Sizing::new().part("reserve", BURST_MAX, "for receiving, however much waits")
    }
}

#[cfg(test)]
mod tests;
