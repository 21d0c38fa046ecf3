//! The TCP connection by which the ends tell each other their queue pairs.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use wirepath::worker::StopFlag;

/// How long a peer may take for an answer. A test of perftest is between two of them.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// Between two looks at the stop flag while we wait for the peer.
const LOOK_SPAN: Duration = Duration::from_millis(50);
/// Between two looks for a client.
const ACCEPT_SPAN: Duration = Duration::from_millis(5);
/// How long the ends of a connection wait for each other behind the last message.
pub(super) const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// A connection to the peer.
pub(super) struct Connection {
    stream: TcpStream,
    stop: StopFlag,
    /// Where a server waits for a second connection of its client.
    listener: Option<TcpListener>,
}

impl Connection {
    /// Connects to a peer that listens.
    pub(super) fn connect(peer: Ipv4Addr, port: u16, stop: &StopFlag) -> Result<Self, Box<dyn Error>> {
        let address = SocketAddrV4::new(peer, port);
        // The kernel's call ends for no signal, so another thread waits in it, and is left there
        // when we stop.
        let (sender, connected) = mpsc::channel();
        thread::spawn(move || drop(sender.send(TcpStream::connect_timeout(&address.into(), ANSWER_MAX))));
        let stream = loop {
            match connected.recv_timeout(LOOK_SPAN) {
                Ok(stream) => break stream,
                Err(RecvTimeoutError::Timeout) if !stop.is_stopping() => (),
                Err(_) => return Err(format!("stopped before {address} answered").into()),
            }
        };
        let stream =
            stream.map_err(|error| format!("{address}: {error}; start the other end there first, with --serve"))?;
        Self::new(stream, None, stop)
    }

    /// Waits for one peer.
    pub(super) fn accept(port: u16, stop: &StopFlag) -> Result<Self, Box<dyn Error>> {
        let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        let listener = TcpListener::bind(address).map_err(|error| format!("TCP port {port}: {error}"))?;
        listener.set_nonblocking(true)?;
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Self::new(stream, Some(listener), stop),
                Err(error) if error.kind() == ErrorKind::WouldBlock => (),
                Err(error) => return Err(error.into()),
            }
            if stop.is_stopping() {
                return Err("stopped before a peer came".into());
            }
            thread::sleep(ACCEPT_SPAN);
        }
    }

    fn new(stream: TcpStream, listener: Option<TcpListener>, stop: &StopFlag) -> Result<Self, Box<dyn Error>> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LOOK_SPAN))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, listener, stop: stop.clone() })
    }

    /// Whether this end has asked the other.
    pub(super) const fn is_client(&self) -> bool {
        self.listener.is_none()
    }

    /// Our address, by which the peer reaches us.
    pub(super) fn local(&self) -> Result<Ipv4Addr, String> {
        match self.stream.local_addr().map(|address| address.ip()) {
            Ok(IpAddr::V4(address)) => Ok(address),
            _ => Err("the peer has come by another protocol than IPv4".to_owned()),
        }
    }

    /// The peer's address.
    pub(super) fn peer(&self) -> Result<Ipv4Addr, String> {
        match self.stream.peer_addr().map(|address| address.ip()) {
            Ok(IpAddr::V4(address)) => Ok(address),
            _ => Err("the peer has come by another protocol than IPv4".to_owned()),
        }
    }

    /// A second connection between the same ends, which the client makes within `patience`.
    pub(super) fn second(&self, patience: Duration) -> Result<TcpStream, Box<dyn Error>> {
        let (peer, begun) = (self.stream.peer_addr()?, Instant::now());
        let Some(listener) = &self.listener else {
            let failed = |error| format!("{peer}: {error}: no second connection, for the frames");
            return Ok(TcpStream::connect_timeout(&peer, patience).map_err(failed)?);
        };
        while begun.elapsed() < patience && !self.stop.is_stopping() {
            match listener.accept() {
                Ok((stream, from)) if from.ip() == peer.ip() => return Ok(stream),
                Ok(_) => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(ACCEPT_SPAN),
                Err(error) => return Err(error.into()),
            }
        }
        Err(format!("{} did not connect a second time, for the frames", peer.ip()).into())
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        Ok(self.stream.write_all(bytes).map_err(|error| format!("the peer left during the exchange: {error}"))?)
    }

    pub(super) fn read<const N: usize>(&mut self) -> Result<[u8; N], Box<dyn Error>> {
        let (mut bytes, mut len, begun) = ([0; N], 0, Instant::now());
        while len < N {
            match self.stream.read(&mut bytes[len..]) {
                Ok(0) => return Err("the peer left during the exchange".into()),
                Ok(more) => len += more,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    if self.stop.is_stopping() {
                        return Err("stopped while the peer was silent in the exchange".into());
                    }
                    if begun.elapsed() >= ANSWER_MAX {
                        return Err("the peer does not answer in the exchange".into());
                    }
                }
                Err(error) => return Err(format!("the exchange with the peer: {error}").into()),
            }
        }
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
        self.stream.shutdown(std::net::Shutdown::Write)?;
        self.stream.set_nonblocking(true)?;
        let (begun, mut rest) = (Instant::now(), [0; 64]);
        while begun.elapsed() < FAREWELL_MAX {
            match (&self.stream).read(&mut rest) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => turn(),
                Ok(len) if len > 0 => (),
                _ => break,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_for_a_silent_peer_ends_when_the_user_stops_it() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (port, stop) = (listener.local_addr().unwrap().port(), StopFlag::new());
        let mut connection = Connection::connect(Ipv4Addr::LOCALHOST, port, &stop).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"ab").unwrap();
        assert_eq!(connection.read::<2>().unwrap(), *b"ab");
        stop.stop();
        // Without a look at the flag this takes two minutes, and says something else.
        let why = connection.read::<1>().unwrap_err().to_string();
        assert!(why.starts_with("stopped"), "{why}");
    }
}
