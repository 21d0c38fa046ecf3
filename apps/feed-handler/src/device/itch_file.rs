//! A plain file of ITCH messages as a device: a network where an exchange publishes the file as
//! MoldUDP64.
//!
//! The file has no packets, so the device makes some: runs of whole messages as they are in the
//! file, up to what an Ethernet frame carries, under the session `FILE` with numbers from 1, and an
//! end of session after the last. The rest of the program treats it like any other feed: faults
//! become gaps, and a tap records it as a capture. A frame arrives at the time of its first
//! message, in ns since midnight.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;

use market::framing::mold_udp64::MoldHeader;
use wirepath::counters::{Counter, Drops, Scope, Unit};
use wirepath::device::pcap::{Pace, Pacer};
use wirepath::device::steering::Fields;
use wirepath::device::{
    Capabilities, Device, DeviceError, DeviceErrorKind, Offload, Queue, RxOffloads, RxQueue, RxState, TxOffloads,
    TxQueue, take_only_queue,
};
use wirepath::mem::{BURST_MAX, Burst, Mbuf, Pool, RxInfo, Sizing};
use wirepath::time::{Instant, UnixTime};
use wirepath::wire::ethernet::{EthernetFields, EthernetHeader};
use wirepath::wire::ipv4::{Ipv4Fields, Ipv4Header};
use wirepath::wire::udp::{UdpFields, UdpHeader};
use wirepath::wire::{EtherType, MacAddr, Protocol};

use super::blocks::{Blocks, FileEnding, Run};

/// The group of the file: MCAST-TEST-NET (RFC 6676), the port of TotalView.
const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(233, 252, 0, 1), 26_477);
/// Its sender: an address for documentation (RFC 5737).
const SOURCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SESSION: [u8; 10] = *b"FILE      ";
const HEADERS_LEN: usize = EthernetHeader::LEN + Ipv4Header::LEN + UdpHeader::LEN;
const MOLD_LEN: usize = 20;

/// The file and how it is published.
#[derive(Clone, Debug)]
pub struct ItchFileConfig {
    /// The file, plain or gzip.
    pub path: PathBuf,
    /// How fast it is published, by the times in its messages.
    pub pace: Pace,
    /// Bytes of the longest frame.
    pub frame_len_max: usize,
}

/// A port that a file is published on. It has one queue.
pub struct ItchFileDevice {
    name: String,
    frame_len_max: usize,
    queue: Option<ItchFileQueue>,
    ending: FileEnding,
}

/// The port's queue, on its way to a worker.
pub struct ItchFileQueue {
    blocks: Blocks,
    frame_len_max: usize,
    pacer: Pacer,
}

impl ItchFileDevice {
    /// Opens the file.
    pub fn open(config: &ItchFileConfig) -> Result<Self, DeviceError> {
        let name = config.path.display().to_string();
        let ending = FileEnding::default();
        let blocks = Blocks::open(&config.path, Arc::clone(&ending)).map_err(|error| {
            let sentence = format!("cannot open the file {name}: {error}; check the path and its permissions");
            DeviceError::new(DeviceErrorKind::from(&error), sentence).because(error)
        })?;
        let queue = ItchFileQueue { blocks, frame_len_max: config.frame_len_max, pacer: Pacer::new(config.pace) };
        Ok(Self { name, frame_len_max: config.frame_len_max, queue: Some(queue), ending })
    }

    /// How the file ended: read it when the queue has ended.
    pub fn ending(&self) -> FileEnding {
        Arc::clone(&self.ending)
    }
}

impl Device for ItchFileDevice {
    type Queue = ItchFileQueue;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            queues: 1,
            frame_len_max: self.frame_len_max,
            tx_segments_max: usize::MAX,
            rx: RxOffloads { timestamp: true, ..RxOffloads::default() },
            tx: TxOffloads::default(),
            steering: Fields::NONE,
            rules_max: 0,
        }
    }

    fn take_queue(&mut self, idx: u16) -> Result<ItchFileQueue, DeviceError> {
        take_only_queue(&mut self.queue, &self.name, idx)
    }
}

impl Queue for ItchFileQueue {
    type Rx = ItchFileRx;
    type Tx = ItchFileTx;

    fn open(self, _pool: &Pool, scope: &Scope) -> Result<(ItchFileRx, ItchFileTx), DeviceError> {
        let tx = ItchFileTx { drops: scope.scope("tx").tx_drops() };
        let scope = scope.scope("rx");
        let rx = ItchFileRx {
            blocks: self.blocks,
            frame_len_max: self.frame_len_max,
            pacer: self.pacer,
            next_seq: 1,
            pending: None,
            end: End::Messages,
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            drops: scope.drops(),
        };
        Ok((rx, tx))
    }

    fn buffers(&self) -> Sizing {
        Sizing::new().part("reserve", BURST_MAX, "for receiving, however much waits")
    }
}

wirepath::drop_reasons! {
    /// Why messages of the file do not reach the pipeline.
    pub enum ItchFileDrop {
        /// A message that does not fit into a frame of the port.
        TooLong => "too_long",
    }
}

/// The receiving half of the port. A poll that finds the buffer empty makes a read(2) of up to 256
/// KiB.
pub struct ItchFileRx {
    blocks: Blocks,
    frame_len_max: usize,
    pacer: Pacer,
    next_seq: u64,
    /// A run that was read and is not due yet, or that has no buffer yet.
    pending: Option<Run>,
    end: End,
    frames: Counter,
    bytes: Counter,
    drops: Drops<ItchFileDrop>,
}

/// The state of the publisher.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Messages,
    /// All messages are sent, but not the end of the session.
    Session,
    Reported,
}

impl ItchFileRx {
    /// The next packet's messages; an empty run is the end of the session.
    fn next_run(&mut self) -> Option<Run> {
        if let Some(run) = self.pending.take() {
            return Some(run);
        }
        if self.end == End::Messages {
            if let Some(run) = self.blocks.run() {
                return Some(run);
            }
            self.end = End::Session;
        }
        (self.end == End::Session).then_some(Run {
            len: 0,
            count: MoldHeader::END_OF_SESSION,
            at_ns: self.blocks.last_ns,
        })
    }

    /// Writes the packet of a run into an mbuf; returns it as an error where it is too small.
    fn fill(&self, run: &Run, mut mbuf: Mbuf) -> Result<Mbuf, Mbuf> {
        let Some(frame) = mbuf.append(HEADERS_LEN + MOLD_LEN + run.len) else { return Err(mbuf) };
        let (headers, payload) = frame.split_at_mut(HEADERS_LEN);
        let (mold, blocks) = payload.split_at_mut(MOLD_LEN);
        mold[..10].copy_from_slice(&SESSION);
        mold[10..18].copy_from_slice(&self.next_seq.to_be_bytes());
        mold[18..].copy_from_slice(&run.count.to_be_bytes());
        blocks.copy_from_slice(self.blocks.bytes(run));
        write_headers(headers, payload);
        let timestamp = Some(UnixTime::from_nanos(run.at_ns));
        mbuf.set_rx_info(&RxInfo { timestamp, ..RxInfo::default() });
        Ok(mbuf)
    }

    /// The run was sent or lost: the next one begins behind it.
    fn advance(&mut self, run: &Run) {
        self.blocks.consume(run.len);
        if run.len == 0 {
            self.end = End::Reported;
        } else {
            self.next_seq += u64::from(run.count);
        }
    }
}

impl RxQueue for ItchFileRx {
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        let mut received = 0;
        for _ in 0..limit.min(burst.remaining_capacity()) {
            let Some(run) = self.next_run() else { break };
            let mbuf = if self.pacer.is_due(run.at_ns, now) { pool.alloc() } else { None };
            let Some(mbuf) = mbuf else {
                self.pending = Some(run);
                break;
            };
            let len = HEADERS_LEN + MOLD_LEN + run.len;
            let filled = if len > self.frame_len_max { Err(mbuf) } else { self.fill(&run, mbuf) };
            match filled {
                Ok(mbuf) => {
                    burst.push(mbuf);
                    received += 1;
                    self.bytes.add(len as u64);
                }
                Err(mbuf) => {
                    mbuf.free();
                    self.drops.count(ItchFileDrop::TooLong);
                }
            }
            self.advance(&run);
        }
        self.frames.add(received as u64);
        received
    }

    fn state(&self) -> RxState {
        if self.end == End::Reported { RxState::Ended } else { RxState::Open }
    }

    fn refresh_counters(&mut self) {}
}

/// Writes Ethernet, IPv4 and UDP in front of a payload.
fn write_headers(headers: &mut [u8], payload: &[u8]) {
    const ROOM: &str = "a frame is shorter than a 16-bit length, and the headers have room for themselves";
    let fields = UdpFields { source_port: GROUP.port(), destination_port: GROUP.port(), payload_len: payload.len() };
    let mut udp = UdpHeader::new(&fields).expect(ROOM);
    udp.fill_checksum(SOURCE, *GROUP.ip(), payload);
    let ipv4 = Ipv4Header::new(&Ipv4Fields {
        source: SOURCE,
        destination: *GROUP.ip(),
        protocol: Protocol::UDP,
        ttl: 1,
        tos: 0,
        identification: 0,
        dont_fragment: true,
        payload_len: UdpHeader::LEN + payload.len(),
    });
    let ethernet = EthernetHeader::new(EthernetFields {
        dst: MacAddr::multicast_ipv4(*GROUP.ip()),
        src: MacAddr([2, 0, 0, 0, 0, 0x0a]),
        ethertype: EtherType::IPV4,
    });
    let mut len = ethernet.emit(headers).expect(ROOM);
    len += ipv4.and_then(|ipv4| ipv4.emit(&mut headers[len..])).expect(ROOM);
    udp.emit(&mut headers[len..]).expect(ROOM);
}

wirepath::drop_reasons! {
    /// Why a frame is not sent.
    pub enum ItchFileTxDrop {
        /// A file takes no frames.
        NoTx => "no_tx",
    }
}

/// The sending half: a file takes no frames.
pub struct ItchFileTx {
    drops: Drops<ItchFileTxDrop>,
}

impl TxQueue for ItchFileTx {
    fn post(&mut self, mbuf: Mbuf, _offload: Offload) -> Result<(), Mbuf> {
        self.drops.count(ItchFileTxDrop::NoTx);
        mbuf.free();
        Ok(())
    }

    fn ring_doorbell(&mut self, _now: Instant) {}

    fn reap(&mut self) -> usize {
        0
    }

    fn room(&mut self) -> usize {
        usize::MAX
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn refresh_counters(&mut self) {}
}
