//! The cost of a received frame in the model: no allocation, and so little time that a million
//! frames a second pass.
#![allow(clippy::unwrap_used)] // a panic here is the report

use softhca::hca::testing::{ManualClock, PlainMemory};
use softhca::hca::{
    AccessFlags, Compression, Config, CqRequest, Dma, Environment, FlowKind, FlowRequest, FlowSpec, Hca, LinkState,
    MrRequest, QpCapabilities, QpChange, QpKind, QpRequest, QpState, RqRing, RssRequest, Striding, Wire, WqChange,
    WqRequest, WqState,
};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// How the queue receives.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Plain,
    Compressed,
    Striding,
    Rss,
}

const MODES: [Mode; 4] = [Mode::Plain, Mode::Compressed, Mode::Striding, Mode::Rss];

const WQE_COUNT: u32 = 256;
const CQ_ENTRIES: u32 = 1024;
const STRIDING: Striding = Striding { stride_len_log: 6, strides_log: 3, shift_two_bytes: false };
const GROUPS: u16 = 1000;
const BURST: u32 = 32;

/// A wire on which the same frame arrives repeatedly, for one group after the other.
struct Feed {
    frame: Vec<u8>,
    left: u32,
    next: u16,
}

impl Wire for Feed {
    fn send(&mut self, _: &[u8]) -> bool {
        true
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        frame.clear();
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.next = (self.next + 1) % GROUPS;
        frame.extend_from_slice(&self.frame);
        frame[32..34].copy_from_slice(&self.next.to_be_bytes());
        true
    }

    fn link(&self) -> LinkState {
        LinkState::Up
    }
}

/// 60 bytes of UDP without a checksum to 239.1.x.y.
fn frame() -> Vec<u8> {
    let mut frame = vec![0x01, 0, 0x5e, 1, 0, 0, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 239, 1, 0, 0]);
    frame.extend([0, 1, 0, 2, 0, 26, 0, 0]);
    frame.resize(60, 0x55);
    frame
}

struct Rig {
    hca: Hca,
    memory: PlainMemory,
    clock: ManualClock,
    feed: Feed,
    mode: Mode,
    doorbell: u64,
    cq_doorbell: u64,
    received: u32,
}

impl Rig {
    fn new(mode: Mode) -> Self {
        let memory = PlainMemory::new(0x10_0000, 1 << 20);
        let mut hca = Hca::new(Config::default());
        let pd = hca.alloc_pd();
        let buffers = memory.reserve(u64::from(WQE_COUNT) * 512, 4096);
        let (len, access) = (u64::from(WQE_COUNT) * 512, AccessFlags(1));
        let mr = hca.register_memory(&MrRequest { pd, start: buffers, len, iova: buffers, access }).unwrap();
        let cq_doorbell = memory.reserve(8, 8);
        let cq = CqRequest {
            entries: CQ_ENTRIES,
            ring: memory.reserve(u64::from(CQ_ENTRIES) * 64, 64),
            doorbell: cq_doorbell,
            entry_len: 64,
            compression: matches!(mode, Mode::Compressed).then_some(Compression::Hash),
            channel: Some(1),
            ..CqRequest::default()
        };
        let striding = matches!(mode, Mode::Striding).then_some(STRIDING);
        let wqe_shift = if striding.is_some() { 5 } else { 4 };
        let ring = memory.reserve(u64::from(WQE_COUNT) << wqe_shift, 64);
        for wqe in 0..u64::from(WQE_COUNT) {
            let pointer = ring + ((wqe + 1) << wqe_shift) - 16;
            memory.put_be32(pointer, 512);
            memory.put_be32(pointer + 4, mr.lkey);
            memory.put_be64(pointer + 8, buffers + wqe * 512);
        }
        let doorbell = memory.reserve(4, 4);
        let cq = hca.create_cq(&cq, &memory).unwrap().handle;
        let ring = RqRing { ring, wqe_count: WQE_COUNT, wqe_shift, doorbell, cq, striding };
        let qp = if matches!(mode, Mode::Rss) { rss_qp(&mut hca, pd, ring) } else { raw_qp(&mut hca, pd, ring) };
        for group in 0..GROUPS {
            let [high, low] = group.to_be_bytes();
            let value = [0, 0, 0, 0, 239, 1, high, low, 0, 0, 0, 0];
            let specs = vec![FlowSpec::Ipv4 { value, mask: [0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0] }];
            let flow = FlowRequest { qp, kind: FlowKind::Normal, priority: 0, flags: 0, specs, actions: Vec::new() };
            hca.create_flow(&flow).unwrap();
        }
        let feed = Feed { frame: frame(), left: 0, next: 0 };
        Self { hca, memory, clock: ManualClock::default(), feed, mode, doorbell, cq_doorbell, received: 0 }
    }

    /// Receives `bursts` bursts, with a driver that posts and consumes as much.
    fn run(&mut self, bursts: u32) {
        for _ in 0..bursts {
            let frames_per_wqe = if matches!(self.mode, Mode::Striding) { 8 } else { 1 };
            let posted = self.received / frames_per_wqe + WQE_COUNT / 2;
            self.memory.store_be32(self.doorbell, posted & 0xffff).unwrap();
            self.feed.left = BURST;
            let mut environment = Environment { dma: &self.memory, wire: &mut self.feed, clock: &self.clock };
            let moved = self.hca.step(64, &mut environment);
            assert_eq!(moved, BURST as usize, "{:?}", self.mode);
            self.received += BURST;
            self.memory.store_be32(self.cq_doorbell, self.received & 0xff_ffff).unwrap();
        }
        assert_eq!(self.hca.counters().rx_frames, u64::from(self.received));
        assert_eq!(self.hca.counters().rx_errors, 0);
    }
}

fn qp_request(pd: u32, kind: QpKind) -> QpRequest {
    let capabilities = QpCapabilities::default();
    QpRequest { pd, kind, user_handle: 0, user_index: 0, capabilities, create_flags: 0, signal_all: false }
}

fn raw_qp(hca: &mut Hca, pd: u32, ring: RqRing) -> u32 {
    let kind = QpKind::RawPacket { send: None, receive: Some(ring) };
    let qp = hca.create_qp(qp_request(pd, kind)).unwrap().handle;
    for state in [QpState::Init, QpState::ReadyToReceive] {
        let port = (state == QpState::Init).then_some(1);
        hca.modify_qp(qp, &QpChange { state: Some(state), port, ..QpChange::default() }).unwrap();
    }
    qp
}

fn rss_qp(hca: &mut Hca, pd: u32, ring: RqRing) -> u32 {
    let wq = WqRequest { pd, ring, user_index: 0, user_handle: 0, wr_max: 0, sge_max: 1, create_flags: 0 };
    let wq = hca.create_wq(&wq).unwrap().handle;
    hca.modify_wq(wq, &WqChange { state: Some(WqState::Ready), ..WqChange::default() }).unwrap();
    let table = hca.create_table(&[wq, wq]).unwrap();
    let rss = RssRequest { table, fields: 0x03 | 0xc0, function: 1, key: (0..40).collect() };
    hca.create_qp(qp_request(pd, QpKind::Rss(rss))).unwrap().handle
}

#[test]
fn receiving_allocates_nothing() {
    for mode in MODES {
        let mut rig = Rig::new(mode);
        rig.run(100);
        let before = allocations::count();
        rig.run(1000);
        assert_eq!(allocations::count() - before, 0, "{mode:?}: allocations for 32000 frames");
    }
}

/// `cargo test --release -p softhca --test receive_cost -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn frames_a_second() {
    for mode in MODES {
        let mut rig = Rig::new(mode);
        rig.run(100);
        let start = std::time::Instant::now();
        let bursts = 100_000;
        rig.run(bursts);
        let rate = f64::from(bursts * BURST) / start.elapsed().as_secs_f64() / 1e6;
        println!("{mode:?}: {rate:.2} M frames/s of 60 bytes, {GROUPS} flow rules, one thread");
    }
}
