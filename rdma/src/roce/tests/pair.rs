//! Two devices with a connected queue pair each, and frames that a test carries between them.

use core::net::Ipv4Addr;

use crate::provider::Provider;
use crate::roce::*;
use crate::wire::opcode::Transport;
use crate::wire::packet::Packet;
use crate::wire::psn::Psn;

/// Bytes of the memory of each end.
pub(super) const MEMORY: usize = 64 * 1024;

/// One end: a device with memory that both may do all to, and a queue pair.
pub(super) struct End {
    pub(super) device: Device,
    pub(super) pd: PdHandle,
    pub(super) cq: CqHandle,
    pub(super) srq: Option<SrqHandle>,
    pub(super) options: QpOptions,
    pub(super) qp: QpHandle,
    pub(super) memory: Buffer,
    pub(super) mr: Mr,
}

pub(super) struct Pair {
    pub(super) a: End,
    pub(super) b: End,
    pub(super) now: u64,
}

pub(super) fn all_access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

impl End {
    pub(super) fn new(config: &DeviceConfig) -> Self {
        Self::with(config, Transport::Rc, 0)
    }

    /// An end of another service; with a shared receive queue of a depth that is not zero.
    pub(super) fn with(config: &DeviceConfig, transport: Transport, srq_depth: u32) -> Self {
        // The same keys each time.
        let mut device = Device::new(&DeviceConfig { key_seed: 1, ..*config });
        let pd = device.create_pd().unwrap();
        let cq = device.create_cq(config.cqes.min(256)).unwrap();
        let memory = Buffer::zeroed(MEMORY);
        let mr = device.register(pd, Region::from(&memory), all_access()).unwrap();
        let srq = (srq_depth > 0).then(|| device.create_srq(pd, srq_depth).unwrap());
        let options = QpOptions {
            transport,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 32,
            recv_depth: 32,
            srq,
            signals_all: false,
        };
        let qp = device.create_qp(&options).unwrap();
        Self { device, pd, cq, qp, srq, options, memory, mr }
    }

    /// Leads the queue pair to RTS.
    pub(super) fn connect(&mut self, attributes: &QpAttributes) {
        self.device.connect_qp(self.qp, Transport::Rc, attributes).unwrap();
    }

    pub(super) fn sge(&self, at: usize, len: u32) -> Sge {
        Sge { address: self.mr.address + at as u64, len, lkey: self.mr.key }
    }

    pub(super) fn remote(&self, at: usize) -> Remote {
        Remote { address: self.mr.address + at as u64, rkey: self.mr.key }
    }

    pub(super) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(at, &mut bytes);
        bytes
    }

    pub(super) fn post(&mut self, wr_id: u64, operation: SendOperation, sge: Sge) {
        self.device.post_send(self.qp, &SendRequest::new(wr_id, operation, Data::Sges(&[sge]))).unwrap();
    }

    pub(super) fn post_recv(&mut self, wr_id: u64, at: usize, len: u32) {
        let sge = self.sge(at, len);
        self.device.post_recv(self.qp, wr_id, &[sge]).unwrap();
    }

    /// The completions that are there: request and status.
    pub(super) fn completions(&mut self) -> Vec<(u64, Status)> {
        core::iter::from_fn(|| self.device.poll_cq(self.cq)).map(|done| (done.wr_id, done.status)).collect()
    }

    /// The next frame that is due.
    pub(super) fn frame(&mut self, now: u64) -> Option<Vec<u8>> {
        let mut frame = vec![0; self.device.frame_len_max()];
        let len = self.device.transmit(now, &mut frame)?;
        frame.truncate(len);
        Some(frame)
    }

    pub(super) fn receive(&mut self, now: u64, frame: &[u8]) {
        let frame = RoceFrame::parse(frame).unwrap();
        self.device.receive(now, frame.network, frame.roce);
    }

    pub(super) fn counters(&self) -> QpCounters {
        self.device.qp_counters(self.qp).unwrap()
    }

    pub(super) fn state(&self) -> QpState {
        self.device.qp_state(self.qp).unwrap()
    }
}

/// All attributes of a reliable connection, as `ibv_rc_pingpong` sets them; 10.0.0.`from` to
/// 10.0.0.`to`.
pub(super) fn attributes(from: u8, to: u8, peer: &End) -> QpAttributes {
    let link = Link { destination: [to; 6], source: [from; 6], vlan: None };
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, from), Ipv4Addr::new(10, 0, 0, to));
    let psn = |end: u8| Some(Psn::new(0xff_fff0 + u32::from(end)));
    let path = Path::new(link, Addresses::Ipv4 { source, destination });
    QpAttributes {
        access: Some(all_access()),
        rq_psn: psn(to),
        max_dest_rd_atomic: Some(4),
        sq_psn: psn(from),
        max_rd_atomic: Some(4),
        ..QpAttributes::connection(path, peer.device.qpn(peer.qp).unwrap())
    }
}

impl Pair {
    pub(super) fn new() -> Self {
        Self::with(|_| ())
    }

    /// A pair of which both ends have attributes that `change` has changed.
    pub(super) fn with(change: impl Fn(&mut QpAttributes)) -> Self {
        Self::of(&DeviceConfig::default(), change)
    }

    /// As [`Pair::with`], of devices with another configuration; a completion queue has 256 entries
    /// at most.
    pub(super) fn of(config: &DeviceConfig, change: impl Fn(&mut QpAttributes)) -> Self {
        let (mut a, mut b) = (End::new(config), End::new(config));
        let (mut of_a, mut of_b) = (attributes(1, 2, &b), attributes(2, 1, &a));
        change(&mut of_a);
        change(&mut of_b);
        a.connect(&of_a);
        b.connect(&of_b);
        Self { a, b, now: 1_000_000 }
    }

    /// Carries all frames until none is due. `keep` says of each from which end it is and which
    /// packet, and whether it arrives.
    pub(super) fn run_with(&mut self, mut keep: impl FnMut(bool, &Packet<'_>) -> bool) {
        for _ in 0..100_000 {
            let (from_a, frame) = match self.a.frame(self.now) {
                Some(frame) => (true, frame),
                None => match self.b.frame(self.now) {
                    Some(frame) => (false, frame),
                    None => return,
                },
            };
            let arrives = keep(from_a, &Packet::parse(RoceFrame::parse(&frame).unwrap().roce).unwrap());
            if arrives {
                let to = if from_a { &mut self.b } else { &mut self.a };
                to.receive(self.now, &frame);
            }
        }
        panic!("the ends never fall silent");
    }

    pub(super) fn run(&mut self) {
        self.run_with(|_, _| true);
    }

    /// Carries all frames, and returns them in words.
    pub(super) fn watch(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        self.run_with(|from_a, packet| {
            words.push(format!("{} {packet}", if from_a { "a:" } else { "b:" }));
            true
        });
        words
    }

    /// Goes on to the next timer of either end; false if there is none.
    pub(super) fn tick(&mut self) -> bool {
        let next = [&self.a, &self.b].iter().filter_map(|end| end.device.next_timer()).min();
        let Some(next) = next else { return false };
        self.now = self.now.max(next);
        self.a.device.on_timer(self.now);
        self.b.device.on_timer(self.now);
        true
    }

    /// Runs and lets time pass until nothing is due and no timer runs.
    pub(super) fn finish(&mut self) {
        self.run();
        for _ in 0..1000 {
            if !self.tick() {
                return;
            }
            self.run();
        }
        panic!("a timer that never stops");
    }
}

/// Changes a frame over IPv4, and gives it the ICRC that it has then.
pub(super) fn seal(frame: &mut [u8], change: impl Fn(&mut [u8])) {
    change(frame);
    let end = frame.len() - 4;
    let read = RoceFrame::parse(frame).unwrap();
    let icrc = crate::wire::icrc::icrc(read.network, &read.roce[..read.roce.len() - 4]).to_le_bytes();
    frame[end..].copy_from_slice(&icrc);
}
