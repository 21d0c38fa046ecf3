//! exchange-sim in one network namespace, a receiver of both lines in another, a veth between them.
//! The messages lost on both lines are requested again and arrive, so that none is missing in the
//! end. Needs root and iproute2.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};
use std::{io, thread};

use exchange_sim::{
    Interface, LineSettings, Publication, Published, RerequestSettings, SendSockets, Settings, Truth, publish,
};
use market::framing::Framing;
use market::framing::mold_udp64::{MoldUdp64, Request, session_name};
use market::{
    Arbiter, DOUBTS_MAX, Line, Output, Policy, RerequestStep, Rerequester, RetryPolicy, Slots, Verdict, Window,
};
use wirepath::worker::StopFlag;
use wirepath_tests::netns::Namespace;

const EXCHANGE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const SERVER: SocketAddrV4 = SocketAddrV4::new(EXCHANGE, 26600);
/// Messages that are enough: the market is open and its densest time is over.
const ENOUGH: u64 = 8_000;
/// A busy machine may keep either side from its processor for longer than any exchange would.
const POLICY: RetryPolicy = RetryPolicy {
    delay_ns: 1_000_000,
    timeout_ns: 100_000_000,
    attempts: 100,
    outstanding: 8,
    messages: 40,
    interval_ns: 1_000_000,
    burst: 64,
};
const WINDOW: Window = Window { packets: 30_000, wait_ns: 2 * POLICY.unanswered_ns() };

fn settings() -> Settings {
    let mut settings = Settings { symbols: 10, messages: 20_000, rate: 20_000, ..Settings::default() };
    settings.lines = settings.lines.map(|line| LineSettings {
        loss: "10%".parse().unwrap(),
        reorder: "1%".parse().unwrap(),
        duplicate: "1%".parse().unwrap(),
        ..line
    });
    settings
}

/// Two namespaces and the veth between them; a sentence where this machine does not permit it.
fn network() -> Result<(Namespace, Namespace), String> {
    let (exchange, receiver) = (Namespace::new()?, Namespace::new()?);
    exchange.veth("feed0", &receiver, "feed0")?;
    exchange.ip(&["address", "add", &format!("{EXCHANGE}/24"), "dev", "feed0"])?;
    receiver.ip(&["address", "add", &format!("{RECEIVER}/24"), "dev", "feed0"])?;
    Ok((exchange, receiver))
}

/// A socket that receives one line.
fn join(group: Ipv4Addr, port: u16, interface: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((group, port))?;
    socket.join_multicast_v4(&group, &interface)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The receiving side as an application writes it.
struct Receiver {
    lines: [UdpSocket; 2],
    server: UdpSocket,
    arbiter: Arbiter<market::Slot>,
    rerequester: Rerequester,
    slots: Slots,
    started: Instant,
    /// Messages by their first byte, which is their type.
    by_type: [u64; 256],
    ended: bool,
}

impl Receiver {
    fn open(settings: &Settings) -> io::Result<Self> {
        let line = |idx: usize| join(settings.lines[idx].group.address(), settings.port, RECEIVER);
        let server = UdpSocket::bind((RECEIVER, 0))?;
        server.connect(SERVER)?;
        server.set_nonblocking(true)?;
        Ok(Self {
            lines: [line(0)?, line(1)?],
            server,
            arbiter: Arbiter::new(2, Policy::default(), WINDOW),
            rerequester: Rerequester::new(POLICY),
            slots: Slots::new((WINDOW.packets + 1 + DOUBTS_MAX) as u32, 1472),
            started: Instant::now(),
            by_type: [0; 256],
            ended: false,
        })
    }

    fn run(&mut self, stop: &StopFlag) {
        let mut buffer = [0; 2048];
        while !self.ended {
            if self.started.elapsed() > Duration::from_secs(60) {
                // Else the publisher would go on to the end of its day.
                stop.stop();
                panic!("no end of session: {:?}", self.arbiter.counts());
            }
            let mut answer_received = false;
            for idx in 0..3 {
                let socket = self.lines.get(idx).unwrap_or(&self.server);
                if let Ok(len) = socket.recv(&mut buffer) {
                    self.receive(idx, &buffer[..len]);
                    answer_received = true;
                }
            }
            self.turn();
            if self.arbiter.counts().delivered >= ENOUGH {
                stop.stop();
            }
            if !answer_received {
                thread::sleep(Duration::from_micros(100));
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn receive(&mut self, idx: usize, bytes: &[u8]) {
        let header = MoldUdp64::parse(bytes).unwrap().header;
        let fate = if idx < 2 {
            self.arbiter.offer(Line(idx), &header, self.now_ns())
        } else {
            self.rerequester.answer_received();
            self.arbiter.offer_answer(&header)
        };
        match fate {
            Verdict::Deliver { skip } => self.deliver(bytes, skip),
            Verdict::Keep => self.arbiter.keep(self.slots.copy_in(bytes).unwrap()).unwrap(),
            Verdict::Discard => {}
        }
        self.drain();
    }

    fn turn(&mut self) {
        let now_ns = self.now_ns();
        while let Some(step) = self.rerequester.poll(self.arbiter.missing(), now_ns) {
            match step {
                RerequestStep::Request(ask) => {
                    let session = session_name(self.arbiter.session().unwrap());
                    self.server.send(&Request { session, seq: ask.seq, count: ask.count }.emit()).unwrap();
                }
                RerequestStep::GiveUp(_) => self.arbiter.give_up(),
            }
        }
        self.drain();
    }

    fn drain(&mut self) {
        let now_ns = self.now_ns();
        while let Some(output) = self.arbiter.poll(now_ns) {
            match output {
                Output::Deliver { handle, skip } => {
                    let bytes = self.slots.get(&handle).to_vec();
                    self.slots.free(handle);
                    self.deliver(&bytes, skip);
                }
                Output::Discard { handle } => self.slots.free(handle),
                Output::Gap(_) => {}
                Output::LateJoin(_) | Output::Restart => panic!("the feed began anew"),
                Output::EndOfSession => self.ended = true,
            }
        }
    }

    fn deliver(&mut self, bytes: &[u8], skip: u32) {
        for message in MoldUdp64::parse(bytes).unwrap().messages().skip(skip as usize) {
            self.by_type[usize::from(message[0])] += 1;
        }
    }
}

/// Publishes in one namespace and receives in the other. Returns the sent messages, the received
/// messages, and the packets that a member of line A in the publisher's namespace received.
fn play(exchange: &Namespace, receiver: &Namespace, loopback: bool) -> (Published, Receiver, u64) {
    let settings = settings();
    let publication = Publication {
        send_sockets: SendSockets { interface: Interface::Name("feed0".into()), loopback },
        start_after: Duration::from_millis(100),
        rerequest: Some(RerequestSettings { address: SERVER, messages: 100_000 }),
        glimpse: None,
    };
    let stop = StopFlag::new();
    let mut received = receiver.run(|| Receiver::open(&settings).unwrap());
    let neighbor = exchange.run(|| join(settings.lines[0].group.address(), settings.port, EXCHANGE).unwrap());
    let published = thread::scope(|scope| {
        let published = scope.spawn(|| exchange.run(|| publish(&settings, &publication, &stop).unwrap()));
        received.run(&stop);
        published.join().unwrap()
    });
    let answer_received = (0..100).filter(|_| neighbor.recv(&mut [0; 2048]).is_ok()).count() as u64;
    (published, received, answer_received)
}

fn by_type(truth: &Truth) -> [u64; 256] {
    let mut counts = [0; 256];
    for (&kind, &count) in &truth.by_type {
        counts[kind as usize] = count;
    }
    counts
}

#[test]
fn receiver_that_asks_again_misses_nothing() {
    let (exchange, receiver) = match network() {
        Ok(network) => network,
        Err(why) => return println!("SKIPPED receiver_that_asks_again_misses_nothing: {why}"),
    };
    let (published, received, answer_received) = play(&exchange, &receiver, false);
    let (truth, counts) = (&published.truth, received.arbiter.counts());
    assert_eq!((counts.delivered, counts.missing), (truth.messages, 0), "{counts:?}");
    assert_eq!(received.by_type, by_type(truth));
    let (lost, recovered) = (truth.lost_on_both.messages, received.arbiter.answers().delivered);
    assert!(lost > 20 && recovered >= lost, "{recovered} of {lost} recovered");
    let rerequests = published.rerequests.unwrap();
    assert!(rerequests.requests.messages >= recovered && truth.stopped, "{rerequests}");
    assert_eq!(answer_received, 0, "loopback was switched off");
    println!("{lost} lost on both lines, {recovered} recovered by {:?}; {rerequests}", received.rerequester.counts());
}

#[test]
fn receiver_beside_the_publisher_hears_it_with_loopback() {
    let (exchange, receiver) = match network() {
        Ok(network) => network,
        Err(why) => return println!("SKIPPED receiver_beside_the_publisher_hears_it_with_loopback: {why}"),
    };
    assert!(play(&exchange, &receiver, true).2 > 0);
}
