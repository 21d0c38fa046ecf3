//! The broker's part: a context, memory and rings for each client, and the rules of all.

use core::sync::atomic::Ordering;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rdma_core_sys::verbs::RingMemory;

use super::clock;
use super::destructions::Destructions;
use super::halves::{Frames, Halves};
use super::shared::{SharedRings, Status, add, page_len};
use crate::device::broker::message;
use crate::device::broker::nic::{NicFeatures, NicQueue, REAL_TIME, WALL};
use crate::device::broker::request::QueueRequest;
use crate::device::broker::sys;
use crate::device::mlx5::completion::arm::CompletionEvents;
use crate::device::mlx5::config::{Feature, Mlx5Config, RxDistribution};
use crate::device::mlx5::error::Mlx5SetupError;
use crate::device::mlx5::health::watch::RingError;
use crate::device::mlx5::ring::ArmRegister;
use crate::device::mlx5::setup::capabilities::TimestampFormat;
use crate::device::mlx5::setup::objects::Receiver;
use crate::device::mlx5::setup::own_device::OwnDevice;
use crate::device::mlx5::setup::own_queue::{self, ChannelEvents, CreatedRx, CreatedTx, ObjectMonitor, OwnQueue};
use crate::device::mlx5::setup::parts::CqParts;
use crate::device::steering::{Rule, RuleId, SteerError};
use crate::device::{DeviceError, DeviceErrorKind, RxState};
use crate::mem::Region;
use crate::sys::process::without_capabilities;

/// Pages of the rings' memory beside the rings: the status, doorbell records, and what set-up takes
/// meanwhile.
const PAGES_BESIDE: usize = 64;
/// Rules of a client whose frames do not come yet: its first frames have them installed at once.
const WAITING_RULES_MAX: usize = 64;
/// Each event is a byte of `LentNic::wake`.
const WAKE: [u8; 1] = [1];

/// A port whose queues are lent.
pub(crate) struct Lender {
    /// Open as long as the broker is: it knows the port, and has no queue.
    port: OwnDevice,
    queues: HashMap<u16, NicClient>,
    /// The queue of each rule, and its number there.
    rules: HashMap<RuleId, (u16, RuleId)>,
    next_rule: u32,
    /// Queues of clients that have ended.
    destructions: Destructions,
    /// Errors of rings so far.
    ring_errors: u64,
}

/// What a client gets: descriptors, and the description of its queue.
pub(crate) struct LentNic {
    memory: File,
    device_file: OwnedFd,
    wake: OwnedFd,
    pub(crate) queue: NicQueue,
}

/// What the broker keeps of a queue that it has lent.
struct NicClient {
    halves: Halves,
    receiver: Receiver,
    rx_monitor: ObjectMonitor,
    tx_monitor: ObjectMonitor,
    rx_cq: CqParts,
    events: ChannelEvents,
    queue: OwnQueue,
    rings: Arc<SharedRings>,
    /// The client sleeps at its other end, and wakes as well when this one is closed.
    wake: OwnedFd,
    device: OwnDevice,
    /// Rules that it has, installed or not.
    rule_count: usize,
}

impl Lender {
    /// Opens the port of `config`, without a queue.
    pub(crate) fn open(config: &Mlx5Config) -> Result<Self, DeviceError> {
        // What the two sides would have to tell each other beyond plain rings and a clock is left
        // out.
        let config = Mlx5Config {
            queues: 1,
            rx_distribution: RxDistribution::Rules,
            timestamps: Feature::IfSupported,
            raw_timestamps: false,
            compression: Feature::Off,
            striding: Feature::Off,
            vlan_stripping: Feature::Off,
            broker: None,
            ..config.clone()
        };
        Ok(Self {
            port: OwnDevice::open(&config)?,
            queues: HashMap::new(),
            rules: HashMap::new(),
            next_rule: 0,
            destructions: Destructions::new(),
            ring_errors: 0,
        })
    }

    pub(crate) fn describe(&self) -> String {
        self.port.describe()
    }

    /// The network interface of the port, by its name and its index.
    pub(crate) fn interface(&self) -> Option<(&str, u32)> {
        self.port.port.info().interface.as_ref().map(|interface| (interface.name.as_str(), interface.index))
    }

    /// Queues of the device that could be lent at the same time.
    pub(crate) fn queues(&self) -> u16 {
        let device = &self.port.port.info().capabilities.device;
        (device.qp_count_max / 2).min(device.cq_count_max / 2).try_into().unwrap_or(u16::MAX)
    }

    pub(crate) fn features(&self) -> NicFeatures {
        let port = &*self.port.port;
        let (info, tx) = (port.info(), own_queue::capabilities(port));
        NicFeatures {
            frame_len_max: tx.frame_len_max,
            checksums: tx.checksums.into(),
            segmentation_len_max: tx.segmentation_len_max,
            multi_packet: tx.multi_packet.into(),
            vlan_insert: tx.vlan_insert.into(),
            inline_len_min: info.enabled.inline_len_min.into(),
            wqe_units_max: port.wqe_units_max,
            rules_max: info.config.rules_max.try_into().unwrap_or(u32::MAX),
            timestamps: match port.enabled().stamps {
                Some(TimestampFormat::Wall) => WALL,
                Some(TimestampFormat::RealTime) => REAL_TIME,
                Some(TimestampFormat::Ticks) | None => 0,
            },
        }
    }

    /// Why no frame will come any more, if that is so.
    pub(crate) fn why_ended(&self) -> Option<String> {
        let is_gone = self.port.port.watch.state() == RxState::Ended;
        is_gone.then(|| format!("{} is gone: see the kernel's log, and start the broker again", self.port.name()))
    }

    /// Makes queue `idx` for a client.
    pub(crate) fn lend(&mut self, idx: u16, request: &QueueRequest) -> Result<LentNic, DeviceError> {
        if self.destructions.is_full() {
            let sentence = format!(
                "the NIC has not destroyed {} queues of earlier clients, whose processes keep it from that: end these \
                 processes, or start the broker again",
                self.destructions.count()
            );
            return Err(DeviceError::new(DeviceErrorKind::ResourceLimit, sentence));
        }
        let (client, lent) = NicClient::make(&self.port, request)?;
        self.queues.insert(idx, client);
        Ok(lent)
    }

    /// The frames of the client's rules come to its queue from now on. Once for a client, because
    /// a rule takes the NIC up to a millisecond.
    pub(crate) fn connect(&mut self, idx: u16) -> io::Result<()> {
        let client = self.queues.get_mut(&idx).ok_or(io::ErrorKind::NotFound)?;
        if client.halves.connect()? {
            client.queue.steer_to(client.receiver.clone()).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// No frame comes to the client from now on: the NIC drops those of its rules, until each rule
    /// is removed.
    pub(crate) fn disconnect(&mut self, idx: u16) {
        if let Some(client) = self.queues.get_mut(&idx) {
            client.halves.stop();
        }
    }

    /// The client has ended, or is served no longer: no frame of its rings comes or goes. The
    /// caller removes its rules, some in a turn, and with the last of them goes the rest.
    pub(crate) fn end(&mut self, idx: u16) {
        let Some(client) = self.queues.get_mut(&idx) else { return };
        client.halves.end();
        self.destroy_if_over(idx);
    }

    fn destroy_if_over(&mut self, idx: u16) {
        let is_over = self.queues.get(&idx).is_some_and(|client| client.halves.has_ended() && client.rule_count == 0);
        if is_over && let Some(client) = self.queues.remove(&idx) {
            self.destructions.add(|| client.destroy());
        }
    }

    /// How many queues of clients that have ended are not destroyed yet.
    pub(crate) fn ending(&self) -> usize {
        self.destructions.count()
    }

    /// Errors of the rings of all clients so far.
    pub(crate) fn ring_errors(&self) -> u64 {
        self.ring_errors
    }

    pub(crate) fn steer(&mut self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError> {
        let client = self.queues.get_mut(&idx).ok_or(SteerError::NoQueue { idx })?;
        match client.halves.frames() {
            Frames::NoMore => return Err(SteerError::NoQueue { idx }),
            Frames::NotYet if client.rule_count >= WAITING_RULES_MAX => {
                return Err(SteerError::TableFull { rules_max: WAITING_RULES_MAX });
            }
            _ => (),
        }
        let of_queue = client.device.steer(rule, 0)?;
        client.rule_count += 1;
        self.next_rule = self.next_rule.wrapping_add(1);
        let id = RuleId(self.next_rule);
        self.rules.insert(id, (idx, of_queue));
        Ok(id)
    }

    pub(crate) fn unsteer(&mut self, id: RuleId) -> Result<(), SteerError> {
        let (idx, of_queue) = self.rules.remove(&id).ok_or(SteerError::NoRule { id })?;
        let Some(client) = self.queues.get_mut(&idx) else { return Ok(()) };
        client.rule_count -= 1;
        let removed = client.device.unsteer(of_queue);
        self.destroy_if_over(idx);
        removed
    }

    /// Arms the completion queue of the receive half.
    pub(crate) fn arm(&self, idx: u16, word: u32) -> io::Result<()> {
        let client = self.queues.get(&idx).ok_or(io::ErrorKind::NotFound)?;
        let mut register = ArmRegister::of(&client.rx_cq).ok_or(io::ErrorKind::Unsupported)?;
        register.write([word, client.rx_cq.number]);
        Ok(())
    }

    /// Has the NIC release a ring.
    pub(crate) fn reset(&mut self, idx: u16, half: message::Half) -> io::Result<()> {
        let client = self.queues.get_mut(&idx).ok_or(io::ErrorKind::NotFound)?;
        client.halves.reset(half)
    }

    /// Gives it back to the NIC.
    pub(crate) fn ready(&mut self, idx: u16, half: message::Half) -> io::Result<()> {
        let client = self.queues.get_mut(&idx).ok_or(io::ErrorKind::NotFound)?;
        client.halves.ready(half)
    }

    /// Descriptors that are readable once a client is to be woken.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = i32> {
        self.queues.values().map(|client| client.events.fd())
    }

    /// Wakes clients whose completions have come, and tells each how its port and rings are.
    pub(crate) fn look_after(&mut self) {
        for client in self.queues.values_mut() {
            if client.events.take() {
                // A client that has not read the last one is awake.
                let _ = sys::send(&client.wake, &WAKE, &[]);
            }
            self.ring_errors += client.tell();
        }
        self.destructions.start();
    }
}

impl LentNic {
    pub(crate) fn memory(&self) -> &File {
        &self.memory
    }

    /// The descriptors for the client: memory, the device's file, and the socket that wakes.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.memory.as_fd(), self.device_file.as_fd(), self.wake.as_fd()]
    }
}

impl NicClient {
    fn make(port: &OwnDevice, request: &QueueRequest) -> Result<(Self, LentNic), DeviceError> {
        let info = port.port.info();
        let no_memory = |error| Mlx5SetupError::System { device: info.name.clone(), doing: "lending memory", error };
        let rings_len = rings_len(info.frame_len_max, request, page_len());
        let memory = sys::memory(request.umem_len as usize + rings_len).map_err(no_memory)?;
        let region = Region::shared(&memory, request.umem_len as usize)
            .map_err(|error| no_memory(io::Error::other(error.to_string())))?;
        let rings = Arc::new(SharedRings::map(&memory, request.umem_len, rings_len).map_err(no_memory)?);
        let config = Mlx5Config {
            rx_ring_len: request.rx_ring_len,
            tx_ring_len: request.tx_ring_len,
            frame_len_max: Some(info.frame_len_max),
            ..info.config.clone()
        };
        let in_rings = Arc::clone(&rings) as Arc<dyn RingMemory>;
        // The firmware would remember the capabilities of whoever opens the file, which the client
        // gets: it may issue commands by it (DevX) with those rights.
        let mut device = OwnDevice::open_with(&config, |device| {
            let error = |errno: i32| io::Error::from_raw_os_error(errno);
            let context = without_capabilities(|| device.open())?.map_err(|failed| error(failed.errno()))?;
            context.share_file();
            context.place_rings_in(in_rings).map_err(|failed| error(failed.errno()))?;
            Ok(context)
        })?;
        let queue = device.take_queue(0)?;
        let (port, has_ended) = (Arc::clone(&device.port), Arc::default());
        let data_room = request.chunk_len as usize;
        let capacity = request.umem_len as usize / data_room.max(1);
        let shape = queue.shape(data_room, capacity)?;
        let registered = port.register_as(&Arc::new(region), request.address)?;
        let tx = queue.create_tx(&registered, &has_ended)?;
        let rx = queue.create_rx(shape, &registered, None, &has_ended)?;
        let described = describe(&rings, rings_len, &tx, &rx);
        let described = described.ok_or_else(|| port.invalid_object("placing rings in memory that is lent"))?;
        let device_file =
            port.context().device_file().ok_or_else(|| port.invalid_object("sharing the device's file"))?;
        let device_file = device_file.try_clone_to_owned().map_err(no_memory)?;
        let (wake, theirs) = UnixStream::pair().map_err(no_memory)?;
        wake.set_nonblocking(true).and_then(|()| theirs.set_nonblocking(true)).map_err(no_memory)?;
        let client = Self {
            receiver: rx.objects.objects.clone(),
            rx_monitor: rx.objects.monitor.clone(),
            tx_monitor: tx.objects.monitor.clone(),
            halves: Halves::new(rx.objects, tx.objects),
            rx_cq: rx.cq,
            events: rx.events,
            queue,
            rings,
            wake: wake.into(),
            device,
            rule_count: 0,
        };
        client.tell();
        Ok((client, LentNic { memory, device_file, wake: theirs.into(), queue: described }))
    }

    /// Writes the status that the client reads. Returns how many errors of its rings are new.
    fn tell(&self) -> u64 {
        let watch = &self.device.port.watch;
        let state = match watch.state() {
            RxState::Open => 0,
            RxState::LinkDown => 1,
            RxState::Ended => 2,
        };
        self.rings.status(Status::Port).store(state, Ordering::Release);
        if self.device.port.enabled().stamps == Some(TimestampFormat::Wall)
            && let Some(relation) = self.device.port.relation()
        {
            clock::show(&self.rings, &relation);
        }
        add(self.rings.status(Status::OutOfBuffer), watch.take_out_of_buffer());
        let mut errors = 0;
        for (fault, ring, completions) in [
            (self.rx_monitor.take_fault(), Status::RxFaults, Status::RxLosses),
            (self.tx_monitor.take_fault(), Status::TxFaults, Status::TxLosses),
        ] {
            errors += u64::from(fault.is_some());
            match fault {
                Some(RingError::Ring) => add(self.rings.status(ring), 1),
                Some(RingError::Completions) => add(self.rings.status(completions), 1),
                None => (),
            }
        }
        errors
    }

    /// Ends the queue. A hostile client may have this wait for ever: it may have put a queue of its
    /// own in the place of ours, whose notifications nobody acknowledges. Until then the packet
    /// buffers count for its user.
    ///
    /// libibverbs destroys a completion queue once its events were taken.
    fn destroy(mut self) {
        self.halves.close();
        while self.events.take() {}
    }
}

impl Drop for Lender {
    /// Of a broker that ends, no client keeps it from that.
    fn drop(&mut self) {
        let Self { queues, destructions, .. } = self;
        queues.drain().for_each(|(_, client)| destructions.add(|| client.destroy()));
    }
}

/// Bytes behind the packet buffers of a request, in whole pages.
fn rings_len(frame_len_max: usize, request: &QueueRequest, page_len: usize) -> usize {
    let segments = frame_len_max.div_ceil((request.chunk_len as usize).max(1)).next_power_of_two();
    let (rx, tx) = (request.rx_ring_len as usize, request.tx_ring_len as usize);
    // Of each: descriptors and completions, of which libmlx5 may make twice as many.
    let len = rx * (16 * segments + 2 * 64) + tx * (64 + 2 * 64);
    len.next_multiple_of(page_len) + PAGES_BESIDE * page_len
}

/// The queue for the client; `None` if libmlx5 has placed a ring elsewhere.
fn describe(rings: &SharedRings, rings_len: usize, tx: &CreatedTx, rx: &CreatedRx) -> Option<NicQueue> {
    let uar = u64::try_from(tx.uar_offset?).ok()?;
    let page = page_len() as u64;
    Some(NicQueue {
        rings_len: rings_len.try_into().ok()?,
        lkey: rx.rq.lkey,
        uar_page: (uar / page).try_into().ok()?,
        uar_place: (tx.sq.uar.addr().get() % page_len()) as u32,
        blueflame_len: tx.sq.blueflame_len,
        sq: rings.place_of(tx.sq.ring)?,
        sq_block_count: tx.sq.wqebb_count,
        sq_doorbell: rings.place_of(tx.sq.doorbell.cast())?,
        sq_number: tx.sq.number,
        tx_cq: rings.place_of(tx.cq.ring)?,
        tx_cq_entry_count: tx.cq.entry_count,
        tx_cq_doorbell: rings.place_of(tx.cq.doorbell.cast())?,
        tx_cq_number: tx.cq.number,
        rq: rings.place_of(rx.rq.ring)?,
        rq_wqe_count: rx.rq.wqe_count,
        rq_stride: rx.rq.stride,
        rq_number: rx.objects.objects.number(),
        rq_doorbell: rings.place_of(rx.rq.doorbell.cast())?,
        rx_cq: rings.place_of(rx.cq.ring)?,
        rx_cq_entry_count: rx.cq.entry_count,
        rx_cq_doorbell: rings.place_of(rx.cq.doorbell.cast())?,
        rx_cq_number: rx.cq.number,
    })
}
