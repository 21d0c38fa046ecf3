//! Multicast from a kernel sender at full rate: our receiver against a kernel's, which takes up to
//! 64 datagrams by one recvmmsg(2).

use core::net::{Ipv4Addr, SocketAddrV4};
use std::hint;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use wirepath::device::af_xdp::AfXdpTx;
use wirepath::pipeline::UdpStack;

use super::flood::{Source, flooded};
use super::pair::{FAR, NEAR, Pair};
use super::port::{self, Port};
use super::sys::{self, Batch};
use crate::measure::cores;
use crate::receiver::DigestApp;

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, 3), 9_000);
/// Bytes of a datagram.
const LEN: usize = 64;
/// Datagrams that a kernel receiver takes by one call.
const BATCH: usize = 64;
/// Receive buffer of the kernel socket. It never fills here.
const RECEIVE_BUFFER: i32 = 16 << 20;
/// Interval of polls: some hundred datagrams, fewer than a ring holds.
const PAUSE: Duration = Duration::from_micros(250);

/// A receiver's way of polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollMode {
    /// Polls continuously, like a worker without other work. Its CPU time has no meaning.
    Spin,
    /// Polls every quarter of a millisecond, until the ring is empty, like a worker with other
    /// work. It keeps its core meanwhile, so that no other program fills its caches.
    Pause,
}

/// The results of a run.
#[derive(Clone, Copy, Debug)]
pub struct Reception {
    /// Millions of datagrams a second that the app received.
    pub rate: f64,
    /// CPU time of the receiver's thread while it polled, for each of them, in nanoseconds.
    pub cpu: f64,
}

/// Receives datagrams.
trait Receiver {
    /// Takes some of the waiting datagrams; returns their number.
    fn receive(&mut self) -> usize;
}

/// Ours: an AF_XDP port, Ethernet, IPv4, UDP, and an app that has joined the group.
///
/// # Errors
/// Why it could not be measured.
pub fn ours(cores: [usize; 2], poll_mode: PollMode, window: Duration) -> Result<Reception, String> {
    measure(cores, poll_mode, window, || port::open_udp((FAR, NEAR), GROUP, DigestApp::default()))
}

/// The kernel's.
///
/// # Errors
/// Why it could not be measured.
pub fn theirs(cores: [usize; 2], poll_mode: PollMode, window: Duration) -> Result<Reception, String> {
    measure(cores, poll_mode, window, open_socket)
}

/// The datagrams of another process at the far end, by recvmmsg(2): by the kernel's, or by that of
/// a library in front of it.
///
/// # Errors
/// Why it could not be measured.
pub fn by_calls(core: usize, poll_mode: PollMode, window: Duration) -> Result<Reception, String> {
    receive(core, poll_mode, window, open_socket)
}

impl Receiver for Port<AfXdpTx, UdpStack, DigestApp> {
    #[inline]
    fn receive(&mut self) -> usize {
        let before = self.app().received;
        self.turn();
        (self.app().received - before) as usize
    }
}

struct Kernel {
    socket: UdpSocket,
    batch: Batch,
}

impl Receiver for Kernel {
    fn receive(&mut self) -> usize {
        self.batch.receive(&self.socket)
    }
}

fn open_socket() -> Result<Kernel, String> {
    let socket = joined().map_err(|error| format!("the receiver has no socket: {error}"))?;
    Ok(Kernel { socket, batch: Batch::new(vec![vec![0; 2048]; BATCH]) })
}

fn joined() -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, GROUP.port()))?;
    socket.join_multicast_v4(GROUP.ip(), &FAR.address)?;
    sys::set_receive_buffer(&socket, RECEIVE_BUFFER)?;
    Ok(socket)
}

fn measure<R: Receiver>(
    [sending, receiving]: [usize; 2],
    poll_mode: PollMode,
    window: Duration,
    open: impl FnOnce() -> Result<R, String> + Send,
) -> Result<Reception, String> {
    let pair = Pair::new()?;
    beside_sender(&pair, sending, || pair.far.run(|| receive(receiving, poll_mode, window, open)))
}

/// Runs `act` while the near end sends on `core`.
///
/// # Errors
/// The sender has no socket; that of `act`.
pub fn beside_sender<T>(pair: &Pair, core: usize, act: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    flooded(pair, core, Source::Datagrams(GROUP, LEN), act)?
}

/// On the calling thread, which is at the far end.
fn receive<R: Receiver>(
    core: usize,
    poll_mode: PollMode,
    window: Duration,
    open: impl FnOnce() -> Result<R, String>,
) -> Result<Reception, String> {
    cores::pin(core);
    sys::run_first();
    let mut receiver = open()?;
    // Until both ends are at their steady rate.
    for_a_while(&mut receiver, poll_mode, window / 4);
    let start = Instant::now();
    let (received, cpu) = for_a_while(&mut receiver, poll_mode, window);
    let nanoseconds = |time: Duration| time.as_nanos() as f64 / received as f64;
    match received {
        0 => Err("no datagram has come".to_owned()),
        _ => Ok(Reception { rate: 1e3 / nanoseconds(start.elapsed()), cpu: nanoseconds(cpu) }),
    }
}

/// Receives for as long as `window`; returns the number of datagrams, and the CPU time of the
/// polls.
fn for_a_while(receiver: &mut impl Receiver, poll_mode: PollMode, window: Duration) -> (u64, Duration) {
    let (start, mut received, mut spent) = (Instant::now(), 0, Duration::ZERO);
    while start.elapsed() < window {
        let before = sys::thread_cpu_time();
        loop {
            let count = receiver.receive() as u64;
            received += count;
            if count == 0 || poll_mode == PollMode::Spin {
                break;
            }
        }
        spent += sys::thread_cpu_time() - before;
        if poll_mode == PollMode::Pause {
            let pause = Instant::now();
            while pause.elapsed() < PAUSE {
                hint::spin_loop();
            }
        }
    }
    (received, spent)
}
