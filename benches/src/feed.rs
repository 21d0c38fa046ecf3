//! The feed handler's app under its worker: heartbeats of the given number of channels, in an order
//! that no predictor can learn. A heartbeat that repeats the last one changes nothing, so the
//! figure is the cost of routing to the channel and back.

use feed_handler::Format;
use feed_handler::feed::{ArrivalClock, Feed, FeedConfig, FeedLine, Sampler, SetConfig, Tops};
use feed_handler::format::MoldItch50;
use feed_handler::recovery::RecoveryPlan;
use market::framing::PacketWriter;
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::{Capacity, Policy, Window};
use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, pair};
use wirepath::proto::{ConsumerId, Group, HashSeed, SocketCapacity, UdpSockets};
use wirepath::time::MonotonicClock;

use crate::feeder::Feeder;
use crate::frames::{UdpChecksum, frame_of, group, shuffled};
use crate::receiver::{ROUND, Receiver, worker};

/// Frames until the order repeats.
const ORDER: usize = 4096;

/// A feed handler's worker and the far end of its wire.
pub type Channels = Receiver<Feed<MoldItch50>>;

impl Channels {
    /// `count` channels, each with a separate group, and all of them open.
    pub fn open(count: u32) -> Self {
        let (port, far_port) = pair("bench", MemoryConfig::default());
        let block = Block::heap();
        let frames = (0..count).map(|idx| frame_of(group(idx), &heartbeat(), UdpChecksum::Zero)).collect();
        let feeder = Feeder::new(far_port, frames, shuffled(count, ORDER, 1), &block.scope("feeder"));
        let sockets = UdpSockets::new(SocketCapacity::default(), HashSeed::new(1, 2));
        let mut channels = Self::of(worker(port, feed(count, &block), sockets, 32, &block), feeder);
        // A feed's consumers are the places of its lines.
        for idx in 0..count {
            let group = Group::new(*group(idx).ip(), group(idx).port());
            let joined = channels.with_app(|_, cx| cx.sockets.join(ConsumerId(idx), group));
            joined.expect("the default capacity is a large venue's");
        }
        // The second heartbeat opens a channel, and twice the order has each channel twice.
        for _ in 0..2 * ORDER / ROUND {
            channels.feed();
            channels.drain();
        }
        let open = channels.with_app(|feed, _| feed.tally(Tops::First(0)).channels.len());
        assert_eq!(open, count as usize, "a channel is not open");
        channels
    }
}

/// The app, with empty books.
fn feed(count: u32, block: &Block) -> Feed<MoldItch50> {
    let line = |idx| FeedLine { name: "A".to_owned(), group: group(idx), vlan: None, senders: Vec::new() };
    let set = |idx: u32| SetConfig {
        name: idx.to_string(),
        format: Format::MoldItch50,
        queue: None,
        numbers: Vec::new(),
        lines: vec![line(idx)],
        recovery: RecoveryPlan::default(),
    };
    let config = FeedConfig {
        policy: Policy::default(),
        window: Window::default(),
        capacity: Capacity { books: 1, orders: 1, levels: 1 },
        clock: ArrivalClock::Worker,
        sets: (0..count).map(set).collect(),
        places: Vec::new(),
        groups: Vec::new(),
        learned_max: 0,
    };
    let sampler = Sampler::new(MonotonicClock::start(), 0);
    Feed::new(config, sampler, &block.scope("worker0"))
}

fn heartbeat() -> Vec<u8> {
    let mut out = [0; 64];
    let writer = PacketWriter::<MoldUdp64>::new(MoldHeader::new(*b"0000000001", 1), &mut out);
    writer.expect("a header fits").finish().to_vec()
}
