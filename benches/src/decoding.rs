//! Packets of messages and their decoders: from the bytes of a datagram to normalized events.

use std::hint::black_box;
use std::time;

use exchange_sim::Settings;
use market::framing::iex_tp::{IexHeader, IexTp};
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::framing::{Framing, PacketWriter};
use market::iex::messages::{AuctionInfo, Head, QuoteUpdate, Trade};
use market::iex::tops16::Tops16;
use market::itch50::Itch50;
use market::{Codec, MessageCounts, Symbol};
use zerocopy::IntoBytes;

use crate::frames::shuffled;

/// Messages that one pass decodes: some 250 KB, which stays in the L2 cache.
const MESSAGES: u64 = 8_000;
/// Bytes of the largest packet, as on Ethernet.
const PACKET_LEN_MAX: usize = 1_472;

/// Packets of one feed, and the decoder of its messages.
pub struct Decoding<F, C> {
    packets: Vec<Vec<u8>>,
    codec: C,
    counts: MessageCounts,
    framing: core::marker::PhantomData<F>,
}

/// MoldUDP64 with ITCH 5.0: a piece of the simulator's trading day, in its order of types.
pub fn itch() -> Decoding<MoldUdp64, Itch50> {
    const DIRECTORY_AND_OPENING: usize = 20_000;
    let settings = Settings { symbols: 100, messages: 100_000, ..Settings::default() };
    let session = exchange_sim::Session::new(&settings).skip(DIRECTORY_AND_OPENING).take(MESSAGES as usize);
    let messages = session.map(|message| message.bytes().to_vec());
    Decoding::new(Itch50, messages, |seq| MoldHeader::new(*b"0000000001", seq))
}

/// IEX-TP with TOPS 1.6: quotes, trades and auctions in the proportions of a trading day (80, 18
/// and 2 of a hundred).
pub fn tops() -> Decoding<IexTp, Tops16> {
    let messages = shuffled(100, MESSAGES as usize, 5).into_iter().enumerate().map(|(at, share)| match share {
        0..80 => quote(at as u64).as_bytes().to_vec(),
        80..98 => trade(at as u64).as_bytes().to_vec(),
        _ => auction(at as u64).as_bytes().to_vec(),
    });
    Decoding::new(Tops16, messages, |seq| IexHeader {
        protocol: IexHeader::TOPS_1_6,
        channel: 1,
        session: 1,
        count: 0,
        offset: 0,
        seq,
        sent_ns: 0,
    })
}

impl<F: Framing, C: Codec> Decoding<F, C> {
    fn new(codec: C, messages: impl Iterator<Item = Vec<u8>>, header: impl Fn(u64) -> F::Raw) -> Self {
        let mut packets: Vec<Vec<u8>> = Vec::new();
        let mut messages = messages.enumerate().peekable();
        while let Some((seq, _)) = messages.peek() {
            let mut out = [0; PACKET_LEN_MAX];
            let mut writer = PacketWriter::<F>::new(header(*seq as u64 + 1), &mut out).expect("a header fits");
            while let Some((_, message)) = messages.peek() {
                if writer.push(message).is_err() {
                    break;
                }
                messages.next();
            }
            packets.push(writer.finish().to_vec());
        }
        Self { packets, codec, counts: MessageCounts::new(), framing: core::marker::PhantomData }
    }

    /// Decodes everything once: framing checked, messages counted by type, each event passed to a
    /// consumer.
    #[inline]
    pub fn pass(&mut self) {
        for packet in &self.packets {
            let packet = F::parse(packet).expect("the packets are sound");
            for message in packet.messages() {
                if let Some(event) = self.codec.decode_counted(message, &mut self.counts) {
                    black_box(&event);
                }
            }
        }
    }

    /// Nanoseconds a message.
    pub fn time(&mut self, passes: usize) -> f64 {
        let before = self.counts.decoded();
        let start = time::Instant::now();
        for _ in 0..passes {
            self.pass();
        }
        let spent = start.elapsed().as_nanos() as f64;
        let decoded = self.counts.decoded() - before;
        assert_eq!(decoded, MESSAGES * passes as u64, "a message was not decoded");
        spent / decoded as f64
    }
}

const SYMBOL: Symbol = Symbol(*b"ZIEXT   ");

fn quote(at: u64) -> QuoteUpdate {
    QuoteUpdate {
        head: Head::new(QuoteUpdate::KIND, 0, at),
        symbol: SYMBOL,
        bid_qty: 100.into(),
        bid_px: 990_000.into(),
        ask_px: 990_100.into(),
        ask_qty: 200.into(),
    }
}

fn trade(at: u64) -> Trade {
    Trade {
        head: Head::new(Trade::KIND, 0, at),
        symbol: SYMBOL,
        qty: 100.into(),
        price: 990_000.into(),
        trade: at.into(),
    }
}

fn auction(at: u64) -> AuctionInfo {
    let mut bytes = [0; AuctionInfo::LEN];
    bytes[..10].copy_from_slice(Head::new(AuctionInfo::KIND, b'O', at).as_bytes());
    zerocopy::transmute!(bytes)
}
