//! What the venue's messages by OUCH 4.2 say of an account: all of the day again, from the first
//! on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use market::{Price, Side, Symbol};
use order_entry::Text;
use order_entry::ouch::v42::{EnterOrder, Outbound};
use order_entry::ouch::{Capacity, CrossType, CustomerType, Display, OrderState, Side as OuchSide, YesNo};
use order_entry::session::Output;
use order_entry::soupbin::{Client, ClientConfig, ClientEvent, Credentials, SessionId};

use crate::exchange::{PASSWORD, USER};
use crate::truth::{VenueLog, VenueOrder};

/// Logs in, and reads until an order of our own is refused, which comes behind everything else.
pub fn read(mut stream: TcpStream) -> VenueLog {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let begun = Instant::now();
    let now_ns = || begun.elapsed().as_nanos() as u64;
    let mut client = Client::new(ClientConfig::new(Credentials::new(USER, PASSWORD).unwrap()));
    let (mut log, mut room) = (VenueLog::default(), [0; 256]);
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
                ClientEvent::Sequenced { message, .. } => is_done |= take(&mut log, message),
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
            let mut message = [0; EnterOrder::LEN];
            refusable().emit(&mut message).unwrap();
            client.send(now_ns(), &message, &mut output).unwrap();
            stream.write_all(output.written()).unwrap();
        }
    }
}

/// The token of an order of this file.
const OWN: Text<14> = Text(*b"READS THE DAY ");

/// An order for no stock.
fn refusable() -> EnterOrder {
    EnterOrder {
        token: OWN,
        side: OuchSide::BUY,
        shares: 1.into(),
        stock: Symbol::NONE,
        price: 1.into(),
        time_in_force: 0.into(),
        firm: Text::BLANK,
        display: Display::VISIBLE,
        capacity: Capacity::AGENCY,
        intermarket_sweep: YesNo::NO,
        min_quantity: 0.into(),
        cross_type: CrossType::CONTINUOUS,
        customer_type: CustomerType::DEFAULT,
    }
}

/// Counts a message. True for the answer to our own order.
fn take(log: &mut VenueLog, message: &[u8]) -> bool {
    let id = |token: &Text<14>| std::str::from_utf8(&token.0).unwrap().parse::<u64>().unwrap();
    let side = |side: OuchSide| if side.is_sale() { Side::Sell } else { Side::Buy };
    match Outbound::parse(message).unwrap() {
        Outbound::OrderRejected(rejected) => return rejected.token == OWN,
        Outbound::OrderAccepted(it) => {
            let order = VenueOrder {
                symbol: it.stock,
                side: side(it.side),
                leaves: it.shares.get(),
                price: Price(it.price.get().into()),
            };
            log.enter(id(&it.token), order, it.state == OrderState::LIVE);
        }
        Outbound::OrderReplaced(it) => {
            let order = VenueOrder {
                symbol: it.stock,
                side: side(it.side),
                leaves: it.shares.get(),
                price: Price(it.price.get().into()),
            };
            log.open.remove(&id(&it.previous_token));
            log.enter(id(&it.token), order, it.state == OrderState::LIVE);
        }
        Outbound::Executed(it) => log.fill(id(&it.token), it.shares.get(), Price(it.price.get().into())),
        Outbound::OrderCanceled(it) => log.reduce(id(&it.token), it.decrement.get()),
        _ => (),
    }
    false
}
