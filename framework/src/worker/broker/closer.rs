//! Closes the files that clients send. A hostile client can have that take as long as it likes: a
//! connection that lingers (`SO_LINGER`), a file of a file system that is its own (fuse(4)). So a
//! thread of its own closes them, and while that has many to close the broker takes no files.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// The most messages whose files wait to be closed.
const WAITING_MAX: usize = 64;

/// The thread that closes. It ends after this value, once all is closed.
pub(super) struct Closer {
    files: Option<Sender<Vec<OwnedFd>>>,
    waiting: Arc<AtomicUsize>,
}

impl Closer {
    /// Starts the thread. Without one no file is taken.
    pub(super) fn start() -> Self {
        let ((files, taken), waiting) = (channel::<Vec<OwnedFd>>(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&waiting);
        let run = move || {
            for files in taken {
                drop(files);
                counted.fetch_sub(1, Ordering::Relaxed);
            }
        };
        let started = thread::Builder::new().name("wirepath-close".into()).spawn(run);
        Self { files: started.is_ok().then_some(files), waiting }
    }

    /// Whether the files of another message may be taken.
    pub(super) fn has_room(&self) -> bool {
        self.files.is_some() && self.waiting.load(Ordering::Relaxed) < WAITING_MAX
    }

    /// Has the files of a message closed.
    pub(super) fn close(&self, files: Vec<OwnedFd>) {
        if let Some(sender) = &self.files
            && !files.is_empty()
        {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            // The thread lives as long as the sender.
            let _ = sender.send(files);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::sys::socket::set;

    #[test]
    fn file_is_closed() {
        let closer = Closer::start();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        closer.close(vec![theirs.into()]);
        assert_eq!(ours.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn file_that_takes_long_to_close_keeps_nobody_waiting_and_too_many_of_them_are_not_taken() {
        let closer = Closer::start();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut lingers = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let linger = [1_i32, 60];
        set(&lingers, libc::SOL_SOCKET, libc::SO_LINGER, &linger).unwrap();
        lingers.set_nonblocking(true).unwrap();
        // More than the peer, which reads nothing, has room for.
        while std::io::Write::write(&mut lingers, &[7; 65_536]).is_ok() {}
        closer.close(vec![lingers.into()]);
        let (ours, theirs) = UnixStream::pair().unwrap();
        (1..WAITING_MAX).for_each(|_| closer.close(vec![theirs.try_clone().unwrap().into()]));
        drop(theirs);
        assert!(!closer.has_room());
        ours.set_nonblocking(true).unwrap();
        assert_eq!((&ours).read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
        // The peer reads on.
        peer.read_to_end(&mut Vec::new()).unwrap();
        ours.set_nonblocking(false).unwrap();
        assert_eq!((&ours).read(&mut [0; 1]).unwrap(), 0);
    }
}
