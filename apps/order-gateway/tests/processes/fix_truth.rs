//! What the venue's reports by FIX say of an account: all of the day again, from the first on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, SystemTime};

use market::{Side, Symbol};
use order_entry::fix::FixClient;
use order_entry::fix::codec::{Decimal, Message};
use order_entry::fix::orders::{ExecType, ExecutionReport, OrderOutcome, Side as FixSide};
use order_entry::fix::session::{Event, MemoryStore, MessageStore, Now, Session};

use crate::gateway::fix_config;
use crate::journal::replay_by;
use crate::truth::{VenueLog, VenueOrder};

/// Logs in with the next number of the journal at `path`, and asks for everything again.
pub fn read(mut stream: TcpStream, path: &Path) -> VenueLog {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut store = MemoryStore::new(16, 1 << 12);
    let mark = replay_by(FixClient::rules(), path).session;
    let mut base = [0; 8];
    base[..6].copy_from_slice(&mark.session[..6]);
    store.set_next_out(mark.next_id - u64::from_le_bytes(base));
    let mut session = Session::new(fix_config(), store);
    session.connected(now());
    let (mut log, mut buffer, mut is_done) = (VenueLog::default(), vec![0; 1 << 14], false);
    while !is_done {
        stream.write_all(session.output()).unwrap();
        session.consume(session.output().len());
        let len = stream.read(&mut buffer).unwrap();
        assert!(len > 0, "the venue has closed the connection");
        let mut rest = &buffer[..len];
        while !rest.is_empty() {
            let taken = session.receive(now(), rest);
            rest = &rest[taken..];
            let mut is_logged_on = false;
            while let Some(event) = session.poll(now()) {
                match event {
                    Event::LoggedOn => is_logged_on = true,
                    Event::Message { message, .. } => take(&mut log, &message),
                    Event::Answered { .. } => is_done = true,
                    Event::Disconnect(end) => panic!("{end}"),
                    _ => (),
                }
            }
            if is_logged_on {
                session.ask(now(), 1);
            }
        }
    }
    log
}

fn now() -> Now {
    let utc_ns = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    Now { steady_ns: utc_ns, utc_ns }
}

fn take(log: &mut VenueLog, message: &Message<'_>) {
    if message.msg_type() != b"8" {
        return;
    }
    let report = ExecutionReport::parse(message).unwrap();
    let number = |text: Option<&[u8]>| String::from_utf8(text.unwrap().to_vec()).unwrap().parse::<u64>().unwrap();
    let shares = |value: Decimal| u32::try_from(value.integer().unwrap()).unwrap();
    let price = |value: Option<Decimal>| value.and_then(Decimal::price).unwrap();
    let id = number(report.cl_ord_id);
    let side = if report.side == FixSide::Buy { Side::Buy } else { Side::Sell };
    let leaves = shares(report.leaves_qty);
    match report.outcome() {
        OrderOutcome::Fill => {
            log.totals.add(side, shares(report.last_qty.unwrap()), price(report.last_px));
            set_leaves(log, id, leaves);
        }
        OrderOutcome::State(kind @ (ExecType::New | ExecType::Replaced)) => {
            if kind == ExecType::Replaced {
                log.open.remove(&number(report.orig_cl_ord_id));
            }
            let price = price(report.price);
            log.accepted.insert(id, (side, shares(report.cum_qty) + leaves, price));
            log.open.insert(id, VenueOrder { symbol: Symbol::NONE, side, leaves, price });
            set_leaves(log, id, leaves);
        }
        OrderOutcome::State(ExecType::Canceled | ExecType::Expired | ExecType::Restated) => {
            let order = report.orig_cl_ord_id.map_or(id, |orig| number(Some(orig)));
            set_leaves(log, order, leaves);
        }
        _ => (),
    }
}

fn set_leaves(log: &mut VenueLog, id: u64, leaves: u32) {
    match log.open.get_mut(&id) {
        Some(_) if leaves == 0 => drop(log.open.remove(&id)),
        Some(order) => order.leaves = leaves,
        None => (),
    }
}
