//! Sessions allocate when they are constructed and never afterwards.
#![allow(clippy::unwrap_used)] // a panic here is the report

use allocations::Counting;
use order_entry::ouch::OrderTemplate;
use order_entry::ouch::v50::{CancelOrder, EnterOrder, Field, Inbound};
use order_entry::session::Output;
use order_entry::soupbin::{Client, ClientConfig, Credentials, Server, ServerConfig, SessionId};
use zerocopy::FromBytes;

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn soupbin_allocates_nothing_after_construction() {
    let mut client = Client::new(ClientConfig::new(Credentials::new("alice", "secret").unwrap()));
    let mut server = Server::new(ServerConfig::default());
    let (mut up, mut down) = ([0; 200], [0; 200]);
    let before = allocations::count();
    let (mut up, mut down) = (Output::new(&mut up), Output::new(&mut down));
    client.connect(0, SessionId::BLANK, 1, &mut up).unwrap();
    server.connected(0);
    server.receive(0, &mut up.written()).unwrap().unwrap();
    server.accept(0, SessionId::new("S1").unwrap(), 1, &mut down).unwrap();
    server.send(0, b"accepted", &mut down).unwrap();
    // In two pieces, so that one packet is put together.
    let (front, back) = down.written().split_at(40);
    for mut piece in [front, back] {
        while client.receive(0, &mut piece).unwrap().is_some() {}
    }
    up.clear();
    client.send(0, b"order", &mut up).unwrap();
    client.tick(2_000_000_000, &mut up).unwrap();
    let mut input = up.written();
    while server.receive(0, &mut input).unwrap().is_some() {}
    assert_eq!(client.next_number(), 2);
    assert_eq!(allocations::count() - before, 0);
}

#[test]
fn ouch_allocates_nothing() {
    let before = allocations::count();
    let mut buffer = [0; 64];
    let cancel = CancelOrder { user_ref: 1.into(), quantity: 0.into() };
    let len = cancel.emit(&[Field::UserRefIdx(1)], &mut buffer).unwrap();
    let (message, appendage) = Inbound::parse(&buffer[..len]).unwrap();
    assert_eq!((message, appendage.user_ref_idx()), (Inbound::CancelOrder(&cancel), 1));
    let order = EnterOrder::read_from_bytes(&[b'N'; EnterOrder::LEN - 1]).unwrap();
    let mut template = OrderTemplate::new(&order, &[]).unwrap();
    template.patch(2, 100, 1_503_400);
    assert_eq!(template.bytes().len(), 50);
    assert_eq!(allocations::count() - before, 0);
}
