//! GLIMPSE: the open orders of all stocks over SoupBinTCP, then the number with which the live feed
//! continues.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddrV4;

use market::framing::Session;
use market::framing::mold_udp64::session_name;
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
    /// The only session whose image is of use.
    session: Option<SessionId>,
    bytes: Vec<u8>,
}

impl Glimpse {
    /// Begins to connect. [`Glimpse::poll`] asks for all messages of the active session, which must
    /// be `session` where that is given.
    pub(super) fn connect(
        server: SocketAddrV4,
        credentials: Credentials,
        session: Option<Session>,
    ) -> io::Result<Self> {
        let session = session.map(|session| SessionId::from_wire(session_name(session)));
        let (connection, client) = (Connection::begin(server)?, Client::new(ClientConfig::new(credentials)));
        Ok(Self { connection, client, session, bytes: vec![0; READ_LEN] })
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
                // Its orders, and the number with which it continues, are those of another day.
                ClientEvent::LoggedIn { session, .. } if self.session.is_some_and(|live| live != session) => {
                    return Err(other_session(session, self.session.unwrap_or(SessionId::BLANK)));
                }
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

fn other_session(image: SessionId, live: SessionId) -> io::Error {
    io::Error::other(format!(
        "the snapshot is of session {image}, the feed of {live}; where the venue calls them so, set any_session = true"
    ))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    use market::Capacity;
    use order_entry::soupbin::{Server, ServerConfig, ServerEvent};

    use super::*;
    use crate::format::{AllocatedBooks, MoldItch50};

    /// A server of one image without orders, whose session has this name.
    fn serve(session: &'static str) -> SocketAddrV4 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("an IPv4 address") };
        thread::spawn(move || {
            let mut client = listener.accept().unwrap().0;
            let (mut soup, mut room, mut bytes) = (Server::new(ServerConfig::default()), [0; 256], [0; 256]);
            let mut output = Output::new(&mut room);
            soup.connected(0);
            loop {
                let len = client.read(&mut bytes).unwrap();
                if let Some(ServerEvent::Login(_)) = soup.receive(0, &mut &bytes[..len]).unwrap() {
                    break;
                }
            }
            soup.accept(0, SessionId::new(session).unwrap(), 1, &mut output).unwrap();
            soup.send(0, &glimpse::emit_end(7), &mut output).unwrap();
            client.write_all(output.written()).unwrap();
        });
        address
    }

    fn image_of(image: &'static str, live: Option<&[u8; 10]>) -> io::Result<u64> {
        let mut name = [0; 16];
        let session = live.map(|live| {
            name[..10].copy_from_slice(live);
            Session(u128::from_le_bytes(name))
        });
        let credentials = Credentials::new("user", "password").unwrap();
        let mut glimpse = Glimpse::connect(serve(image), credentials, session).unwrap();
        let books = Box::new(AllocatedBooks::allocate(Capacity { books: 1, orders: 1, levels: 1 }));
        let mut books = ImageBooks::<MoldItch50>::new((books, Vec::new()));
        loop {
            match glimpse.poll(&mut books, 0)? {
                ImageStep::Done { first_live } => return Ok(first_live),
                ImageStep::More => thread::yield_now(),
            }
        }
    }

    #[test]
    fn image_of_another_session_is_refused() {
        assert_eq!(image_of("TODAY", Some(b"TODAY     ")).unwrap(), 7, "names are padded on either side");
        assert_eq!(image_of("YESTERDAY", None).unwrap(), 7);
        let refused = image_of("YESTERDAY", Some(b"TODAY     ")).unwrap_err().to_string();
        assert!(refused.contains("session \"YESTERDAY\", the feed of \"TODAY\""), "{refused}");
    }
}
