//! Order entry: decoders take any bytes, what is read and written again is unchanged, and a session
//! says the same however its bytes are cut.

use std::fmt::Debug;

use order_entry::boe::{self, V2, V3, Version as BoeVersion};
use order_entry::fix::codec::{FieldIndex, Frame, frame};
use order_entry::fix::orders::{CancelReject, CancelRequest, ExecutionReport, NewOrderSingle, ReplaceRequest};
use order_entry::fix::session::SessionConfig;
use order_entry::fix::{FixClient, FixClientConfig};
use order_entry::ilink3;
use order_entry::ouch::v50::Appendage;
use order_entry::ouch::{OuchClient, v42, v50};
use order_entry::session::{Output, VenueSession};
use order_entry::soupbin::{self, Packet, PacketType, SessionId};

/// Bytes of a FIX message at most.
const FIX_LEN_MAX: usize = 4_096;

/// What `receive` says of `data`, which comes in pieces of `cut` bytes. An error ends it.
pub(super) fn story<T: Debug, E: Debug>(
    data: &[u8],
    cut: usize,
    mut receive: impl FnMut(&mut &[u8]) -> Result<Option<T>, E>,
) -> Vec<String> {
    let mut story = Vec::new();
    for mut piece in data.chunks(cut) {
        loop {
            match receive(&mut piece) {
                Ok(None) => break,
                Ok(Some(event)) => story.push(format!("{event:?}")),
                Err(error) => {
                    story.push(format!("{error:?}"));
                    return story;
                }
            }
            assert!(story.len() <= data.len() + 8, "events without bytes");
        }
    }
    story
}

/// The story is the same however the bytes are cut; the first byte says how.
pub(super) fn tells_the_same(data: &[u8], mut tell: impl FnMut(&[u8], usize) -> Vec<String>) {
    let Some((&cut, stream)) = data.split_first() else { return };
    assert_eq!(tell(stream, 1 + usize::from(cut)), tell(stream, usize::MAX));
}

/// SoupBinTCP, both ends.
pub(super) fn soupbin(data: &[u8]) {
    let mut room = [0; 256];
    tells_the_same(data, |stream, cut| {
        let credentials = soupbin::Credentials::new("USER", "PASS").expect("6 and 10 letters at most");
        let mut client = soupbin::Client::new(soupbin::ClientConfig::new(credentials));
        client.connect(0, SessionId::BLANK, 1, &mut Output::new(&mut room)).expect("there is room");
        story(stream, cut, |input| client.receive(0, input).map(|event| event.map(|event| format!("{event:?}"))))
    });
    tells_the_same(data, |stream, cut| {
        let mut server = soupbin::Server::new(soupbin::ServerConfig::default());
        server.connected(0);
        story(stream, cut, |input| server.receive(0, input).map(|event| event.map(|event| format!("{event:?}"))))
    });
    if let Ok(packet) = Packet::parse(data) {
        let mut room = vec![0; data.len() + 8];
        let mut output = Output::new(&mut room);
        soupbin::emit(packet.kind, packet.payload, &mut output).expect("there is room");
        // The length is the frame's, which whoever cut the packet has read.
        assert_eq!(output.written()[2..], data[2..]);
    }
}

/// Messages of OUCH 5.0 either way, and those of a venue in a session.
pub(super) fn ouch50(data: &[u8]) {
    let mut out = vec![0; data.len() + 8];
    let fields = |options: Appendage<'_>| options.fields().map(|field| format!("{field:?}")).collect::<Vec<_>>();
    if let Ok((message, options)) = v50::Inbound::parse(data) {
        let options: Vec<_> = options.fields().collect();
        let len = message.emit(&options, &mut out).expect("there is room");
        let (again, rest) = v50::Inbound::parse(&out[..len]).expect("what was written can be read");
        assert_eq!((again, rest.fields().collect::<Vec<_>>()), (message, options));
    }
    if let Ok((message, options)) = v50::Outbound::parse(data) {
        let written: Vec<_> = options.fields().collect();
        let len = message.emit(&written, &mut out).expect("there is room");
        let (again, rest) = v50::Outbound::parse(&out[..len]).expect("what was written can be read");
        assert_eq!((again, fields(rest)), (message, fields(options)));
    }
    let credentials = soupbin::Credentials::new("USER", "PASS").expect("6 and 10 letters at most");
    let mut client = OuchClient::new(soupbin::ClientConfig::new(credentials));
    client.connected(0).expect("there is room");
    let mut room = vec![0; data.len() + 128];
    let mut output = Output::new(&mut room);
    soupbin::emit(PacketType::LoginAccepted, b"    SESS01                   1", &mut output).expect("there is room");
    if soupbin::emit(PacketType::Sequenced, data, &mut output).is_ok() {
        story(output.written(), usize::MAX, |input| client.receive(0, input));
    }
}

/// Messages of OUCH 4.2 either way.
pub(super) fn ouch42(data: &[u8]) {
    let mut out = vec![0; data.len()];
    if let Ok(message) = v42::Inbound::parse(data) {
        assert_eq!((message.emit(&mut out), &out[..]), (Some(data.len()), data));
    }
    if let Ok(message) = v42::Outbound::parse(data) {
        assert_eq!((message.emit(&mut out), &out[..]), (Some(data.len()), data));
    }
}

fn boe<V: BoeVersion>(data: &[u8]) {
    let mut room = [0; 1_000];
    let credentials = || boe::Credentials::new("USER", "0001", "PASS").expect("they fit");
    tells_the_same(data, |stream, cut| {
        let mut client = boe::Client::<V>::new(boe::ClientConfig::new(credentials()));
        client.connect(0, &mut Output::new(&mut room)).expect("there is room");
        story(stream, cut, |input| client.receive(0, input).map(|event| event.map(|event| format!("{event:?}"))))
    });
    tells_the_same(data, |stream, cut| {
        let mut server = boe::Server::<V>::new(boe::ServerConfig::default());
        server.connected(0);
        story(stream, cut, |input| server.receive(0, input).map(|event| event.map(|event| format!("{event:?}"))))
    });
}

/// Cboe BOE version 2: sessions, and the messages behind a kind.
pub(super) fn boe2(data: &[u8]) {
    boe::<V2>(data);
    let Some((&kind, body)) = data.split_first() else { return };
    if let Ok((message, optional)) = boe::v2::Inbound::parse(kind, body) {
        assert!(optional.fields().count() <= body.len(), "{message:?}");
    }
    if let Ok((message, optional)) = boe::v2::Outbound::parse(kind, body) {
        assert!(optional.fields().count() <= body.len(), "{message:?}");
    }
}

/// Cboe BOE version 3.
pub(super) fn boe3(data: &[u8]) {
    boe::<V3>(data);
    let Some((&kind, body)) = data.split_first_chunk() else { return };
    let kind = u16::from_le_bytes(kind);
    for rest in [
        boe::v3::Inbound::parse(kind, body).map(|(_, rest)| rest),
        boe::v3::Outbound::parse(kind, body).map(|(_, rest)| rest),
    ]
    .into_iter()
    .flatten()
    {
        assert!(body.ends_with(rest));
    }
}

/// CME iLink 3, the venue's end: frames and sessions.
pub(super) fn ilink3(data: &[u8]) {
    tells_the_same(data, |stream, cut| {
        let mut server = ilink3::Server::new(ilink3::ServerConfig::default());
        server.connected(0);
        story(stream, cut, |input| server.receive(0, input).map(|event| event.map(|event| format!("{event:?}"))))
    });
    if let Ok(frame) = ilink3::Frame::parse(data) {
        assert!(!format!("{frame:?}").is_empty());
    }
}

/// FIX: frames, fields, reports and requests, and a session.
pub(super) fn fix(data: &[u8]) {
    let (mut index, mut rest) = (FieldIndex::new(64), data);
    loop {
        match frame(rest, FIX_LEN_MAX) {
            Frame::Incomplete => break,
            Frame::Garbled { len, .. } => {
                assert!(len > 0 && len <= rest.len(), "garbled bytes without an end");
                rest = &rest[len..];
            }
            Frame::Message { len } => {
                if let Ok(message) = index.parse(&rest[..len]) {
                    let values: usize = message.fields().iter().map(|field| message.value(*field).len()).sum();
                    assert!(values < len, "fields overlap");
                    let _ = ExecutionReport::parse(&message).map(|report| report.outcome());
                    let _ = (CancelReject::parse(&message), NewOrderSingle::parse(&message));
                    let _ = (CancelRequest::parse(&message), ReplaceRequest::parse(&message));
                }
                rest = &rest[len..];
            }
        }
    }
    let names = SessionConfig { sender: "A".to_owned(), target: "B".to_owned(), ..SessionConfig::default() };
    let mut client = FixClient::new(FixClientConfig { epoch_offset_ns: FIX_UTC_NS, ..FixClientConfig::new(names) });
    VenueSession::connected(&mut client, 0).expect("there is room");
    story(data, 1 + data.len() / 2, |input| VenueSession::receive(&mut client, 0, input));
}

/// The time of the seeds: 20261126-21:05:14.
pub(super) const FIX_UTC_NS: u64 = 1_795_727_114_000_000_000;

/// Empty messages of all types of OUCH.
fn of_lengths(lengths: &[(u8, usize)], tails: &[&[u8]]) -> Vec<Vec<u8>> {
    let message = |&(kind, len): &(u8, usize)| [&[kind][..], &vec![0; len - 1]].concat();
    let messages: Vec<_> = lengths.iter().map(message).collect();
    messages.iter().flat_map(|message| tails.iter().map(move |tail| [message, *tail].concat())).collect()
}

pub(super) fn soupbin_seeds() -> Vec<Vec<u8>> {
    let packets = [
        &b"\x05\0\x1fA    SESS01                   1\0\x03Sab\0\x01H\0\x01Z"[..],
        b"\x07\0\x2fLUSER  PASS                                1   \0\x03Uab\0\x01R\0\x01O",
        b"\x01\0\x02JA",
        b"\x03\0\x04+abc",
    ];
    packets.map(<[u8]>::to_vec).into()
}

pub(super) fn ouch50_seeds() -> Vec<Vec<u8>> {
    let tails: [&[u8]; 3] = [&[], &[0, 0], &[0, 3, 2, 28, 7]];
    [of_lengths(v50::Inbound::LENGTHS, &tails), of_lengths(v50::Outbound::LENGTHS, &tails)].concat()
}

pub(super) fn ouch42_seeds() -> Vec<Vec<u8>> {
    [of_lengths(v42::Inbound::LENGTHS, &[&[]]), of_lengths(v42::Outbound::LENGTHS, &[&[]])].concat()
}

/// The first message of unit 1 with this body.
pub(super) fn boe_message<V: BoeVersion>(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut message = vec![0; V::HEADER_LEN];
    message[..2].copy_from_slice(&V::START);
    V::write_header(&mut message, kind, 1, 1);
    message.extend_from_slice(body);
    let len = (message.len() - 2) as u16;
    message[2..4].copy_from_slice(&len.to_le_bytes());
    message
}

/// The venue's answer to a login, and the end of the replay.
pub(super) fn boe_login<V: BoeVersion>() -> Vec<u8> {
    let accepted = [&b"A"[..], &[0; 60], &[0; 8]].concat();
    [boe_message::<V>(V::KINDS.login_response, &accepted), boe_message::<V>(V::KINDS.replay_complete, &[])].concat()
}

fn boe_seeds<V: BoeVersion>() -> Vec<Vec<u8>> {
    let (kinds, message) = (V::KINDS, boe_message::<V>);
    let login = [&b"0001USERPASS\0\0\0\0\0\0"[..], &[1, 5, 0, 0x80, 0, 0]].concat();
    [message(kinds.login, &login), boe_login::<V>(), message(kinds.server_heartbeat, &[])]
        .map(|stream| [&[9][..], &stream].concat())
        .into()
}

pub(super) fn boe2_seeds() -> Vec<Vec<u8>> {
    boe_seeds::<V2>()
}

pub(super) fn boe3_seeds() -> Vec<Vec<u8>> {
    boe_seeds::<V3>()
}

pub(super) fn ilink3_seeds() -> Vec<Vec<u8>> {
    let templates = [(500_u16, 76_u16), (503, 132), (506, 14), (507, 67), (508, 30), (514, 132), (515, 133), (516, 96)];
    templates.map(|(template, block)| [&[7][..], &ilink3_message(template, &vec![0; block.into()])].concat()).into()
}

/// A message of iLink 3.
pub(super) fn ilink3_message(template: u16, block: &[u8]) -> Vec<u8> {
    let len = block.len() as u16;
    let head = [12 + len, 0xcafe, len, template, 8, 9].map(u16::to_le_bytes).concat();
    [&head[..], block].concat()
}

pub(super) fn fix_seeds() -> Vec<Vec<u8>> {
    let head = |kind: &str, seq: u32| format!("35={kind}|34={seq}|49=B|52=20261126-21:05:14.000|56=A|");
    let logon = fix_message(&format!("{}98=0|108=30|", head("A", 1)));
    let report = format!("{}37=1|17=E|150=0|39=0|11=1|55=X|54=1|38=9|151=9|14=0|6=0|44=1.5|", head("8", 2));
    let fill = format!("{}37=1|17=F|150=F|39=2|11=1|55=X|54=1|38=9|151=0|14=9|6=1|32=9|31=1.25|", head("8", 3));
    let refused = format!("{}37=1|11=2|41=1|39=0|434=1|102=1|", head("9", 4));
    let bodies = [report, fill, refused, format!("{}123=Y|36=9|", head("4", 2)), format!("{}7=1|16=0|", head("2", 2))];
    bodies.iter().map(|body| [&logon[..], &fix_message(body)].concat()).collect()
}

/// A message of FIX 4.4, whose fields are written with bars.
pub(super) fn fix_message(body: &str) -> Vec<u8> {
    let body = body.replace('|', "\u{1}");
    let text = format!("8=FIX.4.4\u{1}9={}\u{1}{body}", body.len());
    let sum = text.bytes().fold(0_u8, u8::wrapping_add);
    format!("{text}10={sum:03}\u{1}").into_bytes()
}
