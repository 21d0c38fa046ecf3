//! Two workers and a watcher: the feed worker owns the queue, decodes ticks and passes them on. The
//! strategy worker gets every tick over a lossless ring. A deliberately slow screen reads a lossy
//! ring, and knows exactly how many ticks it missed. Packets never change threads; only decoded
//! values do.
//!
//! `cargo run --release -p wirepath --example two_workers`

use core::net::{Ipv4Addr, SocketAddrV4};
use std::error::Error;
use std::thread;
use std::time::Duration;

use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, pair};
use wirepath::pipeline::{App, Cx, Datagram, UdpOptions};
use wirepath::proto::{ConsumerId, Group};
use wirepath::time::MonotonicClock;
use wirepath::worker::{StopFlag, Worker, WorkerGroup, WorkerSpec, spsc};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const TICKS: Group = Group::new(Ipv4Addr::new(239, 1, 1, 1), 9_000);
const COUNT: u64 = 20_000;

type Outcome = Result<String, Box<dyn Error + Send + Sync>>;

/// The value that is passed between the workers.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Tick {
    number: u64,
    price: u64,
}

/// Decodes and hands on. A lossless ring that is full makes it wait for the strategy in its own
/// `tick`.
struct Feed {
    strategy: spsc::lossless::Producer<Tick>,
    screen: spsc::lossy::Writer<Tick>,
    late: Vec<Tick>,
}

impl App for Feed {
    fn tick(&mut self, _cx: &mut Cx<'_>) {
        let sent = self.strategy.push_burst(&self.late);
        self.late.drain(..sent);
    }

    fn on_datagram(&mut self, datagram: &Datagram<'_>, _cx: &mut Cx<'_>) {
        let Ok((tick, _)) = Tick::read_from_prefix(datagram.payload) else { return };
        self.screen.push(&tick);
        if !self.late.is_empty() || self.strategy.push(tick).is_err() {
            self.late.push(tick);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let stop = StopFlag::on_signals()?;
    let (mut near, mut far) = pair("wire", MemoryConfig::default());
    let (strategy, mut orders) = spsc::lossless::ring::<Tick>(1_024)?;
    let screen = spsc::lossy::ring::<Tick>(1_024)?;
    let screen_reader = screen.reader();
    let block = Block::heap();
    let (near_scope, far_scope) = (block.scope("exchange"), block.scope("feed"));

    // On a machine with cores to spare, each worker gets one: `.on_core(2)`.
    let specs: Vec<WorkerSpec<Outcome>> = vec![
        WorkerSpec::new("exchange", move |post| {
            let worker = Worker::builder(&mut near)?.address("192.0.2.1/24".parse()?);
            let mut worker = worker.build((), &near_scope)?;
            for number in 0..COUNT {
                let tick = Tick { number, price: 100 + number % 7 };
                let now = wirepath::time::Instant::from_nanos(number);
                while worker.with_app(now, |_, cx| publish(&tick, cx)).is_err() && !post.stop.is_stopping() {
                    thread::yield_now();
                }
            }
            Ok(format!("published {COUNT}"))
        }),
        WorkerSpec::new("feed", move |post| {
            let worker = Worker::builder(&mut far)?.address("192.0.2.2/24".parse()?);
            let mut worker = worker.build(Feed { strategy, screen, late: Vec::with_capacity(64) }, &far_scope)?;
            worker.with_app(Default::default(), |_, cx| cx.udp().join(ConsumerId(1), TICKS))?;
            // Ends when the exchange has gone and its last tick was read.
            let ended = worker.run(&mut MonotonicClock::start(), &post.stop);
            while !worker.app().late.is_empty() && !post.stop.is_stopping() {
                worker.poll_once(Default::default());
            }
            Ok(format!("{ended:?}"))
        }),
        WorkerSpec::new("strategy", move |post| {
            let (mut received, mut next) = (0, 0);
            while !orders.is_drained() && !post.stop.is_stopping() {
                received += orders.pop_each(32, |tick| {
                    assert_eq!(tick.number, next, "a lossless ring keeps order and loses nothing");
                    next += 1;
                });
                thread::yield_now();
            }
            Ok(format!("received {received}"))
        }),
        WorkerSpec::new("screen", move |post| watch(screen_reader, &post.stop)),
    ];
    let group = WorkerGroup::start(specs, &stop)?;
    for (name, outcome) in ["exchange", "feed", "strategy", "screen"].iter().zip(group.join()?) {
        println!("{name:<9} {}", outcome.map_err(|error| error.to_string())?);
    }
    Ok(())
}

/// Reads the screen's ring, slowly.
fn watch(mut watched: spsc::lossy::Reader<Tick>, stop: &StopFlag) -> Outcome {
    while !watched.is_closed() && !stop.is_stopping() {
        while !matches!(watched.read(), spsc::lossy::Next::Empty) {}
        thread::sleep(Duration::from_millis(2));
    }
    while !matches!(watched.read(), spsc::lossy::Next::Empty) {}
    let (read, lost) = (watched.read_count(), watched.lost_count());
    assert_eq!(read + lost, COUNT, "a lossy reader accounts for every event");
    Ok(format!("saw {read}, missed {lost}"))
}

fn publish(tick: &Tick, cx: &mut Cx<'_>) -> Result<(), Box<dyn Error>> {
    let to = SocketAddrV4::new(TICKS.group, TICKS.port);
    let mut flow = cx.udp().connect(SocketAddrV4::new(OWN, 5_000), to, &UdpOptions::default())?;
    flow.send(tick.as_bytes(), cx)?;
    Ok(())
}
