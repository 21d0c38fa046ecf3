//! After construction nothing on the data path allocates: framing, arbitration, re-requests, codec,
//! books.
#![allow(clippy::unwrap_used, reason = "a test may unwrap: a panic is the report")]

use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::framing::{Framing, PacketWriter};
use market::itch50::{AddOrder, Head, Itch50, Message, OrderDelete};
use market::{
    Arbiter, Books, Codec, Line, Locate, MessageCounts, OrderBooks, Output, RerequestStep, Rerequester, RetryPolicy,
    Slots, Symbol, Window,
};
use market::{Capacity, Policy, Verdict};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// The packet with numbers `[seq, seq + 2)`: adds an order and deletes the one of sixteen packets
/// ago.
fn packet(seq: u64, out: &mut [u8]) -> &[u8] {
    let order = seq / 2;
    let add = AddOrder {
        head: Head::new(AddOrder::KIND, Locate(1), seq),
        order: order.into(),
        side: if order.is_multiple_of(2) { b'B' } else { b'S' },
        shares: 100.into(),
        stock: Symbol(*b"AAPL    "),
        price: (1_000_000 + (order % 37) as u32 * 100).into(),
    };
    let head = Head::new(OrderDelete::KIND, Locate(1), seq);
    let delete = OrderDelete { head, order: order.wrapping_sub(16).into() };
    let mut writer = PacketWriter::<MoldUdp64>::new(MoldHeader::new(*b"0123456789", seq), out).unwrap();
    writer.push(Message::from(&add).as_bytes()).unwrap();
    writer.push(Message::from(&delete).as_bytes()).unwrap();
    writer.finish()
}

struct Handler {
    arbiter: Arbiter<market::Slot>,
    rerequester: Rerequester,
    slots: Slots,
    counts: MessageCounts,
    books: OrderBooks,
}

impl Handler {
    fn hear(&mut self, line: Line, bytes: &[u8], now_ns: u64) {
        let header = MoldUdp64::parse(bytes).unwrap().header;
        let verdict = self.arbiter.offer(line, &header, now_ns);
        self.take(verdict, bytes, now_ns);
        let mut out = [0; 256];
        while let Some(step) = self.rerequester.poll(self.arbiter.missing(), now_ns) {
            match step {
                // The server ignores each third request.
                RerequestStep::Request(ask) if !(ask.seq / 2).is_multiple_of(3) => {
                    let answer = packet(ask.seq, &mut out);
                    let verdict = self.arbiter.offer_answer(&MoldUdp64::parse(answer).unwrap().header);
                    self.rerequester.answer_received();
                    self.take(verdict, answer, now_ns);
                }
                RerequestStep::Request(_) => {}
                RerequestStep::GiveUp(_) => self.arbiter.give_up(),
            }
        }
    }

    fn take(&mut self, verdict: Verdict, bytes: &[u8], now_ns: u64) {
        match verdict {
            Verdict::Deliver { skip } => self.deliver(bytes, skip),
            Verdict::Discard => {}
            Verdict::Keep => {
                let slot = self.slots.copy_in(bytes).unwrap();
                self.arbiter.keep(slot).unwrap();
            }
        }
        while let Some(output) = self.arbiter.poll(now_ns) {
            match output {
                Output::Deliver { handle, skip } => {
                    let mut bytes = [0; 256];
                    let kept = self.slots.get(&handle);
                    bytes[..kept.len()].copy_from_slice(kept);
                    let len = kept.len();
                    self.slots.free(handle);
                    self.deliver(&bytes[..len], skip);
                }
                Output::Discard { handle } => self.slots.free(handle),
                // Orders whose delete was lost would stay for ever.
                Output::Gap(_) => self.books.clear(),
                Output::LateJoin(_) | Output::Restart | Output::EndOfSession => {}
            }
        }
    }

    fn deliver(&mut self, bytes: &[u8], skip: u32) {
        for message in MoldUdp64::parse(bytes).unwrap().messages().skip(skip as usize) {
            if let Some(event) = Itch50.decode_counted(message, &mut self.counts) {
                self.books.apply(&event);
            }
        }
    }
}

#[test]
fn a_hundred_thousand_packets_on_two_lines_allocate_nothing() {
    let mut handler = Handler {
        arbiter: Arbiter::new(2, Policy::default(), Window { packets: 8, wait_ns: 1_000 }),
        rerequester: Rerequester::new(RetryPolicy {
            delay_ns: 400,
            timeout_ns: 100,
            attempts: 2,
            interval_ns: 0,
            ..RetryPolicy::default()
        }),
        slots: Slots::new(17, 256),
        counts: MessageCounts::new(),
        books: OrderBooks::new(Capacity { books: 4, orders: 64, levels: 64 }),
    };
    let mut out = [0; 256];
    let before = allocations::count();
    for number in 0..100_000_u64 {
        let seq = 1 + number * 2;
        // Line A loses every seventh packet, line B every eleventh; some are lost on both. B lags
        // three packets.
        if !number.is_multiple_of(7) {
            handler.hear(Line::A, packet(seq, &mut out), number * 100);
        }
        if number >= 3 && !(number - 3).is_multiple_of(11) {
            handler.hear(Line::B, packet(seq - 6, &mut out), number * 100 + 50);
        }
    }
    assert_eq!(allocations::count() - before, 0);
    let sequence = handler.arbiter.counts();
    assert_eq!(sequence.delivered + sequence.missing, 200_000);
    assert_eq!(handler.counts.total(), sequence.delivered);
    let holes = handler.arbiter.holes();
    assert!(holes.healed > 10_000 && sequence.gaps > 100 && holes.recovered > 100, "{sequence:?} {holes:?}");
    assert_eq!(handler.books.counts().orders_full, 0);
}
