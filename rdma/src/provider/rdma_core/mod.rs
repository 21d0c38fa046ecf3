//! A NIC through libibverbs: the objects of a context, by the handles of [`crate::roce`].
//!
//! Nobody has tried it on a NIC; the tests run on the software ConnectX. What it does not do yet is
//! refused, and never done by half: datagrams, shared receive queues, inline data, memory windows,
//! notifications and events.

#[allow(unsafe_code)]
mod memory_and_queues;
mod words;

use core::fmt;

use rdma_core_sys::verbs::{
    CompletionQueue, Context, CqRequest, MemoryRegion, ProtectionDomain, QpCaps, QueuePair, ServiceRequest, VerbsError,
};
use rdma_core_sys::{LoadError, RdmaCore as Libraries};

use self::words::Gids;
use super::Provider;
use crate::roce::handle::{Table, kind};
use crate::roce::{
    Access, CqHandle, Data, DeviceError, ModifyError, Mr, MrHandle, PdHandle, PostError, QpAttributes, QpHandle,
    QpOptions, Region, SGES_MAX, SendRequest, Sge, WorkCompletion,
};
use crate::wire::opcode::Transport;
use crate::wire::qpn::Qpn;

/// Objects of each kind, at most.
const OBJECTS: u32 = 4096;

/// A device of rdma-core: a NIC, or rxe. The first port of it.
pub struct RdmaCore {
    qps: Table<kind::Qp, QueuePair>,
    cqs: Table<kind::Cq, CompletionQueue>,
    mrs: Table<kind::Mr, MemoryRegion>,
    pds: Table<kind::Pd, ProtectionDomain>,
    gids: Gids,
    context: Context,
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
        let gids = Gids::read(&context);
        Ok(Self {
            qps: Table::new(OBJECTS),
            cqs: Table::new(OBJECTS),
            mrs: Table::new(OBJECTS),
            pds: Table::new(OBJECTS),
            gids,
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

    fn create_cq(&mut self, depth: u32) -> Result<CqHandle, DeviceError> {
        let cq = CompletionQueue::create(&self.context, &CqRequest::new(depth));
        let cq = cq.map_err(|error| refused(&error))?;
        self.cqs.insert_with(|_| cq).ok_or(DeviceError::Full("completion queues"))
    }

    fn create_qp(&mut self, options: &QpOptions) -> Result<QpHandle, DeviceError> {
        if options.srq.is_some() {
            return Err(DeviceError::Value("shared receive queue through rdma-core"));
        }
        if options.transport == Transport::Ud {
            return Err(DeviceError::Value("datagrams through rdma-core"));
        }
        let request = ServiceRequest {
            service: words::service(options.transport),
            pd: self.pd(options.pd)?,
            send_cq: self.cq(options.send_cq)?,
            receive_cq: self.cq(options.recv_cq)?,
            srq: None,
            caps: QpCaps {
                send_wr_max: options.send_depth,
                receive_wr_max: options.recv_depth,
                send_sge_max: SGES_MAX as u32,
                receive_sge_max: SGES_MAX as u32,
                inline_len_max: 0,
            },
            signals_all: options.signals_all,
        };
        let qp = QueuePair::create_service(&request).map_err(|error| refused(&error))?;
        self.qps.insert_with(|_| qp).ok_or(DeviceError::Full("queue pairs"))
    }

    fn destroy_qp(&mut self, qp: QpHandle) -> Result<(), DeviceError> {
        self.qps.remove(qp).map(drop).ok_or(DeviceError::Unknown("queue pair"))
    }

    fn qpn(&self, qp: QpHandle) -> Option<Qpn> {
        self.qps.get(qp).map(|qp| Qpn::new(qp.number()))
    }

    fn modify_qp(&mut self, qp: QpHandle, attributes: &QpAttributes) -> Result<(), ModifyError> {
        let qp = self.qps.get(qp).ok_or(ModifyError::UnknownQp)?;
        let change = words::change(attributes, &self.gids)?;
        qp.modify(&change).map_err(|error| ModifyError::Call(error.errno()))
    }

    fn post_send(&mut self, qp: QpHandle, request: &SendRequest<'_>) -> Result<(), PostError> {
        let qp = self.qps.get(qp).ok_or(PostError::UnknownQp)?;
        if request.destination.is_some() {
            return Err(PostError::Destination);
        }
        let Data::Sges(sges) = request.data else { return Err(PostError::Operation) };
        let (kind, imm) = words::send(&request.operation).ok_or(PostError::Operation)?;
        memory_and_queues::post_send(qp, request, sges, kind, imm)
    }

    fn post_recv(&mut self, qp: QpHandle, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let qp = self.qps.get(qp).ok_or(PostError::UnknownQp)?;
        memory_and_queues::post_receive(qp, wr_id, sges)
    }

    fn poll_cq(&mut self, cq: CqHandle) -> Result<Option<WorkCompletion>, DeviceError> {
        memory_and_queues::poll(self.cq(cq)?)
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
