//! The incumbent: a raw-packet queue pair driven through libmlx5's `ibv_post_send`, `ibv_post_recv`
//! and `ibv_poll_cq`, as any program with verbs drives it.
//!
//! The comparison favors it: requests are written once and posted again and again, and the contents
//! of completions are not read.

use core::net::SocketAddrV4;
use core::ptr::NonNull;
use std::sync::Arc;

use rdma_core_sys::RdmaCore;
use rdma_core_sys::bindings::{ibv_recv_wr, ibv_send_wr, ibv_sge};
use rdma_core_sys::verbs::{
    Access, CompletionQueue, CqRequest, EthernetMatch, Flow, FlowRule, Ipv4Match, MemoryRegion, PortsMatch,
    ProtectionDomain, QpCaps, QpRequest, QpState, QueuePair,
};
use wirepath::wire::MacAddr;

use super::calls::{Objects, Ring};
use super::{RING, Receive, Send, frame_to};

/// Bytes of a buffer.
const BUFFER_LEN: usize = 2048;

/// Sends.
pub struct VerbsSender(Ring<ibv_send_wr>);

/// Receives.
pub struct VerbsReceiver(Ring<ibv_recv_wr>);

impl VerbsSender {
    /// Opens a device, with frames to `group`.
    ///
    /// # Errors
    /// The device refused a request.
    pub fn open(device: &str, group: SocketAddrV4) -> Result<Self, Error> {
        let frame = frame_to(group);
        let caps = QpCaps { send_wr_max: RING as u32, send_sge_max: 1, ..QpCaps::default() };
        let (objects, entries) = open(device, caps, &frame, frame.len())?;
        Ok(Self(Ring::of_frames(objects, entries)))
    }
}

impl VerbsReceiver {
    /// Opens a device, for frames to `group`.
    ///
    /// # Errors
    /// The device refused a request.
    pub fn open(device: &str, group: SocketAddrV4) -> Result<Self, Error> {
        let caps = QpCaps { receive_wr_max: RING as u32, receive_sge_max: 1, ..QpCaps::default() };
        let (mut objects, entries) = open(device, caps, &[], BUFFER_LEN)?;
        let mac = MacAddr::multicast_ipv4(*group.ip());
        let ethernet = EthernetMatch { destination: Some(mac.0), ..EthernetMatch::default() };
        let ipv4 = Ipv4Match { destination: Some(group.ip().octets()), ..Ipv4Match::default() };
        let ports = PortsMatch { destination: Some(group.port()), ..PortsMatch::default() };
        let rule = FlowRule::new(1).ethernet(ethernet).ipv4(ipv4).udp(ports);
        objects.flow = Some(Flow::create(&objects.qp, &rule)?);
        Ok(Self(Ring::of_buffers(objects, entries)))
    }
}

impl Send for VerbsSender {
    fn prepare(&mut self) {}

    #[inline(always)]
    fn send(&mut self) {
        self.0.send();
    }
}

impl Receive for VerbsReceiver {
    #[inline(always)]
    fn receive(&mut self) -> usize {
        self.0.receive()
    }

    fn clear(&mut self, received: usize) {
        assert_eq!(self.0.failure(received), None, "a frame completed with an error");
    }
}

/// Why there is no queue pair.
pub type Error = Box<dyn core::error::Error>;

/// A queue pair that may send and receive, and a registered buffer for each slot of its ring, which
/// begins with `contents`.
fn open(device: &str, caps: QpCaps, contents: &[u8], len: usize) -> Result<(Objects, Box<[ibv_sge]>), Error> {
    let devices = RdmaCore::load()?.devices()?;
    let context = devices.by_name(device).ok_or_else(|| format!("there is no {device}"))?.open()?;
    let pd = ProtectionDomain::allocate(&context)?;
    let mut buffers = vec![[0; BUFFER_LEN]; RING];
    buffers.iter_mut().for_each(|buffer| buffer[..contents.len()].copy_from_slice(contents));
    let buffers = Arc::new(buffers);
    let start = NonNull::from(&buffers[0]).cast();
    let region = MemoryRegion::register(&pd, start, RING * BUFFER_LEN, Access::default(), buffers)?;
    let cq = CompletionQueue::create(&context, &CqRequest::new(RING as u32))?;
    let qp = QueuePair::create(&QpRequest { caps, ..QpRequest::new(&pd, &cq, &cq) })?;
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        qp.to_state(state, 1)?;
    }
    let entry = |idx| ibv_sge {
        addr: start.as_ptr().expose_provenance() as u64 + (idx * BUFFER_LEN) as u64,
        length: len as u32,
        lkey: region.lkey(),
    };
    let entries = (0..RING).map(entry).collect();
    Ok((Objects { flow: None, qp, cq, _region: region }, entries))
}
