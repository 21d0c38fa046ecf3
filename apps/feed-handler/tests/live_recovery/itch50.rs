//! Losses on both lines that servers heal: exchange-sim publishes over a veth, the handler polls
//! the other end, and its recovery thread speaks with the servers over kernel sockets. In the end
//! the books are the exchange's, and every message was counted.

use std::net::SocketAddrV4;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use exchange_sim::{
    GlimpseSettings, Interface, LineSettings, Publication, Published, RerequestSettings, SendSockets, Settings, publish,
};
use feed_handler::report::Summary;
use feed_handler::{Event, RunPlan};
use market::Price;
use market::truth::Truth;
use order_entry::soupbin::Credentials;
use wirepath::worker::StopFlag;

use crate::common::network::{EXCHANGE, is_inside};
use crate::plan;

const REREQUEST: &str = "127.0.0.1:26478";
const GLIMPSE: &str = "127.0.0.1:26479";

fn settings(loss: &str) -> Settings {
    let mut settings = Settings { symbols: 10, messages: 20_000, rate: 20_000, ..Settings::default() };
    settings.lines = settings.lines.map(|line| LineSettings { loss: loss.parse().unwrap(), ..line });
    settings
}

fn publication(start_after: Duration) -> Publication {
    Publication {
        send_sockets: SendSockets { interface: Interface::Name(EXCHANGE.into()), loopback: false },
        start_after,
        rerequest: Some(RerequestSettings { address: REREQUEST.parse().unwrap(), messages: 100_000 }),
        glimpse: Some(GlimpseSettings {
            address: GLIMPSE.parse::<SocketAddrV4>().unwrap(),
            credentials: Credentials::new("user", "password").unwrap(),
        }),
    }
}

/// The plan of a handler of these lines.
fn plan_of(settings: &Settings, servers: &str) -> RunPlan {
    let lines =
        settings.lines.clone().map(|line| format!("{{ group = \"{}\", port = {} }}", line.group, settings.port));
    let channel = format!("[[channels]]\nname = \"c\"\nformat = \"mold-itch50\"\nlines = [{}]\n", lines.join(", "));
    let books = "[books]\norders = 65536\nlevels = 65536\ninstruments = 64\n";
    plan(&format!("{books}{channel}{servers}"))
}

/// Publishes a day, and runs the handler from `join_after` the first packet on until it is over.
fn play(settings: &Settings, servers: &str, join_after: Option<Duration>) -> (Published, Summary, Vec<String>) {
    let (plan, stop) = (plan_of(settings, servers), StopFlag::new());
    let (ready, is_ready) = mpsc::channel();
    let mut notices = Vec::new();
    let publication = publication(Duration::from_millis(if join_after.is_some() { 0 } else { 300 }));
    let outcome = thread::scope(|scope| {
        let (publication, stop) = (&publication, &stop);
        let exchange = scope.spawn(move || {
            if join_after.is_none() {
                is_ready.recv().unwrap();
            }
            let published = publish(settings, publication, &StopFlag::new());
            // The end of the session is repeated for a second, with time for the last answers.
            thread::sleep(Duration::from_millis(300));
            stop.stop();
            published.unwrap()
        });
        thread::sleep(join_after.unwrap_or_default());
        let summary = feed_handler::run(&plan, stop, |event| match event {
            Event::Ready(_) => {
                let _ = ready.send(());
            }
            Event::Notice(sentence) => notices.push(sentence),
            _ => {}
        });
        let published = exchange.join().unwrap();
        (published, summary.unwrap())
    });
    let (published, summary) = outcome;
    (published, summary, notices)
}

/// Each book's best prices, as text.
fn tops_of<S>(truth: &Truth<S>) -> Vec<(String, String, String)> {
    let side = |level: &Option<market::truth::PriceLevel>| {
        level.as_ref().map_or_else(|| "-".to_owned(), |level| format!("{} {}", Price(level.price.into()), level.shares))
    };
    let mut tops: Vec<_> =
        truth.book_tops.iter().map(|top| (top.symbol.to_string(), side(&top.bid), side(&top.ask))).collect();
    tops.sort();
    tops
}

fn tops_received(summary: &Summary) -> Vec<(String, String, String)> {
    let side = |price: &Option<String>, shares: u64| {
        price.as_ref().map_or_else(|| "-".to_owned(), |price| format!("{price} {shares}"))
    };
    let tops = &summary.channels[0].books.tops;
    let mut tops: Vec<_> = tops
        .iter()
        .map(|top| (top.symbol.clone(), side(&top.bid, top.bid_shares), side(&top.ask, top.ask_shares)))
        .collect();
    tops.sort();
    tops
}

#[test]
fn messages_lost_on_both_lines_are_requested_again_and_none_is_missing() {
    if !is_inside("itch50::messages_lost_on_both_lines_are_requested_again_and_none_is_missing") {
        return;
    }
    let servers = format!("[channels.rerequest]\nserver = \"{REREQUEST}\"\nattempts = 50\ntimeout_ms = 100\n");
    let (published, summary, notices) = play(&settings("10%"), &servers, None);
    let lost = published.truth.lost_on_both.messages;
    assert!(lost > 20, "{lost} messages lost on both lines");
    assert_eq!((summary.messages, summary.missing), (published.truth.messages, 0), "{summary}\n{notices:?}");
    assert_eq!(tops_received(&summary), tops_of(&published.truth));
    assert_eq!(summary.failures, Vec::<String>::new());
    let recovery = summary.channels[0].recovery.as_ref().unwrap();
    assert!(recovery.recovered >= lost, "{recovery:?}");
}

#[test]
fn snapshot_heals_the_books_when_nothing_is_sent_again() {
    if !is_inside("itch50::snapshot_heals_the_books_when_nothing_is_sent_again") {
        return;
    }
    let servers = format!(
        "[channels.image]\nserver = \"{GLIMPSE}\"\nuser = \"user\"\npassword = \"password\"\ninterval_ms = 20\n"
    );
    let (published, summary, notices) = play(&settings("5%"), &servers, None);
    let lost = published.truth.lost_on_both.messages;
    assert!(lost > 5, "{lost} messages lost on both lines");
    assert_eq!(summary.messages + summary.missing, published.truth.messages, "{summary}");
    let recovery = summary.channels[0].recovery.as_ref().unwrap();
    assert!(recovery.images_completed > 0, "{recovery:?} {notices:?}");
    assert_eq!(summary.channels[0].books.stale, 0, "{recovery:?} {notices:?}");
    assert_eq!(tops_received(&summary), tops_of(&published.truth));
    assert_eq!(summary.failures, Vec::<String>::new());
}

#[test]
fn handler_that_joins_in_mid_session_has_the_books_by_a_snapshot() {
    if !is_inside("itch50::handler_that_joins_in_mid_session_has_the_books_by_a_snapshot") {
        return;
    }
    let servers = format!(
        "[channels.rerequest]\nserver = \"{REREQUEST}\"\nattempts = 50\ntimeout_ms = 100\nhole_max = 100\n\
         [channels.image]\nserver = \"{GLIMPSE}\"\nuser = \"user\"\npassword = \"password\"\ninterval_ms = 20\n"
    );
    // Four quiet seconds before the open, and some messages of the open.
    let (published, summary, notices) = play(&settings("1%"), &servers, Some(Duration::from_millis(5_500)));
    let recovery = summary.channels[0].recovery.as_ref().unwrap();
    assert!(recovery.too_wide > 0 && recovery.images_completed > 0, "{recovery:?} {notices:?}");
    assert_eq!(summary.channels[0].books.stale, 0, "{recovery:?} {notices:?}");
    assert_eq!(summary.messages + summary.missing, published.truth.messages, "{summary}");
    assert_eq!(tops_received(&summary), tops_of(&published.truth));
}
