//! The example of lines A and B with the front door's API, on a day of exchange-sim with losses on
//! both lines.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::sync::{Arc, Mutex};

use exchange_sim::Settings;
use market::truth::Probability;
use tempfile::tempdir;
use wirepath::prelude::*;

#[path = "../examples/ab_lines.rs"]
#[allow(dead_code)] // its `main`
mod ab_lines;

/// The example, and its counts when it stopped.
struct Watched {
    feed: ab_lines::Feed,
    counts: Arc<Mutex<(u64, u64)>>,
}

impl App for Watched {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        self.feed.on_datagram(datagram, cx);
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.feed.tick(cx);
    }

    fn on_stop(&mut self, cx: &mut Cx<'_>) {
        self.feed.on_stop(cx);
        *self.counts.lock().unwrap() = self.feed.counts();
    }
}

#[test]
fn each_message_of_both_lines_is_delivered_once_or_in_a_gap() {
    let directory = tempdir().unwrap();
    let capture = directory.path().join("day.pcap");
    let mut settings = Settings { messages: 50_000, symbols: 20, ..Settings::default() };
    for line in &mut settings.lines {
        (line.loss, line.duplicate) = (Probability::try_from(0.05).unwrap(), Probability::try_from(0.01).unwrap());
    }
    let truth = exchange_sim::generate(&settings, &capture).unwrap();
    assert!(truth.lost_on_both.messages > 0);
    let counts = Arc::new(Mutex::default());
    let port = ab_lines::both_lines(&format!("pcap:{}", capture.display())).unwrap();
    let port = port.named("ab-lines-test").stop_by(&StopFlag::new()).log(|_| ());
    let watched = Arc::clone(&counts);
    let capacity = market::Capacity { books: 64, orders: 1 << 16, levels: 1 << 14 };
    port.run(move |_| Watched { feed: ab_lines::Feed::new(capacity), counts: Arc::clone(&watched) }).unwrap();
    let (delivered, missing) = *counts.lock().unwrap();
    // A machine that is busy elsewhere for a millisecond gives up holes that the other line would
    // have filled.
    assert_eq!(delivered + missing, truth.messages);
    assert!(missing >= truth.lost_on_both.messages, "{missing}");
}
