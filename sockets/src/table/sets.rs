//! Epoll sets, and the sockets in them.

use super::{SocketId, Sockets, socket_of};
use crate::epoll::{Epoll, EpollEvent, Interest, Watch};
use crate::errno::Errno;
use crate::ready::Ready;
use crate::socket::Socket;

impl Sockets {
    /// `epoll_create`: the number of a new, empty set.
    pub fn epoll_create(&mut self) -> usize {
        match self.sets.iter().position(Option::is_none) {
            Some(idx) => {
                self.sets[idx] = Some(Epoll::default());
                idx
            }
            None => {
                self.sets.push(Some(Epoll::default()));
                self.sets.len() - 1
            }
        }
    }

    /// `close` of a set.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn epoll_close(&mut self, set: usize) -> Result<(), Errno> {
        let closed = self.sets.get_mut(set).and_then(Option::take).ok_or(Errno::EBADF)?;
        self.woken.retain(|woken| *woken != set);
        for id in closed.sockets() {
            if let Ok(socket) = self.find(id) {
                socket.watches.retain(|watch| watch.set != set);
            }
        }
        Ok(())
    }

    /// `EPOLL_CTL_ADD` of a socket by its descriptor `fd`.
    ///
    /// # Errors
    /// `EBADF`; `EEXIST`: in the set by that descriptor.
    pub fn epoll_add(&mut self, set: usize, id: SocketId, fd: i32, interest: Interest) -> Result<(), Errno> {
        self.find(id)?;
        let item = self.set(set)?.add(id, fd, interest)?;
        self.find(id)?.watches.push(Watch { set, item });
        self.list(Watch { set, item });
        Ok(())
    }

    /// `EPOLL_CTL_MOD`.
    ///
    /// # Errors
    /// `EBADF`, `ENOENT`.
    pub fn epoll_modify(&mut self, set: usize, id: SocketId, fd: i32, interest: Interest) -> Result<(), Errno> {
        let item = self.set(set)?.modify(id, fd, interest)?;
        self.list(Watch { set, item });
        Ok(())
    }

    /// `EPOLL_CTL_DEL`.
    ///
    /// # Errors
    /// `EBADF`, `ENOENT`.
    pub fn epoll_delete(&mut self, set: usize, id: SocketId, fd: i32) -> Result<(), Errno> {
        let item = self.set(set)?.delete(id, fd)?;
        self.find(id)?.watches.retain(|watch| *watch != Watch { set, item });
        Ok(())
    }

    /// The sockets of a set, with the descriptors by which they were added and their events.
    /// Allocates.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn epoll_items(&mut self, set: usize) -> Result<Vec<(SocketId, i32, Interest)>, Errno> {
        Ok(self.set(set)?.items().collect())
    }

    /// Turns a one-shot item off, as if it were reported: its event came by another way, from a
    /// second descriptor of the same socket.
    ///
    /// # Errors
    /// `EBADF`, `ENOENT`.
    pub fn epoll_disarm(&mut self, set: usize, id: SocketId, fd: i32) -> Result<(), Errno> {
        self.set(set)?.item(id, fd)?.is_off = true;
        Ok(())
    }

    /// Notes that what an item has now was reported by another way: an edge-triggered item reports
    /// it no more.
    ///
    /// # Errors
    /// `EBADF`, `ENOENT`.
    pub fn epoll_unlist(&mut self, set: usize, id: SocketId, fd: i32) -> Result<(), Errno> {
        self.set(set)?.unlist(id, fd)
    }

    /// Whether an item reports events: not a one-shot item that was reported.
    ///
    /// # Errors
    /// `EBADF`, `ENOENT`.
    pub fn epoll_is_armed(&mut self, set: usize, id: SocketId, fd: i32) -> Result<bool, Errno> {
        Ok(!self.set(set)?.item(id, fd)?.is_off)
    }

    /// `epoll_wait` without a wait: returns how many `events` it stored. If all that is ready was
    /// stored, [`take_woken`](Self::take_woken) does not name the set for it again.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn epoll_wait(&mut self, set: usize, events: &mut [EpollEvent]) -> Result<usize, Errno> {
        let slots = &self.slots;
        let number = set;
        let set = self.sets.get_mut(set).and_then(Option::as_mut).ok_or(Errno::EBADF)?;
        // One of the threads that were woken looks now.
        set.awaited = set.awaited.saturating_sub(1);
        if !set.has_listed() {
            return Ok(0);
        }
        let count = set.wait(events, |id| socket_of(slots, id).map_or(Ready::NONE, Socket::ready));
        if count < events.len() && core::mem::take(&mut set.is_woken) {
            self.woken.retain(|woken| *woken != number);
        }
        Ok(count)
    }

    /// Whether [`epoll_wait`](Self::epoll_wait) has anything to check.
    #[inline]
    pub fn epoll_has_listed(&self, set: usize) -> bool {
        matches!(self.sets.get(set), Some(Some(set)) if set.has_listed())
    }

    /// Has [`take_woken`](Self::take_woken) name the set again, because a caller that was woken
    /// for it left events behind.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn epoll_rewake(&mut self, set: usize) -> Result<(), Errno> {
        if self.epoll_ready(set)? && !core::mem::replace(&mut self.set(set)?.is_woken, true) {
            self.woken.push(set);
        }
        Ok(())
    }

    /// Whether [`epoll_wait`](Self::epoll_wait) would report an event; takes none. Called before a
    /// sleep, and for `poll` of a set.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn epoll_ready(&mut self, set: usize) -> Result<bool, Errno> {
        let slots = &self.slots;
        let set = self.sets.get_mut(set).and_then(Option::as_mut).ok_or(Errno::EBADF)?;
        Ok(set.has_listed() && set.is_ready(|id| socket_of(slots, id).map_or(Ready::NONE, Socket::ready)))
    }

    /// Records that a thread begins to sleep on the set (`true`), or has woken (`false`). Of
    /// several exclusive sets only one with a sleeping thread is woken.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn epoll_sleeps(&mut self, set: usize, sleeps: bool) -> Result<(), Errno> {
        let set = self.set(set)?;
        set.sleepers = if sleeps { set.sleepers + 1 } else { set.sleepers.saturating_sub(1) };
        set.awaited = set.awaited.min(set.sleepers);
        Ok(())
    }

    /// Calls `wakes` for each set in which an item has become ready since the last call: callers
    /// that sleep on the set, or watch the set itself, must be woken.
    pub fn take_woken(&mut self, mut wakes: impl FnMut(usize)) {
        while let Some(number) = self.woken.pop() {
            if let Some(Some(set)) = self.sets.get_mut(number)
                && core::mem::take(&mut set.is_woken)
            {
                wakes(number);
            }
        }
    }

    /// Puts an item in the list of its set.
    pub(super) fn list(&mut self, watch: Watch) {
        let Some(Some(set)) = self.sets.get_mut(watch.set) else { return };
        set.list(watch.item);
        if !core::mem::replace(&mut set.is_woken, true) {
            self.woken.push(watch.set);
        }
    }

    pub(super) fn set(&mut self, set: usize) -> Result<&mut Epoll, Errno> {
        self.sets.get_mut(set).and_then(Option::as_mut).ok_or(Errno::EBADF)
    }
}
