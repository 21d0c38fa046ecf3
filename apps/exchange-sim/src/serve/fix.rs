//! FIX on the venue's side: a session for each account.

use order_entry::fix::codec::{FieldIndex, Frame, Message, Writer, frame};
use order_entry::fix::orders::{CancelRequest, Defect, MassCancel, NewOrderSingle, ReplaceRequest, StatusRequest};
use order_entry::fix::session::{
    End as SessionEnd, Event, MemoryStore, Now, Role, SendError, Session, SessionConfig, Version,
};
use order_entry::soupbin::{Credentials, SessionId};

use super::order_port::{Clock, Cx, End, Identified, LoginRefusal, OUTPUT_MAX, OrderSession};
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

/// An account's session.
pub(super) struct FixSession {
    session: Session<MemoryStore>,
    version: Version,
    /// Answers of the account that have a number.
    position: usize,
}

impl OrderSession for FixSession {
    fn identify(input: &[u8], venue: &Venue) -> Identified {
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

    fn refuse(_: &[u8], _: LoginRefusal) -> Vec<u8> {
        Vec::new()
    }

    fn new(input: &[u8]) -> Self {
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
            supported_types: ["D", "F", "G", "H", "q"].map(str::to_owned).into(),
            ..SessionConfig::default()
        };
        Self { session: Session::new(config, MemoryStore::dropping_oldest(STORE.0, STORE.1)), version, position: 0 }
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        self.session.connected(now(cx.clock));
    }

    fn take(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<Effect, End> {
        let now = now(cx.clock);
        loop {
            let len = self.session.receive(now, input);
            input.drain(..len);
            while let Some(event) = self.session.poll(now) {
                let (message, seq) = match event {
                    Event::Message { message, seq, .. } => (message, seq),
                    Event::Disconnect(end) => {
                        self.flush(output);
                        let is_logout = matches!(end, SessionEnd::LoggedOut | SessionEnd::PeerLoggedOut);
                        return Err(if is_logout { End(None) } else { End::rule(end) });
                    }
                    _ => continue,
                };
                let msg_type = message.msg_type().to_vec();
                match request(&message, cx) {
                    Ok(Effect::None) => {}
                    Ok(effect) => return Ok(effect),
                    Err(defect) => self.session.reject(now, &msg_type, seq, defect).map(drop).map_err(End::rule)?,
                }
            }
            if len == 0 {
                return Ok(Effect::None);
            }
        }
    }

    fn send(&mut self, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<bool, End> {
        let (before, now) = (self.position, now(cx.clock));
        let answers = cx.venue.accounts()[cx.account].answers(Protocol::Fix);
        while let Some(answer) = answers.get(self.position).filter(|_| self.session.is_logged_on()) {
            if let Some(msg_type) = fix::msg_type(answer) {
                let write = |out: &mut Writer<'_>| fix::write(answer, self.version, now.utc_ns, out);
                match self.session.send(now, msg_type, write) {
                    Ok(_) => {}
                    Err(SendError::OutputFull) => break,
                    Err(error) => return Err(End::rule(error)),
                }
            }
            self.position += 1;
        }
        Ok(self.flush(output) || self.position > before)
    }

    fn disconnected(&mut self) {
        self.session.disconnected();
    }

    fn end(&mut self, output: &mut Vec<u8>, clock: Clock) {
        self.session.logout(now(clock), "end of the day");
        self.flush(output);
    }
}

impl FixSession {
    /// Hands on what the session has written, where there is room.
    fn flush(&mut self, output: &mut Vec<u8>) -> bool {
        let written = self.session.output();
        let len = written.len().min(OUTPUT_MAX.saturating_sub(output.len()));
        output.extend_from_slice(&written[..len]);
        self.session.consume(len);
        len > 0
    }
}

/// A message of the application, as one of the venue's requests.
fn request(message: &Message<'_>, cx: &mut Cx<'_>) -> Result<Effect, Defect> {
    let (account, now_ns) = (cx.account, cx.clock.now_ns);
    match message.msg_type() {
        b"D" => NewOrderSingle::parse(message).map(|order| cx.venue.fix_new(account, &order, now_ns)),
        b"F" => CancelRequest::parse(message).map(|cancel| cx.venue.fix_cancel(account, &cancel, now_ns)),
        b"G" => ReplaceRequest::parse(message).map(|replace| cx.venue.fix_replace(account, &replace, now_ns)),
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
