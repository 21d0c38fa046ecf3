//! Frames through a veth pair between two namespaces, AF_XDP on both ends, as many as asked for and
//! as fast as the machine can. Each carries its number; at the end the counters of both ends and of
//! the kernel between them must add up to the frame.
//!
//! ```text
//!  near: AfXdpTx ─▶ veth0 ─────────────▶ veth1 ─▶ program ─▶ rx ring ─▶ AfXdpRx: far
//!                     └ its queue full      └──── ring or pool empty: counted by the kernel, and by name by us
//! ```
//!
//! The sender does not wait for the receiver, so a machine with other work to do loses frames:
//! those count by name as well.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant as Clock};

use wirepath::counters::{Block, Reading, Snapshot};
use wirepath::device::af_xdp::{AfXdpConfig, Mode};
use wirepath::device::{Device, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{Burst, Mbuf, Pool};
use wirepath::time::Instant;

use crate::netns::Namespace;
use crate::port::{self, EXPERIMENT, TIMEOUT};

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    /// Frames to send.
    pub frames: u64,
    /// Where the programs run.
    pub mode: Mode,
    /// Time between two lines of progress.
    pub progress_every: Duration,
}

/// The outcome: all sent frames, by their fate.
#[derive(Clone, Debug, PartialEq)]
pub struct Balance {
    /// Frames that the sending half took.
    pub sent: u64,
    /// Frames that the receiving half delivered, each with the right bytes and after all earlier
    /// ones.
    pub received: u64,
    /// Frames that the kernel dropped between the two (`ip -s link`: dropped).
    pub kernel_dropped: u64,
    /// Frames of our rules that did not reach the receiving half, by the names of its counters.
    pub named: Vec<(String, u64)>,
    /// Frames that found no room, as counted by the kernel; `None` in generic mode.
    pub kernel_says: Option<u64>,
    /// Buffers that are not home at either end.
    pub away: usize,
    /// Buffers of either end that went home without a reason.
    pub unnamed: u64,
    /// Things that must not happen, by the names of their counters: rings and descriptors that the
    /// kernel did not like.
    pub faults: Vec<(String, u64)>,
    /// From the first frame to the last.
    pub took: Duration,
}

impl Balance {
    /// Whether all counters add up and all buffers are free.
    pub fn adds_up(&self) -> bool {
        let named = |wanted: &dyn Fn(&str) -> bool| -> u64 {
            self.named.iter().filter(|(name, _)| wanted(name)).map(|(_, count)| count).sum()
        };
        self.sent == self.received + self.kernel_dropped + named(&|_| true)
            && self.kernel_says.is_none_or(|count| count == named(&|name| name != "rx/drop/queue_closed"))
            && (self.away, self.unnamed) == (0, 0)
            && self.faults.is_empty()
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64();
        write!(
            f,
            "{} frames sent = {} received + {} dropped on the way",
            self.sent, self.received, self.kernel_dropped
        )?;
        for (name, count) in &self.named {
            write!(f, " + {count} {name}")?;
        }
        write!(
            f,
            "; buffers away {}, unnamed {}; {seconds:.1} s, {:.2} M frames/s",
            self.away,
            self.unnamed,
            self.received as f64 / seconds / 1e6
        )?;
        if !self.adds_up() {
            write!(f, "; DOES NOT ADD UP: the driver says {:?} dropped, faults {:?}", self.kernel_says, self.faults)?;
        }
        Ok(())
    }
}

/// The state that the threads of a run share.
#[derive(Default)]
struct Shared {
    ready: AtomicBool,
    /// Frames sent, once all are on their way.
    done: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    finished: AtomicBool,
}

/// One end, when it is closed.
struct End {
    counters: Snapshot,
    frames: u64,
    away: usize,
    unnamed: u64,
}

/// Runs it on three threads: one sends, one receives, one prints the progress.
///
/// # Errors
/// One sentence, where this machine permits no namespaces.
pub fn run(soak: &Soak, progress: &mut dyn FnMut(String)) -> Result<Balance, String> {
    let (near, far) = (Namespace::new()?, Namespace::new()?);
    near.veth("veth0", &far, "veth1")?;
    let shared = Shared::default();
    let start = Clock::now();
    let (sender, receiver) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| far.run(|| receive(soak, &shared)));
        let sender = scope.spawn(|| near.run(|| send(soak, &shared)));
        tell(soak, &shared, start, progress);
        (sender.join().unwrap(), receiver.join().unwrap())
    });
    let took = start.elapsed();
    let (near_dropped, far_dropped) = (dropped(&near, "veth0", "TX:")?, dropped(&far, "veth1", "RX:")?);
    // In generic mode only the socket counts a frame that finds no room; frames that the device
    // counts never came that far.
    let (kernel_dropped, kernel_says) = match soak.mode {
        Mode::Generic => (near_dropped + far_dropped, None),
        _ => (near_dropped, Some(far_dropped)),
    };
    Ok(Balance {
        sent: sender.frames,
        received: receiver.frames,
        kernel_dropped,
        named: counts(&receiver.counters, |name| name.starts_with("rx/drop/")),
        kernel_says,
        away: sender.away + receiver.away,
        unnamed: sender.unnamed + receiver.unnamed,
        faults: [&sender.counters, &receiver.counters].into_iter().flat_map(|end| counts(end, is_fault)).collect(),
        took,
    })
}

/// Counters that stay at zero, or something is wrong that no machine is too slow for.
fn is_fault(name: &str) -> bool {
    name.starts_with("tx/drop/") || name.contains("invalid") || name.ends_with("ring_faults")
}

/// The counters of an end with these names that are not zero.
fn counts(end: &Snapshot, wanted: impl Fn(&str) -> bool) -> Vec<(String, u64)> {
    let named = end.samples.iter().filter_map(|sample| {
        let Reading::Counter(count) = sample.reading else { return None };
        let name = sample.name.strip_prefix("end/")?;
        (wanted(name) && count > 0).then(|| (name.to_owned(), count))
    });
    named.collect()
}

/// A line every now and then, until the receiver has finished.
fn tell(soak: &Soak, shared: &Shared, start: Clock, progress: &mut dyn FnMut(String)) {
    let (mut next, mut before) = (soak.progress_every, 0);
    while !shared.finished.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(20));
        if start.elapsed() < next {
            continue;
        }
        next += soak.progress_every;
        let (sent, received) = (shared.sent.load(Ordering::Relaxed), shared.received.load(Ordering::Relaxed));
        let rate = (received - before) as f64 / soak.progress_every.as_secs_f64();
        progress(format!(
            "{:4.0} s: {:.1} of {:.1} M frames sent, {:.1} M received, {:.2} M/s",
            start.elapsed().as_secs_f64(),
            sent as f64 / 1e6,
            soak.frames as f64 / 1e6,
            received as f64 / 1e6,
            rate / 1e6
        ));
        before = received;
    }
}

fn config(soak: &Soak, interface: &str) -> AfXdpConfig {
    AfXdpConfig { mode: soak.mode, ..AfXdpConfig::new(interface) }
}

fn send(soak: &Soak, shared: &Shared) -> End {
    port::wait_until(|| shared.ready.load(Ordering::Acquire));
    let (pool, block) = (port::pool(4096, 2048), Block::heap());
    let mut device = port::open(&config(soak, "veth0"));
    let (rx, mut tx) = device.take_queue(0).unwrap().open(&pool, &block.scope("end")).unwrap();
    let mut sent = 0;
    while sent < soak.frames {
        tx.reap();
        for _ in 0..32.min(soak.frames - sent) {
            let Some(mbuf) = numbered(&pool, sent) else { break };
            match tx.post(mbuf, Offload::NONE) {
                Ok(()) => sent += 1,
                Err(mbuf) => {
                    mbuf.free();
                    break;
                }
            }
        }
        tx.ring_doorbell(Instant::ZERO);
        shared.sent.store(sent, Ordering::Relaxed);
    }
    let stuck = Clock::now();
    while tx.in_flight() > 0 && stuck.elapsed() < TIMEOUT {
        tx.ring_doorbell(Instant::ZERO);
        tx.reap();
    }
    shared.done.store(true, Ordering::Release);
    tx.refresh_counters();
    drop((tx, rx, device));
    End { counters: block.snapshot(), frames: sent, away: pool.in_use(), unnamed: pool.drops_without_reason() }
}

fn receive(soak: &Soak, shared: &Shared) -> End {
    let (pool, block) = (port::pool(4096, 2048), Block::heap());
    let mut device = port::open(&config(soak, "veth1"));
    device.steer(&EXPERIMENT, 0).unwrap();
    let (mut rx, tx) = device.take_queue(0).unwrap().open(&pool, &block.scope("end")).unwrap();
    let start = Clock::now();
    let (mut frames, mut next, mut last) = (0, 0, start);
    let mut burst = Burst::new();
    // A frame may still be on its way when the sender is done, on a busy machine for as long as the
    // kernel's work is not scheduled.
    while !shared.done.load(Ordering::Acquire) || last.elapsed() < Duration::from_millis(500) {
        let now = Instant::from_nanos(start.elapsed().as_nanos() as u64 + 1);
        if rx.receive(&mut burst, 32, &pool, now) == 0 {
            shared.ready.store(true, Ordering::Release);
            std::thread::yield_now();
            continue;
        }
        for mbuf in burst.drain(..) {
            let number = number_of(mbuf.bytes());
            assert!(number.is_some_and(|number| number >= next), "frame {number:?} behind frame {next}");
            next = number.unwrap_or_default() + 1;
            frames += 1;
            mbuf.free();
        }
        last = Clock::now();
        shared.received.store(frames, Ordering::Relaxed);
    }
    rx.refresh_counters();
    drop((rx, tx, device));
    shared.finished.store(true, Ordering::Release);
    End { counters: block.snapshot(), frames, away: pool.in_use(), unnamed: pool.drops_without_reason() }
}

/// A frame with a number, the number's complement, and a length that depends on it.
fn numbered(pool: &Pool, number: u64) -> Option<Mbuf> {
    let mut mbuf = pool.alloc()?;
    let bytes = mbuf.append(len_of(number))?;
    bytes[..14].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    bytes[14..22].copy_from_slice(&number.to_be_bytes());
    bytes[22..30].copy_from_slice(&(!number).to_be_bytes());
    Some(mbuf)
}

fn len_of(number: u64) -> usize {
    60 + (number % 61) as usize * 4
}

/// The number of a frame that has arrived unchanged.
fn number_of(frame: &[u8]) -> Option<u64> {
    let word = |at: usize| frame.get(at..)?.first_chunk().map(|&bytes| u64::from_be_bytes(bytes));
    let number = word(14)?;
    (word(22)? == !number && frame.len() == len_of(number)).then_some(number)
}

/// The drops of an interface, as `ip -s link` shows them.
fn dropped(namespace: &Namespace, interface: &str, direction: &str) -> Result<u64, String> {
    let said = namespace.ip(&["-s", "link", "show", "dev", interface])?;
    let mut lines = said.lines().map(str::trim).skip_while(|line| !line.starts_with(direction));
    let header = lines.next().unwrap_or_default().trim_start_matches(direction);
    let column = header.split_whitespace().position(|name| name == "dropped");
    let value = column.and_then(|column| lines.next()?.split_whitespace().nth(column)?.parse().ok());
    value.ok_or_else(|| format!("`ip -s link` says in words that are not understood here: {said}"))
}
