//! Descriptors on which a client gets events: pairs of connected sockets, of which the client has
//! one end.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use softhca::hca::Errno;
use softhca::uverbs::{EventRecord, Process, Unread};
use softhca::wire;

use crate::sys;

/// linux/capability.h
const CAP_NET_RAW: u32 = 13;
const CAP_IPC_LOCK: u32 = 14;

/// All of one session's.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    ends: Vec<End>,
    neighbors: Neighbors,
}

/// Where a session finds the MAC addresses of its peers.
#[derive(Debug, Default)]
pub(crate) struct Neighbors {
    /// The kernel's interface on the port, if there is one: it asks.
    pub(crate) interface: Option<String>,
    /// The addresses of the other devices.
    pub(crate) known: Vec<([u8; 4], [u8; 6])>,
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
    pub(crate) fn new(neighbors: Neighbors) -> Self {
        Self { ends: Vec::new(), neighbors }
    }

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

    /// Takes back the records about an object that the client has not read. The kernel does so when
    /// an object is destroyed; it counts events for the client once they are read.
    fn take_back(&mut self, element: u64) -> Unread {
        let mut unread = Unread::default();
        for end in &mut self.ends {
            end.read_all();
            end.waiting.retain(|record| {
                let is_of_object = record.element() == element;
                match record.bytes().len() {
                    _ if !is_of_object => {}
                    8 => unread.completion += 1,
                    _ => unread.asynchronous += 1,
                }
                !is_of_object
            });
            end.flush();
        }
        unread
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
    /// Puts the records that the client has not read in front of those that wait.
    fn read_all(&mut self) {
        let mut unread = VecDeque::new();
        let mut bytes = [0; 16];
        while let len @ 1.. = sys::take_record(self.client, &mut bytes) {
            unread.push_back(EventRecord::of(&bytes[..len]));
        }
        unread.append(&mut self.waiting);
        self.waiting = unread;
    }

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

    fn take_back_events(&mut self, element: u64) -> Unread {
        self.take_back(element)
    }

    fn neighbor(&mut self, address: [u8; 4]) -> Result<[u8; 6], Errno> {
        let Neighbors { interface, known } = &self.neighbors;
        if let Some((_, mac)) = known.iter().find(|(known, _)| *known == address) {
            return Ok(*mac);
        }
        let interface = interface.as_ref().ok_or(Errno(libc::EHOSTUNREACH))?;
        wire::neighbor(interface, address).ok_or_else(|| {
            wire::ask_neighbor(interface, address);
            Errno(libc::EINPROGRESS)
        })
    }

    fn locked_len_max(&self) -> Option<u64> {
        if sys::has_capability(CAP_IPC_LOCK) { None } else { sys::locked_len_max() }
    }
}
