//! FIX on the venue's side: a session for each account.

use order_entry::fix::codec::{FieldIndex, Frame, Message, Writer, frame};
use order_entry::fix::orders::{CancelRequest, Defect, MassCancel, NewOrderSingle, ReplaceRequest, StatusRequest};
use order_entry::fix::session::{
    End as SessionEnd, Event, MemoryStore, MessageStore, Now, Role, SendError, Session, SessionConfig, Version,
};
use order_entry::soupbin::{Credentials, SessionId};

use super::order_port::{Clock, Cx, End, Identified, LoginRefusal, OUTPUT_MAX, OrderSession};
use crate::venue::boe::Times;
use crate::venue::{Effect, Protocol, Venue, fix};

/// The venue's SenderCompID (49).
const COMP_ID: &str = "EXCHANGE";
/// Bytes of the longest Logon.
const LOGON_LEN_MAX: usize = 64 * 1024;
/// Messages that a session keeps for resends, and their bytes. Beyond them it forgets the oldest: a
/// client that asks for those is told that they do not come.
const STORE: (usize, usize) = (1 << 18, 64 << 20);
/// Tags of the Logon.
const SENDER_COMP_ID: u32 = 49;
const PASSWORD: u32 = 554;
/// What an account must begin with.
const RULE: &str = "the first message must be a Logon of an account";

/// An account's session of FIX, on the acceptor's side.
pub(super) struct FixLine {
    session: Session<MemoryStore>,
    pub(super) version: Version,
    /// A number below the next breaks no rule: so a reader without a memory learns the next one.
    pub(super) forgives_low: bool,
    /// The number of the Logon where a fault has it tell another one.
    right_number: Option<u64>,
}

/// An account's session for orders.
pub(super) struct FixSession {
    line: FixLine,
    /// Answers of the account that have a number.
    position: usize,
}

impl FixLine {
    pub(super) fn identify(input: &[u8], venue: &Venue) -> Identified {
        let len = match frame(input, LOGON_LEN_MAX) {
            Frame::Incomplete => return Identified::Incomplete,
            Frame::Message { len } => len,
            Frame::Garbled { .. } => return Identified::Nobody(RULE),
        };
        let mut index = FieldIndex::new(64);
        let account = index.parse(&input[..len]).ok().and_then(|logon| {
            version_of(&logon)?;
            account_of(&logon, venue)
        });
        account.map_or(Identified::Nobody(RULE), Identified::Account)
    }

    /// The session whose first Logon is `input`, and that takes messages of these types.
    pub(super) fn new(input: &[u8], types: &[&str]) -> Self {
        let mut index = FieldIndex::new(64);
        let logon = match frame(input, LOGON_LEN_MAX) {
            Frame::Message { len } => index.parse(&input[..len]).ok(),
            _ => None,
        };
        let sender = logon.as_ref().and_then(|logon| logon.get(SENDER_COMP_ID)).unwrap_or_default();
        let version = logon.as_ref().and_then(version_of).unwrap_or(Version::Fix44);
        let config = SessionConfig {
            version,
            role: Role::Acceptor,
            sender: COMP_ID.to_owned(),
            target: String::from_utf8_lossy(sender).into_owned(),
            supported_types: types.iter().map(|&of| of.to_owned()).collect(),
            ..SessionConfig::default()
        };
        Self {
            session: Session::new(config, MemoryStore::dropping_oldest(STORE.0, STORE.1)),
            version,
            forgives_low: false,
            right_number: None,
        }
    }

    pub(super) fn connected(&mut self, clock: Clock) {
        self.session.connected(now(clock));
    }

    /// Has the answer to the Logon tell another number than the next. One above it stays: the venue
    /// has passed over the numbers between, which a resend fills as a gap. One below it was used
    /// before, and what follows the Logon has the right numbers again.
    fn tell_other(&mut self, off: i64) {
        let store = self.session.store_mut();
        let next = store.next_out();
        let told = next.checked_add_signed(off).filter(|&told| told > 0).unwrap_or(next + off.unsigned_abs());
        self.right_number = (told < next).then_some(next);
        store.set_next_out(told);
    }

    /// Behind the Logon the numbers are the right ones.
    fn restore_number(&mut self) {
        let is_sent = self.session.is_logged_on();
        if let Some(number) = self.right_number.take_if(|_| is_sent) {
            self.session.store_mut().set_next_out(number + 1);
        }
    }

    /// Takes what was read; `request` gets each message of the application.
    pub(super) fn take(
        &mut self,
        input: &mut Vec<u8>,
        output: &mut Vec<u8>,
        clock: Clock,
        mut request: impl FnMut(&Message<'_>) -> Result<Effect, Defect>,
    ) -> Result<Effect, End> {
        let now = now(clock);
        loop {
            let len = self.session.receive(now, input);
            input.drain(..len);
            while let Some(event) = self.session.poll(now) {
                let (message, seq) = match event {
                    Event::Message { message, seq, .. } => (message, seq),
                    Event::Disconnect(end) => {
                        self.flush(output);
                        let is_logout = matches!(end, SessionEnd::LoggedOut | SessionEnd::PeerLoggedOut);
                        let is_forgiven = self.forgives_low && end == SessionEnd::SeqTooLow;
                        return Err(if is_logout || is_forgiven { End(None) } else { End::rule(end) });
                    }
                    _ => continue,
                };
                let msg_type = message.msg_type().to_vec();
                match request(&message) {
                    Ok(Effect::None) => {}
                    Ok(effect) => return Ok(effect),
                    Err(defect) => self.session.reject(now, &msg_type, seq, defect).map(drop).map_err(End::rule)?,
                }
            }
            if len == 0 {
                self.restore_number();
                return Ok(Effect::None);
            }
        }
    }

    /// Sends a message; false where it has to wait.
    pub(super) fn send(
        &mut self,
        clock: Clock,
        msg_type: &str,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> Result<bool, End> {
        if !self.session.is_logged_on() {
            return Ok(false);
        }
        self.restore_number();
        match self.session.send(now(clock), msg_type, write) {
            Ok(_) => Ok(true),
            Err(SendError::OutputFull) => Ok(false),
            Err(error) => Err(End::rule(error)),
        }
    }

    pub(super) fn disconnected(&mut self) {
        self.restore_number();
        // Without a Logon the number is not used.
        if let Some(number) = self.right_number.take() {
            self.session.store_mut().set_next_out(number);
        }
        self.session.disconnected();
    }

    pub(super) fn end(&mut self, output: &mut Vec<u8>, clock: Clock) {
        self.session.logout(now(clock), "end of the day");
        self.flush(output);
    }

    /// Hands on what the session has written, where there is room.
    pub(super) fn flush(&mut self, output: &mut Vec<u8>) -> bool {
        let written = self.session.output();
        let len = written.len().min(OUTPUT_MAX.saturating_sub(output.len()));
        output.extend_from_slice(&written[..len]);
        self.session.consume(len);
        len > 0
    }
}

impl OrderSession for FixSession {
    fn identify(input: &[u8], venue: &Venue) -> Identified {
        FixLine::identify(input, venue)
    }

    fn refuse(_: &[u8], _: LoginRefusal) -> Vec<u8> {
        Vec::new()
    }

    fn new(input: &[u8]) -> Self {
        Self { line: FixLine::new(input, &["D", "F", "G", "H", "q"]), position: 0 }
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        let next = self.line.session.store().next_out();
        let off = match next > 1 && cx.venue.has_new_session() {
            true => 1 - next as i64,
            false => cx.venue.login_surprise(),
        };
        self.line.tell_other(off);
        self.line.connected(cx.clock);
    }

    fn take(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<Effect, End> {
        self.line.take(input, output, cx.clock, |message| request(message, cx))
    }

    fn send(&mut self, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<bool, End> {
        let before = self.position;
        let answers = cx.venue.accounts()[cx.account].answers(Protocol::Fix);
        while let Some(answer) = answers.get(self.position) {
            let (version, utc_ns) = (self.line.version, cx.clock.utc_ns());
            if let Some(msg_type) = fix::msg_type(answer)
                && !self.line.send(cx.clock, msg_type, |out| fix::write(answer, version, utc_ns, out))?
            {
                break;
            }
            self.position += 1;
        }
        Ok(self.line.flush(output) || self.position > before)
    }

    fn disconnected(&mut self) {
        self.line.disconnected();
    }

    fn end(&mut self, output: &mut Vec<u8>, clock: Clock) {
        self.line.end(output, clock);
    }
}

/// A message of the application, as one of the venue's requests.
fn request(message: &Message<'_>, cx: &mut Cx<'_>) -> Result<Effect, Defect> {
    let (account, now_ns) = (cx.account, cx.clock.now_ns);
    let times = Times { now_ns, epoch_ns: cx.clock.epoch_ns };
    match message.msg_type() {
        b"D" => NewOrderSingle::parse(message).map(|order| cx.venue.fix_new(account, &order, times)),
        b"F" => CancelRequest::parse(message).map(|cancel| cx.venue.fix_cancel(account, &cancel, now_ns)),
        b"G" => ReplaceRequest::parse(message).map(|replace| cx.venue.fix_replace(account, &replace, times)),
        b"H" => StatusRequest::parse(message).map(|question| cx.venue.fix_status(account, &question, now_ns)),
        b"q" => MassCancel::parse(message).map(|cancel| cx.venue.fix_mass_cancel(account, &cancel, now_ns)),
        // The session refuses other types.
        _ => Ok(Effect::None),
    }
}

fn version_of(logon: &Message<'_>) -> Option<Version> {
    let versions = [Version::Fix42, Version::Fix44, Version::Fix50Sp2];
    versions.into_iter().find(|version| version.begin_string().as_bytes() == logon.begin_string())
}

fn account_of(logon: &Message<'_>, venue: &Venue) -> Option<usize> {
    let text = |tag| logon.get(tag).and_then(|value| std::str::from_utf8(value).ok());
    let login = Credentials::new(text(SENDER_COMP_ID)?, text(PASSWORD)?)?.login(SessionId::BLANK, 1);
    venue.accounts().iter().position(|account| account.settings().credentials.match_login(&login))
}

const fn now(clock: Clock) -> Now {
    Now { steady_ns: clock.now_ns, utc_ns: clock.utc_ns() }
}
