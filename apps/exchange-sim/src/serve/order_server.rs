//! A session on the venue's side without sockets, for a test that plays a day in a moment.

use order_entry::boe::{V2, V3};

use super::BoeVersion;
use super::boe::BoeSession;
use super::fix::FixSession;
use super::ilink3::IlinkSession;
use super::order_port::{Clock, Cx, Identified, OrderSession};
use crate::venue::{Effect, Venue};

/// The session of one account, over any number of connections, one after the other.
pub struct OrderServer {
    session: Box<dyn Session>,
    account: usize,
    /// The day's begin since 1970.
    epoch_ns: u64,
}

impl OrderServer {
    /// The session by FIX of `account`, whose day began at `epoch_ns` since 1970.
    pub fn fix(account: usize, epoch_ns: u64) -> Self {
        Self { session: Box::new(Of::<FixSession>(None)), account, epoch_ns }
    }

    /// The session by BOE of `account`, as [`OrderServer::fix`] has it.
    pub fn boe(version: BoeVersion, account: usize, epoch_ns: u64) -> Self {
        let session: Box<dyn Session> = match version {
            BoeVersion::V2 => Box::new(Of::<BoeSession<V2>>(None)),
            BoeVersion::V3 => Box::new(Of::<BoeSession<V3>>(None)),
        };
        Self { session, account, epoch_ns }
    }

    /// The session by iLink 3 of `account`, as [`OrderServer::fix`] has it.
    pub fn ilink3(account: usize, epoch_ns: u64) -> Self {
        Self { session: Box::new(Of::<IlinkSession>(None)), account, epoch_ns }
    }

    /// Whether the first bytes of a connection are the account's login; none while that is not
    /// whole.
    pub fn is_logon(&self, input: &[u8], venue: &Venue) -> Option<bool> {
        match self.session.identify(input, venue) {
            Identified::Incomplete => None,
            Identified::Account(account) => Some(account == self.account),
            Identified::Nobody(_) => Some(false),
        }
    }

    /// The account has a connection, whose first bytes are its login.
    pub fn connected(&mut self, input: &[u8], venue: &mut Venue, now_ns: u64) {
        let clock = Clock { now_ns, epoch_ns: self.epoch_ns };
        self.session.connected(input, &mut Cx { venue, account: self.account, clock });
    }

    /// Takes what was read, and appends what is to be sent.
    ///
    /// # Errors
    ///
    /// The connection is over; why, where the peer broke a rule.
    pub fn turn(
        &mut self,
        input: &mut Vec<u8>,
        output: &mut Vec<u8>,
        venue: &mut Venue,
        now_ns: u64,
    ) -> Result<Effect, Option<String>> {
        let clock = Clock { now_ns, epoch_ns: self.epoch_ns };
        self.session.turn(input, output, &mut Cx { venue, account: self.account, clock })
    }

    /// The connection is gone.
    pub fn disconnected(&mut self) {
        self.session.disconnected();
    }
}

/// What a server does by its protocol.
trait Session {
    fn identify(&self, input: &[u8], venue: &Venue) -> Identified;
    fn connected(&mut self, input: &[u8], cx: &mut Cx<'_>);
    fn turn(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<Effect, Option<String>>;
    fn disconnected(&mut self);
}

/// The session of a protocol, once there was a login.
struct Of<S>(Option<S>);

impl<S: OrderSession> Session for Of<S> {
    fn identify(&self, input: &[u8], venue: &Venue) -> Identified {
        S::identify(input, venue)
    }

    fn connected(&mut self, input: &[u8], cx: &mut Cx<'_>) {
        self.0.get_or_insert_with(|| S::new(input)).connected(cx);
    }

    fn turn(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<Effect, Option<String>> {
        let Some(session) = &mut self.0 else { return Ok(Effect::None) };
        let taken = session.take(input, output, cx);
        // What has its number before the line breaks is sent again later.
        let sent = session.send(output, cx);
        let effect = taken.map_err(|end| end.0)?;
        sent.map_err(|end| end.0)?;
        Ok(effect)
    }

    fn disconnected(&mut self) {
        self.0.iter_mut().for_each(OrderSession::disconnected);
    }
}
