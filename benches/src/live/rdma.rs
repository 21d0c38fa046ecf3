//! One request of 64 bytes by RDMA over a veth pair, from its post to its completion, while both
//! ends spin: two RoCE devices of ours on AF_XDP ports, beside TCP's request and response
//! ([`tcp_round_trip`](super::tcp_round_trip)) in the same run. The far end's worker answers a READ
//! without its application.

use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::fmt;
use std::sync::mpsc::{self, Receiver, Sender};

use rdma::port::{RocePort, RocePortOptions, first_psn};
use rdma::provider::Provider;
use rdma::roce::{
    Access, Buffer, CqHandle, Data, Device, Mr, Path, QpAttributes, QpHandle, QpOptions, Region, Remote, SendOperation,
    SendRequest, Sge, Status,
};
use rdma::wire::opcode::Transport;
use rdma::wire::psn::Psn;
use rdma::wire::qpn::Qpn;
use wirepath::device::af_xdp::{AfXdpConfig, Mode};
use wirepath::port::Port;
use wirepath::worker::live::{LiveConfig, PortConfig};

use super::pair::{FAR, NEAR};
use super::round_trip::{Times, beside, times, until};
use super::sys;

/// Bytes of a request.
const LEN: u32 = 64;
const MEMORY: usize = 4_096;

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Brings bytes of the far end's memory.
    Read,
    /// Places bytes there. It is complete when the far end has acknowledged it.
    Write,
}

/// The times of `count` requests, one after the other.
///
/// # Errors
/// Why they could not be measured.
pub fn requests(cores: [usize; 2], request: Request, count: usize) -> Result<Times, String> {
    let (to_server, from_client) = mpsc::channel();
    let (to_client, from_server) = mpsc::channel();
    let serve = move |ready: &AtomicBool, stopping: &AtomicBool| serve((&to_client, &from_client), ready, stopping);
    beside(cores, serve, move || ask((&to_server, &from_server), request, count))
}

/// What one end tells the other about itself.
#[derive(Clone, Copy)]
struct Name {
    qpn: Qpn,
    psn: Psn,
    memory: Remote,
}

/// A port with a device, a queue pair, and memory that the peer may reach.
struct Side {
    port: RocePort<LiveConfig>,
    cq: CqHandle,
    qp: QpHandle,
    mr: Mr,
    psn: Psn,
}

impl Side {
    fn open(interface: &str) -> Result<Self, String> {
        // As in the runs of TCP beside it: in native mode a veth delivers by its NAPI, for which a
        // thread that spins before all others leaves no time.
        let device = AfXdpConfig { mode: Mode::Generic, ..AfXdpConfig::new(interface) };
        let port = Port::from_config(LiveConfig::over(PortConfig::AfXdp(device)));
        let options = RocePortOptions { rows: 0, ..RocePortOptions::new("rdma-bench") };
        let mut port = RocePort::over(port, interface, &options)?;
        let device = port.device_mut();
        let (pd, cq) = (device.create_pd().map_err(text)?, device.create_cq(16).map_err(text)?);
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let mr = device.register(pd, Region::from(&Buffer::zeroed(MEMORY)), access).map_err(text)?;
        let options = QpOptions {
            transport: Transport::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 4,
            recv_depth: 1,
            srq: None,
            signals_all: true,
        };
        let qp = device.create_qp(&options).map_err(text)?;
        Ok(Self { port, cq, qp, mr, psn: first_psn() })
    }

    fn device(&mut self) -> &mut Device {
        self.port.device_mut()
    }

    fn name(&mut self) -> Result<Name, String> {
        let qp = self.qp;
        let qpn = self.device().qpn(qp).ok_or("the queue pair has no number")?;
        Ok(Name { qpn, psn: self.psn, memory: Remote { address: self.mr.address, rkey: self.mr.key } })
    }

    fn path(&mut self, peer: Ipv4Addr) -> Result<Path, String> {
        let mut found = Err(format!("{peer} does not answer ARP"));
        until(|| {
            self.port.turn();
            let Some(known) = self.port.path(peer).transpose() else { return false };
            found = known.map_err(text);
            true
        });
        found
    }

    fn connect(&mut self, peer: Ipv4Addr, theirs: Name) -> Result<(), String> {
        let connection = QpAttributes {
            rq_psn: Some(theirs.psn),
            sq_psn: Some(self.psn),
            mtu: Some(self.port.mtu()),
            access: Some(Access::REMOTE_READ | Access::REMOTE_WRITE),
            ..QpAttributes::connection(self.path(peer)?, theirs.qpn)
        };
        let qp = self.qp;
        self.device().connect_qp(qp, Transport::Rc, &connection).map_err(text)
    }

    /// One request, to its completion.
    fn request(&mut self, operation: SendOperation) -> bool {
        let (cq, qp, sge) = (self.cq, self.qp, [Sge { address: self.mr.address, len: LEN, lkey: self.mr.key }]);
        if self.device().post_send(qp, &SendRequest::new(0, operation, Data::Sges(&sge))).is_err() {
            return false;
        }
        let mut status = None;
        until(|| {
            self.port.turn();
            status = self.device().poll_cq(cq).map(|completion| completion.status);
            status.is_some()
        });
        status == Some(Status::Success)
    }
}

type Names<'a> = (&'a Sender<Name>, &'a Receiver<Name>);

/// Answers until stopped. Neither end is real-time before both are connected: the port's helper,
/// which reads the kernel's neighbors, has no real-time policy, and would wait on a core that
/// spins.
fn serve((names, theirs): Names<'_>, ready: &AtomicBool, stopping: &AtomicBool) -> Result<(), String> {
    sys::run_with_others();
    let mut side = Side::open(FAR.interface)?;
    names.send(side.name()?).map_err(text)?;
    ready.store(true, Ordering::Release);
    while !stopping.load(Ordering::Relaxed) {
        side.port.turn();
        if let Ok(name) = theirs.try_recv() {
            side.connect(NEAR.address, name)?;
            names.send(side.name()?).map_err(text)?;
            sys::run_first();
        }
    }
    Ok(())
}

fn ask((names, theirs): Names<'_>, request: Request, count: usize) -> Result<Times, String> {
    sys::run_with_others();
    let mut side = Side::open(NEAR.interface)?;
    let server = theirs.recv().map_err(text)?;
    side.connect(FAR.address, server)?;
    names.send(side.name()?).map_err(text)?;
    // The server says its name again when it is connected.
    theirs.recv().map_err(text)?;
    sys::run_first();
    let operation = match request {
        Request::Read => SendOperation::Read(server.memory),
        Request::Write => SendOperation::Write(server.memory),
    };
    Ok(Times::of(times(count, &mut || side.request(operation))?))
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}
