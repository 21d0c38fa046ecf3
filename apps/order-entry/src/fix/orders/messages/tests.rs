use super::*;
use crate::fix::codec::{FieldIndex, Writer};
use proptest::prelude::*;

fn bytes(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = [0; 4096];
    let mut writer = Writer::new(&mut out);
    writer.field(35, b"8");
    write(&mut writer);
    writer.finish(b"FIX.4.4").unwrap().to_vec()
}

fn report() -> ExecutionReport<'static> {
    ExecutionReport {
        account: Some(b"A1"),
        avg_px: Some(Decimal::whole(10)),
        cl_ord_id: Some(b"c1"),
        cum_qty: Decimal::whole(100),
        exec_id: b"e1",
        exec_ref_id: None,
        exec_trans_type: None,
        last_px: Some(Decimal(1_012_500_000)),
        last_qty: Some(Decimal::whole(100)),
        order_id: b"o1",
        order_qty: Some(Decimal::whole(300)),
        ord_status: OrdStatus::PartiallyFilled,
        ord_type: Some(OrdType::Limit),
        orig_cl_ord_id: None,
        price: Some(Decimal(1_012_500_000)),
        side: Side::Buy,
        symbol: b"MSFT",
        text: Some(b"text"),
        time_in_force: Some(TimeInForce::Day),
        transact_time: Some(Utc(1_795_727_114_123_000_000)),
        ord_rej_reason: None,
        exec_type: ExecType::Trade,
        leaves_qty: Decimal::whole(200),
        exec_restatement_reason: None,
    }
}

#[test]
fn report_survives_the_wire() {
    let bytes = bytes(|out| report().write(out));
    let mut index = FieldIndex::new(64);
    assert_eq!(ExecutionReport::parse(&index.parse(&bytes).unwrap()), Ok(report()));
}

#[test]
fn defect_names_its_field_and_rule() {
    let defect = |write: &dyn Fn(&mut Writer<'_>)| {
        let bytes = bytes(write);
        let mut index = FieldIndex::new(64);
        let message = index.parse(&bytes).unwrap();
        CancelReject::parse(&message).map_err(|defect| (defect.tag, defect.reason)).unwrap_err()
    };
    let fields: [(u32, &[u8]); 5] = [(11, b"c"), (37, b"o"), (39, b"0"), (41, b"b"), (434, b"1")];
    let with = |tag: u32, value: &'static [u8]| {
        defect(&move |out| {
            for (field, own) in fields {
                out.field(field, if field == tag { value } else { own });
            }
        })
    };
    assert_eq!(with(434, b"3"), (434, Reason::Value));
    assert_eq!(with(434, b"11"), (434, Reason::Format));
    let one = |out: &mut Writer<'_>| {
        out.field(11, b"c");
    };
    assert_eq!(defect(&one), (37, Reason::Missing));
    let two = |out: &mut Writer<'_>| {
        out.field(11, b"c").field(11, b"d");
    };
    assert_eq!(defect(&two), (11, Reason::Repeated));
}

#[test]
fn fills_of_all_versions_are_fills() {
    for exec_type in [ExecType::PartialFill, ExecType::Fill, ExecType::Trade] {
        assert_eq!(ExecutionReport { exec_type, ..report() }.outcome(), OrderOutcome::Fill);
    }
    let bust = ExecutionReport { exec_trans_type: Some(ExecTransType::Cancel), ..report() };
    assert_eq!(bust.outcome(), OrderOutcome::FillCanceled);
    let bust = ExecutionReport { exec_type: ExecType::TradeCancel, ..report() };
    assert_eq!(bust.outcome(), OrderOutcome::FillCanceled);
    let canceled = ExecutionReport { exec_type: ExecType::Canceled, ..report() };
    assert_eq!(canceled.outcome(), OrderOutcome::State(ExecType::Canceled));
}

proptest! {
    #[test]
    fn order_survives_the_wire(
        id in "[!-~]{1,20}", account in proptest::option::of("[ -~]{1,12}"),
        quantity in proptest::option::of(any::<u32>()), price in proptest::option::of(0_i64..i64::MAX),
        time in 0_u64..4_000_000_000_000_000_000,
    ) {
        let order = NewOrderSingle {
            account: account.as_deref().map(str::as_bytes),
            cl_ord_id: id.as_bytes(),
            exec_inst: None,
            handl_inst: Some(HandlInst::Private),
            order_qty: quantity.map(|quantity| Decimal::whole(quantity.into())),
            ord_type: OrdType::Limit,
            price: price.map(Decimal),
            side: Side::SellShort,
            symbol: b"BRK.B",
            time_in_force: Some(TimeInForce::ImmediateOrCancel),
            transact_time: Utc(time),
            stop_px: None,
            min_qty: None,
            max_floor: None,
            expire_time: None,
            peg_offset: None,
        };
        let bytes = bytes(|out| order.write(out));
        let mut index = FieldIndex::new(64);
        prop_assert_eq!(NewOrderSingle::parse(&index.parse(&bytes).unwrap()), Ok(order));
    }
}
