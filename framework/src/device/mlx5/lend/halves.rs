//! The two rings of a lent queue, as the broker has them: when the NIC may use them, and when never
//! again.

use std::io;

use crate::device::broker::message::Half;
use crate::device::mlx5::health::recover::Objects;

/// The rings of one client.
pub(super) struct Halves {
    rx: Box<dyn Objects + Send>,
    tx: Box<dyn Objects + Send>,
    frames: Frames,
    /// The client is gone, or is served no longer.
    has_ended: bool,
}

/// Whether the frames of a client's rules come to its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frames {
    NotYet,
    Come,
    /// And will not again: the ring is reset.
    NoMore,
}

impl Halves {
    /// Rings that are ready, and to which no rule leads.
    pub(super) fn new(rx: impl Objects + Send + 'static, tx: impl Objects + Send + 'static) -> Self {
        Self { rx: Box::new(rx), tx: Box::new(tx), frames: Frames::NotYet, has_ended: false }
    }

    pub(super) fn frames(&self) -> Frames {
        self.frames
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The frames of the client's rules come from now on. Returns whether they did not before.
    pub(super) fn connect(&mut self) -> io::Result<bool> {
        match self.frames {
            Frames::NoMore => Err(io::ErrorKind::NotConnected.into()),
            before => {
                self.frames = Frames::Come;
                Ok(before == Frames::NotYet)
            }
        }
    }

    /// Resets the receive ring for good, by a firmware command or two, however many rules lead
    /// there.
    pub(super) fn stop(&mut self) {
        if self.frames != Frames::NoMore {
            self.frames = Frames::NoMore;
            // A device that is gone delivers nothing either.
            let _ = self.rx.reset();
        }
    }

    /// No frame comes or goes any more: a program that is served no longer may be there still, and
    /// post.
    pub(super) fn end(&mut self) {
        self.stop();
        let _ = self.tx.reset();
        self.has_ended = true;
    }

    /// Has the NIC release a ring, as the client asks.
    pub(super) fn reset(&mut self, half: Half) -> io::Result<()> {
        match half {
            Half::Rx => self.rx.reset(),
            Half::Tx => self.tx.reset(),
        }
    }

    /// Gives it back to the NIC, unless that is over.
    pub(super) fn ready(&mut self, half: Half) -> io::Result<()> {
        match half {
            Half::Rx if self.frames == Frames::NoMore => Err(io::ErrorKind::NotConnected.into()),
            Half::Rx => self.rx.ready(),
            Half::Tx if self.has_ended => Err(io::ErrorKind::NotConnected.into()),
            Half::Tx => self.tx.ready(),
        }
    }

    /// The last call: the NIC releases both.
    pub(super) fn close(&mut self) {
        let _ = self.rx.close();
        let _ = self.tx.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What a ring was told, in order.
    type Said = Arc<Mutex<Vec<&'static str>>>;

    struct Ring(Said, [&'static str; 2]);

    impl Objects for Ring {
        fn reset(&mut self) -> io::Result<()> {
            self.0.lock().unwrap().push(self.1[0]);
            Ok(())
        }

        fn ready(&mut self) -> io::Result<()> {
            self.0.lock().unwrap().push(self.1[1]);
            Ok(())
        }
    }

    fn halves() -> (Halves, Said) {
        let said = Said::default();
        let ring = |words| Ring(Arc::clone(&said), words);
        (Halves::new(ring(["rx reset", "rx ready"]), ring(["tx reset", "tx ready"])), said)
    }

    fn take(said: &Said) -> Vec<&'static str> {
        core::mem::take(&mut said.lock().unwrap())
    }

    #[test]
    fn both_rings_of_a_client_that_is_served_no_longer_are_reset_at_once_and_stay_so() {
        let (mut halves, said) = halves();
        halves.connect().unwrap();
        halves.end();
        assert_eq!(take(&said), ["rx reset", "tx reset"]);
        // The client is there still, and asks for them.
        for half in [Half::Rx, Half::Tx] {
            assert_eq!(halves.ready(half).unwrap_err().kind(), io::ErrorKind::NotConnected);
        }
        assert_eq!(halves.connect().unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert_eq!(take(&said), [""; 0]);
    }

    #[test]
    fn client_that_wants_no_more_frames_still_sends() {
        let (mut halves, said) = halves();
        assert!(halves.connect().unwrap() && !halves.connect().unwrap(), "once");
        halves.stop();
        halves.stop();
        assert_eq!(take(&said), ["rx reset"]);
        assert!(halves.ready(Half::Rx).is_err());
        halves.reset(Half::Tx).and_then(|()| halves.ready(Half::Tx)).unwrap();
        assert_eq!(take(&said), ["tx reset", "tx ready"]);
    }
}
