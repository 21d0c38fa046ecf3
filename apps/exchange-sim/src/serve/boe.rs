//! Cboe BOE on the venue's side: a session for each account, which replays what a login lacks.

use order_entry::Text;
use order_entry::boe::{
    LoginRequest, LoginStatus, LogoutReason, Message, Server, ServerConfig, ServerEvent, UnitSequence,
    UnspecifiedUnits, Version,
};
use order_entry::session::Output;
use order_entry::soupbin::{Credentials, SessionId};

use super::order_port::{Clock, Cx, End, Identified, LoginRefusal, OUTPUT_MAX, OrderSession};
use crate::venue::boe::{BODY_MAX, BoeWords, Received, Times, UNIT};
use crate::venue::{Answer, Effect, Venue};

/// Bytes of the longest message of the venue.
const MESSAGE_MAX: usize = BODY_MAX + 16;
/// What an account must begin with.
const RULE: &str = "the first message must be a login of an account";

/// An account's session.
pub(super) struct BoeSession<W: BoeWords> {
    server: Server<W>,
    returns: W::Returns,
    /// Number and answer of each message that has one.
    log: Vec<(u32, usize)>,
    /// Answers of the account that were sent or numbered.
    position: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Away,
    /// The place in the log that is replayed next.
    Replaying(usize),
    Live,
}

impl<W: BoeWords> OrderSession for BoeSession<W> {
    fn identify(input: &[u8], venue: &Venue) -> Identified {
        match W::frame_len(input) {
            Err(_) => return Identified::Nobody(RULE),
            Ok(Some(len)) if len <= input.len() => {}
            Ok(_) => return Identified::Incomplete,
        }
        let account = login_of::<W>(input).and_then(|login| account_of(&login, venue));
        account.map_or(Identified::Nobody(RULE), Identified::Account)
    }

    fn refuse(input: &[u8], reason: LoginRefusal) -> Vec<u8> {
        let status = match reason {
            LoginRefusal::NotAuthorized => LoginStatus::NOT_AUTHORIZED,
            LoginRefusal::InUse => LoginStatus::IN_USE,
        };
        let mut server = Server::<W>::new(ServerConfig::default());
        server.connected(0);
        let mut answer = Vec::new();
        if matches!(server.receive(0, &mut { input }), Ok(Some(ServerEvent::Login(_)))) {
            // A message of the session always fits.
            let _ = write(&mut answer, |output| server.reject(0, status, &Text([0; 60]), output));
        }
        answer
    }

    fn new(_: &[u8]) -> Self {
        let server = Server::new(ServerConfig::default());
        Self { server, returns: W::Returns::default(), log: Vec::new(), position: 0, state: State::Away }
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        self.server.connected(cx.clock.now_ns);
    }

    fn take(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<Effect, End> {
        let bytes = std::mem::take(input);
        let (mut rest, now_ns) = (&bytes[..], cx.clock.now_ns);
        while let Some(event) = self.server.receive(now_ns, &mut rest).map_err(End::rule)? {
            match event {
                ServerEvent::Login(login) => {
                    let judged = Login::of::<W>(&login);
                    self.log_in(judged, output, cx)?;
                }
                ServerEvent::Message { message, is_during_replay } => {
                    let received = Received { kind: message.kind, body: message.body, is_during_replay };
                    let times = Times { now_ns, epoch_ns: cx.clock.epoch_ns };
                    match W::take(cx.venue, cx.account, received, times).map_err(End::rule)? {
                        Effect::None => {}
                        effect => return Ok(effect),
                    }
                }
                ServerEvent::LogoutRequest => {
                    self.log_out(LogoutReason::USER, output);
                    return Err(End(None));
                }
                _ => {}
            }
        }
        Ok(Effect::None)
    }

    fn send(&mut self, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<bool, End> {
        let before = output.len();
        let clock = cx.clock;
        let answers = cx.venue.accounts()[cx.account].answers(W::PROTOCOL);
        if let State::Replaying(from) = self.state {
            self.replay(from, answers, output, clock)?;
        }
        while self.state == State::Live
            && output.len() < OUTPUT_MAX
            && let Some(answer) = answers.get(self.position)
        {
            let mut body = [0; BODY_MAX];
            if let Some((kind, len)) = W::write(answer, &self.returns, clock.epoch_ns, &mut body) {
                let mut number = 0;
                write(output, |out| {
                    number = self.server.send(clock.now_ns, kind, UNIT, &body[..len], out)?;
                    Ok(())
                })?;
                self.note(number);
            }
            self.position += 1;
        }
        if self.server.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= clock.now_ns) {
            write(output, |out| self.server.tick(clock.now_ns, out))?;
        }
        Ok(output.len() > before)
    }

    fn disconnected(&mut self) {
        self.server.disconnected();
        self.state = State::Away;
    }

    fn end(&mut self, output: &mut Vec<u8>, _: Clock) {
        self.log_out(LogoutReason::END_OF_DAY, output);
    }
}

/// What a login asks for, apart from its bytes.
struct Login<R> {
    returns: Result<R, LoginStatus>,
    /// The last number that was received.
    received: Result<Option<u32>, LoginStatus>,
    unspecified: UnspecifiedUnits,
}

impl<R> Login<R> {
    fn of<W: BoeWords<Returns = R>>(login: &LoginRequest<'_>) -> Self {
        let received = match login.units {
            [] => Ok(None),
            [own] if own.unit == UNIT => Ok(Some(own.sequence.get())),
            _ => Err(LoginStatus::INVALID_UNIT),
        };
        let returns = W::returns(login).map_err(|_| LoginStatus::INVALID_BITFIELD);
        Self { returns, received, unspecified: login.unspecified }
    }
}

impl<W: BoeWords> BoeSession<W> {
    fn log_in(&mut self, login: Login<W::Returns>, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<(), End> {
        let now_ns = cx.clock.now_ns;
        self.number_unsent(cx)?;
        // Who has received nothing finds no session other than it expects.
        let goes_on = matches!(login.received, Ok(Some(1..)));
        let is_new = goes_on && cx.venue.has_new_session();
        let sent = if is_new { 0 } else { self.server.sent(UNIT) };
        let judged = login.returns.and_then(|returns| match (login.received?, login.unspecified) {
            (Some(received), _) if received > sent => Err(LoginStatus::SEQUENCE_AHEAD),
            (Some(received), _) => Ok((returns, received)),
            (None, UnspecifiedUnits::Replay) => Ok((returns, 0)),
            (None, UnspecifiedUnits::Skip) => Ok((returns, sent)),
            (None, UnspecifiedUnits::Fail) => Err(LoginStatus::INVALID_UNIT),
        });
        match judged {
            Ok((returns, received)) => {
                // What is replayed is right: only the number that is told is off.
                let told = sent.saturating_add_signed(cx.venue.login_surprise() as i32);
                let units = [UnitSequence::new(UNIT, told)];
                write(output, |out| self.server.accept(now_ns, &units, out))?;
                self.returns = returns;
                self.state = State::Replaying(self.log.partition_point(|&(number, _)| number <= received));
                Ok(())
            }
            Err(status) => {
                write(output, |out| self.server.reject(now_ns, status, &Text([0; 60]), out))?;
                Err(End(None))
            }
        }
    }

    /// Numbers what happened while the client was away. Rejects have no number, and are lost.
    fn number_unsent(&mut self, cx: &Cx<'_>) -> Result<(), End> {
        let answers = cx.venue.accounts()[cx.account].answers(W::PROTOCOL);
        while let Some(answer) = answers.get(self.position) {
            let kind = W::write(answer, &W::Returns::default(), 0, &mut [0; BODY_MAX]).map(|(kind, _)| kind);
            if kind.is_some_and(W::is_sequenced) {
                let number = self.server.number_unsent(UNIT).map_err(End::rule)?;
                self.note(number);
            }
            self.position += 1;
        }
        Ok(())
    }

    fn replay(&mut self, from: usize, answers: &[Answer], output: &mut Vec<u8>, clock: Clock) -> Result<(), End> {
        for (at, &(sequence, idx)) in self.log.iter().enumerate().skip(from) {
            if output.len() >= OUTPUT_MAX {
                self.state = State::Replaying(at);
                return Ok(());
            }
            let mut body = [0; BODY_MAX];
            let Some((kind, len)) = W::write(&answers[idx], &self.returns, clock.epoch_ns, &mut body) else { continue };
            let message = Message { kind, unit: UNIT, sequence, body: &body[..len] };
            write(output, |out| self.server.send_again(clock.now_ns, &message, out))?;
        }
        write(output, |out| self.server.complete_replay(clock.now_ns, out))?;
        self.state = State::Live;
        Ok(())
    }

    /// Remembers the answer at the position under its number, where it has one.
    fn note(&mut self, number: u32) {
        if number > 0 {
            self.log.push((number, self.position));
        }
    }

    fn log_out(&mut self, reason: LogoutReason, output: &mut Vec<u8>) {
        let units = [UnitSequence::new(UNIT, self.server.sent(UNIT))];
        // Who is not logged in gets no logout.
        let _ = write(output, |out| self.server.logout(reason, &Text([0; 60]), &units, out));
    }
}

/// Appends what `put` writes: one message.
fn write(
    output: &mut Vec<u8>,
    put: impl FnOnce(&mut Output<'_>) -> Result<(), order_entry::boe::BoeError>,
) -> Result<(), End> {
    let mut bytes = [0; MESSAGE_MAX];
    let mut out = Output::new(&mut bytes);
    let done = put(&mut out).map_err(End::rule);
    output.extend_from_slice(out.written());
    done
}

fn login_of<W: Version>(input: &[u8]) -> Option<LoginRequest<'_>> {
    let len = W::frame_len(input).ok()??;
    let message = W::parse(input.get(..len)?).ok()?;
    if message.kind == W::KINDS.login { W::read_login(message.body).ok() } else { None }
}

/// An account's user is the login's user, of at most four characters, and its sub-identifier behind
/// that.
fn account_of(login: &LoginRequest<'_>, venue: &Venue) -> Option<usize> {
    let order_entry::boe::Credentials { user, sub_id, password } = &login.credentials;
    let user = [user.trimmed(), sub_id.trimmed()].concat();
    let (user, password) = (std::str::from_utf8(&user).ok()?, std::str::from_utf8(password.trimmed()).ok()?);
    let login = Credentials::new(user, password)?.login(SessionId::BLANK, 1);
    venue.accounts().iter().position(|account| account.settings().credentials.match_login(&login))
}
