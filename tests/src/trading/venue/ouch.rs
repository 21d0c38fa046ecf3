//! SoupBinTCP on the venue's side, and OUCH 5.0 over it.

use exchange_sim::{Effect, MessageLog};
use market::{Price, Side};
use order_entry::ouch::v50::{Inbound, Outbound};
use order_entry::ouch::{OrderState, OuchError, Side as OuchSide};
use order_entry::session::Output;
use order_entry::soupbin::{LoginRejectReason, ServerEvent, SessionId, judge_login};

use super::{Line, Protocol, SimVenue, TRADER, instrument_of};

impl SimVenue {
    /// Writes heartbeats, and the account's messages, as many as fit. False where the line has
    /// ended.
    pub(super) fn pack(&self, line: &mut Line, now_ns: u64) -> bool {
        let mut room = [0; 256];
        let mut output = Output::new(&mut room);
        if line.soup.tick(now_ns, &mut output).is_err() {
            return false;
        }
        line.out.extend_from_slice(output.written());
        let messages = self.messages();
        while line.is_logged_in
            && line.out.len() < 4_096
            && let Some(message) = messages.get(line.position).expect("the file can be read")
        {
            let mut room = [0; 256];
            let mut output = Output::new(&mut room);
            line.soup.send(now_ns, &message, &mut output).expect("there is room");
            line.out.extend_from_slice(output.written());
            line.position += 1;
        }
        true
    }

    /// Takes what was read. False where the line has ended.
    pub(super) fn take_ouch(&mut self, line: &mut Line, now_ns: u64) -> bool {
        let bytes = std::mem::take(&mut line.input);
        let mut input = &bytes[..];
        loop {
            match line.soup.receive(now_ns, &mut input) {
                Ok(None) => return true,
                Ok(Some(ServerEvent::Login(login))) => {
                    let account = &self.venue.accounts()[TRADER];
                    let session = SessionId::new("S1").expect("ten letters at most");
                    let next = self.messages().len() as u64 + 1;
                    let judged = judge_login(&login, &account.settings().credentials, session, next);
                    let judged = if self.is_taken { Err(LoginRejectReason::SessionNotAvailable) } else { judged };
                    let mut room = [0; 256];
                    let mut output = Output::new(&mut room);
                    let Ok(number) = judged else { return false };
                    line.soup.accept(now_ns, session, number, &mut output).expect("there is room");
                    (line.is_logged_in, line.position) = (true, number as usize - 1);
                    self.is_taken = true;
                    line.out.extend_from_slice(output.written());
                }
                Ok(Some(ServerEvent::Unsequenced(message))) => match self.receive(message, now_ns) {
                    Ok(Effect::None) => (),
                    Ok(effect) => return self.follow(line, effect, now_ns),
                    Err(error) => self.fault = Some(format!("the gateway sent what is no message: {error}")),
                },
                Ok(Some(ServerEvent::Logout)) => return false,
                Ok(Some(_)) => (),
                Err(error) => {
                    self.fault = Some(format!("the gateway broke a rule of the session: {error}"));
                    return false;
                }
            }
        }
    }

    /// The numbered messages of the account.
    fn messages(&self) -> &MessageLog {
        let account = &self.venue.accounts()[TRADER];
        if self.protocol == Protocol::Ouch42 { account.messages_42() } else { account.messages() }
    }

    fn receive(&mut self, message: &[u8], now_ns: u64) -> Result<Effect, OuchError> {
        if self.protocol == Protocol::Ouch42 {
            return self.receive_42(message, now_ns);
        }
        if let Some(number) = Inbound::parse(message).ok().and_then(|(message, _)| message.takes_user_ref()) {
            self.judge(number.into());
        }
        self.venue.receive(TRADER, message, now_ns)
    }

    /// The position and the open orders by the account's own messages.
    pub(super) fn count_ouch(&mut self) {
        let messages = self.venue.accounts()[TRADER].messages().since(self.counted).expect("the file can be read");
        self.counted += messages.len();
        for message in &messages {
            let Ok((message, _)) = Outbound::parse(message) else { continue };
            let side = |side: OuchSide| if side.is_sale() { Side::Sell } else { Side::Buy };
            match message {
                Outbound::OrderAccepted(it) => {
                    let instrument = instrument_of(it.symbol);
                    let order = (instrument, side(it.side), it.quantity.get(), Price(it.price.get() as i64));
                    self.enter(it.user_ref.get().into(), order, it.state == OrderState::LIVE);
                }
                Outbound::OrderReplaced(it) => {
                    let orig = u64::from(it.orig_user_ref.get());
                    let (instrument, _) = self.orders[&orig];
                    let order = (instrument, side(it.side), it.quantity.get(), Price(it.price.get() as i64));
                    self.open.remove(&orig);
                    self.enter(it.user_ref.get().into(), order, it.state == OrderState::LIVE);
                }
                Outbound::OrderExecuted(it) => {
                    self.fill(it.user_ref.get().into(), it.quantity.get(), Price(it.price.get() as i64));
                }
                Outbound::OrderCanceled(it) => self.reduce(it.user_ref.get().into(), it.quantity.get()),
                _ => (),
            }
        }
    }
}
