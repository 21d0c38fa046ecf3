//! What a peer, or its silence, cannot make a queue pair do.

use super::pair::{Pair, seal};
use crate::roce::*;

#[test]
fn overrun_with_requests_that_wait_flushes_each_once() {
    let config = DeviceConfig { cqes: 2, unacknowledged_packets: 4, ..DeviceConfig::default() };
    let mut pair = Pair::of(&config, |_| ());
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    for wr_id in 0..32 {
        pair.a.post(wr_id, SendOperation::Write(remote), sge);
    }
    pair.run();
    assert_eq!((pair.a.state(), pair.a.completions().len()), (QpState::Err, 2));
    assert_eq!(pair.a.device.counters().cq_overruns, 30, "the others, each once");
}

#[test]
fn duplicate_read_of_any_length_is_counted_and_answered_only_within_its_first() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 3000), pair.b.remote(0));
    pair.a.post(1, SendOperation::Read(remote), sge);
    let mut request = pair.a.frame(pair.now).unwrap();
    pair.b.receive(pair.now, &request);
    while pair.b.frame(pair.now).is_some() {}
    for len in [3001, MESSAGE_MAX, MESSAGE_MAX + 1, u32::MAX] {
        seal(&mut request, |frame| frame[66..70].copy_from_slice(&len.to_be_bytes()));
        pair.b.receive(pair.now, &request);
        assert_eq!(pair.b.frame(pair.now), None, "{len} bytes");
    }
    assert_eq!((pair.b.counters().duplicates, pair.b.state()), (4, QpState::Rts));
}

#[test]
fn duplicate_read_of_a_part_is_answered_by_this_part() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 3000), pair.b.remote(0));
    pair.a.post(1, SendOperation::Read(remote), sge);
    let mut request = pair.a.frame(pair.now).unwrap();
    pair.b.receive(pair.now, &request);
    while pair.b.frame(pair.now).is_some() {}
    for len in [100_u32, 1024, 1025, 3000] {
        seal(&mut request, |frame| frame[66..70].copy_from_slice(&len.to_be_bytes()));
        pair.b.receive(pair.now, &request);
        let frames: Vec<_> = core::iter::from_fn(|| pair.b.frame(pair.now)).collect();
        let bytes: usize = frames.iter().map(|frame| payload_len(frame)).sum();
        assert_eq!((bytes, frames.len()), (len as usize, len.div_ceil(1024) as usize));
    }
}

#[test]
fn duplicate_read_of_other_memory_is_not_answered() {
    const ADDRESS_END: usize = 61;
    const KEY: core::ops::Range<usize> = 62..66;
    let mut pair = Pair::new();
    let other = pair.b.device.register(pair.b.pd, Region::from(&pair.b.memory), super::pair::all_access()).unwrap();
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(64));
    pair.a.post(1, SendOperation::Read(remote), sge);
    let request = pair.a.frame(pair.now).unwrap();
    pair.b.receive(pair.now, &request);
    while pair.b.frame(pair.now).is_some() {}
    // Another key of the same memory, one of none, and other addresses.
    for (key, address) in [(other.key, 0), (remote.rkey ^ 1, 0), (remote.rkey, 8), (remote.rkey, 1)] {
        let mut again = request.clone();
        seal(&mut again, |frame| {
            frame[KEY].copy_from_slice(&key.to_be_bytes());
            frame[ADDRESS_END] ^= address;
        });
        pair.b.receive(pair.now, &again);
        assert_eq!((pair.b.frame(pair.now), pair.b.state()), (None, QpState::Rts), "{key:#x}, {address}");
    }
    assert_eq!((pair.b.counters().duplicates, pair.b.device.next_event()), (4, None));
}

#[test]
fn duplicate_atomic_operation_that_is_no_longer_kept_is_not_executed_again() {
    let mut pair = Pair::with(|attributes| attributes.max_dest_rd_atomic = Some(2));
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    let mut requests = Vec::new();
    for wr_id in 0..3 {
        pair.a.post(wr_id, SendOperation::FetchAdd { remote, add: 1 }, sge);
        let request = pair.a.frame(pair.now).unwrap();
        pair.b.receive(pair.now, &request);
        requests.push(request);
        pair.run();
    }
    let answered = requests.iter().map(|request| {
        pair.b.receive(pair.now, request);
        pair.b.frame(pair.now).is_some()
    });
    assert_eq!(answered.collect::<Vec<_>>(), [false, true, true], "two are kept");
    assert_eq!((pair.b.memory.load_u64(0), pair.b.counters().duplicates), (3, 3));
}

fn payload_len(frame: &[u8]) -> usize {
    let packet = crate::wire::packet::Packet::parse(RoceFrame::parse(frame).unwrap().roce).unwrap();
    match packet.body {
        crate::wire::packet::Body::Message(message) => message.payload.len(),
        body => panic!("{body:?}"),
    }
}

#[test]
fn receive_longer_than_any_message_is_not_taken() {
    let mut pair = Pair::new();
    let half = pair.b.sge(0, MESSAGE_MAX / 2);
    let one = pair.b.sge(0, 1);
    assert_eq!(pair.b.device.post_recv(pair.b.qp, 1, &[half, half, one]), Err(PostError::Length));
    assert_eq!(pair.b.device.post_recv(pair.b.qp, 1, &[half, half]), Ok(()));
}

/// Takes a right of the peer's of `b` back.
fn withdraw(pair: &mut Pair, access: Access) {
    let rights = QpAttributes { access: Some(access), ..QpAttributes::to(QpState::Rts) };
    pair.b.device.modify_qp(pair.b.qp, &rights).unwrap();
}

#[test]
fn withdrawn_right_to_read_ends_a_read_that_is_answered() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 3000), pair.b.remote(0));
    pair.a.post(1, SendOperation::Read(remote), sge);
    let request = pair.a.frame(pair.now).unwrap();
    pair.b.receive(pair.now, &request);
    let first = pair.b.frame(pair.now).unwrap();
    pair.a.receive(pair.now, &first);
    withdraw(&mut pair, Access::REMOTE_WRITE);
    pair.finish();
    assert_eq!(pair.a.completions(), [(1, Status::RemoteAccess)]);
    assert_eq!(pair.b.device.next_event(), Some(Event::QpAccessError(pair.b.qp)));
}

#[test]
fn withdrawn_right_answers_no_duplicate() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    pair.a.post(1, SendOperation::Read(remote), sge);
    pair.a.post(2, SendOperation::FetchAdd { remote, add: 1 }, sge);
    let requests = [pair.a.frame(pair.now).unwrap(), pair.a.frame(pair.now).unwrap()];
    for request in &requests {
        pair.b.receive(pair.now, request);
    }
    while pair.b.frame(pair.now).is_some() {}
    for (request, other) in requests.iter().zip([Access::REMOTE_ATOMIC, Access::REMOTE_READ]) {
        withdraw(&mut pair, other);
        pair.b.receive(pair.now, request);
        assert_eq!((pair.b.frame(pair.now), pair.b.state()), (None, QpState::Rts));
    }
    assert_eq!(pair.b.counters().duplicates, 2);
}

#[test]
fn answers_before_a_refusal_go_once_and_none_behind_the_state_err_that_the_user_sets() {
    for is_ended in [false, true] {
        let mut pair = Pair::new();
        let (sge, remote) = (pair.a.sge(0, 3000), pair.b.remote(0));
        pair.a.post(1, SendOperation::Read(remote), sge);
        pair.a.post(2, SendOperation::Write(Remote { rkey: remote.rkey ^ 1, ..remote }), sge);
        let requests = [pair.a.frame(pair.now).unwrap(), pair.a.frame(pair.now).unwrap()];
        for request in &requests {
            pair.b.receive(pair.now, request);
        }
        assert!(pair.b.frame(pair.now).is_some());
        pair.b.receive(pair.now, &requests[0]);
        if is_ended {
            pair.b.device.modify_qp(pair.b.qp, &QpAttributes::to(QpState::Err)).unwrap();
        }
        let frames = core::iter::from_fn(|| pair.b.frame(pair.now)).count();
        assert_eq!(frames, if is_ended { 0 } else { 3 }, "two answers and the NAK, or nothing");
        assert_eq!(pair.b.state(), QpState::Err);
    }
}

#[test]
fn congestion_notification_is_counted_by_whom_it_is_for() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    pair.a.post(1, SendOperation::Write(remote), sge);
    let mut frame = pair.a.frame(pair.now).unwrap();
    seal(&mut frame, |frame| frame[42] = 0x81);
    pair.b.receive(pair.now, &frame);
    seal(&mut frame, |frame| frame[29] = 9);
    pair.b.receive(pair.now, &frame);
    seal(&mut frame, |frame| frame[49] ^= 0x40);
    pair.b.receive(pair.now, &frame);
    let counters = pair.b.device.counters();
    assert_eq!((counters.cnps_rx, counters.wrong_address, counters.unknown_qp), (1, 1, 1));
    assert_eq!((counters.packets_rx, pair.b.counters().packets_rx, pair.b.counters().cnps_rx), (3, 0, 1));
}

#[test]
#[should_panic(expected = "more memory regions than keys")]
fn device_has_no_more_regions_than_keys() {
    Device::new(&DeviceConfig { regions: 1 << 24, ..DeviceConfig::default() });
}

#[test]
fn destroyed_completion_queue_notifies_no_more() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    pair.a.device.arm_cq(pair.a.cq, Notify::Any).unwrap();
    pair.a.post(1, SendOperation::Write(remote), sge);
    pair.run();
    pair.a.device.destroy_qp(pair.a.qp).unwrap();
    pair.a.device.destroy_cq(pair.a.cq).unwrap();
    assert_eq!(pair.a.device.next_notification(), None);
}

#[test]
fn read_as_long_as_half_of_the_numbers_is_not_taken() {
    let config = DeviceConfig::default();
    let mut pair = Pair::of(&config, |attributes| attributes.mtu = Some(Mtu::B256));
    let remote = pair.b.remote(0);
    let longest = ((1 << 23) - 1 - config.unacknowledged_packets) << 8;
    for (operation, len, taken) in [
        (SendOperation::Read(remote), longest, Ok(())),
        (SendOperation::Read(remote), longest + 1, Err(PostError::Length)),
        (SendOperation::Write(remote), MESSAGE_MAX, Ok(())),
    ] {
        let sges = [pair.a.sge(0, len)];
        let request = SendRequest::new(1, operation, Data::Sges(&sges));
        assert_eq!(pair.a.device.post_send(pair.a.qp, &request), taken, "{len} bytes");
    }
}

#[test]
fn keys_of_two_devices_differ_unless_their_seed_is_the_same() {
    let key = |key_seed| {
        let mut device = Device::new(&DeviceConfig { key_seed, ..DeviceConfig::default() });
        let pd = device.create_pd().unwrap();
        device.register(pd, Region::from(&Buffer::zeroed(8)), Access::LOCAL_WRITE).unwrap().key
    };
    // Each of a million pairs is the same by chance.
    let keys = [0; 4].map(key);
    assert!(keys[1..].iter().any(|other| *other != keys[0]), "{keys:x?}");
    assert_eq!(key(5), key(5));
}
