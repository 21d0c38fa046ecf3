//! Sessions allocate when they are constructed and never afterwards.
#![allow(clippy::unwrap_used)] // a panic here is the report

use allocations::Counting;
use order_entry::session::Output;
use order_entry::soupbin::{Client, ClientConfig, Credentials, Server, ServerConfig, SessionId};

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
