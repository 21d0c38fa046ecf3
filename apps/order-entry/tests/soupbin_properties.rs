//! Properties of SoupBinTCP's ends: no bytes panic them, and the two understand each other however
//! the stream between them is cut.
#![allow(clippy::unwrap_used)] // a panic here is the report

use order_entry::session::Output;
use order_entry::soupbin::{
    Client, ClientConfig, ClientEvent, Credentials, Packet, PacketType, Server, ServerConfig, ServerEvent, SessionId,
    emit,
};
use proptest::prelude::*;

/// A packet of any type with any payload, or any bytes.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop::sample::select(b"+AJSUHRZLOx".to_vec());
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..50),
        Just(Vec::new()),
        Just(b"    SESS01                   1".to_vec()),
        Just(b"alice secret                                 1".to_vec()),
    ];
    let packet = (kinds, payload).prop_map(|(kind, payload)| {
        let mut packet = (payload.len() as u16 + 1).to_be_bytes().to_vec();
        packet.push(kind);
        packet.extend(payload);
        packet
    });
    let piece = prop_oneof![9 => packet, 1 => prop::collection::vec(any::<u8>(), 0..9)];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

/// The pieces of `stream`, cut after each of `cuts` bytes in turn.
fn pieces<'a>(mut stream: &'a [u8], cuts: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut cuts = cuts.iter().cycle();
    core::iter::from_fn(move || {
        let len = (*cuts.next()?).min(stream.len());
        let (front, rest) = stream.split_at(len);
        stream = rest;
        (len > 0).then_some(front)
    })
}

fn credentials() -> Credentials {
    Credentials::new("alice", "secret").unwrap()
}

fn client_log(stream: &[u8], cuts: &[usize]) -> Vec<String> {
    let mut client = Client::new(ClientConfig::new(credentials()));
    let mut buffer = [0; 100];
    client.connect(0, SessionId::BLANK, 1, &mut Output::new(&mut buffer)).unwrap();
    let mut log = Vec::new();
    for mut input in pieces(stream, cuts) {
        loop {
            match client.receive(0, &mut input) {
                Ok(None) => break,
                Ok(Some(event)) => log.push(format!("{event:?}")),
                Err(error) => log.push(error.to_string()),
            }
        }
    }
    log
}

fn server_log(stream: &[u8], cuts: &[usize]) -> Vec<String> {
    let mut server = Server::new(ServerConfig::default());
    server.connected(0);
    let mut buffer = [0; 100];
    let mut log = Vec::new();
    for mut input in pieces(stream, cuts) {
        loop {
            match server.receive(0, &mut input) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    log.push(format!("{event:?}"));
                    if let ServerEvent::Login(_) = event {
                        server.accept(0, SessionId::BLANK, 1, &mut Output::new(&mut buffer)).unwrap();
                    }
                }
                Err(error) => log.push(error.to_string()),
            }
        }
    }
    log
}

proptest! {
    #[test]
    fn any_bytes_mean_the_same_however_they_are_cut(
        stream in stream(),
        cuts in prop::collection::vec(1usize..60, 1..5),
    ) {
        prop_assert_eq!(client_log(&stream, &[usize::MAX]), client_log(&stream, &cuts));
        prop_assert_eq!(server_log(&stream, &[usize::MAX]), server_log(&stream, &cuts));
    }

    #[test]
    fn an_emitted_packet_is_parsed_as_it_was(kind in any::<u8>(), payload in prop::collection::vec(any::<u8>(), 0..200)) {
        let Some(kind) = PacketType::from_wire(kind) else { return Ok(()) };
        let mut buffer = [0; 300];
        let mut output = Output::new(&mut buffer);
        emit(kind, &payload, &mut output).unwrap();
        prop_assert_eq!(Packet::len(output.written()), Ok(Some(output.len())));
        match Packet::parse(output.written()) {
            Ok(packet) => prop_assert_eq!(packet, Packet { kind, payload: &payload }),
            Err(error) => prop_assert_ne!(kind.payload_len(), Some(payload.len()), "{}", error),
        }
    }

    #[test]
    fn messages_of_a_server_arrive_with_their_numbers(
        first in 1u64..u64::MAX / 2,
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20),
        cuts in prop::collection::vec(1usize..60, 1..5),
    ) {
        let (mut client, mut server) = (Client::new(ClientConfig::new(credentials())), Server::new(ServerConfig::default()));
        let (mut to_server, mut to_client) = ([0; 100], vec![0; 5_000]);
        let session = SessionId::new("S1").unwrap();
        let mut output = Output::new(&mut to_server);
        client.connect(0, session, first, &mut output).unwrap();
        server.connected(0);
        let event = server.receive(0, &mut output.written()).unwrap();
        prop_assert!(matches!(event, Some(ServerEvent::Login(login)) if login.number.get() == Ok(first)));
        let mut output = Output::new(&mut to_client);
        server.accept(0, session, first, &mut output).unwrap();
        for message in &messages {
            server.send(0, message, &mut output).unwrap();
        }
        let mut arrived = Vec::new();
        for mut input in pieces(output.written(), &cuts) {
            while let Some(event) = client.receive(0, &mut input).unwrap() {
                if let ClientEvent::Sequenced { number, message } = event {
                    arrived.push((number, message.to_vec()));
                }
            }
        }
        prop_assert_eq!(arrived, (first..).zip(messages).collect::<Vec<_>>());
    }
}
