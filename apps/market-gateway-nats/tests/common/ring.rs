//! A ring to publish, for the tests of each gateway to a broker.

use std::path::PathBuf;

use market::event::{Add, Event};
use market::{Locate, OrderRef, Price, Side, Symbol};
use market_ring::{Record, RingConfig, RingReader, RingWriter};
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
