//! [`MixedFeed`]: the feeds of a worker whose channels have several formats, one for each of them.
//!
//! A feed has its format at compile time. A worker of one format is that feed alone; one of several
//! finds a packet's feed by its line first, and calls it by a pointer. Where that counts, a live
//! port gives each format a queue of its own.

use wirepath::pipeline::{App, Cx, Datagram};
use wirepath::proto::ConsumerId;

use super::latency::Sampler;
use super::tally::{FeedTally, Tops};
use crate::join::Learner;

/// A worker's app: a feed, or several.
pub trait WorkerFeed: App {
    /// A datagram of the line or group with this place among the feed's.
    fn on_packet(&mut self, source: usize, datagram: &Datagram<'_>, cx: &mut Cx<'_>);

    /// Everything that happened so far.
    fn results(&self, tops: Tops) -> FeedTally;
}

/// Feeds of several formats as one app.
pub struct MixedFeed {
    feeds: Vec<Box<dyn WorkerFeed>>,
    /// By consumer: the feed, and the line's place in it.
    lines: Vec<(usize, usize)>,
    /// Those of the feeds measure nothing.
    sampler: Sampler,
}

impl MixedFeed {
    /// The feeds, and for each line of the worker its feed and its place among that feed's.
    pub fn new(feeds: Vec<Box<dyn WorkerFeed>>, lines: Vec<(usize, usize)>, sampler: Sampler) -> Self {
        assert!(lines.iter().all(|&(feed, _)| feed < feeds.len()), "each line has a feed");
        Self { feeds, lines, sampler }
    }
}

impl WorkerFeed for MixedFeed {
    #[inline]
    fn on_packet(&mut self, source: usize, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        let (feed, source) = self.lines[source];
        self.feeds[feed].on_packet(source, datagram, cx);
        self.sampler.packet_done();
    }

    fn results(&self, tops: Tops) -> FeedTally {
        let nothing = FeedTally { channels: Vec::new(), groups_refused: 0, latency: self.sampler.latency() };
        self.feeds.iter().fold(nothing, |mut sum, feed| {
            sum.add(feed.results(tops));
            sum
        })
    }
}

impl App for MixedFeed {
    #[inline]
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        self.on_packet(datagram.consumer.0 as usize, datagram, cx);
    }

    #[inline]
    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.feeds.iter_mut().for_each(|feed| feed.tick(cx));
    }

    fn on_stop(&mut self, cx: &mut Cx<'_>) {
        self.feeds.iter_mut().for_each(|feed| feed.on_stop(cx));
    }
}

/// Channels of several formats are configured; nothing is learned beside them.
impl Learner for MixedFeed {
    fn on_new_group(&mut self, _: std::net::SocketAddrV4) -> Option<ConsumerId> {
        None
    }
}
