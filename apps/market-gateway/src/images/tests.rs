use std::io::{BufRead, BufReader};

use market::event::{Add, BookReset, Cancel, Clear, Delete, Event, Execute, Replace};
use market::{Books, Capacity, Locate, OrderBooks, OrderRef, Price, Side};
use market_ring::{Flags, Read, RingConfig, RingWriter};
use tempfile::TempDir;

use super::*;

const OURS: Symbol = Symbol(*b"AAPL    ");
const OTHER: Symbol = Symbol(*b"MSFT    ");

/// A ring, the books of its feed, and those that images are made of.
struct Rig {
    ring: RingWriter,
    feed: OrderBooks,
    images: RingBooks,
    folder: TempDir,
}

const CAPACITY: Capacity = Capacity { books: 8, orders: 8_192, levels: 1_024 };

fn books() -> OrderBooks {
    OrderBooks::new(CAPACITY)
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        let ring =
            RingWriter::create(&path, &RingConfig { records: 8_192, quotes: 64, ..RingConfig::default() }).unwrap();
        let images = RingBooks::new(RingReader::open(&path).unwrap(), CAPACITY);
        Self { ring, feed: books(), images, folder }
    }

    fn publish(&mut self, event: Event, flags: Flags) {
        self.feed.apply(&event);
        self.ring.publish(&Record { channel: 3, flags, ..Record::new(1, event) });
    }

    fn live(&mut self, number: u64) {
        self.publish(event(number), Flags::END_OF_EVENT);
    }

    fn image(&mut self, line: &str) -> Result<Image, String> {
        self.images.read(usize::MAX);
        self.images.image(&line.parse().unwrap()).map_err(|why| why.to_string())
    }
}

/// A day in which orders of two instruments come, trade, are replaced and go.
fn event(number: u64) -> Event {
    let (locate, at_ns, known) = (Locate(0), number, OrderRef(number.saturating_sub(9)));
    match number % 5 {
        0..3 => Event::Add(Add {
            locate: Locate(1 + (number % 2) as u16),
            side: if number.is_multiple_of(3) { Side::Buy } else { Side::Sell },
            qty: 100 + number as u32,
            at_ns,
            order: OrderRef(number),
            price: Price(10_000 + (number % 7) as i64 + if number.is_multiple_of(3) { 0 } else { 100 }),
            symbol: if number.is_multiple_of(2) { OURS } else { OTHER },
        }),
        3 if number.is_multiple_of(2) => Event::Delete(Delete { locate, at_ns, order: known }),
        3 => {
            Event::Replace(Replace { locate, at_ns, old: known, new: OrderRef(number), qty: 50, price: Price(10_020) })
        }
        _ if number.is_multiple_of(2) => Event::Cancel(Cancel { locate, qty: 10, at_ns, order: known }),
        _ => Event::Execute(Execute {
            locate,
            printable: true,
            qty: 20,
            at_ns,
            order: known,
            trade: number,
            price: None,
            remaining: None,
        }),
    }
}

/// Resting orders of an instrument, without their times and places.
fn orders(books: &OrderBooks, symbol: Symbol) -> Vec<Add> {
    let mut orders = Vec::new();
    for part in 0..books.order_parts() {
        books.orders_of(part, |add| orders.extend((add.symbol == symbol).then_some(add)));
    }
    orders.sort_by_key(|add| add.order);
    orders
}

#[test]
fn image_and_the_records_from_its_sequence_on_are_the_book_whenever_one_joins() {
    let mut rig = Rig::new();
    (0..100).for_each(|number| rig.live(number));
    for round in 0..20 {
        let mut reader = RingReader::open(&rig.folder.path().join("ring")).unwrap();
        let from = reader.next_seq();
        // The image is made later than it is asked for.
        (0..round).for_each(|number| rig.live(100 + round * 50 + number));
        let image = rig.image(&format!("l3 {from} - AAPL")).unwrap();
        assert!(image.seq >= from && image.channel == 3);
        assert!(image.records.iter().all(|record| record.flags.contains(Flags::SNAPSHOT)));
        (round..50).for_each(|number| rig.live(100 + round * 50 + number));
        let mut late = books();
        image.records.iter().for_each(|record| _ = late.apply(&record.event));
        loop {
            match reader.read() {
                Read::Record { seq, record } if seq >= image.seq => _ = late.apply(&record.event),
                Read::Record { .. } | Read::Joined { .. } => (),
                _ => break,
            }
        }
        assert_eq!(orders(&late, OURS), orders(&rig.feed, OURS), "round {round}");
    }
}

#[test]
fn levels_of_an_image_are_the_books_best_first_with_their_orders() {
    let mut rig = Rig::new();
    (0..100).for_each(|number| rig.live(number));
    let image = rig.image("l2 0 3 AAPL").unwrap();
    let told: Vec<_> = image
        .records
        .iter()
        .map(|record| match record.event {
            Event::Depth(level) => (level.side, level.level, level.price, level.qty, level.orders),
            other => panic!("{other:?}"),
        })
        .collect();
    let book = rig.feed.find(OURS).unwrap();
    let levels = [Side::Buy, Side::Sell].into_iter().flat_map(|side| {
        let levels: Vec<_> = rig.feed.depth(book, side).collect();
        (1..).zip(levels).map(move |(idx, (price, qty, orders))| (side, idx, price.into(), qty, orders))
    });
    assert_eq!(told, levels.collect::<Vec<_>>());
}

#[test]
fn no_image_is_given_of_a_book_that_misses_something() {
    let mut rig = Rig::new();
    assert_eq!(rig.image("l3 0 - AAPL").unwrap_err(), "no order of AAPL has come so far");
    (0..10).for_each(|number| rig.live(number));
    rig.publish(event(10), Flags::STALE);
    assert!(rig.image("l3 0 - AAPL").unwrap_err().contains("channel 3 miss something"));
    // The feed's image.
    rig.publish(Event::Clear(Clear { at_ns: 0 }), Flags::SNAPSHOT.and(Flags::STALE));
    rig.publish(event(10), Flags::SNAPSHOT.and(Flags::STALE));
    assert!(rig.image("l3 0 - AAPL").is_err(), "it is on its way");
    rig.live(12);
    assert_eq!(rig.image("l3 0 - AAPL").unwrap().records.len(), 2);
    // Overrun.
    (20..9_000).for_each(|number| rig.live(number));
    assert!(rig.image("l3 0 - AAPL").unwrap_err().contains("ask again"));
}

#[test]
fn caller_by_the_socket_waits_until_the_image_has_reached_its_record() {
    let mut rig = Rig::new();
    let path = |name: &str| rig.folder.path().join(name);
    let (ring, socket) = (path("ring"), path("images"));
    let server = ImageServer::start(&ring, &socket, CAPACITY, |_| ()).unwrap();
    (0..10).for_each(|number| rig.live(number));
    let mut caller = UnixStream::connect(&socket).unwrap();
    caller.write_all(b"l3 11 - AAPL\n").unwrap();
    rig.live(10);
    let mut answer = BufReader::new(caller);
    let mut line = String::new();
    answer.read_line(&mut line).unwrap();
    let expected = rig.image("l3 11 - AAPL").unwrap();
    assert_eq!(line.as_bytes(), expected.to_bytes().split_inclusive(|byte| *byte == b'\n').next().unwrap());
    let mut bytes = [0; Record::LEN];
    for record in &expected.records {
        answer.read_exact(&mut bytes).unwrap();
        assert_eq!(Record::from_bytes(&bytes), Some(*record));
    }
    for wrong in ["l4 0 - AAPL\n", "l3 0 - TOOLONGNAME\n", "l3 x - AAPL\n"] {
        let mut caller = UnixStream::connect(&socket).unwrap();
        caller.write_all(wrong.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(caller).read_line(&mut line).unwrap();
        assert!(line.starts_with("refused: say l2 or l3"), "{line}");
    }
    drop(server);
    assert!(!socket.exists());
}

#[test]
fn image_waits_for_the_feeds_own_where_one_instrument_was_reset_behind_a_gap() {
    let mut rig = Rig::new();
    (0..10).for_each(|number| rig.live(number));
    let gap = Event::Other(market::event::Other { kind: 0, at_ns: 0 });
    rig.publish(gap, Flags::END_OF_EVENT.and(Flags::STALE).and(Flags::GAP_BEFORE));
    // The book that is empty now is whole, and the other one is not.
    rig.publish(Event::BookReset(BookReset { at_ns: 0, symbol: OURS, rpt_seq: 0 }), Flags::END_OF_EVENT);
    rig.live(12);
    assert!(rig.image("l3 0 - MSFT").unwrap_err().contains("channel 3 miss something"));
}

/// The thread's work without the thread.
fn server(rig: &Rig) -> Server {
    let path = |name: &str| rig.folder.path().join(name);
    let books = RingBooks::new(RingReader::open(&path("ring")).unwrap(), CAPACITY);
    Server { books, listener: bind(&path("images")).unwrap(), callers: Vec::new() }
}

fn ask(rig: &Rig, bytes: &[u8]) -> UnixStream {
    let mut caller = UnixStream::connect(rig.folder.path().join("images")).unwrap();
    caller.write_all(bytes).unwrap();
    caller.set_nonblocking(true).unwrap();
    caller
}

/// What a caller is told while the thread looks so often.
fn told(server: &mut Server, caller: &mut UnixStream, looks: usize, now: Instant) -> Vec<u8> {
    let (mut told, mut bytes) = (Vec::new(), [0; 65_536]);
    for _ in 0..looks {
        server.look(now);
        while let Ok(len @ 1..) = caller.read(&mut bytes) {
            told.extend_from_slice(&bytes[..len]);
        }
    }
    told
}

#[test]
fn hostile_callers_are_bounded_in_length_number_and_time() {
    let mut rig = Rig::new();
    let mut server = server(&rig);
    (0..10).for_each(|number| rig.live(number));
    let start = Instant::now();
    let mut endless = ask(&rig, &[b'x'; 100_000]);
    assert_eq!(told(&mut server, &mut endless, 4, start), b"refused: a request is one short line\n");
    for wrong in [&b"l3 0 - \xff\xfe\n"[..], b"l3 99999999999999999999 - AAPL\n", b"\n", b"l3 0 70000 AAPL\n"] {
        assert!(told(&mut server, &mut ask(&rig, wrong), 4, start).starts_with(b"refused: say l2 or l3"));
    }
    assert!(server.callers.is_empty(), "each was told once");
    // One who goes before the line is whole.
    drop(ask(&rig, b"l3 0 -"));
    (0..2).for_each(|_| _ = server.look(start));
    assert!(server.callers.is_empty());

    let silent: Vec<_> = (0..CALLERS).map(|_| ask(&rig, b"l3 ")).collect();
    let mut honest = ask(&rig, b"l2 0 - AAPL\n");
    assert!(told(&mut server, &mut honest, 4, start).is_empty());
    assert_eq!(server.callers.len(), silent.len());
    let later = start + CALL_TIME + Duration::from_millis(1);
    assert!(told(&mut server, &mut honest, 4, later).starts_with(b"image "));
    assert!(server.callers.is_empty());

    let mut early = ask(&rig, b"l2 11 - AAPL\n");
    assert!(told(&mut server, &mut early, 4, start).is_empty());
    assert_eq!(told(&mut server, &mut early, 4, later), b"refused: record 11 has not come\n");
}

#[test]
fn caller_who_does_not_read_holds_up_neither_the_others_nor_the_books() {
    let mut rig = Rig::new();
    let mut server = server(&rig);
    for number in 0..8_000 {
        let Event::Add(add) = event(0) else { panic!("an order") };
        rig.publish(Event::Add(Add { order: OrderRef(number), ..add }), Flags::END_OF_EVENT);
    }
    let now = Instant::now();
    while server.look(now) {}
    let slow = ask(&rig, b"l3 8000 - AAPL\n");
    (0..4).for_each(|_| _ = server.look(now));
    assert_eq!(server.callers.len(), 1, "the image is larger than the socket's buffer");
    rig.live(10_000);
    let mut other = ask(&rig, b"l3 8001 - AAPL\n");
    let answer = told(&mut server, &mut other, 100, now);
    let line = answer.split(|byte| *byte == b'\n').next().unwrap();
    assert!(line.ends_with(b" 8001 3 8001"), "{}", String::from_utf8_lossy(line));
    assert_eq!(answer.len(), line.len() + 1 + 8_001 * Record::LEN);
    server.look(now + CALL_TIME + Duration::from_millis(1));
    assert!(server.callers.is_empty(), "the slow one is left");
    drop(slow);
}

#[test]
fn one_image_is_made_in_a_look_and_none_while_records_wait() {
    let mut rig = Rig::new();
    let mut server = server(&rig);
    let [mut first, mut second] = [0, 0].map(|_| ask(&rig, b"l3 0 - AAPL\n"));
    let now = Instant::now();
    (0..8_193).filter(|number| number % 5 < 3).cycle().take(8_192).for_each(|number| rig.live(number));
    assert!(told(&mut server, &mut first, 1, now).is_empty());
    assert!(!told(&mut server, &mut first, 1, now).is_empty());
    assert!(!told(&mut server, &mut second, 1, now).is_empty());
}

#[test]
fn socket_of_a_gateway_that_has_ended_is_replaced_and_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("images");
    let listener = bind(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(bind(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(listener);
    bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "a file").unwrap();
    assert_eq!(bind(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
}

#[test]
fn thread_that_ends_by_itself_is_told() {
    for is_asked in [false, true] {
        let (sender, told) = std::sync::mpsc::channel();
        let say = move |sentence: &str| sender.send(sentence.to_owned()).unwrap();
        drop(Watched { is_ended: Arc::new(AtomicBool::new(is_asked)), say: Some(say) });
        assert_eq!(
            told.try_iter().filter(|sentence| sentence.contains("`images` has ended")).count(),
            1 - usize::from(is_asked)
        );
    }
}
