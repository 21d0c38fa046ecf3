//! Prepared orders, warm sends, delegated headers.

use super::*;
use crate::device::{Offload, RxQueue};

/// An order of 62 bytes: with headers it is a frame of 128.
const ORDER: &[u8; 62] = b"8=FIX.4.2|9=42|35=D|49=US|56=THEM|34=00000000|38=100|44=12.50|";
/// The offset of its sequence number, an odd one.
const NUMBER_AT: usize = 37;

fn numbered(number: u32) -> Vec<u8> {
    let mut order = ORDER.to_vec();
    order[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(format!("{number:08}").as_bytes());
    order
}

pub(super) fn prepare(line: &mut Line, payload: &[u8]) -> PreparedOrder {
    let id = line.id();
    line.ask(|_, cx| cx.tcp().prepare(id, payload).unwrap())
}

pub(super) fn fire(line: &mut Line, order: &mut PreparedOrder) -> Result<TcpSent, SendError> {
    line.ask(|_, cx| cx.tcp().fire(order))
}

/// Fires a thousand orders of `len` bytes, each with its number, over a wire with `faults`.
fn fire_a_thousand(wanted: Wanted) -> Line {
    let mut line = Line::connected(wanted);
    let mut order = prepare(&mut line, ORDER);
    let mut expected = Vec::new();
    for number in 0..1_000 {
        order.patch(NUMBER_AT, format!("{number:08}").as_bytes()).unwrap();
        assert_eq!(order.payload(), numbered(number));
        // Under heavy loss, more of them may be queued than a connection's share.
        while fire(&mut line, &mut order).is_err_and(|error| error == SendError::NoChunk) {
            line.turn();
        }
        expected.extend(numbered(number));
        line.turns(number as usize % 3);
    }
    line.turn_until(|line| line.server.app().received.len() == expected.len());
    assert!(line.server.app().received == expected, "each order once, whole and in order");
    line
}

#[test]
fn order_is_patched_and_fired_a_thousand_times() {
    let line = fire_a_thousand(Wanted::default());
    assert_eq!(line.client.tcp().tally().segments_resent, 0);
    line.close();
}

#[test]
fn order_without_timestamps_is_fired_a_thousand_times() {
    let options = ConnectionOptions { timestamps: false, ..ConnectionOptions::default() };
    fire_a_thousand(Wanted { options, ..Wanted::default() }).close();
}

/// A fired order is retransmitted unchanged, though the order was patched since.
#[test]
fn fired_orders_that_are_lost_are_sent_again() {
    for seed in 0..8 {
        let faults =
            Faults { loss: 0.1, duplication: 0.05, reordering: 0.1, ring_full: 0.01, ring_full_max: 6, ..Faults::NONE };
        let line = fire_a_thousand(Wanted { faults, seed, ..Wanted::default() });
        assert!(line.client.tcp().tally().segments_resent > 50, "seed {seed}");
        line.close();
    }
}

#[test]
fn payloads_of_any_length_have_right_checksums() {
    let mut line = Line::connected(Wanted::default());
    let mut expected = Vec::new();
    for len in (1..70).chain([100, 127, 999, 1448]) {
        let bytes = pattern(len);
        let mut order = prepare(&mut line, &bytes);
        order.patch(len / 2, &[0xff]).unwrap();
        order.patch(len - 1, &[0]).unwrap();
        expected.extend_from_slice(order.payload());
        assert_eq!(fire(&mut line, &mut order), Ok(TcpSent::Posted), "{len}");
        line.turns(20);
        assert_eq!(line.server.app().received.len(), expected.len(), "{len}");
    }
    assert_eq!(line.server.app().received, expected);
    line.close();
}

#[test]
fn fired_between_sends_stays_in_order() {
    let mut line = Line::connected(Wanted::default());
    let (id, mut order) = (line.id(), prepare(&mut line, b"fired "));
    let sent = line.ask(|_, cx| {
        let sent = [cx.tcp().send(id, b"sent "), cx.tcp().send(id, b"sent ")];
        assert_eq!(cx.tcp().fire(&mut order), Ok(TcpSent::Posted));
        sent
    });
    assert_eq!(sent, [Ok(5), Ok(5)]);
    assert_eq!(fire(&mut line, &mut order), Ok(TcpSent::Posted));
    line.turns(3);
    assert_eq!(line.server.app().received, b"sent sent fired fired ");
    line.close();
}

/// Whether the server receives the client's frames before the client's turn is over.
fn leaves_before_the_turn_ends(line: &mut Line, act: impl FnOnce(&mut Cx<'_>) -> Result<TcpSent, SendError>) -> bool {
    let Line { client, server, now, .. } = line;
    let before = server.app().received.len();
    let arrived = client.with_app(*now, |_, cx| {
        assert_eq!(act(cx), Ok(TcpSent::Posted));
        server.poll_once(*now);
        server.app().received.len() > before
    });
    line.turns(3);
    assert!(line.server.app().received.len() > before, "it leaves with the turn at the latest");
    arrived
}

#[test]
fn fired_order_does_not_wait_for_the_end_of_the_turn() {
    let mut line = Line::connected(Wanted::default());
    let (mut order, id) = (prepare(&mut line, b"fired "), line.id());
    assert!(leaves_before_the_turn_ends(&mut line, |cx| cx.tcp().fire(&mut order)));
    assert!(leaves_before_the_turn_ends(&mut line, |cx| cx.tcp().try_fire(&mut order).map(|_| TcpSent::Posted)));
    assert!(!leaves_before_the_turn_ends(&mut line, |cx| cx.tcp().post(&mut order)));
    assert!(!leaves_before_the_turn_ends(&mut line, |cx| cx.tcp().send(id, b"sent ").map(|_| TcpSent::Posted)));
    assert!(leaves_before_the_turn_ends(&mut line, |cx| {
        let posted = cx.tcp().post(&mut order);
        cx.ring_doorbell();
        posted
    }));
    assert_eq!(line.server.app().received, b"fired fired fired sent fired ");
    line.close();
}

/// Orders posted before leave with the one that is fired, in the order of the calls.
#[test]
fn fired_order_takes_those_along_that_were_posted_before_it() {
    let mut line = Line::connected(Wanted::default());
    let mut orders: Vec<_> = [b"one ", b"two ", b"six "].map(|text| prepare(&mut line, text)).into();
    let Line { client, server, now, .. } = &mut line;
    client.with_app(*now, |_, cx| {
        let (last, first) = orders.split_last_mut().unwrap();
        for order in first {
            assert_eq!(cx.tcp().post(order), Ok(TcpSent::Posted));
        }
        server.poll_once(*now);
        assert!(server.app().received.is_empty());
        assert_eq!(cx.tcp().fire(last), Ok(TcpSent::Posted));
        server.poll_once(*now);
        assert_eq!(server.app().received, b"one two six ");
    });
    line.close();
}

/// An order that takes the path of `send`, because its segment has unusual options, rings the
/// doorbell too.
#[test]
fn fired_order_that_goes_the_long_way_does_not_wait_either() {
    let mut line = Line::connected(Wanted::default());
    let (mut order, id) = (prepare(&mut line, ORDER), line.id());
    // The server's first segment is lost, and the next one leaves a hole, which the order's segment
    // reports by SACK.
    let now = line.now;
    line.server.with_app(now, |app, cx| cx.tcp().send(app.id.unwrap(), b"lost").unwrap());
    discard_what_comes(&mut line.client, now);
    line.server.with_app(now, |app, cx| cx.tcp().send(app.id.unwrap(), b"kept").unwrap());
    line.client.poll_once(now);
    let fast = line.ask(|_, cx| {
        let mut probe = cx.tcp().prepare(id, b"x").unwrap();
        cx.tcp().try_fire(&mut probe)
    });
    assert_eq!(fast, Ok(false), "the fast way is not open");
    assert!(leaves_before_the_turn_ends(&mut line, |cx| cx.tcp().fire(&mut order)));
    assert_eq!(line.server.app().received, ORDER);
    line.close();
}

/// Drops received frames before the pipeline.
fn discard_what_comes(end: &mut End, now: Instant) {
    let (mut burst, pool) = (crate::mem::Burst::new(), Pool::heap(32).unwrap());
    assert!(end.rx_mut().receive(&mut burst, 32, &pool, now) > 0);
    burst.drain(..).for_each(crate::mem::Mbuf::free);
}

#[test]
fn order_waits_where_the_window_is_closed() {
    let options = ConnectionOptions { receive_buffer: 4_000, ..ConnectionOptions::default() };
    let mut line = Line::connected(Wanted { options, ..Wanted::default() });
    let now = line.now;
    line.server.with_app(now, |app, cx| cx.tcp().pause(app.id.unwrap()).unwrap());
    let mut order = prepare(&mut line, &pattern(1_000));
    let mut fired = Vec::new();
    for _ in 0..6 {
        fired.push(fire(&mut line, &mut order).unwrap());
        line.turns(50);
    }
    assert_eq!((fired[0], fired[5]), (TcpSent::Posted, TcpSent::Queued));
    assert!(line.server.app().received.is_empty());
    let now = line.now;
    line.server.with_app(now, |app, cx| cx.tcp().resume(app.id.unwrap()).unwrap());
    line.turn_until(|line| line.server.app().received.len() == 6_000);
    assert_eq!(line.server.app().received, pattern(1_000).repeat(6));
    line.close();
}

#[test]
fn full_send_buffer_refuses_an_order_whole() {
    let options = ConnectionOptions { send_buffer: 2_500, ..ConnectionOptions::default() };
    let mut line = Line::connected(Wanted { options, ..Wanted::default() });
    let mut order = prepare(&mut line, &pattern(1_000));
    let fired: Vec<_> = (0..3).map(|_| fire(&mut line, &mut order)).collect();
    assert_eq!(fired, [Ok(TcpSent::Posted), Ok(TcpSent::Posted), Err(SendError::Full)]);
    line.turns(5);
    assert_eq!(fire(&mut line, &mut order), Ok(TcpSent::Posted));
    line.turns(5);
    assert_eq!(line.server.app().received, pattern(1_000).repeat(3));
    line.close();
}

#[test]
fn empty_pool_fires_nothing() {
    let mut line = Line::connected(Wanted::default());
    let mut order = prepare(&mut line, ORDER);
    let fired = line.ask(|_, cx| {
        let hoard: Vec<_> = core::iter::from_fn(|| cx.pool.alloc()).collect();
        let fired = cx.tcp().fire(&mut order);
        hoard.into_iter().for_each(crate::mem::Mbuf::free);
        fired
    });
    assert_eq!(fired, Err(SendError::PoolEmpty));
    assert_eq!(fire(&mut line, &mut order), Ok(TcpSent::Posted));
    line.turns(5);
    assert_eq!(line.server.app().received, ORDER);
    line.close();
}

#[test]
fn writable_tells_when_the_pool_has_a_buffer_again() {
    let mut line = Line::connected(Wanted::default());
    let (mut order, id) = (prepare(&mut line, ORDER), line.id());
    line.ask(|app, _| app.events.clear());
    for orders in [false, true] {
        let hoard: Vec<_> = line.ask(|_, cx| core::iter::from_fn(|| cx.pool.alloc()).collect());
        let refused = match orders {
            true => fire(&mut line, &mut order).map(|_| 0),
            false => line.ask(|_, cx| cx.tcp().send(id, ORDER)),
        };
        assert_eq!(refused, Err(SendError::PoolEmpty));
        line.turns(1_000);
        assert_eq!(line.client.app().events, [], "a tenth of a second later there is none yet");
        hoard.into_iter().for_each(crate::mem::Mbuf::free);
        line.turns(100);
        assert_eq!(line.ask(|app, _| core::mem::take(&mut app.events)), [TcpEvent::Writable]);
    }
    line.close();
}

#[test]
fn order_follows_a_neighbor_that_moves() {
    let mut line = Line::connected(Wanted::default());
    let mut order = prepare(&mut line, ORDER);
    let moved = HostEvent::NeighborSet { address: address(2), mac: MacAddr([2, 0, 0, 0, 0, 9]) };
    line.ask(|_, cx| cx.host.apply(moved).unwrap());
    assert_eq!(fire(&mut line, &mut order), Ok(TcpSent::Posted));
    line.turns(1);
    assert_eq!(line.count("2/ethernet/drop/other_mac"), 1, "it went to the new station");
    let back = HostEvent::NeighborSet { address: address(2), mac: mac(2) };
    line.ask(|_, cx| cx.host.apply(back).unwrap());
    line.turn_until(|line| line.server.app().received == ORDER);
    line.close();
}

/// Applies an event to the client's host.
fn hear(line: &mut Line, event: HostEvent) {
    line.ask(|_, cx| cx.host.apply(event).unwrap());
}

/// Bytes sent, by the client's counters.
fn bytes_sent(line: &mut Line) -> u64 {
    let id = line.id();
    line.ask(|_, cx| cx.tcp().info(id).unwrap().bytes_sent)
}

#[test]
fn order_without_a_link_is_told_and_leaves_once_when_the_link_is_up() {
    let mut line = Line::connected(Wanted::default());
    let mut order = prepare(&mut line, ORDER);
    hear(&mut line, HostEvent::Link { is_up: false });
    assert_eq!(fire(&mut line, &mut order), Ok(TcpSent::Unreachable(NextHopError::LinkDown)));
    assert_eq!(
        fire(&mut line, &mut order),
        Ok(TcpSent::Unreachable(NextHopError::LinkDown)),
        "nor does what is behind it leave"
    );
    assert_eq!((bytes_sent(&mut line), line.client.tcp().chunks()), (0, 2));
    let up = line.now + Duration::from_secs(20);
    line.turn_until(|line| line.now >= up);
    assert_eq!(bytes_sent(&mut line), 0);
    hear(&mut line, HostEvent::Link { is_up: true });
    line.turns(10);
    assert_eq!(line.server.app().received, [&ORDER[..], ORDER].concat(), "a millisecond later");
    assert_eq!(line.client.tcp().tally().segments_resent, 0);
    line.close();
}

#[test]
fn order_behind_one_that_got_lost_with_the_link_leaves_when_the_link_is_up() {
    let mut line = Line::connected(Wanted::default());
    let mut order = prepare(&mut line, ORDER);
    hear(&mut line, HostEvent::Link { is_up: false });
    let id = line.id();
    assert_eq!(line.ask(|_, cx| cx.tcp().send(id, b"first ")), Ok(6), "a copy waits as well");
    hear(&mut line, HostEvent::Link { is_up: true });
    line.turns(10);
    assert_eq!(line.server.app().received, b"first ");
    // Peer and link are silent for a while: the timer has backed off far.
    assert_eq!(fire(&mut line, &mut order), Ok(TcpSent::Posted));
    hear(&mut line, HostEvent::Link { is_up: false });
    let now = line.now;
    let later = now + Duration::from_secs(40);
    while line.now < later {
        line.now += Duration::from_millis(10);
        line.client.poll_once(line.now);
    }
    let lost = fire(&mut line, &mut order);
    assert!(matches!(lost, Ok(TcpSent::Unreachable(NextHopError::LinkDown) | TcpSent::Queued)), "{lost:?}");
    hear(&mut line, HostEvent::Link { is_up: true });
    line.turns(50);
    assert_eq!(line.server.app().received, [b"first ", &ORDER[..], ORDER].concat());
    line.close();
}

#[test]
fn order_to_a_neighbor_that_is_not_known_leaves_when_it_is() {
    for asks in [false, true] {
        let mut line = Line::connected(Wanted { asks, ..Wanted::default() });
        let mut order = prepare(&mut line, ORDER);
        hear(&mut line, HostEvent::NeighborRemoved(address(2)));
        let missing = NextHopError::NeighborMissing(address(2));
        assert_eq!(fire(&mut line, &mut order), Ok(TcpSent::Unreachable(missing)));
        assert!(missing.to_string().contains("10.0.0.2"), "{missing}");
        line.turns(30_000);
        assert_eq!((bytes_sent(&mut line), line.server.app().received.len()), (0, 0));
        hear(&mut line, HostEvent::NeighborSet { address: address(2), mac: mac(2) });
        line.turns(10);
        assert_eq!(line.server.app().received, ORDER, "asks: {asks}");
        line.close();
    }
}

#[test]
fn order_that_is_to_leave_at_once_or_never_is_not_kept() {
    let mut line = Line::connected(Wanted::default());
    let mut order = prepare(&mut line, ORDER);
    let at_once = |line: &mut Line, order: &mut PreparedOrder| line.ask(|_, cx| cx.tcp().try_fire(order));
    hear(&mut line, HostEvent::Link { is_up: false });
    assert_eq!(at_once(&mut line, &mut order), Ok(false));
    hear(&mut line, HostEvent::Link { is_up: true });
    let delegation = delegate(&mut line, 4).unwrap();
    assert_eq!(at_once(&mut line, &mut order), Ok(false), "{} bytes go before", delegation.len());
    line.ask(|app, cx| cx.tcp().withdraw(app.id.unwrap())).unwrap();
    line.turns(100);
    assert_eq!((line.client.tcp().chunks(), line.server.app().received.len()), (0, 0));
    assert_eq!(at_once(&mut line, &mut order), Ok(true));
    line.turns(5);
    assert_eq!(line.server.app().received, ORDER);
    line.close();
}

#[test]
fn warm_send_posts_nothing() {
    let mut line = Line::connected(Wanted::default());
    let mut order = prepare(&mut line, ORDER);
    line.turns(20);
    let (frames, in_use) = (line.count("1/tx/frames"), line.client.pool().in_use());
    for _ in 0..100 {
        assert_eq!(line.ask(|_, cx| cx.tcp().warm(&mut order)), Ok(true));
        line.turn();
    }
    assert_eq!((line.count("1/tx/frames"), line.client.pool().in_use()), (frames, in_use));
    assert_eq!((line.server.app().received.len(), line.client.tcp().chunks()), (0, 0));
    assert_eq!(fire(&mut line, &mut order), Ok(TcpSent::Posted));
    line.turns(5);
    assert_eq!(line.server.app().received, ORDER);
    line.close();
}

#[test]
fn order_that_cannot_be_is_refused_with_the_limit() {
    let options = ConnectionOptions { send_buffer: 600, ..ConnectionOptions::default() };
    let mut line = Line::connected(Wanted { options, ..Wanted::default() });
    let id = line.id();
    let mut refusal = |payload: &[u8]| line.ask(|_, cx| cx.tcp().prepare(id, payload).unwrap_err());
    assert_eq!(refusal(b""), PreparedOrderError::Empty);
    assert_eq!(refusal(&[0; 1449]), PreparedOrderError::OverSegment { len: 1449, limit: 1448 });
    let error = refusal(&[0; 601]);
    assert_eq!(error, PreparedOrderError::OverWindow { len: 601, limit: 600 });
    assert!(error.to_string().contains("make the payload shorter"), "{error}");
    let mut order = prepare(&mut line, b"12345");
    let error = order.patch(3, b"678").unwrap_err();
    assert_eq!(error, PreparedOrderError::OutOfRange { offset: 3, len: 3, payload_len: 5 });
    assert!(order.patch(usize::MAX, b"6").is_err());
    assert_eq!((order.patch(5, b""), order.payload()), (Ok(()), &b"12345"[..]));
    line.close();
}

#[test]
fn name_of_a_dead_connection_is_refused() {
    let mut line = Line::connected(Wanted::default());
    let (id, mut order) = (line.id(), prepare(&mut line, ORDER));
    line.ask(|_, cx| cx.tcp().abort(id).unwrap());
    line.turns(5);
    assert!(line.client.app().events.contains(&TcpEvent::Closed(CloseReason::Aborted)));
    assert_eq!(fire(&mut line, &mut order), Err(SendError::NotFound));
    line.ask(|_, cx| {
        assert_eq!(cx.tcp().warm(&mut order), Err(SendError::NotFound));
        assert_eq!(cx.tcp().prepare(id, ORDER).unwrap_err(), PreparedOrderError::Send(SendError::NotFound));
        assert_eq!(cx.tcp().delegate(id, 1).unwrap_err(), DelegateError::Send(SendError::NotFound));
        assert_eq!(cx.tcp().withdraw(id), Err(DelegateError::Send(SendError::NotFound)));
    });
    assert_eq!(line.client.pool().in_use(), 0);
}

#[test]
fn order_after_shutdown_is_refused() {
    let mut line = Line::connected(Wanted::default());
    let (id, mut order) = (line.id(), prepare(&mut line, ORDER));
    line.ask(|_, cx| cx.tcp().shutdown(id).unwrap());
    assert_eq!(fire(&mut line, &mut order), Err(SendError::Closed));
    line.close();
}

/// Sends delegated data, as a program on the NIC does: without the connection's state machine.
fn send_delegated(line: &mut Line, delegation: &Delegation, offset: usize, payload: &[u8]) {
    line.ask(|_, cx| {
        let mut frame = [0; 1514];
        let len = delegation.write_frame(offset, payload, &mut frame).unwrap();
        cx.tx.post(cx.pool.alloc_copy(&frame[..len]).unwrap(), Offload::NONE).unwrap();
    });
}

fn report(line: &mut Line, payload: &[u8]) -> Result<(), DelegateError> {
    let id = line.id();
    line.ask(|_, cx| {
        let payload = cx.pool.alloc_copy(payload).unwrap();
        cx.tcp().delegated(id, payload).map_err(|(error, payload)| {
            payload.free();
            error
        })
    })
}

fn delegate(line: &mut Line, len: usize) -> Result<Delegation, DelegateError> {
    let id = line.id();
    line.ask(|_, cx| cx.tcp().delegate(id, len))
}

#[test]
fn delegated_bytes_count_as_sent_when_they_are_reported() {
    let mut line = Line::connected(Wanted::default());
    let id = line.id();
    let delegation = delegate(&mut line, 3_000).unwrap();
    let bytes = pattern(3_000);
    for (idx, payload) in bytes.chunks(delegation.segment_len_max()).enumerate() {
        send_delegated(&mut line, &delegation, idx * delegation.segment_len_max(), payload);
    }
    // The first buffer holds more than a segment.
    report(&mut line, &bytes[..1_500]).unwrap();
    report(&mut line, &bytes[1_500..]).unwrap();
    assert_eq!(line.ask(|_, cx| cx.tcp().send(id, b" and more")), Ok(9));
    line.turns(10);
    assert_eq!(line.server.app().received, [&bytes[..], b" and more"].concat());
    assert_eq!((line.client.tcp().tally().segments_resent, line.client.tcp().chunks()), (0, 0));
    line.close();
}

#[test]
fn delegated_bytes_that_get_lost_are_sent_again() {
    let mut line = Line::connected(Wanted::default());
    let bytes = pattern(2_000);
    delegate(&mut line, 2_000).unwrap();
    report(&mut line, &bytes[..1_500]).unwrap();
    report(&mut line, &bytes[1_500..]).unwrap();
    line.turn_until(|line| line.server.app().received.len() == 2_000);
    assert_eq!(line.server.app().received, bytes);
    assert!(line.client.tcp().tally().segments_resent > 0);
    line.close();
}

#[test]
fn acknowledgment_before_the_report_is_remembered() {
    let mut line = Line::connected(Wanted::default());
    let delegation = delegate(&mut line, 100).unwrap();
    send_delegated(&mut line, &delegation, 0, &pattern(60));
    line.turns(50);
    assert_eq!(line.server.app().received, pattern(60));
    let id = line.id();
    let refused = line.ask(|_, cx| cx.tcp().withdraw(id));
    assert_eq!(refused, Err(DelegateError::WasSent { acknowledged: 60 }));
    report(&mut line, &pattern(60)[..20]).unwrap();
    report(&mut line, &pattern(60)[20..]).unwrap();
    assert_eq!(line.ask(|_, cx| cx.tcp().delegated_len(id)), 40);
    assert_eq!(line.client.tcp().chunks(), 0, "the peer has them");
    line.ask(|_, cx| cx.tcp().withdraw(id)).unwrap();
    let mut order = prepare(&mut line, ORDER);
    assert_eq!(fire(&mut line, &mut order), Ok(TcpSent::Posted));
    line.turns(50);
    assert_eq!(line.server.app().received, [&pattern(60)[..], ORDER].concat());
    assert_eq!(line.client.tcp().tally().segments_resent, 0);
    line.close();
}

#[test]
fn nothing_of_ours_leaves_while_numbers_are_delegated() {
    let mut line = Line::connected(Wanted::default());
    let (id, mut order) = (line.id(), prepare(&mut line, ORDER));
    let delegation = delegate(&mut line, 10).unwrap();
    assert_eq!(fire(&mut line, &mut order), Ok(TcpSent::Queued));
    assert_eq!(line.ask(|_, cx| cx.tcp().send(id, b"last")), Ok(4));
    line.turns(100);
    assert!(line.server.app().received.is_empty());
    send_delegated(&mut line, &delegation, 0, b"first ");
    report(&mut line, b"first ").unwrap();
    line.turns(100);
    assert_eq!(line.server.app().received, b"first ", "four bytes are still delegated");
    line.ask(|_, cx| cx.tcp().withdraw(id)).unwrap();
    line.turns(10);
    assert_eq!(line.server.app().received, [b"first ", &ORDER[..], b"last"].concat());
    line.close();
}

#[test]
fn delegation_that_cannot_be_is_refused() {
    let options = ConnectionOptions { receive_buffer: 5_000, ..ConnectionOptions::default() };
    let mut line = Line::connected(Wanted { options, ..Wanted::default() });
    assert!(matches!(delegate(&mut line, 5_001), Err(DelegateError::NoRoom { room: 1..=5_000 })));
    assert!(matches!(delegate(&mut line, 0), Err(DelegateError::TooFew { least: 1 })));
    assert_eq!(report(&mut line, b"x"), Err(DelegateError::TooMuch { delegated: 0 }));
    let delegation = delegate(&mut line, 4).unwrap();
    assert_eq!(report(&mut line, b"12345"), Err(DelegateError::TooMuch { delegated: 4 }));
    let mut frame = [0; 100];
    assert_eq!(delegation.write_frame(2, b"345", &mut frame), None, "not inside");
    assert_eq!(delegation.write_frame(0, b"1234", &mut frame[..60]), None, "no room");
    let again = delegate(&mut line, 8).unwrap();
    assert_eq!((again.seq(), again.len()), (delegation.seq(), 8));
    line.ask(|app, cx| cx.tcp().withdraw(app.id.unwrap())).unwrap();
    line.close();
}

#[test]
fn headers_lack_only_the_payload_in_their_checksum() {
    let mut line = Line::connected(Wanted::default());
    let (delegation, payload) = (delegate(&mut line, 100).unwrap(), pattern(37));
    let (mut frame, mut headers) = ([0; 200], [0; 200]);
    let frame_len = delegation.write_frame(20, &payload, &mut frame).unwrap();
    let len = delegation.write_headers(20, payload.len(), &mut headers).unwrap();
    assert_eq!(len + payload.len(), frame_len);
    let at = 14 + 20 + 16;
    let partial = u16::from_be_bytes([headers[at], headers[at + 1]]);
    let checksum = crate::wire::checksum::Sum::of(&payload).add_u16(partial).finish();
    headers[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(headers[..len], frame[..len]);
    line.ask(|app, cx| cx.tcp().withdraw(app.id.unwrap())).unwrap();
    line.close();
}

#[test]
fn headers_are_not_given_to_where_no_way_leads() {
    let mut line = Line::connected(Wanted::default());
    hear(&mut line, HostEvent::Link { is_up: false });
    let error = delegate(&mut line, 10).unwrap_err();
    assert_eq!(error, DelegateError::NoRoute);
    assert!(error.to_string().contains("link is down"), "{error}");
    assert_eq!(line.ask(|app, cx| cx.tcp().delegated_len(app.id.unwrap())), 0, "the numbers are ours");
    hear(&mut line, HostEvent::Link { is_up: true });
    let mut order = prepare(&mut line, ORDER);
    assert_eq!(fire(&mut line, &mut order), Ok(TcpSent::Posted));
    line.turns(5);
    line.close();
}
