//! A ring to publish, for the tests of each gateway to a broker.

use std::path::PathBuf;

use market::event::{Add, Event};
use market::{Locate, OrderRef, Price, Side, Symbol};
use market_ring::{Flags, Quote, Record, RingConfig, RingReader, RingWriter};
use tempfile::TempDir;

/// A ring with its folder.
pub(crate) struct Ring {
    pub(crate) writer: RingWriter,
    path: PathBuf,
    _folder: TempDir,
}

impl Ring {
    pub(crate) fn new(records: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        let writer = RingWriter::create(&path, &RingConfig { records, quotes: 64, ..RingConfig::default() }).unwrap();
        Self { writer, path, _folder: folder }
    }

    /// A copy of the file as it is now, beside it.
    pub(crate) fn copy(&self) -> PathBuf {
        let copy = self.path.with_extension("copy");
        std::fs::copy(&self.path, &copy).unwrap();
        copy
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Changes the quotes of two instruments some times, and calls `turn` after each; then ends the
    /// ring. Returns what a late joiner gets: the last of each, stale.
    pub(crate) fn change_quotes(mut self, mut turn: impl FnMut()) -> [Quote; 2] {
        let quote = |symbol: &str, bid_qty| Quote {
            symbol: Symbol::new(symbol).unwrap(),
            bid_px: Price(5),
            bid_qty,
            flags: Flags::END_OF_EVENT,
            ..Quote::default()
        };
        for bid_qty in 1..=3 {
            self.writer.update(0, &quote("AAPL", bid_qty));
            self.writer.update(9, &quote("BRK.B", 10 * bid_qty));
            self.writer.publish(&record(bid_qty));
            turn();
        }
        [quote("AAPL", 3), quote("BRK.B", 30)].map(|quote| Quote { flags: quote.flags.and(Flags::STALE), ..quote })
    }

    pub(crate) fn reader(&self) -> RingReader {
        RingReader::open(&self.path).unwrap()
    }
}

pub(crate) fn record(number: u64) -> Record {
    let event = Event::Add(Add {
        locate: Locate(7),
        side: if number.is_multiple_of(2) { Side::Buy } else { Side::Sell },
        qty: 100,
        at_ns: number,
        order: OrderRef(number),
        price: Price(10_000 + (number % 100) as i64),
        symbol: Symbol::new("AAPL").unwrap(),
    });
    Record { channel: (number % 3) as u16, ..Record::new(number + 1, event) }
}
