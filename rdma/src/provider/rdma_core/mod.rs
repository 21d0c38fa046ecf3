//! A NIC through libibverbs: the objects of a context, by the handles of [`crate::roce`].
//!
//! Nobody has tried it on a NIC; the tests run on the software ConnectX. What it does not do is
//! refused, and never done by half: windows of type 1, and rights of peers to regions without
//! LOCAL_WRITE.

mod convert;
mod events;
#[allow(unsafe_code)]
mod memory_and_queues;
mod owned;

use core::fmt;
use core::net::Ipv6Addr;
use std::collections::HashMap;

use rdma_core_sys::verbs::{
    AddressHandle, Bind, CompletionChannel, CompletionQueue, Context, CqRequest, MemoryRegion, MemoryWindow,
    ProtectionDomain, QpCaps, QueuePair, SendKind, ServiceRequest, SharedReceiveQueue, VerbsError,
};
use rdma_core_sys::{LoadError, RdmaCore as Libraries};

use self::convert::Gids;
use super::{Provider, ProviderLimits};
use crate::roce::Limits;
use crate::roce::handle::{Table, kind, next_device};
use crate::roce::owned::{OwnedRequests, PoolRegions};
use crate::roce::{
    Access, AhHandle, Binding, CqHandle, Data, Destination, DeviceError, Event, INLINE_MAX, MESSAGE_MAX, ModifyError,
    Mr, MrHandle, Mtu, Mw, MwHandle, Notify, Path, PdHandle, PostError, QpAttributes, QpHandle, QpOptions, QpState,
    Region, SGES_MAX, SendOperation, SendRequest, Sge, SrqHandle, WorkCompletion, check_group, check_pieces,
};
use crate::wire::opcode::Transport;
use crate::wire::qpn::Qpn;

/// Objects of each kind, at most.
const OBJECTS: u32 = 4096;
const PD: &str = "protection domain";
const MR: &str = "memory region";
const MW: &str = "memory window";
const CQ: &str = "completion queue";
const QP: &str = "queue pair";
const ATTACHMENT: &str = "attachment";
const SRQ: &str = "shared receive queue";

/// A device of rdma-core: a NIC, or rxe. The first port of it.
pub struct RdmaCore {
    qps: Table<kind::Qp, Qp>,
    srqs: Table<kind::Srq, Srq>,
    ahs: Table<kind::Ah, Ah>,
    cqs: Table<kind::Cq, CompletionQueue>,
    mws: Table<kind::Mw, Window>,
    mrs: Table<kind::Mr, Registered>,
    /// Windows by their keys without the last eight bits, which each binding changes.
    windows: HashMap<u32, MwHandle>,
    /// Regions by their keys.
    regions: HashMap<u32, MrHandle>,
    pds: Table<kind::Pd, ProtectionDomain>,
    pools: PoolRegions,
    /// Queue pairs whose requests may own mbufs, by their numbers.
    owners: HashMap<Qpn, QpHandle>,
    gids: Gids,
    limits: Limits,
    /// What programs are told, but for the MTU, which the link may change.
    public_limits: ProviderLimits,
    /// Where armed completion queues notify.
    channel: CompletionChannel,
    context: Context,
}

/// A queue pair, and what it was made of.
struct Qp {
    queues: QueuePair,
    /// What its requests own.
    owned: Option<OwnedRequests>,
    options: QpOptions,
    /// No step was taken with it.
    is_new: bool,
    /// That of the last step. Where it has failed since, the NIC knows it.
    state: QpState,
    /// READs and atomic operations that may be under way.
    max_rd_atomic: u8,
    /// Bytes of a request.
    len_max: u32,
}

/// A region.
struct Registered {
    region: MemoryRegion,
    pd: PdHandle,
}

/// A memory window.
struct Window {
    window: MemoryWindow,
    pd: PdHandle,
}

/// A shared receive queue.
struct Srq {
    receives: SharedReceiveQueue,
    pd: PdHandle,
}

/// An address handle.
struct Ah {
    handle: AddressHandle,
    pd: PdHandle,
}

/// Why a device was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// rdma-core is not there.
    Libraries(LoadError),
    /// The kernel refused.
    Call(VerbsError),
    /// There is no device of this name.
    Unknown(String),
}

impl RdmaCore {
    /// Opens a device by its name in the kernel: `mlx5_0`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(name: &str) -> Result<Self, OpenError> {
        let devices = Libraries::load().map_err(OpenError::Libraries)?.devices();
        let devices = devices.map_err(OpenError::Call)?;
        let device = devices.by_name(name).ok_or_else(|| OpenError::Unknown(name.to_owned()))?;
        let context = device.open().map_err(OpenError::Call)?;
        let channel = CompletionChannel::create(&context).map_err(OpenError::Call)?;
        let (gids, number) = (Gids::read(&context), next_device());
        let attributes = context.attributes().map_err(OpenError::Call)?;
        let limits = Limits {
            // The kernel refuses what the link of the day has not.
            mtu: Mtu::B4096,
            dest_rd_atomics: attributes.dest_rd_atomic_max,
            rd_atomics: attributes.rd_atomic_max,
        };
        let public_limits = ProviderLimits {
            mtu: limits.mtu,
            wrs_per_queue: attributes.qp_wr_max,
            cqes: attributes.cqe_max,
            rd_atomics: limits.rd_atomics,
            dest_rd_atomics: limits.dest_rd_atomics,
        };
        Ok(Self {
            qps: Table::of_device(number, OBJECTS),
            srqs: Table::of_device(number, OBJECTS),
            ahs: Table::of_device(number, OBJECTS),
            cqs: Table::of_device(number, OBJECTS),
            mws: Table::of_device(number, OBJECTS),
            mrs: Table::of_device(number, OBJECTS),
            windows: HashMap::new(),
            regions: HashMap::new(),
            pds: Table::of_device(number, OBJECTS),
            pools: PoolRegions::default(),
            owners: HashMap::new(),
            gids,
            limits,
            public_limits,
            channel,
            context,
        })
    }

    /// The GIDs of the port, by their places: where packets come from. They are those of the start,
    /// of the last [`Event::GidChange`] that was taken, or of the last path from an address that
    /// was not among them.
    pub fn gids(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.gids.addresses()
    }

    /// The largest payload of a packet on the port's link.
    ///
    /// # Errors
    /// The NIC is gone, or its port has an MTU that is none of RoCE.
    pub fn mtu(&self) -> Result<Mtu, DeviceError> {
        let bytes = self.context.port(convert::PORT).map_err(|error| refused(&error))?.active_mtu;
        let found = Mtu::ALL.into_iter().find(|mtu| mtu.bytes() == u32::from(bytes));
        found.ok_or(DeviceError::Value("MTU of the port"))
    }

    fn pd(&self, pd: PdHandle) -> Result<&ProtectionDomain, DeviceError> {
        self.pds.get(pd).ok_or(DeviceError::Unknown(PD))
    }

    fn cq(&self, cq: CqHandle) -> Result<&CompletionQueue, DeviceError> {
        self.cqs.get(cq).ok_or(DeviceError::Unknown(CQ))
    }

    fn srq(&self, srq: SrqHandle) -> Result<&Srq, DeviceError> {
        self.srqs.get(srq).ok_or(DeviceError::Unknown(SRQ))
    }

    fn put_send(&self, handle: QpHandle, request: &SendRequest<'_>) -> Result<(), PostError> {
        let qp = self.qps.get(handle).ok_or(PostError::UnknownQp)?;
        // All in the order of RoCE in software. What a queue pair must not be asked for a NIC may
        // take, and fail with.
        if request.destination.is_some() != (qp.options.transport == Transport::Ud) {
            return Err(PostError::Destination);
        }
        if qp.options.transport == Transport::Uc && matches!(request.operation, SendOperation::SendInvalidate(_)) {
            return Err(PostError::Operation);
        }
        let send = match request.destination {
            Some(destination) => Some(self.datagram(qp.options.pd, &request.operation, &destination)?),
            None => convert::send(&request.operation),
        };
        if matches!(qp.state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostError::State);
        }
        if request.operation.needs_response() && qp.max_rd_atomic == 0 {
            return Err(PostError::Operation);
        }
        request.check_data(qp.len_max)?;
        match (send, request.operation) {
            (Some((kind, imm)), _) => memory_and_queues::post_send(&qp.queues, request, kind, imm),
            (None, SendOperation::BindWindow(binding)) => self.bind(handle, request, &binding),
            (None, _) => Err(PostError::Operation),
        }
    }

    fn put_recv(&self, qp: QpHandle, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let qp = self.qps.get(qp).ok_or(PostError::UnknownQp)?;
        match qp.state {
            _ if qp.options.srq.is_some() => return Err(PostError::Operation),
            QpState::Reset => return Err(PostError::State),
            _ => check_pieces(sges)?,
        }
        memory_and_queues::post_receive(&qp.queues, wr_id, sges)
    }

    /// A request that binds a window; one of nobody, or to a region of nobody, is refused.
    fn bind(&self, qp: QpHandle, request: &SendRequest<'_>, with: &Binding) -> Result<(), PostError> {
        let mw = *self.windows.get(&(with.key >> 8)).ok_or(PostError::Operation)?;
        let region = *self.regions.get(&with.region).ok_or(PostError::Operation)?;
        let (Some(qp), Some(window), Some(mr)) = (self.qps.get(qp), self.mws.get(mw), self.mrs.get(region)) else {
            return Err(PostError::Operation);
        };
        let bind = Bind {
            window: &window.window,
            key: with.key,
            region: &mr.region,
            address: with.address,
            len: with.len,
            access: convert::remote_access(with.access),
        };
        memory_and_queues::post_send(&qp.queues, request, SendKind::Bind(&bind), None)
    }

    /// A datagram of a queue pair of this domain.
    fn datagram(
        &self,
        pd: PdHandle,
        operation: &SendOperation,
        destination: &Destination,
    ) -> Result<(SendKind<'_>, Option<[u8; 4]>), PostError> {
        let (SendKind::Send, imm) = convert::send(operation).ok_or(PostError::Operation)? else {
            return Err(PostError::Operation);
        };
        let ah = self.ahs.get(destination.ah).filter(|ah| ah.pd == pd).ok_or(PostError::Destination)?;
        Ok((SendKind::Datagram(&ah.handle, destination.qpn.get(), destination.qkey), imm))
    }
}

const fn refused(error: &VerbsError) -> DeviceError {
    DeviceError::Call(error.call(), error.errno())
}

/// Of an object that the kernel keeps.
const fn not_ended(what: &'static str, error: &VerbsError) -> DeviceError {
    if error.errno() == libc::EBUSY { DeviceError::InUse(what) } else { refused(error) }
}

impl Provider for RdmaCore {
    fn create_pd(&mut self) -> Result<PdHandle, DeviceError> {
        let pd = ProtectionDomain::allocate(&self.context).map_err(|error| refused(&error))?;
        self.pds.insert_with(|_| pd).ok_or(DeviceError::Full("protection domains"))
    }

    fn destroy_pd(&mut self, pd: PdHandle) -> Result<(), DeviceError> {
        // The kernel would say so too, but only once the handle was given up.
        let is_used = self.qps.iter().any(|qp| qp.options.pd == pd)
            || self.mrs.iter().any(|mr| mr.pd == pd)
            || self.mws.iter().any(|mw| mw.pd == pd)
            || self.srqs.iter().any(|srq| srq.pd == pd)
            || self.ahs.iter().any(|ah| ah.pd == pd);
        if is_used {
            return Err(DeviceError::InUse(PD));
        }
        self.pds.remove(pd).map(drop).ok_or(DeviceError::Unknown(PD))
    }

    fn register_at(&mut self, pd: PdHandle, region: Region, address: u64, access: Access) -> Result<Mr, DeviceError> {
        PoolRegions::check_region(&region, address, access)?;
        self.pools.check_only(pd, &region)?;
        let (len, is_pool) = (region.len() as u64, region.is_pool());
        let mr = memory_and_queues::register(self.pd(pd)?, region, address, access)?;
        // Requests of this package have one key for both; those of mlx5 and rxe are the same.
        let key = mr.lkey();
        if access.has_remote() && key != mr.rkey() {
            return Err(DeviceError::Value("region whose local and remote keys differ"));
        }
        let handle =
            self.mrs.insert_with(|_| Registered { region: mr, pd }).ok_or(DeviceError::Full("memory regions"))?;
        self.regions.insert(key, handle);
        let mr = Mr { handle, address, len, key };
        if is_pool {
            self.pools.add(pd, mr);
        }
        Ok(mr)
    }

    fn deregister(&mut self, mr: MrHandle) -> Result<(), DeviceError> {
        let registered = self.mrs.get(mr).ok_or(DeviceError::Unknown(MR))?;
        let key = registered.region.lkey();
        // The device knows best what windows are bound to.
        let ended = self.mrs.try_remove(mr, |Registered { region, pd }| {
            region.deregister().map_err(|(region, error)| (Registered { region, pd }, error))
        });
        ended.unwrap_or(Ok(())).map_err(|error| not_ended(MR, &error))?;
        self.regions.remove(&key);
        self.pools.remove(mr);
        Ok(())
    }

    fn create_mw(&mut self, pd: PdHandle) -> Result<Mw, DeviceError> {
        let window = MemoryWindow::allocate(self.pd(pd)?).map_err(|error| refused(&error))?;
        let key = window.rkey();
        let handle = self.mws.insert_with(|_| Window { window, pd }).ok_or(DeviceError::Full("memory windows"))?;
        self.windows.insert(key >> 8, handle);
        Ok(Mw { handle, key })
    }

    fn destroy_mw(&mut self, mw: MwHandle) -> Result<(), DeviceError> {
        let key = self.mws.get(mw).ok_or(DeviceError::Unknown(MW))?.window.rkey();
        let ended = self.mws.try_remove(mw, |Window { window, pd }| {
            window.deallocate().map_err(|(window, error)| (Window { window, pd }, error))
        });
        ended.unwrap_or(Ok(())).map_err(|error| not_ended(MW, &error))?;
        self.windows.remove(&(key >> 8));
        Ok(())
    }

    fn create_ah(&mut self, pd: PdHandle, path: &Path) -> Result<AhHandle, DeviceError> {
        let address = convert::address(path, &mut self.gids);
        let address = address.ok_or(DeviceError::Value("address that is no GID of the port"))?;
        let handle = AddressHandle::create(self.pd(pd)?, &address).map_err(|error| refused(&error))?;
        self.ahs.insert_with(|_| Ah { handle, pd }).ok_or(DeviceError::Full("address handles"))
    }

    fn destroy_ah(&mut self, ah: AhHandle) -> Result<(), DeviceError> {
        self.ahs.remove(ah).map(drop).ok_or(DeviceError::Unknown("address handle"))
    }

    fn create_srq(&mut self, pd: PdHandle, depth: u32) -> Result<SrqHandle, DeviceError> {
        let receives = SharedReceiveQueue::create(self.pd(pd)?, depth, SGES_MAX as u32);
        let receives = receives.map_err(|error| refused(&error))?;
        let made = self.srqs.insert_with(|_| Srq { receives, pd });
        made.ok_or(DeviceError::Full("shared receive queues"))
    }

    fn destroy_srq(&mut self, srq: SrqHandle) -> Result<(), DeviceError> {
        let is_used = self.srq(srq).map(|_| self.qps.iter().any(|qp| qp.options.srq == Some(srq)))?;
        if is_used {
            return Err(DeviceError::InUse(SRQ));
        }
        self.srqs.remove(srq).map(drop).ok_or(DeviceError::Unknown(SRQ))
    }

    fn arm_srq(&mut self, srq: SrqHandle, limit: u32) -> Result<(), DeviceError> {
        self.srq(srq)?.receives.set_limit(limit).map_err(|error| refused(&error))
    }

    fn post_srq_recv(&mut self, srq: SrqHandle, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let srq = self.srqs.get(srq).ok_or(PostError::UnknownSrq)?;
        self.pools.check(sges)?;
        check_pieces(sges)?;
        memory_and_queues::post_shared_receive(&srq.receives, wr_id, sges)
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqHandle, DeviceError> {
        let request = CqRequest { channel: Some(&self.channel), ..CqRequest::new(depth) };
        let cq = CompletionQueue::create(&self.context, &request);
        let cq = cq.map_err(|error| refused(&error))?;
        self.cqs.insert_with(|_| cq).ok_or(DeviceError::Full("completion queues"))
    }

    fn destroy_cq(&mut self, cq: CqHandle) -> Result<(), DeviceError> {
        if self.qps.iter().any(|qp| [qp.options.send_cq, qp.options.recv_cq].contains(&cq)) {
            return Err(DeviceError::InUse(CQ));
        }
        self.cqs.remove(cq).map(drop).ok_or(DeviceError::Unknown(CQ))
    }

    fn create_qp(&mut self, options: &QpOptions) -> Result<QpHandle, DeviceError> {
        let srq = options.srq.map(|srq| self.srq(srq)).transpose()?;
        if srq.is_some_and(|srq| srq.pd != options.pd) {
            return Err(DeviceError::Value("shared receive queue of another protection domain"));
        }
        let request = ServiceRequest {
            service: convert::service(options.transport),
            pd: self.pd(options.pd)?,
            send_cq: self.cq(options.send_cq)?,
            receive_cq: self.cq(options.recv_cq)?,
            srq: srq.map(|srq| &srq.receives),
            caps: QpCaps {
                send_wr_max: options.send_depth,
                receive_wr_max: if srq.is_some() { 0 } else { options.recv_depth },
                send_sge_max: SGES_MAX as u32,
                receive_sge_max: SGES_MAX as u32,
                inline_len_max: INLINE_MAX as u32,
            },
            signals_all: options.signals_all,
        };
        let queues = QueuePair::create_service(&request).map_err(|error| refused(&error))?;
        let qp = Qp {
            queues,
            owned: None,
            options: *options,
            is_new: true,
            state: QpState::Reset,
            max_rd_atomic: 0,
            len_max: MESSAGE_MAX,
        };
        self.qps.insert_with(|_| qp).ok_or(DeviceError::Full("queue pairs"))
    }

    fn destroy_qp(&mut self, qp: QpHandle) -> Result<(), DeviceError> {
        let removed = self.qps.remove(qp).ok_or(DeviceError::Unknown("queue pair"))?;
        self.owners.remove(&Qpn::new(removed.queues.number()));
        Ok(())
    }

    fn qpn(&self, qp: QpHandle) -> Option<Qpn> {
        self.qps.get(qp).map(|qp| Qpn::new(qp.queues.number()))
    }

    fn qp_state(&self, qp: QpHandle) -> Option<QpState> {
        let qp = self.qps.get(qp)?;
        Some(qp.queues.state().ok().and_then(convert::state_of).unwrap_or(qp.state))
    }

    fn qp_attributes(&self, qp: QpHandle) -> Result<QpAttributes, DeviceError> {
        let qp = self.qps.get(qp).ok_or(DeviceError::Unknown(QP))?;
        let attributes = qp.queues.attributes().map_err(|error| refused(&error))?;
        let state = attributes.state.and_then(convert::state_of).unwrap_or(qp.state);
        Ok(convert::attributes(&attributes, &self.gids).known_in(qp.options.transport, state))
    }

    fn limits(&self) -> ProviderLimits {
        ProviderLimits { mtu: self.mtu().unwrap_or(self.limits.mtu), ..self.public_limits }
    }

    fn attach_multicast(&mut self, qp: QpHandle, group: Ipv6Addr) -> Result<(), DeviceError> {
        let qp = self.qps.get(qp).ok_or(DeviceError::Unknown(QP))?;
        check_group(qp.options.transport, group)?;
        qp.queues.attach_multicast(group.octets()).map_err(|error| refused(&error))
    }

    fn detach_multicast(&mut self, qp: QpHandle, group: Ipv6Addr) -> Result<(), DeviceError> {
        let attached = self.qps.get(qp).ok_or(DeviceError::Unknown(ATTACHMENT))?;
        attached.queues.detach_multicast(group.octets()).map_err(|error| match error.errno() {
            libc::EINVAL => DeviceError::Unknown(ATTACHMENT),
            _ => refused(&error),
        })
    }

    fn modify_qp(&mut self, qp: QpHandle, attributes: &QpAttributes) -> Result<(), ModifyError> {
        let mtu = self.mtu().unwrap_or(self.limits.mtu);
        let qp = self.qps.get_mut(qp).ok_or(ModifyError::UnknownQp)?;
        // It may have failed since the last step.
        qp.state = qp.queues.state().ok().and_then(convert::state_of).unwrap_or(qp.state);
        // The kernel says of none of these mistakes which it was.
        let to = attributes.check_step(qp.options.transport, qp.state)?;
        attributes.check_values(Limits { mtu, ..self.limits })?;
        let change = convert::change(attributes, &mut self.gids)?;
        qp.queues.modify(&change).map_err(|error| ModifyError::Call(error.errno()))?;
        (qp.state, qp.is_new) = (to, false);
        if let Some(owned) = &mut qp.owned
            && to == QpState::Reset
        {
            owned.clear();
        }
        qp.max_rd_atomic = attributes.max_rd_atomic.unwrap_or(qp.max_rd_atomic);
        if qp.options.transport == Transport::Ud {
            // A datagram is a packet, and has no path whose MTU could be another.
            qp.len_max = mtu.bytes();
        }
        Ok(())
    }

    fn post_send(&mut self, qp: QpHandle, request: &SendRequest<'_>) -> Result<(), PostError> {
        if let Data::Sges(sges) = request.data {
            self.pools.check(sges)?;
        }
        self.post_send_with(qp, request, None).map_err(|(error, _)| error)
    }

    fn post_recv(&mut self, qp: QpHandle, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        self.pools.check(sges)?;
        self.post_recv_with(qp, wr_id, sges, None).map_err(|(error, _)| error)
    }

    fn poll_cq(&mut self, cq: CqHandle) -> Result<Option<WorkCompletion>, DeviceError> {
        Ok(self.poll_with(cq)?.map(|(done, _)| done))
    }

    fn arm_cq(&mut self, cq: CqHandle, notify: Notify) -> Result<(), DeviceError> {
        memory_and_queues::arm(self.cq(cq)?, notify == Notify::Solicited)
    }

    fn next_notification(&mut self) -> Result<Option<CqHandle>, DeviceError> {
        self.take_notification()
    }

    fn next_event(&mut self) -> Result<Option<Event>, DeviceError> {
        self.take_event()
    }
}

impl fmt::Debug for RdmaCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaCore").field("context", &self.context).finish_non_exhaustive()
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Libraries(error) => error.fmt(f),
            Self::Call(error) => error.fmt(f),
            Self::Unknown(name) => {
                write!(f, "no RDMA device {name}: `wirepath rdma devices` shows those that are there")
            }
        }
    }
}

impl core::error::Error for OpenError {}
