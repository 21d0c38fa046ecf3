//! What FIX costs: nanoseconds, the least and the median of 401 batches, and instructions, which
//! callgrind counts where valgrind is installed.
//!
//! ```console
//! $ cargo bench -p wirepath-order-entry --bench fix
//! ```
//!
//! With the name of a row as its argument the program runs that row alone, as callgrind does.
#![allow(clippy::unwrap_used, reason = "a bench may unwrap: a panic is the report")]

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use market::Price;
use order_entry::fix::codec::{Decimal, FieldIndex, Frame, Writer, checksum, frame};
use order_entry::fix::orders::{
    ExecType, ExecutionReport, NewOrder, OrdStatus, OrdType, OrderSpec, OrderTemplates, Side, TimeInForce, Utc,
};

/// 26 November 2026, some time of the day.
const UTC_NS: u64 = 1_795_727_114_123_000_000;
/// Messages of a batch: some 100 microseconds, so that most batches are not interrupted.
const BATCH: u64 = 1_000;

type Row = (&'static str, &'static str, fn(u64) -> u64);

const ROWS: [Row; 5] = [
    ("encode", "NewOrderSingle from a template", measured_encode),
    ("parse", "ExecutionReport framed, checked, indexed, read as a type", measured_parse),
    ("index", "of that, framed, checked and indexed", measured_index),
    ("sum", "of that, the sum alone", measured_sum),
    ("write", "ExecutionReport written field by field", measured_write),
];

fn main() {
    let name = std::env::args().nth(1).filter(|name| !name.starts_with("--"));
    if let Some((_, _, row)) = name.and_then(|name| ROWS.into_iter().find(|row| row.0 == name)) {
        println!("{}", row(BATCH));
        return;
    }
    println!("{:60} {:>8} {:>8} {:>13}", "FIX 4.4", "ns least", "median", "instructions");
    println!("a NewOrderSingle has {} bytes, an ExecutionReport {}", order_len(), report().len());
    for (name, text, row) in ROWS {
        let instructions = instructions(name).map_or_else(|| "no valgrind".into(), |count| format!("{count:.0}"));
        let (least, median) = nanoseconds(row);
        println!("{text:60} {least:8.1} {median:8.1} {instructions:>13}");
    }
}

fn nanoseconds(row: fn(u64) -> u64) -> (f64, f64) {
    row(BATCH);
    let mut batches: Vec<f64> = (0..401)
        .map(|_| {
            let start = Instant::now();
            black_box(row(BATCH));
            start.elapsed().as_nanos() as f64 / BATCH as f64
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    (batches[0], batches[batches.len() / 2])
}

/// Instructions for each message, the set-up of the batch included; a batch of none is subtracted.
fn instructions(name: &str) -> Option<f64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    command.args(["--toggle-collect=*measured_loop*"]).arg(std::env::current_exe().ok()?).arg(name);
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let count: f64 = text.split("Collected :").nth(1)?.split_whitespace().next()?.parse().ok()?;
    Some(count / BATCH as f64)
}

/// Calls `message` for each of a batch; callgrind counts within.
#[inline(never)]
fn measured_loop(count: u64, mut message: impl FnMut(u64) -> u64) -> u64 {
    (0..count).fold(0, |sum, idx| sum.wrapping_add(message(black_box(idx))))
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

fn measured_encode(count: u64) -> u64 {
    let mut templates = templates();
    templates.new_order(1, UTC_NS, &order(0)).unwrap();
    measured_loop(count, |idx| {
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

fn measured_parse(count: u64) -> u64 {
    let (bytes, mut index) = (report(), FieldIndex::new(128));
    measured_loop(count, |_| {
        let bytes = black_box(&bytes[..]);
        let Frame::Message { len } = frame(bytes, 4096) else { return 0 };
        let message = index.parse(&bytes[..len]).unwrap();
        let report = ExecutionReport::parse(black_box(&message)).unwrap();
        black_box(&report);
        report.leaves_qty.0 as u64
    })
}

fn measured_index(count: u64) -> u64 {
    let (bytes, mut index) = (report(), FieldIndex::new(128));
    measured_loop(count, |_| {
        let bytes = black_box(&bytes[..]);
        let Frame::Message { len } = frame(bytes, 4096) else { return 0 };
        index.parse(&bytes[..len]).unwrap().fields().len() as u64
    })
}

fn measured_sum(count: u64) -> u64 {
    let bytes = report();
    measured_loop(count, |_| checksum(black_box(&bytes)).into())
}

fn measured_write(count: u64) -> u64 {
    let mut out = [0; 1024];
    measured_loop(count, |_| write_report(&mut out).len() as u64)
}
