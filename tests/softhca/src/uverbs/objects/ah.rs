//! Address handles, and the addresses in a queue pair's attributes: where a packet goes, with the
//! MAC address that the kernel finds out.

use super::handles::{Kind, Object};
use crate::hca::{AddressVector, Errno, Gid};
use crate::uverbs::abi::verbs::{AttachMcast, CreateAh, CreateAhResp, DestroyAh, QpDest};
use crate::uverbs::abi::{Layout, mlx5};
use crate::uverbs::calls::{Call, Reply};
use crate::uverbs::context::Context;
use crate::uverbs::{Kernel, refuse};

/// Makes an address handle. libmlx5 writes it into each WQE; the kernel only finds the MAC address.
pub(crate) fn create_ah(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: CreateAh = call.request()?;
    let attr = request.attr;
    if attr.port_num != 1 || attr.is_global == 0 {
        return refuse(libc::EINVAL);
    }
    context.objects.room()?;
    context.objects.nic(Kind::Pd, request.pd_handle)?;
    let dmac = resolve(kernel, Gid(attr.grh.dgid), attr.grh.sgid_index)?;
    let ah_handle = context.objects.add(Object::new(Kind::Ah, 0, [request.pd_handle]));
    let response_length = call.driver_room.min(mlx5::CreateAhResp::LEN) as u32;
    let driver = mlx5::CreateAhResp { response_length, dmac, reserved: [0; 6] };
    Ok(Reply::both(&CreateAhResp { ah_handle }, &driver))
}

/// Destroys it.
pub(crate) fn destroy_ah(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    context.destroy(Kind::Ah, call.request::<DestroyAh>()?.ah_handle, kernel)?;
    Ok(Reply::default())
}

/// Lets a UD QP receive what is sent to a multicast group.
pub(crate) fn attach_mcast(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: AttachMcast = call.request()?;
    kernel.hca.attach_multicast(context.objects.nic(Kind::Qp, request.qp_handle)?, Gid(request.gid))?;
    Ok(Reply::default())
}

/// Ends that.
pub(crate) fn detach_mcast(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: AttachMcast = call.request()?;
    kernel.hca.detach_multicast(context.objects.nic(Kind::Qp, request.qp_handle)?, Gid(request.gid))?;
    Ok(Reply::default())
}

/// The address of a connected QP's peer.
pub(super) fn address_vector(kernel: &mut Kernel<'_>, dest: &QpDest) -> Result<AddressVector, Errno> {
    // RoCE has no local identifiers: an address is a GID.
    if dest.is_global == 0 || dest.port_num > 1 {
        return refuse(libc::EINVAL);
    }
    let gid = Gid(dest.dgid);
    Ok(AddressVector {
        gid,
        mac: resolve(kernel, gid, dest.sgid_index)?,
        source_index: dest.sgid_index,
        traffic_class: dest.traffic_class,
        flow_label: dest.flow_label,
        hop_limit: dest.hop_limit,
        service_level: dest.sl,
    })
}

/// The peer's address as a client reads it back.
pub(super) fn dest(address: &AddressVector) -> QpDest {
    QpDest {
        dgid: address.gid.0,
        flow_label: address.flow_label,
        sgid_index: address.source_index,
        hop_limit: address.hop_limit,
        traffic_class: address.traffic_class,
        sl: address.service_level,
        is_global: 1,
        port_num: 1,
        ..QpDest::default()
    }
}

/// The MAC address that leads to a GID from one of the port's own, which must be of the same kind.
fn resolve(kernel: &mut Kernel<'_>, gid: Gid, source_index: u8) -> Result<[u8; 6], Errno> {
    let config = kernel.hca.config();
    let gids = config.gids();
    let Some(source) = gids.get(usize::from(source_index)) else { return refuse(libc::EINVAL) };
    if source.ipv4().is_some() != gid.ipv4().is_some() {
        return refuse(libc::EINVAL);
    }
    if gids.contains(&gid) {
        return Ok(config.mac);
    }
    if let Some(mac) = gid.multicast_mac().or_else(|| gid.link_local_mac()) {
        return Ok(mac);
    }
    match gid.ipv4() {
        Some(address) => kernel.process.neighbor(address),
        None => refuse(libc::EHOSTUNREACH),
    }
}
