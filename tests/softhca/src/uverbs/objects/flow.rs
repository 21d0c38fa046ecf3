//! Flow rules: a header, then specifications of headers and actions one after the other;
//! mlx5.md 1.3.

use super::handles::{Kind, Object};
use crate::hca::{Errno, FlowAction, FlowKind, FlowRequest, FlowSpec};
use crate::uverbs::abi::verbs::{CreateFlow, CreateFlowResp, DestroyFlow, FlowAttr, FlowSpecHdr};
use crate::uverbs::abi::{Layout, mlx5};
use crate::uverbs::calls::memory::nothing_after;
use crate::uverbs::calls::{Call, Reply};
use crate::uverbs::context::Context;
use crate::uverbs::{Kernel, refuse};

/// IBV_FLOW_ATTR_FLAGS_*: DONT_TRAP and EGRESS are the highest that there are.
const FLAGS: u32 = (1 << 3) - 1;
const DONT_TRAP: u32 = 1 << 1;

/// The most specifications of a rule, and the most bytes of each.
const SPECS_MAX: usize = 10;
const SPEC_LEN_MAX: usize = 88;

/// Makes a flow rule.
pub(crate) fn create_flow(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request = CreateFlow::read(call.core);
    if request.comp_mask != 0 {
        return refuse(libc::EINVAL);
    }
    if !kernel.process.may_use_raw_packets() {
        return refuse(libc::EPERM);
    }
    let specs = call.core.get(CreateFlow::LEN..).unwrap_or_default();
    let (kind, specs) = check(&request.flow_attr, specs)?;
    nothing_after(call.driver, mlx5::CreateFlow::LEN)?;
    if mlx5::CreateFlow::read(call.driver) != mlx5::CreateFlow::default() {
        // Counters would need an object that there is no method to make.
        return refuse(libc::EINVAL);
    }
    context.objects.room()?;
    let mut flow = FlowRequest {
        qp: context.objects.nic(Kind::Qp, request.qp_handle)?,
        kind,
        priority: request.flow_attr.priority,
        flags: request.flow_attr.flags,
        specs: Vec::new(),
        actions: Vec::new(),
    };
    add_specs(&mut flow, request.flow_attr.num_of_specs.into(), specs)?;
    let nic = kernel.hca.create_flow(&flow)?;
    let flow_handle = context.objects.add(Object::new(Kind::Flow, nic, [request.qp_handle]));
    Ok(Reply::core(&CreateFlowResp { comp_mask: 0, flow_handle }))
}

/// The rule's kind, and the bytes of its specifications.
fn check<'a>(attr: &FlowAttr, specs: &'a [u8]) -> Result<(FlowKind, &'a [u8]), Errno> {
    let kind = match attr.type_ {
        0 => FlowKind::Normal,
        1 => FlowKind::AllDefault,
        2 => FlowKind::MulticastDefault,
        3 => FlowKind::Sniffer,
        _ => return refuse(libc::EINVAL),
    };
    let is_default = matches!(kind, FlowKind::AllDefault | FlowKind::MulticastDefault);
    if attr.flags & !FLAGS != 0 || is_default && attr.flags & DONT_TRAP != 0 || attr.reserved != [0; 2] {
        return refuse(libc::EINVAL);
    }
    let (count, len) = (usize::from(attr.num_of_specs), usize::from(attr.size));
    if count > SPECS_MAX || len > count * SPEC_LEN_MAX || attr.port > 1 {
        return refuse(libc::EINVAL);
    }
    match specs.split_at_checked(len) {
        Some((specs, rest)) => nothing_after(rest, 0).map(|()| (kind, specs)),
        None => refuse(libc::ENOSPC),
    }
}

/// Parses the specifications: as many as announced, and no bytes after them.
fn add_specs(flow: &mut FlowRequest, count: usize, mut rest: &[u8]) -> Result<(), Errno> {
    for _ in 0..count {
        let header = FlowSpecHdr::read(rest);
        let len = usize::from(header.size);
        if rest.len() < FlowSpecHdr::LEN || len < FlowSpecHdr::LEN || header.reserved != 0 {
            return refuse(libc::EINVAL);
        }
        let Some((spec, after)) = rest.split_at_checked(len) else { return refuse(libc::EINVAL) };
        add_spec(flow, header.type_, &spec[FlowSpecHdr::LEN..])?;
        rest = after;
    }
    if rest.is_empty() { Ok(()) } else { refuse(libc::EINVAL) }
}

/// Numbers of specifications, `enum ib_flow_spec_type`.
mod spec {
    pub(super) const ETHERNET: u32 = 0x20;
    pub(super) const IPV4: u32 = 0x30;
    pub(super) const IPV6: u32 = 0x31;
    pub(super) const TCP: u32 = 0x40;
    pub(super) const UDP: u32 = 0x41;
    pub(super) const TAG: u32 = 0x1000;
    pub(super) const DROP: u32 = 0x1001;
}

fn add_spec(flow: &mut FlowRequest, kind: u32, body: &[u8]) -> Result<(), Errno> {
    let spec = match kind {
        spec::ETHERNET => filter(body).map(|(value, mask)| FlowSpec::Ethernet { value, mask }),
        spec::IPV4 => filter(body).map(|(value, mask)| FlowSpec::Ipv4 { value, mask }),
        spec::IPV6 => filter(body).map(|(value, mask)| FlowSpec::Ipv6 { value, mask }),
        spec::TCP => filter(body).map(|(value, mask)| FlowSpec::Tcp { value, mask }),
        spec::UDP => filter(body).map(|(value, mask)| FlowSpec::Udp { value, mask }),
        spec::TAG => return add_tag(flow, body),
        spec::DROP if body.is_empty() => {
            flow.actions.push(FlowAction::Drop);
            return Ok(());
        }
        spec::DROP => return refuse(libc::EINVAL),
        // Tunnels, actions by handle, counters: this NIC has none of them.
        _ => return refuse(libc::EOPNOTSUPP),
    };
    flow.specs.push(spec?);
    Ok(())
}

/// Values, then as many bytes of masks. Those of an older client are shorter: missing fields are
/// not matched. Those of a newer client are longer: further fields must not be matched.
fn filter<const LEN: usize>(body: &[u8]) -> Result<([u8; LEN], [u8; LEN]), Errno> {
    let len = body.len() / 2;
    if !body.len().is_multiple_of(8) || len == 0 {
        return refuse(libc::EINVAL);
    }
    let (value, mask) = body.split_at(len);
    nothing_after(mask, LEN)?;
    Ok((Layout::read(value), Layout::read(mask)))
}

/// 24 bits of it reach the CQE.
const TAG_MAX: u32 = 0xff_ffff;

fn add_tag(flow: &mut FlowRequest, body: &[u8]) -> Result<(), Errno> {
    let tag = u32::read(body);
    if body.len() != 8 || tag > TAG_MAX {
        return refuse(libc::EINVAL);
    }
    flow.actions.push(FlowAction::Tag(tag));
    Ok(())
}

/// Destroys a flow rule.
pub(crate) fn destroy_flow(context: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: DestroyFlow = call.request()?;
    if request.comp_mask != 0 {
        return refuse(libc::EINVAL);
    }
    context.destroy(Kind::Flow, request.flow_handle, kernel)?;
    Ok(Reply::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A specification of `kind` with this body.
    fn spec(kind: u16, body: &[u8]) -> Vec<u8> {
        let header = FlowSpecHdr { type_: kind.into(), size: (FlowSpecHdr::LEN + body.len()) as u16, reserved: 0 };
        [header.bytes(), body.to_vec()].concat()
    }

    fn parse(count: usize, bytes: &[u8]) -> Result<FlowRequest, Errno> {
        let (specs, actions) = (Vec::new(), Vec::new());
        let mut flow = FlowRequest { qp: 0, kind: FlowKind::Normal, priority: 0, flags: 0, specs, actions };
        add_specs(&mut flow, count, bytes).map(|()| flow)
    }

    #[test]
    fn specifications_are_as_many_and_as_long_as_they_say() {
        let udp = spec(0x41, &[0x13, 0x88, 0, 0, 0xff, 0xff, 0, 0]);
        assert_eq!(parse(2, &udp), refuse(libc::EINVAL), "one is missing");
        assert_eq!(parse(0, &udp), refuse(libc::EINVAL), "one is too many");
        assert_eq!(parse(1, &udp[..12]), refuse(libc::EINVAL), "it is cut off");
        assert_eq!(parse(1, &[0x41, 0, 0, 0, 7, 0, 0, 0]), refuse(libc::EINVAL), "shorter than its header");
        assert_eq!(parse(1, &spec(0x41, &[0; 6])), refuse(libc::EINVAL), "half a word of value");
        let expected = FlowSpec::Udp { value: [0x13, 0x88, 0, 0], mask: [0xff, 0xff, 0, 0] };
        assert_eq!(parse(1, &udp).map(|flow| flow.specs), Ok(vec![expected]));
    }

    #[test]
    fn older_clients_say_less_and_newer_ones_may_not_mean_more() {
        let addresses = [[10, 0, 0, 1, 10, 0, 0, 2], [255; 8]].concat();
        let value = [10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 0];
        let mask = [255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0];
        assert_eq!(parse(1, &spec(0x30, &addresses)).map(|flow| flow.specs), Ok(vec![FlowSpec::Ipv4 { value, mask }]));
        let longer = |last: u8| spec(0x40, &[0, 80, 0, 0, 9, 9, 9, 9, 255, 255, 0, 0, 0, 0, 0, last]);
        assert!(parse(1, &longer(0)).is_ok(), "a value without a mask means nothing");
        assert_eq!(parse(1, &longer(1)), refuse(libc::EOPNOTSUPP));
    }

    #[test]
    fn actions_are_marks_and_drops() {
        let tag = |tag: u32| spec(0x1000, &[tag.to_ne_bytes(), [0; 4]].concat());
        assert_eq!(parse(1, &tag(7)).map(|flow| flow.actions), Ok(vec![FlowAction::Tag(7)]));
        assert_eq!(parse(1, &tag(1 << 24)), refuse(libc::EINVAL), "24 bits reach the CQE");
        assert_eq!(parse(1, &spec(0x1001, &[])).map(|flow| flow.actions), Ok(vec![FlowAction::Drop]));
        assert_eq!(parse(1, &spec(0x1001, &[0; 8])), refuse(libc::EINVAL));
        assert_eq!(parse(1, &spec(0x1003, &[0; 8])), refuse(libc::EOPNOTSUPP), "no counters");
        assert_eq!(parse(1, &spec(0x50, &[0; 8])), refuse(libc::EOPNOTSUPP), "no tunnels");
    }
}
