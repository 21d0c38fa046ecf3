//! Two RoCE devices in plain memory: each frame that one writes the other takes at once.

use std::net::Ipv4Addr;

use rdma::provider::Provider;
use rdma::roce::{
    Access, Addresses, Buffer, CqHandle, Data, Device, DeviceConfig, Link, Mr, Mtu, Path, QpAttributes, QpHandle,
    QpOptions, Region, Remote, RoceFrame, SendOperation, SendRequest, Sge, Status,
};
use rdma::wire::opcode::Transport;
use rdma::wire::qpn::Qpn;

/// What a pair is made for.
#[derive(Clone, Copy)]
pub struct PairConfig {
    /// Connections between the two.
    pub connections: u32,
    /// Requests that a queue holds.
    pub depth: u32,
    /// The largest payload of a packet.
    pub mtu: Mtu,
    /// Bytes of a message.
    pub message_len: usize,
}

impl Default for PairConfig {
    /// One connection, and messages of 64 bytes in packets of up to 1024.
    fn default() -> Self {
        Self { connections: 1, depth: 64, mtu: Mtu::B1024, message_len: 64 }
    }
}

/// Two devices, and the connections between them.
pub struct Pair {
    ends: [End; 2],
    frame: Vec<u8>,
    /// Frames that are under way at once, and their lengths.
    burst: Vec<(Vec<u8>, usize)>,
    message_len: u32,
    now: u64,
}

/// Packets of a burst: as many as a worker takes out of a ring at once.
pub const BURST_LEN: usize = 32;
/// Queue pairs are asked for so far ahead: a core has some twenty lines under way, and one has six.
const PREFETCH_DISTANCE: usize = 2;

struct End {
    device: Device,
    cq: CqHandle,
    qps: Vec<QpHandle>,
    memory: Buffer,
    mr: Mr,
}

impl Pair {
    /// Connects them.
    pub fn new(config: PairConfig) -> Self {
        let mut ends = [End::new(config), End::new(config)];
        for idx in 0..config.connections as usize {
            let [a, b] = [0, 1].map(|end: usize| ends[end].qpn(idx));
            ends[0].connect(idx, 0, b, config.mtu);
            ends[1].connect(idx, 1, a, config.mtu);
        }
        let frame = vec![0; ends[0].device.frame_len_max()];
        let burst = vec![(frame.clone(), 0); BURST_LEN];
        Self { ends, frame, burst, message_len: config.message_len as u32, now: 0 }
    }

    /// A SEND, from both posts to both completions.
    #[inline]
    pub fn send(&mut self) {
        let [a, b] = &mut self.ends;
        let sge = b.sge(self.message_len);
        b.device.post_recv(b.qps[0], 1, &[sge]).expect("room for a receive");
        a.post(0, SendOperation::Send, self.message_len);
        self.deliver();
        self.ends[1].expect_completion();
        self.acknowledge();
        self.ends[0].expect_completion();
    }

    /// A WRITE on a connection, from the post until the bytes are at the other end.
    #[inline]
    pub fn write(&mut self, connection: usize) {
        let remote = self.ends[1].remote();
        self.ends[0].post(connection, SendOperation::Write(remote), self.message_len);
        self.deliver();
    }

    /// What follows the bytes: acknowledgments go back, and requests complete.
    #[inline]
    pub fn complete(&mut self) {
        self.acknowledge();
        while self.ends[0].device.poll_cq(self.ends[0].cq).is_some_and(|done| done.status == Status::Success) {}
    }

    /// A WRITE on each of some connections, up to [`BURST_LEN`], as a worker does it that has many:
    /// all are posted, their packets arrive in a burst, and so do the acknowledgments.
    pub fn write_on_each(&mut self, connections: &[u32]) {
        let remote = self.ends[1].remote();
        let [a, b] = &mut self.ends;
        for (idx, connection) in connections.iter().enumerate() {
            if let Some(later) = connections.get(idx + PREFETCH_DISTANCE) {
                a.device.prefetch_qp(a.qps[*later as usize]);
            }
            a.post(*connection as usize, SendOperation::Write(remote), self.message_len);
        }
        carry_burst(a, b, self.now, &mut self.burst);
        self.now += 1000;
        carry_burst(b, a, self.now, &mut self.burst);
        connections.iter().for_each(|_| self.ends[0].expect_completion());
    }

    /// WRITEs of large messages, several at once, until all are complete.
    pub fn write_bulk(&mut self, messages: usize) {
        let remote = self.ends[1].remote();
        for _ in 0..messages {
            self.ends[0].post(0, SendOperation::Write(remote), self.message_len);
        }
        for _ in 0..messages {
            while !self.ends[0].poll() {
                self.deliver();
                self.acknowledge();
            }
        }
    }

    /// Requests go to the second end.
    #[inline]
    fn deliver(&mut self) {
        let [a, b] = &mut self.ends;
        carry(a, b, self.now, &mut self.frame);
    }

    /// Answers go to the first.
    #[inline]
    fn acknowledge(&mut self) {
        let [a, b] = &mut self.ends;
        self.now += 1000;
        carry(b, a, self.now, &mut self.frame);
    }
}

/// Carries all that is due.
#[inline]
fn carry(from: &mut End, to: &mut End, now: u64, frame: &mut [u8]) {
    while let Some(len) = from.transmit(now, frame) {
        to.receive(now, &frame[..len]);
    }
}

/// Carries a burst of what is due.
fn carry_burst(from: &mut End, to: &mut End, now: u64, burst: &mut [(Vec<u8>, usize)]) {
    let mut count = 0;
    while let Some((frame, len)) = burst.get_mut(count) {
        let Some(written) = from.transmit(now, frame) else { break };
        *len = written;
        count += 1;
    }
    let burst = &burst[..count];
    let prefetch = |to: &End, idx: usize| {
        if let Some((frame, len)) = burst.get(idx) {
            to.device.prefetch(RoceFrame::parse(&frame[..*len]).expect("a frame of RoCE").roce);
        }
    };
    (0..PREFETCH_DISTANCE).for_each(|idx| prefetch(to, idx));
    for (idx, (frame, len)) in burst.iter().enumerate() {
        prefetch(to, idx + PREFETCH_DISTANCE);
        to.receive(now, &frame[..*len]);
    }
}

impl End {
    fn new(config: PairConfig) -> Self {
        let PairConfig { connections, depth, mtu, message_len } = config;
        let mut device = Device::new(&DeviceConfig { qps: connections, mtu, ..DeviceConfig::default() });
        let pd = device.create_pd().expect("room for a domain");
        let cq = device.create_cq((2 * depth).max(BURST_LEN as u32)).expect("room for a queue");
        let memory = Buffer::zeroed(message_len);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mr = device.register(pd, Region::from(&memory), access).expect("room for a region");
        let options = QpOptions {
            transport: Transport::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: depth,
            recv_depth: depth,
            srq: None,
            signals_all: true,
        };
        let qps = (0..connections).map(|_| device.create_qp(&options).expect("room for a queue pair")).collect();
        Self { device, cq, qps, memory, mr }
    }

    fn qpn(&self, idx: usize) -> Qpn {
        self.device.qpn(self.qps[idx]).expect("it was made")
    }

    fn connect(&mut self, idx: usize, own: u8, peer: Qpn, mtu: Mtu) {
        let address = |end| Ipv4Addr::new(192, 0, 2, end);
        let link = Link { destination: [2 - own; 6], source: [1 + own; 6], vlan: None };
        let addresses = Addresses::Ipv4 { source: address(1 + own), destination: address(2 - own) };
        let connection = QpAttributes {
            access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ),
            mtu: Some(mtu),
            ..QpAttributes::connection(Path::new(link, addresses), peer)
        };
        let connected = self.device.connect_qp(self.qps[idx], Transport::Rc, &connection);
        connected.expect("the steps of the manual page");
    }

    fn sge(&self, len: u32) -> Sge {
        Sge { address: self.memory.address(), len, lkey: self.mr.key }
    }

    fn remote(&self) -> Remote {
        Remote { address: self.mr.address, rkey: self.mr.key }
    }

    // Not inlined, because a worker has one place that sends and one that receives.
    #[inline(never)]
    fn transmit(&mut self, now: u64, frame: &mut [u8]) -> Option<usize> {
        self.device.transmit(now, frame)
    }

    #[inline(never)]
    fn receive(&mut self, now: u64, frame: &[u8]) {
        let frame = RoceFrame::parse(frame).expect("a frame of RoCE");
        self.device.receive(now, frame.network, frame.roce);
    }

    #[inline]
    fn post(&mut self, connection: usize, operation: SendOperation, len: u32) {
        let data = [self.sge(len)];
        let request = SendRequest::new(7, operation, Data::Sges(&data));
        self.device.post_send(self.qps[connection], &request).expect("room for a request");
    }

    /// True if a request has completed.
    #[inline]
    fn poll(&mut self) -> bool {
        self.device.poll_cq(self.cq).is_some_and(|done| done.status == Status::Success)
    }

    #[inline]
    fn expect_completion(&mut self) {
        assert!(self.poll(), "a completion that succeeds");
    }
}
