//! Header prediction takes the one segment that a connection expects, and leaves all others
//! untouched.

use crate::proto::tcp::PredictedFields;
use crate::proto::tcp::tests::*;
use crate::wire::tcp::Timestamps;

/// A server, and the client's first data as it receives it.
fn heard() -> (End, Flow, PredictedFields) {
    let (mut client, server) = connected();
    let (id, now) = (client.id.unwrap(), client.now);
    client.tcp.send(id, b"order".to_vec(), now, &mut client.sent).unwrap();
    let (Outgoing { flow, seq, ack, wnd, timestamps, .. }, payload) = client.sent.0.pop().unwrap();
    let flow = Flow { local: flow.remote, remote: flow.local };
    (server, flow, PredictedFields { seq, ack, wnd, len: payload.len() as u32, timestamps })
}

#[test]
fn next_data_is_expected_once() {
    let (mut server, flow, segment) = heard();
    let id = server.id.unwrap();
    let taken = server.tcp.receive_expected(flow, &segment, server.now);
    assert_eq!(taken.map(|(taken, _)| taken), Some(id));
    assert_eq!(server.tcp.receive_expected(flow, &segment, server.now), None, "a repetition");
    assert_eq!(server.tcp.info(id, server.now).unwrap().bytes_received, 5);
    assert!(server.sent.0.is_empty(), "its acknowledgment waits");
}

#[test]
fn any_other_segment_is_left_to_the_phases() {
    let (mut server, flow, segment) = heard();
    let (id, before) = (server.id.unwrap(), *server.tcp.tally());
    let times = segment.timestamps.unwrap();
    let others = [
        ("beyond a hole", PredictedFields { seq: segment.seq + 1, ..segment }),
        ("partly old", PredictedFields { seq: segment.seq - 1, ..segment }),
        ("beyond the window", PredictedFields { len: 1 << 24, ..segment }),
        ("of what was never sent", PredictedFields { ack: segment.ack + 1, ..segment }),
        ("of what was acknowledged", PredictedFields { ack: segment.ack - 1, ..segment }),
        ("with nothing new", PredictedFields { len: 0, ..segment }),
        ("without its time", PredictedFields { timestamps: None, ..segment }),
        (
            "of the past",
            PredictedFields { timestamps: Some(Timestamps { value: times.value.wrapping_sub(1), ..times }), ..segment },
        ),
    ];
    for (what, other) in others {
        assert_eq!(server.tcp.receive_expected(flow, &other, server.now), None, "{what}");
    }
    let stranger = Flow { local: flow.remote, remote: flow.local };
    assert_eq!(server.tcp.receive_expected(stranger, &segment, server.now), None, "of nobody");
    server.tcp.pause(id).unwrap();
    assert_eq!(server.tcp.receive_expected(flow, &segment, server.now), None, "for an app that is paused");
    assert_eq!(*server.tcp.tally(), before, "nothing has happened");
    server.tcp.resume(id).unwrap();
    assert!(server.tcp.receive_expected(flow, &segment, server.now).is_some(), "what was expected all the time");
}

#[test]
fn connection_that_took_the_place_of_another_is_not_taken_for_it() {
    let (mut server, flow, segment) = heard();
    assert!(server.tcp.receive_expected(flow, &segment, server.now).is_some());
    let id = server.id.unwrap();
    server.tcp.abort(id, server.now, &mut server.sent).unwrap();
    let next = PredictedFields { seq: segment.seq + segment.len, ..segment };
    assert_eq!(server.tcp.receive_expected(flow, &next, server.now), None, "closed, and the app not told");
    server.listen_to_events();
    assert_eq!(server.tcp.receive_expected(flow, &next, server.now), None, "gone");
}

#[test]
fn more_is_taken_of_who_goes_on_and_nothing_else() {
    let (mut server, flow, segment) = heard();
    let (id, now) = (server.id.unwrap(), server.now);
    let next = PredictedFields { seq: segment.seq + segment.len, ..segment };
    assert!(server.tcp.receive_expected(flow, &segment, now).is_some());
    let before = *server.tcp.tally();
    let others = [
        ("a repetition", segment),
        ("beyond a hole", PredictedFields { seq: next.seq + 1, ..next }),
        ("beyond the window", PredictedFields { len: 1 << 24, ..next }),
        ("with nothing new", PredictedFields { len: 0, ..next }),
    ];
    for (what, other) in others {
        assert!(!server.tcp.receive_more(id, &other, now), "{what}");
    }
    let stranger = ConnectionId { generation: id.generation + 1, ..id };
    assert!(!server.tcp.receive_more(stranger, &next, now), "of a connection that is gone");
    server.tcp.pause(id).unwrap();
    assert!(!server.tcp.receive_more(id, &next, now), "for an app that is paused");
    assert_eq!(*server.tcp.tally(), before, "nothing has happened");
    server.tcp.resume(id).unwrap();
    assert!(server.tcp.receive_more(id, &next, now), "what was expected all the time");
    assert_eq!(server.tcp.info(id, now).unwrap().bytes_received, 10);
    server.tcp.shutdown(id, now, &mut server.sent).unwrap();
    let last = PredictedFields { seq: next.seq + next.len, ..next };
    assert!(
        !server.tcp.receive_more(id, &last, now),
        "for an app that has closed its side: our FIN may be acknowledged"
    );
}
