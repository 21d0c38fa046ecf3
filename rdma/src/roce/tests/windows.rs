//! Memory windows of type 2: bound, used and invalidated, and each refusal of all three.

use super::pair::{End, MEMORY, Pair};
use crate::provider::Provider;
use crate::roce::*;
use crate::wire::opcode::Transport;

/// Where windows are bound, and how long.
const AT: usize = 128;
const LEN: u64 = 64;

/// A pair of which `b` has a second region, to which windows may be bound, and a window.
struct Windowed {
    pair: Pair,
    region: Mr,
    window: Mw,
}

fn remote_access() -> Access {
    Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

impl Windowed {
    fn new() -> Self {
        Self::with(Access::LOCAL_WRITE | Access::MW_BIND)
    }

    /// The region gives these rights.
    fn with(access: Access) -> Self {
        let mut pair = Pair::new();
        let End { device, pd, memory, .. } = &mut pair.b;
        let region = device.register(*pd, Region::from(&*memory), access).unwrap();
        let window = device.create_mw(*pd).unwrap();
        Self { pair, region, window }
    }

    fn binding(&self) -> Binding {
        Binding {
            key: Mw::next_key(self.window.key),
            region: self.region.key,
            address: self.region.address + AT as u64,
            len: LEN,
            access: remote_access(),
        }
    }

    /// Binds the window, and returns its key.
    fn bind(&mut self) -> u32 {
        let binding = self.binding();
        assert_eq!(self.execute(SendOperation::BindWindow(binding)), Status::Success);
        binding.key
    }

    /// Has `b` execute a request without data.
    fn execute(&mut self, operation: SendOperation) -> Status {
        let Pair { b, .. } = &mut self.pair;
        b.device.post_send(b.qp, &local(7, operation)).unwrap();
        self.pair.run();
        let done = self.pair.b.completions();
        assert_eq!((done.len(), done[0].0), (1, 7));
        done[0].1
    }

    /// Has `a` write eight bytes to `at` of what the key reaches.
    fn write(&mut self, key: u32, at: usize) -> Status {
        let remote = self.remote(key, at);
        self.reach(SendOperation::Write(remote))
    }

    fn remote(&self, key: u32, at: usize) -> Remote {
        Remote { address: self.region.address + at as u64, rkey: key }
    }

    fn reach(&mut self, operation: SendOperation) -> Status {
        let sge = self.pair.a.sge(0, 8);
        self.pair.a.post(1, operation, sge);
        self.pair.finish();
        self.pair.a.completions()[0].1
    }

    /// `b` has refused what `a` did, and failed.
    fn expect_refusal(&mut self, event: fn(QpHandle) -> Event) {
        let Pair { b, .. } = &mut self.pair;
        let qp = b.qp;
        assert_eq!((b.state(), b.device.next_event()), (QpState::Err, Some(event(qp))));
    }
}

fn local(wr_id: u64, operation: SendOperation) -> SendRequest<'static> {
    SendRequest::new(wr_id, operation, Data::Sges(&[]))
}

#[test]
fn peer_reaches_a_bound_window_by_each_operation_and_no_byte_beside_it() {
    let mut test = Windowed::new();
    let key = test.bind();
    test.pair.a.memory.write(0, &[9; 8]);
    let end = AT + LEN as usize;
    for at in [AT, end - 8] {
        assert_eq!(test.write(key, at), Status::Success);
        assert_eq!(test.pair.b.bytes(at, 8), [9; 8]);
    }
    let remote = test.remote(key, AT);
    assert_eq!(test.reach(SendOperation::Read(remote)), Status::Success);
    assert_eq!(test.reach(SendOperation::FetchAdd { remote, add: 1 }), Status::Success);
    assert_eq!(test.pair.b.bytes(AT, 1), [10]);
    for at in [AT - 1, end - 7, end, 0] {
        let mut test = Windowed::new();
        let key = test.bind();
        test.pair.a.memory.write(0, &[9; 8]);
        assert_eq!(test.write(key, at), Status::RemoteAccess, "at {at}");
        test.expect_refusal(Event::QpAccessError);
        assert!(test.pair.b.bytes(0, MEMORY).iter().all(|byte| *byte == 0), "at {at}");
    }
}

#[test]
fn window_gives_the_rights_of_its_binding_and_not_those_of_its_region() {
    let operations: [fn(Remote) -> SendOperation; 3] =
        [SendOperation::Write, SendOperation::Read, |remote| SendOperation::FetchAdd { remote, add: 1 }];
    let rights = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
    for (right, access) in rights.into_iter().enumerate() {
        for (needed, operation) in operations.iter().enumerate() {
            // The region itself allows its peers all.
            let mut test = Windowed::with(Access::MW_BIND | super::pair::all_access());
            let binding = Binding { access, ..test.binding() };
            assert_eq!(test.execute(SendOperation::BindWindow(binding)), Status::Success);
            let remote = test.remote(binding.key, AT);
            let expected = if right == needed { Status::Success } else { Status::RemoteAccess };
            assert_eq!(test.reach(operation(remote)), expected, "{access:?}, operation {needed}");
        }
    }
}

/// A case, and what it does to a test or its request.
type Case<T, R = ()> = (&'static str, fn(&mut T) -> R);

#[test]
fn each_wrong_binding_ends_with_its_status_and_binds_nothing() {
    let wrong: [Case<Binding>; 12] = [
        ("no such window", |with| with.key += 0x100),
        ("a region's key", |with| with.key = with.region),
        ("no such region", |with| with.region ^= 0x7700),
        ("another key of the region", |with| with.region ^= 1),
        ("a window in a window", |with| with.region = with.key),
        ("before the region", |with| with.address -= AT as u64 + 1),
        ("beyond the region", |with| with.len = (MEMORY - AT) as u64 + 1),
        ("a range that wraps", |with| with.len = u64::MAX),
        ("no byte", |with| with.len = 0),
        ("local rights", |with| with.access = Access::LOCAL_WRITE),
        ("windows in it", |with| with.access = Access::MW_BIND | Access::REMOTE_READ),
        ("a region without windows", |_| ()),
    ];
    for (what, spoil) in wrong {
        let is_closed = what == "a region without windows";
        let mut test = if is_closed { Windowed::with(Access::LOCAL_WRITE) } else { Windowed::new() };
        let mut binding = test.binding();
        spoil(&mut binding);
        let status = test.execute(SendOperation::BindWindow(binding));
        assert_eq!((status, test.pair.b.state()), (Status::MwBind, QpState::Err), "{what}");
        assert_eq!(test.pair.b.device.deregister(test.region.handle).map(drop), Ok(()), "{what}");
    }
}

#[test]
fn right_to_write_through_a_window_demands_the_one_of_its_region() {
    for (access, status) in [
        (Access::REMOTE_WRITE, Status::MwBind),
        (Access::REMOTE_ATOMIC, Status::MwBind),
        (Access::REMOTE_READ, Status::Success),
    ] {
        let mut test = Windowed::with(Access::MW_BIND);
        let binding = Binding { access, ..test.binding() };
        assert_eq!(test.execute(SendOperation::BindWindow(binding)), status, "{access:?}");
    }
}

#[test]
fn window_and_region_of_another_domain_are_not_bound() {
    for is_window in [true, false] {
        let mut test = Windowed::new();
        let device = &mut test.pair.b.device;
        let other = device.create_pd().unwrap();
        if is_window {
            test.window = device.create_mw(other).unwrap();
        } else {
            let region = Region::from(&test.pair.b.memory);
            test.region = device.register(other, region, Access::MW_BIND).unwrap();
        }
        let binding = Binding { access: Access::REMOTE_READ, ..test.binding() };
        assert_eq!(test.execute(SendOperation::BindWindow(binding)), Status::MwBind, "{is_window}");
    }
}

#[test]
fn bound_window_is_bound_again_only_when_it_was_invalidated() {
    let mut test = Windowed::new();
    let first = test.bind();
    assert_eq!(test.execute(SendOperation::Invalidate(first)), Status::Success);
    test.window.key = first;
    let second = test.bind();
    assert_ne!(first, second);
    assert_eq!(test.write(second, AT), Status::Success);
    test.window.key = second;
    let binding = test.binding();
    assert_eq!(test.execute(SendOperation::BindWindow(binding)), Status::MwBind);
}

#[test]
fn key_of_a_window_that_is_free_reaches_nothing() {
    let cases: [Case<Windowed, u32>; 5] = [
        ("never bound", |test| test.window.key),
        ("of the time before", |test| {
            let first = test.bind();
            assert_eq!(test.execute(SendOperation::Invalidate(first)), Status::Success);
            test.window.key = first;
            test.bind();
            first
        }),
        ("of the time to come", |test| Mw::next_key(test.bind())),
        ("invalidated", |test| {
            let key = test.bind();
            assert_eq!(test.execute(SendOperation::Invalidate(key)), Status::Success);
            key
        }),
        ("destroyed", |test| {
            let key = test.bind();
            test.pair.b.device.destroy_mw(test.window.handle).unwrap();
            key
        }),
    ];
    for (what, key) in cases {
        let mut test = Windowed::new();
        let key = key(&mut test);
        test.pair.a.memory.write(0, &[9; 8]);
        assert_eq!(test.write(key, AT), Status::RemoteAccess, "{what}");
        test.expect_refusal(Event::QpAccessError);
        assert_eq!(test.pair.b.bytes(AT, 8), [0; 8], "{what}");
    }
}

#[test]
fn window_is_for_the_peer_of_the_queue_pair_that_bound_it_alone() {
    let mut test = Windowed::new();
    // Bound by a queue pair beside that of the peer.
    let (b, now) = (&mut test.pair.b, test.pair.now);
    let other = b.device.create_qp(&b.options).unwrap();
    let all = super::pair::attributes(2, 1, &test.pair.a);
    test.pair.b.device.connect_qp(other, Transport::Rc, &all).unwrap();
    let binding = test.binding();
    let b = &mut test.pair.b;
    b.device.post_send(other, &local(1, SendOperation::BindWindow(binding))).unwrap();
    assert_eq!(b.frame(now), None, "nothing is sent");
    assert_eq!(b.completions(), [(1, Status::Success)]);
    let (key, remote) = (binding.key, test.remote(binding.key, AT));
    assert_eq!(test.reach(SendOperation::Read(remote)), Status::RemoteAccess);
    // Nor does another queue pair invalidate it.
    let mut test = Windowed::new();
    let bound = test.bind();
    assert_eq!(bound, key);
    let b = &mut test.pair.b;
    let other = b.device.create_qp(&b.options).unwrap();
    b.device.connect_qp(other, Transport::Rc, &all).unwrap();
    b.device.post_send(other, &local(2, SendOperation::Invalidate(bound))).unwrap();
    assert_eq!(b.frame(now), None);
    assert_eq!(b.completions(), [(2, Status::MwBind)]);
    assert_eq!(test.write(bound, AT), Status::Success);
}

#[test]
fn window_needs_the_rights_of_the_queue_pair_too() {
    let mut test = Windowed::new();
    let key = test.bind();
    let access = Some(Access::REMOTE_READ);
    let less = QpAttributes { access, ..QpAttributes::to(QpState::Rts) };
    test.pair.b.device.modify_qp(test.pair.b.qp, &less).unwrap();
    assert_eq!(test.write(key, AT), Status::RemoteInvalidRequest);
    test.expect_refusal(Event::QpRequestError);
}

#[test]
fn key_of_a_window_is_none_of_own_requests() {
    let mut test = Windowed::new();
    let key = test.bind();
    let b = &mut test.pair.b;
    let remote = test.pair.a.remote(0);
    let sge = Sge { address: test.region.address + AT as u64, len: 8, lkey: key };
    b.post(3, SendOperation::Write(remote), sge);
    test.pair.run();
    assert_eq!(test.pair.b.completions(), [(3, Status::LocalProtection)]);
}

#[test]
fn invalidation_of_what_is_not_bound_ends_with_its_status() {
    let keys: [fn(&mut Windowed) -> u32; 5] = [
        |test| test.window.key,
        |test| test.region.key,
        |test| test.bind() ^ 1,
        |test| test.bind() + 0x100,
        |test| {
            let key = test.bind();
            assert_eq!(test.execute(SendOperation::Invalidate(key)), Status::Success);
            key
        },
    ];
    for (idx, key) in keys.into_iter().enumerate() {
        let mut test = Windowed::new();
        let key = key(&mut test);
        let status = test.execute(SendOperation::Invalidate(key));
        assert_eq!((status, test.pair.b.state()), (Status::MwBind, QpState::Err), "{idx}");
    }
}

#[test]
fn message_that_invalidates_ends_the_binding_and_says_which() {
    for len in [0, 8, 3000] {
        let mut test = Windowed::new();
        let key = test.bind();
        test.pair.a.memory.write(0, &[5; 3000]);
        test.pair.b.post_recv(4, 8192, 3000);
        let sge = test.pair.a.sge(0, len);
        test.pair.a.post(1, SendOperation::SendInvalidate(key), sge);
        test.pair.run();
        assert_eq!(test.pair.a.completions(), [(1, Status::Success)]);
        let done = test.pair.b.device.poll_cq(test.pair.b.cq).unwrap();
        let expected = (4, Status::Success, CompletionKind::Receive, len, Some(key));
        let found = (done.wr_id, done.status, done.kind, done.byte_len, done.invalidated);
        assert_eq!(found, expected);
        assert!(test.pair.b.bytes(8192, len as usize).iter().all(|byte| *byte == 5));
        assert_eq!(test.write(key, AT), Status::RemoteAccess);
    }
}

#[test]
fn message_that_invalidates_what_is_not_bound_is_refused_and_its_receive_fails() {
    for (idx, len) in [(0, 8), (1, 8), (2, 8), (2, 3000)] {
        let mut test = Windowed::new();
        let key = test.bind();
        let wrong = [key ^ 1, test.region.key, test.window.key][idx];
        test.pair.b.post_recv(4, 8192, 3000);
        let sge = test.pair.a.sge(0, len);
        test.pair.a.post(1, SendOperation::SendInvalidate(wrong), sge);
        test.pair.finish();
        assert_eq!(test.pair.a.completions(), [(1, Status::RemoteAccess)], "{idx}");
        assert_eq!(test.pair.b.completions(), [(4, Status::LocalAccess)], "{idx}");
        test.expect_refusal(Event::QpAccessError);
        assert_eq!(test.pair.b.counters().naks_tx, [0, 0, 1, 0]);
        // What was bound is so still.
        let bound = test.pair.b.device.deregister(test.region.handle).map(drop);
        assert_eq!(bound, Err(DeviceError::InUse("memory region")), "{idx}");
    }
}

#[test]
fn only_a_reliable_connection_sends_invalidations() {
    for transport in [Transport::Uc, Transport::Ud] {
        let mut end = End::with(&DeviceConfig::default(), transport, 0);
        let refused = end.device.post_send(end.qp, &local(1, SendOperation::SendInvalidate(5)));
        assert!(matches!(refused, Err(PostError::Operation | PostError::Destination)));
    }
}

#[test]
fn request_about_a_window_has_no_data() {
    let mut test = Windowed::new();
    let (binding, sge) = (test.binding(), test.pair.b.sge(0, 8));
    let b = &mut test.pair.b;
    for operation in [SendOperation::BindWindow(binding), SendOperation::Invalidate(5)] {
        let request = SendRequest::new(1, operation, Data::Sges(core::slice::from_ref(&sge)));
        assert_eq!(b.device.post_send(b.qp, &request), Err(PostError::Length));
    }
}

#[test]
fn requests_about_windows_are_done_once_and_in_order_also_behind_a_packet_that_is_sent_again() {
    let mut test = Windowed::new();
    let binding = test.binding();
    let (good, remote) = (test.pair.b.sge(0, 8), test.pair.a.remote(0));
    let b = &mut test.pair.b;
    b.post(1, SendOperation::Write(remote), good);
    b.device.post_send(b.qp, &local(2, SendOperation::BindWindow(binding))).unwrap();
    b.post(3, SendOperation::Write(remote), good);
    b.device.post_send(b.qp, &local(4, SendOperation::Invalidate(binding.key))).unwrap();
    b.post(5, SendOperation::Read(remote), good);
    let mut count = 0;
    test.pair.run_with(|from_a, _| {
        count += 1;
        from_a || count > 3
    });
    assert_eq!(test.pair.b.completions(), []);
    test.pair.finish();
    let all = (1..=5).map(|wr_id| (wr_id, Status::Success)).collect::<Vec<_>>();
    assert_eq!(test.pair.b.completions(), all);
    assert!(test.pair.b.counters().retransmits >= 3);
}

#[test]
fn request_about_a_window_waits_for_reads_where_it_has_a_fence() {
    let mut test = Windowed::new();
    let key = test.bind();
    let (sge, remote) = (test.pair.b.sge(0, 8), test.pair.a.remote(0));
    let (b, now) = (&mut test.pair.b, test.pair.now);
    b.post(1, SendOperation::Read(remote), sge);
    let fenced = SendRequest { fence: true, ..local(2, SendOperation::Invalidate(key)) };
    b.device.post_send(b.qp, &fenced).unwrap();
    let read = b.frame(now).unwrap();
    assert_eq!(b.frame(now), None);
    let in_use = b.device.deregister(test.region.handle).map(drop);
    assert_eq!(in_use, Err(DeviceError::InUse("memory region")), "bound still");
    test.pair.a.receive(now, &read);
    test.pair.run();
    assert_eq!(test.pair.b.completions(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(test.pair.b.device.deregister(test.region.handle).map(drop), Ok(()));
}

#[test]
fn domain_and_region_with_windows_are_in_use() {
    let mut test = Windowed::new();
    test.bind();
    let End { device, .. } = &mut test.pair.b;
    let in_use = device.deregister(test.region.handle).map(drop);
    assert_eq!(in_use, Err(DeviceError::InUse("memory region")));
    let pd = device.create_pd().unwrap();
    let window = device.create_mw(pd).unwrap();
    assert_eq!(device.destroy_pd(pd), Err(DeviceError::InUse("protection domain")));
    device.destroy_mw(window.handle).unwrap();
    assert_eq!(device.destroy_mw(window.handle), Err(DeviceError::Unknown("memory window")));
    device.destroy_pd(pd).unwrap();
}

#[test]
fn window_in_the_place_of_an_earlier_one_has_another_key() {
    let config = DeviceConfig { windows: 1, ..DeviceConfig::default() };
    let mut device = Device::new(&config);
    let pd = device.create_pd().unwrap();
    let first = device.create_mw(pd).unwrap();
    assert_eq!(device.create_mw(pd), Err(DeviceError::Full("memory windows")));
    device.destroy_mw(first.handle).unwrap();
    let second = device.create_mw(pd).unwrap();
    assert_ne!(second.key, first.key);
    assert_eq!(Mw::next_key(0x1234_56ff), 0x1234_5600, "the place stays");
}
