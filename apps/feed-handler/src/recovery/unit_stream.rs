//! Sequenced units over TCP: the framing of Cboe's gap request proxy and spin server. Connects,
//! logs in, keeps the connection alive, and returns the messages one by one.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddrV4;

use market::framing::cboe_unit::{CboeUnit, UnitHeader};
use market::framing::{Framing, PacketWriter};
use market::pitch::servers::{ClientMessage, Login};

use super::connection::Connection;

/// A heartbeat is sent after this time without another packet.
const HEARTBEAT_NS: u64 = 1_000_000_000;
/// The server is dead after this silence.
const SILENCE_NS_MAX: u64 = 5_000_000_000;
/// The longest unit: its length has 16 bits.
const UNIT_LEN_MAX: usize = 0xffff;
/// The length in front of a unit.
const LEN_LEN: usize = 2;

/// A connection.
pub(super) struct UnitStream {
    connection: Connection,
    login: Login,
    bytes: Vec<u8>,
    sent_ns: u64,
    heard_ns: u64,
}

impl UnitStream {
    /// Begins to connect. [`UnitStream::poll`] sends the login.
    pub(super) fn connect(server: SocketAddrV4, login: Login, now_ns: u64) -> io::Result<Self> {
        let (connection, bytes) = (Connection::begin(server)?, Vec::with_capacity(2 * UNIT_LEN_MAX));
        Ok(Self { connection, login, bytes, sent_ns: now_ns, heard_ns: now_ns })
    }

    /// Sends a message. They are few and short: a connection that cannot take one is broken.
    pub(super) fn send(&mut self, message: &ClientMessage, now_ns: u64) -> io::Result<()> {
        self.write(Some(&message.emit()), now_ns)
    }

    fn write(&mut self, message: Option<&[u8]>, now_ns: u64) -> io::Result<()> {
        let mut room = [0; 64];
        let header = UnitHeader { unit: 0, count: 0, seq: 0 };
        let full = |_| io::Error::from(ErrorKind::InvalidInput);
        let mut writer = PacketWriter::<CboeUnit>::new(header, &mut room).ok_or(ErrorKind::InvalidInput)?;
        message.map_or(Ok(()), |message| writer.push(message)).map_err(full)?;
        self.sent_ns = now_ns;
        let stream = self.connection.stream().ok_or(ErrorKind::NotConnected)?;
        stream.write_all(writer.finish())
    }

    /// Reads what has come, at most a few units. Heartbeats are sent where they are due.
    pub(super) fn poll(&mut self, now_ns: u64) -> io::Result<()> {
        if self.connection.established()?.is_some() {
            self.heard_ns = now_ns;
            self.send(&ClientMessage::Login(self.login), now_ns)?;
        }
        if self.connection.stream().is_none() {
            return Ok(());
        }
        if now_ns.saturating_sub(self.sent_ns) >= HEARTBEAT_NS {
            self.write(None, now_ns)?;
        }
        if self.bytes.len() < UNIT_LEN_MAX
            && let Some(stream) = self.connection.stream()
        {
            let start = self.bytes.len();
            self.bytes.resize(start + UNIT_LEN_MAX, 0);
            let read = stream.read(&mut self.bytes[start..]);
            self.bytes.truncate(start + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => self.heard_ns = now_ns,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        if now_ns.saturating_sub(self.heard_ns) >= SILENCE_NS_MAX {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Passes the messages that have come whole to `take`; an error of `take`, or of the framing,
    /// ends the connection.
    pub(super) fn each(&mut self, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut front = 0;
        let mut outcome = Ok(());
        while let Some(len) = self.bytes[front..].first_chunk::<LEN_LEN>().map(|len| u16::from_le_bytes(*len)) {
            let len = usize::from(len);
            if len < CboeUnit::HEADER_LEN {
                outcome = Err(ErrorKind::InvalidData.into());
                break;
            }
            let Some(unit) = self.bytes.get(front..front + len) else { break };
            let Ok(packet) = CboeUnit::parse(unit) else {
                outcome = Err(ErrorKind::InvalidData.into());
                break;
            };
            outcome = packet.messages().try_for_each(&mut take);
            front += len;
            if outcome.is_err() {
                break;
            }
        }
        self.bytes.drain(..front);
        outcome
    }
}
