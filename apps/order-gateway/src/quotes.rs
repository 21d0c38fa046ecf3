//! Quotes of a market-gateway: the best prices of our instruments out of its ring in shared memory,
//! whatever format the feed has and however it is recovered.
//!
//! ```text
//!   market-gateway: feed, recovery, books ─▶ ring ─ quotes ─▶ Quotes ─ BookEvent ─▶ Strategy
//!                                                └ life of channels ─▶ the books are not silent
//! ```
//!
//! A quote that is stale or unconfirmed there is stale here, and one whose channel has not lived
//! since we look may be of yesterday. Where the ring does not tell whether a channel lives, its
//! quotes stay stale, and a person is told why. So do those of an instrument that two channels
//! bring by one name, until the configuration says which of them is meant. A gateway that has ended
//! makes all our books stale; its ring is opened again when there is another one.

use std::path::{Path, PathBuf};

use market::{Price, Symbol};
use market_ring::{Flags, Quote, RingReader};
use order_entry::risk::InstrumentIdx;

use crate::strategy::BookEvent;

/// Time between two looks for a ring that is not there, and for a writer that is silent: both are
/// system calls.
const LOOK_NS: u64 = 200_000_000;
/// A channel that has brought a quote and has never lived for so long is one of a writer that tells
/// no life: a feed's heartbeats, and its packets, come more often.
const LIFELESS_NS: u64 = 5_000_000_000;

/// The quotes of our instruments.
pub struct Quotes {
    path: PathBuf,
    ring: Option<Ring>,
    look_at_ns: u64,
    instruments: Box<[Followed]>,
    /// See [`Quotes::lifeless`].
    lifeless: u64,
}

/// An instrument of ours.
struct Followed {
    /// What the feed calls it.
    symbol: Symbol,
    /// The only channel that is meant, where that is configured.
    wanted: Option<u16>,
    /// The channel that brings it, once there is a quote.
    channel: Option<u16>,
    /// The place of its quote in the ring.
    place: usize,
    /// Another channel brings it too, and which is meant is not known.
    is_ambiguous: bool,
    /// What was seen of that channel's life.
    life: Option<u64>,
    /// The channel has lived since it was first seen: before, a quote may be of yesterday.
    is_alive: bool,
    /// When the channel was first seen.
    since_ns: u64,
    /// A person knows that the channel has no life.
    is_told: bool,
    /// When the market-gateway had the packet of its last prices.
    receive_ns: u64,
    book: BookEvent,
}

/// A ring that is open.
struct Ring {
    reader: RingReader,
    /// Of each quote: the name that it had last, and our instrument of that name.
    known: Box<[(Symbol, Option<InstrumentIdx>)]>,
}

impl Quotes {
    /// Follows instruments by the names that the feed has for them; their positions are their
    /// numbers. The ring need not be there yet.
    pub fn new(path: &Path, symbols: &[Symbol]) -> Self {
        let instruments =
            (0..).zip(symbols).map(|(number, &symbol)| Followed::new(InstrumentIdx(number), symbol, None));
        Self { path: path.to_owned(), ring: None, look_at_ns: 0, instruments: instruments.collect(), lifeless: 0 }
    }

    /// Takes quotes of an instrument from one channel alone, where `channels` names one. Their
    /// positions are those of the instruments.
    #[must_use]
    pub fn with_channels(mut self, channels: &[Option<u16>]) -> Self {
        self.instruments.iter_mut().zip(channels).for_each(|(followed, wanted)| followed.wanted = *wanted);
        self
    }

    /// Gives what is new to `take`. Returns whether there was anything.
    pub fn poll(&mut self, now_ns: u64, mut take: impl FnMut(News<'_>)) -> bool {
        let Self { ring: Some(Ring { reader, known }), instruments, lifeless, .. } = self else {
            return self.look_for_ring(now_ns, &mut take);
        };
        let mut is_busy = false;
        reader.read_quotes(|idx, conflated| {
            let quote = conflated.quote;
            if known[idx].0 != quote.symbol {
                known[idx] = (quote.symbol, find(instruments, quote.symbol));
            }
            let Some(instrument) = known[idx].1 else { return };
            let followed = &mut instruments[instrument.0 as usize];
            match followed.choose(idx, quote.channel, |place| known[place].0 == quote.symbol) {
                Chosen::Ours => {
                    is_busy = true;
                    let before = (followed.receive_ns, followed.book.bid, followed.book.offer);
                    let book = followed.quote(&quote, now_ns);
                    // Where flags alone are others, no packet brought them, and the time is that of
                    // the last price.
                    if quote.receive_ns > 0 && before != (quote.receive_ns, book.bid, book.offer) {
                        take(News::Packet(quote.receive_ns));
                    }
                    take(News::Book(&book));
                }
                Chosen::Others => (),
                Chosen::Second(channels) => {
                    is_busy = true;
                    take(News::Book(&BookEvent { is_stale: true, at_ns: now_ns, ..followed.book }));
                    take(News::Ambiguous(followed.symbol, channels));
                }
            }
        });
        for followed in instruments.iter_mut() {
            let Some(channel) = followed.channel else { continue };
            let life = reader.life(channel);
            if let Some(news) = followed.live(life, now_ns) {
                is_busy = true;
                take(news);
            } else if life == 0 && followed.is_lifeless(channel, now_ns) {
                *lifeless += 1;
                take(News::Lifeless(followed.symbol, channel));
            }
        }
        if is_busy {
            self.look_at_ns = now_ns.saturating_add(LOOK_NS);
        } else if now_ns >= self.look_at_ns {
            self.look_at_ns = now_ns.saturating_add(LOOK_NS);
            // Where that cannot be told, silence stops orders in time.
            if reader.is_writer_gone().unwrap_or(false) {
                self.lose(now_ns, &mut take);
            }
        }
        is_busy
    }

    /// Instruments that stayed stale because nothing tells whether their channel lives.
    pub const fn lifeless(&self) -> u64 {
        self.lifeless
    }

    /// Opens the ring where it is there, once in a while.
    #[cold]
    fn look_for_ring(&mut self, now_ns: u64, take: &mut impl FnMut(News<'_>)) -> bool {
        if now_ns < self.look_at_ns {
            return false;
        }
        self.look_at_ns = now_ns.saturating_add(LOOK_NS);
        let Ok(reader) = RingReader::open(&self.path) else { return false };
        // The file of a writer that was killed stays behind.
        if reader.is_writer_gone().unwrap_or(true) {
            return false;
        }
        let known = vec![(Symbol::NONE, None); reader.quotes()].into();
        self.ring = Some(Ring { reader, known });
        take(News::Opened(&self.path));
        true
    }

    /// The gateway has ended: no book of ours is known any more.
    #[cold]
    fn lose(&mut self, now_ns: u64, take: &mut impl FnMut(News<'_>)) {
        self.ring = None;
        for followed in &mut self.instruments {
            *followed = Followed::new(followed.book.instrument, followed.symbol, followed.wanted);
            take(News::Book(&BookEvent { is_stale: true, at_ns: now_ns, ..followed.book }));
        }
        take(News::Lost(&self.path));
    }
}

impl Followed {
    fn new(instrument: InstrumentIdx, symbol: Symbol, wanted: Option<u16>) -> Self {
        Self {
            symbol,
            wanted,
            channel: None,
            place: 0,
            is_ambiguous: false,
            life: None,
            is_alive: false,
            since_ns: 0,
            is_told: false,
            receive_ns: 0,
            book: BookEvent { instrument, ..BookEvent::default() },
        }
    }

    /// Whether a quote of our name at `place` of the ring, of this channel, is ours. `has_our_name`
    /// says whether the quote at a place still has our name: the ring gives places to others.
    fn choose(&mut self, place: usize, channel: u16, has_our_name: impl Fn(usize) -> bool) -> Chosen {
        if self.wanted.is_some_and(|wanted| wanted != channel) {
            return Chosen::Others;
        }
        match self.channel {
            Some(first) if first != channel && self.place != place && has_our_name(self.place) => {
                match core::mem::replace(&mut self.is_ambiguous, true) {
                    true => Chosen::Others,
                    false => Chosen::Second([first, channel]),
                }
            }
            _ => {
                self.place = place;
                Chosen::Ours
            }
        }
    }

    /// Takes a quote; stale until its channel lives.
    fn quote(&mut self, quote: &Quote, now_ns: u64) -> BookEvent {
        if self.channel.replace(quote.channel) != Some(quote.channel) {
            (self.life, self.is_alive, self.since_ns, self.is_told) = (None, false, now_ns, false);
        }
        self.book = event(self.book.instrument, quote, now_ns);
        self.receive_ns = quote.receive_ns;
        self.book.is_stale |= self.is_ambiguous;
        BookEvent { is_stale: self.book.is_stale || !self.is_alive, ..self.book }
    }

    /// Whether nothing will tell that its channel, which has not lived so far, does; once.
    #[cold]
    fn is_lifeless(&mut self, channel: u16, now_ns: u64) -> bool {
        let has_no_place = usize::from(channel) >= RingReader::LIVES;
        let is_lifeless = has_no_place || now_ns.saturating_sub(self.since_ns) >= LIFELESS_NS;
        is_lifeless && !core::mem::replace(&mut self.is_told, true)
    }

    /// Compares its channel's life with what was seen of it. The first that is new makes its quote
    /// one of now.
    fn live(&mut self, life: u64, now_ns: u64) -> Option<News<'_>> {
        if self.life.replace(life).is_none_or(|seen| seen == life) {
            return None;
        }
        if core::mem::replace(&mut self.is_alive, true) {
            return Some(News::Alive(self.book.instrument));
        }
        self.book.at_ns = now_ns;
        self.book.is_stale |= self.is_ambiguous;
        Some(News::Book(&self.book))
    }
}

/// Whose a quote with the name of an instrument of ours is.
enum Chosen {
    /// The instrument's.
    Ours,
    /// That of another channel.
    Others,
    /// That of a second channel, for the first time: which of both is meant is not known.
    Second([u16; 2]),
}

/// What a look into the ring has found.
#[derive(Debug)]
pub enum News<'a> {
    /// The market-gateway had the packet of the next book at this time since 1970.
    Packet(u64),
    /// The best prices of an instrument.
    Book(&'a BookEvent),
    /// The channel that brings an instrument lives, though its best prices are as they were.
    Alive(InstrumentIdx),
    /// The ring does not tell whether this channel lives, so that the quotes of this instrument of
    /// the feed stay stale: it has no place for the channel, or its writer is of an older version.
    Lifeless(Symbol, u16),
    /// Both channels bring quotes of this name of the feed: they stay stale, because which of them
    /// is meant is not known.
    Ambiguous(Symbol, [u16; 2]),
    /// There is a gateway.
    Opened(&'a Path),
    /// There is none any more.
    Lost(&'a Path),
}

fn find(instruments: &[Followed], symbol: Symbol) -> Option<InstrumentIdx> {
    let number = instruments.iter().position(|followed| followed.symbol == symbol)?;
    Some(InstrumentIdx(number as u32))
}

fn event(instrument: InstrumentIdx, quote: &Quote, at_ns: u64) -> BookEvent {
    let side = |price: Price, qty: u64| (qty > 0).then(|| (price, u32::try_from(qty).unwrap_or(u32::MAX)));
    let is_stale = quote.flags.contains(Flags::STALE) || quote.flags.contains(Flags::UNCONFIRMED);
    let (bid, offer) = (side(quote.bid_px, quote.bid_qty), side(quote.ask_px, quote.ask_qty));
    let is_halted = quote.flags.contains(Flags::HALTED);
    BookEvent { instrument, bid, offer, is_stale, is_halted, at_ns }
}

#[cfg(test)]
mod tests {
    use market_ring::{RingConfig, RingWriter};
    use tempfile::tempdir;

    use super::*;

    const OURS: [Symbol; 2] = [Symbol(*b"AAPL    "), Symbol::from_number(5_485)];
    const SECOND: u64 = 1_000_000_000;

    fn writer(path: &Path) -> RingWriter {
        RingWriter::create(path, &RingConfig { records: 64, quotes: 64, ..RingConfig::default() }).unwrap()
    }

    fn quote(symbol: Symbol, channel: u16, bid_px: i64, flags: Flags) -> Quote {
        Quote {
            symbol,
            channel,
            bid_px: Price(bid_px),
            bid_qty: 5,
            ask_px: Price(bid_px + 2),
            ask_qty: u64::MAX,
            flags,
            venue_seq: 1,
            exchange_ns: 1,
            receive_ns: 1,
            publish_ns: 0,
        }
    }

    /// What a look finds, in words.
    fn look(quotes: &mut Quotes, now_ns: u64) -> Vec<String> {
        let mut found = Vec::new();
        quotes.poll(now_ns, |news| {
            found.push(match news {
                News::Packet(_) => return,
                News::Book(book) => {
                    let bid = book.bid.map_or(0, |(price, _)| price.0);
                    format!("{} {bid}{}", book.instrument.0, if book.is_stale { " stale" } else { "" })
                }
                News::Alive(instrument) => format!("{} lives", instrument.0),
                News::Lifeless(symbol, channel) => format!("{symbol} of {channel} has no life"),
                News::Ambiguous(symbol, [one, other]) => format!("{symbol} of {one} or {other}"),
                News::Opened(_) => "opened".into(),
                News::Lost(_) => "lost".into(),
            });
        });
        found
    }

    #[test]
    fn quotes_of_our_instruments_are_found_by_the_names_of_the_feed_and_no_others() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("ring");
        let mut quotes = Quotes::new(&path, &OURS);
        assert_eq!(look(&mut quotes, 0), [""; 0], "there is no ring yet");
        let mut ring = writer(&path);
        assert_eq!(look(&mut quotes, 1), [""; 0], "it is not looked for each turn");
        assert_eq!(look(&mut quotes, SECOND), ["opened"]);
        let none = Flags::default();
        ring.update(1, &quote(OURS[1], 0, 99, none));
        ring.update(2, &quote(OURS[0], 3, 199, none));
        assert_eq!(look(&mut quotes, SECOND), ["1 99 stale", "0 199 stale"], "they may be of yesterday");
        [0, 3].into_iter().for_each(|channel| ring.alive(channel));
        assert_eq!(look(&mut quotes, SECOND), ["0 199", "1 99"]);
        ring.update(0, &quote(Symbol(*b"MSFT    "), 0, 9, none));
        ring.update(1, &quote(OURS[1], 0, 100, none));
        ring.update(2, &quote(OURS[0], 3, 200, Flags::UNCONFIRMED));
        assert_eq!(look(&mut quotes, SECOND), ["1 100", "0 200 stale"]);
        ring.update(2, &quote(OURS[0], 3, 201, none));
        assert_eq!(look(&mut quotes, SECOND), ["0 201"]);
        // Its place is another instrument's now.
        ring.update(2, &quote(OURS[1], 0, 7, Flags::STALE));
        assert_eq!(look(&mut quotes, SECOND), ["1 7 stale"]);
    }

    #[test]
    fn quote_of_which_flags_alone_are_others_is_of_no_packet() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("ring");
        let mut ring = writer(&path);
        let mut quotes = Quotes::new(&path, &OURS);
        assert_eq!(look(&mut quotes, 0), ["opened"]);
        let halted = Quote { flags: Flags::HALTED, ..quote(OURS[0], 3, 1, Flags::default()) };
        let trades_again = Quote { flags: Flags::default(), ..halted };
        let in_the_same_packet = Quote { bid_px: Price(2), ..trades_again };
        let later = Quote { receive_ns: 9, ..in_the_same_packet };
        let told = [(halted, Some(1)), (trades_again, None), (in_the_same_packet, Some(1)), (later, Some(9))];
        for (quote, packet_ns) in told {
            ring.update(0, &quote);
            let mut found = None;
            quotes.poll(0, |news| {
                if let News::Packet(at_ns) = news {
                    found = Some(at_ns);
                }
            });
            assert_eq!(found, packet_ns, "{quote:?}");
        }
    }

    #[test]
    fn channel_that_lives_keeps_its_instruments_alive_and_no_others() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("ring");
        let mut ring = writer(&path);
        let mut quotes = Quotes::new(&path, &OURS);
        assert_eq!(look(&mut quotes, 0), ["opened"]);
        ring.alive(3);
        assert_eq!(look(&mut quotes, 0), [""; 0], "nothing of ours is known to be there");
        ring.update(0, &quote(OURS[0], 3, 1, Flags::default()));
        ring.update(1, &quote(OURS[1], 4, 2, Flags::default()));
        assert_eq!(look(&mut quotes, 0), ["0 1 stale", "1 2 stale"]);
        assert_eq!(look(&mut quotes, 0), [""; 0]);
        for (channel, found) in [(4, "1 2"), (4, "1 lives"), (3, "0 1"), (4, "1 lives"), (3, "0 lives")] {
            ring.alive(channel);
            assert_eq!(look(&mut quotes, 0), [found]);
        }
        assert_eq!(look(&mut quotes, 0), [""; 0]);
        // Its quote is another channel's now, which has not lived yet.
        ring.update(0, &quote(OURS[0], 4, 1, Flags::default()));
        assert_eq!(look(&mut quotes, 0), ["0 1 stale"]);
    }

    #[test]
    fn channels_whose_life_the_ring_does_not_tell_are_named_once_and_counted() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("ring");
        let mut ring = writer(&path);
        let mut quotes = Quotes::new(&path, &OURS);
        assert_eq!(look(&mut quotes, 0), ["opened"]);
        // The ring has no place for the one, and its old writer says nothing of the other.
        let last = u16::try_from(RingReader::LIVES).unwrap();
        ring.update(0, &quote(OURS[0], last, 1, Flags::default()));
        ring.update(1, &quote(OURS[1], 4, 2, Flags::default()));
        assert_eq!(look(&mut quotes, 1), ["0 1 stale", "1 2 stale", "AAPL of 448 has no life"]);
        assert_eq!(look(&mut quotes, 5 * SECOND), [""; 0], "it may be about to");
        assert_eq!(look(&mut quotes, 5 * SECOND + 1), ["#5485 of 4 has no life"]);
        ring.alive(4);
        assert_eq!((look(&mut quotes, 6 * SECOND), quotes.lifeless()), (vec!["1 2".into()], 2));
    }

    #[test]
    fn quotes_of_one_name_by_two_channels_are_stale_until_the_channel_is_said() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("ring");
        let mut ring = writer(&path);
        let (mut unsaid, mut said) = (Quotes::new(&path, &OURS), Quotes::new(&path, &OURS).with_channels(&[Some(4)]));
        for quotes in [&mut unsaid, &mut said] {
            assert_eq!(look(quotes, 0), ["opened"]);
        }
        let none = Flags::default();
        ring.update(0, &quote(OURS[0], 3, 1, none));
        look(&mut unsaid, 0);
        ring.alive(3);
        assert_eq!((look(&mut unsaid, 0), look(&mut said, 0)), (vec!["0 1".into()], vec![]));
        ring.update(1, &quote(OURS[0], 4, 2, none));
        assert_eq!(look(&mut unsaid, 0), ["0 1 stale", "AAPL of 3 or 4"]);
        assert_eq!(look(&mut said, 0), ["0 2 stale"]);
        [3, 4].into_iter().for_each(|channel| ring.alive(channel));
        assert_eq!((look(&mut unsaid, 0), look(&mut said, 0)), (vec!["0 lives".into()], vec!["0 2".into()]));
        ring.update(0, &quote(OURS[0], 3, 5, none));
        ring.update(1, &quote(OURS[0], 4, 6, none));
        assert_eq!(look(&mut unsaid, 0), ["0 5 stale"]);
        assert_eq!(look(&mut said, 0), ["0 6"]);
    }

    #[test]
    fn halted_instrument_of_a_ring_is_told_with_its_quote() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("ring");
        let mut ring = writer(&path);
        let mut quotes = Quotes::new(&path, &OURS[..1]);
        let mut halts = Vec::new();
        for flags in [Flags::default(), Flags::HALTED, Flags::default()] {
            ring.update(0, &quote(OURS[0], 0, 5, flags));
            for _ in 0..2 {
                quotes.poll(0, |news| {
                    halts.extend(if let News::Book(book) = news { Some(book.is_halted) } else { None })
                });
            }
        }
        assert_eq!(halts, [false, true, false]);
    }

    #[test]
    fn gateway_that_ends_leaves_stale_books_and_its_next_one_is_found() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("ring");
        let mut ring = writer(&path);
        let mut quotes = Quotes::new(&path, &OURS[..1]);
        ring.update(0, &quote(OURS[0], 0, 5, Flags::default()));
        assert_eq!((look(&mut quotes, 0), look(&mut quotes, 0)), (vec!["opened".into()], vec!["0 5 stale".into()]));
        drop(ring);
        assert_eq!(look(&mut quotes, 1), [""; 0]);
        assert_eq!(look(&mut quotes, SECOND), ["0 0 stale", "lost"]);
        let mut ring = writer(&path);
        ring.update(0, &quote(OURS[0], 0, 6, Flags::default()));
        assert_eq!(look(&mut quotes, 2 * SECOND), ["opened"]);
        assert_eq!(look(&mut quotes, 2 * SECOND), ["0 6 stale"]);
        ring.alive(0);
        assert_eq!(look(&mut quotes, 2 * SECOND), ["0 6"]);
    }
}
