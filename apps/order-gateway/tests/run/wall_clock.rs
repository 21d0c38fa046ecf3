//! A wall clock that steps while the gateway runs.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use market::Symbol;
use order_entry::fix::session::SessionConfig;
use order_entry::fix::{FixClient, FixClientConfig};
use order_entry::journal::{Journal, Records};
use order_entry::risk::KillSwitch;
use order_gateway::host::{Host, Stream, Waits};
use order_gateway::{Core, CoreConfig, Gateway, LineConfig, Run};

use super::common::{Buyer, RESERVE, SECOND, config};

/// 2026-11-28 14:00:00.
const UTC_NS: u64 = 1_795_874_400 * SECOND;

/// Its wall clock is what a test says.
#[derive(Debug)]
struct Machine(Rc<Cell<u64>>);

impl Host for Machine {
    fn now_ns(&self) -> u64 {
        SECOND
    }

    fn epoch_offset_ns(&self) -> u64 {
        self.0.get() - SECOND
    }

    fn connect(&self, _to: SocketAddrV4, _waits: Waits) -> io::Result<Box<dyn Stream>> {
        Err(ErrorKind::ConnectionRefused.into())
    }
}

/// The SendingTime (52) of the message that a new connection sends first.
fn sending_time(run: &mut Run<Buyer, FixClient, Vec<u8>>) -> String {
    run.gateway.connected(SECOND).unwrap();
    let sent = String::from_utf8(run.gateway.core().to_send().to_vec()).unwrap();
    let len = sent.len();
    run.gateway.core_mut().sent(len);
    run.gateway.disconnected(SECOND);
    let (_, behind) = sent.split_once("\u{1}52=").unwrap();
    behind.split('\u{1}').next().unwrap().to_owned()
}

#[test]
fn times_of_messages_and_of_the_journal_follow_a_wall_clock_that_steps() {
    let wall = Rc::new(Cell::new(UTC_NS));
    let epoch_offset_ns = UTC_NS - SECOND;
    let (sender, target) = ("TRADER".to_owned(), "VENUE".to_owned());
    let session = SessionConfig { sender, target, ..SessionConfig::default() };
    let instruments = vec![Symbol(*b"ZIEXT   ")];
    let client = FixClient::new(FixClientConfig { instruments, epoch_offset_ns, ..FixClientConfig::new(session) });
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let mut config: CoreConfig = config(&KillSwitch::new());
    config.manager.epoch_offset_ns = epoch_offset_ns;
    let nowhere = LineConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));
    let gateway = Gateway::new(Buyer::default(), Core::new(config, client, journal));
    let mut run = Run::new(gateway, nowhere, Box::new(Machine(wall.clone())));
    let turn = |run: &mut Run<Buyer, FixClient, Vec<u8>>| {
        let mut reports = Vec::new();
        run.turn(&mut |sentence: &str| reports.push(sentence.to_owned()));
        reports.retain(|sentence| sentence.contains("wall clock"));
        reports.join("; ")
    };
    assert_eq!((turn(&mut run), &*sending_time(&mut run)), (String::new(), "20261128-14:00:00.000"));
    for (utc_ns, said, text) in [
        (UTC_NS + 3_600 * SECOND, "forward by 3600000 ms", "20261128-15:00:00.000"),
        (UTC_NS - 90 * SECOND, "back by 3690000 ms", "20261128-13:58:30.000"),
    ] {
        wall.set(utc_ns);
        let report = turn(&mut run);
        assert!(report.contains(said), "{report}");
        assert_eq!((turn(&mut run), &*sending_time(&mut run)), (String::new(), text), "said once");
        run.gateway.core_mut().disarm(SECOND);
        let records = Records::new(run.gateway.core().journal().memory()).unwrap();
        assert_eq!(records.last().unwrap().stamp.at_ns, utc_ns);
    }
}
