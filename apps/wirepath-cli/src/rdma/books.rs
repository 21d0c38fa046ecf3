//! The books of a feed handler, READ from its memory: it answers without its worker.

use std::collections::HashSet;
use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ::rdma::roce::{Remote, SendOperation};
use ::rdma::snapshot::{OFFER_PORT, Offer, SlotError, Table, parse, slot_len};
use clap::Args;
use market::{BookSnapshot, LastEvent, Price9, Side, Symbol};
use serde_json::json;
use wirepath::worker::StopFlag;

use super::cm::Connected;
use super::end::End;
use super::over::Choice;
use super::{EndOptions, Service};

const VALUE_LEN: usize = BookSnapshot::LEN;
const SLOT_LEN: usize = slot_len(VALUE_LEN);
/// Slots that one READ fetches: 24 packets of 1024 bytes.
const TOGETHER: u32 = 64;
/// READs of a look, with `--follow`, that look for books which have appeared: those of a feed
/// handler with the default 16,384 slots are found within 16 looks.
const SEARCHES: usize = 16;
/// Times that a slot is read again whose value was being written. The writer takes less than a
/// microsecond, and a READ more: a slot that is torn so often is none of a publisher.
const TORN_MAX: u32 = 100;
/// Slots that are given up so, one after the other, before the peer is: one that tears them all
/// would keep us for hours.
const GIVEN_UP_MAX: u64 = 16;
const NO_PUBLISHER: &str = "the peer's slots were torn in each of a hundred READs: no publisher of ours writes there";
/// Slots that are read, unless `--slots-max` allows more. A feed handler has 16,384 for each worker
/// by default, and an offer names eleven tables at most.
const SLOTS_MAX: u64 = 16 * 16_384;

/// How the other end is started.
const OTHER: &str = "feed-handler run --expose";

/// What is read, and how it is shown.
#[derive(Args, Clone, Debug)]
pub(crate) struct BooksOptions {
    /// The address of the host that exposes them
    peer: Ipv4Addr,
    /// The port: eth1 (AF_XDP), mlx5:eth1; by default the one by which the kernel reaches the host
    #[arg(long, value_name = "PORT")]
    via: Option<String>,
    /// Only this instrument; may be repeated. One without a name is #NUMBER
    #[arg(long = "symbol", value_name = "S", value_parser = parse_symbol)]
    symbols: Vec<Symbol>,
    /// Go on until Ctrl-C: show each of these books again when it has changed, and others once
    /// they appear
    #[arg(long)]
    follow: bool,
    /// With --follow: milliseconds between two looks
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    interval: u32,
    /// One object on one line for each book
    #[arg(long)]
    json: bool,
    /// DSCP in the upper six bits and ECN in the lower two
    #[arg(long, value_name = "N", default_value_t = 0)]
    traffic_class: u8,
    /// The port of RDMA_CM
    #[arg(short, long, value_name = "PORT", default_value_t = OFFER_PORT)]
    port: u16,
    /// Slots that a peer may offer: each is read, and one that has a book is remembered. By default
    /// 262,144, which are 100 MB, and more than a feed handler has for eleven workers by default
    #[arg(long, value_name = "N", default_value_t = SLOTS_MAX)]
    slots_max: u64,
}

fn parse_symbol(text: &str) -> Result<Symbol, String> {
    let number = text.strip_prefix('#').and_then(|number| number.parse().ok());
    let symbol = number.map(Symbol::from_number).or_else(|| Symbol::new(text));
    symbol.ok_or_else(|| format!("{text:?} is longer than the eight bytes of a symbol"))
}

/// Reads the books once, or again and again.
pub(super) fn run(options: &BooksOptions, stop: &StopFlag) -> Result<(), Box<dyn Error>> {
    let mut end = End::open(&options.end(), Service::Rc, (TOGETHER * SLOT_LEN as u32, 1), Choice::port(), stop)?;
    let connected = Connected::connect(&mut end, (options.peer, options.port), OTHER, |_| Ok(()))?;
    let offer = match parse_offer(&connected.private_data(&mut end), options.slots_max) {
        Ok(offer) => offer,
        Err(why) => {
            connected.give_up(&mut end);
            return Err(format!("{}: {why}", options.peer).into());
        }
    };
    let (shown, known, counts) = (Vec::new(), HashSet::new(), Counts::default());
    let mut reader = Reader { end, connected, shown, known, counts, given_up_in_a_row: 0 };
    let outcome = reader.show_all(&offer, options);
    let Reader { mut end, connected, counts, .. } = reader;
    eprintln!("wirepath: {counts}");
    // Always, or the peer takes the next reader of this host for this one still.
    let ended = connected.end(&mut end);
    match outcome {
        // A signal, and no failure.
        _ if end.is_stopping() => Ok(()),
        outcome => outcome.and(ended),
    }
}

/// What the peer offers, if it is of use here.
fn parse_offer(bytes: &[u8], slots_max: u64) -> Result<Offer, String> {
    let offer = Offer::parse(bytes).map_err(|why| why.to_string())?;
    if (offer.schema, offer.value_len) != (BookSnapshot::SCHEMA, VALUE_LEN as u32) {
        return Err("what it exposes are no books in the layout that is known here".into());
    }
    check_slots(&offer, slots_max)?;
    Ok(offer)
}

/// The number of slots is the peer's word: without a limit it would keep this end reading for days.
fn check_slots(offer: &Offer, slots_max: u64) -> Result<(), String> {
    let slots: u64 = offer.tables.iter().map(|table| u64::from(table.slots)).sum();
    if slots <= slots_max {
        return Ok(());
    }
    Err(format!("the peer offers {slots} slots, more than {slots_max}: if it is trusted, --slots-max {slots}"))
}

/// All slots, as many together as one READ fetches.
fn batches(offer: &Offer) -> Vec<(Remote, u32)> {
    let of_table = |table: &Table| {
        let table = *table;
        (0..table.slots).step_by(TOGETHER as usize).map(move |first| {
            let remote = Remote { address: table.slot_address(first, VALUE_LEN as u32), rkey: table.rkey };
            (remote, TOGETHER.min(table.slots - first))
        })
    };
    offer.tables.iter().flat_map(of_table).collect()
}

impl BooksOptions {
    fn end(&self) -> EndOptions {
        EndOptions {
            peer: Some(self.peer),
            serve: false,
            device: None,
            via: self.via.clone(),
            size: TOGETHER * SLOT_LEN as u32,
            count: 1,
            depth: 1,
            mtu: None,
            traffic_class: self.traffic_class,
            cm: true,
            port: Some(self.port),
            over: super::over::Over::Roce,
        }
    }

    fn wants(&self, symbol: Symbol) -> bool {
        symbol != Symbol::NONE && (self.symbols.is_empty() || self.symbols.contains(&symbol))
    }
}

struct Reader {
    end: End,
    connected: Connected,
    /// The slots that are of interest.
    shown: Vec<Shown>,
    /// The keys and addresses of these.
    known: HashSet<(u32, u64)>,
    counts: Counts,
    given_up_in_a_row: u64,
}

/// A slot whose book was shown.
#[derive(Clone, Copy)]
struct Shown {
    remote: Remote,
    /// What was shown last, and of which instrument.
    version: u64,
    symbol: Symbol,
}

/// What a later READ of a slot finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The book that was shown.
    Same,
    /// The book has changed.
    Changed,
    /// Another instrument's book, or none: the feed handler has built its books anew.
    Other,
}

impl Shown {
    fn find(&self, version: u64, symbol: Symbol) -> Found {
        match version == self.version {
            true => Found::Same,
            false if symbol == self.symbol => Found::Changed,
            false => Found::Other,
        }
    }
}

/// What happened beside what is shown.
#[derive(Default)]
struct Counts {
    reads: u64,
    books: u64,
    torn: u64,
    /// Slots that were torn [`TORN_MAX`] times.
    given_up: u64,
    /// Values that are no books.
    unknown: u64,
}

impl Reader {
    /// Looks at all slots, and then, if wanted, at those of interest again and again.
    fn show_all(&mut self, offer: &Offer, options: &BooksOptions) -> Result<(), Box<dyn Error>> {
        let batches = batches(offer);
        for batch in &batches {
            self.search(batch, options)?;
        }
        if options.follow {
            return self.follow(&batches, options);
        }
        if !options.symbols.is_empty() && self.shown.is_empty() {
            return Err("no book of these instruments is exposed".into());
        }
        Ok(())
    }

    /// READs slots that follow each other, and shows the books of interest that were not shown yet.
    fn search(&mut self, &(remote, count): &(Remote, u32), options: &BooksOptions) -> Result<(), Box<dyn Error>> {
        self.read(remote, count)?;
        let bytes = self.bytes(count);
        for (idx, slot) in (0..).zip(bytes.chunks_exact(SLOT_LEN)) {
            let remote = Remote { address: remote.address + idx * SLOT_LEN as u64, ..remote };
            if !self.known.contains(&(remote.rkey, remote.address)) {
                self.look(remote, slot, options)?;
            }
        }
        Ok(())
    }

    /// Looks at the slots of interest, and at some of the others in turn, until it is stopped.
    fn follow(&mut self, batches: &[(Remote, u32)], options: &BooksOptions) -> Result<(), Box<dyn Error>> {
        eprintln!("wirepath: {} books; waits for changes, and for books that appear", self.shown.len());
        let mut searched = 0;
        loop {
            self.rest(Duration::from_millis(options.interval.into()))?;
            if self.show_changes(options)? {
                eprintln!("wirepath: the feed handler has built its books anew; looks for them in all slots");
                batches.iter().try_for_each(|batch| self.search(batch, options))?;
            }
            for _ in 0..batches.len().min(SEARCHES) {
                self.search(&batches[searched], options)?;
                searched = (searched + 1) % batches.len();
            }
        }
    }

    /// Shows the books that have changed. A slot that has another instrument's book is forgotten,
    /// and a search finds it if that is of interest; true if there are such.
    fn show_changes(&mut self, options: &BooksOptions) -> Result<bool, Box<dyn Error>> {
        let count = self.shown.len();
        for mut slot in std::mem::take(&mut self.shown) {
            self.read(slot.remote, 1)?;
            let bytes = self.bytes(1);
            if let Some((version, book)) = self.whole(slot.remote, bytes)? {
                match slot.find(version, book.symbol()) {
                    Found::Same => {}
                    Found::Changed => {
                        slot.version = version;
                        self.counts.books += 1;
                        show(&book, options.json)?;
                    }
                    Found::Other => {
                        self.known.remove(&(slot.remote.rkey, slot.remote.address));
                        continue;
                    }
                }
            }
            self.shown.push(slot);
        }
        Ok(self.shown.len() < count)
    }

    /// Shows the book of a slot, if it is of interest.
    fn look(&mut self, remote: Remote, slot: &[u8], options: &BooksOptions) -> Result<(), Box<dyn Error>> {
        match self.whole(remote, slot.to_vec())? {
            Some((version, book)) if options.wants(book.symbol()) => {
                self.shown.push(Shown { remote, version, symbol: book.symbol() });
                self.known.insert((remote.rkey, remote.address));
                self.counts.books += 1;
                show(&book, options.json)
            }
            _ => Ok(()),
        }
    }

    /// The book in a slot; reads it again while it is being written.
    fn whole(&mut self, remote: Remote, mut slot: Vec<u8>) -> Result<Option<(u64, BookSnapshot)>, Box<dyn Error>> {
        for _ in 0..TORN_MAX {
            match parse(&slot, VALUE_LEN) {
                Ok((version, value)) => {
                    let book = BookSnapshot::parse(value).ok();
                    self.counts.unknown += u64::from(book.is_none());
                    self.given_up_in_a_row = 0;
                    return Ok(book.map(|book| (version, book)));
                }
                Err(SlotError::Torn) => {
                    self.counts.torn += 1;
                    self.read(remote, 1)?;
                    slot = self.bytes(1);
                }
                Err(_) => return Ok(None),
            }
        }
        self.counts.given_up += 1;
        self.given_up_in_a_row += 1;
        if self.given_up_in_a_row < GIVEN_UP_MAX { Ok(None) } else { Err(NO_PUBLISHER.into()) }
    }

    fn read(&mut self, remote: Remote, slots: u32) -> Result<(), Box<dyn Error>> {
        self.end.post_at(SendOperation::Read(remote), 0, slots * SLOT_LEN as u32)?;
        self.counts.reads += 1;
        self.connected.sent(&mut self.end)
    }

    /// What the last READ brought.
    fn bytes(&mut self, slots: u32) -> Vec<u8> {
        let mut bytes = vec![0; slots as usize * SLOT_LEN];
        self.end.memory().read(0, &mut bytes);
        bytes
    }

    /// Turns the worker for a while.
    fn rest(&mut self, span: Duration) -> Result<(), Box<dyn Error>> {
        let begun = Instant::now();
        while begun.elapsed() < span {
            if self.end.is_stopping() {
                return Err("stopped".into());
            }
            self.end.turn();
        }
        Ok(())
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { reads, books, torn, given_up, unknown } = self;
        write!(f, "{books} books shown of {reads} READs, {torn} torn and read again")?;
        if *given_up > 0 {
            write!(f, ", {given_up} slots torn {TORN_MAX} times and left out")?;
        }
        if *unknown > 0 {
            write!(f, ", {unknown} values that are no books")?;
        }
        Ok(())
    }
}

fn show(book: &BookSnapshot, is_json: bool) -> Result<(), Box<dyn Error>> {
    let text = if is_json { json_of(book) } else { table_of(book) };
    let mut stdout = io::stdout().lock();
    Ok(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())?)
}

fn json_of(book: &BookSnapshot) -> String {
    let levels = |side| -> Vec<_> {
        book.levels(side).map(|(price, qty)| json!({ "price": price.to_string(), "qty": qty })).collect()
    };
    let LastEvent { seq, exchange_ns, receive_ns } = book.last();
    let object = json!({
        "symbol": book.symbol().to_string(),
        "channel": book.channel(),
        "seq": seq,
        "exchange_ns": exchange_ns,
        "receive_ns": receive_ns,
        "stale": book.is_stale(),
        "unconfirmed": book.is_unconfirmed(),
        "bids": levels(Side::Buy),
        "asks": levels(Side::Sell),
    });
    format!("{object}\n")
}

fn table_of(book: &BookSnapshot) -> String {
    let LastEvent { seq, exchange_ns, .. } = book.last();
    let worth = match (book.is_stale(), book.is_unconfirmed()) {
        (true, _) => "  STALE",
        (false, true) => "  unconfirmed",
        (false, false) => "",
    };
    let mut text =
        format!("{}  channel {}  seq {seq}  exchange {exchange_ns} ns{worth}\n", book.symbol(), book.channel());
    let (mut bids, mut asks) = (book.levels(Side::Buy), book.levels(Side::Sell));
    let cells = |level: Option<(Price9, u64)>| {
        level.map_or_else(Default::default, |(price, qty)| (price.to_string(), qty.to_string()))
    };
    loop {
        let (bid, ask) = (bids.next(), asks.next());
        if bid.is_none() && ask.is_none() {
            return text;
        }
        let ((bid_px, bid_qty), (ask_px, ask_qty)) = (cells(bid), cells(ask));
        let _ = writeln!(text, "{bid_qty:>12} {bid_px:>14}   {ask_px:<14} {ask_qty}");
    }
}

#[cfg(test)]
mod tests {
    use ::rdma::snapshot::TABLES_MAX;

    use super::*;

    fn offer(slots: u32, tables: usize) -> Offer {
        let table = Table { address: 0x1000, rkey: 1, slots };
        Offer { schema: BookSnapshot::SCHEMA, value_len: VALUE_LEN as u32, tables: vec![table; tables] }
    }

    #[test]
    fn slot_that_another_instrument_has_got_is_not_shown_as_a_change_of_the_one_before() {
        let [ours, others] = ["AAPL", "MSFT"].map(|name| Symbol::new(name).unwrap());
        let shown = Shown { remote: Remote::default(), version: 4, symbol: ours };
        for (version, symbol, found) in [
            (4, ours, Found::Same),
            (6, ours, Found::Changed),
            (6, others, Found::Other),
            (6, Symbol::NONE, Found::Other),
        ] {
            assert_eq!(shown.find(version, symbol), found);
        }
    }

    #[test]
    fn each_slot_of_each_table_is_in_one_read() {
        let mut offer = offer(2 * TOGETHER + 1, 2);
        offer.tables[1] = Table { slots: TOGETHER, rkey: 2, ..offer.tables[1] };
        let [len, all] = [SLOT_LEN as u64, u64::from(TOGETHER)];
        let at = |rkey, slot| Remote { address: 0x1000 + slot * len, rkey };
        let whole = |rkey, slot| (at(rkey, slot), TOGETHER);
        assert_eq!(batches(&offer), [whole(1, 0), whole(1, all), (at(1, 2 * all), 1), whole(2, 0)]);
        assert_eq!(batches(&self::offer(0, 1)), []);
    }

    #[test]
    fn peer_that_offers_more_slots_than_are_allowed_is_refused_with_the_option_that_allows_them() {
        assert_eq!(check_slots(&offer(SLOTS_MAX as u32, 1), SLOTS_MAX), Ok(()));
        assert_eq!(check_slots(&offer(16_384, TABLES_MAX), SLOTS_MAX), Ok(()));
        let all = u64::from(u32::MAX) * TABLES_MAX as u64;
        for (offer, slots, slots_max) in [
            (offer(SLOTS_MAX as u32 + 1, 1), SLOTS_MAX + 1, SLOTS_MAX),
            (offer(3, 2), 6, 5),
            // The sum does not fit 32 bits.
            (offer(u32::MAX, TABLES_MAX), all, u32::MAX.into()),
        ] {
            let why = check_slots(&offer, slots_max).unwrap_err();
            assert_eq!(
                why,
                format!("the peer offers {slots} slots, more than {slots_max}: if it is trusted, --slots-max {slots}")
            );
        }
    }
}
