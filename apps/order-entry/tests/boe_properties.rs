//! Properties of BOE's ends: no bytes panic them, and they mean the same however they are cut.

#![allow(clippy::unwrap_used)] // a panic here is the report

use order_entry::boe::v2::{Field, FieldId, OrderAcknowledgment, Outbound, ReturnFields};
use order_entry::boe::{
    Client, ClientConfig, ClientEvent, Credentials, Server, ServerConfig, ServerEvent, V2, V3, Version,
};
use order_entry::session::Output;
use proptest::prelude::*;

fn credentials() -> Credentials {
    Credentials::new("USER", "0001", "PASS").unwrap()
}

/// Messages of any type with any body, some with a length that is wrong, or any bytes.
fn stream<V: Version>() -> impl Strategy<Value = Vec<u8>> {
    let kinds = V::KINDS;
    let kinds = vec![
        kinds.login,
        kinds.logout_request,
        kinds.client_heartbeat,
        kinds.login_response,
        kinds.replay_complete,
        kinds.logout,
        kinds.server_heartbeat,
        0x25,
        0x26,
        0x38,
        1008,
        1501,
    ];
    // An accepted login, so that what follows is taken.
    let accepted = [&b"A"[..], &[0; 60], &[0; 8]].concat();
    let login = [&b"0001USERPASS\0\0\0\0\0\0"[..], &[1, 5, 0, 0x80, 0, 0]].concat();
    let body = prop_oneof![prop::collection::vec(any::<u8>(), 0..90), Just(Vec::new()), Just(accepted), Just(login),];
    let message = (prop::sample::select(kinds), 0u8..3, 0u32..4, body, 0usize..20).prop_map(
        |(kind, unit, sequence, body, wrong)| {
            let mut message = vec![0; V::HEADER_LEN];
            message[..2].copy_from_slice(&V::START);
            V::write_header(&mut message, kind, unit, sequence);
            message.extend(body);
            let len = message.len() - 2 - usize::from(wrong == 0);
            message[2..4].copy_from_slice(&(len as u16).to_le_bytes());
            message
        },
    );
    let piece = prop_oneof![9 => message, 1 => prop::collection::vec(any::<u8>(), 0..9)];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

fn logs<V: Version>(stream: &[u8], cut: usize) -> [Vec<String>; 2] {
    let mut buffer = vec![0; 1_000];
    let mut client = Client::<V>::new(ClientConfig::new(credentials()));
    client.connect(0, &mut Output::new(&mut buffer)).unwrap();
    let mut server = Server::<V>::new(ServerConfig::default());
    server.connected(0);
    let mut logs = [Vec::new(), Vec::new()];
    for mut input in stream.chunks(cut) {
        let mut again = input;
        loop {
            match client.receive(0, &mut input) {
                Ok(None) => break,
                Ok(Some(event)) => logs[0].push(format!("{event:?}")),
                Err(error) => logs[0].push(error.to_string()),
            }
        }
        loop {
            match server.receive(0, &mut again) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    logs[1].push(format!("{event:?}"));
                    if let ServerEvent::Login(_) = event {
                        let mut output = Output::new(&mut buffer);
                        server.accept(0, &[], &mut output).unwrap();
                        server.complete_replay(0, &mut output).unwrap();
                    }
                }
                Err(error) => logs[1].push(error.to_string()),
            }
        }
    }
    logs
}

proptest! {
    #[test]
    fn any_bytes_mean_the_same_however_they_are_cut(v2 in stream::<V2>(), v3 in stream::<V3>(), cut in 1usize..60) {
        prop_assert_eq!(logs::<V2>(&v2, usize::MAX), logs::<V2>(&v2, cut));
        prop_assert_eq!(logs::<V3>(&v3, usize::MAX), logs::<V3>(&v3, cut));
    }
}

#[test]
fn login_asks_for_fields_and_the_server_reads_the_groups() {
    let fields =
        ReturnFields::new().ask(OrderAcknowledgment::KIND, &[FieldId::LeavesQuantity, FieldId::Symbol]).unwrap();
    let mut client = Client::<V2>::new(ClientConfig::new(credentials())).returning(fields);
    let mut server = Server::<V2>::new(ServerConfig::default());
    server.connected(0);
    let mut buffer = [0; 200];
    let mut output = Output::new(&mut buffer);
    client.connect(0, &mut output).unwrap();
    let mut input = output.written();
    let Some(ServerEvent::Login(login)) = server.receive(0, &mut input).unwrap() else { panic!("no login") };
    assert_eq!(login.returns, (1, &[10, 0, 0x81, 0x25, 5, 0, 1, 0, 0, 2][..]));
}

#[test]
fn acknowledgment_goes_through_both_ends_with_its_fields() {
    let mut client = Client::<V2>::new(ClientConfig::new(credentials()));
    let mut server = Server::<V2>::new(ServerConfig::default());
    let (mut up, mut down) = ([0; 200], [0; 300]);
    let (mut up, mut down) = (Output::new(&mut up), Output::new(&mut down));
    client.connect(0, &mut up).unwrap();
    server.connected(0);
    server.receive(0, &mut up.written()).unwrap().unwrap();
    server.accept(0, &[], &mut down).unwrap();
    server.complete_replay(0, &mut down).unwrap();
    let ack = OrderAcknowledgment {
        at_ns: 5.into(),
        cl_ord_id: order_entry::Text::zero_padded("A1").unwrap(),
        order_id: 77.into(),
        reserved: 0,
    };
    let mut body = [0; 100];
    let len = ack.emit(&[Field::LeavesQuantity(100.into())], &mut body).unwrap();
    assert_eq!(server.send(0, OrderAcknowledgment::KIND.into(), 3, &body[..len], &mut down), Ok(1));
    let mut input = down.written();
    let mut last = None;
    while let Some(event) = client.receive(0, &mut input).unwrap() {
        if let ClientEvent::Message(message) = event {
            assert_eq!((message.unit, message.sequence), (3, 1));
            let (message, optional) = Outbound::parse(message.kind as u8, message.body).unwrap();
            assert_eq!(message, Outbound::OrderAcknowledgment(&ack));
            last = optional.fields().next();
        }
    }
    assert_eq!(last, Some(Field::LeavesQuantity(100.into())));
    assert_eq!(client.received(3), 1);
}
