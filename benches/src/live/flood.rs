//! A sender at full rate: the same for every contender, at the near end of a pair, through the
//! kernel.

use core::net::SocketAddrV4;
use core::sync::atomic::{AtomicBool, Ordering};
use std::net::UdpSocket;
use std::{io, thread};

use super::pair::{FAR, NEAR, Pair};
use super::sys::{self, Batch};
use crate::measure::cores;

/// Messages a system call.
const BATCH: usize = 64;
/// Payload of a frame of 60 bytes.
const FRAME_PAYLOAD_LEN: usize = 18;

/// The traffic to send.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// Frames of 60 bytes to the far end, at the kernel's full rate: 64 at a time pass its stack as
    /// one (UDP_SEGMENT).
    Frames,
    /// Datagrams of so many bytes to a group, each on its own.
    Datagrams(SocketAddrV4, usize),
}

/// Runs `act` while a thread on `core` sends from the near end of `pair`; returns the result of
/// `act`.
///
/// # Errors
/// The sender has no socket.
pub fn flooded<T>(pair: &Pair, core: usize, source: Source, act: impl FnOnce() -> T) -> Result<T, String> {
    let (stopping, socket) = (AtomicBool::new(false), open_socket(pair, source)?);
    thread::scope(|scope| {
        scope.spawn(|| {
            cores::pin(core);
            sys::run_first();
            let mut sender = Sender::new(socket, source);
            while !stopping.load(Ordering::Relaxed) {
                sender.send_many();
            }
        });
        let result = act();
        stopping.store(true, Ordering::Relaxed);
        Ok(result)
    })
}

/// A socket at the near end that sends `source`.
///
/// # Errors
/// In words.
pub fn open_socket(pair: &Pair, source: Source) -> Result<UdpSocket, String> {
    let open = || {
        let socket = UdpSocket::bind((NEAR.address, 0))?;
        match source {
            Source::Frames => {
                sys::cut_into_segments(&socket, FRAME_PAYLOAD_LEN as i32)?;
                socket.connect((FAR.address, 9))?;
            }
            Source::Datagrams(group, _) => socket.connect(group)?,
        }
        io::Result::Ok(socket)
    };
    pair.near.run(open).map_err(|error| format!("the sender has no socket: {error}"))
}

/// A socket and the data that it sends.
pub struct Sender {
    socket: UdpSocket,
    batch: Batch,
    message: Vec<u8>,
    /// Frames a message.
    frames: usize,
}

impl Sender {
    /// From a socket that was opened for `source`.
    pub fn new(socket: UdpSocket, source: Source) -> Self {
        let (len, frames) = match source {
            Source::Frames => (FRAME_PAYLOAD_LEN * BATCH, BATCH),
            Source::Datagrams(_, len) => (len, 1),
        };
        let message = vec![0; len];
        Self { socket, batch: Batch::new(vec![message.clone(); BATCH]), message, frames }
    }

    /// Sends one message; returns its number of frames.
    pub fn send_one(&self) -> usize {
        self.socket.send(&self.message).map_or(0, |_| self.frames)
    }

    /// Sends many messages by one system call. Messages that are refused (a device that is full for
    /// a moment) are not sent.
    fn send_many(&mut self) {
        let _ = self.batch.send(&self.socket);
    }
}
