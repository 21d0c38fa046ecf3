//! Reads a gateway's ring to its end, builds the books of ITCH or PITCH from the events, and prints
//! each instrument's best bid and offer.
//!
//! `cargo run -p market-gateway --example reader -- /dev/shm/nasdaq.ring`

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, hint, thread};

use market::{BookIdx, Books, Capacity, OrderBooks};
use market_ring::{Flags, Read, RingReader, WholeChannels};

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
    // A `Clear` empties the books of its channel, and order numbers may repeat in another.
    let mut channels = BTreeMap::<u16, OrderBooks>::new();
    let mut whole = WholeChannels::default();
    let (mut records, mut missed, mut gaps) = (0_u64, 0, 0);
    loop {
        let read = reader.read();
        whole.take(&read);
        match read {
            Read::Record { record, .. } => {
                records += 1;
                gaps += u64::from(record.flags.contains(Flags::GAP_BEFORE));
                channels.entry(record.channel).or_insert_with(books).apply(&record.event);
            }
            Read::Joined { before } => {
                eprintln!("{before} events came before: books lack their orders until the next image or session");
                missed += before;
            }
            Read::Overrun { first, last } => missed += last - first + 1,
            Read::Unknown { .. } => missed += 1,
            Read::Empty => hint::spin_loop(),
            Read::Closed => break,
        }
    }
    for (&channel, books) in &channels {
        print(books, whole.is_whole(channel));
    }
    println!("{records} events, {missed} missed, {gaps} gaps of the feed");
}

fn books() -> OrderBooks {
    OrderBooks::new(Capacity { books: 16_384, orders: 1 << 20, levels: 1 << 18 })
}

/// The best bid and offer of each instrument of a channel.
fn print(books: &OrderBooks, is_whole: bool) {
    for book in (0..books.len() as u32).map(BookIdx) {
        let top = books.top(book);
        let bid = format!("{} at {}", top.bid_qty, top.bid_px);
        let is_sure = is_whole && !books.is_stale(book);
        let mark = if is_sure { "" } else { ", but some records were missed" };
        println!("{} {bid}, {} at {}{mark}", books.symbol(book), top.ask_qty, top.ask_px);
    }
}
