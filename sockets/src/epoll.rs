//! An epoll set: its sockets, and a list of those whose readiness has changed since the last wait.
//! A socket that changes puts its items at the end of the list. A wait reads only the list, from
//! its front, so a thousand idle sockets cost nothing.
//!
//! ```text
//!   socket moved ──▶ list ──wait──▶ level: reported while it is ready, and put at the end again
//!                                   edge: reported once for each move
//!                                   one shot: reported once, then off until it is modified
//! ```

use std::collections::{HashMap, VecDeque};

use crate::errno::Errno;
use crate::ready::Ready;
use crate::table::SocketId;

/// When an item is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trigger {
    /// While it is ready.
    #[default]
    Level,
    /// Once for each change: data arrived, room became free, or the state changed (`EPOLLET`).
    Edge,
}

/// The events that an item asks for: `struct epoll_event`, with the flags separate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// The readiness to report. [`Ready::ALWAYS`] is reported in any case.
    pub ready: Ready,
    /// When the item is reported.
    pub trigger: Trigger,
    /// Report it once, and then nothing until it is modified (`EPOLLONESHOT`).
    pub one_shot: bool,
    /// Of all sets that request this for a socket, only one with a sleeping thread is woken
    /// (`EPOLLEXCLUSIVE`).
    pub exclusive: bool,
    /// The caller's own value (`epoll_data`).
    pub data: u64,
}

/// An event that a wait reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpollEvent {
    /// The requested readiness that the socket has.
    pub ready: Ready,
    /// The value of the [`Interest`].
    pub data: u64,
}

/// A socket's reference to its item in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    pub(crate) set: usize,
    pub(crate) item: usize,
}

/// A socket, and the descriptor by which it was added: a socket may be in a set by each of its
/// descriptors, as on Linux.
type Key = (SocketId, i32);

#[derive(Debug)]
pub(crate) struct Item {
    key: Key,
    interest: Interest,
    /// The item is in the list.
    is_listed: bool,
    /// A one-shot item that was reported is off.
    pub(crate) is_off: bool,
}

/// An epoll set.
#[derive(Debug, Default)]
pub(crate) struct Epoll {
    items: Vec<Option<Item>>,
    free: Vec<usize>,
    by_key: HashMap<Key, usize>,
    listed: VecDeque<usize>,
    /// Threads that sleep until an item is ready.
    pub(crate) sleepers: usize,
    /// Those of them that exclusive items have woken, and that have not looked yet.
    pub(crate) awaited: usize,
    /// The set is among those that [`Sockets::take_woken`](crate::Sockets::take_woken) names next.
    pub(crate) is_woken: bool,
}

impl Epoll {
    /// The sockets of the set, with the descriptors by which they were added and their events.
    pub(crate) fn items(&self) -> impl Iterator<Item = (SocketId, i32, Interest)> {
        self.items.iter().flatten().map(|item| (item.key.0, item.key.1, item.interest))
    }

    /// `EPOLL_CTL_ADD`. The next wait checks the item. Returns its number.
    ///
    /// # Errors
    /// `EEXIST`: it is in the set.
    pub(crate) fn add(&mut self, socket: SocketId, fd: i32, interest: Interest) -> Result<usize, Errno> {
        let key = (socket, fd);
        if interest.exclusive && interest.one_shot {
            return Err(Errno::EINVAL);
        }
        if self.by_key.contains_key(&key) {
            return Err(Errno::EEXIST);
        }
        let item = Item { key, interest, is_listed: false, is_off: false };
        let idx = match self.free.pop() {
            Some(idx) => {
                self.items[idx] = Some(item);
                idx
            }
            None => {
                self.items.push(Some(item));
                self.items.len() - 1
            }
        };
        self.by_key.insert(key, idx);
        self.list(idx);
        Ok(idx)
    }

    /// `EPOLL_CTL_MOD`: also turns a one-shot item on again, and reports it if it is ready. Returns
    /// its number.
    ///
    /// # Errors
    /// `ENOENT`: it is not in the set.
    pub(crate) fn modify(&mut self, socket: SocketId, fd: i32, interest: Interest) -> Result<usize, Errno> {
        let idx = *self.by_key.get(&(socket, fd)).ok_or(Errno::ENOENT)?;
        if let Some(item) = &mut self.items[idx] {
            if item.interest.exclusive || interest.exclusive {
                return Err(Errno::EINVAL);
            }
            item.interest = interest;
            item.is_off = false;
        }
        self.list(idx);
        Ok(idx)
    }

    /// `EPOLL_CTL_DEL`. Returns the item's number.
    ///
    /// # Errors
    /// `ENOENT`: it is not in the set.
    pub(crate) fn delete(&mut self, socket: SocketId, fd: i32) -> Result<usize, Errno> {
        let idx = self.by_key.remove(&(socket, fd)).ok_or(Errno::ENOENT)?;
        self.take_from_list(idx);
        self.items[idx] = None;
        self.free.push(idx);
        Ok(idx)
    }

    /// The item of a socket by its descriptor.
    ///
    /// # Errors
    /// `ENOENT`: it is not in the set.
    pub(crate) fn item(&mut self, socket: SocketId, fd: i32) -> Result<&mut Item, Errno> {
        let idx = *self.by_key.get(&(socket, fd)).ok_or(Errno::ENOENT)?;
        self.items[idx].as_mut().ok_or(Errno::ENOENT)
    }

    /// Removes an item whose socket was closed with its last descriptor.
    pub(crate) fn forget(&mut self, idx: usize) {
        if let Some((socket, fd)) = self.items[idx].as_ref().map(|item| item.key) {
            let _ = self.delete(socket, fd);
        }
    }

    /// Puts an item in the list, because its socket has changed: the next wait checks it. Some 5
    /// ns, less if it is listed already.
    pub(crate) fn list(&mut self, idx: usize) {
        if let Some(item) = &mut self.items[idx]
            && !item.is_listed
        {
            item.is_listed = true;
            self.listed.push_back(idx);
        }
    }

    /// Takes an item out of the list.
    ///
    /// # Errors
    /// `ENOENT`: it is not in the set.
    pub(crate) fn unlist(&mut self, socket: SocketId, fd: i32) -> Result<(), Errno> {
        let idx = *self.by_key.get(&(socket, fd)).ok_or(Errno::ENOENT)?;
        self.take_from_list(idx);
        Ok(())
    }

    fn take_from_list(&mut self, idx: usize) {
        if self.items[idx].as_mut().is_some_and(|item| core::mem::take(&mut item.is_listed)) {
            self.listed.retain(|listed| *listed != idx);
        }
    }

    /// Whether an item must be checked after the changes `moved`.
    pub(crate) fn asks_for(&self, idx: usize, moved: Ready) -> bool {
        self.items[idx].as_ref().is_some_and(|item| !moved.among(item.interest.ready).is_none() && !item.is_off)
    }

    /// Whether an item is exclusive (`EPOLLEXCLUSIVE`).
    pub(crate) fn is_exclusive(&self, idx: usize) -> bool {
        self.items[idx].as_ref().is_some_and(|item| item.interest.exclusive)
    }

    /// Whether a wait would report an event. Removes listed items that are not ready.
    pub(crate) fn is_ready(&mut self, ready_of: impl Fn(SocketId) -> Ready) -> bool {
        while let Some(idx) = self.listed.front().copied() {
            let item = self.items[idx].as_mut();
            if let Some(item) = item {
                let ready = ready_of(item.key.0).among(item.interest.ready);
                if !item.is_off && !ready.is_none() {
                    return true;
                }
                item.is_listed = false;
            }
            self.listed.pop_front();
        }
        false
    }

    /// Whether the list has items.
    pub(crate) fn has_listed(&self) -> bool {
        !self.listed.is_empty()
    }

    /// The sockets in the set, for the caller that closes it.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = SocketId> {
        self.items.iter().flatten().map(|item| item.key.0)
    }

    /// Reports ready items in `events`, the one that has waited longest first, and returns their
    /// number. Checks each item once.
    pub(crate) fn wait(&mut self, events: &mut [EpollEvent], ready_of: impl Fn(SocketId) -> Ready) -> usize {
        let mut count = 0;
        for _ in 0..self.listed.len() {
            if count == events.len() {
                break;
            }
            let Some(idx) = self.listed.pop_front() else { break };
            let Some(item) = &mut self.items[idx] else { continue };
            item.is_listed = false;
            let ready = ready_of(item.key.0).among(item.interest.ready);
            if item.is_off || ready.is_none() {
                continue;
            }
            events[count] = EpollEvent { ready, data: item.interest.data };
            count += 1;
            item.is_off = item.interest.one_shot;
            if item.interest.trigger == Trigger::Level && !item.is_off {
                self.list(idx);
            }
        }
        count
    }
}
