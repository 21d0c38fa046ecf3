//! The thread's work over a wire of plain memory, with a client that keeps to nothing.

use super::*;
use crate::counters::Block;
use crate::device::Device;
use crate::device::af_xdp::broker::forwarded::HostileClient;
use crate::device::broker::request::QueueRequest;
use crate::device::memory::{MemoryConfig, MemoryDevice, pair};
use crate::time;
use crate::wire::Protocol;

const ORDER: QueueRequest =
    QueueRequest { umem_len: 128 * 2048, chunk_len: 2048, rx_ring_len: 64, tx_ring_len: 64, address: 0 };
const MORE: u32 = 1;
const FRAME_LEN_MAX: usize = 1_514;

/// The work, its far end, and a client at place 0.
struct Rig {
    work: Work<<MemoryDevice as Device>::Queue>,
    far: Own<<MemoryDevice as Device>::Queue>,
    block: Block,
    client: HostileClient,
    _commands: Sender<PendingCommand>,
}

impl Rig {
    fn new(seed: u64) -> Self {
        let (mut near, mut far) = pair("wire", MemoryConfig { slots: 64, ..MemoryConfig::default() });
        let block = Block::heap();
        let ((_wake, woken), (_commands, requests)) = (UnixDatagram::pair().unwrap(), channel());
        let queues = vec![near.take_queue(0).unwrap()];
        let mut work = Work::open(queues, FRAME_LEN_MAX, &block.scope("forward"), requests, woken).unwrap();
        let (queue, end) = ForwardedQueue::make(&ORDER).unwrap();
        let client = HostileClient::new(&end, &ORDER, seed);
        work.execute(Command::Add { place: 0, user: 0, queue: Box::new(queue) });
        work.execute(Command::SetReceiving { place: 0, receiving: true });
        work.execute(Command::AddFlow { place: 0, flow: flow() });
        let pool = Pool::heap(256).unwrap();
        let (rx, tx) = far.take_queue(0).unwrap().open(&pool, &block.scope("far")).unwrap();
        Self { work, far: Own { rx, tx, pool }, block, client, _commands }
    }

    /// A turn; the lengths of the frames that come out at the far end.
    fn turn(&mut self) -> Vec<usize> {
        self.work.turn(Instant::now());
        let mut burst = Burst::new();
        self.far.rx.receive(&mut burst, BURST_MAX, &self.far.pool, time::Instant::ZERO);
        burst
            .drain(..)
            .map(|mbuf| {
                let len = mbuf.len();
                mbuf.free();
                len
            })
            .collect()
    }

    fn drops(&self, reason: &str) -> u64 {
        self.block.snapshot().count(&format!("forward/drop/{reason}")).unwrap()
    }

    /// A datagram of the client's flow arrives.
    fn arrive(&mut self) {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 9, 192, 0, 2, 1]);
        frame.extend([1, 187, 0, 80, 0, 20, 0, 0]);
        frame.resize(60, 7);
        let mbuf = self.far.pool.alloc_copy(&frame).unwrap();
        if let Err(mbuf) = self.far.tx.post(mbuf, Offload::NONE) {
            mbuf.free();
        }
        self.far.tx.ring_doorbell(time::Instant::ZERO);
        self.far.tx.reap();
    }
}

fn flow() -> Flow {
    let destination = "192.0.2.1:80".parse().unwrap();
    Flow { protocol: Protocol::UDP, destination, source: None, source_port: None, vlan: None }
}

#[test]
fn frame_shorter_than_an_ethernet_header_is_dropped_by_name() {
    let mut rig = Rig::new(1);
    rig.client.send(0, &[(0, 13, 0), (0, 0, 0), (0, 6, MORE), (0, 7, 0), (0, 14, 0)]);
    assert_eq!(rig.turn(), [14]);
    assert_eq!((rig.drops("client_short"), rig.drops("client_invalid")), (3, 0));
}

#[test]
fn no_part_of_an_invalid_chain_goes_out() {
    let mut rig = Rig::new(1);
    rig.client.send(0, &[(u64::MAX, 60, MORE), (0, 60, MORE), (0, 60, 0), (2_000, 60, MORE), (0, 61, 0), (0, 62, 0)]);
    assert_eq!(rig.turn(), [62]);
    assert_eq!((rig.drops("client_short"), rig.drops("client_invalid")), (0, 2));
}

#[test]
fn connection_that_is_not_the_clients_to_give_and_what_is_none_are_named_drops() {
    let mut rig = Rig::new(1);
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 9, 192, 0, 2, 1, 1, 187, 0, 80];
    packet.resize(40, 0);
    for begins in [true, false] {
        let handover = Handover { begins, is_last: false, iss: 7, timestamp: 8, next: 9 };
        rig.work.hand_over(0, &handover.emit([2; 6], &packet), Instant::now());
        rig.work.hand_over(0, &handover.emit([2; 6], &packet[..19]), Instant::now());
    }
    assert_eq!((rig.drops("no_client"), rig.drops("client_invalid")), (2, 2));
}

/// The first segment of a connection to the client's TCP port, as a client hands it over.
fn handed_over(port: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 9, 192, 0, 2, 1];
    packet.extend(port.to_be_bytes());
    packet.extend([0, 80]);
    packet.resize(40, 0);
    Handover { begins: true, is_last: false, iss: 7, timestamp: 8, next: 9 }.emit([2; 6], &packet)
}

#[test]
fn connections_that_waited_come_as_the_client_that_listens_has_room_for_them() {
    let mut rig = Rig::new(1);
    let (tcp, now) = (Flow { protocol: Protocol::TCP, ..flow() }, Instant::now());
    rig.work.execute(Command::AddFlow { place: 0, flow: tcp });
    (1..=100).for_each(|port| rig.work.hand_over(0, &handed_over(port), now));
    let other = second(&mut rig);
    other.receive(0);
    rig.work.execute(Command::AddFlow { place: 1, flow: tcp });
    let delivered = |rig: &Rig| rig.block.snapshot().count("forward/delivered").unwrap();
    assert_eq!(delivered(&rig), 0, "it does not receive yet");
    rig.work.execute(Command::SetReceiving { place: 1, receiving: true });
    let mut later = Instant::now();
    for (taken, expected) in [(0, 64), (0, 64), (64, 100)] {
        other.receive(taken);
        later += PASS_PARKED_INTERVAL;
        rig.work.pass_parked_again(later);
        rig.turn();
        assert_eq!(delivered(&rig), expected);
    }
    assert_eq!((rig.drops("no_client"), rig.work.pass_parked_at), (0, None));
}

#[test]
fn connection_that_gives_way_to_another_is_counted_and_goes_back_to_its_client() {
    let mut rig = Rig::new(1);
    rig.work.execute(Command::AddFlow { place: 0, flow: Flow { protocol: Protocol::TCP, ..flow() } });
    rig.client.receive(0);
    (1..=1_026).for_each(|port| rig.work.hand_over(0, &handed_over(port), Instant::now()));
    let count = |name| rig.block.snapshot().count(name).unwrap();
    assert_eq!((count("forward/parked_displaced"), count("forward/delivered")), (2, 2));
    assert_eq!(rig.drops("no_client"), 0);
}

/// Another client, at place 1.
fn second(rig: &mut Rig) -> HostileClient {
    let (queue, end) = ForwardedQueue::make(&ORDER).unwrap();
    rig.work.execute(Command::Add { place: 1, user: 0, queue: Box::new(queue) });
    HostileClient::new(&end, &ORDER, 2)
}

/// The far end takes some frames; how many of them have this length.
fn take(rig: &mut Rig, max: usize, len: usize) -> usize {
    let mut burst = Burst::new();
    rig.far.rx.receive(&mut burst, max, &rig.far.pool, time::Instant::ZERO);
    let count = burst.iter().filter(|mbuf| mbuf.len() == len).count();
    burst.drain(..).for_each(Mbuf::free);
    count
}

/// Frames of the client at place 0 fill the interface, and then its own ring; how many.
fn fill(rig: &mut Rig) -> u32 {
    let frames = [(0, 60, 0); 64];
    rig.client.send(0, &frames);
    rig.work.turn(Instant::now());
    assert_eq!(rig.work.own[0].tx.room(), 0);
    rig.client.send(64, &frames);
    128
}

#[test]
fn frame_of_a_client_leaves_soon_while_another_sends_without_end() {
    let mut rig = Rig::new(1);
    let mut other = second(&mut rig);
    let mut sent = fill(&mut rig);
    other.send(0, &[(0, 61, 0)]);
    let mut seen = 0;
    for _ in 0..64 / 8 + 3 {
        // Each turn has room for eight, and the first client has always more.
        seen += take(&mut rig, 8, 61);
        rig.work.turn(Instant::now());
        rig.client.send(sent, &[(0, 60, 0); 8]);
        sent += 8;
    }
    assert_eq!(seen, 1);
}

#[test]
fn last_frames_of_a_client_are_counted_where_the_interface_stays_full() {
    let mut rig = Rig::new(1);
    let mut other = second(&mut rig);
    fill(&mut rig);
    other.send(0, &[(0, 61, 0)]);
    rig.work.execute(Command::Remove { place: 1 });
    assert_eq!(rig.drops("interface_full"), 1);
}

#[test]
fn thread_sleeps_shortly_while_the_interface_has_frames_to_send() {
    let mut rig = Rig::new(1);
    assert_eq!(rig.work.poll_timeout(), POLL_TIMEOUT);
    // A long one stays in its buffer until the far end has it.
    rig.client.send(0, &[(0, 1_500, 0)]);
    rig.work.turn(Instant::now());
    assert_eq!(rig.work.poll_timeout(), POLL_TIMEOUT_IN_FLIGHT);
}

/// What was taken is on the wire or dropped by name, whatever the rings hold.
#[test]
fn random_rings_put_whole_frames_on_the_wire_or_none() {
    let began = Instant::now();
    let (mut sent, mut cases) = (0, 0);
    while cases < 60 && began.elapsed() < Duration::from_secs(20) {
        cases += 1;
        let mut rig = Rig::new(cases);
        for _ in 0..600 {
            (0..1 + rig.client.next() % 6).for_each(|_| rig.client.corrupt());
            match rig.client.next() % 8 {
                0..3 => rig.client.send_chains(),
                3 => rig.arrive(),
                _ => (),
            }
            let lens = rig.turn();
            assert!(lens.iter().all(|len| (ETHERNET_LEN..=FRAME_LEN_MAX).contains(len)), "{lens:?}");
            sent += lens.len() as u64;
            assert!(rig.work.own[0].pool.drops_without_reason() == 0 && rig.far.pool.drops_without_reason() == 0);
        }
        // Its queue is taken from it, and the next client at its place is served.
        rig.work.execute(Command::Remove { place: 0 });
        let (queue, end) = ForwardedQueue::make(&ORDER).unwrap();
        rig.work.execute(Command::Add { place: 0, user: 0, queue: Box::new(queue) });
        HostileClient::new(&end, &ORDER, 1).send(0, &[(0, 60, 0)]);
        assert!(rig.turn().contains(&60));
    }
    println!("{cases} cases: {sent} frames went out");
    assert!(sent > 1_000, "{sent} frames alone went out");
}
