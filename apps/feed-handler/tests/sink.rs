//! A sink is given what the books are given: books that are built from its events are the feed's.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::sync::{Arc, Mutex};

use clap::Parser;
use exchange_sim::Settings;
use feed_handler::args::{Cli, Command};
use feed_handler::{Event as Report, SinkContext, replay_with};
use market::event::Event;
use market::truth::Probability;
use market::{Books, Capacity, Change, EventSink, Gap, OrderBooks, Symbol};
use tempfile::tempdir;
use wirepath::worker::StopFlag;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Told>>>);

enum Told {
    Event(u64, Event),
    Gap(Gap),
}

impl EventSink for Log {
    fn event(&mut self, seq: u64, event: &Event, _: Option<Change>, _: &impl Books) {
        self.0.lock().unwrap().push(Told::Event(seq, *event));
    }

    fn gap(&mut self, gap: Gap, books: &impl Books) {
        assert!(books.is_stale(market::BookIdx(0)));
        self.0.lock().unwrap().push(Told::Gap(gap));
    }
}

#[test]
fn sink_is_given_each_event_with_its_number_and_each_gap_in_its_place() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("day.pcap");
    let mut settings = Settings { messages: 10_000, symbols: 20, ..Settings::default() };
    for line in &mut settings.lines {
        line.loss = Probability::try_from(0.05).unwrap();
        line.reorder = Probability::try_from(0.05).unwrap();
    }
    exchange_sim::generate(&settings, &file).unwrap();
    let arguments = ["feed-handler", "replay", file.to_str().unwrap(), "--cpu", "any", "--format", "mold-itch50"];
    let Command::Replay(args) = Cli::parse_from(arguments.into_iter().chain(["--top-of-book", "all"])).command else {
        panic!("a replay was asked for")
    };
    let log = Log::default();
    let made = log.clone();
    let sinks = move |_: &SinkContext| Ok(made.clone());
    let summary = replay_with(&args.plan().unwrap(), &StopFlag::new(), |_: Report| (), sinks).unwrap();

    let mut books = OrderBooks::new(Capacity { books: 64, orders: 16_384, levels: 16_384 });
    let (mut next, mut events, mut gaps) = (1, 0, 0);
    for told in log.0.lock().unwrap().iter() {
        match told {
            Told::Event(seq, event) => {
                assert_eq!(*seq, next);
                books.apply(event);
                (next, events) = (next + 1, events + 1);
            }
            Told::Gap(gap) => {
                assert_eq!(gap.from, next);
                (next, gaps) = (gap.to + 1, gaps + 1);
            }
        }
    }
    assert_eq!((events, gaps), (summary.messages, summary.gaps));
    assert!(gaps > 3, "{gaps} gaps: the day was too quiet to tell");
    let tops = &summary.channels[0].books.tops;
    for top in tops {
        let book = books.find(Symbol::new(top.symbol.trim_end()).unwrap()).unwrap();
        let ours = books.top(book);
        assert_eq!((ours.bid_qty, ours.ask_qty), (top.bid_shares, top.ask_shares), "{}", top.symbol);
        assert!(top.bid.as_ref().is_none_or(|bid| *bid == ours.bid_px.to_string()), "{}", top.symbol);
    }
    assert_eq!(tops.len(), books.len());
}
