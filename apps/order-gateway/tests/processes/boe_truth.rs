//! What the venue's messages by BOE say of an account: the replay of its day, from the first on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use market::{Price, Side, Symbol};
use order_entry::Text;
use order_entry::boe::v2::{self, Field, FieldId, ReturnFields};
use order_entry::boe::{Client, ClientEvent, Message, Side as BoeSide, V2, V3, Version, v3};
use order_entry::session::Output;

use crate::gateway::boe_port;
use crate::truth::{VenueLog, VenueOrder};

/// The day by version 2, with the fields that tell an order's terms.
pub fn read_v2(stream: TcpStream) -> VenueLog {
    let fields = [FieldId::Side, FieldId::Price, FieldId::LeavesQuantity, FieldId::OrigClOrdId];
    let kinds = [
        v2::OrderAcknowledgment::KIND,
        v2::OrderModified::KIND,
        v2::OrderExecution::KIND,
        v2::OrderCancelled::KIND,
        v2::OrderRestated::KIND,
    ];
    let returns = kinds.iter().fold(ReturnFields::new(), |returns, kind| returns.ask(*kind, &fields).unwrap());
    read(Client::<V2>::new(boe_port()).returning(returns), stream, take_v2)
}

/// The day by version 3.
pub fn read_v3(stream: TcpStream) -> VenueLog {
    read(Client::<V3>::new(boe_port()), stream, take_v3)
}

/// Logs in as one that has received nothing, and reads until the replay is over.
fn read<V: Version>(
    mut client: Client<V>,
    mut stream: TcpStream,
    take: impl Fn(&mut VenueLog, &Message<'_>),
) -> VenueLog {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let begun = Instant::now();
    let now_ns = || 1 + begun.elapsed().as_nanos() as u64;
    let (mut log, mut room) = (VenueLog::default(), [0; 512]);
    let mut output = Output::new(&mut room);
    client.connect(now_ns(), &mut output).unwrap();
    stream.write_all(output.written()).unwrap();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let len = stream.read(&mut buffer).unwrap();
        assert!(len > 0, "the venue has closed the connection");
        let mut input = &buffer[..len];
        while let Some(event) = client.receive(now_ns(), &mut input).unwrap() {
            match event {
                ClientEvent::Message(message) => take(&mut log, &message),
                ClientEvent::ReplayComplete => return log,
                ClientEvent::LoginRejected { status, .. } => panic!("{status}"),
                _ => (),
            }
        }
    }
}

fn id(text: &Text<20>) -> u64 {
    std::str::from_utf8(text.trimmed()).unwrap().parse().unwrap()
}

fn side(side: BoeSide) -> Side {
    if side == BoeSide::BUY { Side::Buy } else { Side::Sell }
}

/// The shares of an order that are open now.
fn set_leaves(log: &mut VenueLog, id: u64, leaves: u32) {
    match log.open.get_mut(&id) {
        Some(_) if leaves == 0 => drop(log.open.remove(&id)),
        Some(order) => order.leaves = leaves,
        None => (),
    }
}

fn enter(log: &mut VenueLog, id: u64, side: Side, leaves: u32, price: Price) {
    log.enter(id, VenueOrder { symbol: Symbol::NONE, side, leaves, price }, leaves > 0);
}

/// What messages of version 2 return besides.
#[derive(Default)]
struct Returned {
    side: Option<Side>,
    price: Option<Price>,
    leaves: Option<u32>,
    orig: Option<u64>,
}

impl Returned {
    fn of(optional: v2::Optional<'_>) -> Self {
        let mut returned = Self::default();
        for field in optional.fields() {
            match field {
                Field::Side(of) => returned.side = Some(side(of)),
                Field::Price(price) => returned.price = Some(Price(price.get())),
                Field::LeavesQuantity(leaves) => returned.leaves = Some(leaves.get()),
                Field::OrigClOrdId(orig) => returned.orig = Some(id(&orig)),
                _ => (),
            }
        }
        returned
    }
}

fn take_v2(log: &mut VenueLog, message: &Message<'_>) {
    use v2::Outbound;
    let (outbound, optional) = Outbound::parse(u8::try_from(message.kind).unwrap(), message.body).unwrap();
    let Returned { side, price, leaves, orig } = Returned::of(optional);
    match outbound {
        Outbound::OrderAcknowledgment(it) => {
            enter(log, id(&it.cl_ord_id), side.unwrap(), leaves.unwrap(), price.unwrap());
        }
        Outbound::OrderModified(it) => {
            log.open.remove(&orig.unwrap());
            enter(log, id(&it.cl_ord_id), side.unwrap(), leaves.unwrap(), price.unwrap());
        }
        Outbound::OrderExecution(it) => {
            log.totals.add(side.unwrap(), it.last_shares.get(), Price(it.last_price.get()));
            set_leaves(log, id(&it.cl_ord_id), it.leaves.get());
        }
        Outbound::OrderCancelled(it) => set_leaves(log, id(&it.cl_ord_id), 0),
        Outbound::OrderRestated(it) => set_leaves(log, id(&it.cl_ord_id), leaves.unwrap()),
        other => panic!("{other:?} has no number"),
    }
}

fn take_v3(log: &mut VenueLog, message: &Message<'_>) {
    use v3::Outbound;
    match Outbound::parse(message.kind, message.body).unwrap().0 {
        Outbound::OrderAcknowledgment(it) => {
            enter(log, id(&it.cl_ord_id), side(it.side), it.leaves.get(), Price(it.price.get()));
        }
        Outbound::OrderModified(it) => {
            let before = log.open.remove(&id(&it.orig_cl_ord_id)).unwrap();
            enter(log, id(&it.cl_ord_id), before.side, it.leaves.get(), Price(it.price.get()));
        }
        Outbound::OrderExecution(it) => {
            log.totals.add(side(it.side), it.last_shares.get(), Price(it.last_price.get()));
            set_leaves(log, id(&it.cl_ord_id), it.leaves.get());
        }
        Outbound::OrderCancelled(it) => set_leaves(log, id(&it.cl_ord_id), 0),
        other => panic!("{other:?} has no number"),
    }
}
