//! Attributes, requests and completions in the words of libibverbs, and back.

use core::net::Ipv6Addr;

use rdma_core_sys::bindings::*;
use rdma_core_sys::verbs::{
    Address, Completion, Context, QpChange, QpState as RawState, RemoteAccess, SendKind, Service,
};

use crate::roce::{
    Access, Addresses, CompletionKind, Link, ModifyError, Mtu, Path, QpAttributes, QpState, SendOperation, Status,
    WorkCompletion,
};
use crate::wire::opcode::Transport;
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// The first port.
pub(super) const PORT: u8 = 1;

/// The versions of RoCE, as the kernel names them.
const ROCE_V1: &str = "IB/RoCE v1";
const ROCE_V2: &str = "RoCE v2";

/// The GIDs of the port with the version of RoCE of each, where the kernel says it. Addresses come
/// and go while the device is open, so a place is looked at again before it is used.
pub(super) struct Gids {
    found: Vec<(Ipv6Addr, Option<String>)>,
    context: Context,
}

impl Gids {
    pub(super) fn read(context: &Context) -> Self {
        let mut gids = Self { found: Vec::new(), context: context.clone() };
        gids.refresh();
        gids
    }

    /// All places up to the first that is not there.
    pub(super) fn refresh(&mut self) {
        self.found = (0..=u8::MAX).map_while(|place| self.at(place)).collect();
    }

    /// What is at a place now.
    fn at(&self, place: u8) -> Option<(Ipv6Addr, Option<String>)> {
        let address = self.context.gid(PORT, place).ok()?;
        let version = self.context.device().ibdev_path().join("ports/1/gid_attrs/types").join(place.to_string());
        Some((address.into(), std::fs::read_to_string(version).ok()))
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.found.iter().map(|(address, _)| *address)
    }

    /// What was last found at a place: an address of ours, and whether it is for RoCEv1.
    fn known_at(&self, place: u8) -> Option<(Ipv6Addr, bool)> {
        let (address, version) = self.found.get(usize::from(place))?;
        Some((*address, version.as_ref().is_some_and(|version| version.trim_end() == ROCE_V1)))
    }

    /// The place of an address of ours, for a version of RoCE.
    fn place(&mut self, source: Ipv6Addr, version: &str) -> Option<u8> {
        let place = self.known_place(source, version);
        let is_there = |place: u8| self.at(place).as_ref() == self.found.get(usize::from(place));
        if place.is_some_and(is_there) {
            return place;
        }
        self.refresh();
        self.known_place(source, version)
    }

    fn known_place(&self, source: Ipv6Addr, version: &str) -> Option<u8> {
        let is_it = |(address, known): &(Ipv6Addr, Option<String>)| {
            *address == source && known.as_ref().is_none_or(|known| known.trim_end() == version)
        };
        self.found.iter().position(is_it)?.try_into().ok()
    }
}

pub(super) const fn service(transport: Transport) -> Service {
    match transport {
        Transport::Rc => Service::Rc,
        Transport::Uc => Service::Uc,
        Transport::Ud => Service::Ud,
    }
}

pub(super) fn remote_access(access: Access) -> RemoteAccess {
    RemoteAccess {
        read: access.has(Access::REMOTE_READ),
        write: access.has(Access::REMOTE_WRITE),
        atomic: access.has(Access::REMOTE_ATOMIC),
        bind: access.has(Access::MW_BIND),
    }
}

/// The attributes for `ibv_modify_qp`. The kernel finds the peer's Ethernet address itself.
pub(super) fn change(attributes: &QpAttributes, gids: &mut Gids) -> Result<QpChange, ModifyError> {
    let address = attributes.path.map(|path| address(&path, gids).ok_or(ModifyError::Value("AV"))).transpose()?;
    Ok(QpChange {
        state: attributes.state.map(state),
        pkey_index: attributes.pkey_index,
        port: attributes.port,
        qkey: attributes.qkey,
        access: attributes.access.map(remote_access),
        address,
        mtu: attributes.mtu.map(Mtu::bytes),
        destination: attributes.destination.map(Qpn::get),
        rq_psn: attributes.rq_psn.map(|psn| psn.get()),
        max_dest_rd_atomic: attributes.max_dest_rd_atomic,
        min_rnr_timer: attributes.min_rnr_timer,
        sq_psn: attributes.sq_psn.map(|psn| psn.get()),
        max_rd_atomic: attributes.max_rd_atomic,
        retry_cnt: attributes.retry_cnt,
        rnr_retry: attributes.rnr_retry,
        timeout: attributes.timeout,
    })
}

/// The way to a peer; `None` where our address on it is no GID of the port.
pub(super) fn address(path: &Path, gids: &mut Gids) -> Option<Address> {
    let (source, gid, version) = match path.addresses {
        Addresses::Ipv4 { source, destination } => (source.to_ipv6_mapped(), destination.to_ipv6_mapped(), ROCE_V2),
        Addresses::Ipv6 { source, destination } => (source, destination, ROCE_V2),
        Addresses::Grh { source, destination } => (source, destination, ROCE_V1),
    };
    let gid_index = gids.place(source, version)?;
    let (traffic_class, hop_limit) = (path.traffic_class, path.hop_limit);
    Some(Address { gid: gid.octets(), gid_index, port: PORT, traffic_class, hop_limit })
}

/// The attributes of `ibv_query_qp`, all of them.
pub(super) fn attributes(seen: &QpChange, gids: &Gids) -> QpAttributes {
    QpAttributes {
        state: None,
        pkey_index: seen.pkey_index,
        port: seen.port,
        qkey: seen.qkey,
        access: seen.access.map(access),
        path: seen.address.and_then(|address| path(&address, gids)),
        mtu: Mtu::ALL.into_iter().find(|mtu| seen.mtu == Some(mtu.bytes())),
        destination: seen.destination.map(Qpn::new),
        rq_psn: seen.rq_psn.map(Psn::new),
        max_dest_rd_atomic: seen.max_dest_rd_atomic,
        min_rnr_timer: seen.min_rnr_timer,
        sq_psn: seen.sq_psn.map(Psn::new),
        max_rd_atomic: seen.max_rd_atomic,
        retry_cnt: seen.retry_cnt,
        rnr_retry: seen.rnr_retry,
        timeout: seen.timeout,
    }
}

/// The rights of a peer.
fn access(RemoteAccess { read, write, atomic, .. }: RemoteAccess) -> Access {
    let rights = [(read, Access::REMOTE_READ), (write, Access::REMOTE_WRITE), (atomic, Access::REMOTE_ATOMIC)];
    let there = rights.into_iter().filter(|(is_there, _)| *is_there);
    there.fold(Access::LOCAL_READ, |all, (_, right)| all | right)
}

/// The way to a peer, without the MAC addresses, which the kernel alone knows.
fn path(address: &Address, gids: &Gids) -> Option<Path> {
    let ((source, is_v1), destination) = (gids.known_at(address.gid_index)?, Ipv6Addr::from(address.gid));
    let addresses = match (source.to_ipv4_mapped(), destination.to_ipv4_mapped()) {
        _ if is_v1 => Addresses::Grh { source, destination },
        (Some(source), Some(destination)) => Addresses::Ipv4 { source, destination },
        _ => Addresses::Ipv6 { source, destination },
    };
    let link = Link { destination: [0; 6], source: [0; 6], vlan: None };
    Some(Path { link, addresses, traffic_class: address.traffic_class, hop_limit: address.hop_limit })
}

const fn state(state: QpState) -> RawState {
    match state {
        QpState::Reset => RawState::Reset,
        QpState::Init => RawState::Init,
        QpState::Rtr => RawState::Rtr,
        QpState::Rts => RawState::Rts,
        QpState::Sqd => RawState::Sqd,
        QpState::Sqe => RawState::Sqe,
        QpState::Err => RawState::Err,
    }
}

/// The state that a queue pair has in the NIC; `None` for one without a name.
pub(super) const fn state_of(state: RawState) -> Option<QpState> {
    Some(match state {
        RawState::Reset => QpState::Reset,
        RawState::Init => QpState::Init,
        RawState::Rtr => QpState::Rtr,
        RawState::Rts => QpState::Rts,
        RawState::Sqd => QpState::Sqd,
        RawState::Sqe => QpState::Sqe,
        RawState::Err => QpState::Err,
        RawState::Unknown => return None,
    })
}

/// What a request does, and its immediate data; `None` for one that binds a window, which names
/// objects.
pub(super) const fn send(operation: &SendOperation) -> Option<(SendKind<'static>, Option<[u8; 4]>)> {
    Some(match *operation {
        SendOperation::Send => (SendKind::Send, None),
        SendOperation::SendImm(imm) => (SendKind::Send, Some(imm)),
        SendOperation::Write(remote) => (SendKind::Write(remote.address, remote.rkey), None),
        SendOperation::WriteImm(remote, imm) => (SendKind::Write(remote.address, remote.rkey), Some(imm)),
        SendOperation::Read(remote) => (SendKind::Read(remote.address, remote.rkey), None),
        SendOperation::CompareSwap { remote, compare, swap } => {
            (SendKind::CompareSwap(remote.address, remote.rkey, compare, swap), None)
        }
        SendOperation::FetchAdd { remote, add } => (SendKind::FetchAdd(remote.address, remote.rkey, add), None),
        SendOperation::SendInvalidate(key) => (SendKind::SendInvalidate(key), None),
        SendOperation::Invalidate(key) => (SendKind::Invalidate(key), None),
        SendOperation::BindWindow(_) => return None,
    })
}

pub(super) const fn completion(done: &Completion) -> WorkCompletion {
    WorkCompletion {
        wr_id: done.wr_id,
        status: status(done.status),
        // The opcode of a request that failed is undefined (`ibv_poll_cq(3)`).
        kind: if done.status == IBV_WC_SUCCESS { kind(done.opcode) } else { CompletionKind::Unknown },
        byte_len: done.byte_len,
        qpn: Qpn::new(done.qp),
        imm: done.imm,
        invalidated: done.invalidated,
        // Receives of datagrams alone begin with a header.
        source: if done.has_grh { Some(Qpn::new(done.source)) } else { None },
    }
}

const fn status(status: ibv_wc_status) -> Status {
    match status {
        IBV_WC_SUCCESS => Status::Success,
        IBV_WC_LOC_LEN_ERR => Status::LocalLength,
        IBV_WC_LOC_QP_OP_ERR => Status::LocalQpOperation,
        IBV_WC_LOC_PROT_ERR => Status::LocalProtection,
        IBV_WC_WR_FLUSH_ERR => Status::Flushed,
        IBV_WC_MW_BIND_ERR => Status::MwBind,
        IBV_WC_BAD_RESP_ERR => Status::BadResponse,
        IBV_WC_LOC_ACCESS_ERR => Status::LocalAccess,
        IBV_WC_REM_INV_REQ_ERR => Status::RemoteInvalidRequest,
        IBV_WC_REM_ACCESS_ERR => Status::RemoteAccess,
        IBV_WC_REM_OP_ERR => Status::RemoteOperation,
        IBV_WC_RETRY_EXC_ERR => Status::RetryExceeded,
        IBV_WC_RNR_RETRY_EXC_ERR => Status::RnrRetryExceeded,
        _ => Status::General,
    }
}

const fn kind(opcode: ibv_wc_opcode) -> CompletionKind {
    match opcode {
        IBV_WC_RDMA_WRITE => CompletionKind::Write,
        IBV_WC_RDMA_READ => CompletionKind::Read,
        IBV_WC_COMP_SWAP => CompletionKind::CompareSwap,
        IBV_WC_FETCH_ADD => CompletionKind::FetchAdd,
        IBV_WC_BIND_MW => CompletionKind::BindWindow,
        IBV_WC_LOCAL_INV => CompletionKind::Invalidate,
        IBV_WC_RECV => CompletionKind::Receive,
        IBV_WC_RECV_RDMA_WITH_IMM => CompletionKind::ReceiveWriteImm,
        _ => CompletionKind::Send,
    }
}
