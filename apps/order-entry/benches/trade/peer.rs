//! The other end of the wire: the venue itself, or its frames of an earlier run, which cost the
//! trader's caches nothing but those frames.

use std::sync::{Arc, Mutex};

use wirepath::counters::Block;
use wirepath::device::memory::{MemoryDevice, MemoryRx, MemoryTx};
use wirepath::device::{Device, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{Burst, Mbuf, Pool};
use wirepath::pipeline::HostStack;
use wirepath::prelude::*;
use wirepath::worker::Worker;

use super::observed::{ObservedTx, Observer};
use super::venue::Venue;

pub(crate) type Live = Worker<MemoryRx, ObservedTx<MemoryTx, TapeWriter>, HostStack, Venue>;

/// Frames in the order in which they were sent, by steps of the other end.
#[derive(Default)]
pub(crate) struct Tape {
    bytes: Vec<u8>,
    /// Where each frame ends.
    frames: Vec<usize>,
    /// How many frames there were at the end of each step.
    steps: Vec<usize>,
}

/// Writes a tape, where one is wanted.
#[derive(Clone, Default)]
pub(crate) struct TapeWriter(Option<Arc<Mutex<Tape>>>);

impl TapeWriter {
    pub(crate) fn new() -> Self {
        Self(Some(Arc::default()))
    }

    fn end_step(&self) {
        if let Some(tape) = &self.0 {
            let mut tape = tape.lock().unwrap();
            let count = tape.frames.len();
            tape.steps.push(count);
        }
    }

    pub(crate) fn take(&self) -> Tape {
        self.0.as_ref().map(|tape| std::mem::take(&mut *tape.lock().unwrap())).unwrap_or_default()
    }
}

impl Observer for TapeWriter {
    fn posts(&mut self, frame: &Mbuf) {
        if let Some(tape) = &self.0 {
            let mut tape = tape.lock().unwrap();
            frame.segments().for_each(|segment| tape.bytes.extend_from_slice(segment));
            let end = tape.bytes.len();
            tape.frames.push(end);
        }
    }

    fn has_posted_urgent(&mut self) {}
}

/// The bare port of that end, and the tape.
pub(crate) struct Replay {
    rx: MemoryRx,
    tx: MemoryTx,
    pool: Pool,
    burst: Burst,
    tape: Tape,
    step: usize,
}

impl Replay {
    pub(crate) fn new(mut port: MemoryDevice, tape: Tape) -> Self {
        let pool = Pool::heap(1_024).unwrap();
        let (rx, tx) = port.take_queue(0).unwrap().open(&pool, &Block::heap().scope("replay")).unwrap();
        Self { rx, tx, pool, burst: Burst::new(), tape, step: 0 }
    }

    /// Sends the frames of the next step, and throws away what has come.
    fn step(&mut self, now: Instant) {
        while self.rx.receive(&mut self.burst, 64, &self.pool, now) > 0 {
            self.burst.drain(..).for_each(Mbuf::free);
        }
        self.tx.reap();
        let Tape { bytes, frames, steps } = &self.tape;
        let first = self.step.checked_sub(1).map_or(0, |before| steps[before]);
        for frame in first..steps[self.step] {
            let begin = frame.checked_sub(1).map_or(0, |before| frames[before]);
            let mbuf = self.pool.alloc_copy(&bytes[begin..frames[frame]]).unwrap();
            assert!(self.tx.post(mbuf, Offload::NONE).is_ok(), "the wire is full");
        }
        self.tx.ring_doorbell(now);
        self.step += 1;
    }
}

/// The other end.
pub(crate) enum Peer {
    Live(Box<Live>, TapeWriter),
    Replay(Box<Replay>),
}

impl Peer {
    /// The venue does something, or its frames of that moment come again.
    pub(crate) fn act(&mut self, now: Instant, act: impl FnOnce(&mut Venue, &mut Cx<'_>)) {
        match self {
            Self::Live(venue, tape) => {
                venue.with_app(now, act);
                tape.end_step();
            }
            Self::Replay(replay) => replay.step(now),
        }
    }

    /// A turn of the venue.
    pub(crate) fn poll(&mut self, now: Instant) {
        match self {
            Self::Live(venue, tape) => {
                venue.poll_once(now);
                tape.end_step();
            }
            Self::Replay(replay) => replay.step(now),
        }
    }
}
