//! A message of each kind allocates nothing, once its queue pairs are made.
#![allow(clippy::unwrap_used)] // a panic here is the report

use core::net::Ipv4Addr;

use allocations::Counting;
use rdma::provider::Provider;
use rdma::roce::*;
use rdma::wire::opcode::Transport;
use rdma::wire::psn::Psn;
use rdma::wire::qpn::Qpn;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const QKEY: u32 = 0x1111_1111;
/// Of several packets.
const LEN: u32 = 3000;

struct End {
    device: Device,
    pd: PdHandle,
    cq: CqHandle,
    connected: QpHandle,
    datagrams: QpHandle,
    mr: Mr,
}

impl End {
    fn new() -> Self {
        let mut device = Device::new(&DeviceConfig::default());
        let (pd, cq) = (device.create_pd().unwrap(), device.create_cq(64).unwrap());
        let memory = Region::from(&Buffer::zeroed(2 * LEN as usize));
        let mr = device.register(pd, memory, Access::LOCAL_WRITE | access()).unwrap();
        let mut qp = |transport| {
            let (send_cq, recv_cq, send_depth, recv_depth) = (cq, cq, 16, 16);
            let options =
                QpOptions { transport, pd, send_cq, recv_cq, send_depth, recv_depth, srq: None, signals_all: true };
            device.create_qp(&options).unwrap()
        };
        let (connected, datagrams) = (qp(Transport::Rc), qp(Transport::Ud));
        Self { device, pd, cq, connected, datagrams, mr }
    }

    fn connect(&mut self, peer: Qpn) {
        let psn = Some(Psn::new(9));
        let connection = QpAttributes {
            access: Some(access()),
            rq_psn: psn,
            sq_psn: psn,
            max_dest_rd_atomic: Some(4),
            max_rd_atomic: Some(4),
            ..QpAttributes::connection(path(), peer)
        };
        self.device.connect_qp(self.connected, Transport::Rc, &connection).unwrap();
        self.device.connect_qp(self.datagrams, Transport::Ud, &QpAttributes::datagrams(QKEY)).unwrap();
    }

    fn sge(&self, len: u32) -> [Sge; 1] {
        [Sge { address: self.mr.address, len, lkey: self.mr.key }]
    }
}

fn access() -> Access {
    Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

fn path() -> Path {
    let link = Link { destination: [2; 6], source: [4; 6], vlan: None };
    Path::new(link, Addresses::Ipv4 { source: Ipv4Addr::LOCALHOST, destination: Ipv4Addr::LOCALHOST })
}

/// Posts at A and carries frames until A's request is complete; completions of B are taken.
fn finish(ends: &mut [End; 2], qp: QpHandle, request: &SendRequest<'_>, frame: &mut [u8]) {
    ends[0].device.post_send(qp, request).unwrap();
    for now in 1..1000 {
        for (from, to) in [(0, 1), (1, 0)] {
            while let Some(len) = ends[from].device.transmit(now, frame) {
                let frame = RoceFrame::parse(&frame[..len]).unwrap();
                ends[to].device.receive(now, frame.network, frame.roce);
            }
        }
        let cq = ends[1].cq;
        while ends[1].device.poll_cq(cq).is_some() {}
        let cq = ends[0].cq;
        if let Some(done) = Provider::poll_cq(&mut ends[0].device, cq).unwrap() {
            return assert_eq!(done.status, Status::Success, "{request:?}");
        }
    }
    panic!("{request:?} does not complete");
}

#[test]
fn message_of_each_kind_allocates_nothing() {
    let mut ends = [End::new(), End::new()];
    let numbers = [0, 1].map(|end| ends[end].device.qpn(ends[end].connected).unwrap());
    (0..2).for_each(|end| ends[end].connect(numbers[1 - end]));
    let (pd, peer) = (ends[0].pd, ends[1].device.qpn(ends[1].datagrams).unwrap());
    let ah = ends[0].device.create_ah(pd, &path()).unwrap();
    let remote = Remote { address: ends[1].mr.address, rkey: ends[1].mr.key };
    let mut frame = vec![0; ends[0].device.frame_len_max()];
    let [connected, datagrams] = [ends[0].connected, ends[0].datagrams];
    let kinds = [
        (SendOperation::Send, connected, LEN),
        (SendOperation::Write(remote), connected, LEN),
        (SendOperation::WriteImm(remote, *b"tick"), connected, LEN),
        (SendOperation::Read(remote), connected, LEN),
        (SendOperation::FetchAdd { remote, add: 1 }, connected, 8),
        (SendOperation::CompareSwap { remote, compare: 0, swap: 1 }, connected, 8),
        (SendOperation::Send, datagrams, 1000),
    ];
    for (operation, qp, len) in kinds {
        let destination = (qp == datagrams).then_some(Destination { ah, qpn: peer, qkey: QKEY });
        let (ours, theirs) = (ends[0].sge(len), ends[1].sge(LEN + GRH_LEN as u32));
        let request = SendRequest { destination, ..SendRequest::new(1, operation, Data::Sges(&ours)) };
        let before = allocations::count();
        for _ in 0..20 {
            // What a message takes no receive for keeps the one of the round before.
            let end = &mut ends[1];
            let own = if qp == datagrams { end.datagrams } else { end.connected };
            let _ = end.device.post_recv(own, 2, &theirs);
            finish(&mut ends, qp, &request, &mut frame);
        }
        assert_eq!(allocations::count() - before, 0, "{operation:?}");
    }
}

#[cfg(feature = "port")]
#[test]
fn message_from_an_mbuf_into_an_mbuf_allocates_nothing() {
    use rdma::port::Mbufs;
    use wirepath::mem::Pool;

    let (mut ends, pool) = ([End::new(), End::new()], Pool::heap(4).unwrap());
    for end in &mut ends {
        end.device.register(end.pd, Region::from(&pool), Access::LOCAL_WRITE).unwrap();
        end.device.allow_mbufs(end.connected).unwrap();
    }
    let numbers = [0, 1].map(|end| ends[end].device.qpn(ends[end].connected).unwrap());
    (0..2).for_each(|end| ends[end].connect(numbers[1 - end]));
    let request = SendRequest::new(1, SendOperation::Send, Data::Sges(&[]));
    let mut frame = vec![0; ends[0].device.frame_len_max()];
    let before = allocations::count();
    for _ in 0..20 {
        let [near, far] = &mut ends;
        assert!(far.device.post_recv_mbuf(far.connected, 2, pool.alloc().unwrap()).is_ok());
        let mbuf = pool.alloc_copy(b"tick").unwrap();
        assert!(near.device.post_send_mbuf(near.connected, &request, mbuf).is_ok());
        while let Some(len) = near.device.transmit(1, &mut frame) {
            let frame = RoceFrame::parse(&frame[..len]).unwrap();
            far.device.receive(1, frame.network, frame.roce);
        }
        while let Some(len) = far.device.transmit(1, &mut frame) {
            let frame = RoceFrame::parse(&frame[..len]).unwrap();
            near.device.receive(1, frame.network, frame.roce);
        }
        for end in [near, far] {
            let (done, mbuf) = end.device.poll_mbuf(end.cq).unwrap().expect("a completion");
            assert_eq!(done.status, Status::Success);
            mbuf.expect("an mbuf").free();
        }
    }
    assert_eq!(allocations::count() - before, 0);
    assert_eq!(pool.in_use(), 0);
}
