//! A broker's port, in the program that borrows a queue: the same halves as over a port of its own,
//! with objects that the broker has.

use core::sync::atomic::Ordering;
use std::fs::File;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Weak};

use super::clock;
use super::rings::Parts;
use super::shared::{RegisterPage, SharedRings, Status, page_len};
use crate::counters::{Scope, Unit};
use crate::device::broker::client::LentPort as Broker;
use crate::device::broker::message::Half;
use crate::device::broker::nic::{NicFeatures, NicQueue, REAL_TIME, WALL};
use crate::device::broker::request::QueueRequest;
use crate::device::mlx5::completion::arm::CompletionEvents;
use crate::device::mlx5::completion::clock::{ClockInfo, TimestampSource};
use crate::device::mlx5::config::{Feature, Mlx5Config};
use crate::device::mlx5::health::recover::{Objects, Recovery};
use crate::device::mlx5::health::watch::RingError;
use crate::device::mlx5::receive::packet_types::RxFeatures;
use crate::device::mlx5::receive::rx::{Mlx5Rx, QueueStatus, Refreshed, RxParts};
use crate::device::mlx5::send::tx::{Mlx5Tx, TxParts};
use crate::device::mlx5::setup::parts::TxFeatures;
use crate::device::steering::{Fields, Rule, RuleId, SteerError};
use crate::device::{
    Capabilities, DeviceError, DeviceErrorKind, RxOffloads, RxState, TxOffloads, rings as ring_buffers,
};
use crate::mem::{Layout, Pool, Region, Reservation, Sizing};
use crate::wire::Protocol;

/// Reads of the broker's clock before giving up: one is some words.
const CLOCK_LOOKS: usize = 100;
/// A port whose context, rings and rules are a broker's.
pub(crate) struct LentPort {
    broker: Arc<Broker>,
    config: Mlx5Config,
    features: NicFeatures,
    taken: Weak<()>,
}

/// A queue that is to be borrowed.
pub(crate) struct LentQueue {
    broker: Arc<Broker>,
    config: Mlx5Config,
    features: NicFeatures,
    lent: Option<Lent>,
    place: Arc<()>,
}

/// What the broker has lent.
struct Lent {
    queue: NicQueue,
    rings: Arc<SharedRings>,
    page: Arc<RegisterPage>,
    wake: UnixStream,
}

impl LentPort {
    /// Asks the broker at `path` for the port of `config`.
    pub(crate) fn open(path: &Path, config: &Mlx5Config) -> Result<Self, DeviceError> {
        config.check()?;
        if let Some(what) = not_lent(config) {
            let sentence =
                format!("a queue of a broker's has no {what}: leave it out, or open the port with capabilities");
            return Err(DeviceError::new(DeviceErrorKind::Unsupported, sentence));
        }
        let broker = Broker::open(path, &config.device)?;
        let Some(features) = broker.nic() else {
            let name = &config.device;
            let sentence = format!(
                "the broker at {} lends queues of AF_XDP: name the interface {name} without a driver, or start \
                 `wirepath broker --interface mlx5:{name}`",
                path.display()
            );
            return Err(DeviceError::new(DeviceErrorKind::InvalidConfig, sentence));
        };
        if config.timestamps == Feature::Required && features.timestamps == 0 {
            let name = &config.device;
            let sentence =
                format!("the NIC of the broker of {name} stamps no frames (see its log): start without timestamps");
            return Err(DeviceError::new(DeviceErrorKind::Unsupported, sentence));
        }
        Ok(Self { broker: Arc::new(broker), config: config.clone(), features, taken: Weak::new() })
    }

    pub(crate) fn interface(&self) -> &str {
        &self.broker.interface().name
    }

    pub(crate) fn state(&self) -> RxState {
        self.broker.look();
        if self.broker.is_lost() { RxState::Ended } else { RxState::Open }
    }

    pub(crate) fn describe(&self) -> String {
        let features = &self.features;
        let mut words = format!(
            "interface {}, frames of up to {} bytes; a queue of a broker's",
            self.interface(),
            features.frame_len_max
        );
        for (is_used, what) in [
            (features.checksums != 0, "; checksums"),
            (features.segmentation_len_max != 0, "; TCP segmentation"),
            (features.multi_packet != 0, "; multi-packet sends"),
            (self.has_timestamps(), "; time stamps"),
        ] {
            words.push_str(if is_used { what } else { "" });
        }
        words
    }

    /// Whether frames get timestamps: the configuration wants them, and the NIC has them.
    fn has_timestamps(&self) -> bool {
        wants_timestamps(&self.config) && self.features.timestamps != 0
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let (features, checksums) = (&self.features, self.features.checksums != 0);
        Capabilities {
            queues: 1,
            frame_len_max: features.frame_len_max as usize,
            tx_segments_max: Mlx5Tx::segments_max_of(self.config.tx_ring_len, features.wqe_units_max),
            rx: RxOffloads {
                ip_checksum: checksums,
                l4_checksum: checksums,
                timestamp: self.has_timestamps(),
                flow_tag: true,
                ..RxOffloads::default()
            },
            tx: TxOffloads {
                ip_checksum: checksums,
                l4_checksum: checksums,
                segmentation_len_max: features.segmentation_len_max as usize,
                vlan: true,
                timestamp: self.has_timestamps(),
            },
            steering: Fields::ALL,
            rules_max: features.rules_max as usize,
        }
    }

    pub(crate) fn take_queue(&mut self, idx: u16) -> Result<LentQueue, DeviceError> {
        let device = self.interface().to_owned();
        if idx != 0 {
            return Err(DeviceError::NoQueue { device, idx, queues: 1 });
        }
        if self.taken.strong_count() > 0 {
            return Err(DeviceError::QueueTaken { device, idx });
        }
        let place = Arc::new(());
        self.taken = Arc::downgrade(&place);
        let (broker, config) = (Arc::clone(&self.broker), self.config.clone());
        Ok(LentQueue { broker, config, features: self.features, lent: None, place })
    }

    pub(crate) fn steer(&self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError> {
        rule.check()?;
        if idx == 0 { self.broker.add(rule) } else { Err(SteerError::NoQueue { idx }) }
    }

    pub(crate) fn unsteer(&self, id: RuleId) -> Result<(), SteerError> {
        self.broker.remove(id)
    }

    /// Why no frame will come any more, if that is so.
    pub(crate) fn why_ended(&self) -> Option<String> {
        self.broker.lost()
    }

    /// The socket that brings the ICMP errors about our flows; `None` from the second time on.
    pub(crate) fn take_icmp_errors(&self) -> Option<OwnedFd> {
        self.broker.take_icmp_errors()
    }

    /// Shows the broker a kernel socket that we have at this port.
    pub(crate) fn claim(&self, socket: BorrowedFd<'_>, protocol: Protocol, port: u16) -> io::Result<()> {
        self.broker.claim(socket, protocol, port)
    }

    /// Has the kernel resolve neighbors.
    pub(crate) fn resolver(&self) -> Box<dyn Fn(Ipv4Addr) -> io::Result<()> + Send> {
        let broker = Arc::clone(&self.broker);
        Box::new(move |address| broker.resolve(address))
    }
}

impl LentQueue {
    pub(crate) fn buffers(&self) -> Sizing {
        ring_buffers(self.config.rx_ring_len, self.config.tx_ring_len)
    }

    /// Borrows the memory, and with it the queue.
    pub(crate) fn region(&mut self, layout: Layout, buffers: usize) -> Result<Region, DeviceError> {
        let len = layout.region_len(buffers).next_multiple_of(page_len());
        let place = Reservation::new(len).map_err(|error| failed("addresses for the pool", &error))?;
        let request = QueueRequest {
            umem_len: len as u64,
            chunk_len: layout.data_room() as u32,
            rx_ring_len: self.config.rx_ring_len,
            tx_ring_len: self.config.tx_ring_len,
            address: place.address(),
        };
        let (queue, [memory, device_file, wake]) = self.broker.borrow_nic(&request)?;
        let memory = File::from(memory);
        let region = Region::shared_in(&memory, place)
            .map_err(|error| failed("the memory of a broker", &io::Error::other(error.to_string())))?;
        let rings = SharedRings::map(&memory, request.umem_len, queue.rings_len as usize)
            .map_err(|error| failed("the rings of a broker's queue", &error))?;
        // The mapping keeps the file, and the file the queue and its rules in the NIC.
        let page = RegisterPage::map(device_file.as_fd(), queue.uar_page)
            .map_err(|error| failed("the register of a broker's queue", &error))?;
        let page = Arc::new(page);
        let mapped = Arc::downgrade(&page);
        self.broker.at_end(move || {
            if let Some(page) = mapped.upgrade() {
                page.let_go();
            }
        });
        self.lent = Some(Lent { queue, rings: Arc::new(rings), page, wake: wake.into() });
        Ok(region)
    }

    pub(crate) fn open(self, pool: &Pool, scope: &Scope) -> Result<(Mlx5Rx, Mlx5Tx), DeviceError> {
        let Some(lent) = self.lent.filter(|_| pool.region().is_shared()) else {
            let what = "the queue is a broker's, and so is its memory: leave the pool to the worker's builder";
            return Err(DeviceError::new(DeviceErrorKind::InvalidConfig, what));
        };
        let (features, name) = (self.features, self.broker.interface().name.clone());
        let taken = lent.queue.rq_wqe_count * features.frame_len_max.div_ceil(pool.layout().data_room() as u32);
        if pool.capacity() <= taken as usize {
            let sentence =
                format!("a pool of {} buffers is too small for the ring of {name}: use more", pool.capacity());
            return Err(DeviceError::new(DeviceErrorKind::InvalidConfig, sentence));
        }
        let parts = Parts::of(&lent.queue, &features, &lent.rings, lent.page).ok_or_else(|| {
            let sentence = format!("the broker of {name} describes a queue that cannot be: use one release of both");
            DeviceError::new(DeviceErrorKind::InvalidConfig, sentence)
        })?;
        scope.text("interface", &name);
        scope.gauge("interface_index", Unit::Number).set(self.broker.interface().index.into());
        scope.text("mode", "mlx5, a broker's");
        // By which `wirepath sockets` names them.
        scope.scope("tx").gauge("lent_queue", Unit::Number).set(parts.sq.number.into());
        scope.scope("rx").gauge("lent_queue", Unit::Number).set(lent.queue.rq_number.into());
        scope.scope("tx").text("doorbell", if parts.sq.blueflame_len > 0 { "BlueFlame" } else { "plain" });
        let half =
            |half| Box::new(LentHalf { half, broker: Arc::clone(&self.broker), _place: Arc::clone(&self.place) });
        let stamps = stamps(&self.config, &features, &lent.rings).ok_or_else(|| {
            let sentence = format!("the broker of {name} shows no clock of its NIC: see its log, and start it again");
            DeviceError::new(DeviceErrorKind::Unsupported, sentence)
        })?;
        let clock = Arc::clone(&lent.rings);
        let mut tx_faults = Faults::new(&lent.rings, Status::TxFaults, Status::TxLosses);
        let tx = TxParts {
            sq: parts.sq,
            cq: parts.tx_cq,
            capabilities: tx_features(&features),
            lkey: lent.queue.lkey,
            stamps,
            relation: Box::new(move || clock::read(&clock)),
            fault: Box::new(move || tx_faults.take()),
            recovery: Recovery::new(half(Half::Tx), &scope.scope("tx")),
            may_send: None,
        };
        let tx = Mlx5Tx::new(tx, pool, scope)?;
        let status = LentStatus {
            faults: Faults::new(&lent.rings, Status::RxFaults, Status::RxLosses),
            out_of_buffer: 0,
            broker: Arc::clone(&self.broker),
            rings: lent.rings,
        };
        let rx = RxParts {
            cq: parts.rx_cq,
            rq: parts.rq,
            mprq_buffer: None,
            recovery: Recovery::new(half(Half::Rx), &scope.scope("rx")),
            status: Box::new(status),
            frame_len_max: features.frame_len_max as usize,
            features: RxFeatures { stamps, has_hashes: false, has_checksums: features.checksums != 0 },
            mini: None,
            events: Some(Box::new(LentEvents { wake: lent.wake, broker: Arc::clone(&self.broker) })),
        };
        // When this returns the ring has buffers, and frames may come.
        let rx = Mlx5Rx::new(rx, pool, scope);
        self.broker.connect().map_err(|error| failed("the frames of a broker's queue", &error))?;
        Ok((rx, tx))
    }
}

/// What `config` requires and no queue of a broker's has.
fn not_lent(config: &Mlx5Config) -> Option<&'static str> {
    let required = [
        (config.timestamps == Feature::Required && config.raw_timestamps, "timestamps in ticks of a clock"),
        (config.compression == Feature::Required, "compressed completions"),
        (config.striding == Feature::Required, "strides"),
        (config.vlan_stripping == Feature::Required, "VLAN stripping"),
        (config.pace.is_some(), "rate limit"),
        (config.queues > 1 || config.hash().is_some(), "other queues beside it"),
    ];
    required.into_iter().find(|(is_required, _)| *is_required).map(|(_, what)| what)
}

/// Ticks are of no use without a clock that can be read.
fn wants_timestamps(config: &Mlx5Config) -> bool {
    config.timestamps.is_wanted() && !config.raw_timestamps
}

/// How the queue's timestamps are read; `None` where the broker shows no clock. Asks a few times,
/// because the broker may just be writing.
fn stamps(config: &Mlx5Config, features: &NicFeatures, rings: &SharedRings) -> Option<TimestampSource> {
    match features.timestamps {
        WALL if wants_timestamps(config) => {
            core::iter::repeat_with(|| clock::read(rings)).take(CLOCK_LOOKS).flatten().next().map(TimestampSource::Wall)
        }
        REAL_TIME if wants_timestamps(config) => Some(TimestampSource::RealTime),
        _ => Some(TimestampSource::Off),
    }
}

fn tx_features(features: &NicFeatures) -> TxFeatures {
    TxFeatures {
        frame_len_max: features.frame_len_max,
        multi_packet: features.multi_packet != 0,
        checksums: features.checksums != 0,
        vlan_insert: features.vlan_insert != 0,
        segmentation_len_max: features.segmentation_len_max,
    }
}

fn failed(what: &str, error: &io::Error) -> DeviceError {
    let sentence = format!("{what} cannot be had ({error}): see the broker's log, and start both again");
    DeviceError::new(DeviceErrorKind::from(error), sentence)
}

/// The objects of one half, which the broker has.
struct LentHalf {
    half: Half,
    broker: Arc<Broker>,
    _place: Arc<()>,
}

impl Objects for LentHalf {
    fn reset(&mut self) -> io::Result<()> {
        self.broker.reset(self.half)
    }

    fn ready(&mut self) -> io::Result<()> {
        self.broker.ready(self.half)
    }

    fn close(&mut self) -> io::Result<()> {
        if self.half == Half::Rx {
            self.broker.disconnect();
        }
        self.broker.reset(self.half)
    }
}

/// Errors that the broker has seen and no CQE reports.
struct Faults {
    rings: Arc<SharedRings>,
    ring: (Status, u64),
    completions: (Status, u64),
}

impl Faults {
    fn new(rings: &Arc<SharedRings>, ring: Status, completions: Status) -> Self {
        Self { rings: Arc::clone(rings), ring: (ring, 0), completions: (completions, 0) }
    }

    fn take(&mut self) -> Option<RingError> {
        for ((status, seen), error) in
            [(&mut self.completions, RingError::Completions), (&mut self.ring, RingError::Ring)]
        {
            let count = self.rings.status(*status).load(Ordering::Acquire);
            if count != *seen {
                *seen = count;
                return Some(error);
            }
        }
        None
    }
}

/// The status of port and objects, which the broker writes ten times a second.
struct LentStatus {
    rings: Arc<SharedRings>,
    faults: Faults,
    out_of_buffer: u64,
    broker: Arc<Broker>,
}

impl QueueStatus for LentStatus {
    fn state(&self) -> RxState {
        let count = |status| self.rings.status(status).load(Ordering::Acquire);
        match count(Status::Port) {
            _ if self.broker.is_lost() => RxState::Ended,
            _ if count(Status::RxLosses) + count(Status::TxLosses) > 0 => RxState::Ended,
            0 => RxState::Open,
            1 => RxState::LinkDown,
            _ => RxState::Ended,
        }
    }

    fn relation(&mut self) -> Option<ClockInfo> {
        clock::read(&self.rings)
    }

    /// Looks whether the broker is there, too, by one system call.
    fn refresh(&mut self) -> Refreshed {
        self.broker.look();
        let count = self.rings.status(Status::OutOfBuffer).load(Ordering::Acquire);
        let out_of_buffer = count.wrapping_sub(self.out_of_buffer);
        self.out_of_buffer = count;
        Refreshed { out_of_buffer, fault: self.faults.take() }
    }

    fn refresh_last(&mut self) -> Refreshed {
        self.refresh()
    }
}

/// The events of the completion queue, which the broker relays. It has the register, too.
struct LentEvents {
    wake: UnixStream,
    broker: Arc<Broker>,
}

impl CompletionEvents for LentEvents {
    fn fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    fn take(&mut self) -> bool {
        matches!(self.wake.read(&mut [0; 1]), Ok(1))
    }

    fn ring_register(&mut self, word: u32) -> bool {
        self.broker.arm(word)
    }

    fn has_register(&self) -> bool {
        true
    }
}
