//! Packets that are taken again and again, and the books that they make.

use std::time;

use market::framing::Framing;
use market::{AbChannel, AbConfig, BookBuilder, Books, Decoder, EventSink, Line};

/// Packets of a sample: some 20,000 messages.
const SAMPLE: usize = 500;

/// One line's packets through arbitration and a decoder into books, from the first message on; a
/// sink has a turn behind each packet.
pub struct Replayed<F: Framing, C, B, S = ()> {
    packets: Vec<Vec<u8>>,
    next: usize,
    channel: AbChannel<F>,
    builder: BookBuilder<C, B, S>,
    /// What must hold of the books after the last packet.
    check: fn(&B),
}

impl<F: Framing, C: Decoder + Default, B: Books> Replayed<F, C, B> {
    pub(super) fn new(packets: Vec<Vec<u8>>, books: (C, B), check: fn(&B)) -> Self {
        Self::with_sink(packets, books, (), check)
    }
}

impl<F: Framing, C: Decoder + Default, B: Books, S: EventSink> Replayed<F, C, B, S> {
    pub(super) fn with_sink(packets: Vec<Vec<u8>>, (codec, books): (C, B), sink: S, check: fn(&B)) -> Self {
        let (channel, builder) = (AbChannel::new(AbConfig::default()), BookBuilder::with_sink(codec, books, sink));
        Self { packets, next: 0, channel, builder, check }
    }

    /// Nanoseconds a message, over the next packets.
    pub fn time(&mut self) -> f64 {
        let (before, start) = (self.messages(), time::Instant::now());
        self.packets(SAMPLE);
        start.elapsed().as_nanos() as f64 / (self.messages() - before) as f64
    }

    /// Takes so many packets. The first follows the last.
    #[inline]
    pub fn packets(&mut self, count: usize) {
        for _ in 0..count {
            if self.next == self.packets.len() {
                self.begin();
            }
            self.channel.on_packet(Line::A, &self.packets[self.next], 0, &mut self.builder);
            self.builder.sink.turn(&self.builder.books, 0);
            self.next += 1;
        }
    }

    /// Messages so far.
    pub fn messages(&self) -> u64 {
        self.builder.counts.decoded()
    }

    #[cold]
    fn begin(&mut self) {
        (self.check)(&self.builder.books);
        self.builder.books.clear();
        self.channel = AbChannel::new(AbConfig::default());
        self.next = 0;
    }
}
