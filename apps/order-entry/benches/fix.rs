//! What FIX costs: nanoseconds, the least and the median of 401 batches, and instructions, which
//! callgrind counts where valgrind is installed.
//!
//! ```console
//! $ cargo bench -p wirepath-order-entry --bench fix
//! ```
#![allow(clippy::unwrap_used, reason = "a bench may unwrap: a panic is the report")]

mod measure;

use std::hint::black_box;
use std::time::Duration;

use market::Price;
use measure::{BATCH, Row, batch};
use order_entry::fix::codec::{Decimal, FieldIndex, Frame, Writer, checksum, frame};
use order_entry::fix::orders::{
    ExecType, ExecutionReport, NewOrder, OrdStatus, OrdType, OrderSpec, OrderTemplates, Side, TimeInForce, Utc,
};

/// 26 November 2026, some time of the day.
const UTC_NS: u64 = 1_795_727_114_123_000_000;
const ROWS: [Row; 5] = [
    ("encode", "NewOrderSingle from a template", encode),
    ("parse", "ExecutionReport framed, checked, indexed, read as a type", parse),
    ("index", "of that, framed, checked and indexed", index),
    ("sum", "of that, the sum alone", sum),
    ("write", "ExecutionReport written field by field", write),
];

fn main() {
    if measure::run("FIX 4.4", &ROWS) {
        println!("a NewOrderSingle has {} bytes, an ExecutionReport {}", order_len(), report().len());
    }
}

fn templates() -> OrderTemplates {
    OrderTemplates::new(&OrderSpec {
        sender: "TRADER01".into(),
        target: "EXCHANGE".into(),
        id_prefix: "A1".into(),
        account: Some("ACCOUNT1".into()),
        symbol: "MSFT".into(),
        ..OrderSpec::default()
    })
}

fn order(idx: u64) -> NewOrder {
    let price = Decimal::from_price(Price(1_012_500 + (idx as i64 % 64) * 100));
    NewOrder { id: 1_000_000 + idx, side: Side::Buy, quantity: 100 + idx % 900, price }
}

fn order_len() -> usize {
    templates().new_order(1, UTC_NS, &order(1)).unwrap().len()
}

fn encode() -> Duration {
    let mut templates = templates();
    templates.new_order(1, UTC_NS, &order(0)).unwrap();
    batch(BATCH, |idx| {
        let bytes = templates.new_order(1 + idx, UTC_NS + idx * 10_000, &order(idx)).unwrap();
        u64::from(bytes[bytes.len() - 2])
    })
}

fn fill() -> ExecutionReport<'static> {
    ExecutionReport {
        account: Some(b"ACCOUNT1"),
        avg_px: Some(Decimal::from_price(Price(1_012_500))),
        cl_ord_id: Some(b"A10000000001000000"),
        cum_qty: Decimal::whole(100),
        exec_id: b"E00000000123456",
        exec_ref_id: None,
        exec_trans_type: None,
        last_px: Some(Decimal::from_price(Price(1_012_500))),
        last_qty: Some(Decimal::whole(100)),
        order_id: b"O00000000123456",
        order_qty: Some(Decimal::whole(300)),
        ord_status: OrdStatus::PartiallyFilled,
        ord_type: Some(OrdType::Limit),
        orig_cl_ord_id: None,
        price: Some(Decimal::from_price(Price(1_012_500))),
        side: Side::Buy,
        symbol: b"MSFT",
        text: None,
        time_in_force: Some(TimeInForce::Day),
        transact_time: Some(Utc(UTC_NS)),
        ord_rej_reason: None,
        exec_type: ExecType::Trade,
        leaves_qty: Decimal::whole(200),
        exec_restatement_reason: None,
    }
}

fn write_report(out: &mut [u8]) -> &[u8] {
    let mut writer = Writer::new(out);
    writer.field(35, b"8").number(34, 123_456).field(49, b"EXCHANGE").field(52, b"20261126-21:05:14.123");
    writer.field(56, b"TRADER01");
    fill().write(&mut writer);
    let bytes = writer.finish(b"FIX.4.4").unwrap().len();
    &out[..bytes]
}

fn report() -> Vec<u8> {
    let mut out = [0; 1024];
    write_report(&mut out);
    let start = out.windows(2).position(|two| two == b"8=").unwrap();
    let Frame::Message { len } = frame(&out[start..], 1024) else { panic!("no message") };
    out[start..start + len].to_vec()
}

fn parse() -> Duration {
    let (bytes, mut index) = (report(), FieldIndex::new(128));
    batch(BATCH, |_| {
        let bytes = black_box(&bytes[..]);
        let Frame::Message { len } = frame(bytes, 4096) else { return 0 };
        let message = index.parse(&bytes[..len]).unwrap();
        let report = ExecutionReport::parse(black_box(&message)).unwrap();
        black_box(&report);
        report.leaves_qty.0 as u64
    })
}

fn index() -> Duration {
    let (bytes, mut index) = (report(), FieldIndex::new(128));
    batch(BATCH, |_| {
        let bytes = black_box(&bytes[..]);
        let Frame::Message { len } = frame(bytes, 4096) else { return 0 };
        index.parse(&bytes[..len]).unwrap().fields().len() as u64
    })
}

fn sum() -> Duration {
    let bytes = report();
    batch(BATCH, |_| checksum(black_box(&bytes)).into())
}

fn write() -> Duration {
    let mut out = [0; 1024];
    batch(BATCH, |_| write_report(&mut out).len() as u64)
}
