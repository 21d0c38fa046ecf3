//! What the venue's own messages say of an account: its fills and its open orders, computed from
//! the numbered messages of the whole day and from nothing of the gateway.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use market::{Price, Side, Symbol};
use order_entry::orders::TradeTotals;
use order_entry::ouch::OrderState;
use order_entry::ouch::v50::{AccountQuery, Field, Outbound};
use order_entry::session::Output;
use order_entry::soupbin::{Client, ClientConfig, ClientEvent, Credentials, SessionId};

use crate::exchange::{PASSWORD, USER};

/// Marks our query among those of the gateways, which draw theirs from 1 to 200.
const OWN_IDX: u8 = 250;

/// An order as the venue has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VenueOrder {
    pub symbol: Symbol,
    pub side: Side,
    pub leaves: u32,
    pub price: Price,
}

/// A day of an account.
#[derive(Debug, Default)]
pub struct VenueLog {
    /// Orders with open shares, by the number that names them.
    pub open: BTreeMap<u64, VenueOrder>,
    /// Every order and replace that was accepted: side, shares and price of it.
    pub accepted: BTreeMap<u64, (Side, u32, Price)>,
    pub totals: TradeTotals,
}

impl VenueLog {
    /// Logs in, reads everything, and logs out.
    pub fn read(mut stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let begun = Instant::now();
        let now_ns = || begun.elapsed().as_nanos() as u64;
        let mut client = Client::new(ClientConfig::new(Credentials::new(USER, PASSWORD).unwrap()));
        let (mut log, mut room) = (Self::default(), [0; 256]);
        let mut output = Output::new(&mut room);
        client.connect(now_ns(), SessionId::BLANK, 1, &mut output).unwrap();
        stream.write_all(output.written()).unwrap();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let len = stream.read(&mut buffer).unwrap();
            assert!(len > 0, "the venue has closed the connection");
            let mut input = &buffer[..len];
            let (mut is_accepted, mut is_done) = (false, false);
            while let Some(event) = client.receive(now_ns(), &mut input).unwrap() {
                match event {
                    ClientEvent::Sequenced { message, .. } => is_done |= log.take(message),
                    ClientEvent::LoginRejected(reason) => panic!("{reason:?}"),
                    ClientEvent::LoggedIn { .. } => is_accepted = true,
                    _ => (),
                }
            }
            if is_done {
                return log;
            }
            if is_accepted {
                output.clear();
                let mut query = [0; 16];
                let len = AccountQuery {}.emit(&[Field::UserRefIdx(OWN_IDX)], &mut query).unwrap();
                client.send(now_ns(), &query[..len], &mut output).unwrap();
                stream.write_all(output.written()).unwrap();
            }
        }
    }

    /// Counts a message. True for the answer to our own query, which comes behind everything else.
    fn take(&mut self, message: &[u8]) -> bool {
        let (message, options) = Outbound::parse(message).unwrap();
        match message {
            Outbound::OrderAccepted(accepted) => {
                let side = if accepted.side.is_sale() { Side::Sell } else { Side::Buy };
                let (qty, price) = (accepted.quantity.get(), Price(accepted.price.get() as i64));
                let id = u64::from(accepted.user_ref.get());
                let order = VenueOrder { symbol: accepted.symbol, side, leaves: qty, price };
                self.enter(id, order, accepted.state == OrderState::LIVE);
            }
            Outbound::OrderReplaced(replaced) => {
                let side = if replaced.side.is_sale() { Side::Sell } else { Side::Buy };
                let (qty, price) = (replaced.quantity.get(), Price(replaced.price.get() as i64));
                let id = u64::from(replaced.user_ref.get());
                self.open.remove(&u64::from(replaced.orig_user_ref.get()));
                let order = VenueOrder { symbol: replaced.symbol, side, leaves: qty, price };
                self.enter(id, order, replaced.state == OrderState::LIVE);
            }
            Outbound::OrderExecuted(executed) => {
                let price = Price(executed.price.get() as i64);
                self.fill(executed.user_ref.get().into(), executed.quantity.get(), price);
            }
            Outbound::OrderCanceled(canceled) => {
                self.reduce(u64::from(canceled.user_ref.get()), canceled.quantity.get());
            }
            Outbound::AccountQueryResponse(_) => return options.user_ref_idx() == OWN_IDX,
            _ => (),
        }
        false
    }

    /// An order or a replace was accepted; it may have died at once.
    pub fn enter(&mut self, id: u64, order: VenueOrder, is_live: bool) {
        self.accepted.insert(id, (order.side, order.leaves, order.price));
        if is_live {
            self.open.insert(id, order);
        }
    }

    pub fn fill(&mut self, id: u64, qty: u32, price: Price) {
        self.totals.add(self.accepted[&id].0, qty, price);
        self.reduce(id, qty);
    }

    pub fn reduce(&mut self, id: u64, by: u32) {
        let Some(order) = self.open.get_mut(&id) else { return };
        order.leaves -= by;
        if order.leaves == 0 {
            self.open.remove(&id);
        }
    }
}
