//! A bad wire for RoCE between two interfaces of a bridge: it loses, doubles and reorders packets,
//! and leaves all other frames to the bridge.
//!
//! ```text
//!  one interface ═══ bridge: all but RoCE ═══ other interface
//!        └── packet socket ─ faults ─ packet socket ──┘
//! ```
//!
//! Needs root and nftables, by whose rule the bridge drops what is carried here.

use std::io;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::mutate::{STEP, finish};
use crate::netns;
use crate::packet::PacketSocket;

/// UDP port 4791 carries RoCE.
const RULES: &str = "table bridge roce {\n chain forward {\n type filter hook forward priority 0;\n \
    ether type ip udp dport 4791 drop\n }\n}\n";
/// A packet that is overtaken waits so long for the one that overtakes it.
const PATIENCE: Duration = Duration::from_millis(2);

/// Which packets of a direction meet a fault: one of so many, drawn by its number; none for 0. Not
/// each so many-th, or one that is sent again at the head of as many is lost each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireFaults {
    /// Lost.
    pub lose_one_of: u64,
    /// Carried twice.
    pub double_one_of: u64,
    /// Overtaken by the next.
    pub delay_one_of: u64,
}

/// Packets that met a fault, of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounts {
    /// Lost.
    pub lost: u64,
    /// Carried twice.
    pub doubled: u64,
    /// Overtaken by another.
    pub delayed: u64,
}

/// The wire. Dropped, it is taken away, and the bridge carries all again.
#[derive(Debug)]
pub struct RoceWire {
    namespace: String,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_stopping: AtomicBool,
    lost: AtomicU64,
    doubled: AtomicU64,
    delayed: AtomicU64,
}

impl RoceWire {
    /// Takes the packets of RoCE between two interfaces of a bridge from it, in the namespace of
    /// this name.
    ///
    /// # Panics
    /// If there are no such interfaces, or nftables refuses.
    pub fn new(namespace: &str, interfaces: [&str; 2], faults: WireFaults) -> Self {
        let output = nft(namespace, RULES).expect("ip (iproute2) is there");
        assert!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
        let shared = Arc::<Shared>::default();
        let [one, other] = interfaces;
        let directions = [(one, other), (other, one)];
        let threads = directions.map(|(from, to)| {
            let sockets = netns::run_in(namespace, || (PacketSocket::open(from), PacketSocket::open(to)));
            let (from, to) = (sockets.0.expect("an interface"), sockets.1.expect("an interface"));
            let shared = Arc::clone(&shared);
            thread::spawn(move || carry(&from, &to, faults, &shared))
        });
        Self { namespace: namespace.to_owned(), shared, threads: threads.into() }
    }

    /// What has happened.
    pub fn counts(&self) -> WireCounts {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let Shared { lost, doubled, delayed, .. } = &*self.shared;
        WireCounts { lost: count(lost), doubled: count(doubled), delayed: count(delayed) }
    }
}

impl Drop for RoceWire {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of it was printed when it happened.
            let _ = thread.join();
        }
        // The namespace may be gone.
        let _ = nft(&self.namespace, "delete table bridge roce");
    }
}

/// Carries the packets of one direction until the wire is taken away.
fn carry(from: &PacketSocket, to: &PacketSocket, faults: WireFaults, shared: &Shared) {
    let mut number = 0;
    let mut overtaken: Option<Vec<u8>> = None;
    // A link that goes down has lost the packet.
    let send = |frame: &[u8]| drop(to.send(frame));
    while !shared.is_stopping.load(Ordering::Relaxed) {
        let frame = from.receive(PATIENCE).ok().map(|received| received.frame).filter(|frame| is_roce(frame));
        let Some(frame) = frame else {
            overtaken.take().iter().for_each(|frame| send(frame));
            continue;
        };
        number += 1;
        if is_drawn(number, 1, faults.lose_one_of) && !ends_a_connection(&frame) {
            shared.lost.fetch_add(1, Ordering::Relaxed);
        } else if is_drawn(number, 2, faults.delay_one_of) && overtaken.is_none() {
            shared.delayed.fetch_add(1, Ordering::Relaxed);
            overtaken = Some(frame);
            continue;
        } else {
            send(&frame);
            if is_drawn(number, 3, faults.double_one_of) {
                shared.doubled.fetch_add(1, Ordering::Relaxed);
                send(&frame);
            }
        }
        overtaken.take().iter().for_each(|frame| send(frame));
    }
}

/// True of one of `each` numbers, others for each fault (SplitMix64).
fn is_drawn(number: u64, fault: u64, each: u64) -> bool {
    let drawn = finish(number.wrapping_mul(4).wrapping_add(fault).wrapping_mul(STEP));
    each > 0 && drawn.is_multiple_of(each)
}

/// True of a DREQ of RDMA_CM. Linux sends one once where its program ends behind it, and a server
/// that has not heard it waits for the next message.
fn ends_a_connection(frame: &[u8]) -> bool {
    // A datagram, and behind its headers the attribute of the MAD.
    frame.get(42) == Some(&0x64) && frame.get(78..80) == Some(&[0x00, 0x15])
}

/// IPv4 without options, UDP to port 4791.
fn is_roce(frame: &[u8]) -> bool {
    frame.get(12..15) == Some(&[0x08, 0x00, 0x45])
        && frame.get(23) == Some(&17)
        && frame.get(36..38) == Some(&4791_u16.to_be_bytes())
}

fn nft(namespace: &str, rules: &str) -> io::Result<Output> {
    Command::new("ip").args(["netns", "exec", namespace, "nft", rules]).output()
}
