//! Creates the verbs objects of a queue, and locates their rings.
//!
//! ```text
//!  sending     completion queue ◀── queue pair with a sending ring
//!  receiving   completion queue ◀── queue pair with a receiving ring ◀── rules
//!          or  completion queue ◀── work queue ◀── table ◀── queue pair that hashes ◀── rules
//! ```
//!
//! Send and receive have a queue pair each, so that an error of one does not affect the other, and
//! each half can be dropped independently. A work queue supports strides and a share of an RSS
//! hash, which a queue pair's own ring does not. If a step fails, dropping the handles destroys the
//! objects made before: nothing remains in the device.
//!
//! Invariants:
//! 1. Addresses, counts and lengths come from `mlx5dv_init_obj`, about objects that the
//!    [`MemoryOwner`] keeps; counts and lengths are validated here.
//! 2. Each ring is given out once: the function that makes an object takes its parts and passes the
//!    object to one half.
//! 3. libmlx5 touches rings only in calls that post, poll or arm, which we never make, and when an
//!    object's half resets or destroys it: then libmlx5 clears doorbell records. It does not touch
//!    a CQ once it has exported the CQ's ring.

use core::ptr::NonNull;
use std::io;
use std::sync::Arc;

use rdma_core_sys::verbs::{
    CompletionChannel, CompletionQueue, CqOptions, CqRequest, Element, ProtectionDomain, QpCaps, QpOptions, QpRequest,
    QpState, QueuePair, RateLimit, ThreadDomain, VerbsError, WorkQueue, WqOptions, WqRequest, WqState,
};

use super::parts::{CqParts, MemoryOwner, RqParts, SqParts};
use super::port::Port;
use super::rq_shape::RqShape;
use crate::device::mlx5::completion::cqe::CQE_LEN;
use crate::device::mlx5::config::Pace;
use crate::device::mlx5::error::Mlx5SetupError;
use crate::device::mlx5::health::recover::Objects;
use crate::device::mlx5::send::wqe::{BLOCK_UNITS, WQE_UNITS_MAX};

/// Bytes of a basic block of the send ring.
const BLOCK_LEN: u32 = 64;
/// Units before the data segments of a raw-packet request as libmlx5 counts them: control segment,
/// and Ethernet segment with 18 bytes (`sq_overhead`).
const RAW_HEADER_DS: u32 = 3;

/// Offset in the UAR page of the register that arms a completion queue.
const ARM_REGISTER: usize = 0x20;

/// A completion queue of at least `entry_count` entries, with these `options`, that signals
/// completions through `channel` on request.
pub(crate) fn completion_queue(
    port: &Port,
    entry_count: u32,
    options: CqOptions,
    channel: Option<(&CompletionChannel, u32)>,
) -> Result<(CompletionQueue, CqParts), Mlx5SetupError> {
    const DOING: &str = "making a completion queue";
    // Otherwise libmlx5 uses the CPU's cache line: on some CPUs that means entries of 128 bytes,
    // half of them empty, for the NIC to write.
    let options = CqOptions { entry_len: Some(CQE_LEN as u16), ..options };
    // libmlx5 adds one entry and rounds up (mlx5.md 1.1).
    let (channel, vector) = channel.unzip();
    let request = CqRequest { options, channel, vector: vector.unwrap_or_default(), ..CqRequest::new(entry_count - 1) };
    let cq = CompletionQueue::create(port.context(), &request)
        .map_err(|error| port.error(DOING, entry_count as usize * 64, error))?;
    let rings = cq.rings().map_err(|error| port.error(DOING, 0, error))?;
    let possible = is_ring(rings.start, rings.entry_count, rings.entry_len) && rings.entry_len == CQE_LEN as u32;
    if !possible || rings.entry_count < entry_count {
        return Err(port.invalid_object(DOING));
    }
    // SAFETY: 1, 2, 3.
    let memory_owner = unsafe { MemoryOwner::new(Arc::new(cq.clone())) };
    let parts = CqParts {
        ring: rings.start,
        entry_count: rings.entry_count,
        entry_len: rings.entry_len,
        doorbell: rings.doorbell,
        // SAFETY: the register is inside the page (mlx5.md 1.2).
        arm_register: rings.uar.map(|page| unsafe { page.add(ARM_REGISTER) }.cast()),
        number: rings.number,
        memory_owner,
    };
    Ok((cq, parts))
}

/// A send queue pair, ready, with a ring of `block_count` basic blocks, and where the page of its
/// register is in the file of the device.
pub(crate) fn sender(
    port: &Port,
    queue: u16,
    cq: &CompletionQueue,
    block_count: u32,
) -> Result<(Sender, SqParts, Option<i64>), Mlx5SetupError> {
    const DOING: &str = "making a queue pair to send";
    // One data segment and no inline bytes of libmlx5's: a request is then a block (mlx5.md 2.1).
    let caps = QpCaps { send_wr_max: block_count, send_sge_max: 1, ..QpCaps::default() };
    let own = own_register(port);
    let request = QpRequest { caps, ..QpRequest::new(own.as_ref().unwrap_or(port.pd()), cq, cq) };
    let qp =
        QueuePair::create(&request).map_err(|error| port.error(DOING, (block_count * BLOCK_LEN) as usize, error))?;
    let sender = Sender { qp: qp.clone(), port: port.number(), pace: port.enabled().pace };
    bring_up(port, queue, &qp)?;
    sender.keep_pace().map_err(|error| port.error("pacing a queue", 0, error))?;
    let rings = qp.rings().map_err(|error| port.error(DOING, 0, error))?;
    let (Some(ring), Some(uar)) = (rings.send, rings.uar) else { return Err(port.invalid_object(DOING)) };
    if !is_ring(ring.start, ring.count, ring.stride) || ring.stride != BLOCK_LEN || ring.count < block_count {
        return Err(port.invalid_object(DOING));
    }
    let is_possible = rings.blueflame_len.is_power_of_two() && rings.blueflame_len >= BLOCK_LEN;
    let blueflame = port.config().blueflame && own.is_some() && is_possible;
    // SAFETY: 1, 2, 3.
    let memory_owner = unsafe { MemoryOwner::new(Arc::new((qp.clone(), cq.clone()))) };
    let [_, doorbell] = words(rings.doorbell);
    let parts = SqParts {
        ring: ring.start,
        wqebb_count: ring.count,
        doorbell,
        uar,
        blueflame_len: if blueflame { rings.blueflame_len } else { 0 },
        number: qp.number(),
        inline_len_min: port.enabled().inline_len_min,
        wqe_units_max: port.wqe_units_max,
        memory_owner,
    };
    Ok((sender, parts, rings.uar_offset))
}

/// Units of the longest WQE that the device accepts, up to the longest we write. The kernel reports
/// the firmware's `max_wqe_sz_sq` to libmlx5, which does not export it, but refuses a queue pair
/// whose requests would be longer (`mlx5_calc_send_wqe` of providers/mlx5/verbs.c). So this
/// function requests the longest WQE, and after a refusal shorter ones. The segment count of
/// `ibv_query_device` does not help: the kernel derives it from 512 bytes at most
/// (`mlx5_ib_query_device`).
pub(crate) fn wqe_units_max(port: &Port, cq: &CompletionQueue) -> Result<u32, Mlx5SetupError> {
    let mut blocks = WQE_UNITS_MAX.div_ceil(BLOCK_UNITS);
    loop {
        let send_sge_max = blocks * BLOCK_UNITS - RAW_HEADER_DS;
        let caps = QpCaps { send_wr_max: 1, send_sge_max, ..QpCaps::default() };
        match QueuePair::create(&QpRequest { caps, ..QpRequest::new(port.pd(), cq, cq) }) {
            Ok(_) => return Ok((blocks * BLOCK_UNITS).min(WQE_UNITS_MAX)),
            Err(error) if error.errno() == libc::EINVAL && blocks > 1 => blocks -= 1,
            Err(error) => return Err(port.error("asking how long a send descriptor may be", 0, error)),
        }
    }
}

/// The port's domain with a dedicated doorbell register. libmlx5 has some registers for the queue
/// pairs of a context. From about the 17th queue pair on, two share a register, and only libmlx5
/// has its lock. On a shared register the bytes of two WQEs would mix, and both queues would use
/// the alternating halves at the same time. `None` if the device has no register left or libmlx5 is
/// too old.
fn own_register(port: &Port) -> Option<ProtectionDomain> {
    let thread = ThreadDomain::allocate(port.context()).ok()?;
    ProtectionDomain::for_thread(port.pd(), &thread).ok()
}

/// A queue pair that is ready and receives into its own ring.
pub(crate) fn receiver(
    port: &Port,
    queue: u16,
    cq: &CompletionQueue,
    shape: RqShape,
    lkey: u32,
) -> Result<(Receiver, RqParts), Mlx5SetupError> {
    const DOING: &str = "making a queue pair to receive";
    let caps = QpCaps { receive_wr_max: shape.wqe_count, receive_sge_max: shape.segments, ..QpCaps::default() };
    let options = QpOptions { cvlan_stripping: port.enabled().vlan_stripping, ..QpOptions::default() };
    let request = QpRequest { caps, options, ..QpRequest::new(port.pd(), cq, cq) };
    let qp = QueuePair::create(&request).map_err(|error| port.error(DOING, shape.len(), error))?;
    bring_up(port, queue, &qp)?;
    let rings = qp.rings().map_err(|error| port.error(DOING, 0, error))?;
    let ring = rings.receive.ok_or_else(|| port.invalid_object(DOING))?;
    // SAFETY: 1, 2, 3.
    let memory_owner = unsafe { MemoryOwner::new(Arc::new((qp.clone(), cq.clone()))) };
    let [doorbell, _] = words(rings.doorbell);
    let parts = RqParts {
        ring: ring.start,
        wqe_count: ring.count,
        stride: ring.stride,
        lkey,
        doorbell,
        striding: None,
        memory_owner,
    };
    check_ring(shape, port, DOING, &parts)?;
    Ok((Receiver::Pair { qp, port: port.number() }, parts))
}

/// A work queue, ready. It receives frames once a queue pair hashes to it.
pub(crate) fn work_queue(
    port: &Port,
    cq: &CompletionQueue,
    shape: RqShape,
    lkey: u32,
) -> Result<(Receiver, RqParts), Mlx5SetupError> {
    const DOING: &str = "making a work queue";
    let options =
        WqOptions { cvlan_stripping: port.enabled().vlan_stripping, striding: shape.striding, ..WqOptions::default() };
    let request = WqRequest { pd: port.pd(), cq, wr_max: shape.wqe_count, sge_max: shape.segments, options };
    let wq = WorkQueue::create(&request).map_err(|error| port.error(DOING, shape.len(), error))?;
    wq.to_state(WqState::Ready).map_err(|error| port.error("readying a work queue", 0, error))?;
    let ring = wq.rings().map_err(|error| port.error(DOING, 0, error))?;
    // SAFETY: 1, 2, 3.
    let memory_owner = unsafe { MemoryOwner::new(Arc::new((wq.clone(), cq.clone()))) };
    let parts = RqParts {
        ring: ring.start,
        wqe_count: ring.wqe_count,
        stride: ring.stride,
        lkey,
        doorbell: ring.doorbell,
        striding: shape.striding.map(|shape| (shape.stride_len_log.into(), shape.stride_count_log.into())),
        memory_owner,
    };
    check_ring(shape, port, DOING, &parts)?;
    Ok((Receiver::Work(wq), parts))
}

/// Checks that libmlx5 created the requested ring. It may not have more WQEs either, because CQ,
/// pool and memory are sized by their number. A WQE of a striding queue has a segment of 16 bytes
/// before the pointer (mlx5.md 2.8).
fn check_ring(shape: RqShape, port: &Port, doing: &'static str, parts: &RqParts) -> Result<(), Mlx5SetupError> {
    let stride_min = if shape.striding.is_some() { 32 } else { 16 * shape.segments };
    let possible = is_ring(parts.ring, parts.wqe_count, parts.stride);
    if possible && parts.wqe_count == shape.wqe_count && parts.wqe_count <= 1 << 15 && parts.stride >= stride_min {
        return Ok(());
    }
    Err(port.invalid_object(doing))
}

/// Whether such a ring is possible.
fn is_ring(start: NonNull<u8>, count: u32, stride: u32) -> bool {
    count.is_power_of_two() && stride.is_power_of_two() && start.addr().get().is_multiple_of(16)
}

/// The two words of a doorbell record.
fn words(record: NonNull<[u32; 2]>) -> [NonNull<u32>; 2] {
    let first = record.cast::<u32>();
    // SAFETY: the second word of a record of two (1).
    [first, unsafe { first.add(1) }]
}

/// Moves a queue pair from `RESET` to the state in which it sends or receives.
fn bring_up(port: &Port, queue: u16, qp: &QueuePair) -> Result<(), Mlx5SetupError> {
    for (idx, (state, to)) in UP.into_iter().enumerate() {
        let from = if idx == 0 { "RESET" } else { UP[idx - 1].1 };
        qp.to_state(state, port.number()).map_err(|error| match error.errno() {
            libc::EPERM | libc::EACCES | libc::ENOMEM | libc::EIO | libc::ENODEV => {
                port.error("readying a queue pair", 0, error)
            }
            errno => {
                let error = io::Error::from_raw_os_error(errno);
                Mlx5SetupError::QueuePair { device: port.name().into(), queue, from, to, error }
            }
        })?;
    }
    Ok(())
}

const UP: [(QpState, &str); 3] = [(QpState::Init, "INIT"), (QpState::Rtr, "RTR"), (QpState::Rts, "RTS")];

fn up_again(qp: &QueuePair, port: u8) -> Result<(), VerbsError> {
    UP.into_iter().try_for_each(|(state, _)| qp.to_state(state, port))
}

fn system(error: VerbsError) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

/// The objects of the send half.
pub(crate) struct Sender {
    qp: QueuePair,
    port: u8,
    pace: Option<Pace>,
}

impl Sender {
    /// Its identity in events.
    pub(crate) fn element(&self) -> Element {
        Element::QueuePair(self.qp.number())
    }

    fn keep_pace(&self) -> Result<(), VerbsError> {
        let Some(pace) = self.pace else { return Ok(()) };
        self.qp.set_rate_limit(RateLimit {
            kbps: pace.kbps,
            burst_len_max: pace.burst_len_max,
            packet_len_typical: pace.frame_len_typical,
        })
    }
}

impl Objects for Sender {
    fn reset(&mut self) -> io::Result<()> {
        self.qp.reset().map_err(system)
    }

    fn ready(&mut self) -> io::Result<()> {
        up_again(&self.qp, self.port).and_then(|()| self.keep_pace()).map_err(system)
    }
}

/// The objects of the receive half. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Receiver {
    Pair { qp: QueuePair, port: u8 },
    Work(WorkQueue),
}

impl Receiver {
    /// Its number in the NIC.
    pub(crate) fn number(&self) -> u32 {
        match self {
            Self::Pair { qp, .. } => qp.number(),
            Self::Work(wq) => wq.number(),
        }
    }

    /// Its identity in events.
    pub(crate) fn element(&self) -> Element {
        match self {
            Self::Pair { qp, .. } => Element::QueuePair(qp.number()),
            Self::Work(wq) => Element::WorkQueue(wq.number()),
        }
    }
}

impl Objects for Receiver {
    fn reset(&mut self) -> io::Result<()> {
        match self {
            Self::Pair { qp, .. } => qp.reset(),
            Self::Work(wq) => wq.reset(WqState::Err),
        }
        .map_err(system)
    }

    fn ready(&mut self) -> io::Result<()> {
        match self {
            Self::Pair { qp, port } => up_again(qp, *port),
            Self::Work(wq) => wq.to_state(WqState::Ready),
        }
        .map_err(system)
    }

    /// Most queues are healthy when they are closed.
    fn close(&mut self) -> io::Result<()> {
        match self {
            Self::Pair { qp, .. } => qp.reset(),
            Self::Work(wq) => wq.reset(WqState::Ready),
        }
        .map_err(system)
    }
}
