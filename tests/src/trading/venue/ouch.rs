//! OUCH 5.0 over SoupBinTCP on the venue's side.

use std::collections::BTreeMap;

use exchange_sim::Effect;
use market::{Price, Side};
use order_entry::ouch::OrderState;
use order_entry::ouch::v50::{Inbound, Outbound};
use order_entry::session::Output;
use order_entry::soupbin::{LoginRejectReason, ServerEvent, SessionId, judge_login};

use super::{Line, SimVenue, TRADER};

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
        let messages = self.venue.accounts()[TRADER].messages();
        while line.is_logged_in && line.position < messages.len() && line.out.len() < 4_096 {
            let mut room = [0; 256];
            let mut output = Output::new(&mut room);
            line.soup.send(now_ns, &messages[line.position], &mut output).expect("there is room");
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
                    let next = account.messages().len() as u64 + 1;
                    let judged = judge_login(&login, &account.settings().credentials, session, next);
                    let judged = if self.is_taken() { Err(LoginRejectReason::SessionNotAvailable) } else { judged };
                    let mut room = [0; 256];
                    let mut output = Output::new(&mut room);
                    let Ok(number) = judged else { return false };
                    line.soup.accept(now_ns, session, number, &mut output).expect("there is room");
                    (line.is_logged_in, line.position) = (true, number as usize - 1);
                    line.out.extend_from_slice(output.written());
                }
                Ok(Some(ServerEvent::Unsequenced(message))) => {
                    self.judge(message);
                    match self.venue.receive(TRADER, message, now_ns) {
                        Ok(Effect::None) => (),
                        Ok(effect) => return self.follow(line, effect, now_ns),
                        Err(error) => self.fault = Some(format!("the gateway sent what is no message: {error}")),
                    }
                }
                Ok(Some(ServerEvent::Logout)) => return false,
                Ok(Some(_)) => (),
                Err(error) => {
                    self.fault = Some(format!("the gateway broke a rule of the session: {error}"));
                    return false;
                }
            }
        }
    }

    /// Nothing arrives twice.
    fn judge(&mut self, message: &[u8]) {
        let Ok((message, _)) = Inbound::parse(message) else { return };
        let Some(number) = message.takes_user_ref() else { return };
        self.arrived += 1;
        if !self.numbers.insert(number) {
            self.fault = Some(format!("sent twice: the number {number}"));
        }
    }

    /// The position and the open orders by the account's own messages.
    pub(super) fn count_ouch(&mut self) {
        let messages = self.venue.accounts()[TRADER].messages();
        for message in &messages[self.counted..] {
            let Ok((message, _)) = Outbound::parse(message) else { continue };
            let reduce = |open: &mut BTreeMap<u64, (Side, u32, Price)>, id: u64, by: u32| {
                if let Some(order) = open.get_mut(&id) {
                    order.1 -= by;
                    if order.1 == 0 {
                        open.remove(&id);
                    }
                }
            };
            match message {
                Outbound::OrderAccepted(it) => {
                    let side = if it.side.is_sale() { Side::Sell } else { Side::Buy };
                    self.sides.insert(it.user_ref.get().into(), side);
                    if it.state == OrderState::LIVE {
                        let price = Price(it.price.get() as i64);
                        self.open.insert(it.user_ref.get().into(), (side, it.quantity.get(), price));
                    }
                }
                Outbound::OrderReplaced(it) => {
                    let side = if it.side.is_sale() { Side::Sell } else { Side::Buy };
                    self.sides.insert(it.user_ref.get().into(), side);
                    self.open.remove(&u64::from(it.orig_user_ref.get()));
                    if it.state == OrderState::LIVE {
                        let price = Price(it.price.get() as i64);
                        self.open.insert(it.user_ref.get().into(), (side, it.quantity.get(), price));
                    }
                }
                Outbound::OrderExecuted(it) => {
                    let (id, qty) = (u64::from(it.user_ref.get()), it.quantity.get());
                    let sign = if self.sides[&id] == Side::Buy { 1 } else { -1 };
                    self.position += sign * i64::from(qty);
                    reduce(&mut self.open, id, qty);
                }
                Outbound::OrderCanceled(it) => reduce(&mut self.open, it.user_ref.get().into(), it.quantity.get()),
                _ => (),
            }
        }
        self.counted = messages.len();
    }
}
