//! A worker that sleeps: it runs a turn only when frames come and at its own deadlines. Its
//! behavior is the same, to the byte and to the tick, as that of a worker that runs turns without a
//! pause. Each script is played on both, in virtual time.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::cell::Cell;
use std::rc::Rc;

use sockets::{Errno, Kind, Sleep, SocketId, SocketWorker, Sockets, Stack};
use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, MemoryDevice, pair};
use wirepath::device::{Device, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{Burst, Pool};
use wirepath::pipeline::tcp::TcpConfig;
use wirepath::proto::{HashSeed, InterfaceId};
use wirepath::time::{Clock, Duration, Instant};
use wirepath::worker::Worker;

/// Time passes by steps of a fourth of the timer wheel's tick, so that no turn falls between two.
const STEP: Duration = Duration::from_nanos(1 << 16);

/// Numbers from a seed (splitmix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A host whose frames pass through the test.
struct Host {
    driver: Box<dyn SocketWorker>,
    rx: Box<dyn RxQueue>,
    tx: Box<dyn TxQueue>,
    pool: Pool,
}

impl Host {
    fn new(address: &str, seed: u64, block: &Block) -> Self {
        let (mut near, mut far) = pair("wire", MemoryConfig { slots: 256, ..MemoryConfig::default() });
        let worker = Worker::builder(&mut near).unwrap().address(address.parse().unwrap());
        let worker = worker.seed(HashSeed::new(seed, 7)).tcp(TcpConfig::default());
        let driver = Box::new(worker.build(Sockets::new(64), &block.scope(address)).unwrap());
        let (pool, rx, tx) = open(&mut far, block);
        Self { driver, rx, tx, pool }
    }

    /// The frames that it has sent since.
    fn sent(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut burst = Burst::new();
        let mut frames = Vec::new();
        while self.rx.receive(&mut burst, 32, &self.pool, now) > 0 {
            for mbuf in burst.drain(..) {
                frames.push(mbuf.bytes().to_vec());
                mbuf.free();
            }
        }
        frames
    }

    fn give(&mut self, frame: &[u8], now: Instant) {
        self.tx.reap();
        assert!(self.tx.post(self.pool.alloc_copy(frame).unwrap(), Offload::NONE).is_ok());
        self.tx.ring_doorbell(now);
    }
}

fn open(device: &mut MemoryDevice, block: &Block) -> (Pool, Box<dyn RxQueue>, Box<dyn TxQueue>) {
    let pool = Pool::heap(1_024).unwrap();
    let (rx, tx) = device.take_queue(0).unwrap().open(&pool, &block.scope("hands")).unwrap();
    (pool, Box::new(rx), Box::new(tx))
}

/// One call of a script.
#[derive(Clone, Copy, Debug)]
enum Call {
    Connect(u64),
    Send(u64, usize),
    Receive(u64),
    Close(u64),
    Datagram(usize),
    Join(u8),
    Leave(u8),
    Keepalive(u64),
}

struct Script {
    /// Each call, with the step at which it is made, and the side that makes it: the sleeper or the
    /// peer.
    calls: Vec<(u64, bool, Call)>,
    steps: u64,
    /// Of 100 frames.
    lost: u64,
    latency: u64,
    seed: u64,
}

impl Script {
    fn draw(seed: u64) -> Self {
        let mut draw = Draw(seed);
        // Some scripts are long enough for data that waits for half a minute.
        let steps = (20_000 + draw.below(80_000)) * if seed % 10 == 9 { 8 } else { 1 };
        let mut calls: Vec<_> = (0..4 + draw.below(24))
            .map(|_| {
                let which = draw.below(4);
                let call = match draw.below(12) {
                    0 | 1 => Call::Connect(which),
                    2..=4 => Call::Send(which, 1 + draw.below(20_000) as usize),
                    5 | 6 => Call::Receive(which),
                    7 => Call::Close(which),
                    8 => Call::Join(draw.below(3) as u8),
                    9 => Call::Leave(draw.below(3) as u8),
                    10 => Call::Keepalive(which),
                    _ => Call::Datagram(1 + draw.below(4_000) as usize),
                };
                (draw.below(steps * 2 / 3), draw.below(3) > 0, call)
            })
            .collect();
        calls.sort_by_key(|(step, ..)| *step);
        Self { calls, steps, lost: [0, 2, 20, 60][draw.below(4) as usize], latency: 1 + draw.below(40), seed }
    }
}

/// The sockets of one host in a script.
struct Party {
    listener: SocketId,
    datagrams: SocketId,
    streams: [Option<SocketId>; 4],
    address: u8,
}

impl Party {
    fn new(host: &mut Host, address: u8) -> Self {
        let mut party = None;
        host.driver.with(Instant::ZERO, &mut |sockets, cx| {
            let listener = sockets.socket(Kind::Stream).unwrap();
            sockets.bind(listener, format!("192.0.2.{address}:80").parse().unwrap(), cx).unwrap();
            sockets.listen(listener, 8, cx).unwrap();
            let datagrams = sockets.socket(Kind::Datagram).unwrap();
            sockets.bind(datagrams, format!("192.0.2.{address}:53").parse().unwrap(), cx).unwrap();
            party = Some(Self { listener, datagrams, streams: [None; 4], address });
        });
        party.unwrap()
    }

    /// Makes a call. Both plays must agree on its result too.
    fn call(&mut self, call: Call, host: &mut Host, now: Instant) -> Result<usize, Errno> {
        let mut result = Ok(0);
        host.driver.with(now, &mut |sockets, cx| {
            let peer = 3 - self.address;
            result = match call {
                Call::Connect(which) => sockets.socket(Kind::Stream).and_then(|id| {
                    if let Some(before) = self.streams[which as usize].replace(id) {
                        let _ = sockets.close(before, cx);
                    }
                    sockets.connect(id, format!("192.0.2.{peer}:80").parse().unwrap(), cx).map(|()| 0)
                }),
                Call::Send(which, len) => match self.streams[which as usize] {
                    Some(id) => sockets.send(id, &vec![7; len], cx),
                    None => Ok(0),
                },
                Call::Receive(which) => {
                    if let Ok((id, _)) = sockets.accept(self.listener) {
                        self.streams[which as usize].replace(id).map(|before| sockets.close(before, cx));
                    }
                    let mut into = [0; 30_000];
                    let _ = sockets.recv_from(self.datagrams, &mut into);
                    match self.streams[which as usize] {
                        Some(id) => sockets.recv(id, &mut into, cx),
                        None => Ok(0),
                    }
                }
                Call::Close(which) => match self.streams[which as usize].take() {
                    Some(id) => sockets.close(id, cx).map(|()| 0),
                    None => Ok(0),
                },
                Call::Datagram(len) => {
                    let to = format!("192.0.2.{peer}:53").parse().unwrap();
                    sockets.send_to(self.datagrams, &vec![9; len], to, cx)
                }
                Call::Join(group) => {
                    let group = [239, 0, 0, group].into();
                    sockets.join(self.datagrams, group, InterfaceId::ANY, None, cx).map(|()| 0)
                }
                Call::Leave(group) => {
                    let group = [239, 0, 0, group].into();
                    sockets.leave(self.datagrams, group, InterfaceId::ANY, None, cx).map(|()| 0)
                }
                Call::Keepalive(which) => match self.streams[which as usize] {
                    Some(id) => {
                        let mut options = sockets.options(id).unwrap();
                        options.keepalive = true;
                        options.keepalive_times.idle = Duration::from_secs(1);
                        options.user_timeout = Some(Duration::from_secs(2));
                        sockets.set_options(id, &options, cx).map(|()| 0)
                    }
                    None => Ok(0),
                },
            };
        });
        result
    }
}

/// The outcome of a play: the frames that the sleeper sent, by step, and the results of the calls.
#[derive(Debug, PartialEq)]
struct Play {
    frames: Vec<(u64, Vec<u8>)>,
    results: Vec<Result<usize, Errno>>,
}

/// Plays a script; the first host is turned at each step, or only at its deadlines. Returns its
/// number of turns.
fn play(script: &Script, sleeps: bool) -> (Play, u64) {
    let block = Block::heap();
    let mut hosts = [Host::new("192.0.2.1/24", script.seed, &block), Host::new("192.0.2.2/24", !script.seed, &block)];
    let mut parties = [Party::new(&mut hosts[0], 1), Party::new(&mut hosts[1], 2)];
    let mut wires: [Vec<(u64, Vec<u8>)>; 2] = Default::default();
    let (mut chance, mut play, mut turns) = (Draw(!script.seed), Play { frames: vec![], results: vec![] }, 0);
    let mut calls = script.calls.iter().peekable();
    let mut next = Some(Instant::ZERO);
    for step in 0..script.steps {
        let now = Instant::ZERO + Duration::from_nanos(STEP.as_nanos() * step);
        let mut wakes = !sleeps || next.is_some_and(|next| next <= now);
        while let Some((_, is_ours, call)) = calls.next_if(|(at, ..)| *at <= step) {
            let idx = usize::from(!is_ours);
            play.results.push(parties[idx].call(*call, &mut hosts[idx], now));
            // A call is followed by a question, as before a sleep.
            next = hosts[0].driver.next_deadline(now);
            wakes |= next.is_some_and(|next| next <= now);
        }
        for (idx, wire) in wires.iter_mut().enumerate() {
            let due = wire.iter().take_while(|(at, _)| *at <= step).count();
            wire.drain(..due).for_each(|(_, frame)| hosts[idx].give(&frame, now));
            wakes |= idx == 0 && due > 0;
        }
        if wakes {
            turns += 1;
            hosts[0].driver.turn(now);
            next = hosts[0].driver.next_deadline(now);
        }
        hosts[1].driver.turn(now);
        for idx in [0, 1] {
            for frame in hosts[idx].sent(now) {
                if idx == 0 {
                    play.frames.push((step, frame.clone()));
                }
                if chance.below(100) >= script.lost {
                    wires[1 - idx].push((step + script.latency, frame));
                }
            }
        }
    }
    (play, turns)
}

/// The result of a script: the steps, the turns that the sleeper needed for them, and whether both
/// plays were the same to the end.
///
/// A deadline that had passed when it was set is due with the wheel's next tick. A wheel that has
/// not been turned for a while is behind, and its next tick is now: there the sleeper is earlier,
/// by a tick at most. From then on the plays are two.
fn check(seed: u64) -> (u64, u64, bool) {
    const TICK: u64 = (1 << 18) / STEP.as_nanos();
    let script = Script::draw(seed);
    let (awake, steps) = play(&script, false);
    let (asleep, turns) = play(&script, true);
    if let Some(at) = awake.frames.iter().zip(&asleep.frames).position(|(one, other)| one != other) {
        let ((before, one), (after, other)) = (&awake.frames[at], &asleep.frames[at]);
        assert_eq!(one.len(), other.len(), "seed {seed}: steps {before} and {after}");
        assert!(before.abs_diff(*after) <= TICK, "seed {seed}: at {before}, and asleep at {after}");
        return (steps, turns, false);
    }
    assert_eq!(awake, asleep, "seed {seed}");
    (steps, turns, true)
}

/// How many scripts; `SCRIPTS=1000` plays more.
#[test]
fn worker_that_sleeps_until_its_deadlines_does_what_one_does_that_never_sleeps() {
    let count = std::env::var("SCRIPTS").map_or(12, |count| count.parse().unwrap());
    let first = std::env::var("SEED").map_or(0, |seed| seed.parse().unwrap());
    let (mut steps, mut turns, mut same) = (0, 0, 0);
    for seed in first..first + count {
        let (all, needed, is_same) = check(seed);
        (steps, turns, same) = (steps + all, turns + needed, same + u64::from(is_same));
    }
    println!("{turns} turns of {steps}; {same} of {count} scripts were the same to the end");
    assert!(same * 10 >= count * 9, "{same} of {count}");
    assert!(turns * 10 < steps, "it hardly slept: {turns} turns of {steps}");
}

/// A waiting call first spins for the given number of turns. Then it sleeps until the worker has
/// work or its own time is over.
#[test]
fn call_that_waits_sleeps_until_the_next_deadline() {
    #[derive(Clone, Default)]
    struct Time(Rc<Cell<Instant>>);
    impl Clock for Time {
        fn now(&mut self) -> Instant {
            self.0.get()
        }
    }

    let (mut near, _far) = pair("wire", MemoryConfig::default());
    let block = Block::heap();
    let worker = Worker::builder(&mut near).unwrap().address("192.0.2.1/24".parse().unwrap());
    let worker = worker.tcp(TcpConfig::default()).build(Sockets::new(8), &block.scope("worker")).unwrap();
    let time = Time::default();
    let stack = Stack::over(worker, time.clone());
    let (spun, slept) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    stack.when_idle({
        let spun = spun.clone();
        move |_| spun.set(spun.get() + 1)
    });
    stack.when_asleep(100, {
        let (slept, time) = (slept.clone(), time.clone());
        move |how: Sleep| {
            slept.set(slept.get() + 1);
            assert_eq!(how.fd, None, "plain memory has no descriptor");
            time.0.set(time.0.get() + how.timeout.unwrap());
        }
    });
    let id = stack.call(|sockets, _| sockets.socket(Kind::Datagram)).unwrap();
    let timeout = Duration::from_secs(100);
    let result = stack.block(Some(timeout), |sockets, _| sockets.recv_from(id, &mut [0; 8]).map(|_| ()));
    assert_eq!((result, spun.get()), (Err(Errno::EAGAIN), 100));
    assert_eq!(time.0.get(), Instant::ZERO + timeout);
    assert!(slept.get() < 20, "{} sleeps: the announcements of an address are two", slept.get());
}
