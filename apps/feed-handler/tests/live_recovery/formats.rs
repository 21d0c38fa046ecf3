//! Losses on both lines of Cboe's and IEX's feeds that their servers heal, over a veth and kernel
//! sockets, against servers of these tests. In the end the books are the venue's.

use std::net::{TcpListener, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use feed_handler::Event;
use feed_handler::report::{RecoverySummary, Summary};
use market::memx::MemoirDepth;
use market::memx::layout::{
    InstrumentDirectory, InstrumentDirectoryRoot, OrderAdded, OrderAddedRoot, OrderReduced, OrderReducedRoot, emit_head,
};
use market::pitch::{AddLong, Delete, Head, Time};
use market::sbe::{Block, emit_block};
use market::{BookIdx, Books, Capacity, Decoder, LevelBooks, MessageCounts, OrderBooks};
use wirepath::worker::StopFlag;
use zerocopy::IntoBytes;

use crate::common::made::deep_message;
use crate::common::network::is_inside;
use crate::common::venue::{GAP_GROUP, LINES, Venue, iex_packet, memx_packet, unit_packet};
use crate::plan;

const MESSAGES: u64 = 2_000;
const CAPACITY: Capacity = Capacity { books: 64, orders: 4_096, levels: 4_096 };
const LOGIN: &str = "session = \"0001\"\nuser = \"USER\"\npassword = \"SECRET\"\n";

fn add_long(order: u64) -> AddLong {
    AddLong {
        head: Head::new(AddLong::LEN, AddLong::KIND, 0),
        order: order.into(),
        side: if order.is_multiple_of(2) { b'B' } else { b'S' },
        qty: (100 + order as u32).into(),
        symbol: if order.is_multiple_of(3) { *b"AAA   " } else { *b"BBB   " },
        price: (if order.is_multiple_of(2) { 10_000 } else { 20_000 } + order % 50 * 100).into(),
        flags: 1,
    }
}

fn add(order: u64) -> Vec<u8> {
    add_long(order).as_bytes().to_vec()
}

/// A time, then orders, of which each fifth message removes an earlier one.
fn pitch_messages() -> Vec<Vec<u8>> {
    let message = |number: u64| match number {
        1 => Time { head: Head::new(Time::LEN, Time::KIND, 34_200) }.as_bytes().to_vec(),
        _ if number.is_multiple_of(5) && number > 10 => {
            let head = Head::new(Delete::LEN, Delete::KIND, 0);
            Delete { head, order: (number - 7).into() }.as_bytes().to_vec()
        }
        _ => add(number),
    };
    (1..=MESSAGES).map(message).collect()
}

/// The adds of the orders that rest after so many messages.
fn image(messages: usize) -> Vec<Vec<u8>> {
    let number = messages as u64;
    let is_delete = |number: u64| number.is_multiple_of(5) && number > 10;
    let rests = |&order: &u64| order > 1 && !is_delete(order) && !(is_delete(order + 7) && order + 7 <= number);
    (1..=number).filter(rests).map(add).collect()
}

fn deep_messages() -> Vec<Vec<u8>> {
    (1..=MESSAGES)
        .map(|number| {
            let (kind, base) = if number.is_multiple_of(2) { (b'8', 10_000) } else { (b'5', 20_000) };
            deep_message(kind, (number % 9 * 100) as u32, base + (number % 40 * 100) as i64)
        })
        .collect()
}

/// The tops of the venue's books, as the summary has them.
fn tops<D: Decoder + Default>(messages: &[Vec<u8>], mut books: impl Books) -> Vec<(String, u64, u64)> {
    let (mut codec, mut counts) = (D::default(), MessageCounts::new());
    for message in messages {
        codec.decode_all(message, &mut counts, &mut |event| {
            books.apply(event);
        });
    }
    let top = |idx: u32| {
        let top = books.top(BookIdx(idx));
        (books.symbol(BookIdx(idx)).to_string(), top.bid_qty, top.ask_qty)
    };
    let mut tops: Vec<_> = (0..books.len() as u32).map(top).collect();
    tops.sort();
    tops
}

fn tops_received(summary: &Summary) -> Vec<(String, u64, u64)> {
    let tops = summary.channels[0].books.tops.iter();
    let mut tops: Vec<_> = tops.map(|top| (top.symbol.clone(), top.bid_shares, top.ask_shares)).collect();
    tops.sort();
    tops
}

/// Runs the handler while `venue` publishes and `serve` serves.
fn play(
    venue: &Venue,
    format: &str,
    servers: &str,
    packet: fn(u64, &[Vec<u8>]) -> Vec<u8>,
    serve: impl FnOnce() + Send,
) -> Summary {
    let lines = LINES.map(|line| format!("{{ group = \"{}\", port = {} }}", line.ip(), line.port())).join(", ");
    let books = "[books]\norders = 4096\nlevels = 4096\ninstruments = 64\n";
    let channel = format!("[[channels]]\nname = \"c\"\nformat = \"{format}\"\nlines = [{lines}]\n");
    let plan = plan(&format!("{books}{channel}{servers}"));
    let (stop, (ready, is_ready)) = (StopFlag::new(), mpsc::channel());
    thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(serve);
        scope.spawn(move || {
            if is_ready.recv().is_ok() {
                // The proxy's login takes a moment; requests before it are repeated.
                venue.publish(packet, Duration::from_millis(1_500));
            }
            venue.is_over.store(true, std::sync::atomic::Ordering::Release);
            stop.stop();
        });
        feed_handler::run(&plan, stop, |event| {
            if let Event::Ready(_) = event {
                let _ = ready.send(());
            }
            drop(event);
        })
        .unwrap()
    })
}

fn recovery(summary: &Summary) -> &RecoverySummary {
    summary.channels[0].recovery.as_ref().unwrap()
}

#[test]
fn gap_responses_of_cboe_bring_what_both_lines_lost_but_for_a_refused_request() {
    if !is_inside("formats::gap_responses_of_cboe_bring_what_both_lines_lost_but_for_a_refused_request") {
        return;
    }
    let venue = Venue::new(pitch_messages());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = proxy(&listener);
    let summary = play(&venue, "cboe-pitch", &servers, unit_packet, || venue.serve_gaps(&listener, &[]));
    // The refused request was for one packet of four messages.
    assert_eq!((summary.messages, summary.missing), (MESSAGES - 4, 4), "{summary}");
    assert_eq!(recovery(&summary).recovered, venue.lost() - 4, "{summary}");
    assert_eq!(summary.failures, Vec::<String>::new());
}

/// A gap request proxy, and the group of its responses.
fn proxy(listener: &TcpListener) -> String {
    format!(
        "[channels.rerequest]\nserver = \"{}\"\ngroup = \"{}\"\nport = {}\ninterface = \"127.0.0.1\"\n{LOGIN}\
         attempts = 50\ntimeout_ms = 100\n",
        listener.local_addr().unwrap(),
        GAP_GROUP.ip(),
        GAP_GROUP.port()
    )
}

#[test]
fn forged_gap_responses_of_cboe_change_no_book() {
    if !is_inside("formats::forged_gap_responses_of_cboe_change_no_book") {
        return;
    }
    let venue = Venue::new(pitch_messages());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = format!("{}sources = [\"127.0.0.1\"]\n", proxy(&listener));
    // Orders of an instrument that the venue does not have.
    let forged = (0..40).map(|number| AddLong { symbol: *b"ZZZ   ", ..add_long(1_000_000 + number) });
    let forged: Vec<_> = forged.map(|add| add.as_bytes().to_vec()).collect();
    let summary = play(&venue, "cboe-pitch", &servers, unit_packet, || venue.serve_gaps(&listener, &forged));
    assert_eq!(recovery(&summary).recovered, venue.lost() - 4, "{summary}");
    assert_eq!(summary.failures, Vec::<String>::new());
    assert_eq!(summary.channels[0].books.instruments, 2, "{summary}");
}

#[test]
fn spins_of_cboe_heal_the_books_when_nothing_is_sent_again() {
    if !is_inside("formats::spins_of_cboe_heal_the_books_when_nothing_is_sent_again") {
        return;
    }
    let venue = Venue::new(pitch_messages());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers =
        format!("[channels.image]\nserver = \"{}\"\n{LOGIN}interval_ms = 20\n", listener.local_addr().unwrap());
    let summary = play(&venue, "cboe-pitch", &servers, unit_packet, || venue.serve_spins(&listener, image));
    assert_eq!(summary.missing, venue.lost(), "{summary}");
    assert!(recovery(&summary).images_completed > 0, "{summary}");
    assert_eq!(summary.channels[0].books.stale, 0, "{summary}");
    assert_eq!(tops_received(&summary), tops::<market::pitch::Pitch>(&venue.messages, OrderBooks::new(CAPACITY)));
    assert_eq!(summary.failures, Vec::<String>::new());
}

#[test]
fn gap_fill_of_iex_brings_what_both_lines_lost() {
    if !is_inside("formats::gap_fill_of_iex_brings_what_both_lines_lost") {
        return;
    }
    let venue = Venue::new(deep_messages());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let servers = format!(
        "[channels.rerequest]\nserver = \"{}\"\nattempts = 50\ntimeout_ms = 100\n",
        socket.local_addr().unwrap()
    );
    let summary = play(&venue, "iex-deep", &servers, iex_packet, || venue.serve_iex(&socket));
    assert_eq!((summary.messages, summary.missing), (MESSAGES, 0), "{summary}");
    assert_eq!(recovery(&summary).recovered, venue.lost(), "{summary}");
    let books = LevelBooks::new(CAPACITY.books, CAPACITY.levels);
    assert_eq!(tops_received(&summary), tops::<market::iex::deep10::Deep10>(&venue.messages, books));
    assert_eq!(summary.failures, Vec::<String>::new());
}

fn memx_message<T: Block>(template: u16, root: &T) -> Vec<u8> {
    let mut out = emit_head(template, size_of::<T>() as u16).to_vec();
    emit_block(root, size_of::<T>(), &mut out);
    out
}

/// Two definitions, then orders, of which each fifth message reduces an earlier one.
fn memx_messages() -> Vec<Vec<u8>> {
    let message = |number: u64| {
        let security_id = ((number % 2 + 1) as u16).into();
        match number {
            1 | 2 => {
                let root = if number == 1 { *b"BBB   " } else { *b"AAA   " };
                let defined = InstrumentDirectoryRoot { security_id, root, suffix: [b' '; 6], ..Block::NULL };
                memx_message(InstrumentDirectory::ID, &defined)
            }
            _ if number.is_multiple_of(5) && number > 10 => {
                let (timestamp, order_id, quantity) = (9.into(), (number - 6).into(), 40.into());
                let reduced = OrderReducedRoot { timestamp, security_id, order_id, quantity };
                memx_message(OrderReduced::ID, &reduced)
            }
            _ => {
                let (side, base) = if number % 4 < 2 { (b'B', 10_000) } else { (b'S', 20_000) };
                let price = ((base + (number % 50) as i64) * 10_000).into();
                let (timestamp, order_id, quantity) = (9.into(), number.into(), (100 + number as u32).into());
                memx_message(
                    OrderAdded::ID,
                    &OrderAddedRoot { timestamp, security_id, order_id, side, quantity, price },
                )
            }
        }
    };
    (1..=MESSAGES).map(message).collect()
}

#[test]
fn replays_of_memx_bring_what_both_lines_lost_though_one_is_refused_and_one_cut() {
    if !is_inside("formats::replays_of_memx_bring_what_both_lines_lost_though_one_is_refused_and_one_cut") {
        return;
    }
    let venue = Venue::new(memx_messages());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = format!(
        "[channels.rerequest]\nserver = \"{}\"\ntoken_type = \"P\"\ntoken = \"USER:SECRET\"\nattempts = 50\n\
         timeout_ms = 100\n",
        listener.local_addr().unwrap()
    );
    let summary = play(&venue, "memx-depth", &servers, memx_packet, || venue.serve_replays(&listener));
    // The refused request was for one packet of four messages.
    assert_eq!((summary.messages, summary.missing), (MESSAGES - 4, 4), "{summary}");
    assert_eq!(recovery(&summary).recovered, venue.lost() - 4, "{summary}");
    assert_eq!(summary.failures, Vec::<String>::new());
    let expected: Vec<_> = venue.messages.iter().enumerate().filter(|(idx, _)| !(12..16).contains(idx)).collect();
    let received: Vec<_> = expected.into_iter().map(|(_, message)| message.clone()).collect();
    assert_eq!(tops_received(&summary), tops::<MemoirDepth>(&received, OrderBooks::new(CAPACITY)));
}
