use proptest::prelude::*;
use zerocopy::FromBytes;

use super::*;
use crate::Text;
use crate::ouch::{
    AiqStrategy, BboWeight, CustomerType, DiscretionPriceType, HandleInstruction, OuchError, PostOnly, PriceType,
    RejectReason, Side, YesNo,
};

#[test]
fn lengths_are_those_of_the_specification() {
    let of = |kind: u8, lengths: &[(u8, usize)]| lengths.iter().find(|entry| entry.0 == kind).unwrap().1;
    // With the appendage's length where it is always there.
    for (kind, len) in [(b'O', 47), (b'U', 40), (b'C', 19), (b'D', 11), (b'E', 11)] {
        assert_eq!(of(kind, Inbound::LENGTHS) + 2, len);
    }
    for (kind, len) in [(b'X', 9), (b'M', 10), (b'Q', 1)] {
        assert_eq!(of(kind, Inbound::LENGTHS), len);
    }
    for (kind, len) in [(b'A', 64), (b'U', 68), (b'E', 36), (b'R', 16), (b'X', 27), (b'G', 19), (b'K', 19)] {
        assert_eq!(of(kind, Outbound::LENGTHS) + 2, len);
    }
    for (kind, len) in
        [(b'S', 10), (b'C', 18), (b'D', 32), (b'B', 36), (b'J', 29), (b'P', 13), (b'I', 13), (b'T', 30), (b'M', 18)]
    {
        assert_eq!(of(kind, Outbound::LENGTHS), len);
    }
    assert_eq!((Inbound::LENGTHS.len(), Outbound::LENGTHS.len(), Field::LENGTHS.len()), (8, 17, 26));
}

#[test]
fn options_are_their_bytes_on_the_wire() {
    let mut out = [0; 32];
    let firm = Field::Firm(Text::new("LIME").unwrap());
    let len = CancelPending { at_ns: 1.into(), user_ref: 2.into() }
        .emit(&[firm, Field::BboWeight(BboWeight(b'0'))], &mut out);
    assert_eq!(len, Some(13 + 2 + 6 + 3));
    assert_eq!(&out[13..24], b"\0\x09\x05\x02LIME\x02\x12\x30");
}

/// Each tag of the specification, with its length in front.
#[test]
fn each_option_is_its_bytes_on_the_wire() {
    let text = |value| Text::new(value).unwrap();
    let fields: [(Field<'_>, &[u8]); 26] = [
        (Field::SecondaryOrderRef(0x0102_0304_0506_0708.into()), b"\x09\x01\x01\x02\x03\x04\x05\x06\x07\x08"),
        (Field::Firm(text("LIME")), b"\x05\x02LIME"),
        (Field::MinQuantity(300.into()), b"\x05\x03\0\0\x01\x2c"),
        (Field::CustomerType(CustomerType::RETAIL), b"\x02\x04R"),
        (Field::MaxFloor(100.into()), b"\x05\x05\0\0\0\x64"),
        (Field::PriceType(PriceType::MIDPOINT_PEG), b"\x02\x06M"),
        (Field::PegOffset((-100).into()), b"\x05\x07\xff\xff\xff\x9c"),
        (Field::DiscretionPrice(1_000_000.into()), b"\x09\x09\0\0\0\0\0\x0f\x42\x40"),
        (Field::DiscretionPriceType(DiscretionPriceType(b'L')), b"\x02\x0aL"),
        (Field::DiscretionPegOffset(100.into()), b"\x05\x0b\0\0\0\x64"),
        (Field::PostOnly(PostOnly::POST_ONLY), b"\x02\x0cP"),
        (Field::RandomReserve(50.into()), b"\x05\x0d\0\0\0\x32"),
        (Field::Route(text("SCAN")), b"\x05\x0eSCAN"),
        (Field::ExpireSeconds(86_399.into()), b"\x05\x0f\0\x01\x51\x7f"),
        (Field::TradeNow(YesNo::YES), b"\x02\x10Y"),
        (Field::HandleInstruction(HandleInstruction::IMBALANCE_ONLY), b"\x02\x11I"),
        (Field::BboWeight(BboWeight::UP_TO_1), b"\x02\x121"),
        (Field::DisplayQuantity(7.into()), b"\x05\x16\0\0\0\x07"),
        (Field::DisplayPrice(8.into()), b"\x09\x17\0\0\0\0\0\0\0\x08"),
        (Field::GroupId(513.into()), b"\x03\x18\x02\x01"),
        (Field::SharesLocated(YesNo::YES), b"\x02\x19Y"),
        (Field::LocateBroker(text("BRKR")), b"\x05\x1aBRKR"),
        (Field::Side(Side::SELL), b"\x02\x1bS"),
        (Field::UserRefIdx(9), b"\x02\x1c\x09"),
        (Field::AiqStrategy(AiqStrategy(b'D')), b"\x02\x1dD"),
        (Field::AiqGroup(1.into()), b"\x03\x1e\0\x01"),
    ];
    assert_eq!(
        fields.map(|(field, _)| field.tag()).as_slice(),
        Field::LENGTHS.iter().map(|it| it.0).collect::<Vec<_>>()
    );
    for (field, bytes) in fields {
        let mut out = [0; 32];
        let len = Appendage::emit(&[field], &mut out).unwrap();
        assert_eq!(&out[..len], [&[0, bytes.len() as u8][..], bytes].concat(), "{field:?}");
        let read = Appendage::parse(b'O', &out[..len]).unwrap().unwrap();
        assert_eq!(read.fields().collect::<Vec<_>>(), [field]);
    }
}

#[test]
fn cancel_without_options_has_no_appendage_and_an_empty_one_is_accepted() {
    let cancel = CancelOrder { user_ref: 77.into(), quantity: 25.into() };
    let mut out = [0; 20];
    assert_eq!(cancel.emit(&[], &mut out), Some(9));
    assert_eq!(&out[..9], b"X\0\0\0\x4d\0\0\0\x19");
    for len in [9, 11] {
        let (message, appendage) = Inbound::parse(&out[..len]).unwrap();
        assert_eq!((message, appendage.is_empty()), (Inbound::CancelOrder(&cancel), true));
    }
}

#[test]
fn index_of_the_key_is_found_in_the_options() {
    let mut out = [0; 20];
    let len = CancelOrder { user_ref: 1.into(), quantity: 0.into() }.emit(&[Field::UserRefIdx(7)], &mut out).unwrap();
    assert_eq!(Inbound::parse(&out[..len]).unwrap().1.user_ref_idx(), 7);
}

#[test]
fn malformed_appendages_are_refused_with_their_rule() {
    let refused = |tail: &[u8]| Inbound::parse(&[b"X\0\0\0\x01\0\0\0\x02", tail].concat()).unwrap_err();
    let kind = b'X';
    assert_eq!(refused(&[0]), OuchError::AppendageLength { kind, said: 0, found: 1 });
    assert_eq!(refused(&[0, 5, 2, 28, 1]), OuchError::AppendageLength { kind, said: 5, found: 3 });
    assert_eq!(refused(&[0, 1, 0]), OuchError::Element { kind, at: 0 });
    assert_eq!(refused(&[0, 5, 2, 28, 1, 9, 2]), OuchError::Element { kind, at: 3 });
    assert_eq!(refused(&[0, 4, 3, 28, 1, 1]), OuchError::ValueLength { tag: 28, expected: 1, found: 2 });
    let order = Inbound::parse(&[b'O'; 45]).unwrap_err();
    assert_eq!(order, OuchError::Length { kind: b'O', expected: 47, found: 45 });
}

#[test]
fn unknown_tag_is_passed_on_by_number() {
    let bytes = b"X\0\0\0\x01\0\0\0\x02\0\x06\x03\xc8ab\x01\xc9";
    let (_, appendage) = Inbound::parse(bytes).unwrap();
    let fields: Vec<_> = appendage.fields().collect();
    assert_eq!(fields, [Field::Unknown { tag: 200, value: b"ab" }, Field::Unknown { tag: 201, value: b"" }]);
}

#[test]
fn the_same_type_is_another_message_in_the_other_direction() {
    let mut out = [0; 20];
    let enable = EnableOrderEntry { user_ref: 1.into(), firm: Text::new("FRMA").unwrap() };
    let len = enable.emit(&[], &mut out).unwrap();
    assert!(matches!(Inbound::parse(&out[..len]), Ok((Inbound::EnableOrderEntry(_), _))));
    assert!(matches!(Outbound::parse(&out[..len]), Err(OuchError::Length { kind: b'E', .. })));
}

#[test]
fn modify_changes_the_side_in_three_ways_alone() {
    use crate::ouch::Side;
    let ways = Side::ALL.iter().flat_map(|from| Side::ALL.iter().map(move |to| (from, to)));
    let allowed: Vec<_> = ways.filter(|(from, to)| from.may_become(**to)).map(|(from, to)| [from.0, to.0]).collect();
    assert_eq!(allowed, [*b"ST", *b"SE", *b"ET"]);
}

#[test]
fn reject_reasons_have_names_without_a_hole() {
    assert!((1..=0x2a).all(|code| RejectReason(code).name().is_some()));
    assert_eq!(RejectReason(0x1d).to_string(), "invalid price");
    assert_eq!(RejectReason(0x34).to_string(), "code 0x34");
}

#[test]
fn message_that_does_not_fit_is_not_written() {
    let order = EnterOrder::read_from_bytes(&[b' '; 44]).unwrap();
    assert_eq!(order.emit(&[], &mut [0; 46]), None);
    assert_eq!(order.emit(&[], &mut [0; 47]), Some(47));
    assert_eq!(order.emit(&[Field::MaxFloor(1.into())], &mut [0; 52]), None);
}

/// A message of a type of `lengths` with any fields and an appendage of any elements, some cut.
fn message(lengths: &'static [(u8, usize)]) -> impl Strategy<Value = Vec<u8>> {
    let element = (prop::sample::select(Field::LENGTHS), any::<[u8; 8]>()).prop_map(|((tag, len), value)| {
        let mut element = vec![len as u8 + 1, tag];
        element.extend(&value[..len]);
        element
    });
    let fixed = (prop::sample::select(lengths), prop::collection::vec(any::<u8>(), 70));
    (fixed, prop::collection::vec(element, 0..5), 0usize..40).prop_map(|(((kind, len), body), elements, cut)| {
        let elements = elements.concat();
        let mut bytes = vec![kind];
        bytes.extend(&body[..len - 1]);
        bytes.extend((elements.len() as u16).to_be_bytes());
        bytes.extend(elements);
        bytes.truncate(bytes.len() - cut.saturating_sub(30).min(bytes.len()));
        bytes
    })
}

/// What was parsed is emitted as the same bytes, apart from an appendage that is empty and
/// optional.
fn check_round_trip(bytes: &[u8], parsed: Result<(Option<usize>, Vec<u8>), OuchError>) -> Result<(), TestCaseError> {
    let Ok((Some(len), out)) = parsed else { return Ok(()) };
    prop_assert_eq!(&bytes[..len], &out[..len]);
    prop_assert!(bytes[len..].is_empty() || bytes[len..] == [0, 0]);
    Ok(())
}

proptest! {
    #[test]
    fn parsed_messages_are_emitted_as_they_were(inbound in message(Inbound::LENGTHS), outbound in message(Outbound::LENGTHS)) {
        let emitted = |emit: &dyn Fn(&mut [u8]) -> Option<usize>| {
            let mut out = vec![0; 200];
            (emit(&mut out), out)
        };
        check_round_trip(&inbound, Inbound::parse(&inbound).map(|(message, appendage)| {
            let fields: Vec<_> = appendage.fields().collect();
            emitted(&|out| message.emit(&fields, out))
        }))?;
        check_round_trip(&outbound, Outbound::parse(&outbound).map(|(message, appendage)| {
            let fields: Vec<_> = appendage.fields().collect();
            emitted(&|out| message.emit(&fields, out))
        }))?;
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        for parsed in [Inbound::parse(&bytes).map(|it| it.1), Outbound::parse(&bytes).map(|it| it.1)] {
            match parsed {
                Ok(appendage) => prop_assert!(appendage.fields().count() <= bytes.len()),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
