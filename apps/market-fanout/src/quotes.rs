//! The latest quotes, each by a key of its own. Between two rounds only the last one of each
//! counts.
//!
//! A quote is known by its channel and its symbol, not by its place in the ring: after an image the
//! places are others. One whose instrument has left its place without taking another is sent once
//! more as stale, because a late joiner would take it for the market.

use std::collections::BTreeMap;

use market::Symbol;
use market_ring::{Conflated, Flags, Quote, RingReader};

/// An instrument of a channel.
type Key = (u16, [u8; 8]);

/// Quotes as they were sent last, so that all can be sent again after an outage.
#[derive(Debug, Default)]
pub(crate) struct Quotes {
    /// Whose quote is at each place of the ring.
    places: Vec<Option<Key>>,
    latest: BTreeMap<Key, LatestQuote>,
}

/// The latest quote of an instrument.
#[derive(Debug)]
pub struct LatestQuote {
    /// The symbol as letters, digits and `_`, or `id-` and a number: no other symbol has the same.
    pub token: String,
    /// The quote.
    pub quote: Quote,
    /// Changes that were never sent.
    pub merged: u64,
    /// Its place in the ring, where it was seen last.
    place: usize,
    is_sent: bool,
}

impl Quotes {
    /// Takes over what has changed.
    pub(crate) fn read(&mut self, ring: &mut RingReader) {
        self.places.resize(ring.quotes(), None);
        ring.read_quotes(|place, conflated| self.take(place, conflated));
    }

    fn take(&mut self, place: usize, Conflated { quote, merged }: Conflated) {
        let key = (quote.symbol != Symbol::NONE).then_some((quote.channel, quote.symbol.0));
        let before = core::mem::replace(&mut self.places[place], key);
        if let Some(gone) = before.filter(|_| before != key).and_then(|key| self.latest.get_mut(&key))
            && gone.place == place
        {
            gone.mark_stale();
        }
        let Some(key) = key else { return };
        let latest = self.latest.entry(key).or_insert_with(|| LatestQuote {
            token: token(quote.symbol),
            quote,
            place,
            merged: 0,
            is_sent: true,
        });
        let unsent = if latest.is_sent { 0 } else { latest.merged + 1 };
        (latest.quote, latest.place, latest.merged, latest.is_sent) = (quote, place, merged + unsent, false);
    }

    /// The ring is written no more: its quotes say nothing about the market.
    pub(crate) fn mark_stale(&mut self) {
        self.places.clear();
        self.latest.values_mut().for_each(LatestQuote::mark_stale);
    }

    /// All are to be sent again.
    pub(crate) fn forget(&mut self) {
        self.latest.values_mut().for_each(|latest| latest.is_sent = false);
    }

    /// Shows what has changed, and counts it as sent. Returns how many.
    pub(crate) fn send(&mut self, mut each: impl FnMut(&LatestQuote)) -> u64 {
        let mut count = 0;
        for latest in self.latest.values_mut().filter(|latest| !latest.is_sent) {
            each(latest);
            (latest.is_sent, count) = (true, count + 1);
        }
        count
    }
}

impl LatestQuote {
    fn mark_stale(&mut self) {
        if !self.quote.flags.contains(Flags::STALE) {
            (self.quote.flags, self.is_sent) = (self.quote.flags.and(Flags::STALE), false);
        }
    }
}

/// A symbol as a token, other than that of any other symbol. Of a name, letters and digits stay,
/// and others are `_` and two hexadecimal digits, because dots, stars and spaces have a meaning in
/// a broker's subjects. So no name has the `-` of a number.
fn token(symbol: Symbol) -> String {
    if let Some(number) = symbol.number() {
        return format!("id-{number}");
    }
    // Names are padded with spaces, and with nothing else.
    let name_len = symbol.0.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    let mut token = String::new();
    for &byte in &symbol.0[..name_len] {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => token.push(char::from(byte)),
            other => token.push_str(&format!("_{other:02x}")),
        }
    }
    if token.is_empty() { "_".to_owned() } else { token }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quote(symbol: &str, bid_qty: u64) -> Conflated {
        let symbol = Symbol::new(symbol).unwrap_or_default();
        Conflated { quote: Quote { symbol, bid_qty, ..Quote::default() }, merged: 0 }
    }

    /// What is to be sent: the token, quantity, whether it is stale.
    fn unsent(quotes: &mut Quotes) -> Vec<(String, u64, bool)> {
        let unsent = quotes.latest.values_mut().filter(|latest| !latest.is_sent);
        let line = |latest: &mut LatestQuote| {
            latest.is_sent = true;
            (latest.token.clone(), latest.quote.bid_qty, latest.quote.flags.contains(Flags::STALE))
        };
        unsent.map(line).collect()
    }

    #[test]
    fn quote_that_moved_to_another_place_of_the_ring_keeps_its_token() {
        let mut quotes = Quotes { places: vec![None; 4], ..Quotes::default() };
        let take = |quotes: &mut Quotes, news: &[(usize, &str, u64)]| {
            news.iter().for_each(|&(place, symbol, qty)| quotes.take(place, quote(symbol, qty)));
            unsent(quotes)
        };
        let fresh = |symbol: &str, qty| (symbol.to_owned(), qty, false);
        assert_eq!(take(&mut quotes, &[(0, "MSFT", 1), (1, "AAPL", 2)]), [fresh("AAPL", 2), fresh("MSFT", 1)]);
        assert_eq!(take(&mut quotes, &[(0, "AAPL", 3), (1, "MSFT", 4)]), [fresh("AAPL", 3), fresh("MSFT", 4)]);
        // One whose place another has taken is stale until it has a place of its own again.
        assert_eq!(take(&mut quotes, &[(1, "IBM", 5)]), [fresh("IBM", 5), ("MSFT".to_owned(), 4, true)]);
        assert_eq!(take(&mut quotes, &[(2, "MSFT", 6), (1, "", 0)]), [("IBM".to_owned(), 5, true), fresh("MSFT", 6)]);
    }

    #[test]
    fn numbered_instruments_and_padded_names_have_tokens_of_their_own() {
        let numbers = (0..70_000).map(|number| token(Symbol::from_number(number)));
        let names = ["7", "70001", "A", "A\t", "A\n", "A\r", " A"].map(|name| token(Symbol::new(name).unwrap()));
        let mut owners = BTreeMap::new();
        for (idx, token) in numbers.chain(names).enumerate() {
            assert_eq!(owners.insert(token.clone(), idx), None, "{token}");
        }
    }

    #[test]
    fn symbols_have_no_byte_that_a_subject_gives_a_meaning_to() {
        assert_eq!(
            ["AAPL", "BRK.B", "A>*", ""].map(|name| token(Symbol::new(name).unwrap())),
            ["AAPL", "BRK_2eB", "A_3e_2a", "_"]
        );
    }
}
