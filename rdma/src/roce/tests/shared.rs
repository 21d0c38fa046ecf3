//! Shared receive queues whose queue pairs go away in the middle of a message.

use super::pair::{End, Pair, attributes};
use super::unreliable::{connect_uc, shared};
use crate::roce::*;
use crate::wire::opcode::Transport;

/// Has the second end begin with a message, of which the first packet alone arrives.
fn begin_message(pair: &mut Pair) {
    let sge = pair.a.sge(0, 3000);
    pair.a.post(1, SendOperation::Send, sge);
    let mut count = 0;
    pair.run_with(|_, _| {
        count += 1;
        count == 1
    });
}

/// Gives both ends new queue pairs, the second one's over the shared queue.
fn connect_anew(pair: &mut Pair, transport: Transport) {
    let Pair { a, b, .. } = pair;
    for end in [&mut *a, &mut *b] {
        end.qp = end.device.create_qp(&end.options).unwrap();
    }
    let (of_a, of_b) = (attributes(1, 2, b), attributes(2, 1, a));
    for (end, attributes) in [(a, &of_a), (b, &of_b)] {
        connect(end, transport, attributes);
    }
}

fn connect(end: &mut End, transport: Transport, attributes: &QpAttributes) {
    match transport {
        Transport::Uc => connect_uc(end, attributes),
        _ => end.connect(attributes),
    }
}

/// Receives for messages of 3000 bytes, as many as the queue takes.
fn fill(end: &mut End) -> SrqHandle {
    let (srq, sges) = (end.srq.unwrap(), [end.sge(0, 3000)]);
    (7..11).for_each(|wr_id| end.device.post_srq_recv(srq, wr_id, &sges).unwrap());
    srq
}

#[test]
fn shared_queue_keeps_its_receives_however_many_queue_pairs_are_destroyed_in_the_middle_of_a_message() {
    for transport in [Transport::Rc, Transport::Uc] {
        let mut pair = shared(transport);
        let srq = fill(&mut pair.b);
        for _ in 0..17 {
            begin_message(&mut pair);
            assert_eq!(pair.b.device.srq_len(srq), Some(3), "one is in use");
            pair.a.device.destroy_qp(pair.a.qp).unwrap();
            pair.b.device.destroy_qp(pair.b.qp).unwrap();
            assert_eq!((pair.b.device.srq_len(srq), pair.b.completions()), (Some(4), vec![]));
            connect_anew(&mut pair, transport);
        }
        let sge = pair.a.sge(0, 3000);
        (0..4).for_each(|number| pair.a.post(number, SendOperation::Send, sge));
        pair.run();
        let receives: Vec<_> = (7..11).map(|wr_id| (wr_id, Status::Success)).collect();
        assert_eq!(pair.b.completions(), receives, "in the order of their posts");
    }
}

#[test]
fn queue_pair_that_goes_to_reset_in_the_middle_of_a_message_returns_its_receive() {
    for transport in [Transport::Rc, Transport::Uc] {
        let mut pair = shared(transport);
        let srq = fill(&mut pair.b);
        begin_message(&mut pair);
        let to_reset = QpAttributes::to(QpState::Reset);
        for end in [&mut pair.a, &mut pair.b] {
            end.device.modify_qp(end.qp, &to_reset).unwrap();
        }
        assert_eq!((pair.b.device.srq_len(srq), pair.b.completions()), (Some(4), vec![]));
        let (of_a, of_b) = (attributes(1, 2, &pair.b), attributes(2, 1, &pair.a));
        connect(&mut pair.a, transport, &of_a);
        connect(&mut pair.b, transport, &of_b);
        let sge = pair.a.sge(0, 3000);
        pair.a.post(2, SendOperation::Send, sge);
        pair.run();
        assert_eq!(pair.b.completions(), [(7, Status::Success)]);
    }
}

#[test]
fn receive_whose_place_in_the_shared_queue_is_taken_is_flushed() {
    let steps: [fn(&mut End); 2] = [
        |end| end.device.destroy_qp(end.qp).unwrap(),
        |end| end.device.modify_qp(end.qp, &QpAttributes::to(QpState::Reset)).unwrap(),
    ];
    for step in steps {
        let mut pair = shared(Transport::Rc);
        let srq = fill(&mut pair.b);
        begin_message(&mut pair);
        let sges = [pair.b.sge(0, 3000)];
        pair.b.device.post_srq_recv(srq, 11, &sges).unwrap();
        step(&mut pair.b);
        assert_eq!((pair.b.device.srq_len(srq), pair.b.completions()), (Some(4), vec![(7, Status::Flushed)]));
    }
}
