//! Cboe's spin server: the orders of a unit over TCP. The server says which images it has; one that
//! is recent enough is asked for.

use std::io;
use std::net::SocketAddrV4;

use market::pitch::servers::{ACCEPTED, ClientMessage, Login, ServerMessage};
use market::pitch::{AddExpanded, AddLong, AddShort};

use super::image::{ImageBooks, ImageStep};
use super::unit_stream::UnitStream;
use crate::format::Protocol;

/// A connection that brings one image.
pub(super) struct Spin {
    stream: UnitStream,
    covers_from: u64,
    /// The number of the image that was asked for.
    asked: Option<u32>,
    /// Orders that the server announced.
    orders: Option<u32>,
    done: Option<u64>,
}

impl Spin {
    /// Connects, to ask for an image that continues with `covers_from` or later.
    pub(super) fn connect(server: SocketAddrV4, login: Login, covers_from: u64, now_ns: u64) -> io::Result<Self> {
        let stream = UnitStream::connect(server, login, now_ns)?;
        Ok(Self { stream, covers_from, asked: None, orders: None, done: None })
    }

    /// Applies what has come.
    pub(super) fn poll<P: Protocol>(&mut self, books: &mut ImageBooks<P>, now_ns: u64) -> io::Result<ImageStep> {
        self.stream.poll(now_ns)?;
        let mut request = None;
        let Self { stream, covers_from, asked, orders, done } = self;
        stream.each(|message| {
            match ServerMessage::parse(message) {
                Some(ServerMessage::LoginReply { status }) if status != ACCEPTED => {
                    return Err(io::Error::other(format!("the login was refused: {}", status.escape_ascii())));
                }
                Some(ServerMessage::ImageAvailable { seq })
                    if asked.is_none() && u64::from(seq) + 1 >= *covers_from =>
                {
                    (*asked, request) = (Some(seq), Some(ClientMessage::SpinRequest { seq }));
                }
                Some(ServerMessage::SpinResponse { seq, orders: announced, status }) if *asked == Some(seq) => {
                    if status != ACCEPTED {
                        return Err(io::Error::other(format!("the spin was refused: {}", status.escape_ascii())));
                    }
                    *orders = Some(announced);
                }
                Some(ServerMessage::SpinFinished { seq }) if orders.is_some() && done.is_none() => {
                    *done = Some(u64::from(seq) + 1);
                }
                Some(_) => {}
                None if orders.is_some() && done.is_none() => books.apply(message),
                None => {}
            }
            Ok(())
        })?;
        if let Some(request) = request {
            self.stream.send(&request, now_ns)?;
        }
        let (Some(first_live), Some(announced)) = (self.done, self.orders) else { return Ok(ImageStep::More) };
        let came = books.count_of(&[AddLong::KIND, AddShort::KIND, AddExpanded::KIND]);
        if came != u64::from(announced) {
            return Err(io::Error::other(format!("the spin has {came} orders and announced {announced}")));
        }
        Ok(ImageStep::Done { first_live })
    }
}
