//! Descriptors: numbers, the open files behind them, and the state that `dup` shares. This file
//! uses neither sockets nor the kernel; the library that interposes a program's calls chooses the
//! numbers.
//!
//! ```text
//!   fd 5 ─┐ close-on-exec is the descriptor's
//!         ├──▶ open file: non-blocking, what it is    `dup` shares it; the last `close` ends it
//!   fd 9 ─┘
//! ```

use core::cell::Cell;
use std::rc::Rc;

use crate::errno::Errno;
use crate::table::SocketId;

/// Descriptors of one page of the table.
const PAGE_LEN: usize = 256;

/// The kinds of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// A socket of ours.
    Socket(SocketId),
    /// An epoll set, by its number.
    Epoll(usize),
}

/// An open file: the state that duplicated descriptors share.
#[derive(Debug)]
pub struct OpenFile {
    /// Its kind.
    pub file: File,
    /// `O_NONBLOCK`.
    pub nonblocking: Cell<bool>,
}

#[derive(Clone, Debug)]
struct Descriptor {
    file: Rc<OpenFile>,
    closes_on_exec: bool,
}

type Page = [Option<Descriptor>; PAGE_LEN];

/// The descriptors of a process. Pages are made as numbers are used, so that a limit of a billion
/// open files costs nothing.
#[derive(Debug, Default)]
pub struct Descriptors {
    pages: Vec<Option<Box<Page>>>,
}

/// The effect of closing a descriptor.
#[derive(Clone, Debug)]
pub enum Closed {
    /// Others still name its open file.
    Shared,
    /// It was the last one: the caller ends the file.
    Last(File),
}

impl Descriptors {
    /// A table without descriptors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Enters `file` in the table under the number `fd`, which the kernel chose for it in `socket`,
    /// `accept` or `epoll_create`. If the number was in use, its former file is closed, as by
    /// `dup2`, and returned.
    ///
    /// # Errors
    /// `EBADF`: a negative number.
    pub fn open(
        &mut self,
        fd: i32,
        file: File,
        nonblocking: bool,
        closes_on_exec: bool,
    ) -> Result<Option<Closed>, Errno> {
        let file = Rc::new(OpenFile { file, nonblocking: Cell::new(nonblocking) });
        self.put(fd, Descriptor { file, closes_on_exec })
    }

    /// The open file of a descriptor; `None` for a descriptor that is not ours. Takes some 2 ns.
    #[inline]
    pub fn get(&self, fd: i32) -> Option<&OpenFile> {
        self.find(fd).map(|descriptor| &*descriptor.file)
    }

    /// `dup2`, `dup3` and, with a number that the kernel chose, `dup` and `F_DUPFD`: `to` names the
    /// open file of `from`. Returns the file that `to` named before, which is closed.
    ///
    /// # Errors
    /// `EBADF`: `from` is not ours.
    pub fn duplicate(&mut self, from: i32, to: i32, closes_on_exec: bool) -> Result<Option<Closed>, Errno> {
        let file = self.find(from).ok_or(Errno::EBADF)?.file.clone();
        if from == to {
            return Ok(None);
        }
        self.put(to, Descriptor { file, closes_on_exec })
    }

    /// `close`.
    ///
    /// # Errors
    /// `EBADF`: not ours.
    pub fn close(&mut self, fd: i32) -> Result<Closed, Errno> {
        let descriptor = self.place(fd).and_then(Option::take).ok_or(Errno::EBADF)?;
        Ok(Closed::of(descriptor))
    }

    /// `close_range` and `closefrom`: closes our descriptors within `first..=last`.
    pub fn close_range(&mut self, first: i32, last: i32, mut closed: impl FnMut(i32, Closed)) {
        for fd in self.numbers(|_| true) {
            if (first..=last).contains(&fd)
                && let Ok(what) = self.close(fd)
            {
                closed(fd, what);
            }
        }
    }

    /// `execve`: closes the descriptors that have the close-on-exec flag.
    pub fn exec(&mut self, mut closed: impl FnMut(i32, Closed)) {
        for fd in self.numbers(|descriptor| descriptor.closes_on_exec) {
            if let Ok(what) = self.close(fd) {
                closed(fd, what);
            }
        }
    }

    /// `F_GETFD`.
    ///
    /// # Errors
    /// `EBADF`: not ours.
    pub fn closes_on_exec(&self, fd: i32) -> Result<bool, Errno> {
        Ok(self.find(fd).ok_or(Errno::EBADF)?.closes_on_exec)
    }

    #[inline]
    fn find(&self, fd: i32) -> Option<&Descriptor> {
        let fd = usize::try_from(fd).ok()?;
        self.pages.get(fd / PAGE_LEN)?.as_ref()?[fd % PAGE_LEN].as_ref()
    }

    fn place(&mut self, fd: i32) -> Option<&mut Option<Descriptor>> {
        let fd = usize::try_from(fd).ok()?;
        Some(&mut self.pages.get_mut(fd / PAGE_LEN)?.as_mut()?[fd % PAGE_LEN])
    }

    fn put(&mut self, fd: i32, descriptor: Descriptor) -> Result<Option<Closed>, Errno> {
        let fd = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        let page = fd / PAGE_LEN;
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new([const { None }; PAGE_LEN]));
        Ok(page[fd % PAGE_LEN].replace(descriptor).map(Closed::of))
    }

    fn numbers(&self, picks: impl Fn(&Descriptor) -> bool) -> Vec<i32> {
        let pages = self.pages.iter().enumerate().filter_map(|(idx, page)| page.as_ref().map(|page| (idx, page)));
        let entries = pages.flat_map(|(idx, page)| (idx * PAGE_LEN..).zip(page.iter()));
        entries.filter(|(_, entry)| entry.as_ref().is_some_and(&picks)).map(|(fd, _)| fd as i32).collect()
    }
}

impl Closed {
    fn of(descriptor: Descriptor) -> Self {
        match Rc::try_unwrap(descriptor.file) {
            Ok(file) => Self::Last(file.file),
            Err(_) => Self::Shared,
        }
    }
}
