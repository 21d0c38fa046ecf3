//! Figures of the wire: frames a second each way, and how long a frame takes there and back.
//!
//! Sender and receiver are two threads; a round trip is measured by one thread that drives both
//! ends, so that it shows the NICs, PCIe and the cable, and not the handover between two cores.
//! Round trips include the clock reads, some 20 ns each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant as Clock};

use hdrhistogram::Histogram;
use hugepages::MapRequest;
use wirepath::counters::Block;
use wirepath::device::mlx5::{Feature, Mlx5Config, Mlx5Device, Mlx5Rx, Mlx5Tx};
use wirepath::device::{Device, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{Burst, Layout, Mbuf, Pool, Region};
use wirepath::time::{Clock as _, MonotonicClock};
use wirepath::worker::affinity;

use super::report::Report;
use super::ways::{self, Way};
use super::{Lab, place};
use crate::cable::{Cable, DESTINATION, EXPERIMENT, FRAME_LEN_MAX, RULE, drops};

/// How long, and on which cores.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    pub(super) each: Duration,
    pub(super) cores: Option<(usize, usize)>,
}

/// A queue of the port that no worker has opened yet.
type Unopened = <Mlx5Device as Device>::Queue;

/// Bytes of the frames, Ethernet header to last payload byte.
const LENS: [usize; 2] = [64, 1500];
/// Bytes on the wire beside those: checksum, preamble, and the gap behind the frame.
const WIRE_LEN: usize = 4 + 8 + 12;
/// Frames a turn.
const BURST: usize = 32;
/// Silence after which no more frames are on the way. A NIC needs microseconds, a software one on a
/// busy machine more.
const SILENCE: Duration = Duration::from_millis(100);
/// How long a single frame may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Round trips before those that count.
const WARM_UP: usize = 100;

/// Whether a frame gets from one end to the other at all.
pub(super) fn first_frame(lab: &Lab) -> Result<(), String> {
    let cable = ways::plain().cable(lab);
    let (mut near, mut far) = (End::open(&cable, 0)?, End::open(&cable, 1)?);
    near.post(&frame(64), Offload::NONE);
    near.ring_doorbell();
    match far.wait() {
        Some(mbuf) => {
            mbuf.free();
            Ok(())
        }
        None => Err(format!(
            "a frame from {} does not arrive at {}: name two ports that one cable joins, and look whether a switch between them \
             knows the frame's address",
            lab.device, lab.peer
        )),
    }
}

/// Frames a second, each way to drive the ports, each length, each direction.
pub(super) fn rates(lab: &Lab, ways: &[Way], pace: Pace, report: &mut Report<'_>) -> Result<(), String> {
    let link = place::link_bits(lab);
    report.line("\nframes a second")?;
    for way in ways.iter().filter(|way| way.is_measured) {
        for (from, to) in [(0, 1), (1, 0)] {
            for len in LENS {
                let cable = way.fast_cable(lab);
                let flow = Flow::measure(&cable, (from, to), len, pace)?;
                let ends = format!("{} to {}", cable.ends[from], cable.ends[to]);
                report.line(&format!("  {:<26}{ends:<22}{len:>5} bytes  {}", way.name, flow.words(len, link)))?;
            }
        }
    }
    Ok(())
}

/// The frames that passed in one direction.
struct Flow {
    sent: u64,
    received: u64,
    dropped: u64,
    /// From the first frame received to the last.
    took: Duration,
}

impl Flow {
    fn measure(cable: &Cable, (from, to): (usize, usize), len: usize, pace: Pace) -> Result<Self, String> {
        let (mut sender, mut receiver) = (device(cable, from)?, device(cable, to)?);
        let (sender, receiver) = (queue(&mut sender)?, queue(&mut receiver)?);
        let is_over = AtomicBool::new(false);
        let (ready, is_ready) = mpsc::channel();
        let (cores, config) = (pace.cores.unzip(), &cable.config);
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| receive(receiver, config, cores.1, &is_over, ready));
            // Where the receiver could not be opened, it says so itself.
            let sent =
                scope.spawn(move || is_ready.recv().map_or(Ok(0), |()| send(sender, config, cores.0, len, pace.each)));
            let sent = sent.join().unwrap_or_else(|_| Err("the sender panicked".into()));
            is_over.store(true, Ordering::Release);
            let flow = receiving.join().unwrap_or_else(|_| Err("the receiver panicked".into()))?;
            Ok(Self { sent: sent?, ..flow })
        })
    }

    fn words(&self, len: usize, link: Option<f64>) -> String {
        let rate = self.received as f64 / self.took.as_secs_f64().max(1e-9);
        let bits = rate * ((len + WIRE_LEN) * 8) as f64;
        let share = link.map_or(String::new(), |link| format!(", {:.0} % of the link", 100.0 * bits / link));
        let lost = self.sent.saturating_sub(self.received);
        format!(
            "{:>9} a second, {:.2} Gbit/s{share}; {} sent, {lost} not received, {} dropped by name",
            amount(rate),
            bits / 1e9,
            self.sent,
            self.dropped
        )
    }
}

/// Sends as fast as the ring takes frames; how many.
fn send(queue: Unopened, config: &Mlx5Config, core: Option<usize>, len: usize, each: Duration) -> Result<u64, String> {
    let mut end = End::of(queue, config, core)?;
    let (bytes, start) = (frame(len), Clock::now());
    let mut sent = 0;
    while start.elapsed() < each {
        end.tx.reap();
        sent += (0..BURST).take_while(|_| end.post(&bytes, Offload::NONE)).count() as u64;
        end.ring_doorbell();
    }
    let last = Clock::now();
    while end.tx.in_flight() > 0 && last.elapsed() < TIMEOUT {
        end.tx.reap();
        end.ring_doorbell();
    }
    Ok(sent)
}

/// Counts received frames, until the sender has ended and no more come.
fn receive(
    queue: Unopened,
    config: &Mlx5Config,
    core: Option<usize>,
    is_over: &AtomicBool,
    ready: mpsc::Sender<()>,
) -> Result<Flow, String> {
    let mut end = End::of(queue, config, core)?;
    // If the receiver of this message is gone, the sender could not be opened, and reports that
    // itself.
    let _ = ready.send(());
    let (mut received, mut first, mut last) = (0, None, Clock::now());
    let mut burst = Burst::new();
    loop {
        let count = end.receive(&mut burst, BURST);
        let at = Clock::now();
        if count > 0 {
            burst.drain(..).for_each(Mbuf::free);
            received += count as u64;
            first.get_or_insert(at);
            last = at;
        } else if is_over.load(Ordering::Acquire) && at.duration_since(last) > SILENCE {
            break;
        }
    }
    end.rx.refresh_counters();
    let took = first.map_or(Duration::ZERO, |first| last.duration_since(first));
    Ok(Flow { sent: 0, received, dropped: drops(&end.block), took })
}

/// There and back, each length, by BlueFlame and by doorbell.
pub(super) fn round_trips(lab: &Lab, pace: Pace, report: &mut Report<'_>) -> Result<(), String> {
    report.line("\nround trip, both ends on one thread: microseconds")?;
    report.line(&format!("  {:<26}{:>22}{:>10}{:>10}{:>10}{:>10}", "", "", "p50", "p99", "p99.9", "trips"))?;
    for (name, urgent) in [("urgent, BlueFlame", true), ("doorbell", false)] {
        for len in LENS {
            let mut cable = ways::plain().fast_cable(lab);
            cable.config.blueflame = urgent;
            let trips = std::thread::scope(|scope| {
                let trips = scope.spawn(|| round_trip(&cable, len, urgent, pace));
                trips.join().unwrap_or_else(|_| Err("the round trips panicked".into()))
            })?;
            let at = |quantile| format!("{:>10.2}", trips.value_at_quantile(quantile) as f64 / 1e3);
            let (p50, p99, p999) = (at(0.5), at(0.99), at(0.999));
            report.line(&format!("  {name:<26}{:>16} bytes{p50}{p99}{p999}{:>10}", len, trips.len()))?;
        }
    }
    Ok(())
}

fn round_trip(cable: &Cable, len: usize, urgent: bool, pace: Pace) -> Result<Histogram<u64>, String> {
    if let Some((core, _)) = pace.cores {
        affinity::pin(core).map_err(|error| error.to_string())?;
    }
    let (mut near, mut far) = (End::open(cable, 0)?, End::open(cable, 1)?);
    let (bytes, offload) = (frame(len), Offload::URGENT.when(urgent));
    // Three digits, up to the longest that we wait.
    let mut trips =
        Histogram::new_with_bounds(1, TIMEOUT.as_nanos() as u64 * 2, 3).map_err(|error| error.to_string())?;
    let (start, mut warm_up) = (Clock::now(), WARM_UP);
    while trips.is_empty() || start.elapsed() < pace.each {
        let left = Clock::now();
        if !near.post(&bytes, offload) {
            return Err("the ring does not take a single frame: a frame before it was not sent".into());
        }
        near.ring_doorbell();
        let there = far.wait().ok_or("a frame was lost on the way there")?;
        far.tx.post(there, offload).map_err(|mbuf| {
            mbuf.free();
            "the far ring does not take a single frame: a frame before it was not sent"
        })?;
        far.ring_doorbell();
        near.wait().ok_or("a frame was lost on the way back")?.free();
        let took = left.elapsed();
        near.tx.reap();
        far.tx.reap();
        if warm_up == 0 {
            trips.saturating_record(took.as_nanos() as u64);
        } else {
            warm_up -= 1;
        }
    }
    Ok(trips)
}

/// A queue with its pool.
struct End {
    rx: Mlx5Rx,
    tx: Mlx5Tx,
    pool: Pool,
    block: Block,
    clock: MonotonicClock,
    // Behind its queue.
    _device: Option<Mlx5Device>,
}

impl End {
    fn open(cable: &Cable, end: usize) -> Result<Self, String> {
        let mut device = device(cable, end)?;
        let queue = queue(&mut device)?;
        Ok(Self { _device: Some(device), ..Self::of(queue, &cable.config, None)? })
    }

    /// On this thread.
    fn of(queue: Unopened, config: &Mlx5Config, core: Option<usize>) -> Result<Self, String> {
        if let Some(core) = core {
            affinity::pin(core).map_err(|error| error.to_string())?;
        }
        let (pool, block) = (pool(config)?, Block::heap());
        let (rx, tx) = queue.open(&pool, &block.scope("port")).map_err(|error| error.to_string())?;
        Ok(Self { rx, tx, pool, block, clock: MonotonicClock::start(), _device: None })
    }

    /// Whether the ring took it.
    fn post(&mut self, frame: &[u8], offload: Offload) -> bool {
        let Some(mbuf) = self.pool.alloc_copy(frame) else { return false };
        self.tx.post(mbuf, offload).map_err(Mbuf::free).is_ok()
    }

    fn ring_doorbell(&mut self) {
        self.tx.ring_doorbell(self.clock.now());
    }

    fn receive(&mut self, burst: &mut Burst, limit: usize) -> usize {
        self.rx.receive(burst, limit, &self.pool, self.clock.now())
    }

    /// The next frame; `None` where there is none for too long.
    fn wait(&mut self) -> Option<Mbuf> {
        let start = Clock::now();
        let mut burst = Burst::new();
        while start.elapsed() < TIMEOUT {
            if self.receive(&mut burst, 1) > 0 {
                return burst.drain(..).next();
            }
        }
        None
    }
}

/// One end of the cable, with the rule.
fn device(cable: &Cable, end: usize) -> Result<Mlx5Device, String> {
    let mut device = Mlx5Device::open(&cable.config_of(end)).map_err(|error| error.to_string())?;
    device.steer(&RULE, 0).map_err(|error| error.to_string())?;
    Ok(device)
}

fn queue(device: &mut Mlx5Device) -> Result<Unopened, String> {
    device.take_queue(0).map_err(|error| error.to_string())
}

/// The buffers of both rings and of some bursts more, on hugepages if there are any.
fn pool(config: &Mlx5Config) -> Result<Pool, String> {
    let frames_a_block = if config.multi_packet_send == Feature::Off { 1 } else { 4 };
    let buffers = (2 * config.rx_ring_len + frames_a_block * config.tx_ring_len) as usize + 4 * BURST;
    let layout = Layout::for_frames(FRAME_LEN_MAX);
    let region = Region::map(&MapRequest::new(layout.region_len(buffers))).map_err(|error| error.to_string())?;
    Pool::new(region.into(), layout).map_err(|error| error.to_string())
}

/// A frame of the suite's kind.
fn frame(len: usize) -> Vec<u8> {
    let source = [2, 0, 0, 0, 0, 2];
    let header = [&DESTINATION.0[..], &source, &EXPERIMENT.0.to_be_bytes()].concat();
    header.into_iter().chain((0..).map(|at: usize| at as u8)).take(len).collect()
}

fn amount(number: f64) -> String {
    match number {
        1e6.. => format!("{:.2} M", number / 1e6),
        1e3.. => format!("{:.1} k", number / 1e3),
        _ => format!("{number:.0}"),
    }
}
