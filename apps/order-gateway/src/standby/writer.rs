//! The primary's side of a copy that it writes by RDMA.

use std::net::Ipv4Addr;

use order_entry::journal::{Journal, JournalMemory};
use rdma::mirror::{LogMirror, MirrorCounters, MirrorOptions};
use rdma::port::first_psn;
use rdma::provider::Provider;
use rdma::roce::{Mtu, QpAttributes, Remote};
use rdma::wire::opcode::Transport;
use rdma::wire::psn::Psn;
use rdma::wire::qpn::Qpn;

use super::frame::{Frame, RdmaEnd};
use super::primary::{Memory, NEAR, Primary};
use crate::error::Error;
use crate::rdma_port::RdmaPort;

/// What becomes of orders while the copy is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MirrorPolicy {
    /// An order leaves when the copy has it.
    #[default]
    BeforeSend,
    /// An order leaves behind its WRITE. Where the copy lacks more than 64 KiB, or is gone, orders
    /// stop.
    Stop,
    /// An order leaves behind its WRITE, whatever becomes of that. The copy never takes over by
    /// itself.
    GoOn,
}

/// Writes records into the memory of a standby.
#[derive(Debug)]
pub(super) struct Writer {
    port: RdmaPort,
    mirror: LogMirror,
    policy: MirrorPolicy,
    /// The memory that is to be written, until its queue pair is connected.
    begins: Option<Memory>,
    is_writing: bool,
    psn: Psn,
}

impl Writer {
    pub(super) fn new(mut port: RdmaPort, policy: MirrorPolicy) -> Result<Self, Error> {
        // Who waits for a record wants to know of each at once.
        let signal_every = if policy == MirrorPolicy::BeforeSend { 1 } else { 16 };
        let (pd, options) = (port.pd(), MirrorOptions { signal_every, ..MirrorOptions::default() });
        let mirror = LogMirror::new(port.device(), pd, &options).map_err(Error::failed)?;
        Ok(Self { port, mirror, policy, begins: None, is_writing: false, psn: first_psn() })
    }

    pub(super) const fn policy(&self) -> MirrorPolicy {
        self.policy
    }

    pub(super) const fn counters(&self) -> MirrorCounters {
        self.mirror.counters()
    }

    /// The connection is gone: nothing more is written by its queue pair.
    pub(super) fn disconnected(&mut self) -> Result<(), String> {
        (self.begins, self.is_writing) = (None, false);
        self.mirror.renew(self.port.device()).map_err(|error| error.to_string())
    }

    /// One turn of the port and of the connection. True in the turn in which it begins to write.
    pub(super) fn turn<M: JournalMemory>(
        &mut self,
        primary: &mut Primary,
        journal: &Journal<M>,
    ) -> Result<bool, String> {
        self.port.turn();
        if let Some(memory) = primary.take_memory() {
            self.begins = Some(memory);
        }
        self.begin(primary)?;
        let begins = !self.is_writing && primary.is_ready();
        self.is_writing |= begins;
        self.write(primary, journal)?;
        Ok(begins)
    }

    /// Connects the queue pair as soon as there is a way to the standby.
    fn begin(&mut self, primary: &mut Primary) -> Result<(), String> {
        let Some(memory) = self.begins else { return Ok(()) };
        let Some((path, own)) = self.port.path(memory.end.ip)? else { return Ok(()) };
        let theirs = Mtu::from_code(memory.end.mtu).ok_or("the standby's MTU is none of RoCE")?;
        let (qp, mtu) = (self.mirror.qp(), theirs.min(self.port.mtu()));
        self.psn = first_psn();
        let connection = QpAttributes {
            mtu: Some(mtu),
            rq_psn: Some(Psn::new(memory.end.psn & 0xff_ffff)),
            sq_psn: Some(self.psn),
            ..QpAttributes::connection(path, Qpn::new(memory.end.qpn & 0xff_ffff))
        };
        self.port.device().connect_qp(qp, Transport::Rc, &connection).map_err(|error| error.to_string())?;
        self.mirror.begin(Remote { address: memory.address, rkey: memory.rkey }, memory.len, memory.from);
        self.begins = None;
        let qpn = self.port.device().qpn(qp).map_or(0, Qpn::get);
        primary.say(Frame::Queue(RdmaEnd { qpn, psn: self.psn.get(), mtu: mtu as u8, ip: own }));
        Ok(())
    }

    /// Posts what the journal has more, and has it leave.
    pub(super) fn write<M: JournalMemory>(
        &mut self,
        primary: &mut Primary,
        journal: &Journal<M>,
    ) -> Result<(), String> {
        if !self.is_writing {
            return Ok(());
        }
        let before = self.mirror.posted();
        self.mirror.post(self.port.device(), journal.written(0));
        if self.mirror.posted() > before {
            self.port.turn();
        }
        self.mirror.poll(self.port.device());
        primary.wrote(self.mirror.posted(), self.mirror.acknowledged());
        match self.mirror.failure() {
            Some(status) => Err(format!("the standby's memory is out of reach: {status}")),
            None => Ok(()),
        }
    }

    /// Whether bytes whose records end at `records` may leave.
    pub(super) fn lets(&self, primary: &Primary, records: usize) -> bool {
        match self.policy {
            MirrorPolicy::BeforeSend => primary.has(records),
            MirrorPolicy::Stop => !primary.is_followed() || self.reach().has_left(records),
            MirrorPolicy::GoOn => true,
        }
    }

    fn reach(&self) -> Reach {
        Reach {
            is_writing: self.is_writing && self.mirror.failure().is_none(),
            posted: self.mirror.posted(),
            acknowledged: self.mirror.acknowledged(),
            has_unsent: self.port.has_unsent_requests(self.mirror.qp()),
        }
    }
}

/// How far the copy is.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// The connection is whole. Behind a failure nothing more is written, whatever was posted.
    is_writing: bool,
    posted: usize,
    acknowledged: usize,
    /// A WRITE that is posted waits for acknowledgments, or for its turn again.
    has_unsent: bool,
}

impl Reach {
    /// Whether the WRITEs of all before `records` have left, and the copy is near.
    const fn has_left(self, records: usize) -> bool {
        self.is_writing && records <= self.acknowledged + NEAR && self.posted >= records && !self.has_unsent
    }
}

/// The address of a mirror: `rdma://HOST[:PORT]`.
///
/// # Errors
///
/// It is another text.
pub fn mirror_address(url: &str) -> Result<std::net::SocketAddrV4, String> {
    let form = || format!("{url:?} should be the address of a mirror: rdma://192.0.2.11, or rdma://192.0.2.11:9301");
    let place = url.strip_prefix("rdma://").ok_or_else(form)?;
    let with_port = place.parse().ok();
    let alone = || place.parse::<Ipv4Addr>().ok().map(|ip| std::net::SocketAddrV4::new(ip, MIRROR_PORT));
    with_port.or_else(alone).ok_or_else(form)
}

/// Where a mirror listens, unless another port is said.
pub const MIRROR_PORT: u16 = 9_301;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_leaves_by_the_policy_stop_only_behind_its_write_by_a_whole_connection_and_near_the_copy() {
        let reach = Reach { is_writing: true, posted: 500, acknowledged: 400, has_unsent: false };
        assert!(reach.has_left(500) && !reach.has_left(501));
        assert!(!Reach { has_unsent: true, ..reach }.has_left(500));
        // Its WRITE was refused in this turn.
        assert!(!Reach { is_writing: false, ..reach }.has_left(500));
        let far = Reach { posted: 2 * NEAR, acknowledged: 0, ..reach };
        assert!(far.has_left(NEAR) && !far.has_left(NEAR + 1));
    }
}
