//! The end of a worker that is stopped.

use super::*;
use crate::device::TxQueue;
use crate::pipeline::tcp::roster::Roster;
use crate::pipeline::tcp::roster::reader::Rostered;

/// Connections of one client and one server.
fn connected(count: usize) -> Line {
    let mut line = Line::connected(Wanted::default());
    let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    for _ in 1..count {
        line.ask(|_, cx| cx.tcp().connect(local, SERVER, &ConnectionOptions::default(), ConsumerId(1)).unwrap());
    }
    line.turns(100);
    assert_eq!(line.server.app().events.len(), count);
    line
}

#[test]
fn peers_of_a_worker_that_hangs_up_are_reset() {
    let mut line = connected(3);
    let before = line.server.app().events.len();
    let now = line.now;
    line.ask(|app, cx| cx.tcp().send(app.id.unwrap(), b"on its way").unwrap());
    assert_eq!(line.client.reset_connections(now), 3);
    line.server.poll_once(now);
    assert_eq!(line.server.app().events[before..], [TcpEvent::Closed(CloseReason::Reset); 3]);
    assert_eq!(line.server.app().received, b"on its way");
    assert_eq!(line.client.reset_connections(now), 0);
    line.turns(100);
    assert_eq!(line.client.pool().in_use(), line.stock[0]);
}

#[test]
fn frames_that_nobody_receives_are_not_waited_for_for_ever() {
    let mut line = connected(2);
    let now = line.now;
    line.ask(|app, cx| cx.tcp().send(app.id.unwrap(), &[7; 1_000]).unwrap());
    assert_eq!(line.client.reset_connections(now), 2);
    assert!(line.client.tx_mut().in_flight() > 0);
}

/// Takes all free buffers of the client's pool.
fn hoard(line: &Line) -> Vec<crate::mem::Mbuf> {
    core::iter::from_fn(|| line.client.pool().alloc()).collect()
}

/// The resets of the first connections find no buffer; the last connection's unsent data is dropped
/// with it, which frees one.
#[test]
fn peers_learn_it_where_the_pool_is_empty_for_the_first_rounds() {
    let mut line = connected(3);
    let (before, now) = (line.server.app().events.len(), line.now);
    line.ask(|app, cx| cx.tcp().send(app.id.unwrap(), b"on its way").unwrap());
    let hoarded = hoard(&line);
    assert_eq!(line.client.reset_connections(now), 3);
    line.server.poll_once(now);
    assert_eq!(line.server.app().events[before..], [TcpEvent::Closed(CloseReason::Reset); 3]);
    hoarded.into_iter().for_each(crate::mem::Mbuf::free);
}

#[test]
fn resets_that_find_no_buffer_are_not_waited_for_for_ever_and_leave_when_there_is_one() {
    let mut line = connected(3);
    let (before, now) = (line.server.app().events.len(), line.now);
    let hoarded = hoard(&line);
    assert_eq!(line.client.reset_connections(now), 3);
    line.server.poll_once(now);
    assert_eq!(line.server.app().events.len(), before);
    hoarded.into_iter().for_each(crate::mem::Mbuf::free);
    assert_eq!(line.client.reset_connections(now), 0);
    line.server.poll_once(now);
    assert_eq!(line.server.app().events[before..], [TcpEvent::Closed(CloseReason::Reset); 3]);
}

/// The way in which the client closes.
#[derive(Clone, Copy, Debug)]
enum Last {
    Fin,
    DataAndFin,
    FinBehindData,
}

/// The server acknowledges the FIN and stays in CLOSE-WAIT: it would ignore a reset with the number
/// of the FIN, which is left of its window (RFC 9293 3.4: a FIN takes a number).
#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn number_of_a_fin_is_in_the_roster_as_soon_as_it_has_left() {
    for (last, numbers) in [(Last::Fin, 1), (Last::DataAndFin, 101), (Last::FinBehindData, 101)] {
        let directory = tempfile::tempdir().unwrap();
        let mut line = Line::connected(Wanted::default());
        let roster = Roster::create_in(directory.path(), "test", InterfaceId(0), 4).unwrap();
        line.ask(|_, cx| cx.tcp.set_roster(roster));
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        line.ask(|_, cx| cx.tcp().connect(local, SERVER, &ConnectionOptions::default(), ConsumerId(1)).unwrap());
        line.turns(100);
        let id = line.id();
        let snd_nxt = || Rostered::list(directory.path()).unwrap()[0].connections().unwrap()[0].snd_nxt;
        let before = snd_nxt();
        if !matches!(last, Last::Fin) {
            line.ask(|_, cx| cx.tcp().send(id, &[7; 100]).unwrap());
        }
        if matches!(last, Last::FinBehindData) {
            line.turns(10);
        }
        line.ask(|_, cx| cx.tcp().shutdown(id).unwrap());
        line.turns(100);
        assert!(line.server.app().events.contains(&TcpEvent::PeerClosed));
        assert_eq!(snd_nxt().wrapping_sub(before), numbers, "{last:?}");
    }
}
