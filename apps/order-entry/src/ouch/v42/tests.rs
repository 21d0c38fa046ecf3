use proptest::prelude::*;

use super::*;
use crate::Text;
use crate::ouch::{OuchError, RejectReason42};

#[test]
fn lengths_are_those_of_the_specification() {
    let inbound = [(b'O', 49), (b'U', 47), (b'X', 19), (b'M', 20), (b'N', 15)];
    let outbound = [
        (b'S', 10),
        (b'A', 66),
        (b'U', 80),
        (b'C', 28),
        (b'D', 37),
        (b'E', 40),
        (b'G', 45),
        (b'B', 32),
        (b'F', 41),
        (b'J', 24),
        (b'P', 23),
        (b'I', 23),
        (b'T', 36),
        (b'M', 28),
    ];
    assert_eq!(Inbound::LENGTHS, inbound);
    assert_eq!(Outbound::LENGTHS, outbound);
}

#[test]
fn fields_are_at_their_places() {
    let mut out = [0; 24];
    let reject =
        OrderRejected { at_ns: 1.into(), token: Text::new("TOKEN").unwrap(), reason: RejectReason42::INVALID_PRICE };
    assert_eq!(reject.emit(&mut out), Some(24));
    assert_eq!(&out, b"J\0\0\0\0\0\0\0\x01TOKEN         X");
    assert_eq!(RejectReason42::RISK_DOLLARS.to_string(), "risk: dollars exceed limit");
    assert_eq!(RejectReason42(0x1b).to_string(), "code '\\x1b'");
}

#[test]
fn message_of_another_length_is_refused() {
    let expected = OuchError::Length { kind: b'N', expected: 15, found: 16 };
    assert_eq!(Inbound::parse(&[b'N'; 16]), Err(expected));
    assert_eq!(Inbound::parse(b""), Err(OuchError::Empty));
    assert_eq!(Inbound::parse(b"\x1b").unwrap_err().to_string(), "the version has no message '\\x1b'");
}

proptest! {
    #[test]
    fn parsed_messages_are_emitted_as_they_were(
        (kind, len) in prop::sample::select([Inbound::LENGTHS, Outbound::LENGTHS].concat()),
        body in prop::collection::vec(any::<u8>(), 90),
    ) {
        let bytes = [&[kind], &body[1..len]].concat();
        let mut out = [0; 90];
        if let Ok(message) = Inbound::parse(&bytes) {
            prop_assert_eq!(message.emit(&mut out), Some(len));
            prop_assert_eq!(&out[..len], &bytes);
            prop_assert_eq!(message.emit(&mut out[..len - 1]), None);
        }
        if let Ok(message) = Outbound::parse(&bytes) {
            prop_assert_eq!(message.emit(&mut out), Some(len));
            prop_assert_eq!(&out[..len], &bytes);
        }
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert!(Inbound::parse(&bytes).is_ok() || Inbound::parse(&bytes).is_err());
        prop_assert!(Outbound::parse(&bytes).is_ok() || Outbound::parse(&bytes).is_err());
    }
}
