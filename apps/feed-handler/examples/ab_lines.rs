//! Lines A and B of one channel: each message once and in order, from the line that brings it
//! first, and the books built from them. On a day made by `exchange-sim generate --out day.pcap`,
//! run `cargo run --release -p feed-handler --example ab_lines --
//! pcap:day.pcap`; as root, pass `eth1` for an interface.

use market::framing::mold_udp64::MoldUdp64;
use market::itch50::Itch50;
use market::{AbChannel, AbConfig, BookBuilder, Books, Line, OrderBooks};
use wirepath::prelude::*;

pub(crate) struct Feed {
    channel: AbChannel<MoldUdp64>,
    books: BookBuilder<Itch50, OrderBooks>,
}

impl Feed {
    pub(crate) fn new(capacity: market::Capacity) -> Self {
        let books = BookBuilder::new(Itch50, OrderBooks::new(capacity));
        Self { channel: AbChannel::new(AbConfig::default()), books }
    }

    /// The number of delivered messages, and of those that were on neither line.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let counts = self.channel.arbiter().counts();
        (counts.delivered, counts.missing)
    }
}

impl App for Feed {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        let line = Line(datagram.consumer.0 as usize);
        self.channel.on_packet(line, datagram.payload, cx.now.as_nanos(), &mut self.books);
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.channel.tick(cx.now.as_nanos(), &mut self.books);
    }

    fn on_stop(&mut self, _cx: &mut Cx<'_>) {
        self.channel.finish(&mut self.books);
        let (messages, missing) = self.counts();
        println!("{messages} messages, {missing} on neither line, {} books", self.books.books.len());
    }
}

/// A port that receives both lines; a datagram's `consumer` identifies its line.
pub(crate) fn both_lines(port: &str) -> wirepath::Result<Port> {
    let line = |last, consumer| multicast([233, 252, 0, last], 26_477).consumer(consumer);
    Ok(Port::open(port)?.subscribe(line(1, 0)).subscribe(line(2, 1)))
}

fn main() -> wirepath::Result<()> {
    let port = std::env::args().nth(1).unwrap_or("eth1".into());
    both_lines(&port)?.run(|_worker| Feed::new(market::Capacity::default()))
}
