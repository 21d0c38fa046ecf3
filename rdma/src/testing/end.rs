//! One end: a device, for each connection its queue pair and its memory, and where the connections
//! share their receives, one queue of them.

use core::net::Ipv4Addr;

use super::memory::GUARD;
use super::random::Random;
use crate::provider::Provider;
use crate::roce::{Access, Addresses, Binding, Buffer, CqHandle, Data, Destination, Device, DeviceConfig, Link};
use crate::roce::{Mr, Mtu, Mw, Path, PdHandle, QpAttributes, QpHandle, QpOptions, QpState, Region};
use crate::roce::{RoceFrame, SendOperation, SendRequest, Sge, SrqHandle, Status};
use crate::wire::opcode::Transport;
use crate::wire::packet::Packet;
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// Requests and receives that a queue holds, and slots for each.
pub(super) const DEPTH: usize = 8;
/// Times that a packet is sent before its connection fails.
pub(super) const TRIES: u32 = 8;
/// Bytes of a slot: the longest message.
pub(super) const SLOT: usize = 3072;

/// Where things are in the memory that the peer reaches: two words for atomic operations, bytes
/// that nobody writes, slots for WRITEs.
pub(super) const ADD_AT: usize = 0;
pub(super) const SWAP_AT: usize = 8;
pub(super) const CONSTANT_AT: usize = 64;
pub(super) const WRITE_AT: usize = CONSTANT_AT + SLOT;
const REMOTE_LEN: usize = WRITE_AT + DEPTH * SLOT;
/// In the memory that is our own: slots for requests, slots for receives.
pub(super) const RECEIVE_AT: usize = DEPTH * SLOT;
const LOCAL_LEN: usize = 2 * DEPTH * SLOT;
/// Receives that the connections of an end share.
const SHARED_DEPTH: usize = 2 * DEPTH;
/// The key of datagrams.
pub(super) const QKEY: u32 = 0x1234;

pub(super) struct End {
    pub(super) device: Device,
    pub(super) connections: Vec<Connection>,
    pub(super) shared: Option<Shared>,
}

/// A queue of receives for all connections.
pub(super) struct Shared {
    srq: SrqHandle,
    pub(super) memory: Buffer,
    mr: Mr,
    /// By their slots.
    is_posted: [bool; SHARED_DEPTH],
    /// None of it can have bytes of a message that was dropped.
    pub(super) is_clean: bool,
}

/// A connection, or two queue pairs that send each other datagrams.
pub(super) struct Connection {
    pub(super) transport: Transport,
    pd: PdHandle,
    pub(super) qp: QpHandle,
    pub(super) qpn: Qpn,
    pub(super) cq: CqHandle,
    /// What the peer reaches.
    pub(super) remote: Buffer,
    pub(super) remote_mr: Mr,
    /// The key that the peer has of it: that of the region, or of a window to all of it.
    pub(super) remote_key: u32,
    pub(super) window: Option<Mw>,
    pub(super) local: Buffer,
    pub(super) local_mr: Mr,
    pub(super) psn: Psn,
    /// Where datagrams go.
    pub(super) destination: Option<Destination>,
    /// Each request has a completion, wanted or not.
    pub(super) signals_all: bool,
    /// What `remote` was when its registration ended.
    pub(super) frozen: Option<Vec<u8>>,
    pub(super) is_destroyed: bool,
}

/// What both ends agree on.
pub(super) struct Agreement {
    pub(super) mtu: Mtu,
    pub(super) reads: u8,
    pub(super) timeout: u8,
    pub(super) rnr_timer: u8,
    pub(super) rnr_retry: u8,
    /// Peers reach memory through windows, over reliable connections.
    pub(super) windows: bool,
}

/// A piece of memory as one piece, or as two or three.
pub(super) fn pieces(whole: Sge, count: u32) -> Vec<Sge> {
    let part = whole.len / 3;
    let cuts = match count % 3 {
        _ if part == 0 => vec![whole.len],
        0 => vec![whole.len],
        1 => vec![part, whole.len],
        _ => vec![part, 2 * part, whole.len],
    };
    let begins = [0].into_iter().chain(cuts.clone());
    let piece = |(from, to): (u32, u32)| Sge { address: whole.address + u64::from(from), len: to - from, ..whole };
    begins.zip(cuts).map(piece).collect()
}

/// The byte `at` of memory that nobody writes.
pub(super) const fn constant(at: usize) -> u8 {
    (at * 13 + at / 256 + 1) as u8
}

impl End {
    pub(super) fn new(random: &mut Random, transports: &[Transport]) -> Self {
        let unacknowledged_packets = 1 + random.below(64) as u32;
        let config = DeviceConfig { unacknowledged_packets, key_seed: 1, ..DeviceConfig::default() };
        let mut device = Device::new(&config);
        let pd = device.create_pd().expect("room for a domain");
        let is_clean = !transports.contains(&Transport::Uc);
        let shared = (random.below(4) == 0).then(|| Shared::new(&mut device, pd, is_clean));
        let srq = shared.as_ref().map(|shared| shared.srq);
        let connection = |with: &Transport| Connection::new(random, &mut device, pd, *with, srq);
        let connections = transports.iter().map(connection).collect();
        Self { device, connections, shared }
    }

    /// Leads a queue pair to RTS; `own` is 0 or 1, the number of this end.
    pub(super) fn connect(&mut self, idx: usize, own: u8, peer: (Qpn, Psn), with: &Agreement) {
        let connection = &mut self.connections[idx];
        let link = Link { destination: [2 - own; 6], source: [1 + own; 6], vlan: None };
        let address = |end| Ipv4Addr::new(10, 0, 0, end);
        let addresses = Addresses::Ipv4 { source: address(1 + own), destination: address(2 - own) };
        let path = Path::new(link, addresses);
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let all = QpAttributes {
            qkey: Some(QKEY),
            access: Some(access),
            mtu: Some(with.mtu),
            rq_psn: Some(peer.1),
            max_dest_rd_atomic: Some(with.reads),
            min_rnr_timer: Some(with.rnr_timer),
            sq_psn: Some(connection.psn),
            max_rd_atomic: Some(with.reads),
            retry_cnt: Some(TRIES as u8 - 1),
            rnr_retry: Some(with.rnr_retry),
            timeout: Some(with.timeout),
            ..QpAttributes::connection(path, peer.0)
        };
        if connection.transport == Transport::Ud {
            let ah = self.device.create_ah(connection.pd, &path).expect("room for a handle");
            connection.destination = Some(Destination { ah, qpn: peer.0, qkey: QKEY });
        }
        let connected = self.device.connect_qp(connection.qp, connection.transport, &all);
        connected.expect("the steps of the manual page");
        if with.windows && self.connections[idx].transport == Transport::Rc {
            self.bind_window(idx, access);
        }
    }

    /// Gives the peer a window to what it reaches.
    fn bind_window(&mut self, idx: usize, access: Access) {
        let (connection, device) = (&mut self.connections[idx], &mut self.device);
        let window = device.create_mw(connection.pd).expect("room for a window");
        let Mr { address, len, key: region, .. } = connection.remote_mr;
        let binding = Binding { key: Mw::next_key(window.key), region, address, len, access };
        let request = SendRequest::new(0, SendOperation::BindWindow(binding), Data::Sges(&[]));
        device.post_send(connection.qp, &request).expect("an empty queue");
        let mut frame = vec![0; device.frame_len_max()];
        assert_eq!(device.transmit(0, &mut frame), None, "a binding is sent to nobody");
        let done = device.poll_cq(connection.cq).expect("a binding is done in its turn");
        assert_eq!(done.status, Status::Success);
        (connection.window, connection.remote_key) = (Some(window), binding.key);
    }

    /// The connection that a frame to this end belongs to.
    pub(super) fn connection_of(&self, frame: &[u8]) -> usize {
        let packet = RoceFrame::parse(frame).ok().and_then(|frame| Packet::parse(frame.roce).ok());
        let destination = packet.expect("a frame of a device").bth.destination();
        let is_it = |connection: &Connection| connection.qpn == destination;
        self.connections.iter().position(is_it).expect("a queue pair")
    }

    /// Ends the registration of what the peer reaches; it may not change any more.
    pub(super) fn freeze(&mut self, idx: usize) {
        let connection = &mut self.connections[idx];
        if let Some(window) = connection.window.take() {
            self.device.destroy_mw(window.handle).expect("a window");
        }
        if self.device.deregister(connection.remote_mr.handle).is_ok() {
            let mut bytes = vec![0; REMOTE_LEN];
            connection.remote.read(0, &mut bytes);
            connection.frozen = Some(bytes);
        }
    }

    /// Leads a queue pair back to RESET, and draws the number of its next first packet, so far from
    /// all before that none of these is taken for a new one.
    pub(super) fn reset(&mut self, random: &mut Random, idx: usize) {
        let connection = &mut self.connections[idx];
        self.device.modify_qp(connection.qp, &QpAttributes::to(QpState::Reset)).expect("a step from any state");
        connection.psn = connection.psn.plus((1 << 20) + random.below(14 << 20) as u32);
    }

    /// A receive that was given back may have bytes of a message that did not come to its end.
    pub(super) fn soil_shared(&mut self) {
        if let Some(shared) = &mut self.shared {
            shared.is_clean = false;
        }
    }

    pub(super) fn destroy(&mut self, idx: usize) {
        let connection = &mut self.connections[idx];
        connection.is_destroyed = self.device.destroy_qp(connection.qp).is_ok();
    }
}

impl Connection {
    fn new(
        random: &mut Random,
        device: &mut Device,
        pd: PdHandle,
        transport: Transport,
        srq: Option<SrqHandle>,
    ) -> Self {
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let cq = device.create_cq(4 * DEPTH as u32).expect("room for a queue");
        let (remote, local) = (Buffer::zeroed(REMOTE_LEN), Buffer::zeroed(LOCAL_LEN));
        remote.write(CONSTANT_AT, &(0..SLOT).map(constant).collect::<Vec<u8>>());
        let bindable = all | Access::MW_BIND;
        let remote_mr = device.register(pd, Region::from(&remote), bindable).expect("room for a region");
        let local_mr = device.register(pd, Region::from(&local), Access::LOCAL_WRITE).expect("room for a region");
        let signals_all = random.below(2) == 0;
        let options = QpOptions {
            transport,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: DEPTH as u32,
            recv_depth: DEPTH as u32,
            srq,
            signals_all,
        };
        let qp = device.create_qp(&options).expect("room for a queue pair");
        // Some wrap at once, some do soon.
        let psn = Psn::new(0xff_ffff - random.below(200) as u32);
        let qpn = device.qpn(qp).expect("a queue pair");
        Self {
            transport,
            pd,
            qp,
            qpn,
            cq,
            remote,
            remote_mr,
            remote_key: remote_mr.key,
            window: None,
            local,
            local_mr,
            psn,
            destination: None,
            signals_all,
            frozen: None,
            is_destroyed: false,
        }
    }

    /// True if memory that may not change has changed.
    pub(super) fn has_thawed(&self) -> bool {
        let mut bytes = vec![0; REMOTE_LEN];
        self.remote.read(0, &mut bytes);
        self.frozen.as_ref().is_some_and(|frozen| *frozen != bytes)
            || (0..SLOT).any(|at| bytes[CONSTANT_AT + at] != constant(at))
    }
}

impl Shared {
    fn new(device: &mut Device, pd: PdHandle, is_clean: bool) -> Self {
        let srq = device.create_srq(pd, SHARED_DEPTH as u32).expect("room for a queue");
        let memory = Buffer::zeroed(SHARED_DEPTH * SLOT);
        let region = Region::from(&memory);
        let mr = device.register(pd, region, Access::LOCAL_WRITE).expect("room for a region");
        Self { srq, memory, mr, is_posted: [false; SHARED_DEPTH], is_clean }
    }

    /// Posts a receive, if there is room.
    pub(super) fn post(&mut self, device: &mut Device) {
        let Some(slot) = self.is_posted.iter().position(|is_posted| !is_posted) else { return };
        let address = self.mr.address + (slot * SLOT) as u64;
        let sge = Sge { address, len: SLOT as u32, lkey: self.mr.key };
        self.memory.write(slot * SLOT, &[GUARD; SLOT]);
        let posted = device.post_srq_recv(self.srq, 1 << 32 | slot as u64, &pieces(sge, slot as u32));
        self.is_posted[slot] = posted.is_ok();
    }

    /// Receives that are neither complete nor in the queue: of messages that have begun.
    pub(super) fn in_use(&self, device: &Device) -> usize {
        let posted = self.is_posted.iter().filter(|is_posted| **is_posted).count();
        posted - device.srq_len(self.srq).expect("a shared queue") as usize
    }

    /// A receive is complete; returns where its memory begins, if it was posted.
    pub(super) fn complete(&mut self, wr_id: u64) -> Option<usize> {
        let slot = wr_id as u32 as usize;
        let was_posted = core::mem::take(self.is_posted.get_mut(slot)?);
        was_posted.then_some(slot * SLOT)
    }
}
