//! What the venue's messages by iLink 3 say of an account: all of the session again, from the first
//! on.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, SystemTime};

use market::{Price, Side, Symbol};
use order_entry::Text;
use order_entry::ilink3::{
    Client, ClientEvent, Frame, Ilink3Client, Missing, OrderAccepted, OrderCancelled, OrderEliminated, OrderFilled,
    OrderReplaced, RETRANSMIT_MAX,
};
use order_entry::session::Output;

use crate::gateway::ilink3_port;
use crate::journal::replay_by;
use crate::truth::{VenueLog, VenueOrder};

/// The account's messages, and its orders by the venue's numbers.
#[derive(Default)]
struct Truth {
    log: VenueLog,
    ids: BTreeMap<u64, u64>,
}

/// Goes on with the session of the journal at `path`, and asks for everything again.
pub fn read(mut stream: TcpStream, path: &Path) -> VenueLog {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mark = replay_by(Ilink3Client::rules(), path).session;
    let uuid = u64::from_le_bytes(*mark.session.last_chunk().unwrap());
    let mut client = Client::new(ilink3_port());
    client.resume(uuid, u32::try_from(mark.next_id).unwrap(), u32::try_from(mark.next_inbound).unwrap());
    let (mut truth, mut next, mut last) = (Truth::default(), 1, 0);
    send(&mut stream, |output| client.establish(now_ns(), now_ns(), output).unwrap());
    let mut buffer = vec![0; 1 << 16];
    loop {
        let len = stream.read(&mut buffer).unwrap();
        assert!(len > 0, "the venue has closed the connection");
        let mut input = &buffer[..len];
        while let Some(event) = client.receive(now_ns(), &mut input).unwrap() {
            match event {
                ClientEvent::Established { previous: (_, sent), .. } => last = sent,
                ClientEvent::Message { number, frame, .. } => {
                    assert_eq!(number, next);
                    next += 1;
                    truth.take(&frame);
                }
                ClientEvent::Retransmission(_) => (),
                other => panic!("{other:?}"),
            }
        }
        if last > 0 && next > last {
            return truth.log;
        }
        if last > 0 && !client.is_retransmitting() {
            let missing = Missing { from: next, count: (last + 1 - next).min(RETRANSMIT_MAX.into()) };
            send(&mut stream, |output| {
                client.request_retransmit(now_ns(), now_ns(), missing, None, output).unwrap();
            });
        }
    }
}

fn send(stream: &mut TcpStream, put: impl FnOnce(&mut Output<'_>)) {
    let mut room = [0; 512];
    let mut output = Output::new(&mut room);
    put(&mut output);
    stream.write_all(output.written()).unwrap();
}

fn now_ns() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64
}

fn id_of(text: &Text<20>) -> u64 {
    std::str::from_utf8(text.trimmed()).unwrap().parse().unwrap()
}

fn side_of(side: u8) -> Side {
    if side == 1 { Side::Buy } else { Side::Sell }
}

impl Truth {
    fn take(&mut self, frame: &Frame<'_>) {
        match frame.template {
            OrderAccepted::KIND => {
                let it: &OrderAccepted = frame.view().unwrap();
                self.ids.insert(it.order_id.get(), id_of(&it.cl_ord_id));
                self.enter(id_of(&it.cl_ord_id), it.side, it.quantity.get(), it.price.get());
            }
            OrderReplaced::KIND => {
                let it: &OrderReplaced = frame.view().unwrap();
                let before = self.ids.insert(it.order_id.get(), id_of(&it.cl_ord_id)).unwrap();
                self.log.open.remove(&before);
                self.enter(id_of(&it.cl_ord_id), it.side, it.leaves.get(), it.price.get());
            }
            OrderFilled::KIND => {
                let it: &OrderFilled = frame.view().unwrap();
                let price = Price(it.last_price.get() / 100_000);
                self.log.totals.add(side_of(it.side), it.last_quantity.get(), price);
                self.set_leaves(id_of(&it.cl_ord_id), it.leaves.get());
            }
            OrderCancelled::KIND => {
                let it: &OrderCancelled = frame.view().unwrap();
                let id = self.ids[&it.order_id.get()];
                self.set_leaves(id, 0);
            }
            OrderEliminated::KIND => {
                let it: &OrderEliminated = frame.view().unwrap();
                self.set_leaves(id_of(&it.cl_ord_id), 0);
            }
            _ => (),
        }
    }

    fn enter(&mut self, id: u64, side: u8, leaves: u32, price: i64) {
        let order = VenueOrder { symbol: Symbol::NONE, side: side_of(side), leaves, price: Price(price / 100_000) };
        self.log.enter(id, order, leaves > 0);
    }

    fn set_leaves(&mut self, id: u64, leaves: u32) {
        match self.log.open.get_mut(&id) {
            Some(_) if leaves == 0 => drop(self.log.open.remove(&id)),
            Some(order) => order.leaves = leaves,
            None => (),
        }
    }
}
