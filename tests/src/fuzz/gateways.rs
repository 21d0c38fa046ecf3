//! What gateways and their consumers read of others: a broker's protocol, the headers of batches,
//! audit logs, schemas.

use std::collections::BTreeMap;

use market::event::{Clear, Event};
use market::sbe::schema::Schema;
use market::sbe::{Value, Visitor};
use market_fanout::{COVERS, ConsumerEvent, END, GapDetector, SESSION};
use market_gateway_nats::wire;
use market_ring::Record;
use order_entry::audit::{self, AuditEntries, AuditEntry, Direction};
use order_gateway::AuditCsv;

use super::Input;

/// What a NATS server says: each message is whole or not there yet, and says the same whatever
/// follows it.
pub(super) fn nats_wire(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((told, len))) = wire::parse(rest) {
        assert!(len > 0 && len <= rest.len(), "{len} of {}", rest.len());
        assert_eq!(wire::parse(&rest[..len]), Ok(Some((told, len))), "what follows counts");
        assert_eq!(wire::parse(&rest[..len - 1]), Ok(None), "it was whole before its end");
        if let wire::ServerMessage::Message { headers, payload, .. } = told {
            assert!(headers.len() + payload.len() < len);
            let value = wire::header(headers, SESSION);
            assert!(value.is_none_or(|value| !value.contains('\n')), "{value:?}");
            assert!(wire::status(headers).is_none_or(|status| !status.contains('\r')));
        }
        rest = &rest[len..];
    }
}

pub(super) fn nats_wire_seeds() -> Vec<Vec<u8>> {
    [
        &b"INFO {\"server_id\":\"x\",\"max_payload\":1048576}\r\nPING\r\n+OK\r\nPONG\r\n-ERR 'Authorization'\r\n"[..],
        b"MSG md.xnas.0.quote.A 7 5\r\nhello\r\nMSG md.a 1 _INBOX.x.1 0\r\n\r\n",
        b"HMSG md.a 1 re 43 48\r\nNATS/1.0\r\nWp-Session: 1\r\nWp-Covers: 0-4\r\n\r\nhello\r\nPING\r\n",
        b"HMSG _INBOX.x 2 28 28\r\nNATS/1.0 503 No Messages\r\n\r\n\r\n",
    ]
    .map(<[u8]>::to_vec)
    .to_vec()
}

/// Batches of two channels with any headers and bodies: each record is shown once, in order, and
/// what was not is told as missed.
pub(super) fn batches(data: &[u8]) {
    let mut input = Input::new(data);
    let mut detector = GapDetector::default();
    let mut next = [0_u64; 2];
    while !input.is_empty() {
        let channel = u16::from(input.u8() % 2);
        let flags = input.u8();
        let session = if flags & 1 == 0 { "1".to_owned() } else { text(&mut input) };
        let covers = if flags & 2 == 0 { format!("{}-{}", input.u8(), input.u8()) } else { text(&mut input) };
        let headers = BTreeMap::from([(SESSION, session), (COVERS, covers)]);
        let header = |name: &str| match name {
            END => (flags & 4 > 0).then_some("1"),
            name => headers.get(name).map(String::as_str),
        };
        let payload = body(&mut input, channel, flags);
        let next = &mut next[usize::from(channel)];
        detector.take(channel, header, &payload, &mut |event| match event {
            ConsumerEvent::Record(seq, record) => {
                assert!(seq >= *next && record.channel == channel, "{seq} behind {next}");
                *next = seq + 1;
            }
            ConsumerEvent::Missed { channel: of, first, last } => {
                assert!(of == channel && first >= *next && last >= first, "{first} to {last} behind {next}");
                *next = last.saturating_add(1);
            }
            ConsumerEvent::Restart { .. } => *next = 0,
            ConsumerEvent::Malformed => (),
        });
    }
}

/// Some records with numbers of one byte, or any bytes.
fn body(input: &mut Input<'_>, channel: u16, flags: u8) -> Vec<u8> {
    let count = usize::from(flags >> 3 & 3);
    if flags & 0x80 > 0 {
        return (0..count * 64).map(|_| input.u8()).collect();
    }
    let record = Record { channel, ..Record::new(0, Event::Clear(Clear { at_ns: 0 })) };
    let entry = |seq: u8| [&u64::from(seq).to_le_bytes()[..], &record.to_bytes()].concat();
    (0..count).flat_map(|_| entry(input.u8())).collect()
}

fn text(input: &mut Input<'_>) -> String {
    let len = usize::from(input.u8() % 24);
    let bytes: Vec<u8> = (0..len).map(|_| input.u8()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn batches_seeds() -> Vec<Vec<u8>> {
    let whole =
        [&[0, 0b1000, 0, 4, 2][..], &[0, 0b1100, 5, 9, 7], &[0, 0b1011, 1, b'2', 3, b'0', b'-', b'3', 1]].concat();
    let max = "18446744073709551615-18446744073709551615";
    let (own, far) = ([1, 0b1010, 3, b'4', b'-', b'9'], [&[1, 0b10, 23][..], &max.as_bytes()[..23]].concat());
    vec![whole, own.to_vec(), far]
}

/// An audit log of any content: entries to its end, and as a table without a byte that a terminal
/// would obey.
pub(super) fn audit_log(data: &[u8]) {
    let mut bytes = 0;
    for entry in AuditEntries::new(data) {
        match entry {
            Ok(AuditEntry::Call { direction, bytes: call, .. }) => {
                assert_ne!(direction, Direction::Lost);
                bytes += call.len();
            }
            Ok(AuditEntry::Lost { .. }) => (),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
    }
    assert!(bytes <= data.len(), "{bytes} of {}", data.len());
    let mut table = Vec::new();
    let _ = AuditCsv::write(data, &mut table);
    let is_harmless = |&byte: &u8| byte == b'\n' || (b' '..0x7f).contains(&byte);
    assert!(table.iter().all(is_harmless), "{:?}", table.escape_ascii().to_string());
}

pub(super) fn audit_log_seeds() -> Vec<Vec<u8>> {
    let record = |direction, has_more, bytes: &[u8]| {
        [&audit::head(1_000, direction, has_more, bytes.len() as u16)[..], bytes].concat()
    };
    let whole = [
        record(Direction::Out, false, b"order\x1b[2J"),
        record(Direction::In, true, b"ans"),
        record(Direction::In, false, b"wer\"'\\"),
        record(Direction::Lost, false, &7_u64.to_le_bytes()),
        record(Direction::In, true, b"begun"),
    ]
    .concat();
    let lost = [record(Direction::In, true, b"begun"), record(Direction::Lost, false, &[1])].concat();
    vec![whole[..whole.len() - 2].to_vec(), whole, lost]
}

/// A schema of any text, and a message behind it: a schema that is read describes each message
/// without reading beyond it.
pub(super) fn sbe_schema(data: &[u8]) {
    /// Steps of a message.
    struct Count(usize);

    impl Visitor for Count {
        fn message(&mut self, _: &str, _: u16, _: u16) {}

        fn field(&mut self, _: &str, _: Value<'_>) {
            self.0 += 1;
        }

        fn group(&mut self, _: &str, _: usize) {
            self.0 += 1;
        }

        fn entry(&mut self) {
            self.0 += 1;
        }

        fn end_group(&mut self) {}
    }

    let at = data.windows(2).position(|pair| pair == b"\0\0").unwrap_or(data.len());
    let (text, message) = data.split_at(at);
    match Schema::parse(&String::from_utf8_lossy(text)) {
        Ok(schema) => {
            let mut steps = Count(0);
            let _ = schema.walk(message.get(2..).unwrap_or_default(), &mut steps);
            let _ = schema.generate("any");
        }
        Err(sentence) => assert!(!sentence.to_string().is_empty()),
    }
}

pub(super) fn sbe_schema_seeds() -> Vec<Vec<u8>> {
    let schema = br#"<messageSchema package="p" id="7" version="2" byteOrder="littleEndian">
<types><composite name="messageHeader"><type name="blockLength" primitiveType="uint16"/>
<type name="templateId" primitiveType="uint16"/><type name="schemaId" primitiveType="uint16"/>
<type name="version" primitiveType="uint16"/></composite>
<composite name="groupSize"><type name="blockLength" primitiveType="uint16"/>
<type name="numInGroup" primitiveType="uint8"/></composite>
<type name="Price" primitiveType="int64" presence="optional"/><type name="Text" primitiveType="char" length="4"/>
<enum name="Side" encodingType="char"><validValue name="Buy">B</validValue></enum></types>
<message name="Order" id="1" blockLength="13"><field name="Px" id="1" type="Price"/>
<field name="Sym" id="2" type="Text"/><field name="Side" id="3" type="Side"/>
<group name="Legs" id="4" dimensionType="groupSize" blockLength="8"><field name="LegPx" id="5" type="Price"/></group>
</message></messageSchema>"#;
    let message = b"\0\0\x0d\0\x01\0\x07\0\x02\0\x01\0\0\0\0\0\0\0ABCDB\x08\0\x01\x02\0\0\0\0\0\0\0";
    vec![[&schema[..], message].concat(), schema.to_vec()]
}
