//! GLIMPSE: the open orders of all stocks over SoupBinTCP, then the number with which the live feed
//! continues.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddrV4;

use market::itch50::glimpse::{self, parse_end};
use order_entry::session::Output;
use order_entry::soupbin::{Client, ClientConfig, ClientEvent, Credentials, SessionId};

use super::connection::Connection;
use super::image::{ImageBooks, ImageStep};
use crate::format::Protocol;

/// Bytes of one call to read; between two of them the thread serves its other servers.
const READ_LEN: usize = 64 * 1024;
/// A login is 49 bytes, a heartbeat 3.
const OUTPUT_LEN: usize = 128;

/// A connection that brings one image.
pub(super) struct Glimpse {
    connection: Connection,
    client: Client,
    bytes: Vec<u8>,
}

impl Glimpse {
    /// Begins to connect. [`Glimpse::poll`] asks for all messages of the active session.
    pub(super) fn connect(server: SocketAddrV4, credentials: Credentials) -> io::Result<Self> {
        let (connection, client) = (Connection::begin(server)?, Client::new(ClientConfig::new(credentials)));
        Ok(Self { connection, client, bytes: vec![0; READ_LEN] })
    }

    /// Applies what has come.
    pub(super) fn poll<P: Protocol>(&mut self, books: &mut ImageBooks<P>, now_ns: u64) -> io::Result<ImageStep> {
        let mut room = [0; OUTPUT_LEN];
        let mut output = Output::new(&mut room);
        if self.connection.established()?.is_some() {
            self.client.connect(now_ns, SessionId::BLANK, 1, &mut output).map_err(io::Error::other)?;
        }
        let Some(stream) = self.connection.stream() else { return Ok(ImageStep::More) };
        self.client.tick(now_ns, &mut output).map_err(io::Error::other)?;
        stream.write_all(output.written())?;
        let len = match stream.read(&mut self.bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(ImageStep::More);
            }
            Err(error) => return Err(error),
        };
        let mut input = &self.bytes[..len];
        while let Some(event) = self.client.receive(now_ns, &mut input).map_err(io::Error::other)? {
            match event {
                ClientEvent::LoggedIn { next: 1, .. } => {}
                // An image that does not begin with its first message lacks orders.
                ClientEvent::LoggedIn { next, .. } => {
                    return Err(io::Error::other(format!("the snapshot begins with message {next} instead of 1")));
                }
                ClientEvent::LoginRejected(reason) => {
                    return Err(io::Error::other(format!("the login was refused: {reason:?}")));
                }
                ClientEvent::EndOfSession => return Err(io::Error::other("the session ended before the snapshot")),
                ClientEvent::Sequenced { message, .. } => {
                    if message.first() == Some(&glimpse::KIND) {
                        let first_live = parse_end(message).ok_or(ErrorKind::InvalidData)?;
                        return Ok(ImageStep::Done { first_live });
                    }
                    books.apply(message);
                }
                _ => {}
            }
        }
        Ok(ImageStep::More)
    }
}
