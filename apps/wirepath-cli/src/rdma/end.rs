//! One end: a port with a RoCE device, a queue pair, and memory that the peer may reach.

use std::error::Error;
use std::fmt;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use ::rdma::cable::{ACK_TIMEOUT, Carrier};
use ::rdma::cm::{CmConfig, Manager};
use ::rdma::port::{AnyProvider, RocePort, RocePortOptions, first_psn};
use ::rdma::provider::{Provider, RdmaCore};
use ::rdma::roce::{
    Access, Addresses, Buffer, CompletionKind, CqHandle, Data, Destination, Device, DeviceConfig, DeviceError, Event,
    GRH_LEN, Mr, Mtu, Path, PdHandle, QpAttributes, QpCounters, QpHandle, QpOptions, QpState, Region, Remote,
    SendOperation, SendRequest, Sge, SrqHandle, Status, WorkCompletion,
};
use ::rdma::wire::opcode::Transport;
use ::rdma::wire::psn::Psn;
use ::rdma::wire::qpn::Qpn;
use wirepath::worker::StopFlag;

use super::carried::{Carried, cable_path};
use super::exchange::Connection;
use super::over::Choice;
use super::pattern::Mark;
use super::{EndOptions, Service};

/// READs and atomic operations at once, in each direction: as many as the device has.
pub(super) const RD_ATOMICS: u8 = 16;
/// Receives that wait.
pub(super) const RECEIVES: u32 = 512;
/// How long ARP may take.
const NEIGHBOR_SPAN: Duration = Duration::from_secs(5);
/// The longest time without any completion: a peer that is gone ends its queue pair earlier, over a
/// reliable connection.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The same of a service that sends nothing again: one lost packet ends the game.
const SILENCE_MAX_UNRELIABLE: Duration = Duration::from_secs(10);
/// Four times the time to an acknowledgment, which a peer may take for one.
const QUIET_SPAN: Duration = Duration::from_millis(300);
/// How long a peer may go on behind the end.
const LINGER_MAX: Duration = Duration::from_secs(5);
/// The key of datagrams that the examples of rdma-core have.
const QKEY: u32 = 0x1111_1111;

/// One end of a connection.
pub(super) struct End {
    carried: Carried,
    carrier: Carrier,
    why: String,
    is_asked_for: bool,
    /// Why a cable carries nothing more.
    gone: Option<String>,
    via: String,
    service: Service,
    pd: PdHandle,
    cq: CqHandle,
    srq: Option<SrqHandle>,
    qp: QpHandle,
    /// Where datagrams go, once the peer is known.
    destination: Option<Destination>,
    /// The key of those that come.
    qkey: u32,
    memory: Buffer,
    mr: Mr,
    mtu: Mtu,
    /// Bytes of a message.
    size: u32,
    psn: Psn,
    stop: StopFlag,
}

/// What an end knows of its peer's queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerQp {
    pub(super) qpn: Qpn,
    pub(super) psn: Psn,
    /// Of the port that it is on.
    pub(super) address: Ipv4Addr,
    /// The largest payload that the peer takes.
    pub(super) mtu: Mtu,
    /// READs that it answers at once.
    pub(super) rd_atomics: u8,
}

impl End {
    /// Opens what carries the packets, with memory of `size` bytes, for `depth` messages that are
    /// sent at once.
    pub(super) fn open(
        options: &EndOptions,
        service: Service,
        (size, depth): (u32, u32),
        choice: Choice,
        stop: &StopFlag,
    ) -> Result<Self, Box<dyn Error>> {
        let (psn, is_asked_for) = (first_psn(), choice.is_asked_for);
        let Opened { mut carried, carrier, why, via, mtu } = open_carrier(options, choice, psn, stop)?;
        check_size(service, options.size, mtu)?;
        let device = carried.provider_mut();
        let pd = device.create_pd()?;
        let cq = device.create_cq(2 * (RECEIVES + depth))?;
        // perftest's tools reach for the whole of a page, whatever the message's length. The
        // registration keeps the memory.
        let memory = Buffer::zeroed(size.max(4096) as usize + GRH_LEN);
        let access = Access::LOCAL_WRITE | remote_access();
        let mr = device.register(pd, Region::from(&memory), access)?;
        let srq = if service == Service::Srq { Some(device.create_srq(pd, RECEIVES)?) } else { None };
        let qp = device.create_qp(&QpOptions {
            transport: service.transport(),
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: depth,
            recv_depth: RECEIVES,
            srq,
            signals_all: true,
        })?;
        device.modify_qp(qp, &init(service))?;
        if carrier == Carrier::RoceV2 {
            carried.publish(&carrier.to_string());
        }
        // Before the first turn the kernel has the frames, and refuses them: the peer, once it
        // knows us, may send while we wait for its word.
        carried.turn()?;
        Ok(Self {
            carried,
            carrier,
            why,
            is_asked_for,
            gone: None,
            via,
            service,
            pd,
            cq,
            srq,
            qp,
            destination: None,
            qkey: QKEY,
            memory,
            mr,
            mtu,
            size: options.size,
            psn,
            stop: stop.clone(),
        })
    }

    /// The way to `peer`: turns the worker until the neighbor is known.
    pub(super) fn path(&mut self, peer: Ipv4Addr) -> Result<Path, Box<dyn Error>> {
        let begun = Instant::now();
        loop {
            let Carried::Wire { any, .. } = &mut self.carried else { return Ok(cable_path()) };
            if let Some(path) = any.path(peer)? {
                return Ok(path);
            }
            if self.stop.is_stopping() {
                return Err("stopped before the peer's MAC address was known".into());
            }
            if begun.elapsed() >= NEIGHBOR_SPAN {
                return Err(format!("{peer} does not answer ARP: is the address right, and the link up?").into());
            }
            self.turn();
        }
    }

    /// Our address on a path.
    pub(super) fn address(path: &Path) -> Ipv4Addr {
        match path.addresses {
            Addresses::Ipv4 { source, .. } => source,
            _ => Ipv4Addr::UNSPECIFIED,
        }
    }

    /// Leads the queue pair to RTS.
    pub(super) fn connect(&mut self, peer: &PeerQp, path: Path) -> Result<(), Box<dyn Error>> {
        self.mtu = self.mtu.min(peer.mtu);
        check_size(self.service, self.size, self.mtu)?;
        let usual = QpAttributes::connection(path, peer.qpn);
        let connection = QpAttributes {
            mtu: Some(self.mtu),
            rq_psn: Some(peer.psn),
            sq_psn: Some(self.psn),
            max_dest_rd_atomic: Some(RD_ATOMICS),
            max_rd_atomic: Some(peer.rd_atomics.min(RD_ATOMICS)),
            timeout: if self.carried.is_cabled() { Some(ACK_TIMEOUT) } else { usual.timeout },
            ..usual
        };
        let (qp, pd) = (self.qp, self.pd);
        if self.is_datagram() {
            let ah = self.device().create_ah(pd, &path)?;
            self.destination = Some(Destination { ah, qpn: peer.qpn, qkey: self.qkey });
        }
        // In INIT it is, with receives.
        let [_, rtr, rts] = connection.steps(self.service.transport());
        self.device().modify_qp(qp, &rtr)?;
        self.device().modify_qp(qp, &rts)?;
        Ok(())
    }

    /// Takes datagrams of another key from now on.
    pub(super) fn take_qkey(&mut self, qkey: u32) -> Result<(), Box<dyn Error>> {
        let qp = self.qp;
        self.qkey = qkey;
        Ok(self.device().modify_qp(qp, &QpAttributes { qkey: Some(qkey), ..QpAttributes::to(QpState::Init) })?)
    }

    /// Leads a queue pair of datagrams to RTS; its own go to this queue pair of the peer, with this
    /// key.
    pub(super) fn open_datagrams(&mut self, path: Path, (qpn, qkey): (Qpn, u32)) -> Result<(), Box<dyn Error>> {
        let peer = PeerQp { qpn, psn: self.psn, address: Self::address(&path), mtu: self.mtu, rd_atomics: 0 };
        self.connect(&peer, path)?;
        if let Some(destination) = &mut self.destination {
            destination.qkey = qkey;
        }
        Ok(())
    }

    /// Datagrams go to this queue pair of the peer.
    pub(super) fn name_peer(&mut self, qpn: Qpn) {
        if let Some(destination) = &mut self.destination {
            destination.qpn = qpn;
        }
    }

    /// What a client must choose instead, when it knows by the mark of its peer's address who and
    /// what the peer has; `None` where the peer has the same.
    ///
    /// # Errors
    /// There is nothing that both have.
    pub(super) fn instead(&self, mark: Option<Mark>) -> Result<Option<Choice>, String> {
        let Self { carrier, why, .. } = self;
        match mark {
            None if self.carried.is_cabled() => Err(format!(
                "the peer is another program, which speaks RoCE alone, and here {carrier} was chosen, because {why}: \
                 name the port by --via, and run as root"
            )),
            Some(mark) if mark.carrier != *carrier && self.is_asked_for => Err(format!(
                "the peer has {}, and here {carrier} was chosen, because {why}: leave that out, or look why the peer \
                 has it not",
                mark.carrier
            )),
            Some(mark) if mark.carrier != *carrier => Ok(Some(Choice::of_peer(mark.carrier))),
            _ => Ok(None),
        }
    }

    /// Plugs in the cable to the peer, who does so too, and says what carries the queue pair now; a
    /// port needs no cable.
    pub(super) fn join(&mut self, connection: &mut Connection) -> Result<(), Box<dyn Error>> {
        if self.carrier == Carrier::SharedMemory
            && let Err(error) = self.carried.share_memory(connection)?
        {
            if self.is_asked_for {
                let what = "no memory is shared with the peer";
                return Err(format!("{what}: {error}; run both on one host as one user, or take --over tcp").into());
            }
            (self.carrier, self.why) = (Carrier::FramedTcp, format!("{}, but no memory is shared: {error}", self.why));
        }
        if self.carrier == Carrier::FramedTcp {
            self.carried.frame_in_tcp(connection).map_err(|error| format!("{}: {error}", self.why))?;
        }
        if self.carrier != Carrier::RoceV2 {
            self.carried.publish(&self.carrier.to_string());
        }
        let by = match self.carried {
            Carried::Wire { any: AnyProvider::Nic(..), .. } => self.by(),
            _ => self.carrier.to_string(),
        };
        eprintln!("wirepath: queue pair {:#x}: {by}, because {}", self.qpn().get(), self.why);
        Ok(())
    }

    /// True at the end of a cable.
    pub(super) fn is_cabled(&self) -> bool {
        self.carried.is_cabled()
    }

    /// Why a client goes whom its server has told that it has another carrier.
    pub(super) fn refused(&self, error: &dyn fmt::Display) -> String {
        format!("{error}: it wants another way than {}, which is here because {}", self.carrier, self.why)
    }

    /// Why the cable carries nothing more, if it is so.
    pub(super) fn gone(&self) -> Option<&str> {
        self.gone.as_deref()
    }

    /// What carries the packets.
    pub(super) fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Leads the queue pair back to INIT, without receives: for another connection.
    pub(super) fn renew(&mut self) -> Result<(), Box<dyn Error>> {
        let (qp, service) = (self.qp, self.service);
        self.device().modify_qp(qp, &QpAttributes::to(QpState::Reset))?;
        self.device().modify_qp(qp, &init(service))?;
        // What was flushed.
        while self.next_completion().is_some() {}
        Ok(())
    }

    /// Calls the connection manager, with the time and the device that it connects.
    pub(super) fn with_manager<T>(&mut self, call: impl FnOnce(u64, &mut Manager, &mut Device) -> T) -> T {
        let Carried::Wire { any: AnyProvider::Port(port), .. } = &mut self.carried else {
            unreachable!("a manager is made with a port")
        };
        port.with_manager(call).expect("a port is opened with a manager")
    }

    /// What carries the packets, in words.
    pub(super) fn by(&self) -> String {
        match (&self.carried, self.carrier) {
            (Carried::Wire { any: AnyProvider::Nic(..), .. }, _) => format!("RoCEv2 by the NIC {}", self.via),
            (_, Carrier::RoceV2) => format!("{} over {}", self.carrier, self.via),
            (_, carrier) => carrier.to_string(),
        }
    }

    /// What was sent again, and what was dropped, in words.
    pub(super) fn losses(&self) -> String {
        let Some(device) = self.carried.device() else { return self.nic_counts() };
        let counters = self.counters();
        let naks: u64 = counters.naks_rx.iter().sum();
        format!(
            "{} packets sent again, {} timeouts, {naks} NAKs, {} RNR NAKs; {}",
            counters.retransmits,
            counters.timeouts,
            counters.rnr_naks_rx,
            drops(device)
        )
    }

    /// What has arrived, and what was dropped, in words.
    pub(super) fn arrivals(&self) -> String {
        let Some(device) = self.carried.device() else { return self.nic_counts() };
        let counters = self.counters();
        format!(
            "{} packets arrived, {} duplicates, {} out of sequence; {}",
            counters.packets_rx,
            counters.duplicates,
            counters.out_of_sequence,
            drops(device)
        )
    }

    /// Where the packets of a NIC are counted.
    fn nic_counts(&self) -> String {
        format!("packets are counted in /sys/class/infiniband/{}/ports/1/hw_counters", self.via)
    }

    /// The queue pair.
    pub(super) fn qp(&self) -> QpHandle {
        self.qp
    }

    /// The memory that requests name.
    pub(super) fn memory(&self) -> &Buffer {
        &self.memory
    }

    /// Where a part of our memory is, as the peer names it.
    pub(super) fn remote_at(&self, at: usize) -> Remote {
        Remote { address: self.mr.address + at as u64, rkey: self.mr.key }
    }

    /// Posts a request from, or into, a part of our memory.
    pub(super) fn post_at(&mut self, operation: SendOperation, at: usize, len: u32) -> Result<(), Box<dyn Error>> {
        let (qp, address) = (self.qp, self.remote_at(at).address);
        let sge = [Sge { address, len, lkey: self.mr.key }];
        let request = SendRequest { destination: self.destination, ..SendRequest::new(0, operation, Data::Sges(&sge)) };
        Ok(self.device().post_send(qp, &request)?)
    }

    /// Posts a receive into a part of our memory.
    pub(super) fn post_recv_at(&mut self, at: usize, len: u32) -> Result<(), Box<dyn Error>> {
        let (qp, address) = (self.qp, self.remote_at(at).address);
        let sge = [Sge { address, len, lkey: self.mr.key }];
        Ok(self.device().post_recv(qp, 0, &sge)?)
    }

    fn device(&mut self) -> &mut dyn Provider {
        self.carried.provider_mut()
    }

    pub(super) fn qpn(&self) -> Qpn {
        self.carried.provider().qpn(self.qp).unwrap_or(Qpn::new(0))
    }

    pub(super) fn psn(&self) -> Psn {
        self.psn
    }

    /// The largest payload of a packet: that of the link, and of both once they are connected.
    pub(super) fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// Our memory, as the peer names it.
    pub(super) fn remote(&self) -> Remote {
        Remote { address: self.mr.address, rkey: self.mr.key }
    }

    /// What the queue pair counted.
    pub(super) fn counters(&self) -> QpCounters {
        self.carried.device().and_then(|device| device.qp_counters(self.qp)).unwrap_or_default()
    }

    /// One turn of the worker; yields the core while nothing arrives.
    pub(super) fn turn(&mut self) {
        match self.carried.turn() {
            Ok(0) => thread::yield_now(),
            Ok(_) => (),
            Err(error) => {
                self.gone = Some(error.to_string());
                thread::yield_now();
            }
        }
    }

    /// Answers on until nothing has come for longer than a peer waits before it sends again: it may
    /// lack our last acknowledgment, and Linux rxe asks for that for ever. Frames that go by TCP
    /// may not have left.
    pub(super) fn linger(&mut self) {
        let (begun, mut heard, mut packets) = (Instant::now(), Instant::now(), self.counters().packets_rx);
        let is_over = |heard: Instant| heard.elapsed() >= QUIET_SPAN || begun.elapsed() >= LINGER_MAX;
        // A NIC answers without us, for as long as its queue pair is there.
        let has_rest = self.service.is_reliable() || self.carrier == Carrier::FramedTcp;
        while has_rest && !is_over(heard) && !self.is_stopping() {
            self.turn();
            let now = self.counters().packets_rx;
            if now != packets {
                (heard, packets) = (Instant::now(), now);
            }
        }
    }

    /// True for datagrams, whose receives have a header in front.
    pub(super) fn is_datagram(&self) -> bool {
        self.service == Service::Ud
    }

    /// Bytes in front of a message in memory: those of the header of a datagram.
    pub(super) fn header_len(&self) -> usize {
        self.service.header_len()
    }

    /// Posts a request from, or into, the beginning of our memory.
    pub(super) fn post(&mut self, operation: SendOperation, len: u32) -> Result<(), Box<dyn Error>> {
        self.post_at(operation, self.header_len(), len)
    }

    /// Posts a receive of `len` bytes, behind the header of a datagram at `at`.
    pub(super) fn post_recv(&mut self, at: usize, len: u32) -> Result<(), Box<dyn Error>> {
        let (qp, len) = (self.qp, self.header_len() as u32 + len);
        let sge = [Sge { address: self.mr.address + at as u64, len, lkey: self.mr.key }];
        let posted = match self.srq {
            Some(srq) => self.device().post_srq_recv(srq, 0, &sge),
            None => self.device().post_recv(qp, 0, &sge),
        };
        Ok(posted?)
    }

    /// A completion that is there.
    pub(super) fn poll(&mut self) -> Result<Option<WorkCompletion>, Box<dyn Error>> {
        // Before the completions, which say only that the queue pair has failed, and not why.
        self.check_events()?;
        match self.completion()? {
            Some(done) if done.status != Status::Success => {
                // Of a NIC none was looked for in most turns.
                self.carried.look_now();
                self.check_events()?;
                Err(failure(done).into())
            }
            done => Ok(done),
        }
    }

    /// Fails for an event behind which no test goes on.
    fn check_events(&mut self) -> Result<(), Box<dyn Error>> {
        while let Some(event) = self.carried.next_event()? {
            if let Some(why) = fault(event) {
                return Err(why.into());
            }
        }
        Ok(())
    }

    /// A completion that is there, also one that failed.
    fn completion(&mut self) -> Result<Option<WorkCompletion>, DeviceError> {
        let cq = self.cq;
        self.device().poll_cq(cq)
    }

    /// The same of a device in software, whose queues do not fail so.
    pub(super) fn next_completion(&mut self) -> Option<WorkCompletion> {
        self.completion().ok().flatten()
    }

    /// Turns the worker until something completes.
    pub(super) fn wait(&mut self) -> Result<WorkCompletion, Box<dyn Error>> {
        self.until(Self::poll)
    }

    /// The same, with something else to look at in each turn.
    pub(super) fn wait_beside(
        &mut self,
        mut look: impl FnMut(&mut Self) -> Result<(), Box<dyn Error>>,
    ) -> Result<WorkCompletion, Box<dyn Error>> {
        self.until(|end| {
            look(end)?;
            end.poll()
        })
    }

    /// Turns the worker until the byte of our memory at `at` is this one: the peer has written it.
    pub(super) fn wait_for_byte(&mut self, at: usize, byte: u8) -> Result<(), Box<dyn Error>> {
        self.until(|end| {
            end.check_events()?;
            let mut found = [0];
            end.memory.read(at, &mut found);
            Ok((found == [byte]).then_some(()))
        })
    }

    /// Turns the worker until there is what is looked for.
    fn until<T>(
        &mut self,
        mut find: impl FnMut(&mut Self) -> Result<Option<T>, Box<dyn Error>>,
    ) -> Result<T, Box<dyn Error>> {
        let begun = Instant::now();
        let (silence_max, why) = match self.service.transport() {
            Transport::Rc => (SILENCE_MAX, "the peer is silent"),
            _ => (SILENCE_MAX_UNRELIABLE, "a packet was lost, and this service sends none again"),
        };
        while begun.elapsed() < silence_max {
            if let Some(found) = find(self)? {
                return Ok(found);
            }
            if let Some(why) = &self.gone {
                return Err(why.clone().into());
            }
            if self.stop.is_stopping() {
                return Err("stopped before the end".into());
            }
            self.turn();
        }
        Err(format!("nothing came for {} s: {why}", silence_max.as_secs()).into())
    }

    /// Whether Ctrl-C was pressed.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_stopping()
    }
}

/// What carries an end.
struct Opened {
    carried: Carried,
    carrier: Carrier,
    why: String,
    via: String,
    mtu: Mtu,
}

/// Opens the port, or a cable. Where nothing was chosen, the port, and TCP where it cannot be
/// opened.
fn open_carrier(
    options: &EndOptions,
    Choice { carrier, why, .. }: Choice,
    psn: Psn,
    stop: &StopFlag,
) -> Result<Opened, Box<dyn Error>> {
    if let Some(name) = &options.device {
        let nic = open_nic(name)?;
        let mtu = options.mtu_on(nic.mtu()?)?;
        return Ok(Opened {
            carried: Carried::by_nic(nic, options.traffic_class),
            carrier: Carrier::RoceV2,
            why,
            via: name.clone(),
            mtu,
        });
    }
    let cable_mtu = options.mtu.unwrap_or(Mtu::B4096);
    let by_cable = |carrier, why| {
        let config = DeviceConfig { mtu: cable_mtu, rd_atomics: RD_ATOMICS, ..DeviceConfig::default() };
        let carried = Carried::by_cable(Device::new(&config));
        Opened { carried, carrier, why, via: String::new(), mtu: cable_mtu }
    };
    if let Some(carrier @ (Carrier::SharedMemory | Carrier::FramedTcp)) = carrier {
        return Ok(by_cable(carrier, why));
    }
    let via = options.port_of_ours()?;
    match open_port(&via, options, psn, stop) {
        Ok(port) => {
            let mtu = port.mtu();
            Ok(Opened {
                carried: Carried::by_wire(AnyProvider::Port(Box::new(port))),
                carrier: Carrier::RoceV2,
                why,
                via,
                mtu,
            })
        }
        Err(error) if carrier.is_none() => Ok(by_cable(Carrier::FramedTcp, format!("{via} was not opened: {error}"))),
        Err(error) => Err(error.into()),
    }
}

/// Opens a NIC by its name.
pub(super) fn open_nic(name: &str) -> Result<RdmaCore, String> {
    RdmaCore::open(name).map_err(|error| format!("{name}: {error}"))
}

fn open_port(via: &str, options: &EndOptions, psn: Psn, stop: &StopFlag) -> Result<RocePort, String> {
    let traffic_class = options.traffic_class;
    // By the time too, so that no message to an earlier process names a connection of ours.
    let manager = CmConfig { connections: 8, seed: psn.get().into(), traffic_class, ..CmConfig::default() };
    let options = RocePortOptions {
        device: DeviceConfig { rd_atomics: RD_ATOMICS, ..DeviceConfig::default() },
        mtu: options.mtu,
        manager: Some(manager),
        traffic_class: Some(traffic_class),
        stop: Some(stop.clone()),
        ..RocePortOptions::new("rdma")
    };
    RocePort::open(via, &options)
}

/// Whether a message fits where it must be one packet.
fn check_size(service: Service, size: u32, mtu: Mtu) -> Result<(), String> {
    if service == Service::Ud && size > mtu.bytes() {
        return Err(format!("a datagram is one packet, of up to {mtu} bytes between these ends: choose --size"));
    }
    Ok(())
}

fn init(service: Service) -> QpAttributes {
    match service {
        Service::Ud => QpAttributes::datagrams(QKEY).steps(Transport::Ud)[0],
        _ => QpAttributes::init(remote_access()),
    }
}

fn remote_access() -> Access {
    Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// Why no test can go on behind this event; `None` where it can.
const fn fault(event: Event) -> Option<&'static str> {
    match event {
        Event::CqError(_) => Some("the completion queue overran: the peer sends faster than this end takes"),
        Event::QpFatal(_) => Some("the queue pair failed of an error of our own"),
        Event::QpRequestError(_) => Some("the peer sent a request that this end does not take, and was refused"),
        Event::QpAccessError(_) => Some("the peer reached for memory without the right to, and was refused"),
        _ => None,
    }
}

/// What became of packets that no queue pair got, in words.
fn drops(device: &Device) -> String {
    let counters = device.counters();
    let dropped = counters.malformed
        + counters.unknown_qp
        + counters.qp_state
        + counters.pkey_violations
        + counters.wrong_transport
        + counters.wrong_address
        + counters.qkey_violations;
    format!("{} packets with a wrong ICRC, {dropped} dropped", counters.icrc_errors)
}

pub(super) fn failure(done: WorkCompletion) -> String {
    let what = match done.kind {
        CompletionKind::Receive | CompletionKind::ReceiveWriteImm => "a receive",
        _ => "a request",
    };
    format!("{what} of queue pair {:#x} failed: {}", done.qpn.get(), done.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An end by a NIC of this name, with one receive.
    fn by_nic(name: &str) -> End {
        let options = EndOptions {
            peer: None,
            serve: true,
            via: None,
            device: Some(name.to_owned()),
            over: super::super::over::Over::Auto,
            size: 64,
            count: 1,
            depth: 1,
            mtu: None,
            traffic_class: 0,
            cm: false,
            port: None,
        };
        let mut end = End::open(&options, Service::Rc, (64, 4), Choice::port(), &StopFlag::new()).unwrap();
        end.post_recv(0, 64).unwrap();
        end
    }

    fn gid(end: &End) -> std::net::Ipv6Addr {
        let Carried::Wire { any: AnyProvider::Nic(nic, _), .. } = &end.carried else { panic!("no NIC") };
        nic.gids().next().unwrap()
    }

    /// The completion says only that the receive was flushed.
    #[test]
    fn failure_by_a_nic_has_its_reason() {
        if !softhca::testing::is_inside(
            "rdma::end::tests::failure_by_a_nic_has_its_reason",
            &["--strict", "--devices", "2"],
        ) {
            return;
        }
        let mut ends = ["mlx5_0", "mlx5_1"].map(by_nic);
        for (own, other) in [(0, 1), (1, 0)] {
            let [source, destination] = [own, other].map(|end: usize| gid(&ends[end]));
            let link = ::rdma::roce::Link { destination: [0; 6], source: [0; 6], vlan: None };
            let path = Path::new(link, Addresses::Ipv6 { source, destination });
            let (qpn, psn, mtu) = (ends[other].qpn(), ends[other].psn(), ends[other].mtu());
            let peer = PeerQp { qpn, psn, address: Ipv4Addr::UNSPECIFIED, mtu, rd_atomics: 1 };
            ends[own].connect(&peer, path).unwrap();
        }
        let [near, far] = &mut ends;
        let remote = Remote { rkey: far.mr.key ^ 0xff00, ..far.remote() };
        near.post(SendOperation::Write(remote), 8).unwrap();
        let why = near.wait().unwrap_err().to_string();
        assert!(why.contains("remote access error"), "{why}");
        let why = far.wait().unwrap_err().to_string();
        assert_eq!(Some(why.as_str()), fault(Event::QpAccessError(far.qp)));
    }

    #[test]
    fn events_that_end_a_test_say_why_and_others_end_none() {
        let mut device = Device::new(&DeviceConfig::default());
        let (pd, cq) = (device.create_pd().unwrap(), device.create_cq(1).unwrap());
        let options = QpOptions {
            transport: Transport::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 1,
            recv_depth: 1,
            srq: None,
            signals_all: true,
        };
        let qp = device.create_qp(&options).unwrap();
        for event in [Event::CqError(cq), Event::QpFatal(qp), Event::QpRequestError(qp), Event::QpAccessError(qp)] {
            assert!(fault(event).is_some(), "{event:?}");
        }
        for event in [Event::CommunicationEstablished(qp), Event::SendQueueDrained(qp), Event::LastWqeReached(qp)] {
            assert_eq!(fault(event), None, "{event:?}");
        }
    }
}
