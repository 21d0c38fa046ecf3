use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::mpsc::channel;

use feed_handler::recovery::{Answer, Command, ImagePlan, ImageSource, RecoveryPlan, RequestPlan, ThreadEnd, link};
use market::event::Status;
use market::framing::PacketWriter;
use market::framing::mold_udp64::MoldHeader;
use market::image::ImagePolicy;
use market::itch50::{AddOrder, Head, Itch50, Message, TradingAction};
use market::{BookBuilder, ChannelHandler, Locate, OrderBooks, Price, RetryPolicy, Side};
use order_entry::soupbin::Credentials;

use super::*;

const SYMBOL: Symbol = Symbol(*b"ZIEXT   ");
const BOOKS: Capacity = Capacity { books: 4, orders: 64, levels: 16 };
const MS: u64 = 1_000_000;
/// An order without its fields.
const BROKEN: &[u8] = b"A";

/// A bid for shares of `symbol`.
fn bid(symbol: Symbol, order: u64, cents: u32) -> Vec<u8> {
    let head = Head::new(AddOrder::KIND, Locate(u16::from(symbol != SYMBOL)), 0);
    let (shares, price) = (100.into(), (cents * 100).into());
    let add = AddOrder { head, order: order.into(), side: b'B', shares, stock: symbol, price };
    Message::from(&add).as_bytes().to_vec()
}

fn packet(seq: u64, messages: &[&[u8]]) -> Vec<u8> {
    let mut room = [0; 512];
    let mut writer = PacketWriter::<MoldUdp64>::new(MoldHeader::new(*b"DAY       ", seq), &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    writer.finish().to_vec()
}

/// A feed, and the other end of its recovery.
struct Play {
    feed: Feed,
    thread: ThreadEnd<OrderBooks>,
    now_ns: u64,
    /// What the last packet said of the feed's life.
    is_alive: bool,
    /// Best bid in cents, and whether it is stale, of each event.
    told: Vec<(i64, bool)>,
    /// Of the last event.
    is_halted: bool,
}

impl Play {
    fn new(plan: RecoveryPlan) -> Self {
        let ((worker, thread), (_, events)) = (link(), channel());
        let config = FeedConfig { books: BOOKS, ..FeedConfig::default() };
        let feed = Feed::with_recovery(&[SYMBOL], &config, FeedRecovery::over(plan, BOOKS, worker, events));
        Self { feed, thread, now_ns: 0, is_alive: false, told: Vec::new(), is_halted: false }
    }

    /// Line A brings bids of our stock, the first of them with number `seq`.
    fn bids(&mut self, seq: u64, cents: &[u32]) {
        let messages: Vec<_> = (seq..).zip(cents).map(|(seq, cents)| bid(SYMBOL, seq, *cents)).collect();
        self.bring(seq, &messages.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }

    fn bring(&mut self, seq: u64, messages: &[&[u8]]) {
        self.is_alive = self.feed.on_packet(Line::A, &packet(seq, messages), self.now_ns);
        self.pass(0);
    }

    /// A turn, `ns` later.
    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        let (told, is_halted) = (&mut self.told, &mut self.is_halted);
        let mut take = |book: &BookEvent, _: Depth<'_>| {
            *is_halted = book.is_halted;
            assert_eq!(book.instrument.0, 0);
            told.push((book.bid.map_or(0, |(Price(price), _)| price / 100), book.is_stale));
        };
        self.feed.publish(self.now_ns, &mut take);
        self.feed.tick(self.now_ns, take);
    }

    fn command(&mut self) -> Command<OrderBooks> {
        self.thread.commands.pop().expect("something is asked for")
    }

    /// The image that is asked for: its number, and from where on it must continue.
    fn wanted(&mut self) -> (u64, u64) {
        match self.command() {
            Command::Image { id, covers_from, .. } => (id, covers_from),
            _ => panic!("an image is asked for"),
        }
    }

    /// The image has another stock first, so that books have other indices, then a bid of ours.
    fn send_image(&mut self, id: u64, first_live: u64, cents: u32) {
        self.send_image_with(id, first_live, cents, &[]);
    }

    /// The same with states of stocks.
    fn send_image_with(&mut self, id: u64, first_live: u64, cents: u32, states: &[(Symbol, u8)]) {
        let mut builder = BookBuilder::new(Itch50, OrderBooks::new(BOOKS));
        builder.on_message(0, &bid(Symbol(*b"ANOTHER "), 900, 1));
        builder.on_message(0, &bid(SYMBOL, 901, cents));
        let books = Box::new(builder.books);
        let (locate, operational, at_ns) = (Locate(0), false, 0);
        let status = |&(symbol, state): &(Symbol, u8)| Status {
            locate,
            state,
            is_halted: Some(state != b'T'),
            operational,
            follows_group: None,
            at_ns,
            symbol,
        };
        let statuses = states.iter().map(status).collect();
        assert!(self.thread.answers.push(Answer::Image { channel: 0, id, first_live, books, statuses }).is_ok());
    }
}

fn requests() -> RecoveryPlan {
    let nowhere = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
    let retry = RetryPolicy::default();
    let requests = RequestPlan { server: nowhere, bind: nowhere, retry, hole_max: 100, proxy: None, replays: None };
    RecoveryPlan { requests: Some(requests), ..RecoveryPlan::default() }
}

fn images() -> RecoveryPlan {
    let credentials = Credentials::new("user", "password").unwrap();
    let image = ImagePlan {
        server: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1),
        source: ImageSource::Glimpse { credentials, any_session: false },
        policy: ImagePolicy { queue_len_max: 1 << 16, messages_max: 1 << 10, ..ImagePolicy::default() },
    };
    RecoveryPlan { image: Some(image), ..RecoveryPlan::default() }
}

/// The state of our stock.
fn action(state: u8) -> Vec<u8> {
    let (head, stock) = (Head::new(TradingAction::KIND, Locate(0), 0), SYMBOL);
    let action = TradingAction { head, stock, state, reserved: b' ', reason: *b"    " };
    Message::from(&action).as_bytes().to_vec()
}

/// A halt that began in a hole was not known, and an order of it was sent.
#[test]
fn halts_behind_an_image_are_those_of_the_image_and_of_what_came_behind_it() {
    let another = (Symbol(*b"ANOTHER "), b'T');
    for (before, image, behind, is_halted) in [
        (b'T', &[(SYMBOL, b'H')][..], None, true),
        (b'H', &[(SYMBOL, b'T')], None, false),
        (b'T', &[(SYMBOL, b'H')], Some(b'T'), false),
        (b'H', &[(SYMBOL, b'T')], Some(b'P'), true),
        // One of which an image with states says nothing does not trade.
        (b'T', &[another], None, true),
        // A server that sends no states says nothing of any.
        (b'H', &[], None, true),
        (b'T', &[], None, false),
    ] {
        let mut play = Play::new(images());
        play.bids(1, &[100]);
        play.bring(2, &[&action(before)]);
        play.bring(3, &[BROKEN]);
        play.pass(MS);
        let (id, _) = play.wanted();
        if let Some(state) = behind {
            play.bring(4, &[&action(state)]);
        }
        play.send_image_with(id, 4, 104, image);
        play.pass(MS);
        assert_eq!(play.told.last(), Some(&(104, false)), "{before} {image:?} {behind:?}");
        assert_eq!(play.is_halted, is_halted, "{before} {image:?} {behind:?}");
    }
}

#[test]
fn halt_and_pause_are_told_with_the_book_and_end_with_trading() {
    let mut play = Play::new(images());
    let mut told = Vec::new();
    play.bids(1, &[100]);
    for (seq, state) in (2..).zip(*b"HTPQ") {
        let _ = play.feed.on_packet(Line::A, &packet(seq, &[&action(state)]), 0);
        play.feed.publish(0, |book, _| told.push(book.is_halted));
    }
    assert_eq!(told, [true, false, true, false]);
}

#[test]
fn hole_of_both_lines_is_requested_and_books_are_late_and_the_feed_silent_until_its_answer() {
    let mut play = Play::new(requests());
    play.bids(1, &[100]);
    // A jump is believed when a second packet agrees.
    play.bids(3, &[102]);
    play.bids(4, &[103]);
    assert_eq!((play.told.len(), play.is_alive), (1, false), "the other line may bring it");
    play.pass(2 * MS);
    assert_eq!(play.told[1..], [(100, true)]);
    let Command::Request { range, session, .. } = play.command() else { panic!("messages are requested") };
    assert_eq!((range.seq, range.count), (2, 1));
    assert_eq!(play.feed.channel.arbiter().session(), Some(session));
    let answer = packet(2, &[&bid(SYMBOL, 2, 101)]);
    assert!(play.thread.answers.push(Answer::Packet { set: 0, bytes: answer[..].try_into().unwrap() }).is_ok());
    play.pass(MS);
    assert_eq!(play.told[2..], [(103, false)]);
    play.bids(5, &[104]);
    assert_eq!((play.feed.counts().missing, play.is_alive), (0, true));
}

#[test]
fn hole_that_no_answer_fills_leaves_stale_books_until_an_image_and_what_was_queued_behind_it() {
    let mut play = Play::new(RecoveryPlan { image: images().image, ..requests() });
    play.bids(1, &[100]);
    play.bids(3, &[90]);
    play.bids(4, &[91]);
    for _ in 0..200 {
        play.pass(10 * MS);
    }
    assert_eq!(play.told.iter().filter(|(_, is_stale)| !is_stale).count(), 1, "{:?}", play.told);
    let mut requests = 0;
    let (id, covers_from) = loop {
        match play.command() {
            Command::Image { id, covers_from, .. } => break (id, covers_from),
            _ => requests += 1,
        }
    };
    assert_eq!((requests, covers_from), (3, 3), "it is asked for as often as the plan says");
    play.bids(5, &[92]);
    play.send_image(id, 4, 104);
    play.pass(MS);
    assert!(matches!(play.command(), Command::Spare(..)), "the memory of the old books goes back");
    play.told.clear();
    play.bids(6, &[105]);
    assert_eq!(play.told, [(105, false)], "it has an index of its own in the image");
}

#[test]
fn hole_that_is_wider_than_the_plan_says_is_left_to_the_image_at_once() {
    let mut play = Play::new(RecoveryPlan { image: images().image, ..requests() });
    play.bids(1, &[100]);
    play.bids(103, &[100]);
    play.bids(104, &[100]);
    play.pass(MS);
    assert_eq!(play.wanted().1, 103);
}

#[test]
fn message_that_cannot_be_decoded_leaves_stale_books_and_has_an_image_asked_for() {
    let mut play = Play::new(images());
    play.bids(1, &[100]);
    play.bring(2, &[BROKEN]);
    assert_eq!(play.told, [(100, false), (100, true)]);
    play.pass(MS);
    let (id, covers_from) = play.wanted();
    assert_eq!(covers_from, 3);
    play.send_image(id, 3, 104);
    play.pass(MS);
    assert_eq!(play.told.last(), Some(&(104, false)));
}

#[test]
fn image_behind_which_another_message_is_lost_is_not_called_whole() {
    let mut play = Play::new(images());
    play.bids(1, &[100]);
    play.bring(2, &[BROKEN]);
    play.pass(MS);
    let (id, _) = play.wanted();
    play.bring(3, &[BROKEN]);
    play.send_image(id, 3, 104);
    for _ in 0..10 {
        play.pass(MS);
    }
    assert!(play.told[1..].iter().all(|(_, is_stale)| *is_stale), "{:?}", play.told);
}

#[test]
fn book_that_has_changed_behind_its_best_price_is_told_where_the_feed_follows_the_depth() {
    for (follows_depth, times) in [(false, 1), (true, 3)] {
        let mut feed = Feed::new(&[SYMBOL], &FeedConfig { books: BOOKS, follows_depth, ..FeedConfig::default() });
        let mut told = Vec::new();
        for (seq, cents) in (1..).zip([1_000, 999, 999]) {
            assert!(feed.on_packet(Line::A, &packet(seq, &[&bid(SYMBOL, seq, cents)]), 0));
            feed.publish(0, |book, depth| {
                assert_eq!(book.bid, Some((Price::from_cents(1_000), 100)));
                told.push(depth.levels(Side::Buy).collect::<Vec<_>>());
            });
        }
        assert_eq!(told.len(), times);
        let best = (Price::from_cents(1_000), 100, 1);
        assert_eq!(told[0], [best]);
        if follows_depth {
            assert_eq!(told[2], [best, (Price::from_cents(999), 200, 2)]);
        }
    }
}
