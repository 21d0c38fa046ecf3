//! The TCP connection by which the ends tell each other their queue pairs.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use wirepath::worker::StopFlag;

/// How long a peer may take for an answer. A test of perftest is between two of them.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// Between two looks for a client.
const ACCEPT_SPAN: Duration = Duration::from_millis(5);
/// How long the ends of a connection wait for each other behind the last message.
const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// A connection to the peer.
pub(super) struct Connection(TcpStream);

impl Connection {
    /// Connects to a peer that listens.
    pub(super) fn connect(peer: Ipv4Addr, port: u16) -> Result<Self, Box<dyn Error>> {
        let address = SocketAddrV4::new(peer, port);
        let stream = TcpStream::connect_timeout(&address.into(), ANSWER_MAX);
        let stream =
            stream.map_err(|error| format!("{address}: {error}; start the other end there first, with --serve"))?;
        Self::new(stream)
    }

    /// Waits for one peer.
    pub(super) fn accept(port: u16, stop: &StopFlag) -> Result<Self, Box<dyn Error>> {
        let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        let listener = TcpListener::bind(address).map_err(|error| format!("TCP port {port}: {error}"))?;
        listener.set_nonblocking(true)?;
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Self::new(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => (),
                Err(error) => return Err(error.into()),
            }
            if stop.is_stopping() {
                return Err("stopped before a peer came".into());
            }
            thread::sleep(ACCEPT_SPAN);
        }
    }

    fn new(stream: TcpStream) -> Result<Self, Box<dyn Error>> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        Ok(self.0.write_all(bytes).map_err(|error| format!("the peer left during the exchange: {error}"))?)
    }

    pub(super) fn read<const N: usize>(&mut self) -> Result<[u8; N], Box<dyn Error>> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => "the peer left during the exchange".to_owned(),
            ErrorKind::WouldBlock => "the peer does not answer in the exchange".to_owned(),
            _ => format!("the exchange with the peer: {error}"),
        })?;
        Ok(bytes)
    }

    /// Writes, then reads as many bytes: a step of a client.
    pub(super) fn ask<const N: usize>(&mut self, bytes: &[u8; N]) -> Result<[u8; N], Box<dyn Error>> {
        self.write(bytes)?;
        self.read()
    }

    /// Calls `turn` until the peer has closed too, or two seconds: a peer may lack our last
    /// acknowledgment.
    pub(super) fn part(self, mut turn: impl FnMut()) -> Result<(), Box<dyn Error>> {
        self.0.shutdown(std::net::Shutdown::Write)?;
        self.0.set_nonblocking(true)?;
        let (begun, mut rest) = (Instant::now(), [0; 64]);
        while begun.elapsed() < FAREWELL_MAX {
            match (&self.0).read(&mut rest) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => turn(),
                Ok(len) if len > 0 => (),
                _ => break,
            }
        }
        Ok(())
    }
}
