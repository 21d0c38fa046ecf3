//! FIX on the venue's side without sockets, for a test that plays a day in a moment.

use super::fix::FixSession;
use super::order_port::{Clock, Cx, Identified, OrderSession};
use crate::venue::{Effect, Venue};

/// The session of one account, over any number of connections, one after the other.
pub struct FixServer {
    session: Option<FixSession>,
    account: usize,
    /// The day's begin since 1970.
    epoch_ns: u64,
}

impl FixServer {
    /// The session of `account`, whose day began at `epoch_ns` since 1970.
    pub const fn new(account: usize, epoch_ns: u64) -> Self {
        Self { session: None, account, epoch_ns }
    }

    /// Whether the first bytes of a connection are the account's Logon; none while that is not
    /// whole.
    pub fn is_logon(&self, input: &[u8], venue: &Venue) -> Option<bool> {
        match FixSession::identify(input, venue) {
            Identified::Incomplete => None,
            Identified::Account(account) => Some(account == self.account),
            Identified::Nobody(_) => Some(false),
        }
    }

    /// The account has a connection, whose first bytes are its Logon.
    pub fn connected(&mut self, input: &[u8], venue: &mut Venue, now_ns: u64) {
        let cx = &mut self.cx(venue, now_ns);
        self.session.get_or_insert_with(|| FixSession::new(input)).connected(cx);
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
        let cx = &mut self.cx(venue, now_ns);
        let Some(session) = &mut self.session else { return Ok(Effect::None) };
        let taken = session.take(input, output, cx);
        // What has its number before the line breaks is sent again later.
        let sent = session.send(output, cx);
        let effect = taken.map_err(|end| end.0)?;
        sent.map_err(|end| end.0)?;
        Ok(effect)
    }

    /// The connection is gone.
    pub fn disconnected(&mut self) {
        self.session.iter_mut().for_each(OrderSession::disconnected);
    }

    fn cx<'a>(&self, venue: &'a mut Venue, now_ns: u64) -> Cx<'a> {
        Cx { venue, account: self.account, clock: Clock { now_ns, epoch_ns: self.epoch_ns } }
    }
}
