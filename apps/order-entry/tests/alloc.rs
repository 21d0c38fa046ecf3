//! Sessions allocate when they are constructed and never afterwards.
#![allow(clippy::unwrap_used)] // a panic here is the report

use allocations::Counting;
use order_entry::Text;
use order_entry::boe::{self, V2};
use order_entry::ilink3;
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

#[test]
fn boe_allocates_nothing_after_construction() {
    let credentials = boe::Credentials::new("USER", "0001", "PASS").unwrap();
    let mut client = boe::Client::<V2>::new(boe::ClientConfig::new(credentials));
    let mut server = boe::Server::<V2>::new(boe::ServerConfig::default());
    let (mut up, mut down) = ([0; 200], [0; 300]);
    let before = allocations::count();
    let (mut up, mut down) = (Output::new(&mut up), Output::new(&mut down));
    client.connect(0, &mut up).unwrap();
    server.connected(0);
    server.receive(0, &mut up.written()).unwrap().unwrap();
    server.accept(0, &[], &mut down).unwrap();
    server.complete_replay(0, &mut down).unwrap();
    server.send(0, 0x25, 1, &[0; 38], &mut down).unwrap();
    let (front, back) = down.written().split_at(90);
    for mut piece in [front, back] {
        while client.receive(0, &mut piece).unwrap().is_some() {}
    }
    up.clear();
    client.send(0, 0x38, &[0; 26], &mut up).unwrap();
    server.receive(0, &mut up.written()).unwrap().unwrap();
    assert_eq!((client.received(1), server.received()), (1, 1));
    assert_eq!(allocations::count() - before, 0);
}

#[test]
fn ilink3_allocates_nothing_after_construction() {
    let identity = ilink3::Identity {
        session: Text(*b"ABC"),
        firm: Text::zero_padded("FIRM").unwrap(),
        access_key: Text::zero_padded("ACCESS").unwrap(),
        key: ilink3::Key::from_bytes(b"secret"),
        system: Text::zero_padded("wirepath").unwrap(),
        system_version: Text::zero_padded("1.0").unwrap(),
        system_vendor: Text::zero_padded("wirepath").unwrap(),
    };
    let mut client = ilink3::Client::new(ilink3::ClientConfig::new(identity));
    let mut server = ilink3::Server::new(ilink3::ServerConfig::default());
    let (mut up, mut down) = ([0; 400], [0; 400]);
    let before = allocations::count();
    let (mut up, mut down) = (Output::new(&mut up), Output::new(&mut down));
    server.connected(0);
    client.negotiate(0, 0, 77, &mut up).unwrap();
    server.receive(0, &mut up.written()).unwrap().unwrap();
    server.accept_negotiation(&mut down).unwrap();
    client.receive(0, &mut down.written()).unwrap().unwrap();
    up.clear();
    down.clear();
    client.establish(0, 0, &mut up).unwrap();
    server.receive(0, &mut up.written()).unwrap().unwrap();
    server.accept_establishment(0, &mut down).unwrap();
    server.send(0, 522, &[b' '; 226], &[], &mut down).unwrap();
    let (front, back) = down.written().split_at(100);
    for mut piece in [front, back] {
        while client.receive(0, &mut piece).unwrap().is_some() {}
    }
    up.clear();
    client.send(0, 516, &[b' '; 96], &[], &mut up).unwrap();
    server.receive(0, &mut up.written()).unwrap().unwrap();
    assert_eq!((client.numbers(), server.numbers()), ((77, 2, 2), (77, 2, 2)));
    assert_eq!(allocations::count() - before, 0);
}
