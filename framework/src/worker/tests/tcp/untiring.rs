//! An app that answers each event with a call that causes the next.

use super::*;

const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
const CALLS: usize = 10_000;
/// A generous limit for the events of one turn without a frame.
const EVENTS_A_TURN_MAX: usize = 1_000;

impl Talker {
    /// Aborts a connection without a route, and calls again when it is closed.
    pub(super) fn call_again(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        match event {
            _ if self.calls_left == 0 => (),
            TcpEvent::NoRoute => cx.tcp().abort(connection).unwrap(),
            TcpEvent::Closed(_) => {
                self.calls_left -= 1;
                cx.tcp().connect(ANY, SERVER, &ConnectionOptions::default(), ConsumerId(1)).unwrap();
            }
            _ => (),
        }
    }
}

#[test]
fn turn_ends_while_an_app_calls_again_and_again_without_a_link() {
    let mut line = Line::connected(Wanted::default());
    let id = line.id();
    line.turns(10);
    line.ask(|app, cx| {
        (app.calls_left, app.events) = (CALLS, Vec::new());
        cx.host.apply(HostEvent::Link { is_up: false }).unwrap();
        cx.tcp().abort(id).unwrap();
    });
    let mut reported = 0;
    while line.client.app().calls_left > 0 {
        line.turn();
        let events = line.client.app().events.len();
        assert!((1..EVENTS_A_TURN_MAX).contains(&(events - reported)), "{} events in one turn", events - reported);
        reported = events;
    }
    line.turns(1);
    // No event was lost, and none is out of order.
    let (closed, no_route) = (TcpEvent::Closed(CloseReason::Aborted), TcpEvent::NoRoute);
    let mut expected = vec![closed];
    (1..CALLS).for_each(|_| expected.extend([no_route, closed]));
    expected.push(no_route);
    assert!(line.client.app().events == expected, "{:?}", &line.client.app().events[reported - 10..]);
    // The last one remains, and finds a route.
    line.ask(|_, cx| cx.host.apply(HostEvent::Link { is_up: true }).unwrap());
    line.turn_until(|line| line.client.app().events.last() == Some(&TcpEvent::Connected { listener: None }));
}
