//! Sockets over a wirepath worker, with the semantics of Linux: for programs that use `std::net`
//! instead of callbacks.
//!
//! ```text
//!   net            UdpSocket, TcpListener, TcpStream: the names and the behavior of std::net
//!   stack          whose turn it is: a call that would block polls the worker until it need not
//!   descriptors    numbers, what dup shares, close-on-exec
//!   epoll          who waits for which socket: level, edge, one shot
//!   live           from the name of an interface to a stack on it
//!   table          the worker's app: sockets by connection and by consumer, and their calls
//!   control        the control messages of a send
//!   sockopt        options by their numbers, as setsockopt and getsockopt have them
//!   steering       which frames the port gives to the worker
//!   socket         one stream, one listener, one datagram socket
//!   options, errno, ready    the words of the calls
//!   listing        what `wirepath sockets` shows of a program's sockets
//!   rules          whose sockets leave the kernel (feature `rules`)
//! ```
//! An arrow points down, and only down. Except for `live`, and for the files of `listing` and
//! `rules`, no part makes a system call, knows a device, or reads a clock other than the one it was
//! given. So a [`Stack`] runs over any [`Worker`]: over plain memory in virtual time as well as
//! over a NIC.
//!
//! [`Worker`]: wirepath::worker::Worker
//!
//! Two hosts over a wire of plain memory. One thread runs both, so the host that would block polls
//! the other meanwhile; over a NIC that is not needed.
//!
//! ```
//! use std::io::{Read, Write};
//!
//! use sockets::net::{TcpListener, TcpStream};
//! use sockets::{Sockets, Stack};
//! use wirepath::counters::Block;
//! use wirepath::device::memory::{MemoryConfig, pair};
//! use wirepath::pipeline::tcp::TcpConfig;
//! use wirepath::time::MonotonicClock;
//! use wirepath::worker::Worker;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (mut left, mut right) = pair("wire", MemoryConfig::default());
//! let block = Block::heap();
//! let client = Worker::builder(&mut left)?.address("192.0.2.1/24".parse()?).tcp(TcpConfig::default());
//! let client = Stack::over(client.build(Sockets::new(64), &block.scope("client"))?, MonotonicClock::start());
//! let server = Worker::builder(&mut right)?.address("192.0.2.2/24".parse()?).tcp(TcpConfig::default());
//! let server = Stack::over(server.build(Sockets::new(64), &block.scope("server"))?, MonotonicClock::start());
//! client.when_idle({ let server = server.clone(); move |_| _ = server.turn() });
//! server.when_idle({ let client = client.clone(); move |_| _ = client.turn() });
//!
//! let listener = TcpListener::bind(&server, "192.0.2.2:80".parse()?)?;
//! let mut ours = TcpStream::connect(&client, "192.0.2.2:80".parse()?)?;
//! let (mut theirs, from) = listener.accept()?;
//! ours.write_all(b"hello")?;
//! let mut word = [0; 5];
//! theirs.read_exact(&mut word)?;
//! assert_eq!((&word, from), (b"hello", ours.local_addr()?));
//! # Ok(())
//! # }
//! ```

mod control;
mod descriptors;
mod epoll;
mod errno;
pub mod listing;
mod live;
pub mod net;
mod options;
mod ready;
#[cfg(feature = "rules")]
pub mod rules;
mod socket;
mod sockopt;
mod stack;
mod steering;
mod table;
mod timestamping;
mod wall;

pub use control::SendControl;
pub use descriptors::{Closed, Descriptors, File, OpenFile};
pub use epoll::{EpollEvent, Interest, Trigger};
pub use errno::Errno;
pub use options::{Ancillary, MtuDiscover, Options, Shutdown, TimestampResolution};
pub use ready::Ready;
pub use socket::datagram::{DatagramInfo, UnreadDatagram};
pub use socket::error_queue::{ErrorOrigin, QueuedError, QueuedPacket};
pub use sockopt::System;
pub use stack::{PollSocket, Sleep, SocketWorker, Stack};
pub use steering::Steering;
pub use table::closing::Closing;
pub use table::message::{RecvFlags, SendFlags};
pub use table::{Kind, SocketId, Sockets};
pub use timestamping::{ControlMessage, MessageTimestamps, Timestamping};
pub use wall::Wall;
