//! Clients with three numbers each, the whole state of a connection without loss. Real clients
//! would take as much of the cache as the server does, although in practice the server has a core
//! and its cache for itself.
//!
//! They behave like Linux: timestamps, SACK and window scale in the SYN, each answer acknowledged,
//! each request with the acknowledgment of everything before it.

use wirepath::counters::Block;
use wirepath::device::memory::{MemoryDevice, MemoryRx, MemoryTx};
use wirepath::device::{Device, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{Burst, Pool};
use wirepath::wire::EtherType;
use wirepath::wire::ethernet::{EthernetFields, EthernetFrame, EthernetHeader};
use wirepath::wire::ipv4::Ipv4Packet;
use wirepath::wire::tcp::{TcpFields, TcpFlags, TcpOption, TcpOptionList, TcpSegment, Timestamps};
use wirepath_tests::frames::data_segment;
use zerocopy::IntoBytes;

use super::MESSAGE_LEN;
use super::pair::{BURST_LEN, SERVER, START, address, mac, short_buffers};

/// A caller's first port: it has one address, and continues with the server's next port when its
/// own ports are used up.
const FIRST_PORT: u16 = 1_024;
/// TSval of all: their clock stands still.
const CLOCK: u32 = 1_000;
/// As large as it can be, and so never reached.
const WINDOW: u16 = 0xffff;
const WINDOW_SCALE: u8 = 7;

/// The state of a caller.
#[derive(Clone, Copy, Default)]
struct Caller {
    snd_nxt: u32,
    rcv_nxt: u32,
    ts_recent: u32,
}

/// All callers of a server, at the other end of its wire.
pub struct Callers {
    rx: MemoryRx,
    tx: MemoryTx,
    pool: Pool,
    burst: Burst,
    callers: Vec<Caller>,
    /// Ports that the server listens on, from 80 on.
    listeners: u16,
}

impl Callers {
    /// No caller has connected yet.
    pub fn new(mut port: MemoryDevice, callers: usize, listeners: u16) -> Self {
        let pool = short_buffers();
        let queue = port.take_queue(0).expect("a fresh port has its queue");
        let (rx, tx) =
            queue.open(&pool, &Block::heap().scope("callers")).expect("the default pool holds the port's frames");
        Self { rx, tx, pool, burst: Burst::new(), callers: vec![Caller::default(); callers], listeners }
    }

    /// A SYN.
    pub fn call(&mut self, idx: usize) {
        let mut options = TcpOptionList::EMPTY;
        let timestamps = TcpOption::Timestamps(Timestamps { value: CLOCK, echo_reply: 0 });
        let scale = TcpOption::WindowScale(WINDOW_SCALE);
        for option in [TcpOption::MaximumSegmentSize(1460), TcpOption::SackPermitted, timestamps, scale] {
            options.push(option).expect("four options fit");
        }
        self.send(idx, TcpFlags::SYN, options.as_bytes(), &[]);
        self.callers[idx].snd_nxt += 1;
    }

    /// Sends a request of [`MESSAGE_LEN`] bytes.
    pub fn ask(&mut self, idx: usize) {
        self.send_with_timestamps(idx, TcpFlags::ACK | TcpFlags::PSH, &[7; MESSAGE_LEN]);
        self.callers[idx].snd_nxt += MESSAGE_LEN as u32;
    }

    /// Takes a burst of the server's segments, and acknowledges it; once for consecutive segments
    /// to one caller. Returns their number.
    pub fn take_answers(&mut self) -> usize {
        let mut burst = core::mem::take(&mut self.burst);
        let count = self.rx.receive(&mut burst, BURST_LEN, &self.pool, START);
        let mut last = None;
        for frame in burst.drain(..) {
            let idx = self.learn(frame.bytes());
            if let Some(before) = last.replace(idx).filter(|&before| before != idx) {
                self.acknowledge(before);
            }
        }
        if let Some(idx) = last {
            self.acknowledge(idx);
        }
        self.burst = burst;
        count
    }

    fn acknowledge(&mut self, idx: usize) {
        self.send_with_timestamps(idx, TcpFlags::ACK, &[]);
    }

    /// The caller that a frame is for, updated by its contents.
    fn learn(&mut self, frame: &[u8]) -> usize {
        let frame = EthernetFrame::parse(frame).expect("the server sends frames");
        let packet = Ipv4Packet::parse(frame.payload).expect("with a packet each");
        let segment = TcpSegment::parse(packet.payload).expect("with a segment each");
        let fields = segment.header.fields();
        let idx = usize::from(fields.destination_port - FIRST_PORT) * usize::from(self.listeners)
            + usize::from(fields.source_port - SERVER.port());
        let timestamps = segment.options().flatten().find_map(|option| match option {
            TcpOption::Timestamps(timestamps) => Some(timestamps),
            _ => None,
        });
        self.callers[idx] = Caller {
            rcv_nxt: fields.seq + segment.payload.len() as u32 + u32::from(fields.flags.contains(TcpFlags::SYN)),
            ts_recent: timestamps.expect("both have agreed on timestamps").value,
            ..self.callers[idx]
        };
        idx
    }

    fn send_with_timestamps(&mut self, idx: usize, flags: TcpFlags, data: &[u8]) {
        let timestamps = Timestamps { value: CLOCK, echo_reply: self.callers[idx].ts_recent };
        self.send(idx, flags, &timestamps.aligned(), data);
    }

    fn send(&mut self, idx: usize, flags: TcpFlags, options: &[u8], data: &[u8]) {
        let caller = self.callers[idx];
        let listeners = usize::from(self.listeners);
        let fields = TcpFields {
            source_port: FIRST_PORT + (idx / listeners) as u16,
            destination_port: SERVER.port() + (idx % listeners) as u16,
            seq: caller.snd_nxt,
            ack: caller.rcv_nxt,
            flags,
            window: WINDOW,
            urgent_pointer: 0,
        };
        let link = EthernetHeader::new(EthernetFields { dst: mac(2), src: mac(1), ethertype: EtherType::IPV4 });
        let packet = data_segment([address(1), *SERVER.ip()], &fields, options, data);
        let frame =
            self.pool.alloc_copy(&[link.as_bytes(), &packet].concat()).expect("posted buffers come home at once");
        let posted = self.tx.post(frame, Offload::NONE);
        assert!(posted.is_ok(), "a batch is what the wire has room for");
        self.tx.ring_doorbell(START);
        self.tx.reap();
    }
}
