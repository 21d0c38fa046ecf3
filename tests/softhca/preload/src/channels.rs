//! Descriptors on which a client gets events: pairs of connected sockets, of which the client has
//! one end.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use softhca::hca::Errno;
use softhca::uverbs::{EventRecord, Process};

use crate::sys;

/// linux/capability.h
const CAP_NET_RAW: u32 = 13;
const CAP_IPC_LOCK: u32 = 14;

/// All of one session's.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    ends: Vec<End>,
}

#[derive(Debug)]
struct End {
    /// The client's end.
    client: i32,
    ours: OwnedFd,
    /// Records for which there was no room.
    waiting: VecDeque<EventRecord>,
}

impl Channels {
    /// Writes a record for the client that reads from `client`, as soon as there is room.
    pub(crate) fn tell(&mut self, client: i32, record: EventRecord) {
        if let Some(end) = self.ends.iter_mut().find(|end| end.client == client) {
            end.waiting.push_back(record);
            end.flush();
        }
    }

    /// Tries again to send the waiting events.
    pub(crate) fn flush(&mut self) {
        self.ends.iter_mut().for_each(End::flush);
    }

    /// The client closed its end: whether it was one of these.
    pub(crate) fn close(&mut self, client: i32) -> bool {
        let before = self.ends.len();
        self.ends.retain(|end| end.client != client);
        self.ends.len() < before
    }

    /// The clients' ends.
    pub(crate) fn clients(&self) -> impl Iterator<Item = i32> {
        self.ends.iter().map(|end| end.client)
    }

    fn open(&mut self) -> Result<i32, Errno> {
        let (client, ours) =
            sys::connected_pair().map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EMFILE)))?;
        self.ends.push(End { client, ours, waiting: VecDeque::new() });
        sys::know(client, sys::Known::Channel);
        Ok(client)
    }
}

impl End {
    fn flush(&mut self) {
        while let Some(record) = self.waiting.front() {
            if !sys::send_record(&self.ours, record.bytes()) {
                return;
            }
            self.waiting.pop_front();
        }
    }
}

impl Process for Channels {
    fn channel(&mut self) -> Result<i32, Errno> {
        self.open()
    }

    fn async_events(&mut self) -> Result<i32, Errno> {
        self.open()
    }

    fn may_use_raw_packets(&self) -> bool {
        sys::has_capability(CAP_NET_RAW)
    }

    fn locked_len_max(&self) -> Option<u64> {
        if sys::has_capability(CAP_IPC_LOCK) { None } else { sys::locked_len_max() }
    }
}
