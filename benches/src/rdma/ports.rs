//! Two RoCE devices on ports of plain memory, with bursts over many connections.

use rdma::port::{RocePort, RocePortOptions};
use rdma::provider::Provider;
use rdma::roce::{
    Access, Buffer, CqHandle, Data, DeviceConfig, Mr, Path, QpAttributes, QpHandle, QpOptions, Region, Remote,
    SendOperation, SendRequest, Status,
};
use rdma::wire::opcode::Transport;
use rdma::wire::qpn::Qpn;
use wirepath::device::memory::{MemoryConfig, MemoryDevice, pair};
use wirepath::port::Port;

/// Turns that ARP takes at most.
const TURNS_MAX: usize = 100_000;

/// Two ports, and the connections between their devices.
pub struct Ports {
    ends: [End; 2],
}

struct End {
    port: RocePort<MemoryDevice>,
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
            let numbers = [0, 1].map(|end: usize| ends[end].port.device().qpn(ends[end].qps[idx]));
            for (own, end) in ends.iter_mut().enumerate() {
                end.connect(idx, paths[own], numbers[1 - own].expect("it was made"));
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
        let device = near.port.device_mut();
        for connection in connections {
            let request = SendRequest::new(7, SendOperation::Write(remote), Data::Inline(&[7; 64]));
            device.post_send(near.qps[*connection as usize], &request).expect("room for a request");
        }
        // The requests leave; they come, and are answered; the answers come.
        near.port.turn();
        far.port.turn();
        near.port.turn();
        let cq = near.cq;
        let device = near.port.device_mut();
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
            end.port.turn();
        }
    }
    panic!("ARP has no answer");
}

impl End {
    fn new(device: MemoryDevice, own: u8, connections: u32) -> Self {
        let options = RocePortOptions {
            device: DeviceConfig { qps: connections, ..DeviceConfig::default() },
            rows: 0,
            ..RocePortOptions::new("roce")
        };
        let port = Port::over(device).address([192, 0, 2, own], 24).log(|_| ());
        // No interface has this name.
        let mut port = RocePort::over(port, "memory:roce", &options).expect("a port of memory opens");
        let device = port.device_mut();
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
        self.port.path([192, 0, 2, peer].into()).expect("a way to the other port")
    }

    fn connect(&mut self, idx: usize, path: Path, peer: Qpn) {
        let access = Some(Access::REMOTE_WRITE);
        let connection = QpAttributes { access, ..QpAttributes::connection(path, peer) };
        let connected = self.port.device_mut().connect_qp(self.qps[idx], Transport::Rc, &connection);
        connected.expect("the steps of the manual page");
    }
}
