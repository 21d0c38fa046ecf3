use proptest::prelude::*;

use super::*;
use crate::Text;
use crate::boe::{BoeError, ReasonCode, Side};

#[test]
fn new_order_is_its_bytes_on_the_wire() {
    let order = NewOrder { cl_ord_id: Text::zero_padded("A1").unwrap(), side: Side::BUY, quantity: 100.into() };
    let mut out = [0; 64];
    let fields = [Field::Symbol(Text::zero_padded("MSFT").unwrap()), Field::Price(12_300.into())];
    let len = order.emit(&fields, &mut out).unwrap();
    let expected = b"A1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x001\x64\0\0\0\x02\x04\x01\x0c\x30\0\0\0\0\0\0MSFT\0\0\0\0";
    assert_eq!(&out[..len], expected);
}

#[test]
fn field_that_a_message_cannot_have_is_refused() {
    let cancel = CancelOrder { orig_cl_ord_id: Text([0; 20]) };
    assert_eq!(cancel.emit(&[Field::MinQuantity(1.into())], &mut [0; 64]), None);
    assert_eq!(cancel.emit(&[Field::ClearingFirm(Text(*b"FIRM"))], &mut [0; 64]), Some(20 + 2 + 4));
}

#[test]
fn bit_without_a_field_ends_the_message_because_its_length_is_unknown() {
    let body = [&[0; 20][..], &[1, 0x02, 1, 2, 3, 4]].concat();
    assert_eq!(Inbound::parse(0x39, &body), Err(BoeError::Bitfield { byte: 0, bit: 1 }));
    let long = [&[0; 20][..], &[3, 0, 0, 1]].concat();
    assert_eq!(Inbound::parse(0x39, &long), Err(BoeError::Bitfield { byte: 2, bit: 0 }));
}

#[test]
fn values_are_exactly_those_of_the_bits() {
    for (values, found) in [(&[1, 2, 3][..], 3), (&[1, 2, 3, 4, 5], 5)] {
        let body = [&[0; 20][..], &[1, 0x01], values].concat();
        assert_eq!(Inbound::parse(0x39, &body), Err(BoeError::Length { kind: 0x39, expected: 4, found }));
    }
}

#[test]
fn purge_has_its_groups_between_bits_and_values() {
    let purge = PurgeOrders { reserved: 0 };
    let mut out = [0; 64];
    let id = Field::MassCancelId(Text::zero_padded("M1").unwrap());
    let len = purge.emit(&[id], &[7, 8], &mut out).unwrap();
    assert_eq!(&out[..len][..8], &[0, 1, 0x10, 2, 7, 0, 8, 0]);
    let (message, optional) = Inbound::parse(0x47, &out[..len]).unwrap();
    assert_eq!(message, Inbound::PurgeOrders(&purge));
    assert_eq!(optional.fields().collect::<Vec<_>>(), [id]);
    assert_eq!(PurgeOrders::risk_groups(&out[..len]).collect::<Vec<_>>(), [7, 8]);
    assert_eq!(purge.emit(&[], &[0; 11], &mut out), None);
}

#[test]
fn fields_have_the_place_of_one_bit_in_each_table() {
    for table in [tables::NEW_ORDER, tables::CANCEL_ORDER, tables::MODIFY_ORDER, tables::PURGE_ORDERS, tables::RETURN] {
        let ids: Vec<_> = table.iter().flatten().flatten().collect();
        assert!(ids.iter().enumerate().all(|(idx, id)| !ids[..idx].contains(id)));
    }
}

#[test]
fn reasons_have_names() {
    assert_eq!(ReasonCode::DUPLICATE.to_string(), "duplicate identifier");
}

proptest! {
    #[test]
    fn parsed_fields_are_emitted_as_they_were(
        bits in prop::collection::vec(any::<u8>(), 0..19),
        values in prop::collection::vec(any::<u8>(), 600),
    ) {
        // Bits that the table has, and so many values.
        let bits: Vec<u8> = bits.iter().zip(tables::RETURN).map(|(bits, row)| {
            (0..8).filter(|&bit| row[bit].is_some()).fold(0, |known, bit| known | bits & (1 << bit))
        }).collect();
        let ids = bits.iter().zip(tables::RETURN).flat_map(|(bits, row)| {
            (0..8).filter(move |bit| bits & (1 << bit) != 0).filter_map(|bit| row[bit])
        });
        let len: usize = ids.map(FieldId::value_len).sum();
        let body = [&[9; 30][..], &[bits.len() as u8], &bits, &values[..len]].concat();
        let (message, optional) = Outbound::parse(0x2a, &body).unwrap();
        let Outbound::OrderCancelled(cancelled) = message else { panic!("{message:?}") };
        let fields: Vec<_> = optional.fields().collect();
        let mut out = [0; 700];
        let emitted = cancelled.emit(&fields, &mut out).unwrap();
        // Bitfields without a bit at the end are not written.
        let used = bits.iter().rposition(|&bits| bits != 0).map_or(0, |last| last + 1);
        prop_assert_eq!(emitted, body.len() - (bits.len() - used));
        prop_assert_eq!(&out[31..31 + used], &bits[..used]);
        prop_assert_eq!(&out[31 + used..emitted], &values[..len]);
    }

    #[test]
    fn any_body_is_a_message_or_an_error(kind in any::<u8>(), body in prop::collection::vec(any::<u8>(), 0..200)) {
        for optional in [Inbound::parse(kind, &body).map(|it| it.1), Outbound::parse(kind, &body).map(|it| it.1)] {
            match optional {
                Ok(optional) => prop_assert!(optional.fields().count() <= body.len()),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
        prop_assert!(PurgeOrders::risk_groups(&body).count() <= 255);
    }
}

#[test]
fn message_of_as_many_bitfields_as_a_byte_counts_is_read() {
    let body = [&[b'A'; 20][..], &[255], &[0; 255]].concat();
    let (_, optional) = Inbound::parse(0x39, &body).unwrap();
    assert_eq!(optional.fields().count(), 0);
    let last = [&[b'A'; 20][..], &[255], &[0; 254], &[1]].concat();
    assert_eq!(Inbound::parse(0x39, &last).unwrap_err(), BoeError::Bitfield { byte: 254, bit: 0 });
}
