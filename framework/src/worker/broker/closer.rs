//! Closes the files that clients send, and the sockets in which some of them may still be. A
//! hostile client can have that take as long as it likes: a connection that lingers (`SO_LINGER`),
//! a file of a file system that is its own (fuse(4)). So the broker's loop closes none: each user
//! who has files waiting has a thread for that, which ends with the last of them. While many of a
//! user wait, the broker takes no others of this user.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::device::broker::sys;

/// The descriptors of a user that may wait before no others are taken.
const WAITING_MAX: usize = 8;
/// In place of a user: all who are refused. No user has this number.
pub(super) const STRANGERS: u32 = u32::MAX;

/// What waits to be closed. The threads end after this value, once all is closed.
#[derive(Default)]
pub(super) struct Closer(Arc<Mutex<Users>>);

/// Users who have files waiting.
type Users = HashMap<u32, OfUser>;

#[derive(Default)]
struct OfUser {
    files: VecDeque<OwnedFd>,
    /// Those and the one that is being closed.
    waiting: usize,
    has_thread: bool,
}

impl Closer {
    /// Whether files of another message of this user may be taken.
    pub(super) fn has_room(&self, uid: u32) -> bool {
        lock(&self.0).get(&uid).is_none_or(|user| user.waiting < WAITING_MAX)
    }

    /// Has files of a user closed.
    pub(super) fn close(&self, uid: u32, files: Vec<OwnedFd>) {
        if files.is_empty() {
            return;
        }
        let mut users = lock(&self.0);
        let user = users.entry(uid).or_default();
        user.waiting += files.len();
        user.files.extend(files);
        if !user.has_thread {
            let all = Arc::clone(&self.0);
            let started = thread::Builder::new().name("wirepath-close".into()).spawn(move || close_all(&all, uid));
            // Without a thread they wait for the one that the next of them starts.
            user.has_thread = started.is_ok();
        }
    }

    /// Ends a connection of a user. The socket is closed here if nothing is in it that could take
    /// long.
    pub(super) fn end(&self, uid: u32, socket: OwnedFd) {
        if sys::may_linger_after_end(&socket) {
            self.close(uid, vec![socket]);
        }
    }
}

/// Closes what waits of a user, one after the other.
fn close_all(users: &Mutex<Users>, uid: u32) {
    loop {
        let mut all = lock(users);
        let Some(next) = all.get_mut(&uid).and_then(|user| user.files.pop_front()) else {
            all.remove(&uid);
            return;
        };
        drop(all);
        // Not under the lock: the broker's loop takes that.
        drop(next);
        lock(users).entry(uid).and_modify(|user| user.waiting -= 1);
    }
}

fn lock(users: &Mutex<Users>) -> MutexGuard<'_, Users> {
    users.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::sys::socket::set;

    const UID: u32 = 1_000;
    const OTHER: u32 = 1_001;

    /// A connection whose last close waits for its peer, which has read nothing so far.
    pub(in crate::worker::broker) fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut lingers = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        set(&lingers, libc::SOL_SOCKET, libc::SO_LINGER, &[1_i32, 60]).unwrap();
        lingers.set_nonblocking(true).unwrap();
        // More than the peer has room for.
        while std::io::Write::write(&mut lingers, &[7; 65_536]).is_ok() {}
        // The close waits only where the file says so.
        lingers.set_nonblocking(false).unwrap();
        (lingers.into(), peer)
    }

    #[test]
    fn file_is_closed_and_no_thread_is_left() {
        let closer = Closer::default();
        for _ in 0..2 {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            closer.close(UID, vec![theirs.into()]);
            assert_eq!(ours.read(&mut [0; 1]).unwrap(), 0);
            while !lock(&closer.0).is_empty() {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn file_that_takes_long_to_close_keeps_nobody_waiting_and_too_many_of_them_are_not_taken() {
        let closer = Closer::default();
        let (lingers, mut peer) = lingering();
        closer.close(UID, vec![lingers]);
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(closer.has_room(UID));
        closer.close(UID, (1..WAITING_MAX).map(|_| theirs.try_clone().unwrap().into()).collect());
        drop(theirs);
        assert!(!closer.has_room(UID));
        ours.set_nonblocking(true).unwrap();
        assert_eq!((&ours).read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
        // Another user has a thread of his own.
        let (mut others, theirs) = UnixStream::pair().unwrap();
        assert!(closer.has_room(OTHER));
        closer.close(OTHER, vec![theirs.into()]);
        assert_eq!(others.read(&mut [0; 1]).unwrap(), 0);
        // The peer reads on.
        peer.read_to_end(&mut Vec::new()).unwrap();
        ours.set_nonblocking(false).unwrap();
        assert_eq!((&ours).read(&mut [0; 1]).unwrap(), 0);
    }
}
