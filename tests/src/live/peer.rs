//! The kernel's ends of connections: sockets that send the stream, and compare the received bytes
//! with it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

use super::traffic::{PIECE_LEN_MAX, is_stream, stream};
use crate::netns::Namespace;

/// No data may take longer than this, losses included: two retransmission timeouts that were
/// doubled five times.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A socket of the kernel that listens; port 0 takes a free one.
pub fn listener(namespace: &Namespace, port: u16) -> TcpListener {
    namespace.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))).expect("the port is free")
}

/// Connects a socket of the kernel.
///
/// # Errors
/// The kernel's error.
pub fn connect(namespace: &Namespace, remote: (Ipv4Addr, u16)) -> io::Result<TcpStream> {
    let stream =
        namespace.run(|| TcpStream::connect_timeout(&SocketAddrV4::new(remote.0, remote.1).into(), SILENCE_MAX))?;
    prepare(&stream)?;
    Ok(stream)
}

/// Takes the next connection.
///
/// # Errors
/// The kernel's error.
pub fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept()?;
    prepare(&stream)?;
    Ok(stream)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))
}

/// Sends `send` bytes of the stream, ends its direction, and reads to the end of the peer's data.
/// Returns the number of received bytes, all of which are of the stream.
///
/// # Errors
/// The kernel's error, or the position of the first wrong byte.
pub fn exchange(socket: &TcpStream, send: u64) -> io::Result<u64> {
    std::thread::scope(|scope| {
        let sent = scope.spawn(move || {
            send_stream(socket, send)?;
            socket.shutdown(Shutdown::Write)
        });
        let received = receive_stream(socket);
        sent.join().expect("sending does not panic")?;
        received
    })
}

/// Sends so many bytes of the stream.
///
/// # Errors
/// The kernel's error.
pub fn send_stream(mut socket: &TcpStream, send: u64) -> io::Result<()> {
    let mut sent = 0;
    while sent < send {
        let len = (send - sent).min(PIECE_LEN_MAX as u64) as usize;
        socket.write_all(stream(sent, len))?;
        sent += len as u64;
    }
    Ok(())
}

/// Reads to the end.
///
/// # Errors
/// The kernel's error, or the position of the first byte that is not of the stream.
pub fn receive_stream(mut socket: &TcpStream) -> io::Result<u64> {
    let (mut bytes, mut received) = (vec![0; PIECE_LEN_MAX], 0);
    loop {
        let len = match socket.read(&mut bytes) {
            // The kernel does not go on with a read that has a timeout, once a signal was there: a
            // child of the tests has ended.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if len == 0 {
            return Ok(received);
        }
        if !is_stream(received, &bytes[..len]) {
            let what = format!("the bytes from {received} to {} are not those that were sent", received + len as u64);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        received += len as u64;
    }
}
