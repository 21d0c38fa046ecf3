//! Frames that go back out of the far end of a veth pair: ours against DPDK's testpmd, and our
//! share of the time.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use wirepath::device::af_xdp::AfXdpTx;
use wirepath::device::{Offload, TxQueue};
use wirepath::forward;
use wirepath::mem::Mbuf;
use wirepath::time;

use super::flood::{Source, flooded};
use super::pair::Pair;
use super::testpmd::Testpmd;
use super::{reflector, sys};
use crate::measure::cores;

/// Time until forwarding reaches its steady rate.
const WARM_UP: Duration = Duration::from_millis(200);
/// The longest time until a started forwarder forwards.
const START_MAX: Duration = Duration::from_secs(30);
/// Millions of frames a second that only a forwarder sends back. A kernel without one answers with
/// a few ICMP errors.
const FORWARDING: f64 = 0.05;

/// Our forwarder: millions of frames a second that came back.
///
/// # Errors
/// Why it could not be measured.
pub fn ours([sending, forwarding]: [usize; 2], window: Duration) -> Result<f64, String> {
    let pair = Pair::new()?;
    let stopping = AtomicBool::new(false);
    thread::scope(|scope| {
        let forwarder = scope.spawn(|| {
            pair.far.run(|| {
                begin(forwarding);
                let mut port = reflector::open(|tx| tx)?;
                while !stopping.load(Ordering::Relaxed) {
                    port.turn();
                }
                Ok(())
            })
        });
        let rate = rate(&pair, sending, window);
        stopping.store(true, Ordering::Relaxed);
        let forwarded: Result<(), String> = forwarder.join().unwrap_or_else(|_| Err("the forwarder panicked".into()));
        forwarded.and(rate)
    })
}

/// DPDK's.
///
/// # Errors
/// Why it could not be measured.
pub fn theirs(cores: [usize; 2], window: Duration) -> Result<f64, String> {
    let pair = Pair::new()?;
    let _testpmd = Testpmd::start(&pair, cores)?;
    rate(&pair, cores[0], window)
}

fn rate(pair: &Pair, sending: usize, window: Duration) -> Result<f64, String> {
    flooded(pair, sending, Source::Frames, || {
        let start = Instant::now();
        while pair.rate_back(Duration::from_millis(20))? < FORWARDING {
            if start.elapsed() > START_MAX {
                return Err(format!("nothing was forwarded within {} s", START_MAX.as_secs()));
            }
        }
        thread::sleep(WARM_UP);
        pair.rate_back(window)
    })?
}

fn begin(core: usize) {
    cores::pin(core);
    sys::run_first();
}

/// Nanoseconds of a forwarded frame.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// In user space: turns that received frames, without their doorbells.
    pub ours: f64,
    /// In the doorbell's system call.
    pub kernel: f64,
    /// Frames in a turn.
    pub burst: f64,
}

/// Our share of the time of a forwarded frame, while the other core sends.
///
/// # Errors
/// Why it could not be measured.
pub fn share([sending, forwarding]: [usize; 2], window: Duration) -> Result<Share, String> {
    let pair = Pair::new()?;
    let measure = || {
        begin(forwarding);
        let doorbell = Rc::new(Cell::new(Duration::ZERO));
        let mut port = reflector::open(|tx| Stopwatch { tx, doorbell: Rc::clone(&doorbell) })?;
        let (mut all, mut frames, mut turns, start) = (Duration::ZERO, 0, 0, Instant::now());
        let mut before = start;
        doorbell.set(Duration::ZERO);
        while before - start < window {
            let rung = doorbell.get();
            let received = port.turn();
            let after = Instant::now();
            match received {
                // An empty turn rings for frames of the turn before.
                0 => all += doorbell.get() - rung,
                _ => (all, frames, turns) = (all + (after - before), frames + received, turns + 1),
            }
            before = after;
        }
        let each = |time: Duration| time.as_nanos() as f64 / frames.max(1) as f64;
        let (kernel, burst) = (each(doorbell.get()), frames as f64 / f64::from(turns.max(1)));
        Ok(Share { ours: each(all) - kernel, kernel, burst })
    };
    flooded(&pair, sending, Source::Frames, || pair.far.run(measure))?
}

/// Measures the doorbells of the queue that it wraps.
struct Stopwatch {
    tx: AfXdpTx,
    doorbell: Rc<Cell<Duration>>,
}

impl TxQueue for Stopwatch {
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        self.tx.post(mbuf, offload)
    }

    fn ring_doorbell(&mut self, now: time::Instant) {
        let start = Instant::now();
        self.tx.ring_doorbell(now);
        self.doorbell.set(self.doorbell.get() + start.elapsed());
    }

    // A preposted frame, or a doorbell that is deferred, would ring without the watch.
    forward!(
        tx: post_urgent, post_unmarked, post_burst, dry_run, reap, room, in_flight, has_timestamps,
        take_timestamp, refresh_counters;
        by_default: prepost, preposted, fire_preposted, defer_doorbell
    );
}
