//! MDP 3.0 with losses on both lines, which snapshots heal: exchange-sim publishes its book over a
//! veth, the handler polls the other end, and its recovery thread joins the loops by kernel
//! sockets, at the exchange's own end. In the end the books are the exchange's.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use exchange_sim::{
    Interface, LineSettings, Mdp3Counts, Mdp3Groups, Publication, Published, SendSockets, Settings, publish,
};
use feed_handler::report::Summary;
use feed_handler::{Event, RunPlan};
use market::Price;
use market::truth::{Group, PriceLevel};
use wirepath::worker::StopFlag;

use crate::common::network::{EXCHANGE, is_inside};
use crate::plan;

fn settings(loss: &str) -> Settings {
    let mdp3 = Some(Mdp3Groups::default());
    let mut settings = Settings { symbols: 10, messages: 20_000, rate: 20_000, mdp3, ..Settings::default() };
    settings.lines = settings.lines.map(|line| LineSettings { loss: loss.parse().unwrap(), ..line });
    settings
}

/// The plan of a handler of these groups.
fn plan_of(groups: &Mdp3Groups, first: &str) -> RunPlan {
    let lines = |pair: [Group; 2]| {
        let lines = pair.map(|group| format!("{{ group = \"{group}\", port = {} }}", groups.port));
        format!("[{}]", lines.join(", "))
    };
    let (incremental, snapshots, definitions) =
        (lines(groups.incremental), lines(groups.snapshots), lines(groups.definitions));
    plan(&format!(
        "[arbitration]\nfirst = \"{first}\"\n[books]\ninstruments = 64\n\
         [[channels]]\nname = \"c\"\nformat = \"cme-mdp3\"\nlines = {incremental}\n\
         [channels.loops]\nsnapshots = {snapshots}\ndefinitions = {definitions}\ninterface = \"10.77.0.1\"\n"
    ))
}

/// Publishes a day, and runs the handler from `join_after` the first packet on until it is over.
fn play(settings: &Settings, first: &str, join_after: Option<Duration>) -> (Published, Summary, Vec<String>) {
    let (plan, stop) = (plan_of(settings.mdp3.as_ref().unwrap(), first), StopFlag::new());
    let (ready, is_ready) = mpsc::channel();
    let mut notices = Vec::new();
    let publication = Publication {
        // Members at the exchange's end get the loops.
        send_sockets: SendSockets { interface: Interface::Name(EXCHANGE.into()), loopback: true },
        start_after: Duration::ZERO,
        rerequest: None,
        glimpse: None,
    };
    thread::scope(|scope| {
        let (publication, stop) = (&publication, &stop);
        let exchange = scope.spawn(move || {
            if join_after.is_none() {
                is_ready.recv().unwrap();
            }
            let published = publish(settings, publication, &StopFlag::new());
            stop.stop();
            published.unwrap()
        });
        thread::sleep(join_after.unwrap_or_default());
        let summary = feed_handler::run(&plan, stop, |event| match event {
            Event::Ready(_) => _ = ready.send(()),
            Event::Notice(sentence) => notices.push(sentence),
            _ => {}
        });
        let published = exchange.join().unwrap();
        (published, summary.unwrap(), notices)
    })
}

/// Each book's best prices as text, by the exchange and by the handler, sorted.
fn tops(published: &Published, summary: &Summary) -> [Vec<(String, String, String)>; 2] {
    let side = |level: &Option<PriceLevel>| {
        level.as_ref().map_or_else(|| "-".to_owned(), |level| format!("{} {}", Price(level.price.into()), level.shares))
    };
    let told = |price: &Option<String>, shares: u64| {
        price.as_ref().map_or_else(|| "-".to_owned(), |price| format!("{price} {shares}"))
    };
    let of_exchange = published.truth.book_tops.iter();
    let of_exchange = of_exchange.map(|top| (format!("#{}", top.locate), side(&top.bid), side(&top.ask)));
    let of_handler = summary.channels[0].books.tops.iter();
    let of_handler =
        of_handler.map(|top| (top.symbol.clone(), told(&top.bid, top.bid_shares), told(&top.ask, top.ask_shares)));
    let mut both = [of_exchange.collect::<Vec<_>>(), of_handler.collect()];
    both.iter_mut().for_each(|tops| tops.sort());
    both
}

/// The books are the exchange's, and the loops were left.
fn check((published, summary, notices): &(Published, Summary, Vec<String>)) {
    let [exchange, handler] = tops(published, summary);
    assert_eq!(handler, exchange);
    let channel = &summary.channels[0];
    let recovery = channel.recovery.as_ref().unwrap();
    assert_eq!((channel.books.stale, channel.books.unconfirmed), (0, 0), "{recovery:?} {notices:?}");
    assert!(recovery.snapshots_adopted > 0 && recovery.snapshots_completed > 0, "{recovery:?}");
    assert!(recovery.definitions >= 10, "{recovery:?}");
    assert_eq!((recovery.loops_undecoded, recovery.queue_overflowed), (0, 0));
    assert_eq!(summary.failures, Vec::<String>::new());
}

#[test]
fn packets_lost_on_both_lines_are_healed_book_by_book() {
    if !is_inside("mdp3::packets_lost_on_both_lines_are_healed_book_by_book") {
        return;
    }
    let outcome = play(&settings("5%"), "one", None);
    let Mdp3Counts { packets, lost_on_both, without_place, .. } = outcome.0.mdp3.unwrap();
    assert!(lost_on_both > 5 && without_place == 0, "{lost_on_both} packets lost on both lines");
    let channel = &outcome.1.channels[0];
    assert_eq!((channel.messages + channel.missing, channel.missing), (packets, lost_on_both));
    check(&outcome);
}

#[test]
fn handler_that_joins_in_mid_session_has_the_books_by_the_loops() {
    if !is_inside("mdp3::handler_that_joins_in_mid_session_has_the_books_by_the_loops") {
        return;
    }
    // Five quiet seconds before the open, and half a second of it.
    let outcome = play(&settings("5%"), "anywhere", Some(Duration::from_millis(5_500)));
    assert!(outcome.1.channels[0].joined_at.is_some_and(|seq| seq > 100), "{}", outcome.1);
    check(&outcome);
}
