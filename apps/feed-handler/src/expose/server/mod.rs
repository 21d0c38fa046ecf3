//! The thread that answers for the slots: a port with a RoCE device, and the connections of
//! readers.
//!
//! A reader may do nothing but READ, from the slots and nothing else. One that tries is refused by
//! the device with a NAK, and its connection is ended here; so is that of one which sends messages.
//! One that says nothing for a minute may be gone without a word, and makes room for a new one
//! where there is no other.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use market::BookSnapshot;
use rdma::cm::{CmConfig, CmEvent, CmId, ConnectRequest, ListenOptions, LocalQp, Manager, PortSpace, RejectReason};
use rdma::port::{RocePort, RocePortOptions, first_psn};
use rdma::roce::{Access, CqHandle, Device, DeviceConfig, Event, PdHandle, QpAttributes, QpHandle, QpOptions, Region};
use rdma::snapshot::{Offer, Table, slot_len};
use rdma::wire::opcode::Transport;
use rdma::wire::qpn::Qpn;
use wirepath::counters::{Counter, Gauge, Scope, Unit};
use wirepath::worker::live::sleep_on;

use super::ExposePlan;
use crate::error::Error;

/// READs of a reader at once.
const READS: u8 = 16;
/// A reader that was silent for so long may make room for another one.
const SILENCE_NS: u64 = 60_000_000_000;
/// Between two looks at who was silent.
const LOOK_NS: u64 = 1_000_000_000;
/// Turns without a frame after which the thread sleeps until one comes: a reader that reads on is
/// answered by a thread that is awake.
const IDLE_TURNS: u32 = 2_000;
/// The end is looked for so often while the thread sleeps.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// The same over a device that can only be polled.
const NAP: Duration = Duration::from_micros(50);

/// The thread. Dropping it ends it, and every connection with it.
pub(super) struct Server {
    /// Ours, where readers connect.
    pub(super) address: Option<Ipv4Addr>,
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the port on a new thread, and listens: the slots are `regions`.
    pub(super) fn start(plan: &ExposePlan, regions: Vec<Region>) -> Result<Self, Error> {
        let (opened, is_open) = mpsc::channel();
        let is_ending = Arc::new(AtomicBool::new(false));
        let (plan, ending) = (plan.clone(), Arc::clone(&is_ending));
        let thread = thread::Builder::new().name("expose".into());
        let thread = thread.spawn(move || serve(&plan, regions, &opened, &ending)).map_err(Error::failed)?;
        let mut server = Self { address: None, is_ending, thread: Some(thread) };
        server.address = is_open.recv().map_err(|_| Error::Failed("the thread of --expose ended".into()))??;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it panicked with was printed by the thread.
            let _ = thread.join();
        }
    }
}

/// Polls the port until the end is asked for.
fn serve(
    plan: &ExposePlan,
    regions: Vec<Region>,
    opened: &Sender<Result<Option<Ipv4Addr>, Error>>,
    is_ending: &AtomicBool,
) {
    let (mut port, mut readers) = match open(plan, regions) {
        Ok(open) => open,
        Err(error) => return drop(opened.send(Err(error))),
    };
    let address = port.port_mut().with_app(|_, cx| cx.host.addresses().first().map(|address| address.address()));
    let _ = opened.send(Ok(address));
    let mut idle = 0;
    while !is_ending.load(Ordering::Relaxed) {
        idle = if port.turn() > 0 { 0 } else { idle + 1 };
        port.with_manager(|now_ns, manager, device| readers.turn(now_ns, manager, device)).expect(MANAGED);
        match idle {
            0 => (),
            IDLE_TURNS.. => sleep(&mut port),
            _ => thread::yield_now(),
        }
    }
}

/// Sleeps until a frame comes, or a timer of the device is due.
fn sleep(port: &mut RocePort) {
    let port = port.port_mut();
    let fd = port.wait_fd();
    let next = port.time_to_next().map_or(SLEEP_MAX, |next| Duration::from_nanos(next.as_nanos()));
    match fd {
        Some(_) => sleep_on([fd], Some(next.min(SLEEP_MAX))),
        None => thread::sleep(next.min(NAP)),
    }
}

const MANAGED: &str = "the port was opened with a manager";

/// The port and who reads over it.
fn open(plan: &ExposePlan, regions: Vec<Region>) -> Result<(RocePort, Readers), Error> {
    let via = &plan.via;
    let failed = |error: &dyn std::fmt::Display| Error::Failed(format!("--expose {via}: {error}"));
    // By the time too, so that no message to an earlier process names a connection of ours.
    let manager = CmConfig { connections: 2 * plan.readers, seed: first_psn().get().into(), ..CmConfig::default() };
    let options = RocePortOptions {
        device: DeviceConfig { qps: 2 * plan.readers, rd_atomics: READS, ..DeviceConfig::default() },
        manager: Some(manager),
        rows: plan.readers.min(8),
        ..RocePortOptions::new("feed-handler-expose")
    };
    let mut port = RocePort::open(via, &options).map_err(|error| failed(&error))?;
    let counters = ExposeCounters::new(&port.port_mut().scope("expose"));
    let listen = ListenOptions { space: PortSpace::Tcp, port: plan.port, backlog: plan.readers };
    let readers = port.with_manager(|_, manager, device| {
        manager.cm_mut().listen(&listen).map_err(|error| failed(&error))?;
        Readers::new(plan, device, regions, counters).map_err(|error| failed(&error))
    });
    let readers = readers.expect(MANAGED)?;
    Ok((port, readers))
}

/// What the thread counts beside its device.
struct ExposeCounters {
    readers: Gauge,
    connected: Counter,
    refused: Counter,
    silent: Counter,
    violations: Counter,
}

impl ExposeCounters {
    fn new(scope: &Scope) -> Self {
        Self {
            readers: scope.gauge("readers", Unit::Number),
            connected: scope.counter("connected", Unit::Number),
            refused: scope.counter("refused", Unit::Number),
            silent: scope.counter("silent", Unit::Number),
            violations: scope.counter("violations", Unit::Number),
        }
    }
}

/// The connections.
struct Readers {
    pd: PdHandle,
    cq: CqHandle,
    /// The private data of each REP.
    offer: Vec<u8>,
    readers: Vec<Reader>,
    readers_max: usize,
    look_due_ns: u64,
    counters: ExposeCounters,
}

struct Reader {
    id: CmId,
    qp: QpHandle,
    /// Its connection has ended, and its place is another reader's: it only keeps the number of its
    /// queue pair until nothing late can come.
    has_ended: bool,
    /// Packets that it had sent when it was last heard, and when that was.
    packets: u64,
    heard_ns: u64,
}

impl Readers {
    fn new(
        plan: &ExposePlan,
        device: &mut Device,
        regions: Vec<Region>,
        counters: ExposeCounters,
    ) -> Result<Self, rdma::roce::DeviceError> {
        let pd = device.create_pd()?;
        let cq = device.create_cq(1)?;
        let table = |region: Region| {
            let slots = (region.len() / slot_len(BookSnapshot::LEN)) as u32;
            device.register(pd, region, Access::REMOTE_READ).map(|mr| Table {
                address: mr.address,
                rkey: mr.key,
                slots,
            })
        };
        let tables = regions.into_iter().map(table).collect::<Result<_, _>>()?;
        let offer = Offer { schema: BookSnapshot::SCHEMA, value_len: BookSnapshot::LEN as u32, tables };
        let readers_max = plan.readers as usize;
        Ok(Self {
            pd,
            cq,
            offer: offer.encode(),
            readers: Vec::with_capacity(readers_max),
            readers_max,
            look_due_ns: 0,
            counters,
        })
    }

    /// Grants, ends and forgets connections, as they are asked for.
    fn turn(&mut self, now_ns: u64, manager: &mut Manager, device: &mut Device) {
        while let Some(event) = manager.next_event() {
            match event {
                CmEvent::ConnectRequest(request) => {
                    if let Err(reason) = self.grant(now_ns, manager, device, &request) {
                        // The peer may have given up meanwhile.
                        let _ = manager.cm_mut().reject(now_ns, request.id, reason, &[]);
                        let _ = manager.destroy(now_ns, device, request.id);
                        self.counters.refused.inc();
                    }
                }
                CmEvent::Established(_) => self.counters.connected.inc(),
                CmEvent::Disconnected(id) => {
                    let reader = self.readers.iter_mut().find(|reader| reader.id == id);
                    reader.into_iter().for_each(|reader| reader.has_ended = true);
                }
                other => self.forget(now_ns, manager, device, other.id()),
            }
        }
        while let Some(event) = device.next_event() {
            if let Event::QpAccessError(qp) | Event::QpRequestError(qp) | Event::QpFatal(qp) = event
                && let Some(reader) = self.readers.iter().find(|reader| reader.qp == qp)
            {
                self.counters.violations.inc();
                // The reader may have ended it meanwhile.
                let _ = manager.disconnect(now_ns, device, reader.id);
            }
        }
        if now_ns >= self.look_due_ns {
            self.look_due_ns = now_ns + LOOK_NS;
            self.listen_for_signs(now_ns, device);
            self.end_senders(now_ns, manager, device);
        }
        self.counters.readers.set(self.live().count() as u64);
    }

    /// Those that may read.
    fn live(&self) -> impl Iterator<Item = &Reader> {
        self.readers.iter().filter(|reader| !reader.has_ended)
    }

    fn grant(
        &mut self,
        now_ns: u64,
        manager: &mut Manager,
        device: &mut Device,
        request: &ConnectRequest,
    ) -> Result<(), RejectReason> {
        if request.transport != Transport::Rc {
            return Err(RejectReason::InvalidTransport);
        }
        if self.live().count() >= self.readers_max {
            self.make_room(now_ns, manager, device)?;
        }
        let qp = self.queue_pair(device).ok_or(RejectReason::NoQp)?;
        let qpn = device.qpn(qp).unwrap_or(Qpn::new(0));
        let local = LocalQp {
            qpn,
            psn: first_psn(),
            responder_resources: READS,
            initiator_depth: READS,
            rnr_retry: 7,
            srq: false,
        };
        self.readers.push(Reader { id: request.id, qp, has_ended: false, packets: 0, heard_ns: now_ns });
        manager.accept(request.id, qp, &local, &self.offer).map_err(|_| {
            let reader = self.readers.pop();
            let _ = reader.map(|reader| device.destroy_qp(reader.qp));
            RejectReason::ConsumerDefined
        })
    }

    /// A queue pair of a reader, in INIT.
    fn queue_pair(&self, device: &mut Device) -> Option<QpHandle> {
        let qp = device.create_qp(&QpOptions {
            transport: Transport::Rc,
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            send_depth: 1,
            recv_depth: 1,
            srq: None,
            signals_all: false,
        });
        let qp = qp.ok()?;
        device.modify_qp(qp, &QpAttributes::init(Access::REMOTE_READ)).ok()?;
        Some(qp)
    }

    /// Ends the connection that was silent for longest, if that is long enough.
    fn make_room(&mut self, now_ns: u64, manager: &mut Manager, device: &mut Device) -> Result<(), RejectReason> {
        self.listen_for_signs(now_ns, device);
        let oldest = self.live().min_by_key(|reader| reader.heard_ns);
        let silent = oldest.filter(|reader| now_ns.saturating_sub(reader.heard_ns) >= SILENCE_NS);
        let id = silent.ok_or(RejectReason::NoResources)?.id;
        self.counters.silent.inc();
        self.forget(now_ns, manager, device, id);
        Ok(())
    }

    fn listen_for_signs(&mut self, now_ns: u64, device: &Device) {
        for reader in &mut self.readers {
            let packets = device.qp_counters(reader.qp).map_or(0, |counters| counters.packets_rx);
            if packets != reader.packets {
                (reader.packets, reader.heard_ns) = (packets, now_ns);
            }
        }
    }

    /// A reader that sends a message finds no receive, and would ask again for ever.
    fn end_senders(&mut self, now_ns: u64, manager: &mut Manager, device: &mut Device) {
        let sends = |reader: &&Reader| device.qp_counters(reader.qp).is_some_and(|counters| counters.rnr_naks_tx > 0);
        let senders: Vec<_> = self.live().filter(sends).map(|reader| reader.id).collect();
        for id in senders {
            // One that has ended it meanwhile violates nothing any more.
            if manager.disconnect(now_ns, device, id).is_ok() {
                self.counters.violations.inc();
            }
        }
    }

    /// A connection is over, or was never one.
    fn forget(&mut self, now_ns: u64, manager: &mut Manager, device: &mut Device, id: CmId) {
        let _ = manager.destroy(now_ns, device, id);
        if let Some(idx) = self.readers.iter().position(|reader| reader.id == id) {
            let _ = device.destroy_qp(self.readers.swap_remove(idx).qp);
        }
    }
}

#[cfg(test)]
mod tests;
