//! What comes in: bytes until a message is whole, and messages behind a hole until it is filled.

use super::config::SessionConfig;
use crate::fix::codec::{FieldIndex, Frame, Message, frame};

/// Where the message is that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the bytes that were received.
    Input(usize, usize),
    /// Among the messages behind a hole.
    Queue(usize, usize),
}

/// The incoming half of a session.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) index: FieldIndex,
    len_max: usize,
    input: Vec<u8>,
    /// How much of the input was taken.
    taken: usize,
    /// Number and place of each message behind the hole, in rising order.
    queued: Vec<(u64, usize, usize)>,
    queue: Vec<u8>,
    /// The message that was indexed last.
    last: Place,
}

/// The next thing in the input.
pub(super) enum Input {
    Message(Place),
    Garbled,
}

impl Receiver {
    pub(super) fn new(config: &SessionConfig) -> Self {
        Self {
            index: FieldIndex::new(config.fields_max),
            len_max: config.message_len_max,
            input: Vec::with_capacity(2 * config.message_len_max),
            taken: 0,
            queued: Vec::with_capacity(config.queue_count_max),
            queue: Vec::with_capacity(config.queue_len_max),
            last: Place::Input(0, 0),
        }
    }

    /// Takes as many bytes as there is room for, and returns how many.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> usize {
        if self.taken == self.input.len() {
            self.input.clear();
            self.taken = 0;
        } else if self.input.capacity() - self.input.len() < bytes.len() {
            self.input.drain(..self.taken);
            self.taken = 0;
        }
        let len = bytes.len().min(self.input.capacity() - self.input.len());
        self.input.extend_from_slice(&bytes[..len]);
        len
    }

    pub(super) fn next_input(&mut self) -> Option<Input> {
        let rest = self.input.get(self.taken..).unwrap_or(&[]);
        if rest.is_empty() {
            return None;
        }
        let at = self.taken;
        match frame(rest, self.len_max) {
            Frame::Incomplete => None,
            Frame::Garbled { len, .. } => {
                self.taken += len;
                Some(Input::Garbled)
            }
            Frame::Message { len } => {
                self.taken += len;
                match self.index.parse(&rest[..len]) {
                    Ok(_) => {
                        self.last = Place::Input(at, at + len);
                        Some(Input::Message(self.last))
                    }
                    Err(_) => Some(Input::Garbled),
                }
            }
        }
    }

    /// The queued message `seq`; those before it are forgotten, because they were filled.
    pub(super) fn next_queued(&mut self, seq: u64) -> Option<Place> {
        let old = self.queued.partition_point(|queued| queued.0 < seq);
        self.queued.drain(..old);
        let Some(&(first, at, end)) = self.queued.first() else {
            self.queue.clear();
            return None;
        };
        // What was queued was indexed once, and so is again.
        if first != seq || self.index.parse(&self.queue[at..end]).is_err() {
            return None;
        }
        self.queued.remove(0);
        self.last = Place::Queue(at, end);
        Some(self.last)
    }

    /// Keeps the message behind the hole. `false` where there is no room; one that is kept already
    /// is not kept twice.
    pub(super) fn enqueue(&mut self, seq: u64, place: Place) -> bool {
        let Place::Input(at, end) = place else { return true };
        let idx = self.queued.partition_point(|queued| queued.0 < seq);
        if self.queued.get(idx).is_some_and(|queued| queued.0 == seq) {
            return true;
        }
        let is_room = self.queue.len() + (end - at) <= self.queue.capacity();
        if !is_room || self.queued.len() == self.queued.capacity() {
            return false;
        }
        let start = self.queue.len();
        self.queue.extend_from_slice(&self.input[at..end]);
        self.queued.insert(idx, (seq, start, self.queue.len()));
        true
    }

    /// The message that was indexed last.
    pub(super) fn message(&self, place: Place) -> Message<'_> {
        self.index.message(self.bytes(place))
    }

    /// Its bytes, until more are received.
    pub(super) fn last_bytes(&self) -> &[u8] {
        self.bytes(self.last)
    }

    fn bytes(&self, place: Place) -> &[u8] {
        let bytes = match place {
            Place::Input(at, end) => self.input.get(at..end),
            Place::Queue(at, end) => self.queue.get(at..end),
        };
        bytes.unwrap_or(&[])
    }

    /// Forgets the messages behind the hole.
    pub(super) fn clear_queue(&mut self) {
        self.queued.clear();
        self.queue.clear();
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.input.clear();
        self.taken = 0;
        self.clear_queue();
    }
}
