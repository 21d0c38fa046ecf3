//! Reads a gateway's ring to its end, builds the books of ITCH or PITCH from the events, and prints
//! each instrument's best bid and offer.
//!
//! `cargo run -p market-gateway --example reader -- /dev/shm/nasdaq.ring`

use std::path::PathBuf;
use std::time::Duration;
use std::{env, hint, thread};

use market::{BookIdx, Books, Capacity, OrderBooks};
use market_ring::{Flags, Read, RingReader};

fn main() {
    let Some(path) = env::args_os().nth(1).map(PathBuf::from) else {
        return eprintln!("name the ring: reader /dev/shm/nasdaq.ring");
    };
    let mut reader = loop {
        match RingReader::open(&path) {
            Ok(reader) => break reader,
            // The gateway has not started yet.
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    };
    // The records that are in the ring already, as far as they are safe.
    reader.rewind();
    let mut books = OrderBooks::new(Capacity { books: 16_384, orders: 1 << 20, levels: 1 << 18 });
    let (mut records, mut missed, mut gaps) = (0_u64, 0, 0);
    loop {
        match reader.read() {
            Read::Record { record, .. } => {
                records += 1;
                gaps += u64::from(record.flags.contains(Flags::GAP_BEFORE));
                books.apply(&record.event);
            }
            // What was missed is in no book; a `Clear` makes them whole again.
            Read::Overrun { first, last } => {
                books.mark_stale();
                missed += last - first + 1;
            }
            Read::Unknown { .. } => {
                books.mark_stale();
                missed += 1;
            }
            Read::Empty => hint::spin_loop(),
            Read::Closed => break,
        }
    }
    for book in (0..books.len() as u32).map(BookIdx) {
        let top = books.top(book);
        let bid = format!("{} at {}", top.bid_qty, top.bid_px);
        let mark = if books.is_stale(book) { ", but some records were missed" } else { "" };
        println!("{} {bid}, {} at {}{mark}", books.symbol(book), top.ask_qty, top.ask_px);
    }
    println!("{records} events, {missed} missed, {gaps} gaps of the feed");
}
