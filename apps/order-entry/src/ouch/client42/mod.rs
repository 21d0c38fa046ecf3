//! A client's session of OUCH 4.2 over SoupBinTCP: login, heartbeats, the question what the venue
//! has processed, and its answers as [`VenueMessage`]s.
//!
//! 4.2 has no query for what was processed. So a probe follows each login: an order that the venue
//! must refuse, because it names no stock. The refusal is numbered, so it arrives behind the
//! answers to all that the venue had processed. What has no answer by then was not processed, or
//! was ignored in silence.
//!
//! ```text
//!  orders 41, 42 ──▶ the line breaks
//!  login, probe ───▶ ◀── A 41 ◀── J probe: order 42 has never been
//! ```

mod read;
mod token;

pub(crate) use token::id_of as id_of_token;
mod venue;

use market::Symbol;
use zerocopy::big_endian::U32;

use self::read::{Said, read};
use super::client::OuchClientError;
use super::v42::{EnterOrder, IMMEDIATE_OR_CANCEL};
use super::{Capacity, CrossType, CustomerType, Display, Side, YesNo};
use crate::Text;
use crate::journal::SessionMark;
use crate::orders::{OrderRules, VenueMessage};
use crate::session::{Outbox, SessionEvent, Unread};
use crate::soupbin::{Client, ClientConfig, ClientEvent, SessionId, StartNumber};

/// Bytes that may wait for the line: orders, a login, heartbeats.
const OUT_LEN: usize = 64 * 1_024;
/// How long the answer to a probe may take. It comes behind all that was sent while nobody
/// listened.
const PROBE_TIMEOUT_NS: u64 = 10_000_000_000;

/// A probe without an answer.
#[derive(Clone, Copy, Debug)]
struct Probe {
    token: Text<14>,
    /// The first id that was not used when it was sent, and the time.
    below: u64,
    asked_ns: u64,
    /// The one before had no answer.
    is_again: bool,
}

/// One account's session, over any number of connections, one after the other. Bytes to send wait
/// in [`VenueSession::to_send`](crate::session::VenueSession::to_send). All memory, some 130 KiB,
/// is allocated at construction.
#[derive(Debug)]
pub struct Ouch42Client {
    client: Client,
    next_id: u64,
    /// The first probe of this connection was answered.
    is_settled: bool,
    probe: Option<Probe>,
    /// The number of the last probe's token: no token may be used twice in a day.
    probe_number: u64,
    /// Where the next login goes on.
    resume: (SessionId, u64),
    firm: Text<4>,
    capacity: Capacity,
    epoch_offset_ns: u64,
    /// The message behind the gap that was told before it.
    behind_gap: Option<SessionEvent>,
    unread: Unread,
    out: Outbox,
}

impl Ouch42Client {
    /// A session that begins with the day, for `firm`, in `capacity`. `epoch_offset_ns` is added to
    /// the clock of the calls for UTC, of which the tokens of probes are made. Allocates.
    pub fn new(config: ClientConfig, firm: Text<4>, capacity: Capacity, epoch_offset_ns: u64) -> Self {
        Self {
            client: Client::new(config),
            next_id: 1,
            is_settled: false,
            probe: None,
            probe_number: 0,
            resume: (SessionId::BLANK, 1),
            firm,
            capacity,
            epoch_offset_ns,
            behind_gap: None,
            unread: Unread::default(),
            out: Outbox::new(OUT_LEN),
        }
    }

    /// How a venue of OUCH 4.2 answers: as one of 5.0.
    pub const fn rules() -> OrderRules {
        OrderRules { full_fill_voids_replaces: true, has_status: false }
    }

    fn resume(&mut self, mark: &SessionMark) {
        if mark.next_inbound > 0 {
            self.resume = (SessionId::from_wire(mark.session), mark.next_inbound);
        }
        self.next_id = mark.next_id.max(1);
    }

    const fn mark(&self) -> SessionMark {
        let (session, next_inbound) = self.resume;
        SessionMark { session: session.to_wire(), next_inbound, next_id: self.next_id }
    }

    fn connected(&mut self, now_ns: u64) -> Result<(), OuchClientError> {
        self.forget_connection();
        let ((session, number), Self { client, out, .. }) = (self.resume, self);
        Ok(out.write(|output| client.connect(now_ns, session, number, output))?)
    }

    fn disconnected(&mut self) {
        self.client.disconnected();
        self.forget_connection();
    }

    fn forget_connection(&mut self) {
        (self.is_settled, self.probe, self.behind_gap) = (false, None, None);
        self.out.clear();
    }

    fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<SessionEvent>, OuchClientError> {
        if let Some(event) = self.behind_gap.take() {
            return Ok(Some(event));
        }
        loop {
            let Some(event) = self.client.receive(now_ns, input)? else { return Ok(None) };
            return Ok(Some(match event {
                ClientEvent::LoggedIn { session, next, start } => {
                    self.resume = (session, next);
                    self.probe(now_ns, false)?;
                    let is_gap = matches!(start, StartNumber::ServerLost { .. } | StartNumber::Gap { .. });
                    SessionEvent::LoggedIn { mark: self.mark(), is_gap }
                }
                ClientEvent::LoginRejected(reason) => return Err(OuchClientError::LoginRejected(reason)),
                ClientEvent::Sequenced { number, message } => {
                    let said = match read(message) {
                        Err(error) if !self.unread.is_to_be_passed_over(number, message) => return Err(error.into()),
                        said => said,
                    };
                    // Behind it, so that the venue repeats one that was not read.
                    self.resume.1 = number.saturating_add(1);
                    match said {
                        Ok(said) => self.learn(number, said),
                        Err(_) => SessionEvent::Unread { number },
                    }
                }
                ClientEvent::EndOfSession => {
                    self.resume = (SessionId::BLANK, 1);
                    SessionEvent::Ended
                }
                _ => continue,
            }));
        }
    }

    fn learn(&mut self, number: u64, said: Said) -> SessionEvent {
        match said {
            Said::Nothing => SessionEvent::Message { number, message: VenueMessage::Other },
            Said::Probed(token) => SessionEvent::Message { number, message: self.probed(token) },
            Said::OfOrder(id, message) => self.of_order(number, id, message),
        }
    }

    /// An answer to an id that was not used yet tells a gap first: a power cut took the journal's
    /// end, or another program has used the account. Ids go on behind it, because the venue ignores
    /// a token that it has seen.
    fn of_order(&mut self, number: u64, id: u64, message: VenueMessage) -> SessionEvent {
        let event = SessionEvent::Message { number, message };
        if id < self.next_id {
            return event;
        }
        self.next_id = id + 1;
        self.behind_gap = Some(event);
        // A restart must not pass over the message before it is taken.
        SessionEvent::LoggedIn { mark: SessionMark { next_inbound: number, ..self.mark() }, is_gap: true }
    }

    /// A probe of before, or of another process, says nothing.
    fn probed(&mut self, token: Text<14>) -> VenueMessage {
        let Some(Probe { below, asked_ns, .. }) = self.probe.take_if(|probe| probe.token == token) else {
            return VenueMessage::Other;
        };
        if self.is_settled {
            return VenueMessage::AnsweredBelow { below, asked_ns };
        }
        self.is_settled = true;
        // No id is known to be processed but by its own answer, so each that has none was not.
        VenueMessage::Settled { next_id: 1, is_final: true }
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), OuchClientError> {
        let Self { client, out, .. } = self;
        out.write(|output| client.tick(now_ns, output))?;
        let Some(Probe { asked_ns, is_again, .. }) = self.probe else { return Ok(()) };
        if now_ns.saturating_sub(asked_ns) < PROBE_TIMEOUT_NS {
            return Ok(());
        }
        if is_again { Err(OuchClientError::ProbeTimeout) } else { self.probe(now_ns, true) }
    }

    fn is_open(&self) -> bool {
        self.is_settled && self.client.is_logged_in()
    }

    /// Asks, in order to hear when all is answered that was sent before.
    fn probe(&mut self, now_ns: u64, is_again: bool) -> Result<(), OuchClientError> {
        let utc_ns = now_ns.saturating_add(self.epoch_offset_ns);
        self.probe_number = utc_ns.max(self.probe_number + 1);
        let token = token::of_probe(self.probe_number);
        // Whatever stock it might be taken for, it trades at the least price at once or never.
        let order = EnterOrder { token, ..self.order() };
        let mut message = [0; EnterOrder::LEN];
        order.emit(&mut message);
        self.send(now_ns, &message)?;
        self.probe = Some(Probe { token, below: self.next_id, asked_ns: now_ns, is_again });
        Ok(())
    }

    /// What all orders have in common, of a share of no stock that trades at once or never.
    const fn order(&self) -> EnterOrder {
        EnterOrder {
            token: Text::BLANK,
            side: Side::BUY,
            shares: U32::new(1),
            stock: Symbol::NONE,
            price: U32::new(1),
            time_in_force: U32::new(IMMEDIATE_OR_CANCEL),
            firm: self.firm,
            display: Display::VISIBLE,
            capacity: self.capacity,
            intermarket_sweep: YesNo::NO,
            min_quantity: U32::new(0),
            cross_type: CrossType::CONTINUOUS,
            customer_type: CustomerType::DEFAULT,
        }
    }

    fn send(&mut self, now_ns: u64, message: &[u8]) -> Result<(), OuchClientError> {
        let Self { client, out, .. } = self;
        Ok(out.write(|output| client.send(now_ns, message, output))?)
    }
}

#[cfg(test)]
mod tests;
