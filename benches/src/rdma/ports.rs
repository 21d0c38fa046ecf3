//! Two RoCE devices on ports of plain memory, with bursts over many connections.

use rdma::port::{PathState, RoceNode, subscription};
use rdma::roce::{
    Access, Buffer, CqHandle, Data, DeviceConfig, Mr, Mtu, Path, QpAttributes, QpHandle, QpOptions, QpState, Region,
    Remote, SendOperation, SendRequest, Status,
};
use rdma::wire::opcode::Transport;
use rdma::wire::psn::Psn;
use wirepath::device::memory::{MemoryConfig, MemoryDevice, pair};
use wirepath::port::{EmbeddedPort, Port};

/// Turns that ARP takes at most.
const TURNS_MAX: usize = 100_000;

/// Two ports, and the connections between their devices.
pub struct Ports {
    ends: [End; 2],
}

struct End {
    port: EmbeddedPort<RoceNode, MemoryDevice>,
    cq: CqHandle,
    qps: Vec<QpHandle>,
    mr: Mr,
}

impl Ports {
    /// Connects them.
    ///
    /// # Panics
    /// If they do not find each other.
    pub fn new(connections: u32) -> Self {
        let (near, far) = pair("roce", MemoryConfig::default());
        let mut ends = [End::new(near, 1, connections), End::new(far, 2, connections)];
        let paths = paths(&mut ends);
        for idx in 0..connections as usize {
            let numbers = [0, 1].map(|end: usize| ends[end].port.app().device().qpn(ends[end].qps[idx]));
            for (own, end) in ends.iter_mut().enumerate() {
                end.connect(idx, &QpAttributes { destination: numbers[1 - own], ..rtr(paths[own]) });
            }
        }
        Self { ends }
    }

    /// A WRITE on each of some connections, until all are complete: their packets arrive in a burst
    /// at the far port, and so do the acknowledgments.
    ///
    /// # Panics
    /// If one fails.
    pub fn write_on_each(&mut self, connections: &[u32]) {
        let [near, far] = &mut self.ends;
        let remote = Remote { address: far.mr.address, rkey: far.mr.key };
        let device = near.port.app_mut().device_mut();
        for connection in connections {
            let request = SendRequest::new(7, SendOperation::Write(remote), Data::Inline(&[7; 64]));
            device.post_send(near.qps[*connection as usize], &request).expect("room for a request");
        }
        // The requests leave; they come, and are answered; the answers come.
        near.port.poll();
        far.port.poll();
        near.port.poll();
        let cq = near.cq;
        let device = near.port.app_mut().device_mut();
        connections.iter().for_each(|_| {
            assert!(
                device.poll_cq(cq).is_some_and(|done| done.status == Status::Success),
                "a completion that succeeds"
            );
        });
    }
}

/// The paths to each other, once ARP has found them.
fn paths(ends: &mut [End; 2]) -> [Path; 2] {
    for _ in 0..TURNS_MAX {
        let [near, far] = &mut *ends;
        let found = [near.path(2), far.path(1)];
        if let [Some(near), Some(far)] = found {
            return [near, far];
        }
        for end in &mut *ends {
            end.port.poll();
        }
    }
    panic!("ARP has no answer");
}

fn rtr(path: Path) -> QpAttributes {
    QpAttributes {
        path: Some(path),
        mtu: Some(Mtu::B1024),
        rq_psn: Some(Psn::new(1)),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(12),
        ..QpAttributes::to(QpState::Rtr)
    }
}

impl End {
    fn new(device: MemoryDevice, own: u8, connections: u32) -> Self {
        let network = format!("192.0.2.{own}/24").parse().expect("an address");
        let port = Port::over(device).address(network).log(|_| ()).subscribe(subscription());
        let node = RoceNode::new(&DeviceConfig { qps: connections, ..DeviceConfig::default() });
        let mut port = port.embed(node).expect("a port of memory opens");
        let device = port.app_mut().device_mut();
        let pd = device.create_pd().expect("room for a domain");
        let cq = device.create_cq(256).expect("room for a queue");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = device.register(pd, Region::from(&Buffer::zeroed(64)), access).expect("room for a region");
        let options = QpOptions {
            transport: Transport::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 4,
            recv_depth: 4,
            srq: None,
            signals_all: true,
        };
        let qps = (0..connections).map(|_| device.create_qp(&options).expect("room for a queue pair")).collect();
        Self { port, cq, qps, mr }
    }

    fn path(&mut self, peer: u8) -> Option<Path> {
        match self.port.with_app(|node, cx| node.path([192, 0, 2, peer].into(), cx)) {
            Ok(PathState::Known(path)) => Some(path),
            _ => None,
        }
    }

    fn connect(&mut self, idx: usize, rtr: &QpAttributes) {
        let init = QpAttributes {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::REMOTE_WRITE),
            ..QpAttributes::to(QpState::Init)
        };
        let rts = QpAttributes {
            sq_psn: Some(Psn::new(1)),
            max_rd_atomic: Some(1),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            timeout: Some(14),
            ..QpAttributes::to(QpState::Rts)
        };
        for step in [&init, rtr, &rts] {
            self.port.app_mut().device_mut().modify_qp(self.qps[idx], step).expect("a step of the manual page");
        }
    }
}
