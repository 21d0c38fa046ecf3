//! A connection to a server that is being made, or is there. A short-lived thread waits for the
//! handshake, because the recovery thread serves other channels meanwhile: a server whose host is
//! silent is given up after [`CONNECT_TIMEOUT`].

use std::io;
use std::net::{SocketAddrV4, TcpStream};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// A connection, once it is made.
pub(super) enum Connection {
    /// The thread sends the outcome.
    Connecting(Receiver<io::Result<TcpStream>>),
    /// It does not block.
    Connected(TcpStream),
}

impl Connection {
    /// Begins to connect, and returns at once.
    pub(super) fn begin(server: SocketAddrV4) -> io::Result<Self> {
        let (outcome, connected) = mpsc::channel();
        let connect = move || {
            // Nobody waits where the attempt was given up.
            let _ = outcome.send(connect(server));
        };
        thread::Builder::new().name("connect".into()).spawn(connect)?;
        Ok(Self::Connecting(connected))
    }

    /// The stream where it was just made; `None` where it is not there yet, or was before.
    pub(super) fn established(&mut self) -> io::Result<Option<&mut TcpStream>> {
        let Self::Connecting(connected) = self else { return Ok(None) };
        let stream = match connected.try_recv() {
            Ok(outcome) => outcome?,
            Err(TryRecvError::Empty) => return Ok(None),
            Err(TryRecvError::Disconnected) => return Err(io::ErrorKind::ConnectionAborted.into()),
        };
        *self = Self::Connected(stream);
        Ok(self.stream())
    }

    /// The stream, once it is there.
    pub(super) fn stream(&mut self) -> Option<&mut TcpStream> {
        match self {
            Self::Connecting(_) => None,
            Self::Connected(stream) => Some(stream),
        }
    }
}

fn connect(server: SocketAddrV4) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server.into(), CONNECT_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn connection_is_begun_before_its_handshake_and_its_stream_is_told_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let std::net::SocketAddr::V4(server) = listener.local_addr().unwrap() else { panic!("an IPv4 address") };
        let mut connection = Connection::begin(server).unwrap();
        let _client = listener.accept().unwrap();
        while connection.established().unwrap().is_none() {
            assert!(connection.stream().is_none());
            thread::yield_now();
        }
        assert!(connection.stream().is_some() && connection.established().unwrap().is_none());
    }

    #[test]
    fn refused_connection_is_an_error_of_the_look_and_not_of_the_attempt() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let std::net::SocketAddr::V4(server) = listener.local_addr().unwrap() else { panic!("an IPv4 address") };
        drop(listener);
        let mut connection = Connection::begin(server).unwrap();
        let error = loop {
            match connection.established() {
                Ok(stream) => assert!(stream.is_none(), "nobody listens"),
                Err(error) => break error,
            }
            thread::yield_now();
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
