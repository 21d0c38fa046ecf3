//! Chunks are shared, and an app that got none is notified.

use crate::proto::tcp::state::connection::State;
use crate::proto::tcp::state::queue::{Chunk, Queue};
use crate::proto::tcp::tests::line::{Line, options, stream};
use crate::proto::tcp::tests::*;
use crate::wire::tcp::TcpFlags;

/// One more connection between the same machines.
fn another(client: &mut End, server: &mut End) -> ConnectionId {
    let flow = Flow { local: SocketAddrV4::new(*CLIENT.ip(), 0), remote: SERVER };
    let (options, now) = (options(), client.now);
    let id = client.tcp.connect(flow, &options, ConsumerId(1), now, &mut client.sent).unwrap();
    settle(client, server);
    id
}

/// Sends orders that are not acknowledged, until the machine accepts no more.
fn fill(client: &mut End, id: ConnectionId) -> usize {
    for count in 0.. {
        if let Err((why, _)) = client.tcp.send(id, vec![7; 40], client.now, &mut client.sent) {
            assert_eq!(why, SendError::NoChunk);
            return count;
        }
        client.sent.0.clear();
    }
    unreachable!()
}

#[test]
fn connections_that_nobody_reads_leave_chunks_for_one_that_is_read() {
    let (mut client, mut server) = connected();
    let now = client.now;
    let stuck = [client.id.unwrap(), another(&mut client, &mut server), another(&mut client, &mut server)];
    let healthy = another(&mut client, &mut server);
    let taken = stuck.map(|id| fill(&mut client, id));
    assert!(taken.into_iter().all(|count| count >= 100), "{taken:?} of 1024");
    assert!(client.tcp.send_permit(healthy, 5, now).is_some(), "an order leaves at once");
    client.tcp.send(healthy, b"order".to_vec(), now, &mut client.sent).unwrap();
    settle(&mut client, &mut server);
    assert_eq!(server.bytes, b"order");
}

#[test]
fn orders_of_one_connection_leave_chunks_for_another() {
    for buffers in [1024, 500] {
        let (mut client, mut server) = connected_with(&options());
        client.tcp.limit_buffers(buffers);
        let (id, now) = (client.id.unwrap(), client.now);
        let healthy = another(&mut client, &mut server);
        let mut fired = 0;
        while let Some(permit) = client.tcp.send_permit(id, 40, now) {
            permit.commit(vec![7; 40]);
            fired += 1;
        }
        assert!((buffers / 3..=buffers / 2).contains(&fired), "{fired} of {buffers}");
        assert!(client.tcp.send_permit(healthy, 5, now).is_some());
        client.tcp.send(healthy, b"order".to_vec(), now, &mut client.sent).unwrap();
    }
}

#[test]
fn who_found_no_chunk_is_told_when_others_give_some_back() {
    let mut line = Line::new();
    let mut others = Queue::default();
    while line.tcp.shared.has_share(0) {
        others.push_back(&mut line.tcp.shared.chunks, Chunk::new(Seq(0), 1, Some(vec![7]))).unwrap();
    }
    let (id, now) = (line.id(), line.now);
    let refused = line.tcp.send(id, b"order".to_vec(), now, &mut line.wire).unwrap_err();
    assert_eq!(refused, (SendError::NoChunk, b"order".to_vec()));
    let copied = line.tcp.send_copy(id, b"order", |bytes| Some(bytes.to_vec()), now, &mut line.wire);
    assert_eq!(copied, Err(SendError::NoChunk));
    line.after_ms(1000);
    assert_eq!(line.events, [], "there is none yet");
    others.clear(&mut line.tcp.shared.chunks);
    line.after_ms(10);
    assert_eq!(line.events, [TcpEvent::Writable]);
    line.after_ms(1000);
    assert_eq!(line.events, [TcpEvent::Writable], "once");
}

#[test]
fn who_has_used_its_share_is_told_when_it_is_acknowledged() {
    let mut line = Line::of(TcpConfig { chunks_max: 64, ..TcpConfig::default() }, &options());
    let (id, now) = (line.id(), line.now);
    let mut sent = 0;
    while line.tcp.send(id, stream(sent, 40), now, &mut line.wire).is_ok() {
        sent += 40;
    }
    assert!(sent / 40 >= 29, "{sent}");
    line.after_ms(100);
    assert_eq!(line.events, []);
    line.ack(sent);
    assert_eq!(line.events, [TcpEvent::Writable]);
}

#[test]
fn who_found_no_buffer_is_told_when_there_is_one() {
    let mut line = Line::new();
    let (id, now) = (line.id(), line.now);
    let refused = line.tcp.send_copy(id, b"order", |_| None, now, &mut line.wire);
    assert_eq!(refused, Err(SendError::PoolEmpty));
    line.after_ms(10);
    assert_eq!(line.events, [TcpEvent::Writable]);
}

#[test]
fn who_closes_wants_no_room_any_more() {
    let mut line = Line::new();
    let (id, now) = (line.id(), line.now);
    line.tcp.send_copy(id, b"order", |_| None, now, &mut line.wire).unwrap_err();
    line.tcp.shutdown(id, now, &mut line.wire).unwrap();
    line.after_ms(10);
    assert_eq!(line.events, []);
}

/// Takes all chunks.
fn exhaust(line: &mut Line) -> Queue {
    let mut others = Queue::default();
    while line.tcp.shared.chunks.free_count() > 0 {
        others.push_back(&mut line.tcp.shared.chunks, Chunk::new(Seq(0), 1, Some(vec![7]))).unwrap();
    }
    others
}

#[test]
fn fin_that_found_no_chunk_leaves_when_there_is_one() {
    let mut line = Line::new();
    let mut others = exhaust(&mut line);
    line.finish();
    line.finish();
    line.after_ms(100);
    assert_eq!((line.sent(), line.connection().state), (Vec::new(), State::FinWait1));
    assert_eq!(line.try_send(1), Err(SendError::Closed), "nothing may follow the FIN");
    others.clear(&mut line.tcp.shared.chunks);
    line.after_ms(10);
    assert_eq!(line.sent(), ["0 ack 0 FIN"]);
    line.ack(1);
    assert_eq!((line.connection().state, &line.events[..]), (State::FinWait2, &[][..]));
}

#[test]
fn fin_that_found_no_chunk_leaves_when_own_data_is_acknowledged() {
    let mut line = Line::new();
    line.send(10);
    let _others = exhaust(&mut line);
    line.finish();
    line.ack(10);
    line.tick();
    assert_eq!(line.sent(), ["0+10 ack 0 PSH", "10 ack 0 FIN"]);
}

#[test]
fn connection_that_is_closed_without_a_chunk_for_its_fin_ends() {
    for is_peer_closed in [false, true] {
        let mut line = Line::new();
        if is_peer_closed {
            line.note_received(0, Vec::new(), TcpFlags::ACK | TcpFlags::FIN, |_| ());
        }
        let mut others = exhaust(&mut line);
        let id = line.id();
        line.tcp.close(id, line.now, &mut line.wire).unwrap();
        line.after_ms(10);
        others.clear(&mut line.tcp.shared.chunks);
        line.after_ms(10);
        line.ack(1);
        if !is_peer_closed {
            line.note_received(0, Vec::new(), TcpFlags::ACK | TcpFlags::FIN, |_| ());
            assert_eq!(line.connection().state, State::TimeWait);
        }
        assert_eq!((is_peer_closed, line.is_gone()), (is_peer_closed, is_peer_closed));
    }
}

#[test]
fn peer_that_still_sends_to_who_has_closed_without_a_chunk_for_its_fin_is_reset() {
    let mut line = Line::new();
    let _others = exhaust(&mut line);
    let id = line.id();
    line.tcp.close(id, line.now, &mut line.wire).unwrap();
    assert_eq!(line.data(0, 5), Some(TcpDrop::AfterClose));
    assert_eq!((line.sent(), line.is_gone()), (vec!["0 ack 0 RST".to_string()], true));
}
