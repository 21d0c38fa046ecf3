//! OUCH 4.2 on the venue's side.

use exchange_sim::Effect;
use market::{Price, Side};
use order_entry::Text;
use order_entry::ouch::v42::{Inbound, Outbound};
use order_entry::ouch::{OrderState, OuchError, Side as OuchSide};

use super::{SimVenue, TRADER, instrument_of};

impl SimVenue {
    pub(super) fn receive_42(&mut self, message: &[u8], now_ns: u64) -> Result<Effect, OuchError> {
        let token = match Inbound::parse(message)? {
            Inbound::EnterOrder(order) => Some(order.token),
            Inbound::ReplaceOrder(replace) => Some(replace.new_token),
            _ => None,
        };
        // One that is no id is a probe's.
        if let Some(id) = token.and_then(|token| id_of(&token)) {
            self.judge(id);
        }
        self.venue.receive_42(TRADER, message, now_ns)
    }

    /// The position and the open orders by the account's own messages.
    pub(super) fn count_ouch42(&mut self) {
        let messages = self.venue.accounts()[TRADER].messages_42().since(self.counted).expect("the file can be read");
        self.counted += messages.len();
        for message in &messages {
            let Ok(message) = Outbound::parse(message) else { continue };
            let side = |side: OuchSide| if side.is_sale() { Side::Sell } else { Side::Buy };
            let id = |token: &Text<14>| id_of(token).unwrap_or(0);
            match message {
                Outbound::OrderAccepted(it) => {
                    let instrument = instrument_of(it.stock);
                    let order = (instrument, side(it.side), it.shares.get(), Price(it.price.get().into()));
                    self.enter(id(&it.token), order, it.state == OrderState::LIVE);
                }
                Outbound::OrderReplaced(it) => {
                    let instrument = instrument_of(it.stock);
                    let order = (instrument, side(it.side), it.shares.get(), Price(it.price.get().into()));
                    self.open.remove(&id(&it.previous_token));
                    self.enter(id(&it.token), order, it.state == OrderState::LIVE);
                }
                Outbound::Executed(it) => {
                    self.fill(id(&it.token), it.shares.get(), Price(it.price.get().into()));
                }
                Outbound::OrderCanceled(it) => self.reduce(id(&it.token), it.decrement.get()),
                _ => (),
            }
        }
    }
}

/// The number in a token.
fn id_of(token: &Text<14>) -> Option<u64> {
    std::str::from_utf8(&token.0).ok()?.parse().ok()
}
