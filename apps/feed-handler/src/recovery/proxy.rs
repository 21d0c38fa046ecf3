//! Cboe's gap request proxy: requests over TCP, and the messages on a multicast group.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};

use market::RerequestRange;
use market::pitch::servers::{ACCEPTED, ClientMessage, ServerMessage};

use super::plan::ProxyPlan;
use super::udp::{Received, receive};
use super::unit_stream::UnitStream;

/// Time between two attempts to connect.
const RETRY_NS: u64 = 1_000_000_000;
/// Requests whose responses are awaited; more are sent, but their refusals are not recognized.
const AWAITED_MAX: usize = 64;

/// The client of one proxy.
pub(super) struct Proxy {
    server: SocketAddrV4,
    plan: ProxyPlan,
    /// Brings the messages. Anybody may send to a group: the worker takes only what it has
    /// requested.
    group: UdpSocket,
    stream: Option<UnitStream>,
    is_logged_in: bool,
    not_before_ns: u64,
    /// Unit, first number and channel of requests without a response.
    awaited: Vec<(u8, u32, u32)>,
}

impl Proxy {
    /// Joins the group. The proxy itself is connected to when it is first polled.
    pub(super) fn open(server: SocketAddrV4, plan: ProxyPlan) -> io::Result<Self> {
        let group = plan.group.join(plan.interface)?;
        let awaited = Vec::with_capacity(AWAITED_MAX);
        Ok(Self { server, plan, group, stream: None, is_logged_in: false, not_before_ns: 0, awaited })
    }

    /// Asks for messages of a unit. `NotConnected` while the login is not accepted: the request is
    /// made again after its timeout.
    pub(super) fn send(&mut self, unit: u32, channel: u32, range: RerequestRange, now_ns: u64) -> io::Result<()> {
        let stream = self.stream.as_mut().filter(|_| self.is_logged_in).ok_or(io::ErrorKind::NotConnected)?;
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let (unit, first) = (u8::try_from(unit).map_err(invalid)?, u32::try_from(range.seq).map_err(invalid)?);
        stream.send(&ClientMessage::GapRequest { unit, first, count: range.count }, now_ns)?;
        if self.awaited.len() == AWAITED_MAX {
            self.awaited.remove(0);
        }
        self.awaited.push((unit, first, channel));
        Ok(())
    }

    /// Connects where that is due, and reads responses: passes channel and first number of each
    /// refusal to `refused`.
    pub(super) fn poll(&mut self, now_ns: u64, mut refused: impl FnMut(u32, u64)) -> io::Result<()> {
        let Some(stream) = &mut self.stream else {
            if now_ns >= self.not_before_ns {
                self.not_before_ns = now_ns.saturating_add(RETRY_NS);
                self.stream = Some(UnitStream::connect(self.server, self.plan.login, now_ns)?);
            }
            return Ok(());
        };
        let (awaited, is_logged_in) = (&mut self.awaited, &mut self.is_logged_in);
        let outcome = stream.poll(now_ns).and_then(|()| {
            stream.each(|message| {
                match ServerMessage::parse(message) {
                    Some(ServerMessage::LoginReply { status: ACCEPTED }) => *is_logged_in = true,
                    Some(ServerMessage::LoginReply { status }) => {
                        return Err(io::Error::other(format!("the login was refused: {}", status.escape_ascii())));
                    }
                    Some(ServerMessage::GapResponse { unit, first, status, .. }) => {
                        let of = |&(asked_unit, asked, _): &(u8, u32, u32)| (asked_unit, asked) == (unit, first);
                        if let Some(idx) = awaited.iter().position(of) {
                            let (_, _, channel) = awaited.swap_remove(idx);
                            if status != ACCEPTED {
                                refused(channel, first.into());
                            }
                        }
                    }
                    _ => {}
                }
                Ok(())
            })
        });
        if outcome.is_err() {
            (self.stream, self.is_logged_in) = (None, false);
            self.awaited.clear();
        }
        outcome
    }

    pub(super) fn receive(&self) -> Received {
        receive(&self.group, |sender| self.plan.group.takes(sender))
    }
}
