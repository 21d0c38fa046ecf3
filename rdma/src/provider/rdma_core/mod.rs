//! A NIC through libibverbs: the objects of a context, by the handles of [`crate::roce`].
//!
//! Nobody has tried it on a NIC; the tests run on the software ConnectX. What it does not do is
//! refused, and never done by half: memory windows, which that one lacks, requests that invalidate,
//! and multicast.

mod convert;
mod events;
#[allow(unsafe_code)]
mod memory_and_queues;

use core::fmt;

use rdma_core_sys::verbs::{
    AddressHandle, CompletionChannel, CompletionQueue, Context, CqRequest, MemoryRegion, ProtectionDomain, QpCaps,
    QueuePair, SendKind, Service, ServiceRequest, SharedReceiveQueue, VerbsError,
};
use rdma_core_sys::{LoadError, RdmaCore as Libraries};

use self::convert::Gids;
use super::Provider;
use crate::roce::handle::{Table, kind, next_device};
use crate::roce::{
    Access, AhHandle, CqHandle, Destination, DeviceError, Event, INLINE_MAX, ModifyError, Mr, MrHandle, Mw, MwHandle,
    Notify, Path, PdHandle, PostError, QpAttributes, QpHandle, QpOptions, Region, SGES_MAX, SendOperation, SendRequest,
    Sge, SrqHandle, WorkCompletion,
};
use crate::wire::qpn::Qpn;

/// Objects of each kind, at most.
const OBJECTS: u32 = 4096;
const SRQ: &str = "shared receive queue";

/// A device of rdma-core: a NIC, or rxe. The first port of it.
pub struct RdmaCore {
    qps: Table<kind::Qp, Qp>,
    srqs: Table<kind::Srq, Srq>,
    ahs: Table<kind::Ah, Ah>,
    cqs: Table<kind::Cq, CompletionQueue>,
    mrs: Table<kind::Mr, MemoryRegion>,
    pds: Table<kind::Pd, ProtectionDomain>,
    gids: Gids,
    /// Where armed completion queues notify.
    channel: CompletionChannel,
    context: Context,
}

/// A queue pair, and the domain that address handles of its requests must be of.
struct Qp {
    queues: QueuePair,
    pd: PdHandle,
}

/// A shared receive queue.
struct Srq {
    receives: SharedReceiveQueue,
    /// Queue pairs that take from it.
    users: Vec<QpHandle>,
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
        Ok(Self {
            qps: Table::of_device(number, OBJECTS),
            srqs: Table::of_device(number, OBJECTS),
            ahs: Table::of_device(number, OBJECTS),
            cqs: Table::of_device(number, OBJECTS),
            mrs: Table::of_device(number, OBJECTS),
            pds: Table::of_device(number, OBJECTS),
            gids,
            channel,
            context,
        })
    }

    /// The GIDs of the port, by their places: where packets come from.
    pub fn gids(&self) -> impl Iterator<Item = core::net::Ipv6Addr> {
        self.gids.addresses()
    }

    fn pd(&self, pd: PdHandle) -> Result<&ProtectionDomain, DeviceError> {
        self.pds.get(pd).ok_or(DeviceError::Unknown("protection domain"))
    }

    fn cq(&self, cq: CqHandle) -> Result<&CompletionQueue, DeviceError> {
        self.cqs.get(cq).ok_or(DeviceError::Unknown("completion queue"))
    }

    fn srq(&self, srq: SrqHandle) -> Result<&Srq, DeviceError> {
        self.srqs.get(srq).ok_or(DeviceError::Unknown(SRQ))
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

impl Provider for RdmaCore {
    fn create_pd(&mut self) -> Result<PdHandle, DeviceError> {
        let pd = ProtectionDomain::allocate(&self.context).map_err(|error| refused(&error))?;
        self.pds.insert_with(|_| pd).ok_or(DeviceError::Full("protection domains"))
    }

    fn register(&mut self, pd: PdHandle, region: Region, access: Access) -> Result<Mr, DeviceError> {
        let (address, len) = (region.address(), region.len() as u64);
        let mr = memory_and_queues::register(self.pd(pd)?, region, access)?;
        // Requests of this package have one key for both; those of mlx5 and rxe are the same.
        let key = mr.lkey();
        if access.has_remote() && key != mr.rkey() {
            return Err(DeviceError::Value("region whose local and remote keys differ"));
        }
        let handle = self.mrs.insert_with(|_| mr).ok_or(DeviceError::Full("memory regions"))?;
        Ok(Mr { handle, address, len, key })
    }

    fn deregister(&mut self, mr: MrHandle) -> Result<(), DeviceError> {
        let mr = self.mrs.remove(mr).ok_or(DeviceError::Unknown("memory region"))?;
        mr.deregister().map_err(|error| refused(&error))
    }

    fn create_mw(&mut self, _: PdHandle) -> Result<Mw, DeviceError> {
        Err(DeviceError::Value("memory window through rdma-core"))
    }

    fn destroy_mw(&mut self, _: MwHandle) -> Result<(), DeviceError> {
        Err(DeviceError::Unknown("memory window"))
    }

    fn create_ah(&mut self, pd: PdHandle, path: &Path) -> Result<AhHandle, DeviceError> {
        let address = convert::address(path, &self.gids);
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
        let made = self.srqs.insert_with(|_| Srq { receives, users: Vec::new() });
        made.ok_or(DeviceError::Full("shared receive queues"))
    }

    fn destroy_srq(&mut self, srq: SrqHandle) -> Result<(), DeviceError> {
        let is_used = self.srq(srq)?.users.iter().any(|qp| self.qps.get(*qp).is_some());
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
        memory_and_queues::post_shared_receive(&srq.receives, wr_id, sges)
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqHandle, DeviceError> {
        let request = CqRequest { channel: Some(&self.channel), ..CqRequest::new(depth) };
        let cq = CompletionQueue::create(&self.context, &request);
        let cq = cq.map_err(|error| refused(&error))?;
        self.cqs.insert_with(|_| cq).ok_or(DeviceError::Full("completion queues"))
    }

    fn create_qp(&mut self, options: &QpOptions) -> Result<QpHandle, DeviceError> {
        let srq = options.srq.map(|srq| self.srq(srq)).transpose()?;
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
        let made = self.qps.insert_with(|_| Qp { queues, pd: options.pd });
        let qp = made.ok_or(DeviceError::Full("queue pairs"))?;
        if let Some(srq) = options.srq.and_then(|srq| self.srqs.get_mut(srq)) {
            srq.users.retain(|user| self.qps.get(*user).is_some());
            srq.users.push(qp);
        }
        Ok(qp)
    }

    fn destroy_qp(&mut self, qp: QpHandle) -> Result<(), DeviceError> {
        self.qps.remove(qp).map(drop).ok_or(DeviceError::Unknown("queue pair"))
    }

    fn qpn(&self, qp: QpHandle) -> Option<Qpn> {
        self.qps.get(qp).map(|qp| Qpn::new(qp.queues.number()))
    }

    fn modify_qp(&mut self, qp: QpHandle, attributes: &QpAttributes) -> Result<(), ModifyError> {
        let qp = self.qps.get(qp).ok_or(ModifyError::UnknownQp)?;
        let change = convert::change(attributes, &self.gids)?;
        qp.queues.modify(&change).map_err(|error| ModifyError::Call(error.errno()))
    }

    fn post_send(&mut self, qp: QpHandle, request: &SendRequest<'_>) -> Result<(), PostError> {
        let qp = self.qps.get(qp).ok_or(PostError::UnknownQp)?;
        // Asked before the operation is looked at, as over RoCE in software.
        if request.destination.is_some() != (qp.queues.service() == Some(Service::Ud)) {
            return Err(PostError::Destination);
        }
        let (kind, imm) = match request.destination {
            Some(destination) => self.datagram(qp.pd, &request.operation, &destination)?,
            None => convert::send(&request.operation).ok_or(PostError::Operation)?,
        };
        memory_and_queues::post_send(&qp.queues, request, kind, imm)
    }

    fn post_recv(&mut self, qp: QpHandle, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let qp = self.qps.get(qp).ok_or(PostError::UnknownQp)?;
        memory_and_queues::post_receive(&qp.queues, wr_id, sges)
    }

    fn poll_cq(&mut self, cq: CqHandle) -> Result<Option<WorkCompletion>, DeviceError> {
        memory_and_queues::poll(self.cq(cq)?)
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
