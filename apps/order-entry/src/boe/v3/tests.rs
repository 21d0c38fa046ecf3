use proptest::prelude::*;

use super::*;
use crate::Text;
use crate::boe::{BoeError, ReasonCode};
use zerocopy::IntoBytes;

#[test]
fn fields_are_at_their_places() {
    let cancel = CancelOrder {
        orig_cl_ord_id: Text::zero_padded("A1").unwrap(),
        clearing_firm: Text::zero_padded("FIRM").unwrap(),
        manual: b'N',
        operator: Text::zero_padded("OP").unwrap(),
    };
    let body = cancel.as_bytes();
    assert_eq!((&body[..3], &body[20..25], &body[25..28]), (&b"A1\0"[..], &b"FIRMN"[..], &b"OP\0"[..]));
    assert_eq!(CancelOrder::LEN, 12 + 43);
}

#[test]
fn fields_of_a_later_revision_are_passed_on() {
    let reject = OrderRejected {
        at_ns: 1.into(),
        cl_ord_id: Text([0; 20]),
        clearing_firm: Text([0; 4]),
        reason: ReasonCode::DURING_REPLAY,
        text: Text([0; 60]),
    };
    let body = [reject.as_bytes(), b"new"].concat();
    assert_eq!(Outbound::parse(1502, &body), Ok((Outbound::OrderRejected(&reject), &b"new"[..])));
    assert_eq!(reject.reason.to_string(), "received during replay");
}

#[test]
fn request_to_end_a_lock_out_is_answered_by_name() {
    let body = [&b"RISK1"[..], &[0; 11], b"F", &7_u64.to_le_bytes()].concat();
    let Outbound::ResetRiskAcknowledgment(answer) = Outbound::parse(1522, &body).unwrap().0 else { panic!() };
    assert_eq!((answer.risk_status_id.trimmed(), answer.received_ns.get()), (&b"RISK1"[..], 7));
    assert_eq!(answer.result.to_string(), "too many resets of the firm");
    assert_eq!(body.len() + 12, ResetRiskAcknowledgment::LEN);
}

#[test]
fn types_of_quotes_and_options_are_unknown() {
    for kind in [1006, 1009, 1010, 1011, 1515, 1523] {
        assert_eq!(Inbound::parse(kind, &[0; 300]), Err(BoeError::Unknown { kind }));
        assert_eq!(Outbound::parse(kind, &[0; 300]), Err(BoeError::Unknown { kind }));
    }
}

proptest! {
    #[test]
    fn any_body_is_a_message_or_an_error(
        kind in prop::sample::select([Inbound::LENGTHS, Outbound::LENGTHS].concat()),
        body in prop::collection::vec(any::<u8>(), 0..250),
    ) {
        let ((kind, len), found) = (kind, body.len());
        if let Ok((message, tail)) = Inbound::parse(kind, &body) {
            prop_assert_eq!([message.as_bytes(), tail].concat(), body);
        } else if let Ok((message, tail)) = Outbound::parse(kind, &body) {
            prop_assert_eq!([message.as_bytes(), tail].concat(), body);
        } else {
            prop_assert!(found + 12 < len);
        }
    }
}
