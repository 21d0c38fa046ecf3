//! The standby's side of a copy that the primary writes by RDMA: it holds the memory, and looks at
//! it when it takes over.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use order_entry::journal::{HEADER_LEN, Mark, Records};
use rdma::port::first_psn;
use rdma::provider::Provider;
use rdma::roce::{Access, CqHandle, Mr, Mtu, QpAttributes, QpHandle, QpOptions};
use rdma::wire::opcode::Transport;
use rdma::wire::psn::Psn;
use rdma::wire::qpn::Qpn;

use super::frame::{Frame, LastRecord, RdmaEnd, take_frames};
use super::link::name;
use super::promise::{Followed, Promise, SILENCE_NS};
use super::secret::{Role, proven};
use super::session::{Asked, Session};
use super::writer::MirrorPolicy;
use crate::config::MirrorConfig;
use crate::host::{Host, Listener, Stream, is_nothing};
use crate::kernel::{Kernel, listen};
use crate::memory::{MappedFile, SharedFile};
use crate::rdma_port::RdmaPort;

/// How long ARP may take.
const NEIGHBOR_NS: u64 = Duration::from_secs(2).as_nanos() as u64;

/// Holds the copy at `memory` for a primary that connects to `address`, until this process must
/// take over, or end. `stop` ends it. The memory is nobody's any more when this returns.
///
/// # Errors
///
/// The memory is no journal, the address is taken, or the port of `section` cannot be opened.
pub fn hold(
    address: SocketAddrV4,
    section: &MirrorConfig,
    memory: MappedFile,
    stop: impl Fn() -> bool,
    mut report: impl FnMut(&str),
) -> Result<Followed, String> {
    let secret = section.secret().map_err(|error| error.to_string())?;
    let listener = listen(address).map_err(|error| format!("cannot listen at {address}: {error}"))?;
    let listener = proven(listener, secret, Role::Mirror);
    let mut holder = Holder::new(*address.ip(), section, memory)?;
    let kernel = Kernel::start();
    report(&format!("holds a mirror at rdma://{address}"));
    loop {
        if let Some(followed) = holder.turn(&*listener, &kernel, &mut report) {
            holder.close();
            return Ok(followed);
        }
        if stop() {
            holder.leave();
            return Ok(Followed::Ended);
        }
    }
}

/// The copy: in our hands, or written by a primary.
enum Copy {
    Ours(MappedFile),
    Shared(SharedFile, Mr, QpHandle),
}

struct Holder {
    ip: Ipv4Addr,
    standby: u64,
    port: RdmaPort,
    /// Nothing is ever in it: a peer that writes completes nothing here.
    cq: CqHandle,
    /// `None` only while it changes hands.
    copy: Option<Copy>,
    /// Behind the last record that was seen in it: it only grows, so it is not read again.
    seen: Option<(Mark, LastRecord)>,
    promise: Promise,
    stream: Option<Box<dyn Stream>>,
    session: Session,
    /// The primary's queue pair, and when its MAC address was first asked for.
    connects: Option<(RdmaEnd, u64)>,
    /// Orders do not wait for this copy.
    goes_on: bool,
    /// Why the last connection ended, until one has come further.
    ended: String,
    psn: Psn,
    pending: Vec<u8>,
    out: Vec<u8>,
}

impl Holder {
    fn new(ip: Ipv4Addr, section: &MirrorConfig, memory: MappedFile) -> Result<Self, String> {
        let standby = name(&memory).map_err(|error| error.to_string())?;
        // It is refused now, and not when a primary comes.
        let seen = look(memory.as_ref(), None)?;
        let mut port = RdmaPort::open(&section.via, section.traffic_class).map_err(|error| error.to_string())?;
        let cq = port.device().create_cq(4).map_err(|error| error.to_string())?;
        Ok(Self {
            ip,
            standby,
            port,
            cq,
            copy: Some(Copy::Ours(memory)),
            seen,
            promise: Promise::default(),
            stream: None,
            session: Session::default(),
            connects: None,
            goes_on: section.policy() == MirrorPolicy::GoOn,
            ended: String::new(),
            psn: first_psn(),
            pending: Vec::new(),
            out: Vec::new(),
        })
    }

    /// One turn of the port and of the primary's connection.
    fn turn(&mut self, listener: &dyn Listener, host: &dyn Host, report: &mut impl FnMut(&str)) -> Option<Followed> {
        let is_idle = self.port.turn() == 0;
        let has_room = self.stream.is_none() || self.session.makes_room(host.now_ns());
        if has_room && let Some(stream) = listener.accept() {
            self.session = Session::begin(host.now_ns(), self.goes_on);
            match self.begin() {
                Ok(()) => self.stream = Some(stream),
                Err(why) => {
                    self.stream = None;
                    self.say_once(why, report);
                }
            }
        }
        if let Err(why) = self.exchange(host) {
            self.say_once(format!("the primary's connection has ended: {why}"), report);
            self.stream = None;
            // Its queue pair writes nothing more, so that the next primary finds the copy as it is.
            self.take_back();
        }
        if is_idle {
            thread::yield_now();
        }
        self.promise.poll(host.now_ns())
    }

    /// A primary that is refused comes again and again.
    fn say_once(&mut self, why: String, report: &mut impl FnMut(&str)) {
        if self.ended != why {
            report(&why);
            self.ended = why;
        }
    }

    /// A primary has connected: says what the copy has, and where it is.
    fn begin(&mut self) -> Result<(), String> {
        self.pending.clear();
        self.out.clear();
        self.connects = None;
        self.take_back();
        let Some(Copy::Ours(memory)) = self.copy.take() else { return Err("the copy is gone".to_owned()) };
        self.seen = match look(memory.as_ref(), self.seen) {
            Ok(seen) => seen,
            Err(why) => {
                self.copy = Some(Copy::Ours(memory));
                return Err(why);
            }
        };
        let (journal, end, last) = match self.seen {
            Some((mark, last)) => (mark.id(), mark.end() as u64, last),
            None => (0, 0, LastRecord::default()),
        };
        let len = memory.as_ref().len() as u64;
        let (mr, qp) = self.share(memory)?;
        self.psn = first_psn();
        let qpn = self.port.device().qpn(qp).map_or(0, Qpn::get);
        let own = RdmaEnd { qpn, psn: self.psn.get(), mtu: self.port.mtu() as u8, ip: self.ip };
        Frame::Follow { standby: self.standby, journal, end }.emit(&mut self.out);
        Frame::Memory { address: mr.address, rkey: mr.key, len, end: own, last }.emit(&mut self.out);
        Ok(())
    }

    /// Gives the memory a key and a queue pair. Where there is none, the copy stays ours.
    fn share(&mut self, memory: MappedFile) -> Result<(Mr, QpHandle), String> {
        let (pd, device) = (self.port.pd(), self.port.device());
        let options = QpOptions {
            transport: Transport::Rc,
            pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            send_depth: 1,
            recv_depth: 1,
            srq: None,
            signals_all: true,
        };
        let qp = match device.create_qp(&options) {
            Ok(qp) => qp,
            Err(error) => {
                self.copy = Some(Copy::Ours(memory));
                return Err(error.to_string());
            }
        };
        let (shared, region) = SharedFile::share(memory);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = device.register(pd, region, access).expect("the copy is the only memory of this device");
        self.copy = Some(Copy::Shared(shared, mr, qp));
        Ok((mr, qp))
    }

    /// Ends the key and the queue pair: from now on nobody else writes the memory.
    fn take_back(&mut self) {
        self.copy = match self.copy.take() {
            Some(Copy::Shared(shared, mr, qp)) => {
                let device = self.port.device();
                device.destroy_qp(qp).expect("the queue pair of the copy is there");
                let region = device.deregister(mr.handle).expect("the copy is registered");
                Some(Copy::Ours(shared.reclaim(region)))
            }
            copy => copy,
        };
    }

    fn exchange(&mut self, host: &dyn Host) -> Result<(), String> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let mut buffer = [0; 1_024];
        match stream.read(&mut buffer) {
            Ok(0) => return Err("it was closed".to_owned()),
            Ok(len) => {
                self.session.heard_at_ns = host.now_ns();
                self.pending.extend_from_slice(&buffer[..len]);
            }
            Err(error) if is_nothing(&error) => {
                let silence_ns = host.now_ns().saturating_sub(self.session.heard_at_ns);
                if silence_ns >= SILENCE_NS && !self.promise.has_promised() {
                    return Err("it is silent".to_owned());
                }
            }
            Err(error) => return Err(error.to_string()),
        }
        let mut pending = core::mem::take(&mut self.pending);
        take_frames(&mut pending, |frame| self.take(frame, host.now_ns()))?;
        self.pending = pending;
        self.connect(host.now_ns())?;
        self.flush()
    }

    fn take(&mut self, frame: Frame<'_>, now_ns: u64) -> Result<(), String> {
        match self.session.take(frame, &mut self.promise, now_ns)? {
            Asked::Nothing => (),
            Asked::Connect(end) => self.connects = Some((end, now_ns)),
            // What has arrived the primary knows by its completions.
            Asked::Grant { asked_ns } => Frame::Grant { asked_ns, end: 0 }.emit(&mut self.out),
        }
        Ok(())
    }

    /// Connects the queue pair as soon as the primary's MAC address is known.
    fn connect(&mut self, now_ns: u64) -> Result<(), String> {
        let Some((end, since_ns)) = self.connects else { return Ok(()) };
        let Some(Copy::Shared(_, _, qp)) = self.copy else { return Err("there is no copy".to_owned()) };
        let Some((path, _)) = self.port.path(end.ip)? else {
            return match now_ns.saturating_sub(since_ns) >= NEIGHBOR_NS {
                true => Err(format!("{} does not answer ARP: is the interface right, and the link up?", end.ip)),
                false => Ok(()),
            };
        };
        let mtu = Mtu::from_code(end.mtu).ok_or("its MTU is none of RoCE")?.min(self.port.mtu());
        let connection = QpAttributes {
            mtu: Some(mtu),
            rq_psn: Some(Psn::new(end.psn & 0xff_ffff)),
            sq_psn: Some(self.psn),
            access: Some(Access::REMOTE_WRITE),
            ..QpAttributes::connection(path, Qpn::new(end.qpn & 0xff_ffff))
        };
        self.port.device().connect_qp(qp, Transport::Rc, &connection).map_err(|error| error.to_string())?;
        self.connects = None;
        self.session.connected();
        self.ended.clear();
        Frame::Ready.emit(&mut self.out);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        if !self.out.is_empty() {
            match stream.write(&self.out) {
                Ok(len) => drop(self.out.drain(..len)),
                Err(error) if is_nothing(&error) => (),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// The standby ends, and does not take over.
    fn leave(&mut self) {
        self.promise.leave();
        Frame::Leave.emit(&mut self.out);
        // Where it is lost, the primary waits for a person who says `alone`.
        let _ = self.flush();
        self.close();
    }

    /// The key is worth nothing from now on, before anybody reads the copy for good.
    fn close(&mut self) {
        self.take_back();
        self.copy = None;
    }
}

/// Behind the last record of the journal in `memory`, and that record; `None` where there is no
/// journal yet. Goes on from what was `seen` before.
fn look(memory: &[u8], seen: Option<(Mark, LastRecord)>) -> Result<Option<(Mark, LastRecord)>, String> {
    if memory.iter().take(HEADER_LEN).all(|byte| *byte == 0) {
        return Ok(None);
    }
    let records = match seen {
        Some((mark, _)) => Records::behind_mark(memory, mark),
        None => Records::new(memory),
    };
    let mut records = records.map_err(|error| error.to_string())?;
    // Where nothing has come since, the last record is the one of before.
    let mut start =
        seen.filter(|(mark, _)| *mark == records.mark()).map_or(records.end() as u64, |(_, last)| last.start);
    loop {
        let end = records.end();
        if records.next().is_none() {
            break;
        }
        start = end as u64;
    }
    let last = LastRecord { start, sum: records.last_sum() };
    Ok(Some((records.mark(), last)))
}

#[cfg(test)]
mod tests {
    use order_entry::journal::{Journal, Stamp};

    use super::*;

    #[test]
    fn look_that_goes_on_finds_what_one_from_the_beginning_does() {
        let mut journal = Journal::create(vec![0; 1 << 14], 9, 0, 0).expect("it has room");
        let mut seen = None;
        for more in [0, 1, 0, 5, 0, 30] {
            for _ in 0..more {
                journal.append(7, Stamp::default(), b"record").expect("it has room");
            }
            let anew = look(journal.memory(), None);
            seen = look(journal.memory(), seen).expect("it is a journal");
            assert_eq!(Ok(seen), anew);
            assert_eq!(seen.map(|(mark, _)| mark.end()), Some(journal.end()));
        }
    }

    #[test]
    fn look_at_another_journal_begins_anew() {
        let first = Journal::create(vec![0; 1 << 12], 9, 0, 0).expect("it has room");
        let second = Journal::create(vec![0; 1 << 12], 10, 0, 0).expect("it has room");
        let seen = look(first.memory(), None).expect("it is a journal");
        assert_eq!(look(second.memory(), seen), look(second.memory(), None));
    }
}
