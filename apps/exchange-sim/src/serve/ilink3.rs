//! CME's iLink 3 on the venue's side: a session for each account, which keeps its messages for
//! connections that lack them.

use std::mem;

use order_entry::Text;
use order_entry::ilink3::{
    Establish, EstablishmentAck, Frame, HEADER_LEN, IlinkError, Key, NO_UUID, Negotiate, RetransmitRequest, Server,
    ServerConfig, ServerEvent, establish_signature, negotiate_signature,
};
use order_entry::session::Output;
use zerocopy::FromBytes;

use super::order_port::{Clock, Cx, End, Identified, LoginRefusal, OUTPUT_MAX, OrderSession};
use crate::venue::ilink3::{PROTOCOL, take, write_answer};
use crate::venue::{Effect, Venue};

/// Bytes of what is written at once: a message, or the acknowledgment of a login with all holes.
const WRITE_MAX: usize = 1_024;
/// What an account must begin with.
const RULE: &str = "the first message must be a signed Negotiate or Establish of an account";
/// Codes of refusals. What they mean is in their text.
const NOT_SIGNED: u16 = 0;
const NUMBERS: u16 = 1;

/// An account's session.
pub(super) struct IlinkSession {
    server: Server,
    /// The answer of each number, from 1 on.
    log: Vec<usize>,
    /// The same of the session before, and its identifier.
    before: (u64, Vec<usize>),
    /// Answers of the account that have a number.
    position: usize,
    is_established: bool,
    /// Messages that are sent again: of the session before or not, the next, and the end.
    again: Option<(bool, u32, u32)>,
}

impl OrderSession for IlinkSession {
    fn identify(input: &[u8], venue: &Venue) -> Identified {
        let frame = match Frame::len(input) {
            Err(_) => return Identified::Nobody(RULE),
            Ok(Some(len)) if len <= input.len() => Frame::parse(&input[..len]),
            Ok(_) => return Identified::Incomplete,
        };
        let account = frame.ok().and_then(|frame| account_of(&frame, venue));
        account.map_or(Identified::Nobody(RULE), Identified::Account)
    }

    fn refuse(input: &[u8], reason: LoginRefusal) -> Vec<u8> {
        let text = match reason {
            LoginRefusal::NotAuthorized => text("not authorized"),
            LoginRefusal::InUse => text("in use"),
        };
        let mut server = Server::new(ServerConfig::default());
        server.connected(0);
        let mut answer = Vec::new();
        let refused = match server.receive(0, &mut { input }) {
            Ok(Some(ServerEvent::Negotiate(_))) => {
                write(&mut answer, |output| server.reject_negotiation(NOT_SIGNED, &text, output))
            }
            Ok(Some(ServerEvent::Establish(_))) => {
                write(&mut answer, |output| server.reject_establishment(NOT_SIGNED, &text, output))
            }
            _ => Ok(()),
        };
        // A message of the session always fits.
        drop(refused);
        answer
    }

    fn new(_: &[u8]) -> Self {
        Self {
            server: Server::new(ServerConfig::default()),
            log: Vec::new(),
            before: (0, Vec::new()),
            position: 0,
            is_established: false,
            again: None,
        }
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        self.server.connected(cx.clock.now_ns);
    }

    fn take(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<Effect, End> {
        let bytes = mem::take(input);
        let (mut rest, now_ns) = (&bytes[..], cx.clock.now_ns);
        loop {
            let event = match self.server.receive(now_ns, &mut rest) {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(Effect::None),
                Err(error) => {
                    // The termination says which rule was broken.
                    write(output, |out| self.server.tick(now_ns, out))?;
                    return Err(End::rule(error));
                }
            };
            match event {
                ServerEvent::Negotiate(negotiate) => {
                    let (uuid, is_signed) =
                        (negotiate.uuid.get(), negotiating(negotiate, cx.venue) == Some(cx.account));
                    self.negotiate(uuid, is_signed, output, cx)?;
                }
                ServerEvent::Establish(establish) => {
                    let (uuid, next) = (establish.uuid.get(), establish.next_seq.get());
                    let is_signed = establishing(establish, cx.venue) == Some(cx.account);
                    self.establish((uuid, next), is_signed, output, cx)?;
                }
                ServerEvent::Message { frame, .. } => {
                    match take(cx.venue, cx.account, &frame, now_ns).map_err(End::rule)? {
                        Effect::None => {}
                        effect => return Ok(effect),
                    }
                }
                ServerEvent::RetransmitRequest(request) => {
                    let request = *request;
                    self.begin_again(&request, output, cx)?;
                }
                ServerEvent::Terminated { .. } => {
                    write(output, |out| self.server.tick(now_ns, out))?;
                    return Err(End(None));
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<bool, End> {
        let (before, clock) = (output.len(), cx.clock);
        if self.server.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= clock.now_ns) {
            write(output, |out| self.server.tick(clock.now_ns, out))?;
        }
        let answers = cx.venue.accounts()[cx.account].answers(PROTOCOL);
        while self.is_established
            && output.len() < OUTPUT_MAX
            && let Some(answer) = answers.get(self.position)
        {
            if let Some(message) = write_answer(answer, clock.epoch_ns, false) {
                write(output, |out| {
                    self.server.send(clock.now_ns, message.template, &message.block, message.tail, out).map(drop)
                })?;
                self.log.push(self.position);
            }
            self.position += 1;
        }
        while let Some((is_before, number, end)) = self.again.filter(|_| output.len() < OUTPUT_MAX) {
            let log = if is_before { &self.before.1 } else { &self.log };
            let answer = log.get(number as usize - 1).and_then(|&at| answers.get(at));
            if let Some(message) = answer.and_then(|answer| write_answer(answer, clock.epoch_ns, true)) {
                write(output, |out| {
                    let (template, block) = (message.template, &message.block);
                    self.server.send_again(clock.now_ns, number, template, block, message.tail, out)
                })?;
            }
            self.again = (number + 1 < end).then_some((is_before, number + 1, end));
        }
        Ok(output.len() > before)
    }

    fn disconnected(&mut self) {
        self.server.disconnected();
        (self.is_established, self.again) = (false, None);
    }

    fn end(&mut self, output: &mut Vec<u8>, clock: Clock) {
        // Who has established nothing has nothing to end.
        let _ = write(output, |out| self.server.terminate(clock.now_ns, 0, out));
    }
}

impl IlinkSession {
    fn negotiate(&mut self, uuid: u64, is_signed: bool, output: &mut Vec<u8>, cx: &Cx<'_>) -> Result<(), End> {
        let (last, ..) = self.server.numbers();
        let refusal = match is_signed {
            false => Some((NOT_SIGNED, text("not authorized"))),
            true if uuid <= last => Some((NUMBERS, text("UUID must rise"))),
            true => None,
        };
        if let Some((code, text)) = refusal {
            write(output, |out| self.server.reject_negotiation(code, &text, out))?;
            return Err(End(None));
        }
        // What happened since is of the session before, where there is one.
        if last > 0 {
            self.number_unsent(cx)?;
        }
        write(output, |out| self.server.accept_negotiation(out))?;
        self.before = (last, mem::take(&mut self.log));
        Ok(())
    }

    fn establish(
        &mut self,
        (uuid, next): (u64, u32),
        is_signed: bool,
        output: &mut Vec<u8>,
        cx: &mut Cx<'_>,
    ) -> Result<(), End> {
        let (own, sent, expected) = self.server.numbers();
        let is_new = uuid == own && sent > 1 && cx.venue.has_new_session();
        let refusal = match is_signed {
            false => Some((NOT_SIGNED, text("not authorized"))),
            true if uuid != own || is_new => Some((NUMBERS, text("no session of this UUID"))),
            true if next < expected => Some((NUMBERS, text("NextSeqNo is too low"))),
            true => None,
        };
        if let Some((code, text)) = refusal {
            write(output, |out| self.server.reject_establishment(code, &text, out))?;
            return Err(End(None));
        }
        self.number_unsent(cx)?;
        let at = output.len();
        write(output, |out| self.server.accept_establishment(cx.clock.now_ns, out))?;
        surprise(&mut output[at..], uuid, cx.venue.login_surprise());
        self.is_established = true;
        Ok(())
    }

    /// Numbers what happened while the client was away.
    fn number_unsent(&mut self, cx: &Cx<'_>) -> Result<(), End> {
        let answers = cx.venue.accounts()[cx.account].answers(PROTOCOL);
        while let Some(answer) = answers.get(self.position) {
            if write_answer(answer, cx.clock.epoch_ns, false).is_some() {
                self.server.number_unsent().map_err(End::rule)?;
                self.log.push(self.position);
            }
            self.position += 1;
        }
        Ok(())
    }

    /// One request is answered at a time.
    fn begin_again(&mut self, request: &RetransmitRequest, output: &mut Vec<u8>, cx: &Cx<'_>) -> Result<(), End> {
        let now_ns = cx.clock.now_ns;
        let (own, ..) = self.server.numbers();
        let (of, from) = (request.last_uuid.get(), request.from_seq.get());
        let end = from.saturating_add(request.count.get().into());
        let log = match of {
            _ if of == NO_UUID || of == own => Some((false, self.log.len())),
            _ if of == self.before.0 => Some((true, self.before.1.len())),
            _ => None,
        };
        let found = log.filter(|&(_, len)| from > 0 && end as usize <= len + 1 && self.again.is_none());
        let Some((is_before, _)) = found else {
            let text = text("no such messages");
            return write(output, |out| self.server.reject_retransmission(now_ns, request, NUMBERS, &text, out));
        };
        write(output, |out| self.server.begin_retransmission(now_ns, request, out))?;
        self.again = Some((is_before, from, end));
        Ok(())
    }
}

/// Has the acknowledgment of a connection tell a lower last number of this session than the right
/// one, which its messages have. A higher one would have the client wait for messages that there
/// are not.
fn surprise(acknowledgment: &mut [u8], uuid: u64, off: i64) {
    let block = acknowledgment.get_mut(HEADER_LEN..HEADER_LEN + EstablishmentAck::LEN);
    let Some(ack) = block.and_then(|block| EstablishmentAck::mut_from_bytes(block).ok()) else { return };
    // The first of a session tells of the one before.
    if ack.previous_uuid.get() == uuid {
        let off = u32::try_from(off.unsigned_abs()).unwrap_or(0);
        ack.previous_seq = ack.previous_seq.get().saturating_sub(off).into();
    }
}

/// Appends what `put` writes.
fn write(output: &mut Vec<u8>, put: impl FnOnce(&mut Output<'_>) -> Result<(), IlinkError>) -> Result<(), End> {
    let mut bytes = [0; WRITE_MAX];
    let mut out = Output::new(&mut bytes);
    let done = put(&mut out).map_err(End::rule);
    output.extend_from_slice(out.written());
    done
}

fn text(text: &str) -> Text<48> {
    Text::zero_padded(text).unwrap_or(Text([0; 48]))
}

/// The account of a login that is signed: its user is session and firm, one behind the other, and
/// its password the key of the signature.
fn account_of(frame: &Frame<'_>, venue: &Venue) -> Option<usize> {
    match frame.template {
        Negotiate::KIND => negotiating(frame.view().ok()?, venue),
        Establish::KIND => establishing(frame.view().ok()?, venue),
        _ => None,
    }
}

fn negotiating(it: &Negotiate, venue: &Venue) -> Option<usize> {
    let (account, key) = named(&it.session, &it.firm, venue)?;
    (negotiate_signature(&key, it) == Some(it.signature)).then_some(account)
}

fn establishing(it: &Establish, venue: &Venue) -> Option<usize> {
    let (account, key) = named(&it.session, &it.firm, venue)?;
    (establish_signature(&key, it) == Some(it.signature)).then_some(account)
}

fn named(session: &Text<3>, firm: &Text<5>, venue: &Venue) -> Option<(usize, Key)> {
    let user = [session.trimmed(), firm.trimmed()].concat();
    let mut credentials = venue.accounts().iter().map(|account| &account.settings().credentials);
    let account = credentials.position(|it| it.username() == user)?;
    Some((account, Key::from_bytes(venue.accounts()[account].settings().credentials.password())))
}
