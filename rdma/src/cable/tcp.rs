//! A cable in a TCP connection: each frame behind its length, two bytes, the higher first.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::{Cable, CableError, FRAME_LEN_MAX};

const LEN_LEN: usize = 2;
/// Bytes of each direction that wait in the process: of a turn's frames a fourth, if they are long.
const WAITING_LEN_MAX: usize = 64 * 1024;

/// One end of a cable in a TCP connection. A turn makes a call or two of the
/// kernel for each 64 KiB that it moves in a direction, and one where it moves none.
pub struct FramedTcp {
    stream: TcpStream,
    outgoing: Vec<u8>,
    incoming: Box<[u8]>,
    /// The bytes of `incoming` that are not read yet.
    unread: core::ops::Range<usize>,
}

impl FramedTcp {
    /// Takes a connection over, from the next byte on.
    ///
    /// # Errors
    /// The kernel refuses to poll it.
    pub fn new(stream: TcpStream) -> Result<Self, CableError> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let outgoing = Vec::with_capacity(WAITING_LEN_MAX);
        Ok(Self { stream, outgoing, incoming: vec![0; WAITING_LEN_MAX].into(), unread: 0..0 })
    }

    /// Takes the next frame out of the bytes that are here.
    fn take(&mut self, frame: &mut [u8]) -> Result<Option<usize>, CableError> {
        let unread = &self.incoming[self.unread.clone()];
        let Some((len, rest)) = unread.split_first_chunk() else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes(*len));
        if len > FRAME_LEN_MAX || len > frame.len() {
            return Err(CableError::Broken("a frame that is too long"));
        }
        let Some(bytes) = rest.get(..len) else { return Ok(None) };
        frame[..len].copy_from_slice(bytes);
        self.unread.start += LEN_LEN + len;
        Ok(Some(len))
    }

    /// Reads what the kernel has, behind what is here; false where it has nothing.
    fn fill(&mut self) -> Result<bool, CableError> {
        self.incoming.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        match self.stream.read(&mut self.incoming[self.unread.end..]) {
            Ok(0) => Err(CableError::Closed),
            Ok(len) => {
                self.unread.end += len;
                Ok(true)
            }
            Err(error) if is_later(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Cable for FramedTcp {
    fn has_room(&mut self) -> Result<bool, CableError> {
        let has_room = |waiting: &Vec<u8>| waiting.len() + LEN_LEN + FRAME_LEN_MAX <= WAITING_LEN_MAX;
        if !has_room(&self.outgoing) {
            self.flush()?;
        }
        Ok(has_room(&self.outgoing))
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), CableError> {
        let frame = &frame[..frame.len().min(FRAME_LEN_MAX)];
        self.outgoing.extend_from_slice(&(frame.len() as u16).to_be_bytes());
        self.outgoing.extend_from_slice(frame);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CableError> {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(0) => return Err(CableError::Closed),
                Ok(len) => drop(self.outgoing.drain(..len)),
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self, frame: &mut [u8]) -> Result<Option<usize>, CableError> {
        match self.take(frame)? {
            None if self.fill()? => self.take(frame),
            taken => Ok(taken),
        }
    }
}
