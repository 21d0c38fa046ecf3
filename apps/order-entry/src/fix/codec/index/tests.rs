use super::super::{Frame, Writer, frame};
use super::*;
use proptest::prelude::*;

fn message(fields: &[(u32, &[u8])]) -> Vec<u8> {
    let mut out = vec![0; 4096];
    let mut writer = Writer::new(&mut out);
    for (tag, value) in fields {
        writer.field(*tag, value);
    }
    writer.finish(b"FIX.4.4").unwrap().to_vec()
}

/// A message with these bytes as its body, and a length and a sum that fit.
fn raw(body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("8=FIX.4.4\x019={}\x01", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    let sum = checksum(&bytes);
    bytes.extend_from_slice(format!("10={sum:03}\x01").as_bytes());
    bytes
}

fn reason(bytes: &[u8]) -> Garbled {
    FieldIndex::new(16).parse(bytes).unwrap_err()
}

#[test]
fn fields_are_found_with_their_values() {
    let bytes = message(&[(35, b"8"), (34, b"7"), (58, b"a=b=c"), (44, b"12.5"), (97, b"Y")]);
    let mut index = FieldIndex::new(16);
    let message = index.parse(&bytes).unwrap();
    assert_eq!((message.begin_string(), message.msg_type()), (&b"FIX.4.4"[..], &b"8"[..]));
    assert_eq!(message.number(34), Some(7));
    assert_eq!(message.get(58), Some(&b"a=b=c"[..]));
    assert_eq!(message.decimal(44), Some(Decimal(1_250_000_000)));
    assert!(message.flag(97) && !message.flag(43));
    assert_eq!(message.fields().iter().map(|field| field.tag()).collect::<Vec<_>>(), [8, 9, 35, 34, 58, 44, 97]);
}

#[test]
fn data_field_holds_any_byte() {
    let bytes = raw(b"35=B\x0195=8\x0196=a\x0110=00\x01\x0158=behind\x01");
    let mut index = FieldIndex::new(16);
    let message = index.parse(&bytes).unwrap();
    assert_eq!(message.get(96), Some(&b"a\x0110=00\x01"[..]));
    assert_eq!(message.get(58), Some(&b"behind"[..]));
}

#[test]
fn data_field_that_does_not_end_where_its_length_says_is_garbled() {
    for body in [&b"35=B\x0195=2\x0196=abc\x01"[..], b"35=B\x0195=9\x0196=abc\x01", b"35=B\x0195=x\x0196=abc\x01"] {
        assert_eq!(reason(&raw(body)), Garbled::DataLength, "{}", body.escape_ascii());
    }
}

#[test]
fn length_field_without_its_data_is_a_field_like_any_other() {
    let bytes = raw(b"35=B\x0195=5\x0158=text\x01");
    let mut index = FieldIndex::new(16);
    let message = index.parse(&bytes).unwrap();
    assert_eq!((message.number(95), message.get(58)), (Some(5), Some(&b"text"[..])));
}

#[test]
fn each_defect_has_its_reason() {
    let good = raw(b"35=0\x01");
    assert!(FieldIndex::new(3).parse(&good).is_ok());
    let sum = good.len() - 2;
    let mut bytes = good.clone();
    bytes[sum] ^= 1;
    assert_eq!(reason(&bytes), Garbled::CheckSum);
    bytes[sum] = b'x';
    assert_eq!(reason(&bytes), Garbled::Trailer);
    assert_eq!(reason(&good[1..]), Garbled::BeginString);
    assert_eq!(reason(&[&good[..], b" "].concat()), Garbled::Trailer);
    assert_eq!(reason(&good[..4]), Garbled::Trailer);
    let long = raw(b"35=0\x01").escape_ascii().to_string().replace("9=5", "9=6").replace(r"\x01", "\x01");
    assert_eq!(reason(long.replace("163", "164").as_bytes()), Garbled::BodyLength);
    for body in [
        &b"35=0\x0158\x01"[..],
        b"35=0\x01=a\x01",
        b"35=0\x01x=a\x01",
        b"35=0\x015a8=a\x01",
        b"35=0\x01123456789=a\x01",
    ] {
        assert_eq!(reason(&raw(body)), Garbled::Tag, "{}", body.escape_ascii());
    }
    assert_eq!(reason(&raw(b"34=1\x0135=0\x01")), Garbled::MsgType);
    assert_eq!(FieldIndex::new(3).parse(&raw(b"35=0\x0158=a\x01")).unwrap_err(), Garbled::TooManyFields);
}

#[test]
fn group_gives_its_entries_and_their_groups() {
    let body = b"35=D\x01453=2\x01448=A\x01447=D\x01802=2\x01523=x\x01803=1\x01523=y\x01448=B\x0155=S\x01";
    let bytes = raw(body);
    let mut index = FieldIndex::new(32);
    let message = index.parse(&bytes).unwrap();
    let parties: Vec<_> = message.group(453, &[448, 447, 452, 802, 523, 803]).unwrap().collect();
    let ids: Vec<_> = parties.iter().map(|party| party.get(448)).collect();
    assert_eq!(ids, [Some(&b"A"[..]), Some(b"B")]);
    let subs: Vec<_> = parties[0].group(802, &[523, 803]).unwrap().map(|sub| sub.get(523)).collect();
    assert_eq!(subs, [Some(&b"x"[..]), Some(b"y")]);
    assert_eq!(message.group(78, &[79]).unwrap().count(), 0);
}

#[test]
fn group_with_another_count_or_order_is_refused() {
    use super::super::GroupError;
    for (body, expected) in [
        (&b"35=D\x01453=2\x01448=A\x0155=S\x01"[..], GroupError::Count),
        (b"35=D\x01453=1\x01447=D\x01448=A\x0155=S\x01", GroupError::Order),
        (b"35=D\x01453=x\x01448=A\x0155=S\x01", GroupError::Format),
    ] {
        let bytes = raw(body);
        let mut index = FieldIndex::new(32);
        let message = index.parse(&bytes).unwrap();
        assert_eq!(message.group(453, &[448, 447]).unwrap_err(), expected, "{}", body.escape_ascii());
    }
}

fn bytes_of_messages() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"8=FIX.4.4\x01".to_vec()),
        Just(b"9=5\x01".to_vec()),
        Just(b"35=0\x01".to_vec()),
        Just(b"95=3\x0196=".to_vec()),
        Just(b"10=163\x01".to_vec()),
        Just(vec![SOH]),
        proptest::collection::vec(any::<u8>(), 0..20),
    ];
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

/// Messages of a few tags, so that those of two messages are often the same at some places.
fn bodies() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let tag = prop_oneof![Just("35"), Just("5"), Just("58"), Just("95"), Just("96"), Just("1234567"), Just("12345678")];
    let field = (tag, "[0-9a=]{0,3}").prop_map(|(tag, value)| format!("{tag}={value}\x01"));
    let body = proptest::collection::vec(field, 0..8).prop_map(|fields| format!("35=B\x01{}", fields.concat()).into());
    proptest::collection::vec(body, 1..6)
}

proptest! {
    #[test]
    fn index_that_has_read_other_messages_finds_the_same(bodies in bodies()) {
        let mut used = FieldIndex::new(8);
        for body in bodies {
            let (bytes, mut fresh) = (raw(&body), FieldIndex::new(8));
            let found = used.parse(&bytes).map(|message| message.fields().to_vec());
            prop_assert_eq!(found, fresh.parse(&bytes).map(|message| message.fields().to_vec()));
        }
    }

    #[test]
    fn no_bytes_panic_and_the_stream_always_moves_on(mut bytes in bytes_of_messages()) {
        let mut index = FieldIndex::new(8);
        let _ = index.parse(&bytes);
        let _ = index.parse(&raw(&bytes));
        let wrong = raw(&bytes);
        if let Ok(message) = index.parse(&wrong) {
            prop_assert_eq!(message.as_bytes(), &wrong[..]);
        }
        loop {
            match frame(&bytes, 64) {
                Frame::Incomplete => break,
                Frame::Message { len } | Frame::Garbled { len, .. } => {
                    prop_assert!(len > 0 && len <= bytes.len());
                    bytes.drain(..len);
                }
            }
        }
        prop_assert!(bytes.len() < 64);
    }
}
